//! Taking pages away from an object: truncation and holes.
//!
//! # Guarantee
//! When [`Vm::truncate`] or [`Vm::punch`] returns, nobody reaches the removed pages: no space maps them, no CPU has a
//! translation to them, and whoever touches them gets what the object now has there, a bus error or zeros.
//!
//! # Invariants
//! * I1 sizes change, and removals are counted, under the object's `removals` lock; a page that was fetched meanwhile is
//!   thrown away.
//! * I2 the object's reference to a removed page is dropped after every space that maps the object was held for writing,
//!   and after a grace period: faults and readers that found the page before hold a reference of their own by then, or
//!   have ended.
//! * I3 spaces are visited in the order of their numbers, so that a child forked meanwhile is visited after its parent,
//!   or has nothing of it.
//!
//! # Cost
//! One look at each area of each space of the instance. No lock is held but the one of the space that is visited.

use super::{MAX_OBJECT_BYTES, Object, ObjectHandle, cache};
use crate::addr::{PAGE, is_page_aligned};
use crate::design::Design;
use crate::entry::Entry;
use crate::error::CallError;
use crate::frames;
use crate::instance::Vm;
use crate::space::Emptied;
use crate::table::Tables;
use core::ops::Range;
use faultless_phys::{Memory, OutOfFrames, Pfn};
use faultless_platform::{Atomic, InPlace, Ordering, Platform};

impl<P: Platform, D: Design<P>> Vm<P, D> {
    /// Makes an object shorter or longer (ftruncate). What is cut off is gone, also from private copies of it; what is
    /// added is zeros.
    pub fn truncate(&self, object: &ObjectHandle<'_, P>, size_bytes: u64) -> Result<(), CallError> {
        if size_bytes > MAX_OBJECT_BYTES {
            return Err(CallError::Invalid("longer than the longest object"));
        }
        let old = object.object.resize(size_bytes);
        if size_bytes < old {
            let first = size_bytes.next_multiple_of(PAGE);
            self.remove(&object.object, first..cache::END, Removal::CutOff);
        }
        if size_bytes <= old {
            // As Linux, also where the length stays: programs can store behind the end, up to the page's.
            object.object.zero_tail(self.memory(), size_bytes);
        }
        Ok(())
    }

    /// Turns whole pages of an object into a hole: zeros (fallocate, `FALLOC_FL_PUNCH_HOLE`). Private copies stay.
    pub fn punch(&self, object: &ObjectHandle<'_, P>, bytes: Range<u64>) -> Result<(), CallError> {
        if !is_page_aligned(bytes.start | bytes.end) || bytes.is_empty() {
            return Err(CallError::Invalid("a hole is of whole pages"));
        }
        self.punch_object(&object.object, bytes)
    }

    pub(crate) fn punch_object(&self, object: &Object<P>, bytes: Range<u64>) -> Result<(), CallError> {
        let inside = bytes.start.min(cache::END)..bytes.end.min(cache::END);
        object.prepare_holes(self.memory(), inside.clone())?;
        *object.removals.lock() += 1;
        self.remove(object, inside, Removal::Hole);
        Ok(())
    }

    fn remove(&self, object: &Object<P>, bytes: Range<u64>, removal: Removal) {
        if bytes.is_empty() {
            return;
        }
        let mut removed = object.detach(self.memory(), bytes.clone(), removal);
        let emptied = match removal {
            Removal::CutOff => Emptied::Pages,
            Removal::Hole => Emptied::ObjectPages,
        };
        let mut id = 0;
        while let Some(space) = self.next_space(id) {
            id = space.id();
            space.unmap_object(object, bytes.start / PAGE..bytes.end / PAGE, emptied);
        }
        if removed.is_some() {
            self.memory().rcu().synchronize();
        }
        while let Some(pfn) = removed {
            removed = frames::link(self.memory(), pfn);
            frames::put(self.memory(), pfn);
        }
    }
}

/// Why pages go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Removal {
    /// They lie behind the object's new end.
    CutOff,
    /// They are zeros from now on.
    Hole,
}

impl<P: Platform> Object<P> {
    /// Changes the length; returns the old one.
    fn resize(&self, size_bytes: u64) -> u64 {
        let mut removals = self.removals.lock();
        *removals += 1;
        // Relaxed: under the lock; a fault that races with the change may use either.
        let old = self.size_bytes.swap(size_bytes, Ordering::Relaxed);
        let content = self.content_bytes.load(Ordering::Relaxed).min(size_bytes);
        self.content_bytes.store(content, Ordering::Relaxed);
        old
    }

    /// Makes the tables that hold the marks of holes.
    fn prepare_holes(&self, memory: &Memory<P>, bytes: Range<u64>) -> Result<(), OutOfFrames> {
        const TABLE_BYTES: u64 = 512 * PAGE;
        let mut offset = bytes.start;
        let end = bytes.end.min(self.marked_end());
        while offset < end {
            self.pages.walk_or_grow(memory, offset)?;
            offset = (offset / TABLE_BYTES + 1) * TABLE_BYTES;
        }
        Ok(())
    }

    /// Returns where holes need no mark any more, because the content is zeros anyway.
    fn marked_end(&self) -> u64 {
        // Relaxed: it only ever falls.
        if self.source.is_zeros() { 0 } else { self.content_bytes.load(Ordering::Relaxed) }
    }

    /// Takes the pages of a range out of the tree; returns them as a list.
    fn detach(&self, memory: &Memory<P>, bytes: Range<u64>, removal: Removal) -> Option<Pfn> {
        let mut list = None;
        let marked_end = if removal == Removal::Hole { self.marked_end() } else { 0 };
        self.pages.for_each_leaf(memory, bytes, &mut |table, part| {
            for offset in part.step_by(PAGE as usize) {
                let left = if offset < marked_end { Entry::HOLE } else { Entry::EMPTY };
                // ORDER: AcqRel pairs with the Release in `fill`.
                let slot = Tables::<P>::leaf_slot(memory, table, offset);
                let entry = Entry::from_bits(slot.swap(left.bits(), Ordering::AcqRel));
                if entry.holds_frame() {
                    frames::set_link(memory, entry.pfn(), list);
                    list = Some(entry.pfn());
                }
            }
        });
        list
    }

    /// Fills the last page's bytes behind the end with zeros, if it is in memory.
    fn zero_tail(&self, memory: &Memory<P>, size_bytes: u64) {
        let used = (size_bytes % PAGE) as usize;
        if used == 0 {
            return;
        }
        let Some(entry) = self.pages.walk(memory, size_bytes).map(|leaf| leaf.entry()) else { return };
        if entry.holds_frame() {
            let page = memory.frame(entry.pfn());
            for offset in used..PAGE as usize {
                // SAFETY: the object holds the frame; guests access its bytes atomically too.
                let byte = unsafe { P::AtomicU8::view(page.add(offset)) };
                // Relaxed: like a program's store.
                byte.store(0, Ordering::Relaxed);
            }
        }
    }
}
