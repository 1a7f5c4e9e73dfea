//! When a call that locks or unlocks memory takes effect, beside others that do.
//!
//! # Guarantee
//! The moment lies inside the call's window, and before what other threads saw of its effect. A call that a later
//! result contradicts, if it came last, comes before the other thread's call that explains the result.
//!
//! # Why
//! Linux marks memory as locked first and then fetches its pages, which may take long. Other threads may unlock it
//! meanwhile; whether memory is locked shows by advice to drop it, which is refused then (mm/madvise.c):
//! ```text
//! A  enter mlock(p) ........................................... exit, madvise(p, DONTNEED) = 0
//!       took effect here
//! B                    mlock(p)  madvise(p, DONTNEED) = EINVAL  munlock(p)
//! ```

use std::ops::Range;

use faultless_abi::{Errno, advice_of};
use faultless_trace::{Call, CallEnter};
use faultless_vm::Advice;

use super::ids::EventIndex;
use super::windows::{Moment, Scout, at, span};

/// Whether memory is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Locked,
    Unlocked,
}

/// What a call has to do with memory that is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It brings memory into this state.
    Makes(State),
    /// Its result says that memory was in this state.
    Shows(State),
}

/// Returns what a call with this result has to do with locks, and the range.
fn role_of(enter: &CallEnter, result: i64) -> Option<(Role, Range<u64>)> {
    let [start, len, advice, ..] = enter.args;
    let is_dropping =
        matches!(advice_of(advice as u32), Some(Advice::DontNeed | Advice::Free)) && start.is_multiple_of(4096);
    let role = match (enter.call, Errno::of_result(result)) {
        (Call::Mlock | Call::Mlock2, None) => Role::Makes(State::Locked),
        (Call::Munlock, None) => Role::Makes(State::Unlocked),
        (Call::Madvise, None) if is_dropping => Role::Shows(State::Unlocked),
        (Call::Madvise, Some(Errno::EINVAL)) if is_dropping => Role::Shows(State::Locked),
        _ => return None,
    };
    Some((role, span(start, len)))
}

impl Scout<'_> {
    /// Returns the moment of a call that locks or unlocks memory; nothing for others, and for one that nothing
    /// contradicts at its end.
    pub(super) fn lock_moment(&self, enter: &CallEnter, window: &Range<EventIndex>, result: i64) -> Option<Moment> {
        let (Role::Makes(state), range) = role_of(enter, result)? else { return None };
        let thread = self.thread(window.start);
        let is_other = |event: EventIndex| self.is_neighbour(event, thread, window.start);
        let roles =
            |events: Range<EventIndex>| events.filter_map(|event| Some((event, self.lock_role(event, &range)?)));
        let inside = || roles(window.clone()).filter(|&(event, _)| is_other(event));
        // What the other's call brought about it did at its end.
        let is_opposite = |role: Role| matches!(role, Role::Makes(made) if made != state);
        let Some((opposite, _)) = inside().rfind(|&(event, role)| is_opposite(role) && self.ends_in(event, window))
        else {
            let seen = inside().find(|&(_, role)| role == Role::Shows(state));
            return seen.map(|(event, _)| at(event).saturating_sub(1));
        };
        let nr_events = self.trace.events.len() as EventIndex;
        let is_here = |event: EventIndex| event == window.start || self.is_neighbour(event, NOBODY, window.start);
        let next = roles(window.end..nr_events).find(|&(event, _)| is_here(event));
        let is_contradicted = matches!(next, Some((_, Role::Shows(shown))) if shown != state);
        is_contradicted.then(|| at(opposite).saturating_sub(1))
    }

    /// Returns what the call that begins at an event has to do with a range that is locked or not.
    fn lock_role(&self, event: EventIndex, range: &Range<u64>) -> Option<Role> {
        let (enter, result) = self.windows.call_at(self.trace, event)?;
        let (role, reached) = role_of(&enter, result?)?;
        (reached.start < range.end && range.start < reached.end).then_some(role)
    }

    fn ends_in(&self, event: EventIndex, window: &Range<EventIndex>) -> bool {
        self.windows.calls.get(&event).and_then(|call| call.exit).is_some_and(|exit| window.contains(&exit))
    }
}

/// No thread's index.
const NOBODY: u32 = u32::MAX;
