//! Guards: entries that fail every access, without a frame ([`Entry::GUARD`]).
//!
//! # Guarantee
//! Each entry of the range changes under its table's lock. When [`Translations::install_guards`] returns, no CPU has a
//! translation to what stood there, and the frames have lost the entries' references.

use super::Translations;
use super::gather::Gather;
use super::table::{BriefTableMap, Tables};
use crate::addr::{PAGE, PageRange};
use crate::entry::Entry;
use crate::system::System;
use core::ops::Range;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::Ordering;

impl<P: System> Translations<P> {
    /// Makes the tables of a range, so that guarding it can't fail half way.
    pub(crate) fn grow_tables(&self, part: PageRange) -> Result<(), OutOfFrames> {
        const TABLE_BYTES: u64 = 512 * PAGE;
        let mut address = part.start();
        while address < part.end() {
            self.tables.walk_or_grow(self.memory(), address.get())?;
            address += TABLE_BYTES - address.get() % TABLE_BYTES;
        }
        Ok(())
    }

    /// Guards the pages of a range whose tables exist, and drops what they held.
    pub(crate) fn install_guards(&self, part: PageRange) {
        let mut gather = Gather::new(self, part);
        let mut nr_dropped = 0;
        self.for_each_own_leaf(part.numbers(), &mut |table, part| {
            let mut position = part.start;
            while position < part.end {
                position = self.guard_leaf(table, position..part.end, &mut gather, &mut nr_dropped);
                if !gather.make_room() {
                    gather.flush();
                }
            }
            true
        });
        if nr_dropped != 0 {
            self.shrink_resident(nr_dropped);
        }
    }

    /// Guards entries of one table until the gather is full; returns where it stopped.
    fn guard_leaf(&self, table: Pfn, part: Range<u64>, gather: &mut Gather<'_, P>, nr_dropped: &mut u64) -> u64 {
        let memory = self.memory();
        let _map = BriefTableMap::<P>::new(memory, table);
        let _lock = memory.page(table).lock().guard();
        for address in part.clone().step_by(PAGE as usize) {
            let slot = Tables::<P>::leaf_slot(memory, table, address);
            // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets accessed and dirty bits.
            let entry = slot.swap(Entry::GUARD, Ordering::AcqRel);
            *nr_dropped += u64::from(entry.holds_frame());
            gather.add(address, entry);
            if !gather.make_room() {
                return address + PAGE;
            }
        }
        part.end
    }

    /// Takes the guards of a range away. The caller holds the lock for reading.
    pub(crate) fn remove_guards(&self, part: PageRange) {
        let memory = self.memory();
        self.for_each_own_leaf(part.numbers(), &mut |table, part| {
            let _map = BriefTableMap::<P>::new(memory, table);
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
