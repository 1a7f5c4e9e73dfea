//! Page tables: the hardware's for a space, and the same shape for what an object keeps there.
//!
//! # Guarantee
//! Tables are frames, entries are the hardware's words ([`Slot`]), and a walk takes no lock. Missing tables are added
//! by compare-and-swap of an empty upper entry, so that two walkers that miss the same table agree on one.
//!
//! # Invariants
//! * I1 an upper entry goes from empty to a table and, only in [`Tables::free_empty`], back to empty; one that leads to
//!   a leaf table may come to lead to another one, or, in the end of the space, to none (`sharing`).
//! * I2 a present leaf entry changes only under the lock of its leaf table (its frame's page lock), but for the
//!   accessed and dirty bits, which a CPU's walk sets by compare-and-swap at any time. So even under the lock, whoever
//!   changes a present entry does it by compare-and-swap against the entry that it judged, or by a swap whose result
//!   it uses. A plain store may only fill an entry that is not present. Under a design that fills empty entries
//!   freely (`Design::FILLS_FREELY`), an empty one is filled by compare-and-swap and needs no lock.
//! * I3 a table that was taken out of the tree is freed after a shootdown of the CPUs that may walk it as guests and
//!   after a grace period for those that walk it inside an RCU section, unless nobody does (`Space::is_looked_at`);
//!   one that several spaces have had (`sharing`) always so, because those who left it may look as well.
//! * I4 the tables of a space, but for the root, each span a byte of some area, or the top of a CPU's range
//!   (`space::holes`): whoever empties a range takes those away that stand there for nothing, so that the next one
//!   needs to look at its own range alone. In a space without areas a leaf table stays as long as it counts something
//!   (`counted`), and those above it as the space does.

use crate::addr::USER_END;
use crate::entry::{Entry, EntryFlags};
use crate::format::TableFormat;
use crate::system::System;
use crate::translations::frames::{self, BriefFrameMap, FrameMap};
use crate::translations::slot::Slot;
use core::marker::PhantomData;
use core::ops::Range;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::{Holds, InPlace, Ordering};

/// Entries of a table.
pub const ENTRIES: usize = 512;
/// The height of a space's tree: as many levels as the format has, of which user memory takes the lower half.
const OF_FORMAT: u32 = 0;

/// Who gets a table that was taken out of the tree, and which addresses it spans.
pub(crate) type Taken<'a> = dyn FnMut(Pfn, Range<u64>) + 'a;

/// A tree of tables, by its root; `HEIGHT` is the root's level, 1 is the leaves'.
pub struct Tables<P: System, const HEIGHT: u32 = OF_FORMAT> {
    root: Pfn,
    platform: PhantomData<fn() -> P>,
}

/// Where a walk ended: a leaf entry and the way to it.
pub struct Leaf<'a, P: System> {
    /// The leaf table's frame, whose page lock guards the entries.
    pub table: Pfn,
    /// The page's entry.
    pub slot: Slot<'a, P>,
    /// The upper entry that points to the leaf table (Linux's pmd), and its value at the walk.
    pub parent: (Slot<'a, P>, Entry),
}

impl<P: System> Clone for Leaf<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System> Copy for Leaf<'_, P> {}

impl<P: System> Leaf<'_, P> {
    /// Returns the page's entry as it is now, and as the way to it lets one use it; the caller holds the table mapped
    /// ([`TableMap`]), or is the hardware.
    #[inline]
    pub fn entry(&self) -> Entry {
        as_reached::<P>(self.parent.1, load::<P>(self.slot))
    }

    /// Says whether other spaces may have the table as well (`sharing`).
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        is_shared::<P>(self.parent.1)
    }

    /// Returns the upper entry as it is now.
    #[inline]
    pub(crate) fn parent_entry(&self, memory: &P::Frames) -> Entry {
        let _map = Tables::<P>::map_upper_of(memory, self.parent.0);
        // ORDER: Acquire pairs with the Release in `Tables::free_empty`.
        self.parent.0.load(Ordering::Acquire)
    }

    /// Fills the page's entry if it is empty, without its table's lock; says whether it was. The caller knows that what
    /// the entry stands for does not change meanwhile.
    #[inline]
    pub(crate) fn fill(&self, memory: &P::Frames, entry: Entry) -> bool {
        let _map = TableMap::<P>::new(memory, self.table);
        // ORDER: Release pairs with the Acquire in `load`: the frame's content is seen through the entry. Relaxed on
        // failure: the fault starts over.
        self.slot.exchange(Entry::EMPTY, entry, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Maps the table, and returns the page's entry as it is now.
    #[inline]
    pub fn read(&self, memory: &P::Frames) -> Entry {
        let _map = TableMap::<P>::new(memory, self.table);
        self.entry()
    }
}

/// Holds a leaf table's address.
///
/// Leaf tables may lie in high memory, where frames have no address of their own: who reads or writes entries of a
/// space's leaf table maps it for so long, as Linux does with `pte_offset_map`. The tables above are mapped by the
/// walks of this module for each entry, and a CPU's own walk needs no address. It is taken before the table's lock,
/// because it may sleep. Where all memory has addresses it is nothing at all. Who holds a brief one does not sleep.
pub struct TableMap<'a, P: System, const BRIEF: bool = false> {
    memory: &'a P::Frames,
    table: Pfn,
}

