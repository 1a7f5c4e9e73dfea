//! Entries of a range that lose rights.
//!
//! # Guarantee
//! When [`Translations::weaken`] returns, no CPU has a translation with a right that was taken away.

use super::Translations;
use super::gather::Gather;
use super::slot::Slot;
use super::table::{BriefTableMap, Tables};
use crate::addr::{PAGE, PageRange};
use crate::system::System;
use faultless_phys::FrameSource;

impl<P: System> Translations<P> {
    /// Visits the entries of a range, ascending, each under its table's lock; `take` is told the address, and says
    /// whether a translation may be stronger than the entry now is.
    ///
    /// The caller has the space's lock, shared at least.
    pub(super) fn weaken(&self, range: PageRange, take: impl FnMut(Slot<'_, P>, u64) -> bool) {
        self.weaken_into(range, Gather::new(self, range), take);
    }

    /// As [`Translations::weaken`]; the caller keeps everybody else out of the range.
    #[inline]
    pub(super) fn weaken_alone(&self, range: PageRange, take: impl FnMut(Slot<'_, P>, u64) -> bool) {
        self.weaken_into(range, Gather::of_its_only_zapper(self, range), take);
    }

    #[inline]
    fn weaken_into(&self, range: PageRange, mut gather: Gather<'_, P>, mut take: impl FnMut(Slot<'_, P>, u64) -> bool) {
        let memory = self.memory();
        self.for_each_own_leaf(range.numbers(), &mut |table, part| {
            let _map = BriefTableMap::<P>::new(memory, table);
            let _lock = memory.page(table).lock().guard();
            for address in part.step_by(PAGE as usize) {
                if take(Tables::<P>::leaf_slot(memory, table, address), address) {
                    gather.note_weakened();
                }
            }
            true
        });
    }
}
