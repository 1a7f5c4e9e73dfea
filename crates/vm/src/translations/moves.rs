//! Entries that move to other addresses.
//!
//! # Guarantee
//! When [`Translations::move_entries`] returns, each entry of the source stands at its place in the target, and no CPU
//! has a translation for its old address. Meanwhile it is in neither place for a moment, never in both.

use super::Translations;
use super::slot::Slot;
use super::table::{TableMap, Tables};
use crate::addr::{PAGE, PageRange, VirtAddr};
use crate::entry::Entry;
use crate::system::System;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::Ordering;
use faultless_platform::mutant;

impl<P: System> Translations<P> {
    /// Makes the target's leaf tables for every leaf table that the source has.
    pub(crate) fn grow_for_move(&self, source: PageRange, target: PageRange) -> Result<(), OutOfFrames> {
        let mut result = Ok(());
        let memory = self.memory();
        self.tables.for_each_leaf(memory, source.numbers(), &mut |_, part| {
            let moved = |address: u64| target.start() + (VirtAddr::new(address) - source.start());
            let (first, last) = (moved(part.start), moved(part.end - PAGE));
            for address in [first, last].into_iter().filter(|address| target.contains(*address)) {
                result = result.and(self.tables.walk_or_grow(memory, address.get()).map(drop));
                // Others may have what lies beside the target.
                self.walk_own(address.get());
            }
            result.is_ok()
        });
        result
    }

    /// Moves the entries of a range, and takes the translations to their old places away; [`Self::grow_for_move`] made
    /// the tables.
    pub(crate) fn move_entries(&self, source: PageRange, target: PageRange) {
        let memory = self.memory();
        self.for_each_own_leaf(source.numbers(), &mut |table, part| {
            let _map = TableMap::<P>::new(memory, table);
            for address in part.step_by(PAGE as usize) {
                let new_address = target.start() + (VirtAddr::new(address) - source.start());
                if target.contains(new_address) {
                    self.move_entry(Tables::<P>::leaf_slot(memory, table, address), table, new_address.get());
                }
            }
            true
        });
        mutant!(MoveFlushedLate, self.flush(source) => ());
    }

    fn move_entry(&self, slot: Slot<'_, P>, table: Pfn, new_address: u64) {
        let memory = self.memory();
        let entry = {
            let _lock = mutant!(MoveUnlocked, Some(memory.page(table).lock().guard()) => None);
            // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets accessed and dirty bits.
            slot.swap(Entry::EMPTY, Ordering::AcqRel)
        };
        if entry.is_empty() {
            return;
        }
        // `grow_for_move` made it; without it the page would be lost, so a missing one is a broken invariant.
        let leaf = self.tables.walk(memory, new_address);
        debug_assert!(leaf.is_some(), "the target of a move has no table");
        if let Some(leaf) = leaf {
            let _map = TableMap::<P>::new(memory, leaf.table);
            let _lock = memory.page(leaf.table).lock().guard();
            // ORDER: Release pairs with the Acquire in `table::load`.
            leaf.slot.store(entry, Ordering::Release);
        }
    }
}
