//! Events for processes that run already: one set for each thread on each CPU, or one for each CPU alone, into which
//! programs may write in the kernel's stead.
//!
//! # Guarantee
//! From [`Joined::began_ns`] on every record of every thread of the processes, and of all that they make, is seen once.
//!
//! # Protocol
//! Threads come and go while events are opened for them. The list of threads is read again until two passes in a row
//! find no new one; the recording begins just before the second of these two.
//! ```text
//! pass 1: A B        open A, open B
//! pass 2: A B C      open C            (B made C before its own events were open)
//! pass 3: A B C  <-- complete_ns       whoever is made from here on is made by a thread whose events are all open,
//!                                      inherits them, and is told of by a record
//! pass 4: A B C  <-- began_ns          whoever was made before pass 3 and is not in its list has ended by now
//! ```
//! Once its events are open, each thread is waited for until it is seen outside of memory calls, or asleep in one. Of
//! one that entered its call before its events were open, and has not left it when the recording begins, Linux tells
//! the arguments. Where each thread has events of its own, that is between pass 3 and pass 4.
//!
//! Where whole CPUs are watched, all events are open before pass 1, which is followed by the waiting; whoever is found
//! later is looked at once. So the last two passes stand close together, and a system in which processes come all the
//! time is joined in a moment in which none comes.
//!
//! A thread that was made while its maker's events were being opened, and ended before it could be listed, inherited
//! some of them: what they tell of it is a part, and none of it counts.
//! # Doubles
//! A thread that was made while its maker's events were being opened inherits some of them and is opened by itself too.
//! So each record carries its event's number, each event belongs to the thread that it was opened for, and of a thread
//! only the records of its own events count; of one that began later, those of its maker's ([`Joined::owners`]).

use std::collections::{HashMap, HashSet};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use faultless_trace::{Mode, Pace};

use crate::bpf::Programs;
use crate::costs::now_ns;
use crate::perf::{Begin, Event, Switches, Watch};
use crate::ring::Ring;
use crate::session::{Session, Setup, StackRings, map_as_permitted, online_cpus};
use crate::sources::Sources;
use crate::spool::Spool;
use crate::stacks::StackOptions;
use crate::target::{NumberedCall, Target, Unjoinable, Whereabouts, whereabouts};

/// Instead of a thread's number: whoever runs on a CPU.
const EVERYONE: i32 = -1;

/// So long the beginning waits at most for threads that may be inside a memory call whose arguments were not seen.
const SETTLING_MOST: Duration = Duration::from_millis(100);

/// So often they are looked at.
pub(crate) const SETTLING_LOOK: Duration = Duration::from_millis(1);

/// So often the threads are listed at most; who outpaces this makes threads faster than they can be listed.
const PASSES_MOST: usize = 1000;

/// A thread that was found running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) name: String,
}

/// Who was joined.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joined {
    /// The monotonic time from which on the ends of calls of those who were found are surely seen.
    pub(crate) open_ns: u64,
    /// The monotonic time from which on whoever is made inherits all events.
    pub(crate) complete_ns: u64,
    /// The monotonic time from which on everything is seen.
    pub(crate) began_ns: u64,
    /// The threads, in the order of the processes.
    pub(crate) members: Vec<Member>,
    /// The thread that each event was opened for, by the event's number.
    pub(crate) owners: HashMap<u64, u32>,
    /// The memory calls that threads were seen asleep in once all events were open, by the thread's number.
    pub(crate) inside: HashMap<u32, NumberedCall>,
}

/// What events are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Each thread, on each CPU.
    Threads,
    /// Each CPU, whoever runs there; what others do than the joined processes is left out later, or not written by
    /// the programs, if there are any. For root alone.
    Cpus,
}

