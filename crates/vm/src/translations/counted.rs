//! Leaf tables that count their entries and are freed with the last of them, for maps that consist of entries alone.
//!
//! # Guarantee
//! Each change of an entry is one compare-and-swap under its leaf table's lock, and a change of a range is one step for
//! faults: all tables of the range are locked meanwhile (`locks`). When a [`CountedEntries`] is dropped, no CPU has a
//! translation that is stronger than the entries, and the frames and tables that went are freed.
//!
//! A caller whose decision panics has changed the entries before that one, and what counts them says so.
//!
//! The caller keeps others that change entries out of the range. Faults, and changes of other ranges, run beside it,
//! and wait where they need one of its tables.
//!
//! # Invariants
//! * I1 a leaf table counts its entries that are not empty, and the changes that hold it: in the index word of its
//!   frame's metadata, under its lock. A fault changes no entry from or to empty.
//! * I2 whoever brings the count to 0 unlinks the table from the tree before unlocking it.
//! * I3 tables above the leaves stay until the space ends.
//!
//! # Race: a table goes
//! ```text
//! its last entry is emptied            another change comes                   a fault
//! lock; last entry = empty             walks to the table                     walks to the table (RCU)
//! count = 0: out of the tree; unlock   locks it, walks again: not in the      finds its entry empty: not mapped, or
//! flushes; freed after a grace period    tree; grows or skips                   another than it saw: tries again
//! ```
//! Forbidden: an entry is set in a table that is not in the tree.

mod locks;
#[cfg(test)]
mod tests;

use super::Translations;
use super::gather::Gather;
use super::rights::is_weaker;
use super::slot::Slot;
use super::table::{TableMap, Tables, load};
use crate::addr::{PAGE, PageRange, VirtAddr};
use crate::entry::Entry;
use crate::system::System;
use core::ops::Range;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::{Atomic, Ordering};
use locks::{LockedLeaf, LockedTables};

impl<P: System> Translations<P> {
    /// Visits the entries of a range that are not empty, ascending, each as it is at some instant; tables may go
    /// meanwhile. The visit does not sleep.
    pub(crate) fn visit_entries(&self, addresses: Range<u64>, visit: &mut dyn FnMut(VirtAddr, Entry)) {
        let memory = self.memory();
        self.tables.for_each_leaf(memory, addresses, &mut |_, part| {
            let _looking = self.look();
            if let Some(leaf) = self.tables.walk(memory, part.start) {
                let _map = TableMap::<P>::new(memory, leaf.table);
                for address in part.step_by(PAGE as usize) {
                    let entry = load::<P>(Tables::<P>::leaf_slot(memory, leaf.table, address));
                    if !entry.is_empty() {
                        visit(VirtAddr::new(address), entry);
                    }
                }
            }
            true
        });
    }
}

/// Changes the entries of a range; see the module.
pub(crate) struct CountedEntries<'a, P: System> {
    translations: &'a Translations<P>,
    range: PageRange,
    gather: Gather<'a, P>,
    /// Pages that were taken away and are not off the resident size yet.
    nr_freed: u64,
    /// First address behind what the held tables cover.
    held: u64,
}

/// A change of all entries of the range, whose tables are locked; unlocks them when it is dropped.
struct Change<'c, 'a, P: System> {
    entries: &'c mut CountedEntries<'a, P>,
    tables: LockedTables<'a, P>,
}

impl<'a, P: System> CountedEntries<'a, P> {
    /// Begins to change the entries of a range, which the caller has locked.
    pub(crate) fn new(translations: &'a Translations<P>, range: PageRange) -> Self {
        let gather = Gather::new(translations, range);
        Self { translations, range, gather, nr_freed: 0, held: range.start().get() }
    }

    /// Makes the tables that the range lacks, and keeps all of the range's tables until this is dropped, so that later
    /// changes need no memory. May sleep.
    pub(crate) fn hold_tables(&mut self) -> Result<(), OutOfFrames> {
        while self.held < self.range.end().get() {
            // Tables above the leaves stay (I3), so no section is needed; the leaf is walked to again.
            self.translations.tables.walk_or_grow(self.translations.memory(), self.held)?;
            if let Some(locked) = LockedLeaf::lock(self.translations, self.held) {
                add_to_count::<P>(locked.memory, locked.leaf.table, 1);
                self.held = Tables::<P>::leaf_end(self.held).min(self.range.end().get());
            }
        }
        Ok(())
    }

