//! mincore, msync, and the look for pages that were stored to: calls that change no mapping.

use super::truncate::mapped_part;
use super::{EVERYTHING, ReadPermit, Space};
use crate::addr::{AddressRange, PageRange, VirtAddr, page_ceil};
use crate::area::{AreaFlags, AreaView};
use crate::design::Design;
use crate::entry::Entry;
use crate::error::CallError;
use crate::object::{Object, WriteNotice};
use crate::system::System;
use crate::translations::leaf_guard::LeafGuard;
use bitflags::bitflags;
use core::ops::ControlFlow;

bitflags! {
    /// How msync writes back (`MS_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SyncFlags: u32 {
        /// Begin to write (`MS_ASYNC`).
        const ASYNC = 1;
        /// Let other mappings see what was written (`MS_INVALIDATE`); they always do.
        const INVALIDATE = 2;
        /// Write, and wait for it (`MS_SYNC`).
        const SYNC = 4;
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Reports for each page of a range, ascending, whether it is in memory; stops at a hole, or when `tell` breaks.
    ///
    /// `tell` is called with the space's lock held for reading: it must not call into the space.
    pub fn mincore(&self, range: AddressRange, tell: &mut dyn FnMut(bool) -> ControlFlow<()>) -> Result<(), CallError> {
        let AddressRange { start, len_bytes } = range;
        if !start.is_page_aligned() {
            return Err(CallError::Invalid("the address is not a multiple of the page size"));
        }
        if len_bytes == 0 {
            return Ok(());
        }
        let unmapped = CallError::Unmapped { address: start };
        let end =
            page_ceil(len_bytes).and_then(|len| start.checked_add(len)).filter(|&end| end <= PageRange::USER.end());
        let range = end.and_then(|end| PageRange::between(start, end)).ok_or(unmapped)?;
        let read = self.read_settled(range.addresses());
        let mut position = range.start();
        while position < range.end() {
            let unmapped = CallError::Unmapped { address: position };
            let entry = read.permit().containing(position).ok_or(unmapped)?;
            let view = entry.area().view();
            let end = entry.end.min(range.end());
            let mut pages = PageRange::between(position, end).into_iter().flat_map(PageRange::pages);
            if pages.try_for_each(|page| tell(self.is_in_memory(&view, page))).is_break() {
                return Ok(());
            }
            position = end;
        }
        Ok(())
    }

    /// Visits the pages of a range that were stored to since the last call, by the addresses of their first bytes,
    /// ascending. `translations::written` says what migrations may rely on.
    ///
    /// `visit` is called under the lock of a page table: it notes the page and looks at it later. Called as the calls
    /// are.
    pub fn collect_written(&self, range: PageRange, visit: &mut dyn FnMut(VirtAddr)) {
        let _read = self.read_settled(range.addresses());
        self.translations.collect_written(range, visit);
    }

    fn is_in_memory(&self, view: &AreaView<P>, page: VirtAddr) -> bool {
        let entry = self.settled_entry(page.get());
        if !entry.is_empty() && !entry.is_guard() {
            return true;
        }
        let Some(object) = view.object else { return false };
        // SAFETY: the area, kept by the semaphore, holds a reference to its object.
        unsafe { object.as_ref() }.has_page(self.memory(), view.page_offset_of(page))
    }

    /// Returns an entry as it is when nobody changes it: a page that is being copied is in none for a moment.
    fn settled_entry(&self, address: u64) -> Entry {
        let seen = self.translations.read(address);
        if seen.is_present() {
            return seen;
        }
        match self.tables().walk(self.memory(), address) {
            // Nobody changes what others have, too.
            Some(leaf) if !leaf.is_shared() => LeafGuard::lock(self.memory(), leaf).entry(),
            _ => seen,
        }
    }

    /// Asks for stored pages to be written back to what they come from. There is nothing to write to here. What remains
    /// is Linux's errors, and its faults: with [`SyncFlags::SYNC`] the next store to each page of a shared file that
    /// hears of stores ([`WriteNotice::Fault`]) faults again in this space, as after a write-back.
    pub fn msync(&self, range: AddressRange, flags: SyncFlags) -> Result<(), CallError> {
        let AddressRange { start, len_bytes } = range;
        if !start.is_page_aligned() {
            return Err(CallError::Invalid("the address is not a multiple of the page size"));
        }
        if flags.contains(SyncFlags::ASYNC | SyncFlags::SYNC) {
            return Err(CallError::Invalid("both at once and later"));
        }
        // As Linux: a length that overflows when it is rounded up is none.
        let len = page_ceil(len_bytes).unwrap_or(0);
        let end = start.checked_add(len).ok_or(CallError::Unmapped { address: start })?;
        if end == start {
            return Ok(());
        }
        // What is written back is so at all places that the space has it.
        let looked_at = if flags.contains(SyncFlags::SYNC) { EVERYTHING } else { start..end };
        let read = self.read_settled(looked_at);
        self.sync_areas(read.permit(), start, end, flags)
    }

    fn sync_areas(
        &self,
        permit: ReadPermit<'_, P, D>,
        start: VirtAddr,
        end: VirtAddr,
        flags: SyncFlags,
    ) -> Result<(), CallError> {
        let (mut position, mut hole) = (start, None);
        while position < end {
            let unmapped = CallError::Unmapped { address: position };
            let Some(entry) = permit.first_ending_after(position) else { return Err(unmapped) };
            if entry.start > position {
                hole.get_or_insert(unmapped);
                // With MS_ASYNC alone there is nothing to do behind the hole.
                if flags == SyncFlags::ASYNC || entry.start >= end {
                    return Err(unmapped);
                }
            }
            let is_locked = entry.area().flags().contains(AreaFlags::LOCKED);
            if is_locked && flags.contains(SyncFlags::INVALIDATE) {
                return Err(CallError::Locked { address: entry.start.max(start) });
            }
            let part = PageRange::between(position.max(entry.start), entry.end.min(end));
            if let Some(part) = part.filter(|_| flags.contains(SyncFlags::SYNC)) {
                permit.await_stores(&entry.area().view(), part);
            }
            position = entry.end;
        }
        hole.map_or(Ok(()), Err)
    }
}

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    /// Lets the next store to each page of a part of an area fault, wherever the space maps the page, if its object is
    /// to hear of that.
    fn await_stores(self, view: &AreaView<P>, part: PageRange) {
        let Some(object) = hearing_object(view) else { return };
        let first = view.page_offset_of(part.start());
        for entry in self.overlapping(EVERYTHING) {
            let other = entry.area().view();
            if let Some(range) = mapped_part(&other, object, &(first..first + part.nr_pages()))
                && other.flags.contains(AreaFlags::SHARED)
            {
                self.translations.await_stores(range);
            }
        }
    }
}

/// Returns the object that stores through an area reach, if it is to hear of the first one.
fn hearing_object<P: System>(view: &AreaView<P>) -> Option<&Object<P>> {
    // SAFETY: the area, kept by the semaphore, holds a reference to its object.
    let object = view.object.map(|object| unsafe { object.as_ref() });
    object.filter(|object| view.flags.contains(AreaFlags::SHARED) && object.write_notice() == WriteNotice::Fault)
}
