//! brk: the heap.

use super::permit::WritePermit;
use super::removal::Removal;
use super::request::Backing;
use super::{EVERYTHING, Space};
use crate::addr::{PAGE, PageRange, VirtAddr, page_ceil};
use crate::area::AreaFlags;
use crate::design::Design;
use crate::error::CallError;
use crate::system::System;
use crate::types::Map;
use faultless_platform::{Atomic, Ordering};

/// What moving the heap's end did to its pages: those that came, and the removal of those that go.
type HeapMove<'a, P, D> = (Option<PageRange>, Option<Removal<'a, P, D>>);

impl<P: System, D: Design<P>> Space<P, D> {
    /// Says where the heap begins; a program's loader calls it once.
    pub fn set_heap_start(&self, address: VirtAddr) {
        let _write = self.write(EVERYTHING);
        // Relaxed: under the write lock.
        self.heap_start.store(address.get(), Ordering::Relaxed);
        self.heap_end.store(address.get(), Ordering::Relaxed);
    }

    /// Says how much data the program itself has, which counts against RLIMIT_DATA when the heap grows.
    pub fn set_static_data_bytes(&self, len_bytes: u64) {
        let _write = self.write(EVERYTHING);
        // Relaxed: under the write lock.
        self.static_data_bytes.store(len_bytes, Ordering::Relaxed);
    }

    /// Moves the heap's end to `address` if that is possible; returns the end in force, as the raw system call does.
    pub fn brk(&self, address: VirtAddr) -> VirtAddr {
        let address = address.get();
        let (mut end, mut added) = self.move_break(address);
        if end != address && D::has_deferred(self.vm()) {
            // Maybe because frames ran out.
            self.vm().flush();
            (end, added) = self.move_break(address);
        }
        if let Some(added) = added.filter(|_| self.default_flags().contains(AreaFlags::LOCKED)) {
            self.populate_what_can_be(added);
        }
        VirtAddr::new(end)
    }

    /// Tries once; returns the end in force, and what was added.
    fn move_break(&self, address: u64) -> (u64, Option<PageRange>) {
        self.with_write_to_remove(EVERYTHING, |permit| {
            // Relaxed: under the write lock.
            let old = self.heap_end.load(Ordering::Relaxed);
            // The heap is an area.
            if D::Map::PROMISES
                || address < self.heap_start.load(Ordering::Relaxed)
                || !self.is_within_data_limit(address)
            {
                return ((old, None), None);
            }
            let Some((added, removal)) = permit.move_heap_end(old, address) else { return ((old, None), None) };
            // Relaxed: under the write lock.
            self.heap_end.store(address, Ordering::Relaxed);
            ((address, added), removal)
        })
    }

    /// Checks RLIMIT_DATA as brk does: the heap and the program's own data, to the byte.
    fn is_within_data_limit(&self, address: u64) -> bool {
        // Relaxed: under the write lock.
        let (start, own) = (self.heap_start.load(Ordering::Relaxed), self.static_data_bytes.load(Ordering::Relaxed));
        let limit = self.limits.data_bytes;
        limit == u64::MAX || (address - start).saturating_add(own) <= limit
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Moves the end from `old` to `new` in whole pages, if that can be done.
    fn move_heap_end(self, old: u64, new: u64) -> Option<HeapMove<'g, P, D>> {
        let (old_end, new_end) = (VirtAddr::new(page_ceil(old)?), VirtAddr::new(page_ceil(new)?));
        if new_end == old_end {
            return Some((None, None));
        }
        if new <= old {
            let removed = PageRange::between(new_end, old_end)?;
            // As Linux: a heap of which nothing is left there does not shrink.
            self.overlapping(removed.addresses()).next()?;
            return self.begin_removal(removed).ok().map(|removal| (None, removal));
        }
        let added = PageRange::between(old_end, new_end)?;
        self.grow_heap(added).ok().map(|()| (Some(added), None))
    }

    fn grow_heap(self, added: PageRange) -> Result<(), CallError> {
        self.fixed(added.start(), added.len_bytes())?;
        let flags = AreaFlags::READ | AreaFlags::WRITE | self.default_flags();
        self.check_lock(flags, added.len_bytes())?;
        let no_room = CallError::NoRoom { len_bytes: added.len_bytes() };
        // As Linux: one page above the new end stays free, below a stack more.
        if let Some(next) = self.first_ending_after(added.start())
            && added.end() + PAGE > next.start_with_gap()
        {
            return Err(no_room);
        }
        self.check_new_area()?;
        self.map_locked(added, flags, &Backing::Anonymous)
    }
}
