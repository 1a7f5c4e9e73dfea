//! Calls that several threads of a space are in at the same time: which of them came first.
//!
//! # Guarantee
//! A call that did not fit the map at its moment is made after the overlapping call that made it fit, if there is one;
//! it never leaves the window between its thread's neighbouring events.
//!
//! # Why
//! Of two calls that overlap in time the records don't tell the order, but the results do:
//! ```text
//! A  enter mremap(a, grow) ............ exit -> a      a grew into room that b left: B's call came first
//! B       enter mremap(b, move) ... exit -> c
//! ```
//! `mmap` and `mremap` return addresses that were free, a successful call found its range mapped, `MAP_FIXED_NOREPLACE`
//! failed because something was there. Where both orders fit, breaks go up: a heap's users go on touching what they
//! got.

use std::ops::Range;

use faultless_abi::{MapFlags, RemapFlags};
use faultless_trace::{Call, CallEnter, EventKind, ThreadIndex, Trace};

use super::build::Builder;
use super::decode::is_error;
use super::ids::{EventIndex, SpaceIndex};
use super::regions::Regions;
use super::space_users::SpaceUsers;
use super::windows::{Moment, Reach, Window, at, span};

/// The calls of each thread that were not made yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// By thread, the enters in spaces that several threads use.
    enters: Vec<Vec<EventIndex>>,
    /// By thread, how many of them were made.
    made: Vec<usize>,
}

impl Pending {
    pub(super) fn of(trace: &Trace, space_users: &SpaceUsers) -> Self {
        let mut enters = vec![Vec::new(); trace.threads.len()];
        for (place, event) in trace.events.iter().enumerate() {
            let is_shared = space_users.spaces[space_users.space_of[place] as usize].most_users > 1;
            if is_shared && matches!(event.kind, EventKind::CallEnter(_)) {
                enters[event.thread as usize].push(place as EventIndex);
            }
        }
        Self { made: vec![0; enters.len()], enters }
    }

    /// Notes that a call was made; a thread's calls are made in order.
    pub(super) fn note_made(&mut self, thread: ThreadIndex, enter: EventIndex) {
        let (enters, made) = (&self.enters[thread as usize], &mut self.made[thread as usize]);
        if enters.get(*made) == Some(&enter) {
            *made += 1;
        }
    }

    /// Returns whether a call was made already.
    pub(super) fn is_made(&self, thread: ThreadIndex, enter: EventIndex) -> bool {
        self.made[thread as usize] > self.enters[thread as usize].partition_point(|&other| other < enter)
            && self.enters[thread as usize].binary_search(&enter).is_ok()
    }

    /// Returns the thread's next call.
    fn next(&self, thread: ThreadIndex) -> Option<EventIndex> {
        self.enters[thread as usize].get(self.made[thread as usize]).copied()
    }

    /// Visits each other thread's last call that was entered before `end`.
    fn last_of_others(&self, thread: ThreadIndex, end: EventIndex) -> impl Iterator<Item = EventIndex> + '_ {
        let others = self.enters.iter().enumerate().filter(move |(other, _)| *other != thread as usize);
        others.filter_map(move |(_, enters)| enters[..enters.partition_point(|&enter| enter < end)].last().copied())
    }

    /// Visits the calls of other threads that were not made and were entered before `end`.
    fn others(&self, thread: ThreadIndex, end: EventIndex) -> impl Iterator<Item = EventIndex> + '_ {
        let threads =
            self.enters.iter().zip(&self.made).enumerate().filter(move |(other, _)| *other != thread as usize);
        threads
            .flat_map(move |(_, (enters, &made))| enters[made..].iter().copied().take_while(move |&enter| enter < end))
    }
}

/// What a call's result says of the map just before it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Need {
    /// Nothing was mapped there.
    Free(Range<u64>),
    /// All of it was mapped.
    Mapped(Range<u64>),
    /// Some of it was mapped: programs unmap ranges with holes, but not ranges that are one.
    Touched(Range<u64>),
}

impl Need {
    /// Returns what a call that ended so says.
    fn of(enter: &CallEnter, result: i64) -> Vec<Self> {
        let [start, len, third, fourth, ..] = enter.args;
        match enter.call {
            Call::Mmap if is_error(result) => Vec::new(),
            Call::Mmap if MapFlags::from_bits_retain(fourth).contains(MapFlags::FIXED) => Vec::new(),
            Call::Mmap => vec![Self::Free(span(result as u64, len))],
            Call::Mremap if is_error(result) => Vec::new(),
            Call::Mremap => Self::of_remap(span(start, len), span(result as u64, third), fourth),
            Call::Munmap if result == 0 => vec![Self::Touched(span(start, len))],
            Call::Mprotect | Call::PkeyMprotect | Call::Madvise if result == 0 => vec![Self::Mapped(span(start, len))],
            _ => Vec::new(),
        }
    }

    fn of_remap(old: Range<u64>, new: Range<u64>, flags: u64) -> Vec<Self> {
        let given = if new.start == old.start { old.end..new.end.max(old.end) } else { new };
        let is_fixed = RemapFlags::from_bits_retain(flags).contains(RemapFlags::FIXED);
        let free = (!is_fixed && !given.is_empty()).then_some(Self::Free(given));
        std::iter::once(Self::Mapped(old)).chain(free).filter(|need| !need.range().is_empty()).collect()
    }

    fn range(&self) -> &Range<u64> {
        match self {
            Self::Free(range) | Self::Mapped(range) | Self::Touched(range) => range,
        }
    }

    fn is_met(&self, regions: &Regions) -> bool {
        match self {
            Self::Free(range) => regions.overlapping(range.clone()).next().is_none(),
            Self::Mapped(range) => regions.first_hole(range.clone()).is_none(),
            Self::Touched(range) => regions.overlapping(range.clone()).next().is_some(),
        }
    }

