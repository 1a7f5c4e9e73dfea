//! Leaf tables that several spaces have: fork's child gets its parent's, and whoever changes an entry there first gets
//! a table of his own.
//!
//! # Guarantee
//! A fork costs a store and a frame put aside for each 2 MiB, instead of 512 entries. Neither space sees what the other
//! does afterwards. Whoever needs a table of his own gets it without asking for memory: fork alone can find that there
//! is none.
//!
//! Source: K. Zhao, S. Gong, P. Fonseca, "On-Demand-Fork", EuroSys 2021, which shares tables of this level in Linux.
//!
//! A fault that needs a table which a child has, too, waits a while for the child to go: most go at once, to exec or to
//! an end, and a copy costs more than the wait.
//!
//! # Invariants
//! * S1 an upper entry that forbids stores is *shared*: its table may be others' as well. The table's frame has as many
//!   references as there are such entries, and one spare frame less is chained to it.
//! * S2 an upper entry becomes shared in fork alone, with all of the space locked and no fault at work. It ends under
//!   the lock of the table that it leads to.
//! * S3 as long as a table is shared, its entries keep their frames. All that changes is that CPUs set accessed bits,
//!   and that rights to write go, which no way to the table gives.
//! * S4 a space gives its reference back, under the table's lock, after its own upper entry leads elsewhere and its
//!   CPUs have forgotten the way. So whoever finds one reference under the lock is the table's only user; it is his own
//!   from then on, with all rights that its entries still have.
//! * S5 what one holds of a frame by a shared table, all hold by one reference. Who copies the table takes a reference
//!   for each of its entries.
//!
//! # Protocol
//! ```text
//! who changes an entry and finds the way shared        fork (all locked, changes announced, faults awaited)
//! lock the table                                       chain a spare to the table, take a reference (under its lock)
//! upper entry is another one? unlock, walk again       child's upper entry: shared; all tables so
//! one reference? upper entry: not shared; unlock       parent's upper entries: shared; count the child's pages
//! take a spare; copy the entries, without WRITE        shoot the parent down
//! upper entry: the copy                                end the changes
//! shoot 2 MiB down; put the reference; unlock          (a space that ends gives its reference and a spare back)
//! ```
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | two threads of a space need the same table | the lock; the second finds another upper entry |
//! | two spaces leave at once | the lock; the second finds one reference, and keeps the table |
//! | a CPU walks by the old upper entry, or remembers the way, while another space goes on to change the table | it is shot down first (S4); until then the entries keep their frames (S3) |
//! | a thread that is no guest has walked there, and reads the entry later | it looks at the upper entry again before it believes what it read (`Translations::read`); a fault that finds a present entry changes nothing and lets the access try again |
//! | a space holds a page by a pin, and goes; the last user of the table stores to it | who pins gets a table of his own: the copy leaves no entry that has its page for itself; and who has ever pinned a page shares none |
//! | a thread has walked to a table that its space leaves, and the last user frees it | a table that was ever shared is freed after a grace period; who reads an entry, or waits for the lock, is in a section that began while the space had the table |
//! | a store by an old translation beside the fork | as ever: it lands before the shootdown, and so before the call returns |
//! | a fault begins while a fork marks tables | the changes are announced: it gives up, and waits for the lock |

use super::Translations;
use super::copy::share;
use super::frames;
use super::sharer::{Sharing, chain, unchain};
use super::slot::Slot;
use super::table::{BriefTableMap, Leaf, TableMap, Tables, is_shared};
use crate::access::Access;
use crate::addr::{PAGE, PageRange, USER_END, VirtAddr};
use crate::entry::Entry;
use crate::events::Event;
use crate::system::System;
use core::ops::Range;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::{Ordering, mutant};

