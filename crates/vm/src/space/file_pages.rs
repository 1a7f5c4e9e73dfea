//! remap_file_pages, as Linux emulates it since 4.0: by a mapping of the same object at another offset.

use super::Space;
use super::permit::WritePermit;
use super::request::Backing;
use super::request::Populate;
use crate::addr::{AddressRange, PAGE, PageRange, VirtAddr, page_floor};
use crate::area::{AreaFlags, AreaView};
use crate::design::Design;
use crate::error::CallError;
use crate::object::ObjectHandle;
use crate::system::System;
use core::marker::PhantomData;

const NOT_SHARED: CallError = CallError::Invalid("not a shared mapping that may be written");
const NOT_ALIKE: CallError = CallError::Invalid("the range is not of one kind of mapping");

impl<P: System, D: Design<P>> Space<P, D> {
    /// Lets a range of a shared mapping show the object from `page_offset` on; Linux makes its pages unless it is told
    /// not to (`MAP_NONBLOCK`). Start and length are rounded down to pages.
    pub fn remap_file_pages(&self, range: AddressRange, page_offset: u64, populate: Populate) -> Result<(), CallError> {
        let (start, len) = (range.start.page().get(), page_floor(range.len_bytes));
        if start.checked_add(len).is_none_or(|end| end <= start) || page_offset.checked_add(len / PAGE).is_none() {
            return Err(CallError::Invalid("the range is empty or overflows"));
        }
        let (range, view) = self.try_with_write(VirtAddr::new(start)..VirtAddr::new(start + len), |permit| {
            let view = permit.shared_at(VirtAddr::new(start))?;
            permit.check_alike(&view, VirtAddr::new(start), len)?;
            permit.show_from(&view, VirtAddr::new(start), len, page_offset).map(|range| (range, view))
        })?;
        let is_locked = (view.flags | self.default_flags()).contains(AreaFlags::LOCKED);
        if populate == Populate::Now || is_locked {
            self.populate_what_can_be(range);
        }
        Ok(())
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    fn shared_at(self, start: VirtAddr) -> Result<AreaView<P>, CallError> {
        let entry = self.containing(start).ok_or(NOT_SHARED)?;
        let view = entry.area().view();
        let is_shared = view.flags & (AreaFlags::SHARED | AreaFlags::DENY_WRITE) == AreaFlags::SHARED;
        if is_shared { Ok(view) } else { Err(NOT_SHARED) }
    }

    /// Checks that areas like the first one cover the range without a hole.
    fn check_alike(self, first: &AreaView<P>, start: VirtAddr, len: u64) -> Result<(), CallError> {
        let mut position = first.end;
        while position < start + len {
            let entry = self.containing(position).ok_or(NOT_ALIKE)?;
            let view = entry.area().view();
            let ignored = AreaFlags::INHERITED | AreaFlags::ACCOUNT;
            let is_alike = view.is_of_one_content(first) && view.flags - ignored == first.flags - ignored;
            if !is_alike {
                return Err(NOT_ALIKE);
            }
            position = entry.end;
        }
        Ok(())
    }

    /// Maps the object anew, as mmap would with the rights and locks of what is there.
    fn show_from(
        self,
        view: &AreaView<P>,
        start: VirtAddr,
        len: u64,
        page_offset: u64,
    ) -> Result<PageRange, CallError> {
        self.check_new_area()?;
        let range = self.fixed(start, len)?;
        let locks = if view.flags.contains(AreaFlags::LOCKED) { AreaFlags::LOCKED } else { AreaFlags::empty() };
        // The key as mmap would give it, also where it was not asked for before.
        let rights = (view.flags & AreaFlags::RIGHTS) | AreaFlags::EXECUTE_ONLY;
        let denials = view.flags & AreaFlags::DENY_EXEC;
        let flags = rights | AreaFlags::SHARED | denials | locks | self.default_flags();
        if locks.contains(AreaFlags::LOCKED) && !self.limits.may_lock() {
            return Err(CallError::MayNotLock);
        }
        self.check_lock(flags, len)?;
        let offset = page_offset
            .checked_mul(PAGE)
            .filter(|offset| offset.checked_add(len).is_some_and(|end| end <= i64::MAX as u64));
        let offset = offset.ok_or(CallError::OffsetOverflow)?;
        let entry = self.containing(start).ok_or(NOT_SHARED)?;
        let object = entry.area().object().cloned().ok_or(NOT_SHARED)?;
        let handle = ObjectHandle { object, opening: view.opening, instance: PhantomData };
        self.map_locked(range, flags, &Backing::Object(&handle, offset))?;
        Ok(range)
    }
}