    /// Returns whether another call helps.
    fn is_helped(&self, enter: &CallEnter, result: i64) -> bool {
        let reach = Reach::of(enter, result, None);
        let (helps, changed) = match self {
            Self::Free(_) => (matches!(enter.call, Call::Munmap | Call::Mremap), reach.takes),
            Self::Mapped(_) | Self::Touched(_) => (matches!(enter.call, Call::Mmap | Call::Mremap), reach.gives),
        };
        helps && changed.start < self.range().end && self.range().start < changed.end
    }
}

impl Builder<'_> {
    /// Returns when a call is made instead, if it can't have happened at `moment`.
    pub(super) fn later_moment(&mut self, event: EventIndex, moment: Moment) -> Option<Moment> {
        let space = self.space_of(event);
        if !self.is_shared(space) || self.is_blind {
            return None;
        }
        // A thread's own calls stay in order.
        let earlier = self.pending.next(self.thread_of(event)).filter(|&next| next < event);
        if let Some(earlier) = earlier {
            return Some(self.windows.calls[&earlier].moment.max(moment) + 1);
        }
        let (enter, result) = self.call_at(event)?;
        if enter.call == Call::Brk {
            self.make_lower_breaks(event, &enter, result, moment);
            return None;
        }
        let latest = self.windows.calls[&event].latest;
        let helper = self.helper(event, space, &Need::of(&enter, result), moment)?;
        match helper.moment + 1 {
            later if (moment + 1..=latest).contains(&later) => Some(later),
            // It can't wait for so long. The other one was entered, so it may be made now if it fits.
            _ if self.may_be_made(helper.enter, moment) && self.fits(helper.enter, space) => {
                self.take(helper.enter);
                None
            }
            _ => None,
        }
    }

    /// Returns whether another thread of the space was inside a call at the same time, as far as the clocks tell.
    pub(super) fn is_beside_others(&self, event: EventIndex) -> bool {
        let space = self.space_of(event);
        if !self.is_shared(space) {
            return false;
        }
        let events = &self.trace.events;
        let (time_ns, error_ns) =
            (|event: EventIndex| events[event as usize].time_ns, self.trace.header.clock_error_ns);
        let exit = self.windows.calls[&event].exit;
        let last_ns = exit.map_or(u64::MAX, |exit| time_ns(exit).saturating_add(error_ns));
        let end = events.partition_point(|event| event.time_ns <= last_ns) as EventIndex;
        let is_over = |enter: EventIndex| {
            let exit = self.windows.calls[&enter].exit;
            exit.is_some_and(|exit| time_ns(exit).saturating_add(error_ns) < time_ns(event))
        };
        let mut others = self.pending.last_of_others(self.thread_of(event), end);
        others.any(|enter| self.space_of(enter) == space && !is_over(enter))
    }

    fn call_at(&self, event: EventIndex) -> Option<(CallEnter, i64)> {
        let (enter, result) = self.windows.call_at(self.trace, event)?;
        Some((enter, result?))
    }

    fn thread_of(&self, event: EventIndex) -> ThreadIndex {
        self.trace.events[event as usize].thread
    }

    /// Returns whether a call was entered, and is its thread's next.
    fn may_be_made(&self, event: EventIndex, moment: Moment) -> bool {
        at(event) < moment && self.pending.next(self.thread_of(event)) == Some(event)
    }

    fn fits(&self, event: EventIndex, space: SpaceIndex) -> bool {
        let regions = &self.spaces[space as usize].regions;
        let needs = self.call_at(event).map(|(enter, result)| Need::of(&enter, result));
        needs.is_some_and(|needs| needs.iter().all(|need| need.is_met(regions)))
    }

    /// Returns the first other call that makes the map as a call needs it.
    fn helper(&self, event: EventIndex, space: SpaceIndex, needs: &[Need], moment: Moment) -> Option<Window> {
        let regions = &self.spaces[space as usize].regions;
        let unmet: Vec<&Need> = needs.iter().filter(|need| !need.is_met(regions)).collect();
        if unmet.is_empty() {
            return None;
        }
        let helps = |enter: EventIndex| {
            let is_here = self.space_of(enter) == space;
            let (call, result) = self.call_at(enter).filter(|_| is_here)?;
            unmet.iter().any(|need| need.is_helped(&call, result)).then(|| self.windows.calls[&enter])
        };
        let thread = self.thread_of(event);
        let end = self.windows.calls[&event].exit.unwrap_or(event) + 1;
        let found = self.pending.others(thread, end).filter_map(helps);
        found.filter(|window| window.moment >= moment).min_by_key(|window| window.moment)
    }

    /// Makes the breaks that other threads asked for before, where they are below a new and higher one.
    fn make_lower_breaks(&mut self, event: EventIndex, enter: &CallEnter, result: i64, moment: Moment) {
        let (space, requested) = (self.space_of(event), enter.args[0]);
        let before = self.spaces[space as usize].program_break;
        if result as u64 != requested || before.is_none_or(|before| requested <= before) {
            return;
        }
        let is_lower = |other: &EventIndex| {
            let call = self.call_at(*other).filter(|_| self.space_of(*other) == space);
            call.is_some_and(|(call, told)| call.call == Call::Brk && (told as u64) < requested)
        };
        let thread = self.thread_of(event);
        let end = self.windows.calls[&event].exit.unwrap_or(event);
        let mut lower: Vec<EventIndex> = self.pending.others(thread, end).filter(is_lower).collect();
        lower.sort_by_key(|&other| self.call_at(other).map(|(_, told)| told));
        for other in lower {
            if self.may_be_made(other, moment) {
                self.take(other);
            }
        }
    }
}
