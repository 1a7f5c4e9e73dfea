//! The interface for designs without areas: their page-table entries are the map.
//!
//! # Guarantee
//! Each change of an entry is one compare-and-swap under its leaf table's lock. When a [`Cursor`] is dropped, no CPU
//! has a translation that is stronger than the entries, and the frames and tables that went are given back.
//!
//! The design's own lock keeps other map calls out of a cursor's range. Faults, and calls on other ranges, run beside
//! the cursor, even in the same tables.
//!
//! # Invariants
//! * I1 a leaf table counts its entries that are not empty, and the cursors that hold it: in the index word of its
//!   frame's metadata, under its lock. A fault changes no entry from or to empty.
//! * I2 whoever brings the count to 0 unlinks the table from the tree before unlocking it.
//! * I3 tables above the leaves stay until the space ends.
//!
//! # Race: a table goes
//! ```text
//! munmap of its last page              another cursor comes                   a fault
//! lock; last entry = empty             walks to the table                     walks to the table (RCU)
//! count = 0: out of the tree; unlock   locks it, walks again: not in the      finds its entry empty: not mapped, or
//! flushes; freed after a grace period    tree; grows or skips                   another than it saw: tries again
//! ```
//! Forbidden: an entry is set in a table that is not in the tree.

use super::change::Sizes;
use super::{AreaLine, Space};
use crate::addr::{PAGE, PageRange, VirtAddr};
use crate::area::AreaView;
use crate::asked::Protection;
use crate::design::Design;
use crate::entry::Entry;
use crate::error::{AccessError, CallError};
use crate::fault::{Fault, Handled, handle_promised};
use crate::promise::State;
use crate::system::System;
use crate::translations::gather::Gather;
use crate::translations::rights::is_weaker;
use crate::translations::slot::Slot;
use crate::translations::table::{Leaf, TableMap, Tables};
use crate::types::Map;
use core::ops::Range;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::{Atomic, AtomicInteger, Ordering};
use faultless_sync::RcuGuard;

/// See the module. Made by a [`Map`] of promises for a call.
///
/// What `embed/design` does for munmap and mprotect, with the range locked by the design's own lock:
///
/// ```
/// use faultless_vm::design::{Change, Cursor, Design, MapLock, Promises, Tally};
/// use faultless_vm::{CallError, PageRange, Protection, Space, System};
///
/// /// Gives all that is promised in a range other rights, and keeps the counts of the space right.
/// fn protect<P: System, D: Design<P>>(space: &Space<P, D>, range: PageRange, rights: Protection) -> Result<(), CallError> {
///     let view = Promises::of(space);
///     let _held = view.lock().write(range.addresses());
///     let (mut before, mut after) = (Tally::default(), Tally::default());
///     view.tally(range.addresses(), &mut before);
///     view.for_each_run(range.addresses(), |run, _| after.add(run, rights));
///     view.recount(before.sizes(), after.sizes(), view.space().limits().max_map_count)?;
///     let mut cursor: Cursor<'_, P, D> = view.cursor(range);
///     cursor.hold_tables()?;
///     cursor.change(|_, _| Change::Protect(rights));
///     Ok(())
/// }
/// ```
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | a map's `mmap`, `munmap`, `mprotect` | `fixed`, `lock`, `visit`, `tally`, `recount`, `cursor` |
/// | a map's `for_each_area` and `area_at` | `for_each_run`, `line`, `area_at` |
/// | a design's `fault` | `fault` |
pub struct Promises<'a, P: System, D: Design<P>>(&'a Space<P, D>);

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays.
    Keep,
    /// Nothing is left.
    Unmap,
    /// Untouched memory with these rights, in place of what is there.
    Promise(Protection),
    /// What is promised gets these rights; a page stays. Nothing is made of nothing.
    Protect(Protection),
}

impl Change {
    fn apply(self, old: Entry) -> Entry {
        match self {
            Self::Keep => old,
            Self::Unmap => Entry::EMPTY,
            Self::Promise(rights) => Entry::promise(rights),
            Self::Protect(rights) if old.promised().is_some() => old.promising(rights),
            Self::Protect(_) => old,
        }
    }
}

