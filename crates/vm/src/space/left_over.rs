//! Page tables that stand for nothing, because others held a part of what they span (R4 of `ranges`).

use super::annexes::{GRANULE_BYTES, MOST_GRANULES};
use crate::addr::USER_END;
use crate::system::System;
use core::ops::Range;
use faultless_platform::{Atomic, Ordering};

/// The range in which page tables may stand that span no area, because others held a part of what they span (R4).
/// Returned by [`MapLock::left_over`](super::MapLock::left_over); changed under the table's lock, or by who has
/// everything.
pub struct LeftOver<P: System> {
    start: P::AtomicU64,
    end: P::AtomicU64,
    /// The range in which tables may stand that span a lane's bound: they go when somebody has everything anyway.
    crossing_start: P::AtomicU64,
    crossing_end: P::AtomicU64,
}

/// What tables that span a bound are noted by: as much as an annex has at most.
const COARSE_BYTES: u64 = MOST_GRANULES * GRANULE_BYTES;

/// Makes a bound at least, or at most, as far as `wanted`.
fn move_bound<A: Atomic<Value = u64>>(bound: &A, wanted: u64, is_past: impl Fn(u64, u64) -> bool) {
    // Relaxed, all: as in `is_there`.
    let mut now = bound.load(Ordering::Relaxed);
    while is_past(wanted, now) {
        match bound.compare_exchange(now, wanted, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => now = other,
        }
    }
}

impl<P: System> LeftOver<P> {
    pub(super) fn new() -> Self {
        let (none_start, none_end) = (|| P::AtomicU64::new(u64::MAX), || P::AtomicU64::new(0));
        Self { start: none_start(), end: none_end(), crossing_start: none_start(), crossing_end: none_end() }
    }

    /// Says whether there may be any; to who has no lock it is a hint.
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        // Relaxed: under the lock that it is changed under, or after the caller has noted it himself.
        self.end.load(Ordering::Relaxed) != 0
    }

    /// Notes a range more; those who do so may have different tables' locks.
    pub(super) fn note(&self, range: &Range<u64>) {
        move_bound(&self.start, range.start, |wanted, now| wanted < now);
        move_bound(&self.end, range.end, |wanted, now| wanted > now);
    }

    /// As [`LeftOver::note`], of tables above that span a lane's bound; of more than the range, so that calls about
    /// pages that lie side by side change nothing but the first time.
    pub(super) fn note_crossing(&self, range: &Range<u64>) {
        let (start, end) = (range.start / COARSE_BYTES * COARSE_BYTES, range.end.next_multiple_of(COARSE_BYTES));
        move_bound(&self.crossing_start, start, |wanted, now| wanted < now);
        move_bound(&self.crossing_end, end.min(USER_END), |wanted, now| wanted > now);
    }

    /// Says whether a range is noted so already: then it stays, to who has a part of it.
    #[inline]
    pub(super) fn has_crossing_of(&self, range: &Range<u64>) -> bool {
        // Relaxed, both: taken by who has everything.
        let order = Ordering::Relaxed;
        self.crossing_start.load(order) <= range.start && range.end <= self.crossing_end.load(order)
    }

    /// Says whether tables may stand that span a lane's bound; to who has no lock it is a hint.
    pub(super) fn has_crossing(&self) -> bool {
        // Relaxed: as in `is_there`.
        self.crossing_end.load(Ordering::Relaxed) != 0
    }

    /// Returns the range, of which nothing is left over any more: the caller, who has everything, frees it.
    pub(super) fn taken(&self) -> Range<u64> {
        let take = |start: &P::AtomicU64, end: &P::AtomicU64| {
            // Relaxed: the caller has everything.
            let order = Ordering::Relaxed;
            let range = start.load(order)..end.load(order);
            if range.end != 0 {
                start.store(u64::MAX, order);
                end.store(0, order);
            }
            range
        };
        let (own, crossing) = (take(&self.start, &self.end), take(&self.crossing_start, &self.crossing_end));
        own.start.min(crossing.start)..own.end.max(crossing.end)
    }

    /// Returns a range widened to what is left over, which the caller frees with it.
    pub(super) fn taken_with(&self, range: Range<u64>) -> Range<u64> {
        // Relaxed: the caller has everything.
        if !self.is_there() && !self.has_crossing() {
            return range;
        }
        let own = self.taken();
        range.start.min(own.start)..range.end.max(own.end)
    }
}
