//! mmap and munmap.

use super::Space;
use super::change::{Join, NewArea};
use crate::addr::{PAGE, PageRange, USER_END, is_page_aligned, page_ceil, page_floor};
use crate::area::{AreaFlags, AreaView};
use crate::design::Design;
use crate::entry::Entry;
use crate::error::CallError;
use crate::gather::Gather;
use crate::object::{MAX_OBJECT_BYTES, ObjectHandle, ObjectRef};
use crate::table::Tables;
use core::ops::Range;
use faultless_phys::Pfn;
use faultless_platform::{Atomic, Ordering, Platform};
use faultless_sync::RwSemaphore;

/// What stands behind a mapping.
pub enum Backing<'a, P: Platform> {
    /// Zeros of the mapping's own.
    Anonymous,
    /// An object, from this byte on (a multiple of the page size).
    Object(&'a ObjectHandle<'a, P>, u64),
}

/// Where a mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Where there is room.
    Anywhere,
    /// At this address if there is room, else elsewhere.
    Hint(u64),
    /// At this address, in place of what is there (`MAP_FIXED`).
    Fixed(u64),
    /// At this address if nothing is there (`MAP_FIXED_NOREPLACE`).
    FixedNoReplace(u64),
}

/// What mmap is asked for.
pub struct MapRequest<'a, P: Platform> {
    /// Where.
    pub placement: Placement,
    /// Length in bytes, rounded up to pages.
    pub len_bytes: u64,
    /// Rights and kind.
    pub flags: AreaFlags,
    /// What stands behind it. A shared mapping needs an object.
    pub backing: Backing<'a, P>,
    /// Whether its pages are made at once (`MAP_POPULATE`).
    pub populate: Populate,
}

/// Whether pages are made at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    /// They are.
    Now,
    /// When they are touched.
    OnFault,
}

impl<P: Platform, D: Design<P>> Space<P, D> {
    /// Makes a mapping; returns its first address.
    pub fn mmap(&self, request: &MapRequest<'_, P>) -> Result<u64, CallError> {
        self.check_request(request)?;
        let range = self.with_write(|| {
            let range = self.place(request)?;
            self.map_locked(range, request).map(|()| range)
        })?;
        if request.populate == Populate::Now || request.flags.contains(AreaFlags::LOCKED) {
            // As on Linux, mmap succeeds even if the pages can't all be had.
            let _ = self.populate(range);
        }
        Ok(range.start())
    }

    fn check_request(&self, request: &MapRequest<'_, P>) -> Result<(), CallError> {
        if request.len_bytes == 0 {
            return Err(CallError::Invalid("length 0"));
        }
        if let Backing::Object(handle, offset) = request.backing {
            self.check_object(&handle.object, request.flags)?;
            if !is_page_aligned(offset) {
                return Err(CallError::Invalid("the offset is not a multiple of the page size"));
            }
            if offset.checked_add(request.len_bytes).is_none_or(|end| end > MAX_OBJECT_BYTES) {
                return Err(CallError::Invalid("the offset is beyond the largest object"));
            }
        } else if request.flags.contains(AreaFlags::SHARED) {
            return Err(CallError::Invalid("a shared mapping needs an object"));
        }
        Ok(())
    }

    fn check_object(&self, object: &ObjectRef<P>, flags: AreaFlags) -> Result<(), CallError> {
        if !self.vm().owns(object) {
            return Err(CallError::Invalid("the object belongs to another instance"));
        }
        if flags.contains(AreaFlags::GROWSDOWN) {
            return Err(CallError::Invalid("only private anonymous memory grows downwards"));
        }
        if flags.contains(AreaFlags::SHARED | AreaFlags::WRITE | AreaFlags::DENY_WRITE) {
            return Err(CallError::Denied);
        }
        Ok(())
    }

    /// Chooses the range. The caller holds the write lock.
    fn place(&self, request: &MapRequest<'_, P>) -> Result<PageRange, CallError> {
        let len_bytes = request.len_bytes;
        let no_room = CallError::NoRoom { len_bytes };
        let len = page_ceil(len_bytes).ok_or(no_room)?;
        match request.placement {
            Placement::Anywhere => self.search_locked(len).ok_or(no_room),
            Placement::Hint(hint) => self.at_hint(hint, len).or_else(|| self.search_locked(len)).ok_or(no_room),
            Placement::Fixed(start) => self.fixed(start, len),
            Placement::FixedNoReplace(start) => {
                let range = self.fixed(start, len)?;
                match self.index.overlapping(range.addresses()).next() {
                    Some(entry) => Err(CallError::Exists { address: entry.start.max(start) }),
                    None => Ok(range),
                }
            }
        }
    }

    /// As Linux: a hint below a page is none, others are rounded down, and up to the lowest address.
    fn at_hint(&self, hint: u64, len: u64) -> Option<PageRange> {
        if hint < PAGE {
            return None;
        }
        let start = page_floor(hint).max(self.limits.mmap_min_addr);
        let range = PageRange::new(start, len)?;
        self.index.overlapping(range.addresses()).next().is_none().then_some(range)
    }

    fn fixed(&self, start: u64, len: u64) -> Result<PageRange, CallError> {
        if !is_page_aligned(start) {
            return Err(CallError::Invalid("the fixed address is not a multiple of the page size"));
        }
        let range = PageRange::new(start, len).ok_or(CallError::NoRoom { len_bytes: len })?;
        if start < self.limits.mmap_min_addr {
            return Err(CallError::TooLow { lowest: self.limits.mmap_min_addr });
        }
        Ok(range)
    }