impl<'a, P: System, D: Design<P>> Promises<'a, P, D> {
    /// Returns the view of a space; only of designs whose map says that it makes no areas.
    pub fn of(space: &'a Space<P, D>) -> Self {
        const { assert!(D::Map::PROMISES, "entries of a map of areas are changed by its calls") };
        Self(space)
    }

    /// Returns the space.
    pub fn space(&self) -> &'a Space<P, D> {
        self.0
    }

    /// Returns the space's lock.
    pub fn lock(&self) -> &'a D::Lock {
        &self.0.lock
    }

    /// Handles a fault: makes the page that its entry promises, or says why there is none.
    pub fn fault(&self, fault: Fault) -> Result<Handled, AccessError> {
        handle_promised(self.0, fault)
    }

    /// Returns the range of a mapping at a fixed address, if it may be there.
    pub fn fixed(&self, start: VirtAddr, len_bytes: u64) -> Result<PageRange, CallError> {
        self.0.fixed(start, len_bytes)
    }

    /// Begins to change the entries of a range, which the caller has locked.
    pub fn cursor(&self, range: PageRange) -> Cursor<'a, P, D> {
        Cursor { space: self.0, range, gather: Gather::new(&self.0.translations, range), held: range.start().get() }
    }

    /// Visits the entries of the pages of these addresses that are not empty, ascending, each as it is at some instant.
    /// The visit does not sleep.
    pub fn visit(&self, addresses: Range<VirtAddr>, visit: &mut dyn FnMut(VirtAddr, Entry)) {
        let (space, memory) = (self.0, self.0.memory());
        let addresses = addresses.start.page().get()..addresses.end.min(PageRange::USER.end()).get();
        space.tables().for_each_leaf(memory, addresses, &mut |_, part| {
            let _looking = space.look();
            if let Some(leaf) = space.tables().walk(memory, part.start) {
                let _map = TableMap::<P>::new(memory, leaf.table);
                for address in part.step_by(PAGE as usize) {
                    let entry =
                        crate::translations::table::load::<P>(Tables::<P>::leaf_slot(memory, leaf.table, address));
                    if !entry.is_empty() {
                        visit(VirtAddr::new(address), entry);
                    }
                }
            }
            true
        });
    }

    /// Visits the runs of pages with one promise, ascending: what the list shows as areas.
    pub fn for_each_run(&self, addresses: Range<VirtAddr>, mut visit: impl FnMut(PageRange, Protection)) {
        let mut run: Option<(u64, u64, Protection)> = None;
        let mut end_run = |run: Option<(u64, u64, Protection)>| {
            if let Some((start, end, rights)) = run
                && let Some(range) = PageRange::between(VirtAddr::new(start), VirtAddr::new(end))
            {
                visit(range, rights);
            }
        };
        self.visit(addresses, &mut |page, entry| {
            let Some(rights) = entry.promised() else { return };
            match &mut run {
                Some((_, end, known)) if *end == page.get() && *known == rights => *end += PAGE,
                other => end_run(other.replace((page.get(), (page + PAGE).get(), rights))),
            }
        });
        end_run(run);
    }

    /// Counts what is mapped in whole pages.
    pub fn tally(&self, addresses: Range<VirtAddr>, tally: &mut Tally) {
        self.for_each_run(addresses, |run, rights| tally.add(run, rights));
    }

    /// Puts `after` in place of `before` in what the space counts, if the limits allow it; what is taken is not lent
    /// to calls beside this one.
    pub fn recount(&self, before: Sizes, after: Sizes, max_areas: u64) -> Result<(), CallError> {
        self.0.add_sizes(before, after);
        let judged = self.0.check_sizes(before, after, max_areas);
        if judged.is_err() {
            self.0.add_sizes(after, before);
        }
        judged
    }

    /// Returns a run as a line of the list.
    pub fn line(run: PageRange, rights: Protection) -> AreaLine {
        AreaLine {
            range: run,
            flags: rights.into(),
            page_offset: run.start().page_number(),
            has_object: false,
            identity: None,
            is_reference: false,
            is_heap: false,
        }
    }

    /// Returns the area that the entry of an address promises, of its page alone.
    pub fn area_at(&self, address: VirtAddr) -> Option<AreaView<P>> {
        self.0.promised_area(address.page(), self.0.entry_at(address))
    }
}

