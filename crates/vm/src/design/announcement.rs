//! Whether a change of an area is announced, and of which addresses.
//!
//! # Guarantee
//! A fault that begins when a writer has announced a change, and has looked for faults at work, sees whether its address
//! is among those that the change is about. One that began before is waited for by the writer
//! (`sync::Rcu::await_sections_of`). So a fault that goes on is beside no change of its own address.
//!
//! # Words first
//! `count`: odd while a change is announced. `start`, `end`: the addresses that it is about, while the count is odd.
//!
//! # Race
//! ```text
//! writer (one at a time)                     fault, in a section that began with a fence
//! start, end = range          (Release)      count odd?                    (Acquire)
//! count = odd                                  start, end contain the address?  (Acquire) give up
//! fence; waits for the sections under way    looks at the area, fills the entry
//! changes what is in the range; bounds
//! count = even                (Release)
//! ```
//! Of the two fences one comes first. If the writer's does, the fault sees all three words, or later ones. If the
//! fault's does, the writer waits for it, whatever it read: it may have seen an odd count of the change before, and one
//! bound or both of this one. Then it sees all that the change before did, since a bound of this one was stored behind
//! it. Forbidden: a fault inside the range beside the change, or one that takes what the change before removed for
//! there.
//!
//! A change inside another one widens the range to everything, and waits again.

use crate::addr::{EVERYTHING, VirtAddr};
use core::ops::Range;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::SeqCount;

/// See the module.
pub struct Announcement<P: Processor> {
    count: SeqCount<P>,
    start: P::AtomicU64,
    end: P::AtomicU64,
}

impl<P: Processor> Announcement<P> {
    /// Returns that of a new area: all of it is being changed.
    pub(super) fn new() -> Self {
        let Range { start, end } = EVERYTHING;
        let (start, end) = (P::AtomicU64::new(start.get()), P::AtomicU64::new(end.get()));
        Self { count: SeqCount::new_in_write(), start, end }
    }

    /// Says which addresses the next change is about, or the one that is announced.
    pub(super) fn set_range(&self, range: Range<VirtAddr>) {
        // ORDER: Release pairs with the Acquire in `concerns`: who sees a bound sees all that the change before did.
        self.start.store(range.start.get(), Ordering::Release);
        self.end.store(range.end.get(), Ordering::Release);
    }

    pub(super) fn begin(&self) {
        self.count.begin_write();
    }

    pub(super) fn end(&self) {
        self.count.end_write();
    }

    /// Says whether a change is announced.
    #[inline]
    pub(super) fn is_made(&self) -> bool {
        self.count.read().is_write_in_progress()
    }

    /// Says whether the change that is announced is about an address.
    pub(super) fn concerns(&self, address: VirtAddr) -> bool {
        // ORDER: Acquire pairs with the Release in `set_range`.
        let (start, end) = (self.start.load(Ordering::Acquire), self.end.load(Ordering::Acquire));
        (start..end).contains(&address.get())
    }
}
