//! mmap and munmap.

use super::annex_edits::Comes;
use super::change::{Join, NewArea, Reserve};
use super::map_lock::MapLock;
use super::own_lane::OwnLane;
use super::permit::{ReadPermit, WritePermit};
use super::quota::MappedBytes;
use super::ranges::Additions;
use super::removal::Removal;
use super::request::{Backing, MapRequest, Placement, Populate};
use super::search::LOW_2G;
use super::{EVERYTHING, Space};
use crate::addr::{AddressRange, PAGE, PageRange, VirtAddr, is_page_aligned, page_ceil};
use crate::area::{Area, AreaFlags, AreaView};
use crate::content::Behind;
use crate::design::Design;
use crate::error::CallError;
use crate::object::ObjectRef;
use crate::reference::ReferenceHandle;
use crate::system::System;
use crate::translations::Emptied;
use crate::types::Map;

/// Largest offset of a file, inclusive.
pub(super) const MAX_OFFSET: u64 = i64::MAX as u64;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Makes a mapping; returns its first address.
    /// [`MapRequest`] is what a kernel's mmap makes of its arguments; the example of the crate calls it.
    pub fn mmap(&self, request: &MapRequest<'_, P>) -> Result<VirtAddr, CallError> {
        let len = check_shape(request)?;
        let (range, flags) = D::Map::mmap(self, request, len)?;
        if request.populate == Populate::Now || flags.contains(AreaFlags::LOCKED) {
            self.populate_what_can_be(range);
        }
        Ok(range.start())
    }

    /// Makes an area, or a part of one; returns where it is, and the flags that were asked for.
    pub(super) fn map_area(&self, request: &MapRequest<'_, P>, len: u64) -> Result<(PageRange, AreaFlags), CallError> {
        if self.lock.may_be_divided() {
            return match self.map_fast(request, len) {
                Some(mapped) => Ok(mapped),
                None => self.try_again(|| self.map_part(request, len)),
            };
        }
        self.try_again(|| {
            loop {
                if let Some(mapped) = self.with_any_write(EVERYTHING, |permit| permit.place_and_map(request, len))? {
                    return Ok(mapped);
                }
                self.await_departures();
            }
        })
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Makes an area, with no more of the space locked than it takes: its place is chosen when that is. Apart from what
    /// a space of one user does, which pays for nothing of this.
    #[inline(never)]
    pub(super) fn map_part(&self, request: &MapRequest<'_, P>, len: u64) -> Result<(PageRange, AreaFlags), CallError> {
        let mut place = None;
        // Before the guess: all but the first CPU go to their lanes at once.
        self.note_mapper();
        let near = self.guessed_place(request);
        let mut reserve = self.reserve_part(near, Comes::AnArea)?;
        let (write, edit) = self.write_claimed((near, Comes::AnArea), &mut |_, lane| {
            let is_locked = self.maps_locked(request);
            place = self.place_beside(request, (len, is_locked), lane);
            let added = if is_locked { Additions::of_locked_bytes } else { Additions::of_bytes };
            Some((place?, added(len)))
        });
        let place = place.filter(|_| !write.is_whole());
        Reserve::hand_over(&mut reserve, edit);
        let mapped = self.with_guard(write, |permit| {
            let range = match place {
                Some(range) => range,
                None => {
                    let range = permit.checked_place(request, len)?;
                    permit.join_seams(&range.addresses());
                    range
                }
            };
            let flags = permit.map_placed(request, range, len, reserve);
            permit.cut_seams(&range.addresses());
            Ok((range, flags?))
        });
        if mapped.is_err() {
            // An annex may have grown for nothing.
            self.prune_crossing();
        }
        mapped
    }

    /// Returns where a mapping will presumably be.
    fn guessed_place(&self, request: &MapRequest<'_, P>) -> VirtAddr {
        let room = self.chosen_room();
        let searched = || self.own_room(room.clone()).map_or(room.end, |own| own.start);
        match request.placement {
            Placement::Fixed(start) | Placement::FixedNoReplace(start) => start,
            Placement::Hint(hint) if hint >= VirtAddr::new(PAGE) => hint,
            Placement::Low2G { .. } => VirtAddr::new(LOW_2G.start),
            Placement::Anywhere | Placement::Hint(_) => VirtAddr::new(searched()),
        }
    }

    fn maps_locked(&self, request: &MapRequest<'_, P>) -> bool {
        (request.flags() | self.default_flags()).contains(AreaFlags::LOCKED)
    }

    /// Chooses where a mapping goes that needs no look at all areas; nothing if it does, or there is no such place.
    /// Under the lock of what is held, so that what is chosen is still to be had when that is entered.
    fn place_beside(
        &self,
        request: &MapRequest<'_, P>,
        (len, is_locked): (u64, bool),
        lane: Option<&OwnLane<'_, P, Area<P, D>>>,
    ) -> Option<PageRange> {
        // Locked memory has a limit of its own, which is claimed as a credit or not at all.
        if is_locked && !self.has_credits() {
            return None;
        }
        if let Some(found) = lane.and_then(|lane| self.search_own(request, len, lane)) {
            return Some(found);
        }
        // SAFETY: who edits areas has the lock of what is held.
        let permit = unsafe { ReadPermit::assume(self) };
        // The lookups of a search nest in it.
        let _beside = if matches!(request.placement, Placement::Fixed(_)) { None } else { self.look_beside() };
        permit.place(request, len).ok()
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Returns what was mapped; nothing if something else must leave the place first.
    fn place_and_map(self, request: &MapRequest<'_, P>, len: u64) -> Result<Option<(PageRange, AreaFlags)>, CallError> {
        self.check_new_area()?;
        self.note_mapper();
        let range = self.place(request, len)?;
        if self.meets_departure(&range.addresses()) {
            return Ok(None);
        }
        Ok(Some((range, self.map_placed(request, range, len, None)?)))
    }

    /// Chooses the range.
    fn checked_place(self, request: &MapRequest<'_, P>, len: u64) -> Result<PageRange, CallError> {
        self.check_new_area()?;
        self.place(request, len)
    }

    /// Maps a range; returns the flags that were asked for.
    #[inline(always)]
    fn map_placed(
        self,
        request: &MapRequest<'_, P>,
        range: PageRange,
        len: u64,
        reserve: Option<Reserve<'g, P, D>>,
    ) -> Result<AreaFlags, CallError> {
        if request.flags().contains(AreaFlags::LOCKED) && !self.limits.may_lock() {
            return Err(CallError::MayNotLock);
        }
        let asked = request.flags() | self.default_flags();
        self.check_lock(asked, len)?;
        self.check_kind(request)?;
        // Memory that may be dropped is never locked. Linux notices that after it has checked the limit, and makes the
        // pages as if they were locked.
        let is_droppable = asked.contains(AreaFlags::DROPPABLE);
        let flags = if is_droppable { asked - AreaFlags::LOCKS } else { asked };
        // Nor does Linux before it has looked for neighbours to join, none of which is locked.
        let join = if is_droppable && asked.intersects(AreaFlags::LOCKS) { Join::Never } else { Join::Allowed };
        // mprotect can't make a shared one writable later.
        let is_read_only =
            matches!(request.backing, Backing::Reference(..)) && request.flags().contains(AreaFlags::SHARED);
        let flags = if is_read_only { flags | AreaFlags::DENY_WRITE } else { flags };
        self.map_out_of(range, (flags, join), &request.backing, reserve)?;
        Ok(asked)
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Checks what a mapping's flags and object allow together.
    #[inline]
    fn check_kind(&self, request: &MapRequest<'_, P>) -> Result<(), CallError> {
        let is_shared = request.flags().contains(AreaFlags::SHARED);
        let is_usual = matches!(request.backing, Backing::Anonymous) && !is_shared;
        if is_usual { Ok(()) } else { self.check_unusual_kind(request, is_shared) }
    }

    fn check_unusual_kind(&self, request: &MapRequest<'_, P>, is_shared: bool) -> Result<(), CallError> {
        match request.backing {
            Backing::Object(handle, offset) => {
                check_offset(offset, request.len_bytes)?;
                self.check_object(&handle.object, request.flags())
            }
            Backing::Reference(handle, offset) => {
                check_offset(offset, request.len_bytes)?;
                self.check_reference(handle, request.flags())
            }
            Backing::Pattern(_) if request.flags().contains(AreaFlags::GROWSDOWN) => Err(GROWS),
            Backing::Anonymous | Backing::Pattern(_) if is_shared => {
                Err(CallError::Invalid("a shared mapping needs an object"))
            }
            Backing::SharedZeros if !is_shared => Err(CallError::Invalid("a new object is for shared mappings")),
            Backing::SharedZeros if request.flags().contains(AreaFlags::GROWSDOWN) => Err(GROWS),
            Backing::Refused(error) => Err(error),
            Backing::Anonymous | Backing::Pattern(_) | Backing::SharedZeros => Ok(()),
        }
    }

    /// As for a file that was opened for reading alone.
    fn check_reference(&self, handle: &ReferenceHandle<'_, P>, flags: AreaFlags) -> Result<(), CallError> {
        self.vm().check_reference_owner(&handle.reference)?;
        if flags.contains(AreaFlags::SHARED | AreaFlags::WRITE) {
            return Err(CallError::Denied);
        }
        if flags.contains(AreaFlags::GROWSDOWN) { Err(GROWS) } else { Ok(()) }
    }

    fn check_object(&self, object: &ObjectRef<P>, flags: AreaFlags) -> Result<(), CallError> {
        self.vm().check_owner(object)?;
        if flags.contains(AreaFlags::SHARED | AreaFlags::WRITE | AreaFlags::DENY_WRITE) {
            return Err(CallError::Denied);
        }
        if flags.contains(AreaFlags::GROWSDOWN) { Err(GROWS) } else { Ok(()) }
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Maps at a chosen range. The caller has checked the flags.
    pub(super) fn map_locked(
        self,
        range: PageRange,
        flags: AreaFlags,
        backing: &Backing<'_, P>,
    ) -> Result<(), CallError> {
        self.map_out_of(range, (flags, Join::Allowed), backing, None)
    }

    /// As [`WritePermit::map_locked`], out of memory that was set aside, as far as that goes.
    #[inline(always)]
    fn map_out_of(
        self,
        range: PageRange,
        (flags, join): (AreaFlags, Join),
        backing: &Backing<'_, P>,
        reserve: Option<Reserve<'g, P, D>>,
    ) -> Result<(), CallError> {
        let flags = self.with_key(with_account(flags), flags);
        let may_be_ordinary = matches!((backing, join, &reserve), (Backing::Anonymous, Join::Allowed, None));
        if may_be_ordinary && self.add_ordinary(range, flags).is_some() {
            return Ok(());
        }
        let (held, mut reserve) = match reserve {
            None => (self.begin_unmapping(range)?, None),
            Some(reserve) => self.begin_unmapping_with(range, reserve)?,
        };
        let len = range.len_bytes();
        let judged = match self.check_expansion(flags, len, held.bytes) {
            Ok(()) => self.check_promise(flags, backing, len, held.accounted_bytes),
            refused => refused,
        };
        if let Some(reserve) = reserve.as_mut().filter(|_| judged.is_err() || matches!(backing, Backing::SharedZeros)) {
            reserve.end_edit();
        }
        if judged.is_err() {
            // As Linux, which finds out when the areas at both ends are cut already.
            self.cut_at(range.start().get())?;
            self.cut_at(range.end().get())?;
        }
        judged?;
        let (behind, opening, page_offset) = self.lies_behind(range, backing)?;
        let mut view = AreaView {
            start: range.start(),
            end: range.end(),
            flags,
            page_offset,
            object: behind.object().map(ObjectRef::as_ptr),
            content: behind.content(),
            opening,
            root: 0,
        };
        view.root = self.root_at_bound(&view);
        let mut change = self.unprepared(range, reserve);
        change.fill(Some(NewArea { view, behind, join }))?;
        change.commit(|| {
            if held.bytes != 0 {
                self.translations.zap(range, Emptied::All);
            }
        });
        Ok(())
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns what lies behind a mapping, which opening of it, and at which of its pages the mapping begins.
    #[inline(always)]
    fn lies_behind(&self, range: PageRange, backing: &Backing<'_, P>) -> Result<(Behind<P>, u64, u64), CallError> {
        let own_offset = range.start().page_number();
        Ok(match backing {
            Backing::Anonymous => (Behind::Zeros, 0, own_offset),
            Backing::Pattern(pattern) => (Behind::Pattern(*pattern), 0, own_offset),
            Backing::SharedZeros => {
                let _kept = self.keep_slot();
                (Behind::Object(self.vm().create_zeros(range.len_bytes())?), 0, 0)
            }
            Backing::Object(handle, offset) => (Behind::Object(handle.object.clone()), handle.opening, offset / PAGE),
            Backing::Reference(handle, offset) => (Behind::Reference(handle.reference.clone()), 0, offset / PAGE),
            Backing::Refused(error) => return Err(*error),
        })
    }

    /// Checks that what a mapping may need is there at all.
    #[inline(always)]
    fn check_promise(
        &self,
        flags: AreaFlags,
        backing: &Backing<'_, P>,
        len: u64,
        accounted: u64,
    ) -> Result<(), CallError> {
        match backing {
            Backing::SharedZeros if !flags.contains(AreaFlags::NORESERVE) => self.check_commit(len),
            _ if flags.contains(AreaFlags::ACCOUNT) => self.check_commit(len - accounted),
            _ => Ok(()),
        }
    }

    /// Removes whatever is mapped in a range, whose length is rounded up to pages.
    pub fn munmap(&self, range: AddressRange) -> Result<(), CallError> {
        let AddressRange { start, len_bytes } = range;
        if len_bytes == 0 || !start.is_page_aligned() {
            return Err(CallError::Invalid("the range is empty or does not begin at a page"));
        }
        let range = PageRange::new(start, len_bytes).ok_or(CallError::Invalid("the range leaves user memory"))?;
        D::Map::munmap(self, range)
    }

    /// Removes the areas of a range, or what of them lies in it.
    pub(super) fn unmap_areas(&self, range: PageRange) -> Result<(), CallError> {
        if self.lock.may_be_divided() { self.unmap_beside(range) } else { self.try_again(|| self.unmap_alone(range)) }
    }

    /// As [`Space::unmap_areas`], where parts are not given out.
    #[inline]
    fn unmap_alone(&self, range: PageRange) -> Result<(), CallError> {
        if self.unmap_apart(range)? {
            return Ok(());
        }
        self.remove_with(self.write_settled(range.addresses()), |permit| answered(permit.begin_removal(range)))
    }

    /// As [`Space::unmap_areas`], where parts are given out; apart as `map_part` is.
    #[inline(never)]
    fn unmap_beside(&self, range: PageRange) -> Result<(), CallError> {
        match self.unmap_fast(range) {
            Some(()) => Ok(()),
            None => self.try_again(|| self.unmap_part(range)),
        }
    }

    /// As [`Space::unmap_areas`], with no more of the space locked than it takes.
    #[inline(never)]
    pub(super) fn unmap_part(&self, range: PageRange) -> Result<(), CallError> {
        let mut reserve = self.reserve_part(range.start(), Comes::Nothing)?;
        let (write, edit) = self.write_part(range, Additions::ONE_CUT);
        Reserve::hand_over(&mut reserve, edit);
        self.remove_with(write, |permit| {
            let begun = permit.begin_removal_out_of(range, reserve);
            permit.cut_seams(&range.addresses());
            answered(begun)
        })
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Checks that a range may be unmapped; as on Linux, one that begins inside an area and then meets a sealed one has
    /// cut the first in two all the same.
    #[inline(always)]
    pub(super) fn begin_unmapping(self, range: PageRange) -> Result<MappedBytes, CallError> {
        let checked = self.check_unmapping(range, None);
        if let Err(CallError::Sealed { address }) = checked
            && address > range.start()
        {
            self.cut_at(range.start().get())?;
        }
        checked
    }

    /// Cuts the area that holds `address`, if one does.
    fn cut_at(self, address: u64) -> Result<(), CallError> {
        self.keep_apart(VirtAddr::new(address));
        if self.containing(VirtAddr::new(address)).is_some() { self.split_at(VirtAddr::new(address)) } else { Ok(()) }
    }

    /// Unmaps under the caller's write lock.
    pub(super) fn unmap_locked(self, range: PageRange) -> Result<(), CallError> {
        if let Some(removal) = self.begin_removal(range)? {
            removal.finish(&self, &mut || ());
        }
        Ok(())
    }

    /// Takes what `range` holds off the index, under the caller's write lock; nothing if it holds nothing.
    #[inline(always)]
    pub(super) fn begin_removal(self, range: PageRange) -> Result<Option<Removal<'g, P, D>>, CallError> {
        match self.remove_ordinary(range) {
            Some(removal) => Ok(Some(removal)),
            None => self.begin_planned_removal(range),
        }
    }

    /// As [`WritePermit::begin_removal`], whatever the range holds.
    #[inline(never)]
    fn begin_planned_removal(self, range: PageRange) -> Result<Option<Removal<'g, P, D>>, CallError> {
        self.begin_removal_out_of(range, None)
    }

    /// As [`WritePermit::begin_removal`], out of memory that was set aside, as far as that goes.
    #[inline(always)]
    fn begin_removal_out_of(
        self,
        range: PageRange,
        reserve: Option<Reserve<'g, P, D>>,
    ) -> Result<Option<Removal<'g, P, D>>, CallError> {
        let (held, reserve) = match reserve {
            None => (self.begin_unmapping(range)?, None),
            Some(reserve) => self.begin_unmapping_with(range, reserve)?,
        };
        if held.bytes == 0 {
            return Ok(None);
        }
        let mut change = self.unprepared(range, reserve);
        change.fill(None)?;
        Ok(Some(change.commit_removal(range)))
    }

    /// As [`WritePermit::begin_unmapping`], with what was set aside, which is let go of if the answer is no: then areas
    /// may be cut.
    #[inline(always)]
    fn begin_unmapping_with(
        self,
        range: PageRange,
        reserve: Reserve<'g, P, D>,
    ) -> Result<(MappedBytes, Option<Reserve<'g, P, D>>), CallError> {
        if let Ok(held) = self.check_unmapping(range, reserve.edit()) {
            return Ok((held, Some(reserve)));
        }
        drop(reserve);
        Ok((self.begin_unmapping(range)?, None))
    }
}

/// Returns the answer to a call, and what is left to do.
#[inline(always)]
fn answered<T>(begun: Result<Option<T>, CallError>) -> (Result<(), CallError>, Option<T>) {
    match begun {
        Ok(removal) => (Ok(()), removal),
        Err(error) => (Err(error), None),
    }
}

const GROWS: CallError = CallError::Invalid("only private anonymous memory grows downwards");

/// Checks what needs no look at the space, in Linux's order; returns the length in whole pages.
fn check_shape<P: System>(request: &MapRequest<'_, P>) -> Result<u64, CallError> {
    let offset = match request.backing {
        Backing::Object(_, offset) | Backing::Reference(_, offset) => offset,
        _ => 0,
    };
    if !is_page_aligned(offset) {
        return Err(CallError::Invalid("the offset is not a multiple of the page size"));
    }
    if request.len_bytes == 0 {
        return Err(CallError::Invalid("length 0"));
    }
    page_ceil(request.len_bytes).ok_or(CallError::NoRoom { len_bytes: request.len_bytes })
}

/// Checks that a file could be as long as the mapping's end.
fn check_offset(offset: u64, len_bytes: u64) -> Result<(), CallError> {
    let most = page_ceil(len_bytes).and_then(|len| MAX_OFFSET.checked_sub(len));
    if most.is_none_or(|most| offset / PAGE > most / PAGE) { Err(CallError::OffsetOverflow) } else { Ok(()) }
}

/// Marks what Linux accounts for (VM_ACCOUNT), because areas with and without the mark are not joined.
pub(super) fn with_account(flags: AreaFlags) -> AreaFlags {
    let is_counted = flags.contains(AreaFlags::WRITE) && !flags.intersects(AreaFlags::SHARED | AreaFlags::NORESERVE);
    if is_counted { flags | AreaFlags::ACCOUNT } else { flags - AreaFlags::ACCOUNT }
}
