//! The processes of a trace: who belongs to which, and the trace of some of them alone.
//!
//! # Guarantee
//! Every thread belongs to exactly one process. What [`only`] keeps is enough to replay the chosen processes as if all
//! were replayed: their own events, and of those that they descend from all up to the fork.
//!
//! A number that was used twice names two processes here; both are chosen by it.

use std::fmt;

use faultless_trace::{Event, EventKind, ThreadIndex, Trace};

use crate::space_users::{SpaceUsers, UserChange};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// What its first thread was called last.
    pub command: String,
    /// Its threads.
    pub threads: Vec<ThreadIndex>,
}

/// The processes of a trace, in the order in which they began.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// All of them.
    pub all: Vec<Process>,
    /// The process of each thread: a place in `all`.
    pub of: Vec<usize>,
}

/// No place in a list.
const NONE: usize = usize::MAX;

impl Processes {
    /// Finds the processes of a trace.
    pub fn of(trace: &Trace) -> Self {
        let mut processes = Self { all: Vec::new(), of: vec![NONE; trace.threads.len()] };
        for space in &trace.snapshot.spaces {
            space.threads.iter().for_each(|&thread| processes.enter(trace, thread, None));
        }
        for event in &trace.events {
            processes.enter(trace, event.thread, None);
            if let EventKind::Clone(clone) = event.kind {
                processes.enter(trace, clone.child, Some(event.thread));
            }
        }
        (0..trace.threads.len()).for_each(|thread| processes.enter(trace, thread as ThreadIndex, None));
        processes
    }

    /// Enters a thread that is new: into its maker's process if it has that number, else into a new one. Of those
    /// without a maker the ones with one number are together.
    fn enter(&mut self, trace: &Trace, thread: ThreadIndex, maker: Option<ThreadIndex>) {
        if self.of[thread as usize] != NONE {
            return;
        }
        let pid = trace.threads[thread as usize].pid;
        let known = match maker {
            Some(maker) => Some(self.of[maker as usize]).filter(|&place| self.all[place].pid == pid),
            None => self.all.iter().position(|process| process.pid == pid),
        };
        let place = known.unwrap_or_else(|| {
            let command = trace.threads[thread as usize].name.clone();
            self.all.push(Process { pid, command, threads: Vec::new() });
            self.all.len() - 1
        });
        self.all[place].threads.push(thread);
        self.of[thread as usize] = place;
    }

    /// Returns the places of the processes with this number, or with a thread of this name.
    pub fn named(&self, trace: &Trace, who: &str) -> Vec<usize> {
        let pid: Option<u32> = who.parse().ok();
        let is_meant = |process: &Process| match pid {
            Some(pid) => process.pid == pid,
            None => process.threads.iter().any(|&thread| trace.threads[thread as usize].name == who),
        };
        (0..self.all.len()).filter(|&place| is_meant(&self.all[place])).collect()
    }
}

/// No process is called so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchProcess {
    /// As it was asked for.
    pub who: String,
}

impl fmt::Display for NoSuchProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the trace has no process '{}'; `faultless trace ps` lists them", self.who)
    }
}

impl std::error::Error for NoSuchProcess {}

/// Returns the trace of the processes with this number or name alone.
pub fn only(mut trace: Trace, who: &str) -> Result<Trace, NoSuchProcess> {
    let processes = Processes::of(&trace);
    let chosen = processes.named(&trace, who);
    if chosen.is_empty() {
        return Err(NoSuchProcess { who: who.to_owned() });
    }
    let space_users = SpaceUsers::of(&trace);
    let needs = Needs::of(&trace, &processes, &chosen, &space_users);
    let kept = needs.keep(&trace, &space_users);
    let mut places = kept.iter();
    trace.events.retain(|_| places.next().copied().unwrap_or_default());
    let mut space = 0;
    trace.snapshot.spaces.retain(|_| {
        space += 1;
        needs.until[space - 1].is_some()
    });
    Ok(trace)
}

/// Which spaces are needed.
struct Needs {
    /// For each space, the last event in it that is needed.
    until: Vec<Option<usize>>,
}

