//! The walk over a trace, in the order that was chosen for it, that makes the plan.
//!
//! # Guarantee
//! Steps come in the order of their moments; whatever a step waits for was made before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;

use faultless_trace::{Event, EventKind, ThreadIndex, Trace};
use rangemap::RangeSet;
use rustc_hash::{FxHashMap, FxHashSet};

use super::around::Span;
use super::contents::Contents;
use super::edges::{Knowledge, Wait, keep_latest};
use super::ids::{EventIndex, GateIndex, NONE, ObjectIndex, SpaceIndex, StepIndex};
use super::memory_calls::Reason;
use super::pace::is_pace;
use super::pending::Pending;
use super::races::Races;
use super::regions::PAGE;
use super::space::Space;
use super::space_users::SpaceUsers;
use super::windows::{Moment, Windows, at};
use super::{Action, ObjectPlan, Options, Pace, Plan, Program, Step, Totals};

/// The plan in the making.
pub(super) struct Builder<'a> {
    pub(super) trace: &'a Trace,
    pub(super) space_users: SpaceUsers,
    pub(super) windows: Windows,
    pub(super) races: Races<'a>,
    pub(super) spaces: Vec<Space>,
    pub(super) plan: Plan,
    /// Steps made so far, of all threads.
    pub(super) now: u32,
    /// Whether the recording lacks what decides the details of faults.
    pub(super) is_blind: bool,
    /// When a file was last cut.
    pub(super) file_cut_at: Option<u32>,
    /// What objects hold.
    pub(super) contents: Contents,
    /// For each thread that waits in vfork, the child.
    pub(super) vfork_child: Vec<ThreadIndex>,
    /// Whether another process may reach into each thread's memory.
    pub(super) is_traced: Vec<bool>,
    /// For each thread, the step at which it stopped using its maker's space.
    pub(super) released: Vec<StepIndex>,
    /// For each thread, a wake that it must wait for.
    pub(super) woken_by: Vec<Option<Wait>>,
    /// Waits of the step in the making.
    pub(super) waits: Vec<Wait>,
    /// Calls that were not made yet.
    pub(super) pending: Pending,
    /// Calls that wait for another's, with their new moments.
    postponed: BinaryHeap<Reverse<(Moment, EventIndex)>>,
    /// Faults that nothing explains so far.
    pub(super) surprises: FxHashSet<EventIndex>,
    /// Objects that were mapped where it is not known what is mapped: a store there may have reached another one.
    pub(super) uncertain_objects: FxHashSet<ObjectIndex>,
    /// Which bytes of objects calls have filled.
    pub(super) filled_objects: FxHashMap<ObjectIndex, RangeSet<u64>>,
    /// What each thread's steps wait for, in their order.
    awaited: Vec<Vec<Wait>>,
    knowledge: Knowledge,
    options: Options,
    work_ns: Vec<u64>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(trace: &'a Trace, options: Options) -> Self {
        let space_users = SpaceUsers::of(trace);
        let nr_threads = trace.threads.len();
        let races = Races::of(trace);
        Self {
            windows: Windows::of(trace, &space_users, &races),
            races,
            spaces: vec![empty_space(trace); space_users.spaces.len()],
            plan: Plan {
                programs: vec![Program::default(); nr_threads],
                lowest_mapped: u64::MAX,
                objects: trace.files.iter().map(|file| object_of(&file.path)).collect(),
                ..Plan::default()
            },
            now: 0,
            is_blind: is_blind(trace),
            file_cut_at: None,
            contents: Contents::default(),
            pending: Pending::of(trace, &space_users),
            postponed: BinaryHeap::new(),
            vfork_child: vec![NONE; nr_threads],
            is_traced: vec![false; nr_threads],
            released: vec![NONE; nr_threads],
            woken_by: vec![None; nr_threads],
            waits: Vec::new(),
            surprises: FxHashSet::default(),
            uncertain_objects: FxHashSet::default(),
            filled_objects: FxHashMap::default(),
            awaited: vec![Vec::new(); nr_threads],
            knowledge: Knowledge::new(nr_threads),
            work_ns: if options.pace == Pace::Recorded { super::pace::work(trace) } else { Vec::new() },
            space_users,
            options,
            trace,
        }
    }

    pub(super) fn build(mut self) -> Plan {
        let order = self.in_order();
        let mut order = self.begin_joined(order).into_iter().peekable();
        while let Some((moment, event)) = self.next_in(&mut order) {
            if !self.is_postponed(event, moment) {
                self.take(event);
            }
        }
        self.finish()
    }

    /// Returns the next event of the order or of those that were postponed, whichever comes first.
    fn next_in(
        &mut self,
        order: &mut Peekable<impl Iterator<Item = (Moment, EventIndex)>>,
    ) -> Option<(Moment, EventIndex)> {
        let postponed = self.postponed.peek().map(|&Reverse(next)| next);
        match (order.peek(), postponed) {
            (Some(&next), Some(waiting)) if next < waiting => order.next(),
            (_, Some(_)) => self.postponed.pop().map(|Reverse(next)| next),
            _ => order.next(),
        }
    }

    /// Lets a call that can't have happened yet come later; returns whether it does, or was made before.
    fn is_postponed(&mut self, event: EventIndex, moment: Moment) -> bool {
        if !matches!(self.trace.events[event as usize].kind, EventKind::CallEnter(_)) {
            return false;
        }
        if self.pending.is_made(self.trace.events[event as usize].thread, event) {
            return true;
        }
        let Some(later) = self.later_moment(event, moment) else { return false };
        self.windows.postpone(event, later);
        self.postponed.push(Reverse((later, event)));
        true
    }

    /// Returns the events that become steps, in the order of their moments.
    fn in_order(&self) -> Vec<(Moment, EventIndex)> {
        let events = self.trace.events.iter().enumerate();
        let mut order: Vec<(Moment, EventIndex)> = events
            .filter_map(|(place, event)| Some((self.moment(place as EventIndex, event)?, place as EventIndex)))
            .collect();
        order.sort_unstable();
        order
    }

    /// Returns when an event is replayed; nothing for one that is part of another, or left out.
    fn moment(&self, place: EventIndex, event: &Event) -> Option<Moment> {
        match event.kind {
            _ if self.space_users.adoptions.contains_key(&place) => Some(at(place)),
            EventKind::CallEnter(_) => self.windows.calls.get(&place).map(|window| window.moment),
            EventKind::CallExit(_) => None,
            EventKind::Mapped(_) if self.windows.is_inside.contains_key(&place) => None,
            ref kind if is_pace(kind) && self.options.pace == Pace::None => None,
            _ => Some(at(place)),
        }
    }

    pub(super) fn take(&mut self, place: EventIndex) {
        let event = self.trace.events[place as usize];
        if let Some(&space) = self.space_users.adoptions.get(&place) {
            self.adopt(place, event.thread, space);
        }
        match event.kind {
            EventKind::Fault(fault) => self.fault(place, fault),
            EventKind::CallEnter(enter) => self.call(place, enter),
            EventKind::Mapped(_) if self.windows.is_inside.contains_key(&place) => {}
            EventKind::Mapped(mapped) => self.told(place, mapped),
            EventKind::Clone(_) | EventKind::Exec | EventKind::Exit => self.change_users(place, event.thread),
            ref kind if is_pace(kind) && self.options.pace == Pace::None => {}
            EventKind::Wake { woken } => self.wake(place, woken),
            EventKind::SwitchIn => self.switch_in(place, event.thread),
            EventKind::SwitchOut(_) => drop(self.push(place, event.thread, Action::Pass)),
            EventKind::CallExit(_) => {}
        }
    }

    /// Returns the space in which an event acts.
    pub(super) fn space_of(&self, place: EventIndex) -> SpaceIndex {
        self.space_users.space_of[place as usize]
    }

    /// Returns whether several threads use a space at some time, so that order inside it matters.
    pub(super) fn is_shared(&self, space: SpaceIndex) -> bool {
        self.space_users.spaces[space as usize].most_users > 1
    }

    /// Adds a step that waits for what was collected; returns it as something to wait for.
    pub(super) fn push(&mut self, event: EventIndex, thread: ThreadIndex, action: Action) -> Wait {
        self.await_vfork(thread);
        let nr_waits = self.settle_waits(thread);
        let work_ns = self.work_ns.get(event as usize).copied().unwrap_or(0);
        let program = &mut self.plan.programs[thread as usize];
        program.steps.push(Step { event, nr_waits, work_ns, gate: None, action });
        self.now += 1;
        Wait { thread, step: program.steps.len() as StepIndex - 1 }
    }

    /// A thread that made a child by vfork goes on after the child's exec or end.
    fn await_vfork(&mut self, thread: ThreadIndex) {
        let child = std::mem::replace(&mut self.vfork_child[thread as usize], NONE);
        if child == NONE {
            return;
        }
        let released = self.released[child as usize];
        let last = self.plan.programs[child as usize].steps.len().checked_sub(1);
        let step = if released == NONE { last.map(|step| step as StepIndex) } else { Some(released) };
        self.waits.extend(step.map(|step| Wait { thread: child, step }));
    }

    fn settle_waits(&mut self, thread: ThreadIndex) -> u32 {
        let mut candidates = std::mem::take(&mut self.waits);
        keep_latest(&mut candidates);
        let waits = &mut self.awaited[thread as usize];
        let before = waits.len();
        candidates.drain(..).for_each(|wait| self.knowledge.need(thread, wait, waits));
        let nr_waits = waits.len() - before;
        self.waits = candidates;
        self.plan.totals.waits += nr_waits as u64;
        nr_waits as u32
    }

    /// Lets a child begin with what its maker knows.
    pub(super) fn inherit(&mut self, child: ThreadIndex, maker: Wait) {
        self.knowledge.inherit(child, maker);
    }

    pub(super) fn skip(&mut self, kind: &'static str, count: u64) {
        if count > 0 {
            *self.plan.totals.skipped.entry(kind).or_default() += count;
        }
    }

    fn finish(mut self) -> Plan {
        self.end_threads();
        self.make_gates();
        let (orphans, clones) = (self.windows.orphans.len() as u64, self.space_users.impossible_clones);
        if self.trace.snapshot.is_empty() {
            self.skip("call without its enter", orphans);
        } else if orphans > 0 {
            *self.plan.totals.imposed.entry(Reason::InFlight).or_default() += orphans;
        }
        self.skip("clone of a running thread", clones);
        let totals = std::mem::take(&mut self.plan.totals);
        self.plan.totals = Totals { events: self.trace.events.len() as u64, lost: self.trace.header.lost, ..totals };
        let filled = self.filled_objects.values().flat_map(|filled| filled.iter());
        let filled_bytes: u64 = filled.map(|bytes| bytes.end - bytes.start).sum();
        self.plan.demand.object_pages += filled_bytes.div_ceil(PAGE);
        self.plan.demand.object_pages += OBJECT_TABLES * self.plan.objects.len() as u64;
        self.plan.roots = std::mem::take(&mut self.space_users.roots);
        self.plan.surprises = self.surprises.into_iter().collect();
        self.plan.surprises.sort_unstable();
        self.plan.has_shared_spaces = self.space_users.has_threads();
        self.plan.is_blind = self.is_blind;
        self.plan.nr_spaces = self.space_users.spaces.len() as u32;
        self.plan
    }

    /// Gives a gate to every step that is waited for.
    fn make_gates(&mut self) {
        let awaited = std::mem::take(&mut self.awaited);
        for (thread, waits) in awaited.into_iter().enumerate() {
            let gates = waits.into_iter().map(|wait| self.gate_of(wait)).collect();
            self.plan.programs[thread].waits = gates;
        }
    }

    fn gate_of(&mut self, wait: Wait) -> GateIndex {
        let step = &mut self.plan.programs[wait.thread as usize].steps[wait.step as usize];
        *step.gate.get_or_insert_with(|| {
            self.plan.nr_gates += 1;
            self.plan.nr_gates - 1
        })
    }
}