impl<P: System> Translations<P> {
    /// Walks to an entry that the caller may change: its table is the space's own.
    #[inline]
    pub(crate) fn walk_own(&self, address: u64) -> Option<Leaf<'_, P>> {
        let leaf = self.tables.walk(self.memory(), address)?;
        if leaf.is_shared() { self.own(leaf, address) } else { Some(leaf) }
    }

    /// Returns the entry of a fault, and the way to it: by a table of the space's own if the fault may change it.
    #[inline(always)]
    pub(crate) fn own_for<'a>(
        &'a self,
        (address, access): (VirtAddr, Access),
        leaf: Leaf<'a, P>,
    ) -> (Leaf<'a, P>, Entry) {
        self.own_if_shared((address, access), leaf).unwrap_or_else(|| (leaf, leaf.read(self.memory())))
    }

    /// As [`Self::own_for`], if the table is shared.
    #[inline(always)]
    pub(crate) fn own_if_shared<'a>(
        &'a self,
        (address, access): (VirtAddr, Access),
        leaf: Leaf<'a, P>,
    ) -> Option<(Leaf<'a, P>, Entry)> {
        leaf.is_shared().then(|| self.own_if_changed((address, access), leaf))
    }

    #[cold]
    fn own_if_changed<'a>(&'a self, (address, access): (VirtAddr, Access), leaf: Leaf<'a, P>) -> (Leaf<'a, P>, Entry) {
        if access != Access::Write
            && let Some(seen) = self.read_shared(leaf)
            && seen.is_present()
        {
            return (leaf, seen);
        }
        // Most children go at once: to exec, or to an end. Then the table need not be copied.
        self.sharer.await_child(|| self.memory().page(leaf.table).nr_references() > 1);
        // The table stays while the fault is at work: nobody unmaps its address.
        let leaf = self.own(leaf, address.get()).unwrap_or(leaf);
        (leaf, leaf.read(self.memory()))
    }

    /// Notes that a fork begins, and announces its changes next; it will end.
    pub(crate) fn begin_fork(&self) {
        self.sharer.begin_fork();
    }

    /// Notes that the changes of a fork that began at `since_ns` have ended. If the child shares tables, its end takes
    /// about as long, and so long faults wait for it: twice what a fork costs is the most that it costs if the child
    /// stays.
    pub(crate) fn end_fork(&self, child: Option<&Self>, since_ns: u64) {
        self.sharer.end_fork(child.is_some(), since_ns);
        if let Some(child) = child {
            child.sharer.note_inherited();
        }
    }

    /// Waits awake for a fork that is under way; says whether there was one, and its changes have ended. Waiting asleep
    /// costs the fork more, which wakes the sleepers, than it takes all in all.
    #[cold]
    pub(crate) fn await_fork(&self) -> bool {
        self.sharer.await_fork()
    }

    /// Returns a page's entry, as it was at some instant during the call. The caller is in an RCU section, or holds the
    /// space's lock.
    pub(crate) fn read(&self, address: u64) -> Entry {
        loop {
            let Some(leaf) = self.tables.walk(self.memory(), address) else { return Entry::EMPTY };
            if !leaf.is_shared() {
                return leaf.read(self.memory());
            }
            if let Some(entry) = self.read_shared(leaf) {
                return entry;
            }
        }
    }

    /// Returns an entry of a shared table, unless the space has left the table by then.
    fn read_shared(&self, leaf: Leaf<'_, P>) -> Option<Entry> {
        // Others may free what the space has left.
        let _reading = self.memory().rcu().read();
        if leaf.parent_entry(self.memory()) != leaf.parent.1 {
            return None;
        }
        let entry = leaf.read(self.memory());
        (leaf.parent_entry(self.memory()) == leaf.parent.1).then_some(entry)
    }

    /// As [`Tables::for_each_leaf`], of tables that are the space's own by then.
    pub(crate) fn for_each_own_leaf(&self, range: Range<u64>, visit: &mut dyn FnMut(Pfn, Range<u64>) -> bool) {
        let memory = self.memory();
        if range.start < range.end && range.end <= Tables::<P>::leaf_end(range.start) {
            if let Some(leaf) = self.walk_own(range.start) {
                visit(leaf.table, range);
            }
            return;
        }
        self.tables.for_each_way(memory, range, &mut |_, upper, part| match is_shared::<P>(upper) {
            false => visit(upper.pfn(), part),
            true => self.walk_own(part.start).is_none_or(|leaf| visit(leaf.table, part)),
        });
    }

    #[cold]
    fn own<'a>(&'a self, mut leaf: Leaf<'a, P>, address: u64) -> Option<Leaf<'a, P>> {
        while leaf.is_shared() {
            self.own_table(leaf, Tables::<P>::leaf_span(address));
            leaf = self.tables.walk(self.memory(), address)?;
        }
        Some(leaf)
    }

    /// Gives the space a table of its own in place of one that is shared, if it still is; see the module.
    fn own_table(&self, leaf: Leaf<'_, P>, span: Range<u64>) {
        let (memory, shared) = (self.memory(), leaf.table);
        // Who waits for the lock of a table that his space leaves meanwhile waits for others' table.
        let _reading = memory.rcu().read();
        if leaf.parent_entry(memory) != leaf.parent.1 {
            return;
        }
        let _shared = TableMap::<P>::new(memory, shared);
        let _lock = memory.page(shared).lock().guard();
        if leaf.parent_entry(memory) != leaf.parent.1 {
            return;
        }
        let is_last = mutant!(SharedTableTaken, memory.page(shared).nr_references() == 1 => true);
        let spare = if is_last { None } else { unchain::<P>(memory, shared) };
        let Some(own) = spare else {
            debug_assert!(is_last, "S1: a shared table lacks a spare");
            Tables::<P>::relink(memory, leaf.parent.0, shared, false);
            return;
        };
        self.instance().events.note(Event::TablesCopied, span.start);
        self.copy_table(shared, own, span.clone());
        Tables::<P>::relink(memory, leaf.parent.0, own, false);
        // The last table spans a page that is nobody's.
        let range = PageRange::between(span.start.into(), span.end.min(USER_END).into());
        let range = range.expect("a leaf table translates user memory");
        mutant!(SharedTableUnflushed, self.flush(range) => ());
        frames::put(memory, shared);
    }

    /// Fills a table with copies of another one's entries, which neither may write any more; the caller holds the other
    /// one's lock.
    fn copy_table(&self, from: Pfn, to: Pfn, span: Range<u64>) {
        let memory = self.memory();
        let _to = BriefTableMap::<P>::new(memory, to);
        frames::clear_table(memory, to);
        for address in span.step_by(PAGE as usize) {
            let slot = Tables::<P>::leaf_slot(memory, from, address);
            // ORDER: Acquire, in the known bug's place, as in `share`.
            let entry = mutant!(SharedEntriesWritable, share(slot) => slot.load(Ordering::Acquire));
            if entry.is_empty() {
                continue;
            }
            if entry.holds_reference() {
                // SAFETY: the entry holds one while its table is locked; the copy stands in the other table.
                unsafe { memory.page(entry.pfn()).get_beside() };
            }
            // Relaxed: published with the upper entry.
            Tables::<P>::leaf_slot(memory, to, address).store(entry, Ordering::Relaxed);
        }
    }

    /// Lets a child have the leaf table of an upper entry, of which `address` is a part, if the fork shares it; says
    /// whether the child has it now. The caller has all of the space locked, no fault is at work, and
    /// [`Self::forbid_stores_to_shared`] and a shootdown of the parent come afterwards.
    pub(super) fn share_table(
        &self,
        child: &Self,
        upper: Entry,
        address: u64,
        sharing: &mut Sharing<'_, '_, P>,
    ) -> Result<bool, OutOfFrames> {
        let (memory, table) = (self.memory(), upper.pfn());
        if let Some(leaf) = child.tables.walk(memory, address) {
            // Another area has been here.
            return Ok(leaf.table == table);
        }
        if sharing.spares.is_empty() || !(sharing.is_shared)(&Tables::<P>::leaf_span(address)) {
            return Ok(false);
        }
        let childs = child.tables.way_or_grow(memory, address)?;
        let Some(spare) = sharing.spares.take() else { return Ok(false) };
        let is_counted = {
            let _lock = memory.page(table).lock().guard();
            chain::<P>(memory, table, spare);
            frames::note_shared_table(memory, table);
            frames::get(memory, table).is_ok() || {
                unchain::<P>(memory, table);
                false
            }
        };
        if !is_counted {
            frames::put(memory, spare);
            return Ok(false);
        }
        self.instance().events.note(Event::TablesShared, address);
        Tables::<P>::relink(memory, childs, table, true);
        Ok(true)
    }

    /// Forbids the parent's stores to tables that the child has now, and tells the child how many pages they hold; no
    /// fault is at work, and nothing changes. The upper entries are written in a row: between two writes other CPUs
    /// would fetch their line again.
    pub(crate) fn forbid_stores_to_shared(&self, child: &Self) {
        let memory = self.memory();
        let (mut nr_shared, mut nr_others) = (0_u64, 0_u64);
        self.tables.for_each_way(memory, PageRange::USER.numbers(), &mut |slot, upper, part| {
            let has_child = child.has_table(upper.pfn(), part.start);
            match has_child {
                true => nr_shared += 1,
                false => nr_others += 1,
            }
            if let Some(slot) = slot.filter(|_| has_child && !is_shared::<P>(upper)) {
                mutant!(SharedTableWritable, Tables::<P>::relink(memory, slot, upper.pfn(), true) => ());
            }
            true
        });
        // All that the parent has, but for the tables that are not shared; or the other way round, if those are more.
        let nr_pages = match nr_shared <= nr_others {
            true => self.nr_pages_of_tables(child, true),
            false => self.resident.pages(memory) - self.nr_pages_of_tables(child, false),
        };
        child.add_resident(nr_pages);
    }

    /// Says whether a table is the one that this space has at an address.
    fn has_table(&self, table: Pfn, address: u64) -> bool {
        self.tables.walk(self.memory(), address).is_some_and(|leaf| leaf.table == table)
    }

    /// Returns how many pages the tables hold that the child has, or all others.
    fn nr_pages_of_tables(&self, child: &Self, are_childs: bool) -> u64 {
        let mut nr_pages = 0;
        self.tables.for_each_way(self.memory(), PageRange::USER.numbers(), &mut |_, upper, part| {
            if child.has_table(upper.pfn(), part.start) == are_childs {
                nr_pages += nr_pages_of::<P>(self.memory(), upper.pfn(), part.start);
            }
            true
        });
        nr_pages
    }

    /// Gives tables back that others have, too; those that nobody else has are the space's own then. Nobody uses the
    /// space, and no CPU remembers it. What all wait for comes first: the pages are dropped after that.
    pub(crate) fn give_shared_back(&self) {
        if !self.sharer.may_share() {
            return;
        }
        self.tables.for_each_way(self.memory(), PageRange::USER.numbers(), &mut |slot, upper, _| {
            if let Some(slot) = slot.filter(|_| is_shared::<P>(upper)) {
                self.give_back(slot, upper.pfn());
            }
            true
        });
    }

    /// Gives a shared table back, or makes it the space's own if nobody else has it.
    fn give_back(&self, slot: Slot<'_, P>, table: Pfn) {
        let memory = self.memory();
        let lock = memory.page(table).lock().guard();
        if memory.page(table).nr_references() == 1 {
            drop(lock);
            return Tables::<P>::relink(memory, slot, table, false);
        }
        let spare = unchain::<P>(memory, table);
        frames::put(memory, table);
        drop(lock);
        Tables::<P>::unlink(memory, slot);
        if let Some(spare) = spare {
            frames::put(memory, spare);
        }
    }
}

/// Returns how many pages a table holds that nobody changes meanwhile.
fn nr_pages_of<P: System>(memory: &P::Frames, table: Pfn, start: u64) -> u64 {
    let _map = TableMap::<P>::new(memory, table);
    let pages = Tables::<P>::leaf_span(start).step_by(PAGE as usize);
    // Relaxed: what changes an entry was waited for.
    let holds_frame = |&page: &u64| Tables::<P>::leaf_slot(memory, table, page).load(Ordering::Relaxed).holds_frame();
    pages.filter(holds_frame).count() as u64
}
