//! What may not have been over when something else began in its space: faults, or calls.
//!
//! # Guarantee
//! A fault is known by its beginning alone. Whoever is held up in one, switched out or with its CPU taken away by a
//! hypervisor, maps the page behind all that others do meanwhile, though the fault's record comes before theirs:
//! ```text
//! A   fault p ... switched out ................................ maps p
//! B                 fork, or madvise(p, MADV_DONTNEED)                   p: gone, in the child or for all, or there
//! ```
//! So what began before something need not have come before it.

use std::collections::BTreeSet;

use faultless_trace::Trace;
use rustc_hash::FxHashMap;

use super::ids::{EventIndex, SpaceIndex};
use super::space_users::SpaceUsers;

/// Follows a trace, from one event that is asked for to a later one.
pub struct UnderWay<'a, F> {
    trace: &'a Trace,
    space_users: &'a SpaceUsers,
    /// Says when what begins at an event is over, if something does.
    end_ns: F,
    /// For each space that threads share what began there, behind the time at which it is over.
    begun: FxHashMap<SpaceIndex, BTreeSet<(u64, EventIndex)>>,
    /// The first event that was not looked at.
    next: EventIndex,
}

impl<'a, F: Fn(EventIndex) -> Option<u64>> UnderWay<'a, F> {
    /// Stands before a trace's first event. `end_ns` says when what begins at an event is over, if something does.
    pub fn new(trace: &'a Trace, space_users: &'a SpaceUsers, end_ns: F) -> Self {
        Self { trace, space_users, end_ns, begun: FxHashMap::default(), next: 0 }
    }

    /// Returns what other threads of its space began before an event and may not have ended, clocks aside. The event
    /// is not before one that was asked for already.
    pub fn at(&mut self, event: EventIndex) -> impl Iterator<Item = EventIndex> + '_ {
        while self.next < event {
            self.note(self.next);
            self.next += 1;
        }
        let Self { trace, space_users, begun, .. } = self;
        let begun = begun.entry(space_users.space_of[event as usize]).or_default();
        let asked = &trace.events[event as usize];
        let oldest_ns = asked.time_ns.saturating_sub(trace.header.clock_error_ns);
        *begun = begun.split_off(&(oldest_ns, 0));
        let is_others = |&other: &EventIndex| trace.events[other as usize].thread != asked.thread;
        begun.iter().map(|&(_, other)| other).filter(is_others)
    }

    fn note(&mut self, event: EventIndex) {
        let space = self.space_users.space_of[event as usize];
        if self.space_users.spaces[space as usize].most_users > 1
            && let Some(end_ns) = (self.end_ns)(event)
        {
            self.begun.entry(space).or_default().insert((end_ns, event));
        }
    }
}
