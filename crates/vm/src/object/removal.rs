//! Taking pages away from an object: truncation and holes.
//!
//! # Guarantee
//! When [`Vm::truncate`] or [`Vm::punch`] returns, nobody reaches the removed pages: no space that anybody runs in maps
//! them, no CPU has a translation to them, and whoever touches them gets what the object now has there, a bus error or
//! zeros. Two calls about one object have an effect as if one came after the other: what one cut off does not come back
//! by another's extension, and what was stored behind an extension stays.
//!
//! # Invariants
//! * I1 sizes change, and removals are counted, under the object's `removals` lock; a page that was fetched meanwhile
//!   is thrown away.
//! * I2 the object's reference to a removed page is dropped after every listed space that maps the object was held for
//!   writing, with no departure under way there, and after a grace period. By then entries that mapped the page are
//!   empty and shot down, though they held no reference. Faults that found it have ended: each keeps its area as it is,
//!   by the space's lock, the area's or a section. Readers have ended, or hold a reference of their own. Spaces that
//!   are not listed run nowhere, and their entries are dropped without a look at the frame (`Entry::holds_reference`).
//! * I3 spaces are visited in the order of listing, so that a child forked meanwhile is visited after its parent, or
//!   has nothing of it (`space::spaces`).
//! * I4 pages leave the cache, and bytes of a cached page are zeroed, by whoever has the object's `changes` lock.
//!
//! # Race: two removals of one object (`tests/native/objects.rs`)
//! ```text
//! truncate to 100                       punch of page 0                       fault, read
//! changes: alone                        changes: waits
//! size = 100; counts a removal
//! pages from 1 on leave the cache                                             fault found one before: keeps its area
//! each space: unmapped, shot down                                             read found one: in RCU, or has a reference
//! grace period; references dropped
//! zeros bytes from 100 on of page 0                                           found page 0: sees old bytes or zeros
//! gives changes up                      page 0 leaves the cache, is freed
//! ```
//! Forbidden: page 0 is freed while its end is zeroed (I4). Forbidden, with an extension in the second column: it
//! returns before the pages have left the cache, so that old content shows behind it, or what a program has stored
//! there since is removed.
//!
//! # Cost
//! One look at each area of each space of the instance. Held meanwhile: `changes`, which only others who truncate or
//! punch the object wait for, and the semaphore of the space that is visited.

use super::{MAX_OBJECT_BYTES, Object, ObjectHandle, cache};
use crate::addr::{PAGE, is_page_aligned};
use crate::design::Design;
use crate::entry::Entry;
use crate::error::CallError;
use crate::instance::Vm;
use crate::system::System;
use crate::translations::Emptied;
use crate::translations::frames::{self, FrameMap};
use crate::translations::table::Tables;
use core::ops::Range;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::mutant;
use faultless_platform::{Atomic, Holds, InPlace, Ordering};
use faultless_sync::RwSemaphore;

impl<P: System, D: Design<P>> Vm<P, D> {
    /// Makes an object shorter or longer (ftruncate). What is cut off is gone, also from private copies of it; what is
    /// added is zeros.
    pub fn truncate(&self, object: &ObjectHandle<'_, P>, size_bytes: u64) -> Result<(), CallError> {
        self.check_owner(&object.object)?;
        if size_bytes > MAX_OBJECT_BYTES {
            return Err(CallError::Invalid("longer than the longest object"));
        }
        let changes = object.object.change();
        let old = object.object.resize(size_bytes);
        if size_bytes < old {
            let first = size_bytes.next_multiple_of(PAGE);
            self.remove(&object.object, first..cache::END, PageRemoval::CutOff);
        }
        let changes = mutant!(TailZeroedUnheld, changes => changes.filter(|_| size_bytes > old));
        if size_bytes <= old {
            // As Linux, also where the length stays: programs can store behind the end, up to the page's.
            object.object.zero_tail(self.memory(), size_bytes);
        }
        drop(changes);
        Ok(())
    }

    /// Turns whole pages of an object into a hole: zeros (fallocate, `FALLOC_FL_PUNCH_HOLE`). Private copies stay.
    pub fn punch(&self, object: &ObjectHandle<'_, P>, bytes: Range<u64>) -> Result<(), CallError> {
        self.check_owner(&object.object)?;
        if !is_page_aligned(bytes.start | bytes.end) || bytes.is_empty() {
            return Err(CallError::Invalid("a hole is of whole pages"));
        }
        self.punch_object(&object.object, bytes)
    }

    pub(crate) fn punch_object(&self, object: &Object<P>, bytes: Range<u64>) -> Result<(), CallError> {
        let inside = bytes.start.min(cache::END)..bytes.end.min(cache::END);
        // Before the lock, which nobody holds while he waits for memory: tables that were made stay.
        self.try_again(|| object.prepare_holes(self.memory(), inside.clone()))?;
        let _changes = object.change();
        object.count_removal(|| ());
        self.remove(object, inside, PageRemoval::Hole);
        Ok(())
    }

