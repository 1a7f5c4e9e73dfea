//! Copying a parent's entries to a forked space.
//!
//! # Guarantee
//! Neither space may write the private pages that both have afterwards. The caller takes the parent's translations out
//! of the CPUs' TLBs.

use super::Translations;
use super::frames;
use super::sharer::Sharing;
use super::slot::Slot;
use super::table::{TableMap, Tables};
use crate::addr::{PAGE, PageRange};
use crate::entry::{Entry, EntryFlags};
use crate::system::System;
use core::ops::Range;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::Ordering;

/// Which entries of an area a child gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Private pages, shared from now on, and guards.
    All,
    /// Guards alone: the child's faults find the pages, which are shared anyway.
    Guards,
}

/// Why not all entries were copied.
pub(crate) enum NotCopied {
    /// A table found no frame.
    OutOfFrames(OutOfFrames),
    /// A frame has as many references as it can count.
    Saturated,
}

impl<P: System> Translations<P> {
    /// Copies the entries of a range to a child that nobody else knows yet. The caller has the space's lock for
    /// writing.
    ///
    /// Tables that the fork shares are not copied (`sharing`).
    pub(crate) fn copy_entries(
        &self,
        child: &Self,
        range: PageRange,
        kept: Kept,
        mut sharing: Sharing<'_, '_, P>,
    ) -> Result<(), NotCopied> {
        let mut result = Ok(());
        self.tables.for_each_way(self.memory(), range.numbers(), &mut |_, upper, part| {
            result = match self.share_table(child, upper, part.start, &mut sharing) {
                Ok(true) => Ok(()),
                Ok(false) => self.copy_part(child, upper.pfn(), part, kept),
                Err(cause) => Err(NotCopied::OutOfFrames(cause)),
            };
            result.is_ok()
        });
        result
    }

    fn copy_part(&self, child: &Self, table: Pfn, part: Range<u64>, kept: Kept) -> Result<(), NotCopied> {
        match child.tables.walk_or_grow(self.memory(), part.start) {
            Ok(leaf) => self.copy_leaf(child, table, leaf.table, part, kept),
            Err(cause) => Err(NotCopied::OutOfFrames(cause)),
        }
    }

    /// Returns how many leaf tables of a range are such.
    pub(crate) fn nr_tables(&self, range: PageRange, is_one: &mut dyn FnMut(&Range<u64>) -> bool) -> u64 {
        let mut nr_tables = 0;
        self.tables.for_each_way(self.memory(), range.numbers(), &mut |_, _, part| {
            nr_tables += u64::from(is_one(&Tables::<P>::leaf_span(part.start)));
            true
        });
        nr_tables
    }

    fn copy_leaf(&self, child: &Self, from: Pfn, to: Pfn, part: Range<u64>, kept: Kept) -> Result<(), NotCopied> {
        let memory = self.memory();
        let (mut nr_pages, mut result) = (0, Ok(()));
        let _to = TableMap::<P>::new(memory, to);
        let _from = TableMap::<P>::new(memory, from);
        let _lock = memory.page(from).lock().guard();
        for address in part.step_by(PAGE as usize) {
            let slot = Tables::<P>::leaf_slot(memory, from, address);
            // Relaxed: guards come and go under the lock that we hold.
            let is_guard = slot.load(Ordering::Relaxed).is_guard();
            if kept == Kept::Guards && !is_guard {
                continue;
            }
            let entry = if is_guard { Entry::GUARD } else { share(slot) };
            if entry.is_empty() {
                continue;
            }
            if entry.holds_reference() && frames::get(memory, entry.pfn()).is_err() {
                result = Err(NotCopied::Saturated);
                break;
            }
            nr_pages += u64::from(entry.holds_frame());
            // ORDER: Release pairs with the Acquire in `table::load`.
            Tables::<P>::leaf_slot(memory, to, address).store(entry, Ordering::Release);
        }
        child.add_resident(nr_pages);
        result
    }
}

/// Takes the right to write from an entry; returns the child's entry.
pub(super) fn share<P: System>(slot: Slot<'_, P>) -> Entry {
    loop {
        // ORDER: Acquire pairs with walks that set accessed and dirty bits.
        let old = slot.load(Ordering::Acquire);
        let new = old.without(EntryFlags::WRITE | EntryFlags::EXCLUSIVE);
        // ORDER: AcqRel pairs with walks that set accessed and dirty bits: none is lost.
        if old == new || slot.exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return new;
        }
    }
}