impl Needs {
    fn of(trace: &Trace, processes: &Processes, chosen: &[usize], space_users: &SpaceUsers) -> Self {
        let mut needs = Self { until: vec![None; space_users.spaces.len()] };
        let origins = origins(trace, space_users);
        let is_chosen = |thread: ThreadIndex| chosen.contains(&processes.of[thread as usize]);
        for (space, origin) in origins.iter().enumerate() {
            if origin.owner.is_some_and(is_chosen) {
                needs.need(&origins, space, usize::MAX);
            }
        }
        // A child of vfork lives in its maker's space until its exec.
        for (place, event) in trace.events.iter().enumerate() {
            if is_chosen(event.thread) {
                needs.need(&origins, space_users.space_of[place] as usize, place);
            }
        }
        needs
    }

    /// Needs a space up to an event, and what it is a copy of up to the fork.
    fn need(&mut self, origins: &[Origin], space: usize, until: usize) {
        if self.until[space].is_some_and(|known| known >= until) {
            return;
        }
        self.until[space] = Some(until);
        if let Some((parent, fork)) = origins[space].copied_by {
            self.need(origins, parent, fork);
        }
    }

    fn has(&self, space: usize, place: usize) -> bool {
        self.until[space].is_some_and(|until| place <= until)
    }

    /// Returns for each event whether it is needed: what happens in needed spaces, and who enters and leaves them.
    fn keep(&self, trace: &Trace, space_users: &SpaceUsers) -> Vec<bool> {
        let mut is_there = vec![false; trace.threads.len()];
        let mut home = vec![NONE; trace.threads.len()];
        for space in trace.snapshot.spaces.iter().enumerate().filter(|(place, _)| self.until[*place].is_some()) {
            space.1.threads.iter().for_each(|&thread| is_there[thread as usize] = true);
        }
        let mut keep_event = |(place, event): (usize, &Event)| {
            let (space, thread) = (space_users.space_of[place] as usize, event.thread as usize);
            let before = std::mem::replace(&mut home[thread], space);
            let is_inside = self.has(space, place);
            let is_kept = match event.kind {
                EventKind::Exit => is_there[thread],
                EventKind::Exec => is_inside || before != NONE && is_there[thread] && self.has(before, place),
                EventKind::Wake { woken } => is_inside && is_there[woken as usize],
                _ => is_inside,
            };
            is_there[thread] |= is_kept;
            if let EventKind::Clone(clone) = event.kind {
                is_there[clone.child as usize] |= is_kept;
                home[clone.child as usize] = match space_users.changes.get(&(place as u32)) {
                    Some(&UserChange::Fork { space, .. }) => space as usize,
                    _ => space,
                };
            }
            is_kept
        };
        trace.events.iter().enumerate().map(&mut keep_event).collect()
    }
}

/// Where a space comes from.
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    /// Its first thread.
    owner: Option<ThreadIndex>,
    /// What it is a copy of, and the fork's event.
    copied_by: Option<(usize, usize)>,
}

fn origins(trace: &Trace, space_users: &SpaceUsers) -> Vec<Origin> {
    let mut origins = vec![Origin::default(); space_users.spaces.len()];
    for (space, state) in trace.snapshot.spaces.iter().enumerate() {
        origins[space].owner = state.threads.first().copied();
    }
    for (&place, &change) in &space_users.changes {
        match change {
            UserChange::Fork { child, space, .. } => {
                let copied_by = Some((space_users.space_of[place as usize] as usize, place as usize));
                origins[space as usize] = Origin { owner: Some(child), copied_by };
            }
            UserChange::Renew { new, .. } => origins[new as usize].owner = Some(trace.events[place as usize].thread),
            UserChange::Spawn { .. } | UserChange::Leave(_) => {}
        }
    }
    for (&place, &space) in &space_users.adoptions {
        origins[space as usize].owner = Some(trace.events[place as usize].thread);
    }
    origins
}

#[cfg(test)]
mod tests {
    use faultless_trace::{CloneTask, Fault, Side, Thread};