    /// Returns the range that mmap would choose for `len_bytes`, without making a mapping.
    pub fn search(&self, len_bytes: u64) -> Option<PageRange> {
        let _read = self.semaphore.read();
        self.search_locked(page_ceil(len_bytes)?)
    }

    pub(super) fn search_locked(&self, len: u64) -> Option<PageRange> {
        let low = self.limits.mmap_min_addr;
        let room = |room: Range<u64>| PageRange::new(self.index.highest_gap(len, room)?, len);
        room(low..self.limits.mmap_base).or_else(|| room(self.limits.mmap_base..USER_END))
    }

    /// Maps at a chosen range. The caller holds the write lock.
    pub(super) fn map_locked(&self, range: PageRange, request: &MapRequest<'_, P>) -> Result<(), CallError> {
        let (object, page_offset) = match request.backing {
            Backing::Anonymous => (None, range.start() / PAGE),
            Backing::Object(handle, offset) => (Some(handle.object.clone()), offset / PAGE),
        };
        let view = AreaView {
            start: range.start(),
            end: range.end(),
            flags: with_account(request.flags),
            page_offset,
            object: object.as_ref().map(ObjectRef::as_ptr),
            root: 0,
        };
        self.check_total(range, None)?;
        let change = self.prepare_change(range, Some(NewArea { view, object, join: Join::Allowed }))?;
        let was_mapped = self.index.overlapping(range.addresses()).next().is_some();
        change.commit(|| {
            if was_mapped {
                self.zap(range);
            }
        });
        Ok(())
    }

    /// Checks the total size with `range` mapped, and `removed` not.
    pub(super) fn check_total(&self, range: PageRange, removed: Option<PageRange>) -> Result<(), CallError> {
        let limit_bytes = self.limits.address_space_bytes;
        if limit_bytes == u64::MAX {
            return Ok(());
        }
        let replaced: u64 = self.index.overlapping(range.addresses()).map(|entry| overlap(&entry, range)).sum();
        let removed = removed.map_or(0, PageRange::len_bytes);
        if (self.mapped_bytes() - replaced).saturating_sub(removed) + range.len_bytes() > limit_bytes {
            return Err(CallError::OverLimit { limit_bytes });
        }
        Ok(())
    }

    /// Removes whatever is mapped in a range of `len_bytes`, rounded up to pages, from `start`.
    pub fn munmap(&self, start: u64, len_bytes: u64) -> Result<(), CallError> {
        if len_bytes == 0 || !is_page_aligned(start) {
            return Err(CallError::Invalid("the range is empty or does not begin at a page"));
        }
        let range = PageRange::new(start, len_bytes).ok_or(CallError::Invalid("the range leaves user memory"))?;
        self.with_write(|| self.unmap_locked(range))
    }

    /// Unmaps under the caller's write lock.
    pub(super) fn unmap_locked(&self, range: PageRange) -> Result<(), CallError> {
        if self.index.overlapping(range.addresses()).next().is_none() {
            return Ok(());
        }
        self.prepare_change(range, None)?.commit(|| self.zap_and_prune(range));
        Ok(())
    }

    /// Empties the entries of a range and drops what they held.
    pub(crate) fn zap(&self, range: PageRange) {
        let mut gather = Gather::new(self, range);
        self.zap_into(range, &mut gather);
    }

    pub(super) fn zap_and_prune(&self, range: PageRange) {
        let mut gather = Gather::new(self, range);
        self.zap_into(range, &mut gather);
        let below = self.index.last_starting_before(range.start()).map_or(0, |entry| entry.end);
        let above = self.index.first_ending_after(range.start()).map_or(USER_END + PAGE, |entry| entry.start);
        self.tables.free_empty(self.memory(), range.addresses(), below..above, &mut |table| gather.add_table(table));
    }

    fn zap_into(&self, range: PageRange, gather: &mut Gather<'_, P, D>) {
        let mut nr_pages = 0;
        self.tables.for_each_leaf(self.memory(), range.addresses(), &mut |table, part| {
            let mut position = part.start;
            while position < part.end {
                position = self.zap_leaf(table, position..part.end, gather, &mut nr_pages);
                if gather.is_full() {
                    gather.flush();
                }
            }
            true
        });
        if nr_pages != 0 {
            self.note_peak();
            self.remove_resident(nr_pages);
        }
    }

    /// Empties entries of one table until the gather is full; returns where it stopped.
    fn zap_leaf(&self, table: Pfn, part: Range<u64>, gather: &mut Gather<'_, P, D>, nr_pages: &mut u64) -> u64 {
        let memory = self.memory();
        let _lock = memory.page(table).lock().guard();
        for address in part.clone().step_by(PAGE as usize) {
            let slot = Tables::leaf_slot(memory, table, address);
            // Relaxed: a peek; only faults fill entries, and they hold the lock that we hold.
            if slot.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets accessed and dirty bits.
            let entry = Entry::from_bits(slot.swap(0, Ordering::AcqRel));
            *nr_pages += u64::from(!entry.is_special());
            gather.add(entry);
            if gather.is_full() {
                return address + PAGE;
            }
        }
        part.end
    }
}

/// Marks what Linux accounts for (VM_ACCOUNT), because areas with and without the mark are not joined.
fn with_account(flags: AreaFlags) -> AreaFlags {
    let is_counted = flags.contains(AreaFlags::WRITE) && !flags.intersects(AreaFlags::SHARED | AreaFlags::NORESERVE);
    if is_counted { flags | AreaFlags::ACCOUNT } else { flags - AreaFlags::ACCOUNT }
}

/// Returns the bytes of an area that lie in `range`.
fn overlap<T>(entry: &crate::index::Entry<T>, range: PageRange) -> u64 {
    entry.end.min(range.end()) - entry.start.max(range.start())
}