/// Returns a space in which nothing was mapped, on the recorded machine.
pub(super) fn empty_space(trace: &Trace) -> Space {
    Space::new(Span::of_release(&trace.header.machine.kernel))
}

/// Returns whether the recording lacks what decides the details of faults.
fn is_blind(trace: &Trace) -> bool {
    trace.header.lost > 0 || trace.header.missing.iter().any(|missing| missing.is_of_faults())
}

/// Frames that an object's own tree takes, when it is small.
const OBJECT_TABLES: u64 = 4;

/// Names under which the kernel shows memory that lives in no file system that is told of stores.
const MEMORY_NAMES: [&str; 5] = ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/", "anon_inode:"];

/// Names of what drivers map: rings of perf, io_uring and packet sockets, devices.
const DRIVER_NAMES: [&str; 3] = ["anon_inode:", "socket:", "/dev/"];

/// Names below them of memory that is made page by page, as other memory is.
const DRIVERLESS_NAMES: [&str; 2] = ["/dev/zero", "/dev/shm/"];

fn object_of(path: &str) -> ObjectPlan {
    let is_one_of = |names: &[&str]| names.iter().any(|name| path.starts_with(name));
    let is_drivers = is_one_of(&DRIVER_NAMES) && !is_one_of(&DRIVERLESS_NAMES);
    ObjectPlan { is_memory: is_one_of(&MEMORY_NAMES), is_drivers, ..ObjectPlan::default() }
}