    use super::*;

    const VFORK: u64 = CloneTask::VM | CloneTask::VFORK;

    /// A shell (10), which forks 11 and spawns 12 by vfork; each runs a program.
    fn trace() -> Trace {
        let thread = |pid: u32, tid: u32, name: &str| Thread { pid, tid, name: name.into() };
        let threads = vec![thread(10, 10, "sh"), thread(11, 11, "cat"), thread(12, 12, "cc"), thread(12, 13, "worker")];
        let fault = |address| EventKind::Fault(Fault { address, ip: 0x400, error_code: 6, side: Side::User });
        let clone = |child, flags| EventKind::Clone(CloneTask { child, flags });
        let kinds = [
            (0, EventKind::Exec),
            (0, fault(0x1000)),
            (0, clone(1, 0)),
            (1, fault(0x2000)),
            (0, fault(0x3000)),
            (1, EventKind::Exec),
            (1, fault(0x4000)),
            (0, clone(2, VFORK)),
            (2, fault(0x5000)),
            (2, EventKind::Exec),
            (2, clone(3, CloneTask::VM | CloneTask::THREAD)),
            (3, fault(0x6000)),
            (0, fault(0x7000)),
            (1, EventKind::Exit),
            (3, EventKind::Exit),
            (2, EventKind::Exit),
            (0, EventKind::Exit),
        ];
        let events = kinds.into_iter().zip(0..).map(|((thread, kind), time)| {
            let time_ns = time * 10;
            Event { thread, time_ns, on_cpu_ns: 0, kind }
        });
        Trace { threads, events: events.collect(), ..Trace::default() }
    }

    fn addresses(trace: &Trace) -> Vec<u64> {
        let address = |event: &Event| match event.kind {
            EventKind::Fault(fault) => Some(fault.address),
            _ => None,
        };
        trace.events.iter().filter_map(address).collect()
    }

    #[test]
    fn threads_with_their_makers_number_are_one_process() {
        let trace = trace();
        let processes = Processes::of(&trace);
        let found: Vec<_> = processes.all.iter().map(|process| (process.pid, process.threads.clone())).collect();
        assert_eq!(found, [(10, vec![0]), (11, vec![1]), (12, vec![2, 3])]);
        assert_eq!(processes.all[2].command, "cc");
        assert_eq!(processes.named(&trace, "worker"), [2]);
        assert_eq!(processes.named(&trace, "11"), [1]);
    }

    #[test]
    fn a_process_comes_with_what_it_is_a_copy_of_and_nothing_of_its_siblings() {
        assert_eq!(addresses(&only(trace(), "cat").unwrap()), [0x1000, 0x2000, 0x4000]);
        assert_eq!(addresses(&only(trace(), "12").unwrap()), [0x1000, 0x3000, 0x5000, 0x6000]);
    }

    #[test]
    fn the_maker_keeps_its_forks_and_whoever_shared_its_memory() {
        let only = only(trace(), "sh").unwrap();
        assert_eq!(addresses(&only), [0x1000, 0x3000, 0x5000, 0x7000]);
        let of = |thread: u32| only.events.iter().filter(move |event| event.thread == thread).map(|event| event.kind);
        assert_eq!(of(1).collect::<Vec<_>>(), [EventKind::Exit], "that it was made and ended");
        assert_eq!(of(2).filter(|kind| *kind == EventKind::Exec).count(), 1, "it leaves the space by its exec");
        assert_eq!(of(3).count(), 0);
    }

    #[test]
    fn what_is_kept_can_be_planned() {
        for who in ["sh", "cat", "cc"] {
            let trace = only(trace(), who).unwrap();
            let space_users = SpaceUsers::of(&trace);
            assert_eq!((space_users.impossible_clones, space_users.adoptions.len()), (0, 0), "{who}");
        }
    }

    #[test]
    fn a_name_that_nobody_has_is_refused() {
        let error = only(trace(), "emacs").unwrap_err();
        assert!(error.to_string().contains("'emacs'"), "{error}");
    }
}
