//! Pages that are given up until they are written again (`MADV_FREE`).
//!
//! # Guarantee
//! When [`Translations::free_lazily`] returns, every page of the range is clean and no CPU remembers it as
//! dirty: a store from then on makes it dirty, and so saves it from `Emptied::GivenUp`.

use super::Translations;
use crate::addr::PageRange;
use crate::system::System;
use faultless_platform::Ordering;

impl<P: System> Translations<P> {
    /// Marks pages as not needed until they are written again.
    pub(crate) fn free_lazily(&self, part: PageRange) {
        self.weaken(part, |slot, _| {
            // Relaxed: a peek; entries are filled under the lock that we hold.
            let entry = slot.load(Ordering::Relaxed);
            // Pages without rights, too.
            if entry.is_present() || entry.holds_frame() {
                // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets the bits.
                slot.clear_used(Ordering::AcqRel);
            }
            entry.is_present()
        });
    }
}