/// As [`TableMap`], of somebody who does not sleep.
pub(crate) type BriefTableMap<'a, P> = TableMap<'a, P, true>;

impl<'a, P: System, const BRIEF: bool> TableMap<'a, P, BRIEF> {
    /// Maps a leaf table until the guard is dropped.
    #[inline]
    pub fn new(memory: &'a P::Frames, table: Pfn) -> Self {
        match BRIEF {
            true => P::map_briefly(memory.frame(table), Holds::Table),
            false => P::map_frame(memory.frame(table), Holds::Table),
        }
        Self { memory, table }
    }
}

impl<'a, P: System> TableMap<'a, P> {
    /// Maps the table of a fault that may sleep, if the map may be kept so long: what the fault maps of this table
    /// until the guard is dropped is this map.
    #[inline(always)]
    pub(crate) fn for_fault(memory: &'a P::Frames, table: Pfn) -> Option<Self> {
        (P::HAS_HIGH_MEMORY && P::maps_outlast_sleep()).then(|| Self::new(memory, table))
    }
}

impl<P: System, const BRIEF: bool> Drop for TableMap<'_, P, BRIEF> {
    #[inline]
    fn drop(&mut self) {
        match BRIEF {
            true => P::unmap_briefly(self.memory.frame(self.table), Holds::Table),
            false => P::unmap_frame(self.memory.frame(self.table), Holds::Table),
        }
    }
}

/// Returns the exclusive end of a tree's addresses, capped at 2^63.
pub(crate) const fn reach(height: u32) -> u64 {
    if height < 6 { span(height + 1) } else { 1 << 63 }
}

/// Returns the bytes that one entry of a level spans.
#[inline]
const fn span(level: u32) -> u64 {
    1 << (12 + 9 * (level - 1))
}

/// Returns the first address behind those of the leaf table of `address`.
#[inline]
const fn leaf_end(address: u64) -> u64 {
    (address / span(2) + 1) * span(2)
}

/// Says whether a leaf table that has a part of `range` lies wholly in `hole`.
#[inline]
pub(crate) fn has_whole_leaf(range: &Range<u64>, hole: &Range<u64>) -> bool {
    let first = hole.start.next_multiple_of(span(2)).max(range.start / span(2) * span(2));
    first < range.end && leaf_end(first) <= hole.end
}

/// Returns the entries of one table that cover a part of `range`, by their places and what each of them covers.
#[inline]
fn entries_of(level: u32, range: &Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> + use<> {
    let shift = span(level).trailing_zeros();
    let numbers = range.start >> shift..range.end.next_multiple_of(1 << shift) >> shift;
    numbers.map(move |number| (number as usize % ENTRIES, number << shift..(number + 1) << shift))
}

/// Returns entry `index` of a table.
#[inline]
fn entry_at<P: System>(memory: &P::Frames, table: Pfn, index: usize) -> Slot<'_, P> {
    // SAFETY: the frame is a table's, and those who own its number keep it.
    unsafe { entry_of(memory.frame(table), index) }
}

/// Returns entry `index` of the table at `frame`.
///
/// # Safety
/// A table's frame is found there as long as the slot is used.
#[inline]
unsafe fn entry_of<'a, P: System>(frame: *mut u8, index: usize) -> Slot<'a, P> {
    debug_assert!(index < ENTRIES);
    // SAFETY: a table's frame holds 512 aligned entries, which are accessed atomically only; index < 512.
    Slot::new(unsafe { P::AtomicU64::view(frame.cast::<u64>().add(index)) })
}

