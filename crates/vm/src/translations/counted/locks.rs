//! The locks of leaf tables that count their entries: one table's, or those of a whole range.
//!
//! # Guarantee
//! A table that is locked here is in the tree and stays there. While a range is locked, nobody else changes an entry of
//! its tables, but for accessed and dirty bits.
//!
//! # Rules
//! * S1 a range's tables are locked ascending, and all of them before the first entry changes. So two that lock ranges
//!   wait for each other in one direction only, and a fault, which waits for one table and holds none, is in no circle.
//! * S2 they are unlocked after the last entry has changed.
//! * S3 who holds them waits for no memory, no grace period, and no lock that is taken before a leaf table's. What a
//!   change needs was taken before (`CountedEntries::hold_tables`). A shootdown is waited for, as by a fault that
//!   copies: it waits for CPUs in guest, which take no lock. Where tables lack addresses, maps of tables don't sleep.
//! * S4 a fault acts upon an entry, or refuses an access because of it, as it is under its table's lock
//!   (`fault::promised`).
//! * S5 a table that is locked belongs to the range's locks by being linked to them, through its frame's metadata, not
//!   by its address: at the range's ends, calls on neighbours may put tables where there were none.
//!
//! # Race: a change of two tables
//! ```text
//! change of A and B          a fault that A's entry answers    then one in B
//! lock A; lock B
//! A's entries = new          reads A's new entry
//!                            locks A: waits
//! B's entries = new
//! unlock A                   locks A; the new entry: goes on   reads B's old or new entry; locks B: waits
//! unlock B                                                     locks B; another entry than it read: tries again
//! ```
//! Forbidden: one fault is answered by A's new entry and a later one by B's old. Faults in tables beside the range, and
//! changes there, meet none of these locks.
//!
//! The idea is CortenMM's (SOSP 2025), whose cursor locks the table that covers a range and all below it. Here tables
//! above the leaves neither go nor change otherwise than from empty, so that the leaves are enough.

use crate::system::System;
use crate::translations::table::Leaf;
use crate::translations::{Translations, frames};
use core::ops::Range;
use faultless_phys::{FrameSource, Pfn};

/// A leaf table's lock.
pub(super) struct LockedLeaf<'a, P: System> {
    pub(super) memory: &'a P::Frames,
    pub(super) leaf: Leaf<'a, P>,
}

impl<'a, P: System> LockedLeaf<'a, P> {
    /// Locks the table of an address, if there is one.
    pub(super) fn lock(translations: &'a Translations<P>, address: u64) -> Option<Self> {
        let memory = translations.memory();
        let _looking = translations.look();
        loop {
            let leaf = translations.tables.walk(memory, address)?;
            memory.page(leaf.table).lock().lock();
            let locked = Self { memory, leaf };
            if leaf.parent_entry(memory) == leaf.parent.1 {
                return Some(locked);
            }
        }
    }

    /// Keeps the table locked without the guard; returns it.
    fn keep(self) -> Pfn {
        core::mem::ManuallyDrop::new(self).leaf.table
    }

    /// Returns the guard of a table that was kept.
    ///
    /// # Safety
    /// The caller kept it, and uses it by the guard alone from now on.
    unsafe fn resume(memory: &'a P::Frames, leaf: Leaf<'a, P>) -> Self {
        Self { memory, leaf }
    }
}

impl<P: System> Drop for LockedLeaf<'_, P> {
    fn drop(&mut self) {
        // SAFETY: this guard has the lock.
        unsafe { self.memory.page(self.leaf.table).lock().unlock() };
    }
}

/// The locks of those tables of a range that were in the tree.
pub(super) struct LockedTables<'a, P: System> {
    translations: &'a Translations<P>,
    range: Range<u64>,
    /// The lowest; linked through their frames' metadata, ascending (S5).
    first: Option<Pfn>,
}

impl<'a, P: System> LockedTables<'a, P> {
    /// Locks the tables of a range (S1); [`LockedTables::unlock`] ends it.
    #[must_use = "the tables stay locked until `unlock`"]
    pub(super) fn lock(translations: &'a Translations<P>, range: Range<u64>) -> Self {
        let memory = translations.memory();
        let (mut first, mut last) = (None, None);
        translations.tables.for_each_leaf(memory, range.clone(), &mut |_, part| {
            if let Some(locked) = LockedLeaf::lock(translations, part.start) {
                let table = locked.keep();
                frames::set_link(memory, table, None);
                match last.replace(table) {
                    Some(before) => frames::set_link(memory, before, Some(table)),
                    None => first = Some(table),
                }
            }
            true
        });
        Self { translations, range, first }
    }

    /// Visits the tables, ascending, with the part of the range that each has.
    pub(super) fn for_each(&self, visit: &mut dyn FnMut(Pfn, Range<u64>)) {
        let (memory, mut next) = (self.translations.memory(), self.first);
        self.translations.tables.for_each_leaf(memory, self.range.clone(), &mut |table, part| {
            if next == Some(table) {
                // Before the visit, which may unlock it.
                next = frames::link(memory, table);
                visit(table, part);
            }
            next.is_some()
        });
        debug_assert!(next.is_none(), "a table leaves the tree under its lock alone (I2 of `counted`)");
    }

    /// Unlocks each table after `last_act`, which gets its guard and the range's first address in it.
    pub(super) fn unlock(&mut self, last_act: &mut dyn FnMut(&LockedLeaf<'a, P>, u64)) {
        let (memory, tables) = (self.translations.memory(), &self.translations.tables);
        self.for_each(&mut |_, part| {
            let leaf = tables.walk(memory, part.start);
            debug_assert!(leaf.is_some(), "a table leaves the tree under its lock alone (I2 of `counted`)");
            if let Some(leaf) = leaf {
                // SAFETY: kept by `lock`, and visited here for the last time.
                last_act(&unsafe { LockedLeaf::resume(memory, leaf) }, part.start);
            }
        });
        self.first = None;
    }
}
