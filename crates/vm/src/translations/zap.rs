//! Emptying page tables.
//!
//! # Guarantee
//! When a function here returns, the entries of its range hold no frame, no CPU has a translation to what they held,
//! and each frame has lost the entry's reference after that (see `gather`).

use crate::addr::{PAGE, PageRange};
use crate::entry::{Entry, EntryFlags};
use crate::system::System;
use crate::translations::Translations;
use crate::translations::gather::Gather;
use crate::translations::slot::Slot;
use crate::translations::table::{BriefTableMap, Tables};
use core::ops::Range;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::Ordering;
use faultless_platform::mutant;

/// Which entries are emptied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emptied {
    /// All, as the mapping goes.
    All,
    /// All pages; guards stay, as the mapping does.
    Pages,
    /// Those that map the object's own pages; private copies and guards stay.
    ObjectPages,
    /// Private pages that MADV_FREE gave up and nobody wrote since: nothing else leaves one clean. Shared ones stay.
    GivenUp,
    /// Private pages that memory which may be dropped has, dirty or not; those that somebody else holds stay.
    Droppable,
}

/// Where a pass over a table's entries stopped.
enum Stop {
    End,
    /// Before this page, for a pause.
    PauseDue(u64),
    /// Before this page, because the gather takes no more.
    Full(u64),
}

/// How far an emptying has come.
struct ZapProgress {
    emptied: Emptied,
    /// Pages that were emptied so far.
    nr_pages: u64,
    /// Whether a table before this one held some, so that there is a pause before the first of this one.
    is_pause_due: bool,
}

impl<P: System> Translations<P> {
    /// Empties the entries of a range and drops what they held.
    pub(crate) fn zap(&self, range: PageRange, emptied: Emptied) {
        let mut gather = Gather::new(self, range);
        self.zap_into(range, emptied, &mut gather, &mut || ());
    }

    /// As [`Translations::zap`] of a range that leaves, without the space's lock; also takes away the leaf tables
    /// that are wholly the range's.
    pub(crate) fn zap_departing(&self, range: PageRange) {
        let mut gather = Gather::new(self, range);
        let memory = self.memory();
        let mut progress = ZapProgress { emptied: Emptied::All, nr_pages: 0, is_pause_due: false };
        self.for_each_own_leaf(range.numbers(), &mut |table, part| {
            self.zap_table(table, part.clone(), &mut progress, &mut gather, &mut || ());
            // The area that leaves keeps everybody else out of what is wholly its own.
            self.tables.free_empty(memory, part.clone(), part, &mut |table, span| gather.add_table(table, span));
            true
        });
        self.shrink_by(&progress);
    }

    /// Says whether at least two leaf tables have entries of the range that are not empty, each at some instant.
    pub(crate) fn has_entries_in_two_tables(&self, range: PageRange) -> bool {
        let (memory, mut nr_tables) = (self.memory(), 0);
        let _reading = self.look();
        self.tables.for_each_leaf(memory, range.numbers(), &mut |table, part| {
            let _map = BriefTableMap::<P>::new(memory, table);
            // Relaxed: a look; who empties them looks again.
            let is_empty = |page| Tables::<P>::leaf_slot(memory, table, page).load(Ordering::Relaxed).is_empty();
            nr_tables += u32::from(!part.step_by(PAGE as usize).all(is_empty));
            nr_tables < 2
        });
        nr_tables == 2
    }

    /// Takes away the tables of `part` that lie wholly in `hole`, where nothing is mapped.
    pub(crate) fn prune(&self, part: Range<u64>, hole: Range<u64>, gather: &mut Gather<'_, P>) {
        self.tables.free_empty(self.memory(), part, hole, &mut |table, span| gather.add_table(table, span));
    }

    /// As [`Translations::zap`], into a gather of the caller's. `pause` is called between one leaf table that holds
    /// pages and the next, without a lock. Says whether there was a leaf table.
    pub(crate) fn zap_into(
        &self,
        range: PageRange,
        emptied: Emptied,
        gather: &mut Gather<'_, P>,
        pause: &mut dyn FnMut(),
    ) -> bool {
        if range.len_bytes() == PAGE {
            return self.zap_page(range.start().get(), emptied, gather);
        }
        let (mut progress, mut has_leaves) = (ZapProgress { emptied, nr_pages: 0, is_pause_due: false }, false);
        self.for_each_own_leaf(range.numbers(), &mut |table, part| {
            (progress.is_pause_due, has_leaves) = (progress.nr_pages != 0, true);
            self.zap_table(table, part, &mut progress, gather, pause);
            true
        });
        self.shrink_by(&progress);
        has_leaves
    }

