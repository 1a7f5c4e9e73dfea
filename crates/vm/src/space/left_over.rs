//! Page tables that stand for nothing, because others held a part of what they span (R4 of `ranges`).

use crate::system::System;
use core::ops::Range;
use faultless_platform::{Atomic, Ordering};

/// The range in which page tables may stand that span no area, because others held a part of what they span (R4).
/// Returned by [`MapLock::left_over`](super::MapLock::left_over); changed under the table's lock, or by who has
/// everything.
pub struct LeftOver<P: System> {
    start: P::AtomicU64,
    end: P::AtomicU64,
}

impl<P: System> LeftOver<P> {
    pub(super) fn new() -> Self {
        Self { start: P::AtomicU64::new(u64::MAX), end: P::AtomicU64::new(0) }
    }

    /// Says whether there may be any; to who has no lock it is a hint.
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        // Relaxed: under the lock that it is changed under, or after the caller has noted it himself.
        self.end.load(Ordering::Relaxed) != 0
    }

    /// Notes a range more.
    pub(super) fn note(&self, range: &Range<u64>) {
        // Relaxed: as above.
        let order = Ordering::Relaxed;
        self.start.store(self.start.load(order).min(range.start), order);
        self.end.store(self.end.load(order).max(range.end), order);
    }

    /// Returns the range, of which nothing is left over any more: the caller frees it.
    pub(super) fn taken(&self) -> Range<u64> {
        // Relaxed: as above.
        let order = Ordering::Relaxed;
        let range = self.start.load(order)..self.end.load(order);
        self.start.store(u64::MAX, order);
        self.end.store(0, order);
        range
    }

    /// Returns a range widened to what is left over, which the caller frees with it.
    pub(super) fn taken_with(&self, range: Range<u64>) -> Range<u64> {
        if !self.is_there() {
            return range;
        }
        let own = self.taken();
        range.start.min(own.start)..range.end.max(own.end)
    }
}