/// Counts parts of areas: what [`Promises::tally`] fills and [`Promises::recount`] takes the sizes of. They are given
/// ascending: those that touch and have the same rights are one area.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    sizes: Sizes,
    last: Option<(u64, Protection)>,
}

impl Tally {
    /// Adds a part.
    pub fn add(&mut self, part: PageRange, rights: Protection) {
        self.sizes.add(rights.into(), part.len_bytes());
        self.sizes.areas -= u64::from(self.last == Some((part.start().get(), rights)));
        self.last = Some((part.end().get(), rights));
    }

    /// Returns what was counted.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }
}

/// Changes the entries of a range; see the module. [`Promises::cursor`] returns it.
#[must_use = "what a cursor took away is shot down when it is dropped"]
pub struct Cursor<'a, P: System, D: Design<P>> {
    space: &'a Space<P, D>,
    range: PageRange,
    gather: Gather<'a, P>,
    /// First byte behind what the tables that it holds cover.
    held: u64,
}

/// A leaf table in the tree, and its lock: as long as it is held, the table stays there.
struct LockedLeaf<'a, P: System> {
    leaf: Leaf<'a, P>,
    memory: &'a P::Frames,
    _map: TableMap<'a, P>,
    _looking: RcuGuard<'a, P>,
}

impl<'a, P: System> LockedLeaf<'a, P> {
    fn lock<D: Design<P>>(space: &'a Space<P, D>, address: u64) -> Option<Self> {
        let memory = space.memory();
        let looking = space.look();
        loop {
            let leaf = space.tables().walk(memory, address)?;
            let map = TableMap::<P>::new(memory, leaf.table);
            memory.page(leaf.table).lock().lock();
            let locked = Self { leaf, memory, _map: map, _looking: space.look() };
            if leaf.parent_entry(memory) == leaf.parent.1 {
                drop(looking);
                return Some(locked);
            }
        }
    }

    /// Adds to the table's count (I1); says whether nothing is left.
    fn count(&self, added: i64) -> bool {
        // SAFETY: whoever has the lock of a table in the tree has its words.
        let count = unsafe { self.memory.page(self.leaf.table).owned() }.index();
        // Relaxed: under the table's lock.
        let now = count.load(Ordering::Relaxed).wrapping_add_signed(added);
        count.store(now, Ordering::Relaxed);
        now == 0
    }
}

impl<P: System> Drop for LockedLeaf<'_, P> {
    fn drop(&mut self) {
        // SAFETY: locked by `lock`.
        unsafe { self.memory.page(self.leaf.table).lock().unlock() };
    }
}

impl<'a, P: System, D: Design<P>> Cursor<'a, P, D> {
    /// Makes the tables that the range lacks, and keeps those that it has until the cursor is dropped: what is then
    /// changed lacks no memory. May sleep.
    pub fn hold_tables(&mut self) -> Result<(), OutOfFrames> {
        while self.held < self.range.end().get() {
            // Those above the leaves stay (I3), so that no section is needed; the leaf is walked to again.
            self.space.tables().walk_or_grow(self.space.memory(), self.held)?;
            if let Some(locked) = LockedLeaf::lock(self.space, self.held) {
                locked.count(1);
                self.held = Tables::<P>::leaf_end(self.held).min(self.range.end().get());
            }
        }
        Ok(())
    }

    /// Changes the entries of those pages of the range that have a table. `decide` may be asked again about a page
    /// whose accessed and dirty bits a CPU set meanwhile.
    pub fn change(&mut self, mut decide: impl FnMut(VirtAddr, Entry) -> Change) {
        let space = self.space;
        let mut nr_freed = 0;
        space.tables().for_each_leaf(space.memory(), self.range.numbers(), &mut |_, part| {
            let mut position = part.start;
            while position < part.end {
                position = self.change_leaf(position..part.end, &mut decide, &mut nr_freed);
                if self.gather.is_full() {
                    self.gather.flush();
                }
            }
            true
        });
        if nr_freed != 0 {
            space.shrink_resident(nr_freed);
        }
    }