/// Returns how many descriptors so many threads take, with some to spare for what else is open.
pub(crate) fn nr_descriptors(
    nr_threads: usize,
    nr_cpus: usize,
    sources: &Sources,
    stacks: Option<StackOptions>,
) -> usize {
    const SPARE: usize = 64;
    let nr_chains = stacks.map_or(0, |stacks| sources.stack_watches(stacks).len());
    let nr_events = 1 + sources.watches(Pace::Stored).len() + nr_chains;
    // Rings and their files on disk; and the trial that is open meanwhile.
    let nr_others = nr_cpus * (4 + nr_events) + SPARE;
    nr_threads * nr_cpus * nr_events + nr_others
}

/// Opens and enables events for all threads of the processes; `more` adds processes that are to be joined too, and
/// returns how many. The records that come meanwhile go to `spool`, which has a file for each online CPU.
pub(crate) fn join(
    sources: &Sources,
    setup: &Setup,
    targets: &mut Vec<Target>,
    more: &dyn Fn(&mut Vec<Target>) -> usize,
    (scope, programs): (Scope, Option<Programs>),
    spool: &mut Spool,
) -> Result<(Session, Joined), (i32, Unjoinable)> {
    let fail = |pid: i32| move |error| (pid, Unjoinable::of(pid, "watching it", error));
    let first = targets.first().map_or(0, |target| target.pid);
    let mut joining = Joiner::new(sources, setup, scope, programs).map_err(fail(first))?;
    let mut nr_quiet = 0;
    for nr_before in 0..PASSES_MOST {
        let now = now_ns();
        let is_quiet = joining.list(targets, more, spool)?;
        nr_quiet = if is_quiet { nr_quiet + 1 } else { 0 };
        let all_open = match scope {
            Scope::Threads => nr_quiet == 1,
            Scope::Cpus => nr_before == 0,
        };
        if all_open {
            joining.joined.open_ns = now;
            joining.settle(spool).map_err(fail(first))?;
        }
        match nr_quiet {
            0 => {}
            1 => joining.joined.complete_ns = now,
            _ => {
                joining.joined.began_ns = now;
                return Ok(joining.finish());
            }
        }
    }
    let pid = targets.last().map_or(first, |target| target.pid);
    Err(fail(pid)(io::Error::other("threads or processes are made faster than they can be listed")))
}

/// Looking where threads are.
pub(crate) struct Settling {
    begun: Instant,
    /// The process and thread of each that was not seen yet.
    unsettled: Vec<(u32, u32)>,
}

/// Whether looking where threads are is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Yes,
    No,
}

impl Settling {
    pub(crate) fn of(joined: &Joined) -> Self {
        let unsettled = joined.members.iter().map(|member| (member.pid, member.tid)).collect();
        Self { begun: Instant::now(), unsettled }
    }

    /// Looks once, and notes the calls that threads sleep in.
    pub(crate) fn look(&mut self, joined: &mut Joined) -> Settled {
        self.unsettled.retain(|&(pid, tid)| match whereabouts(pid, tid) {
            Whereabouts::Outside => false,
            Whereabouts::Inside(call) => {
                joined.inside.insert(tid, call);
                false
            }
            Whereabouts::Unknown => true,
        });
        let is_over = self.unsettled.is_empty() || self.begun.elapsed() > SETTLING_MOST;
        if is_over { Settled::Yes } else { Settled::No }
    }
}

/// Joining under way.
struct Joiner<'a> {
    sources: &'a Sources,
    setup: &'a Setup,
    scope: Scope,
    watches: Vec<(Watch, Option<String>)>,
    /// For each CPU, the event that owns the ring. It is the recorder's own, so that it outlives every thread.
    owners: Vec<(i32, Event)>,
    rings: Vec<Ring>,
    events: Vec<Event>,
    /// As `owners` and `rings`, for call chains.
    stacks: StackRings,
    chains: Vec<Event>,
    programs: Option<Programs>,
    known: HashSet<u32>,
    joined: Joined,
}

