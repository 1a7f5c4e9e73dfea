//! A leaf table's lock.
//!
//! # Guarantee
//! While somebody has a [`LeafGuard`], nobody else changes an entry of the table, except that CPUs set accessed and
//! dirty bits, and that some designs fill empty entries without the lock.

use super::table::Leaf;
use crate::entry::Entry;
use crate::system::System;
use faultless_phys::FrameSource;
use faultless_platform::{Holds, Ordering};

/// Holds a leaf table's lock, and maps the table if it has no address of its own
/// ([`crate::translations::table::TableMap`]).
///
/// Having it tells you that nobody else changes the entry, but for accessed and dirty bits.
pub(crate) struct LeafGuard<'a, P: System> {
    memory: &'a P::Frames,
    leaf: Leaf<'a, P>,
}

impl<'a, P: System> LeafGuard<'a, P> {
    #[inline(always)]
    #[track_caller]
    pub(crate) fn lock(memory: &'a P::Frames, leaf: Leaf<'a, P>) -> Self {
        P::map_frame(memory.frame(leaf.table), Holds::Table);
        memory.page(leaf.table).lock().lock();
        Self { memory, leaf }
    }

    #[track_caller]
    pub(crate) fn try_lock(memory: &'a P::Frames, leaf: Leaf<'a, P>) -> Option<Self> {
        P::map_frame(memory.frame(leaf.table), Holds::Table);
        if memory.page(leaf.table).lock().try_lock() {
            return Some(Self { memory, leaf });
        }
        P::unmap_frame(memory.frame(leaf.table), Holds::Table);
        None
    }

    pub(crate) fn is_locked(memory: &P::Frames, leaf: Leaf<'_, P>) -> bool {
        memory.page(leaf.table).lock().is_locked()
    }

    pub(crate) fn entry(&self) -> Entry {
        self.leaf.entry()
    }

    /// Fills an entry that is not present and, under a design that fills empty entries freely, not empty either.
    pub(crate) fn fill(&self, entry: Entry) {
        debug_assert!(!self.entry().is_present(), "a present entry is exchanged, not overwritten (I2 of `table`)");
        // ORDER: Release pairs with the Acquire in `table::load`: the frame's content is seen through the entry.
        self.leaf.slot.store(entry, Ordering::Release);
    }

    /// Replaces `seen` by `entry`; says whether it did. It does not if a walk has set bits meanwhile.
    pub(crate) fn exchange(&self, seen: Entry, entry: Entry) -> bool {
        // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets accessed and dirty bits, and with the
        // Acquire in `table::load`. Relaxed on failure: the fault starts over.
        self.leaf.slot.exchange(seen, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Swaps in `left`, which is not present, and returns what was there, with all bits that walks have set.
    pub(crate) fn take(&self, left: Entry) -> Entry {
        debug_assert!(!left.is_present(), "the entry is to be out of the walks' reach");
        // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets accessed and dirty bits.
        self.leaf.slot.swap(left, Ordering::AcqRel)
    }
}

impl<P: System> Drop for LeafGuard<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this guard locked it.
        unsafe { self.memory.page(self.leaf.table).lock().unlock() };
        P::unmap_frame(self.memory.frame(self.leaf.table), Holds::Table);
    }
}
