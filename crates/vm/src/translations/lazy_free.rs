//! Pages that are given up until they are written again (`MADV_FREE`).
//!
//! # Guarantee
//! When [`Translations::free_lazily`] returns, every present page of the range is clean and no CPU remembers it as
//! dirty: a store from then on makes it dirty, and so saves it from `Emptied::GivenUp`.

use super::Translations;
use super::gather::Gather;
use super::table::{TableMap, Tables};
use crate::addr::{PAGE, PageRange};
use crate::system::System;
use faultless_phys::FrameSource;
use faultless_platform::Ordering;

impl<P: System> Translations<P> {
    /// Marks pages as not needed until they are written again.
    pub(crate) fn free_lazily(&self, part: PageRange) {
        let memory = self.memory();
        let mut gather = Gather::new(self, part);
        self.tables.for_each_leaf(memory, part.numbers(), &mut |table, part| {
            let _map = TableMap::<P>::new(memory, table);
            let _lock = memory.page(table).lock().guard();
            for address in part.step_by(PAGE as usize) {
                let slot = Tables::<P>::leaf_slot(memory, table, address);
                // Relaxed: a peek; entries are filled under the lock that we hold.
                if slot.load(Ordering::Relaxed).is_present() {
                    // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets the bits.
                    slot.clear_used(Ordering::AcqRel);
                    gather.note_weakened();
                }
            }
            true
        });
    }
}
