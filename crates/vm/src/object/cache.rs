//! The page cache of an object: entries by byte offset.
//!
//! # Guarantee
//! There is a place for each page of the longest object. Lookups take no lock.
//!
//! # Shape
//! Offsets that four levels of tables span have a tree of their own, so that objects of usual lengths pay for no more.
//! The others share one of six levels, made when the first of them is needed, and freed with the object.

use crate::entry::Entry;
use crate::system::System;
use crate::translations::slot::Slot;
use crate::translations::table::{self, Leaf, Tables};
use core::ops::Range;
use faultless_phys::{OutOfFrames, Pfn};
use faultless_platform::Atomic;

/// First offset behind those of the longest object: Linux's are of 63 bits.
pub(super) const END: u64 = table::reach(FAR_LEVELS);

/// Levels of the tree of usual offsets.
const NEAR_LEVELS: u32 = 4;

/// Levels of the tree of far offsets.
const FAR_LEVELS: u32 = 6;

/// First offset that four levels don't span.
const FAR: u64 = table::reach(NEAR_LEVELS);

/// The cache.
pub(super) struct Cache<P: System> {
    near: Tables<P, NEAR_LEVELS>,
    /// An upper entry, empty or for the root of the far tree.
    far: P::AtomicU64,
}

impl<P: System> Cache<P> {
    /// Returns an empty cache.
    pub(super) fn new(memory: &P::Frames) -> Result<Self, OutOfFrames> {
        Ok(Self { near: Tables::new(memory)?, far: P::AtomicU64::new(0) })
    }

    fn far(&self) -> Option<Tables<P, FAR_LEVELS>> {
        let entry = table::load::<P>(Slot::new(&self.far));
        entry.is_present().then(|| Tables::at(entry.pfn()))
    }

    /// Walks to the entry of a page; `None` if a table is missing.
    ///
    /// The offset is below [`END`].
    pub(super) fn walk<'a>(&self, memory: &'a P::Frames, offset: u64) -> Option<Leaf<'a, P>> {
        if offset < FAR { self.near.walk(memory, offset) } else { self.far()?.walk(memory, offset) }
    }

    /// Walks to the entry of a page, below [`END`], and adds the tables that are missing.
    pub(super) fn walk_or_grow<'a>(&self, memory: &'a P::Frames, offset: u64) -> Result<Leaf<'a, P>, OutOfFrames> {
        if offset < FAR {
            return self.near.walk_or_grow(memory, offset);
        }
        let far = match self.far() {
            Some(far) => far,
            None => Tables::<P, FAR_LEVELS>::at(Tables::<P, FAR_LEVELS>::install(memory, Slot::new(&self.far))?),
        };
        far.walk_or_grow(memory, offset)
    }

    /// Visits the leaf tables that cover a part of a range below [`END`], with that part.
    pub(super) fn for_each_leaf(&self, memory: &P::Frames, range: Range<u64>, visit: &mut dyn FnMut(Pfn, Range<u64>)) {
        let mut visit = |table, part| {
            visit(table, part);
            true
        };
        if range.start < FAR {
            self.near.for_each_leaf(memory, range.start..range.end.min(FAR), &mut visit);
        }
        if let Some(far) = self.far().filter(|_| range.end > FAR) {
            far.for_each_leaf(memory, range.start.max(FAR)..range.end, &mut visit);
        }
    }

    /// Visits the entries that are not empty, with their offsets.
    pub(super) fn for_each_entry(&self, memory: &P::Frames, visit: &mut dyn FnMut(u64, Entry)) {
        self.near.for_each_mapped(memory, 0..FAR, visit);
        if let Some(far) = self.far() {
            far.for_each_mapped(memory, FAR..END, visit);
        }
    }

    /// Visits the frames of all tables.
    pub(super) fn for_each_table(&self, memory: &P::Frames, visit: &mut dyn FnMut(Pfn)) {
        self.near.for_each_table(memory, &mut |_, table| visit(table));
        if let Some(far) = self.far() {
            far.for_each_table(memory, &mut |_, table| visit(table));
        }
    }

    /// Frees a cache that nobody else can reach, after `drop_entry` for each entry that is not empty.
    pub(super) fn free(&self, memory: &P::Frames, drop_entry: &mut dyn FnMut(Entry)) {
        self.near.free_all(memory, drop_entry);
        if let Some(far) = self.far() {
            far.free_all(memory, drop_entry);
        }
    }
}
