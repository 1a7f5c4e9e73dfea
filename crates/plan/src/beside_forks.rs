//! What a fork may have copied before or after another thread did something beside it.
//!
//! # Guarantee
//! The copying begins behind the thread's last event before its fork's; nothing else tells when. What another thread
//! of the space does meanwhile is in the child or not, and a replay may decide otherwise:
//! ```text
//! A   fault ............... copies ............. fork -> child
//! B     fault p ..., or madvise(p, MADV_DONTNEED) ...            child: p is there, or not
//! ```
//! The faults of others are uncertain then, those that began before too if they may not have been over; and so are the
//! pages that others' calls make come or go. Of its own the kernel stores one number meanwhile, if it was asked for a
//! descriptor of the child (kernel/fork.c, `copy_process`): behind the copying, and before the fork's event.

use std::ops::Range;

use faultless_trace::{Access, CloneTask, EventKind, Side};

use super::contests::ranges_of;
use super::ids::EventIndex;
use super::pace::is_pace;
use super::races::Races;
use super::space_users::UserChange;
use super::under_way::UnderWay;
use super::windows::{Bits, Direction, RangesByEvent, Reach, Scout};

impl Scout<'_> {
    /// Marks the faults of other threads that forks may have overtaken; returns the ranges that calls beside forks
    /// reach, by the forks' events and by the calls' enters.
    pub(super) fn doubt_forks(
        &self,
        races: &Races<'_>,
        uncertain: &mut Bits,
        contests: &mut RangesByEvent,
    ) -> RangesByEvent {
        let forks = self.space_users.changes.iter().filter(|(_, change)| matches!(change, UserChange::Fork { .. }));
        let forks = forks.map(|(&event, _)| event);
        forks.clone().flat_map(|fork| self.own_stores(fork)).for_each(|event| uncertain.insert(event));
        let forks = forks.filter(|&event| self.is_shared(event));
        let mut copyings: Vec<Range<EventIndex>> = forks.map(|fork| self.begin_of_copying(fork)..fork).collect();
        copyings.sort_unstable_by_key(|copying| copying.start);
        let calls = UnderWay::new(self.trace, self.space_users, |event| self.call_end_ns(event));
        let (mut faults, mut calls, mut reached) = (self.faults_under_way(races), calls, RangesByEvent::default());
        for copying in copyings {
            faults.at(copying.start).for_each(|event| uncertain.insert(event));
            self.doubt_faults(&copying, uncertain);
            self.note_calls(&copying, calls.at(copying.start), &mut reached, contests);
        }
        reached
    }

    /// Returns when the call that begins at an event is over; none if none does.
    pub(super) fn call_end_ns(&self, event: EventIndex) -> Option<u64> {
        let exit = self.windows.calls.get(&event)?.exit;
        Some(exit.map_or(u64::MAX, |exit| self.trace.events[exit as usize].time_ns))
    }

    fn begin_of_copying(&self, fork: EventIndex) -> EventIndex {
        let first = self.own_stores(fork).last().unwrap_or(fork);
        self.own_before(first).next().unwrap_or(0)
    }

    /// Visits what the thread did before one of its events, the latest first.
    fn own_before(&self, event: EventIndex) -> impl Iterator<Item = EventIndex> {
        let thread = self.thread(event);
        let is_own = move |event: &EventIndex| {
            let event = &self.trace.events[*event as usize];
            event.thread == thread && !is_pace(&event.kind)
        };
        (0..event).rev().filter(is_own)
    }

    /// Visits the faults of a fork's own thread by which the kernel may have stored a descriptor's number behind the
    /// copying, the latest first.
    fn own_stores(&self, fork: EventIndex) -> impl Iterator<Item = EventIndex> {
        let stores = |event: &EventIndex| match self.trace.events[*event as usize].kind {
            EventKind::Fault(fault) => fault.side == Side::Kernel && fault.access() == Access::Write,
            _ => false,
        };
        let kind = &self.trace.events[fork as usize].kind;
        let has_descriptor = matches!(kind, EventKind::Clone(task) if task.flags & CloneTask::PIDFD != 0);
        self.own_before(fork).take_while(move |event| has_descriptor && stores(event))
    }

    fn doubt_faults(&self, copying: &Range<EventIndex>, uncertain: &mut Bits) {
        self.events_beside(copying)
            .filter(|&event| matches!(self.trace.events[event as usize].kind, EventKind::Fault(_)))
            .for_each(|event| uncertain.insert(event));
    }

    /// Notes what the calls reach that were `open` when the copying began, or begin meanwhile.
    fn note_calls(
        &self,
        copying: &Range<EventIndex>,
        open: impl Iterator<Item = EventIndex>,
        reached: &mut RangesByEvent,
        contests: &mut RangesByEvent,
    ) {
        for enter in open.chain(self.events_beside(copying)) {
            let Some((call, result)) = self.call(enter) else { continue };
            if self.changes_areas(&call) {
                contests.entry(copying.end).or_default().extend(ranges_of(&call, result));
            }
            let reach = Reach::of(&call, result, None);
            for range in reach.ranges().into_iter().filter(|range| !range.is_empty()) {
                reached.entry(copying.end).or_default().push(range.clone());
                reached.entry(enter).or_default().push(range.clone());
            }
        }
    }

    /// Visits what other threads of the space did while the copying may have been under way.
    fn events_beside(&self, copying: &Range<EventIndex>) -> impl Iterator<Item = EventIndex> {
        let (fork, thread) = (copying.end, self.thread(copying.end));
        let around = self.near(copying.start, Direction::Back).chain(copying.clone());
        let around = around.chain(self.near(fork, Direction::Forth));
        around.filter(move |&event| self.is_neighbour(event, thread, fork))
    }
}