impl<'a> Joiner<'a> {
    fn new(sources: &'a Sources, setup: &'a Setup, scope: Scope, programs: Option<Programs>) -> io::Result<Self> {
        let mut joining = Self {
            sources,
            setup,
            scope,
            watches: sources.watches(setup.pace),
            owners: Vec::new(),
            rings: Vec::new(),
            events: Vec::new(),
            stacks: StackRings::default(),
            chains: Vec::new(),
            programs,
            known: HashSet::new(),
            joined: Joined::default(),
        };
        let mut ring_bytes = setup.ring_bytes;
        let cpus = online_cpus()?;
        joining.stacks = StackRings::open(sources, setup, &cpus)?;
        for cpu in cpus {
            let owner = joining.open(Watch::Nothing, 0, cpu)?;
            joining.rings.push(map_as_permitted(&owner, &mut ring_bytes)?);
            joining.owners.push((cpu, owner));
        }
        if joining.programs.is_some() {
            joining.open_outlets()?;
        } else if scope == Scope::Cpus {
            joining.open_all(EVERYONE)?;
        }
        Ok(joining)
    }

    /// Opens what programs write into, on each CPU, and what tells of mappings, names, forks and ends.
    fn open_outlets(&mut self) -> io::Result<()> {
        for (cpu, ring_owner) in &self.owners {
            for watch in [Watch::Leader(Switches::Unrecorded), Watch::Outlet] {
                let event = self.open(watch, EVERYONE, *cpu)?;
                event.redirect(ring_owner)?;
                event.enable()?;
                if let Some(programs) = self.programs.as_ref().filter(|_| watch == Watch::Outlet) {
                    programs.send_to(*cpu, event.raw())?;
                }
                self.events.push(event);
            }
        }
        Ok(())
    }

    /// Makes a pass over all; returns whether nobody was new.
    fn list(
        &mut self,
        targets: &mut Vec<Target>,
        more: &dyn Fn(&mut Vec<Target>) -> usize,
        spool: &mut Spool,
    ) -> Result<bool, (i32, Unjoinable)> {
        let mut is_quiet = more(targets) == 0;
        for target in targets.iter() {
            let fail = |error| (target.pid, Unjoinable::of(target.pid, "watching it", error));
            is_quiet &= self.pass(target).map_err(fail)? == 0;
            self.empty(spool).map_err(fail)?;
        }
        Ok(is_quiet)
    }

    fn open(&self, watch: Watch, tid: i32, cpu: i32) -> io::Result<Event> {
        let wakeup_bytes = (self.setup.ring_bytes / 4) as u32;
        Event::open(watch, tid, cpu, self.sources.reach(), Begin::Joining, wakeup_bytes)
    }

    /// Opens events for the threads that were not known; returns how many those are.
    fn pass(&mut self, target: &Target) -> io::Result<usize> {
        self.programs.iter().for_each(|programs| programs.watch(target.pid));
        let mut nr_new = 0;
        for tid in target.threads() {
            if self.known.insert(tid) {
                nr_new += 1;
                self.add(target, tid)?;
            }
        }
        Ok(nr_new)
    }