/// Returns the place in its table of a level-`level` entry that covers `address`.
#[inline]
const fn index_for(level: u32, address: u64) -> usize {
    (address / span(level)) as usize % ENTRIES
}

/// Returns the entry of a level-`level` table that covers `address`.
#[inline]
fn entry_for<P: System>(memory: &P::Frames, table: Pfn, level: u32, address: u64) -> Slot<'_, P> {
    entry_at::<P>(memory, table, index_for(level, address))
}

#[inline]
pub(crate) fn load<P: System>(slot: Slot<'_, P>) -> Entry {
    // ORDER: Acquire pairs with the Release that installed a table: its zeroed entries are seen.
    slot.load(Ordering::Acquire)
}

/// Says whether an upper entry's table may be other spaces' as well (`sharing`).
#[inline]
pub(crate) fn is_shared<P: System>(upper: Entry) -> bool {
    P::Format::SHARES_TABLES && !upper.is_writable()
}

/// Returns what an entry allows that is reached by this upper entry: nobody stores to pages of a shared table, or has
/// one for himself.
#[inline]
pub(crate) fn as_reached<P: System>(upper: Entry, entry: Entry) -> Entry {
    if is_shared::<P>(upper) { entry.without(EntryFlags::WRITE.union(EntryFlags::EXCLUSIVE)) } else { entry }
}

impl<P: System> Tables<P> {
    /// Maps the table that an upper entry stands in, while the entry is read or written.
    #[inline(always)]
    fn map_upper_of<'a>(memory: &'a P::Frames, slot: Slot<'_, P>) -> Option<BriefFrameMap<'a, P, P::Frames>> {
        let table = if P::HAS_HIGH_MEMORY { memory.pfn_of(slot.address()) } else { None };
        table.map(|table| Self::map_upper(memory, table))
    }

    /// Returns the first address behind those of the leaf table of `address`.
    pub(crate) const fn leaf_end(address: u64) -> u64 {
        leaf_end(address)
    }

    /// Returns the addresses that the leaf table of `address` spans.
    pub(crate) const fn leaf_span(address: u64) -> Range<u64> {
        leaf_end(address) - span(2)..leaf_end(address)
    }

    /// Returns what those tables below the root span that touch `range` and lie wholly in `hole`, which holds the
    /// range, as one, the leaf tables among them or not; nothing if there is none.
    pub(crate) fn spanned_within(range: &Range<u64>, hole: &Range<u64>, with_leaves: bool) -> Option<Range<u64>> {
        let mut tables: Option<Range<u64>> = None;
        // By masks: the compiler does not know that the spans are powers of two, and divides.
        for mask in (if with_leaves { 2 } else { 3 }..=P::Format::LEVELS).map(|level| span(level) - 1) {
            let (down, up) = (|at: u64| at & !mask, |at: u64| (at + mask) & !mask);
            let low = down(range.start.max(up(hole.start)));
            let high = up(range.end).min(down(hole.end));
            if low < high {
                let widest = tables.unwrap_or(low..high);
                tables = Some(widest.start.min(low)..widest.end.max(high));
            }
        }
        tables
    }

    /// Returns the entry of `address` in its leaf table.
    #[inline]
    pub fn leaf_slot(memory: &P::Frames, table: Pfn, address: u64) -> Slot<'_, P> {
        entry_for::<P>(memory, table, 1, address)
    }
}

/// A way to take an empty table.
type Take<P> = fn(&<P as System>::Frames, Option<Holds>) -> Result<Pfn, OutOfFrames>;

impl<P: System, const HEIGHT: u32> Tables<P, HEIGHT> {
    /// First address behind those that the tree has a place for; of those of 64 bits the lower half.
    pub(crate) const END: u64 = if HEIGHT == OF_FORMAT { USER_END.next_power_of_two() } else { reach(HEIGHT) };
    /// What an entry of the root spans.
    pub(crate) const TOP_SPAN: u64 = span(Self::TOP);
    /// Bytes that a table above the leaf tables spans, the lowest.
    pub(crate) const SPAN_ABOVE_LEAVES: u64 = span(3);
    /// The root's level.
    const TOP: u32 = if HEIGHT == OF_FORMAT { P::Format::LEVELS } else { HEIGHT };
    /// What the tables above the leaves are; nothing of a tree that always lies in normal memory.
    const UPPER: Option<Holds> = if HEIGHT == OF_FORMAT { Some(Holds::UpperTable) } else { None };