    /// Changes the entry of each page of the range that has a table to what `decide` returns, in one step for faults.
    /// `decide` is asked again if a CPU sets the entry's accessed or dirty bit meanwhile.
    pub(crate) fn change(&mut self, decide: &mut dyn FnMut(VirtAddr, Entry) -> Entry) {
        let tables = LockedTables::lock(self.translations, self.range.numbers());
        let change = Change { entries: self, tables };
        change.tables.for_each(&mut |table, part| change.entries.change_table(table, part, decide));
    }

    /// Changes entries of one table, which is locked.
    fn change_table(&mut self, table: Pfn, part: Range<u64>, decide: &mut dyn FnMut(VirtAddr, Entry) -> Entry) {
        let memory = self.translations.memory();
        let _map = TableMap::<P>::new(memory, table);
        for address in part.step_by(PAGE as usize) {
            if !self.gather.make_room() {
                self.gather.flush();
            }
            let slot = Tables::<P>::leaf_slot(memory, table, address);
            let (old, new) = exchange(slot, |entry| decide(VirtAddr::new(address), entry));
            if old.is_empty() != new.is_empty() {
                add_to_count::<P>(memory, table, if new.is_empty() { -1 } else { 1 });
            }
            if has_page(old) && !has_page(new) {
                self.nr_freed += u64::from(old.holds_frame());
                self.gather.add(address, old);
            } else if is_weaker(old, new) {
                self.gather.note_weakened();
            }
        }
    }

    /// Takes what was taken away off the resident size.
    fn count_freed(&mut self) {
        let nr_freed = core::mem::take(&mut self.nr_freed);
        if nr_freed != 0 {
            self.translations.shrink_resident(nr_freed);
        }
    }

    /// Adds to the count of an address's table, and takes the table away if nothing is left (I2).
    fn settle(&mut self, locked: &LockedLeaf<'_, P>, address: u64, added: i64) {
        if add_to_count::<P>(locked.memory, locked.leaf.table, added) == 0 {
            let _map = TableMap::<P>::new(locked.memory, locked.leaf.table);
            Tables::<P>::take_out(locked.memory, locked.leaf);
            self.gather.add_table(locked.leaf.table, Tables::<P>::leaf_span(address));
        }
    }
}

impl<P: System> Drop for Change<'_, '_, P> {
    fn drop(&mut self) {
        let entries = &mut *self.entries;
        self.tables.unlock(&mut |locked, address| entries.settle(locked, address, 0));
        entries.count_freed();
    }
}

impl<P: System> Drop for CountedEntries<'_, P> {
    fn drop(&mut self) {
        let mut position = self.range.start();
        while position < VirtAddr::new(self.held) {
            if let Some(locked) = LockedLeaf::lock(self.translations, position.get()) {
                self.settle(&locked, position.get(), -1);
            }
            position = VirtAddr::new(Tables::<P>::leaf_end(position.get()));
        }
    }
}

/// Adds to a table's count (I1), under its lock; returns the count.
fn add_to_count<P: System>(memory: &P::Frames, table: Pfn, added: i64) -> u64 {
    // SAFETY: whoever holds the lock of a table in the tree may use its words.
    let count = unsafe { memory.page(table).owned() }.index();
    // Relaxed: under the table's lock.
    let now = count.load(Ordering::Relaxed).wrapping_add_signed(added);
    count.store(now, Ordering::Relaxed);
    now
}

/// Changes an entry; returns it as it was and as it is.
fn exchange<P: System>(slot: Slot<'_, P>, mut decide: impl FnMut(Entry) -> Entry) -> (Entry, Entry) {
    loop {
        // ORDER: Acquire pairs with walks that set accessed and dirty bits.
        let old = slot.load(Ordering::Acquire);
        let new = decide(old);
        // ORDER: AcqRel pairs with walks that set accessed and dirty bits: none is lost.
        if new == old || slot.exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return (old, new);
        }
    }
}

/// Says whether an entry maps a page, even if its rights keep the hardware from using it.
fn has_page(entry: Entry) -> bool {
    !entry.is_vacant() && !entry.is_guard()
}

/// Returns the number of a table's entries that are not empty, for the checker.
pub(crate) fn counted_entries<P: System>(memory: &P::Frames, table: Pfn) -> u64 {
    // SAFETY: nobody changes the table meanwhile.
    let count = unsafe { memory.page(table).owned() }.index();
    // Relaxed: as above.
    count.load(Ordering::Relaxed)
}