    /// As [`Translations::zap_into`] of one page.
    fn zap_page(&self, page: u64, emptied: Emptied, gather: &mut Gather<'_, P>) -> bool {
        let memory = self.memory();
        let Some(leaf) = self.walk_own(page) else { return false };
        let taken = {
            let _map = BriefTableMap::<P>::new(memory, leaf.table);
            let _lock = memory.page(leaf.table).lock().guard();
            // Relaxed: as in `zap_leaf`.
            let seen = leaf.slot.load(Ordering::Relaxed);
            if self.is_emptied(seen, emptied) { self.take_entry(leaf.slot, seen, emptied) } else { None }
        };
        let Some(entry) = taken else { return true };
        gather.add(page, entry);
        if !gather.make_room() {
            gather.flush();
        }
        if entry.holds_frame() {
            self.shrink_resident(1);
        }
        true
    }

    /// Empties entries of one table; if a pause is due, before its first page.
    fn zap_table(
        &self,
        table: Pfn,
        part: Range<u64>,
        progress: &mut ZapProgress,
        gather: &mut Gather<'_, P>,
        pause: &mut dyn FnMut(),
    ) {
        let mut position = part.start;
        while position < part.end {
            position = match self.zap_leaf(table, position..part.end, progress, gather) {
                Stop::End => return,
                Stop::PauseDue(next) => {
                    pause();
                    next
                }
                Stop::Full(next) => {
                    gather.flush();
                    next
                }
            };
        }
    }

    /// Takes what was emptied off the resident size.
    fn shrink_by(&self, progress: &ZapProgress) {
        if progress.nr_pages != 0 {
            self.shrink_resident(progress.nr_pages);
        }
    }

    /// Empties entries of one table until the gather is full or a pause is due.
    fn zap_leaf(&self, table: Pfn, part: Range<u64>, progress: &mut ZapProgress, gather: &mut Gather<'_, P>) -> Stop {
        let memory = self.memory();
        let _map = BriefTableMap::<P>::new(memory, table);
        let _lock = memory.page(table).lock().guard();
        for address in part.clone().step_by(PAGE as usize) {
            let slot = Tables::<P>::leaf_slot(memory, table, address);
            // Relaxed: a peek; only faults fill entries. Those that do so without the lock that we hold come after us.
            let seen = slot.load(Ordering::Relaxed);
            if !self.is_emptied(seen, progress.emptied) {
                continue;
            }
            if core::mem::take(&mut progress.is_pause_due) {
                return Stop::PauseDue(address);
            }
            let Some(entry) = self.take_entry(slot, seen, progress.emptied) else { continue };
            progress.nr_pages += u64::from(entry.holds_frame());
            gather.add(address, entry);
            if !gather.make_room() {
                return Stop::Full(address + PAGE);
            }
        }
        Stop::End
    }

    /// Empties an entry that was `seen` to belong to what is emptied, and returns what it held; `None` if a walk has
    /// set bits since that save the page: a page given up stays once it is dirty.
    fn take_entry(&self, slot: Slot<'_, P>, mut seen: Entry, emptied: Emptied) -> Option<Entry> {
        loop {
            // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets accessed and dirty bits. Relaxed on
            // failure: the bits are looked at, and nothing behind the entry.
            match slot.exchange(seen, Entry::EMPTY, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(()) => return Some(seen),
                Err(now) => seen = now,
            }
            if mutant!(GivenUpUnchecked, !self.is_emptied(seen, emptied) => false) {
                return None;
            }
        }
    }

    /// Says whether an entry belongs to what is emptied.
    fn is_emptied(&self, entry: Entry, emptied: Emptied) -> bool {
        match emptied {
            _ if entry.is_empty() => false,
            Emptied::All => true,
            Emptied::Pages => !entry.is_guard(),
            Emptied::ObjectPages => entry.is_of_object(),
            Emptied::Droppable => entry.holds_reference() && self.memory().page(entry.pfn()).nr_references() == 1,
            Emptied::GivenUp => {
                let is_clean = entry.holds_reference() && !entry.has(EntryFlags::DIRTY);
                is_clean && self.memory().page(entry.pfn()).nr_references() == 1
            }
        }
    }
}