    /// Opens a thread's events, unless it has ended.
    fn add(&mut self, target: &Target, tid: u32) -> io::Result<()> {
        if self.scope == Scope::Threads {
            match self.open_all(tid as i32) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                result => result?,
            }
        }
        let name = target.thread_name(tid);
        // Who is found first is waited for.
        let is_later = self.scope == Scope::Cpus && self.joined.open_ns != 0;
        if is_later && let Whereabouts::Inside(call) = whereabouts(target.pid as u32, tid) {
            self.joined.inside.insert(tid, call);
        }
        self.joined.members.push(Member { pid: target.pid as u32, tid, name });
        Ok(())
    }

    fn open_all(&mut self, tid: i32) -> io::Result<()> {
        let switches = Switches::of(self.setup.pace);
        for place in 0..self.owners.len() {
            let leader = (Watch::Leader(switches), None);
            let watches: Vec<_> = std::iter::once(&leader).chain(&self.watches).cloned().collect();
            for (watch, filter) in watches {
                let (cpu, ring_owner) = &self.owners[place];
                let event = self.open(watch, tid, *cpu)?;
                filter.iter().try_for_each(|filter| event.set_filter(filter))?;
                event.redirect(ring_owner)?;
                if tid != EVERYONE {
                    self.joined.owners.insert(event.id()?, tid as u32);
                }
                event.enable()?;
                self.events.push(event);
            }
        }
        self.open_chains(tid)
    }

    fn open_chains(&mut self, tid: i32) -> io::Result<()> {
        let Some(stacks) = self.setup.stacks else { return Ok(()) };
        for place in 0..self.owners.len() {
            for (watch, filter) in self.sources.stack_watches(stacks) {
                let event = self.open(watch, tid, self.owners[place].0)?;
                filter.iter().try_for_each(|filter| event.set_filter(filter))?;
                event.redirect(&self.stacks.owners[place])?;
                if tid != EVERYONE {
                    self.joined.owners.insert(event.id()?, tid as u32);
                }
                event.enable()?;
                self.chains.push(event);
            }
        }
        Ok(())
    }

    /// Waits until each thread was seen outside of memory calls, or asleep in one: of every call that one is inside of
    /// from then on the arguments are known. A thread that computes all the time can't be seen so.
    fn settle(&mut self, spool: &mut Spool) -> io::Result<()> {
        if self.sources.mode() != Mode::Privileged {
            return Ok(());
        }
        let mut settling = Settling::of(&self.joined);
        while settling.look(&mut self.joined) == Settled::No {
            self.empty(spool)?;
            thread::sleep(SETTLING_LOOK);
        }
        Ok(())
    }

    /// Puts aside what the rings hold.
    fn empty(&mut self, spool: &mut Spool) -> io::Result<()> {
        let mut rings = self.rings.iter_mut().chain(&mut self.stacks.rings).enumerate();
        rings.try_for_each(|(place, ring)| ring.drain(|bytes| spool.append(place, bytes)))?;
        let Some(programs) = &self.programs else { return Ok(()) };
        (0..programs.nr_rings())
            .try_for_each(|place| programs.drain(place, |bytes| spool.append(self.rings.len() + place, bytes)))
    }

    fn finish(self) -> (Session, Joined) {
        let owners = self.owners.into_iter().map(|(_, owner)| owner);
        let leaders = owners.chain(self.stacks.owners).collect();
        let rings = self.rings.into_iter().chain(self.stacks.rings).collect();
        (Session::of(rings, leaders, self.events, self.chains, self.programs), self.joined)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::raw::RawFolder;
    use crate::shell::Shell;
    use crate::spool::Rings;

    #[test]
    fn whole_cpus_are_joined_although_somebody_is_new_every_moment() {
        const EVERY_NS: u64 = SETTLING_MOST.as_nanos() as u64 / 2;
        // Root alone may read them, and watch whole CPUs.
        let sources = match Sources::tracepoints() {
            Ok(sources) => sources,
            Err(error) => return println!("skipped: no tracepoints: {error}"),
        };
        // It computes, so that nobody sees it outside of memory calls.
        let program = Shell::new("while :; do :; done");
        let mut targets = vec![Target::find(program.pid()).expect("it runs")];
        let latest_ns = Cell::new(0);
        let more = |_: &mut Vec<Target>| {
            let is_new = now_ns() > latest_ns.get() + EVERY_NS;
            latest_ns.set(if is_new { now_ns() } else { latest_ns.get() });
            usize::from(is_new)
        };
        let folder =
            RawFolder::create(&std::env::temp_dir().join(format!("joining-{}", std::process::id()))).expect("a folder");
        let cpus = online_cpus().expect("CPUs");
        let mut spool = folder.spool(&vec![Rings::Events; cpus.len()]).expect("files");
        let setup = Setup { pid: 0, pace: Pace::Absent, begin: Begin::Joining, ring_bytes: 1 << 20, stacks: None };
        let (_, joined) = join(&sources, &setup, &mut targets, &more, (Scope::Cpus, None), &mut spool).expect("joined");
        assert!(joined.open_ns < joined.complete_ns && joined.complete_ns < joined.began_ns);
        assert_eq!(joined.members.len(), 1);
    }
}
