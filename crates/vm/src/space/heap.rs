//! brk: the heap.

use super::Space;
use super::map::{Backing, MapRequest, Placement, Populate};
use crate::addr::{PAGE, PageRange, page_ceil};
use crate::area::AreaFlags;
use crate::design::Design;
use faultless_platform::{Atomic, Ordering, Platform};
use faultless_sync::RwSemaphore;

impl<P: Platform, D: Design<P>> Space<P, D> {
    /// Says where the heap begins; a program's loader calls it once.
    pub fn set_heap_start(&self, address: u64) {
        let _write = self.semaphore.write();
        // Relaxed: under the write lock.
        self.heap_start.store(address, Ordering::Relaxed);
        self.heap_end.store(address, Ordering::Relaxed);
    }

    /// Moves the heap's end to `address` if that is possible; returns the end in force, as the raw system call does.
    pub fn brk(&self, address: u64) -> u64 {
        self.with_write(|| self.brk_locked(address))
    }

    fn brk_locked(&self, address: u64) -> u64 {
        // Relaxed: under the write lock.
        let old = self.heap_end.load(Ordering::Relaxed);
        if address < self.heap_start.load(Ordering::Relaxed) || self.move_heap_end(old, address).is_none() {
            return old;
        }
        // Relaxed: under the write lock.
        self.heap_end.store(address, Ordering::Relaxed);
        address
    }

    fn move_heap_end(&self, old: u64, new: u64) -> Option<()> {
        let (old, new) = (page_ceil(old)?, page_ceil(new)?);
        if new == old {
            return Some(());
        }
        if new < old {
            return self.unmap_locked(PageRange::between(new, old)?).ok();
        }
        let range = PageRange::between(old, new)?;
        // As Linux: one page above the new end stays free.
        if self.index.overlapping(range.start()..range.end() + PAGE).next().is_some() {
            return None;
        }
        let request = MapRequest {
            placement: Placement::Fixed(range.start()),
            len_bytes: range.len_bytes(),
            flags: AreaFlags::READ | AreaFlags::WRITE,
            backing: Backing::Anonymous,
            populate: Populate::OnFault,
        };
        self.map_locked(range, &request).ok()
    }
}
