//! Guard pages inside an area (`MADV_GUARD_INSTALL`, Linux 6.13).
//!
//! # Guarantee
//! A guarded page has no frame, and an access to it is answered as one outside any area, until the guard is removed or
//! the mapping goes. The area is not cut.
//!
//! # Invariants
//! * I1 a guard is the entry [`Entry::GUARD`]: not present, not empty, without a frame. It moves with its page, is
//!   copied by fork, and stays when pages are dropped (MADV_DONTNEED, truncation).
//! * I2 an area with guards says so (`MAYBE_GUARD`), so that fork copies its entries. As on Linux, only one without an
//!   object gets a reverse-map root with its first guard: one with an object may still be joined with a neighbour that
//!   has a root.

use super::Space;
use super::permit::ReadPermit;
use crate::addr::{PAGE, PageRange};
use crate::area::Area;
use crate::design::Design;
use crate::entry::Entry;
use crate::error::CallError;
use crate::system::System;
use crate::translations::gather::Gather;
use crate::translations::table::{TableMap, Tables};
use core::ops::Range;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::Ordering;

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    /// Guards the pages of a part of an area, and drops what they held. The caller holds the lock for reading.
    pub(super) fn install_guards(self, area: &Area<P, D>, part: PageRange) -> Result<(), CallError> {
        area.note_guards();
        if area.object().is_none() {
            self.root_of(area);
        }
        self.grow_tables(part)?;
        let mut gather = Gather::new(&self.space().translations, part);
        let mut nr_dropped = 0;
        self.tables().for_each_leaf(self.memory(), part.numbers(), &mut |table, part| {
            let mut position = part.start;
            while position < part.end {
                position = self.guard_leaf(table, position..part.end, &mut gather, &mut nr_dropped);
                if gather.is_full() {
                    gather.flush();
                }
            }
            true
        });
        if nr_dropped != 0 {
            self.shrink_resident(nr_dropped);
        }
        Ok(())
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Makes the tables of a range, so that guarding it can't fail half way.
    fn grow_tables(&self, part: PageRange) -> Result<(), CallError> {
        const TABLE_BYTES: u64 = 512 * PAGE;
        let mut address = part.start();
        while address < part.end() {
            self.tables().walk_or_grow(self.memory(), address.get())?;
            address += TABLE_BYTES - address.get() % TABLE_BYTES;
        }
        Ok(())
    }

    /// Guards entries of one table until the gather is full; returns where it stopped.
    fn guard_leaf(&self, table: Pfn, part: Range<u64>, gather: &mut Gather<'_, P>, nr_dropped: &mut u64) -> u64 {
        let memory = self.memory();
        let _map = TableMap::<P>::new(memory, table);
        let _lock = memory.page(table).lock().guard();
        for address in part.clone().step_by(PAGE as usize) {
            let slot = Tables::<P>::leaf_slot(memory, table, address);
            // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets accessed and dirty bits.
            let entry = slot.swap(Entry::GUARD, Ordering::AcqRel);
            *nr_dropped += u64::from(entry.holds_frame());
            gather.add(address, entry);
            if gather.is_full() {
                return address + PAGE;
            }
        }
        part.end
    }

    /// Takes the guards of a range away. The caller holds the lock for reading.
    pub(super) fn remove_guards(&self, part: PageRange) {
        let memory = self.memory();
        self.tables().for_each_leaf(memory, part.numbers(), &mut |table, part| {
            let _map = TableMap::<P>::new(memory, table);
            let _lock = memory.page(table).lock().guard();
            for address in part.step_by(PAGE as usize) {
                let slot = Tables::<P>::leaf_slot(memory, table, address);
                // Relaxed: entries change under the lock that we hold, and no CPU remembers a guard.
                if slot.load(Ordering::Relaxed).is_guard() {
                    slot.store(Entry::EMPTY, Ordering::Relaxed);
                }
            }
            true
        });
    }
}
