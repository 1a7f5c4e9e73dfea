//! Making pages before they are touched (`MAP_POPULATE`, locking, `MADV_POPULATE_READ` and `_WRITE`).
//!
//! # Guarantee
//! Pages are made one by one, each as a fault makes it, under the design's own locks. Pages made before an error stay.
//! Populating grows no stack.

use super::Space;
use crate::access::Access;
use crate::addr::{PageRange, VirtAddr};
use crate::area::AreaFlags;
use crate::design::Design;
use crate::error::{AccessError, CallError};
use crate::fault::{Fault, classic};
use crate::system::System;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Makes the pages of a range that was mapped to be locked or populated. The call succeeds even if not all can be
    /// had: an area whose page fails is left there.
    pub(super) fn populate_what_can_be(&self, range: PageRange) {
        self.populate_areas(range, AreaFlags::empty(), &mut |_| Ok(())).unwrap_or(());
    }

    /// As [`Space::populate_what_can_be`], in locked areas alone.
    pub(super) fn populate_what_is_locked(&self, range: PageRange) {
        self.populate_areas(range, AreaFlags::LOCKED, &mut |_| Ok(())).unwrap_or(());
    }

    /// Makes the pages of a range that was locked; ends at the first that can't be had.
    pub(super) fn populate_locked(&self, range: PageRange) -> Result<(), CallError> {
        self.populate_areas(range, AreaFlags::empty(), &mut |error| match error {
            AccessError::OutOfFrames(cause) => Err(CallError::OutOfFramesNow(cause)),
            AccessError::TooManyReferences => Err(CallError::TooManyReferences),
            // As Linux: pages that can't be had are reported as not mapped.
            _ => Err(CallError::Unmapped { address: range.start() }),
        })
    }

    /// Makes the pages of each area that is all of `which`, as its rights suggest; `on_error` says whether to go on
    /// with the next area.
    fn populate_areas(
        &self,
        range: PageRange,
        which: AreaFlags,
        on_error: &mut dyn FnMut(AccessError) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        let mut position = range.start();
        while let Some((part, flags)) = self.next_part(position, range.end()) {
            position = part.end();
            if !flags.contains(which) || flags.contains(AreaFlags::LOCK_ON_FAULT) {
                continue;
            }
            let is_private_writable = flags & (AreaFlags::WRITE | AreaFlags::SHARED) == AreaFlags::WRITE;
            let access = if is_private_writable { Access::Write } else { Access::Read };
            match self.make_pages(part, access) {
                Ok(()) => {}
                Err(error) => on_error(error)?,
            }
        }
        Ok(())
    }

    /// Makes the pages of a range as accesses would that its areas' rights must name.
    pub(super) fn populate_as(&self, range: PageRange, access: Access) -> Result<(), CallError> {
        let right = if access.is_write() { AreaFlags::WRITE } else { AreaFlags::READ };
        let mut position = range.start();
        while position < range.end() {
            let unmapped = CallError::Unmapped { address: position };
            let (part, flags) = self.next_part(position, range.end()).ok_or(unmapped)?;
            if part.start() > position {
                return Err(unmapped);
            }
            if !flags.contains(right) {
                return Err(CallError::Invalid("the area's rights forbid the access"));
            }
            self.make_pages(part, access).map_err(advice_error)?;
            position = part.end();
        }
        Ok(())
    }

    /// Returns what the first area at or above `position` holds of the addresses below `end`.
    fn next_part(&self, position: VirtAddr, end: VirtAddr) -> Option<(PageRange, AreaFlags)> {
        let read = self.read_settled(position..end);
        let entry = read.permit().first_ending_after(position)?;
        let part = PageRange::between(entry.start.max(position), entry.end.min(end))?;
        Some((part, entry.area().flags()))
    }

    fn make_pages(&self, part: PageRange, access: Access) -> Result<(), AccessError> {
        part.pages().try_for_each(|address| self.make_page(address, access))
    }

    /// Makes a page as an access does, which tries again until its entry allows it: another thread that was faster may
    /// have made less of the page than is wanted, the page of zeros for a store. A page that is made for stores counts
    /// as stored to, also if it was there and given up (`MADV_FREE`): so Linux's `follow_page_pte` has it.
    fn make_page(&self, address: VirtAddr, access: Access) -> Result<(), AccessError> {
        loop {
            classic::handle(self, Fault { address, access, is_present: false })?;
            let is_made = match access {
                Access::Write => self.touch(address, access).is_ok(),
                Access::Read | Access::Fetch => self.entry_at(address).is_present(),
            };
            if is_made {
                return Ok(());
            }
        }
    }
}

/// Returns what madvise answers when a page can't be made.
fn advice_error(error: AccessError) -> CallError {
    match error {
        AccessError::OutOfFrames(cause) => CallError::OutOfFrames(cause),
        AccessError::TooManyReferences => CallError::TooManyReferences,
        AccessError::Forbidden { .. } | AccessError::ForbiddenByKey { .. } => {
            CallError::Invalid("the area's rights forbid the access")
        }
        AccessError::NotMapped { address }
        | AccessError::NoPage { address }
        | AccessError::NotCanonical { address } => CallError::NoPage { address },
    }
}