    /// As [`Tables::UPPER`], of the leaf tables.
    const LEAF: Option<Holds> = if HEIGHT == OF_FORMAT { Some(Holds::Table) } else { None };

    /// Maps a table above the leaves, while an entry is read or written.
    #[inline(always)]
    fn map_upper(memory: &P::Frames, table: Pfn) -> BriefFrameMap<'_, P, P::Frames> {
        FrameMap::brief(memory, table, Self::UPPER)
    }

    /// Returns an empty tree.
    pub fn new(memory: &P::Frames) -> Result<Self, OutOfFrames> {
        Ok(Self::at(frames::alloc_table(memory, Self::UPPER)?))
    }

    /// Returns the tree that has this root.
    pub(crate) fn at(root: Pfn) -> Self {
        Self { root, platform: PhantomData }
    }

    /// Returns the root table's frame.
    pub fn root(&self) -> Pfn {
        self.root
    }

    /// Walks to the leaf entry of `address`; `None` if a table is missing.
    ///
    /// The caller is in guest state, in an RCU section, or holds the space's lock (I3).
    #[inline]
    pub fn walk<'a>(&self, memory: &'a P::Frames, address: u64) -> Option<Leaf<'a, P>> {
        self.walk_by(address, &|table| memory.frame(table), |table| Self::map_upper(memory, table))
    }

    /// As [`Tables::walk`], as the CPU itself does it: by frames' numbers, which need no address.
    #[inline]
    pub(crate) fn walk_in_hardware<'a>(&self, memory: &'a P::Frames, address: u64) -> Option<Leaf<'a, P>> {
        self.walk_by(address, &|table| P::in_hardware(memory.frame(table)), |_| ())
    }

    /// Walks; tables are found where `place` says, and each above the leaves is held by what `hold` returns while it is
    /// read.
    #[inline(always)]
    fn walk_by<'a, G>(
        &self,
        address: u64,
        place: &impl Fn(Pfn) -> *mut u8,
        hold: impl Fn(Pfn) -> G,
    ) -> Option<Leaf<'a, P>> {
        // SAFETY: those who walk keep the tables (I3).
        let entry = |table: Pfn, level: u32| unsafe { entry_of(place(table), index_for(level, address)) };
        let mut table = self.root;
        let mut level = Self::TOP;
        loop {
            let slot: Slot<'_, P> = entry(table, level);
            let found = {
                let _held = hold(table);
                load::<P>(slot)
            };
            if !found.is_present() {
                return None;
            }
            table = found.pfn();
            level -= 1;
            if level == 1 {
                return Some(Leaf { table, slot: entry(table, 1), parent: (slot, found) });
            }
        }
    }

    /// Walks to the leaf entry of `address` and adds the tables that are missing; may sleep.
    pub fn walk_or_grow<'a>(&self, memory: &'a P::Frames, address: u64) -> Result<Leaf<'a, P>, OutOfFrames> {
        self.walk_or_add(memory, address, frames::alloc_table)
    }

    /// As [`Tables::walk_or_grow`], without sleeping.
    #[inline]
    pub(crate) fn walk_or_try_grow<'a>(&self, memory: &'a P::Frames, address: u64) -> Result<Leaf<'a, P>, OutOfFrames> {
        self.walk_or_add(memory, address, frames::try_alloc_table)
    }

    #[inline]
    fn walk_or_add<'a>(&self, memory: &'a P::Frames, address: u64, take: Take<P>) -> Result<Leaf<'a, P>, OutOfFrames> {
        if let Some(leaf) = self.walk(memory, address) {
            return Ok(leaf);
        }
        let mut table = self.root;
        for level in (2..=Self::TOP).rev() {
            let slot = entry_for::<P>(memory, table, level, address);
            let entry = {
                let _map = Self::map_upper(memory, table);
                load::<P>(slot)
            };
            let entry = match entry.is_present() {
                true => entry,
                false => Entry::table(Self::add(memory, (table, level), slot, take)?),
            };
            table = entry.pfn();
            if level == 2 {
                let parent = (slot, entry);
                return Ok(Leaf { table, slot: entry_for::<P>(memory, table, 1, address), parent });
            }
        }
        unreachable!("level 2 returns")
    }

    /// Returns the place of the upper entry that leads to the leaf table of `address`; adds the tables above it that
    /// are missing. May sleep.
    pub(crate) fn way_or_grow<'a>(&self, memory: &'a P::Frames, address: u64) -> Result<Slot<'a, P>, OutOfFrames> {
        let mut table = self.root;
        for level in (3..=Self::TOP).rev() {
            let slot = entry_for::<P>(memory, table, level, address);
            let entry = {
                let _map = Self::map_upper(memory, table);
                load::<P>(slot)
            };
            table = match entry.is_present() {
                true => entry.pfn(),
                false => Self::add(memory, (table, level), slot, frames::alloc_table)?,
            };
        }
        Ok(entry_for::<P>(memory, table, 2, address))
    }

    /// Lets an upper entry lead to a table, which others may have as well if it is shared (`sharing`).
    pub(crate) fn relink(memory: &P::Frames, slot: Slot<'_, P>, table: Pfn, is_shared: bool) {
        let _map = Tables::<P>::map_upper_of(memory, slot);
        // ORDER: Release pairs with `load`: the table's entries are seen.
        slot.store_table(table, is_shared, Ordering::Release);
    }

    /// Empties an upper entry whose table is the space's no more.
    pub(crate) fn unlink(memory: &P::Frames, slot: Slot<'_, P>) {
        let _map = Tables::<P>::map_upper_of(memory, slot);
        // ORDER: Release pairs with `load`: whoever reads the empty entry starts a table of its own.
        slot.store(Entry::EMPTY, Ordering::Release);
    }

    /// Puts a new table into an empty upper entry; returns the one that is there afterwards.
    pub(crate) fn install(memory: &P::Frames, slot: Slot<'_, P>) -> Result<Pfn, OutOfFrames> {
        Self::settle(memory, slot, frames::alloc_table(memory, Self::UPPER)?)
    }

    /// Puts a new table into the empty entry `slot` of `parent`, a table of some level; returns the one that is there
    /// afterwards.
    #[cold]
    fn add(memory: &P::Frames, parent: (Pfn, u32), slot: Slot<'_, P>, take: Take<P>) -> Result<Pfn, OutOfFrames> {
        let holds = if parent.1 == 2 { Self::LEAF } else { Self::UPPER };
        let table = take(memory, holds)?;
        let _map = Self::map_upper(memory, parent.0);
        Self::settle(memory, slot, table)
    }

    fn settle(memory: &P::Frames, slot: Slot<'_, P>, table: Pfn) -> Result<Pfn, OutOfFrames> {
        match slot.install_table(table) {
            Ok(()) => Ok(table),
            Err(winner) => {
                frames::put(memory, table);
                Ok(winner.pfn())
            }
        }
    }

    /// Visits the leaf tables that cover a part of `range`, with that part; the visit may stop by `false`.
    pub fn for_each_leaf(&self, memory: &P::Frames, range: Range<u64>, visit: &mut dyn FnMut(Pfn, Range<u64>) -> bool) {
        self.for_each_way(memory, range, &mut |_, upper, part| visit(upper.pfn(), part));
    }

    /// As [`Tables::for_each_leaf`], with the upper entry's place and the upper entry in place of the table; of a tree
    /// that is one leaf without a place.
    #[inline]
    pub(crate) fn for_each_way<'a>(
        &self,
        memory: &'a P::Frames,
        range: Range<u64>,
        visit: &mut dyn FnMut(Option<Slot<'a, P>>, Entry, Range<u64>) -> bool,
    ) {
        // What one leaf table covers, most calls' range, needs one walk and no look at neighbours.
        if Self::TOP > 1 && range.start < range.end && range.end <= leaf_end(range.start) {
            if let Some(leaf) = self.walk(memory, range.start) {
                visit(Some(leaf.parent.0), leaf.parent.1, range);
            }
            return;
        }
        Self::descend(memory, (self.root, Self::TOP), (None, Entry::table(self.root)), range, visit);
    }

    fn descend<'a>(
        memory: &'a P::Frames,
        (table, level): (Pfn, u32),
        (slot, upper): (Option<Slot<'a, P>>, Entry),
        range: Range<u64>,
        visit: &mut dyn FnMut(Option<Slot<'a, P>>, Entry, Range<u64>) -> bool,
    ) -> bool {
        if level == 1 {
            return visit(slot, upper, range);
        }
        for (index, covered) in entries_of(level, &range) {
            let slot = entry_at::<P>(memory, table, index);
            let entry = Self::read_upper(memory, table, index);
            let part = || covered.start.max(range.start)..covered.end.min(range.end);
            if entry.is_present()
                && !Self::descend(memory, (entry.pfn(), level - 1), (Some(slot), entry), part(), visit)
            {
                return false;
            }
        }
        true
    }

    /// Returns an entry of a table above the leaves, which is mapped to be read.
    #[inline]
    fn read_upper(memory: &P::Frames, table: Pfn, index: usize) -> Entry {
        let _map = Self::map_upper(memory, table);
        load::<P>(entry_at::<P>(memory, table, index))
    }

    /// Visits the leaf entries of `range` that hold a frame, ascending, each leaf table mapped meanwhile.
    pub fn for_each_mapped(&self, memory: &P::Frames, range: Range<u64>, visit: &mut dyn FnMut(u64, Entry)) {
        self.for_each_way(memory, range, &mut |_, upper, part| {
            Self::for_each_reached(memory, upper, part, visit);
            true
        });
    }

    /// As [`Tables::for_each_mapped`], of the leaf table of an upper entry.
    pub(crate) fn for_each_reached(
        memory: &P::Frames,
        upper: Entry,
        part: Range<u64>,
        visit: &mut dyn FnMut(u64, Entry),
    ) {
        let table = upper.pfn();
        let _map = FrameMap::brief(memory, table, Self::LEAF);
        for address in part.step_by(crate::addr::PAGE as usize) {
            let entry = load::<P>(entry_for::<P>(memory, table, 1, address));
            if !entry.is_empty() {
                visit(address, as_reached::<P>(upper, entry));
            }
        }
    }

    /// Takes tables that touch `range` and lie wholly inside `hole`, in which nothing is mapped, out of the tree (I1).
    ///
    /// The caller holds the space's write lock. Each table goes to `taken`, which frees it as I3 says. The root stays.
    #[inline]
    pub fn free_empty(
        &self,
        memory: &P::Frames,
        range: Range<u64>,
        hole: Range<u64>,
        mut taken: impl FnMut(Pfn, Range<u64>),
    ) {
        // A table above spans its leaves: where none of those goes, none does.
        if !has_whole_leaf(&range, &hole) {
            return;
        }
        match range.end <= leaf_end(range.start) {
            true => self.prune_way(memory, range.start, &hole, &mut taken),
            false => Self::prune(memory, self.root, Self::TOP, &range, &hole, &mut taken),
        }
    }

    /// As [`Tables::prune`], of a range in one leaf table, which lies wholly in the hole: one walk down, which takes
    /// the tables that lie in the hole, the highest first.
    #[inline]
    fn prune_way(&self, memory: &P::Frames, address: u64, hole: &Range<u64>, taken: &mut impl FnMut(Pfn, Range<u64>)) {
        let covered = |level: u32| address & !(span(level) - 1)..(address | (span(level) - 1)) + 1;
        let lies_in_hole = |level: u32| hole.start <= covered(level).start && covered(level).end <= hole.end;
        let (mut table, mut is_taken) = (self.root, false);
        for level in (2..=Self::TOP).rev() {
            let slot = entry_for::<P>(memory, table, level, address);
            let below = {
                let _map = Self::map_upper(memory, table);
                let entry = load::<P>(slot);
                if !entry.is_present() {
                    return;
                }
                let was_taken = is_taken;
                is_taken = is_taken || lies_in_hole(level);
                if is_taken {
                    debug_assert!(level > 2 || !is_shared::<P>(entry), "{address:x}: others have the table, too");
                    // ORDER: Release pairs with `load`: whoever reads the empty entry starts a table of its own.
                    slot.store(Entry::EMPTY, Ordering::Release);
                    debug_assert!(!was_taken || Self::is_bare(memory, table), "{address:x}: a table leaks (I4)");
                }
                entry.pfn()
            };
            if is_taken {
                taken(below, covered(level));
            }
            table = below;
        }
    }

    /// Takes a table, which has no entry, out of the one above it.
    #[inline]
    fn take_empty(
        memory: &P::Frames,
        (above, slot): (Pfn, Slot<'_, P>),
        (level, table): (u32, Pfn),
        covered: Range<u64>,
        taken: &mut (impl FnMut(Pfn, Range<u64>) + ?Sized),
    ) {
        let is_bare = || {
            level == 2 || {
                let _map = Self::map_upper(memory, table);
                Self::is_bare(memory, table)
            }
        };
        debug_assert!(is_bare(), "{covered:x?}: a table below would leak (I4)");
        {
            let _map = Self::map_upper(memory, above);
            debug_assert!(level > 2 || !is_shared::<P>(load::<P>(slot)), "{covered:x?}: others have the table, too");
            // ORDER: Release pairs with `load`: whoever reads the empty entry starts a table of its own.
            slot.store(Entry::EMPTY, Ordering::Release);
        }
        taken(table, covered);
    }

    fn prune(memory: &P::Frames, table: Pfn, level: u32, range: &Range<u64>, hole: &Range<u64>, taken: &mut Taken<'_>) {
        for (index, covered) in entries_of(level, range) {
            let slot = entry_at::<P>(memory, table, index);
            let entry = Self::read_upper(memory, table, index);
            if !entry.is_present() {
                continue;
            }
            if level > 2 {
                let part = covered.start.max(range.start)..covered.end.min(range.end);
                Self::prune(memory, entry.pfn(), level - 1, &part, hole, taken);
            }
            if hole.start <= covered.start && covered.end <= hole.end {
                Self::take_empty(memory, (table, slot), (level, entry.pfn()), covered, taken);
            }
        }
    }

    /// Takes a leaf table, which has no entry and whose lock the caller holds, out of the tree; it is freed as I3 says.
    pub(crate) fn take_out(memory: &P::Frames, leaf: Leaf<'_, P>) {
        debug_assert!(Self::is_bare(memory, leaf.table), "what a table holds would leak");
        Self::unlink(memory, leaf.parent.0);
    }

    /// Says whether a table, which the caller has mapped, has no entry.
    fn is_bare(memory: &P::Frames, table: Pfn) -> bool {
        (0..ENTRIES).all(|index| load::<P>(entry_at::<P>(memory, table, index)).is_empty())
    }

    /// Frees all tables of a tree that nobody else can reach, after `drop_entry` for each leaf entry that holds a
    /// frame.
    pub fn free_all(&self, memory: &P::Frames, drop_entry: &mut dyn FnMut(Entry)) {
        let all = 0..Self::END;
        self.for_each_mapped(memory, all, &mut |_, entry| drop_entry(entry));
        self.free_tables(memory);
    }

    /// Frees all tables of a tree that nobody else can reach; what their entries hold has another owner now.
    pub(crate) fn free_tables(&self, memory: &P::Frames) {
        let all = 0..Self::END;
        self.free_empty(memory, all.clone(), all, &mut |table, _| match frames::was_shared_table(memory, table) {
            true => frames::put_table_deferred(memory, table),
            false => frames::put(memory, table),
        });
        self.free_root(memory);
    }

    /// Frees the root of a tree that has no other table.
    pub fn free_root(&self, memory: &P::Frames) {
        frames::put(memory, self.root);
    }

    /// Visits all tables: the addresses that each spans, and its frame.
    pub fn for_each_table(&self, memory: &P::Frames, visit: &mut dyn FnMut(Range<u64>, Pfn)) {
        Self::visit_tables(memory, self.root, Self::TOP, 0, visit);
    }

    fn visit_tables(memory: &P::Frames, table: Pfn, level: u32, start: u64, visit: &mut dyn FnMut(Range<u64>, Pfn)) {
        visit(start..if level < Self::TOP { start + span(level + 1) } else { Self::END }, table);
        if level == 1 {
            return;
        }
        for index in 0..ENTRIES {
            let start = start + index as u64 * span(level);
            // What all spaces share is nobody's in particular.
            if start >= Self::END {
                return;
            }
            let entry = Self::read_upper(memory, table, index);
            if entry.is_present() {
                Self::visit_tables(memory, entry.pfn(), level - 1, start, visit);
            }
        }
    }
}

#[cfg(test)]
mod tests;