    /// Changes entries of one table until the gather is full; returns where it stopped.
    fn change_leaf(
        &mut self,
        part: Range<u64>,
        decide: &mut impl FnMut(VirtAddr, Entry) -> Change,
        nr_freed: &mut u64,
    ) -> u64 {
        let Some(locked) = LockedLeaf::lock(self.space, part.start) else { return part.end };
        let (mut position, mut nr_added) = (part.start, 0);
        while position < part.end && !self.gather.is_full() {
            let slot = Tables::<P>::leaf_slot(locked.memory, locked.leaf.table, position);
            let (old, new) = exchange(slot, |entry| decide(VirtAddr::new(position), entry));
            nr_added += i64::from(!new.is_empty()) - i64::from(!old.is_empty());
            if old.state() == State::Page && new.state() != State::Page {
                *nr_freed += u64::from(old.holds_frame());
                self.gather.add(position, old);
            } else if is_weaker(old, new) {
                self.gather.note_weakened();
            }
            position += PAGE;
        }
        self.settle(&locked, nr_added);
        position
    }

    /// Adds to a table's count, and takes the table away if nothing is left (I2).
    fn settle(&mut self, locked: &LockedLeaf<'_, P>, added: i64) {
        if locked.count(added) {
            Tables::<P>::take_out(locked.memory, locked.leaf);
            self.gather.add_table(locked.leaf.table);
        }
    }
}

impl<P: System, D: Design<P>> Drop for Cursor<'_, P, D> {
    fn drop(&mut self) {
        let mut position = self.range.start();
        while position < VirtAddr::new(self.held) {
            if let Some(locked) = LockedLeaf::lock(self.space, position.get()) {
                self.settle(&locked, -1);
            }
            position = VirtAddr::new(Tables::<P>::leaf_end(position.get()));
        }
    }
}

/// Changes an entry; returns it as it was and as it is.
fn exchange<P: System>(slot: Slot<'_, P>, mut decide: impl FnMut(Entry) -> Change) -> (Entry, Entry) {
    loop {
        // ORDER: Acquire pairs with walks that set accessed and dirty bits.
        let old = slot.load(Ordering::Acquire);
        let new = decide(old).apply(old);
        // ORDER: AcqRel pairs with walks that set accessed and dirty bits: none is lost.
        if new == old || slot.exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return (old, new);
        }
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Adds the difference, beside other calls.
    fn add_sizes(&self, before: Sizes, after: Sizes) {
        add(&self.nr_areas, after.areas, before.areas);
        add(&self.mapped_bytes, after.bytes, before.bytes);
        add(&self.data_bytes, after.data_bytes, before.data_bytes);
        add(&self.locked_bytes, after.locked_bytes, before.locked_bytes);
    }

    /// Judges what was added.
    fn check_sizes(&self, before: Sizes, after: Sizes, max_areas: u64) -> Result<(), CallError> {
        let limits = &self.limits;
        let exceeds = |now: u64, limit: u64| now / PAGE > limit / PAGE;
        if after.areas > before.areas && self.nr_areas() > max_areas {
            return Err(CallError::TooManyAreas { limit: limits.max_map_count });
        }
        if after.bytes > before.bytes && exceeds(self.mapped_bytes(), limits.address_space_bytes) {
            return Err(CallError::OverLimit { limit_bytes: limits.address_space_bytes });
        }
        if after.data_bytes <= before.data_bytes {
            return Ok(());
        }
        if exceeds(self.data_bytes(), limits.data_bytes) {
            return Err(CallError::OverLimit { limit_bytes: limits.data_bytes });
        }
        self.check_commit(after.data_bytes - before.data_bytes)
    }
}

/// Changes one of the space's counters by `after - before`.
fn add(counter: &impl AtomicInteger<Value = u64>, after: u64, before: u64) {
    if after != before {
        // Relaxed: a sum, of which each call's share is exact while the call has its range.
        counter.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// The number of a table's entries that are not empty; for the checker.
pub(crate) fn counted_entries<P: System>(memory: &P::Frames, table: Pfn) -> u64 {
    // SAFETY: nobody changes the table meanwhile.
    let count = unsafe { memory.page(table).owned() }.index();
    // Relaxed: as above.
    count.load(Ordering::Relaxed)
}