    fn remove(&self, object: &Object<P>, bytes: Range<u64>, removal: PageRemoval) {
        if bytes.is_empty() {
            return;
        }
        let mut removed = object.detach(self.memory(), bytes.clone(), removal);
        let emptied = match removal {
            PageRemoval::CutOff => Emptied::Pages,
            PageRemoval::Hole => Emptied::ObjectPages,
        };
        let pages = bytes.start / PAGE..bytes.end / PAGE;
        self.for_each_space(|space| space.unmap_object(object, pages.clone(), emptied));
        if removed.is_some() {
            mutant!(RemovedPageUnawaited, self.memory().rcu().synchronize() => ());
        }
        while let Some(pfn) = removed {
            removed = frames::link(self.memory(), pfn);
            frames::put(self.memory(), pfn);
        }
    }
}

/// Why pages go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageRemoval {
    /// They lie behind the object's new end.
    CutOff,
    /// They are zeros from now on.
    Hole,
}

impl<P: System> Object<P> {
    /// Keeps others who truncate or punch out (I4); always something, but for a mutant.
    #[track_caller]
    fn change(&self) -> Option<impl Sized + '_> {
        mutant!(RemovalsOverlap, Some(self.written.changes.write()) => None)
    }

    /// Changes the length; returns the old one.
    fn resize(&self, size_bytes: u64) -> u64 {
        self.count_removal(|| {
            // Relaxed: under the lock, and counted after it; a fault that races with the change may use either.
            let old = self.size_bytes.swap(size_bytes, Ordering::Relaxed);
            let content = self.content_bytes.load(Ordering::Relaxed).min(size_bytes);
            self.content_bytes.store(content, Ordering::Relaxed);
            old
        })
    }

    /// Counts a removal, after `act`: who sees the count sees what that did. Of a hole, whose pages leave after that,
    /// who sees the count may still cache one: it leaves with the others, or meets the hole's mark; and where none is
    /// left behind, it is zeros.
    fn count_removal<R>(&self, act: impl FnOnce() -> R) -> R {
        let _counted = self.written.removals.lock();
        let result = act();
        // ORDER: Release pairs with the Acquire in `fill`. Relaxed: the lock keeps others out.
        self.nr_removals.store(self.nr_removals.load(Ordering::Relaxed) + 1, Ordering::Release);
        result
    }

    /// Makes the tables that hold the marks of holes.
    fn prepare_holes(&self, memory: &P::Frames, bytes: Range<u64>) -> Result<(), OutOfFrames> {
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
    fn detach(&self, memory: &P::Frames, bytes: Range<u64>, removal: PageRemoval) -> Option<Pfn> {
        let mut list = None;
        let marked_end = if removal == PageRemoval::Hole { self.marked_end() } else { 0 };
        self.pages.for_each_leaf(memory, bytes, &mut |table, part| {
            for offset in part.step_by(PAGE as usize) {
                let left = if offset < marked_end { Entry::HOLE } else { Entry::EMPTY };
                // ORDER: AcqRel pairs with the Release in `fill`.
                let slot = Tables::<P>::leaf_slot(memory, table, offset);
                let entry = slot.swap(left, Ordering::AcqRel);
                if entry.holds_frame() {
                    frames::set_link(memory, entry.pfn(), list);
                    list = Some(entry.pfn());
                }
            }
        });
        list
    }

    /// Fills the last page's bytes behind the end with zeros, if it is in memory. The caller has `changes`.
    fn zero_tail(&self, memory: &P::Frames, size_bytes: u64) {
        let used = (size_bytes % PAGE) as usize;
        if used == 0 {
            return;
        }
        let Some(entry) = self.pages.walk(memory, size_bytes).map(|leaf| leaf.entry()) else { return };
        if entry.holds_frame() {
            let _map = FrameMap::new(memory, entry.pfn(), Some(Holds::FilePage));
            // SAFETY: the object holds the frame, which does not leave the cache meanwhile (I4).
            unsafe { zero_from::<P>(memory.frame(entry.pfn()), used) };
        }
    }
}

/// Fills a page with zeros from byte `used` on.
///
/// # Safety
/// The page is a frame that somebody holds, and that all access atomically.
unsafe fn zero_from<P: System>(page: *mut u8, used: usize) {
    let first_word = used.next_multiple_of(8);
    for offset in used..first_word {
        // SAFETY: the caller's promise. Relaxed: like a program's store.
        unsafe { P::AtomicU8::view(page.add(offset)) }.store(0, Ordering::Relaxed);
    }
    for offset in (first_word..PAGE as usize).step_by(8) {
        // SAFETY: the caller's promise, and a multiple of 8. Relaxed: as above.
        unsafe { P::AtomicU64::view(page.add(offset).cast()) }.store(0, Ordering::Relaxed);
    }
}
