//! Locking a space, and what having it locked permits.
//!
//! # Guarantee
//! An area is reached from the index only with a permit ([`ReadPermit::containing`] and its like), which lives no
//! longer than the lock that it comes from. A function that takes a [`WritePermit`] need not say that its caller holds
//! the lock for writing: it could not be called otherwise.
//!
//! A permit is a value of one pointer: it costs nothing. An area that its own holder takes off the index stays until
//! what [`Change::commit_and_hold`](super::change::Change::commit_and_hold) returns ends, and is not to be used after
//! that.

use super::editing::Editing;
use super::map_lock::{EditGuard, MapLock};
use crate::addr::{PageRange, VirtAddr};
use crate::design::Design;
use crate::index;
use crate::system::System;
use crate::types::{Area, Space};
use core::marker::PhantomData;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use faultless_phys::FrameSource;
use faultless_platform::mutant;
use faultless_sync::{Choose, RcuGuard};

/// A guard for looking, of a design's lock.
pub(super) type ReadOf<'a, P, D> = <<D as Design<P>>::Lock as MapLock<P>>::Read<'a>;
/// A guard for changing, of a design's lock.
pub(super) type WriteOf<'a, P, D> = <<D as Design<P>>::Lock as MapLock<P>>::Write<'a>;

/// A space of which a range is locked for looking.
#[must_use = "the range is unlocked as soon as the guard is dropped"]
pub(crate) struct SpaceReadGuard<'a, P: System, D: Design<P>> {
    space: &'a Space<P, D>,
    _read: ReadOf<'a, P, D>,
}

impl<P: System, D: Design<P>> SpaceReadGuard<'_, P, D> {
    /// Returns what it permits.
    #[inline]
    pub(crate) fn permit(&self) -> ReadPermit<'_, P, D> {
        ReadPermit(self.space)
    }
}

/// A space of which a range is locked for changing it.
#[must_use = "the range is unlocked as soon as the guard is dropped"]
pub(super) struct SpaceWriteGuard<'a, P: System, D: Design<P>> {
    space: &'a Space<P, D>,
    write: WriteOf<'a, P, D>,
}

impl<'a, P: System, D: Design<P>> SpaceWriteGuard<'a, P, D> {
    /// Says whether everything is locked.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        D::Lock::is_whole(&self.write)
    }

    /// Lets others change parts of the space side by side from now on; everything is locked.
    pub(super) fn divide(&mut self) {
        D::Lock::divide(&mut self.write);
    }

    /// Returns what it permits.
    #[inline]
    pub(super) fn permit(&self) -> WritePermit<'_, P, D> {
        WritePermit(ReadPermit(self.space))
    }

    /// Lets others look, with no writer in between.
    pub(super) fn downgrade(self) -> SpaceReadGuard<'a, P, D> {
        SpaceReadGuard { space: self.space, _read: self.space.lock.downgrade(self.write) }
    }
}

/// Permits to look at areas: having it tells you that the space is locked, at least for looking.
pub(crate) struct ReadPermit<'g, P: System, D: Design<P>>(&'g Space<P, D>);

impl<P: System, D: Design<P>> Clone for ReadPermit<'_, P, D> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System, D: Design<P>> Copy for ReadPermit<'_, P, D> {}

impl<P: System, D: Design<P>> Deref for ReadPermit<'_, P, D> {
    type Target = Space<P, D>;
    #[inline]
    fn deref(&self) -> &Space<P, D> {
        self.0
    }
}

/// Permits to change areas, too: having it tells you that the space is locked for changing it.
pub(super) struct WritePermit<'g, P: System, D: Design<P>>(ReadPermit<'g, P, D>);

impl<P: System, D: Design<P>> Clone for WritePermit<'_, P, D> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System, D: Design<P>> Copy for WritePermit<'_, P, D> {}

impl<'g, P: System, D: Design<P>> Deref for WritePermit<'g, P, D> {
    type Target = ReadPermit<'g, P, D>;
    #[inline]
    fn deref(&self) -> &ReadPermit<'g, P, D> {
        &self.0
    }
}

/// An area of the index, as long as the permit lives that it was found with.
pub(crate) struct AreaAt<'g, P: System, D: Design<P>> {
    /// First byte.
    pub(crate) start: VirtAddr,
    /// First byte behind.
    pub(crate) end: VirtAddr,
    area: NonNull<Area<P, D>>,
    permit: PhantomData<&'g Area<P, D>>,
}

impl<P: System, D: Design<P>> Clone for AreaAt<'_, P, D> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System, D: Design<P>> Copy for AreaAt<'_, P, D> {}

impl<'g, P: System, D: Design<P>> AreaAt<'g, P, D> {
    #[inline]
    pub(super) fn new(entry: index::IndexEntry<Area<P, D>>) -> Self {
        Self { start: VirtAddr::new(entry.start), end: VirtAddr::new(entry.end), area: entry.area, permit: PhantomData }
    }

    /// Returns the area.
    #[inline]
    pub(crate) fn area(&self) -> &'g Area<P, D> {
        // SAFETY: found with a permit that lives for `'g`: the lock keeps what is in the index, but from its own
        // writer, which uses no area that it has released.
        unsafe { self.area.as_ref() }
    }

    /// Returns the area's pointer, for putting it into the index again or releasing it.
    #[inline]
    pub(crate) fn place(&self) -> NonNull<Area<P, D>> {
        self.area
    }
}

/// The index's lookups; see there.
impl<'g, P: System, D: Design<P>> ReadPermit<'g, P, D> {
    /// Permits to look at areas without a lock.
    ///
    /// # Safety
    /// For as long as the permit and what comes of it are used, nobody else changes the space's areas.
    #[inline]
    pub(crate) unsafe fn assume(space: &'g Space<P, D>) -> Self {
        Self(space)
    }

    /// Returns the space, for as long as it is locked.
    #[inline]
    pub(super) fn space(self) -> &'g Space<P, D> {
        self.0
    }

    /// Returns the area that contains `address`.
    #[inline]
    pub(crate) fn containing(self, address: VirtAddr) -> Option<AreaAt<'g, P, D>> {
        let _beside = self.0.look_beside();
        self.0.area_containing(address.get()).map(AreaAt::new)
    }

    /// Returns the first area that ends behind `address`.
    #[inline]
    pub(crate) fn first_ending_after(self, address: VirtAddr) -> Option<AreaAt<'g, P, D>> {
        let _beside = self.0.look_beside();
        self.0.first_area_ending_after(address.get(), u64::MAX).map(AreaAt::new)
    }

    /// As [`ReadPermit::first_ending_after`], if the area starts below `limit`.
    #[inline]
    pub(super) fn first_ending_within(self, address: VirtAddr, limit: u64) -> Option<AreaAt<'g, P, D>> {
        let _beside = self.0.look_beside();
        self.0.first_area_ending_after(address.get(), limit).map(AreaAt::new)
    }

    /// Returns the last area that starts below `address`.
    #[inline]
    pub(crate) fn last_starting_before(self, address: VirtAddr) -> Option<AreaAt<'g, P, D>> {
        self.last_starting_within(address, 0)
    }

    /// As [`ReadPermit::last_starting_before`], if the area ends behind `limit`.
    #[inline]
    pub(super) fn last_starting_within(self, address: VirtAddr, limit: u64) -> Option<AreaAt<'g, P, D>> {
        let _beside = self.0.look_beside();
        self.0.last_area_starting_before(address.get(), limit).map(AreaAt::new)
    }

    /// Visits the areas that overlap `range`, ascending; each is looked up when the one before has been visited.
    #[inline]
    pub(crate) fn overlapping(self, range: Range<VirtAddr>) -> impl Iterator<Item = AreaAt<'g, P, D>> {
        let mut found = self.0.areas_overlapping(range.start.get()..range.end.get());
        core::iter::from_fn(move || {
            let _beside = self.0.look_beside();
            found.next().map(AreaAt::new)
        })
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Permits to change areas without a lock.
    ///
    /// # Safety
    /// As for [`ReadPermit::assume`]; and nobody looks at them either, but as the design's faults do.
    #[inline]
    pub(super) unsafe fn assume(space: &'g Space<P, D>) -> Self {
        Self(ReadPermit(space))
    }
}

/// Who else edits indexes of a space in which the caller may change something.
enum Company<'g, P: System, D: Design<P>> {
    /// Nobody, and there is one index.
    Alone(index::Writer<'g, P, Area<P, D>>),
    /// Nobody, and lanes have indexes.
    Lanes,
    /// Holders of other parts.
    Parts,
}

/// The lookups of who alone edits the index: one walk serves what a call looks up nearby, and its edit.
impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Returns the index for its only writer; nothing where others may edit it beside the holder of a part.
    #[inline]
    fn alone(self) -> Option<index::Writer<'g, P, Area<P, D>>> {
        match self.company() {
            Company::Alone(index) => Some(index),
            Company::Lanes | Company::Parts => None,
        }
    }

    #[inline]
    fn company(self) -> Company<'g, P, D> {
        let space = self.space();
        if D::Lock::DIVIDES && space.lock.is_divided() {
            Company::Parts
        } else if D::Lock::DIVIDES && space.lane_rooms().is_some() {
            Company::Lanes
        } else {
            Company::Alone(space.index.writer())
        }
    }

    /// As [`ReadPermit::containing`].
    #[inline]
    pub(super) fn containing(self, address: VirtAddr) -> Option<AreaAt<'g, P, D>> {
        match self.alone() {
            Some(index) => index.containing(address.get()).map(AreaAt::new),
            None => self.0.containing(address),
        }
    }

    /// As [`ReadPermit::first_ending_after`]; who has a part finds no area beyond its lane.
    #[inline]
    pub(super) fn first_ending_after(self, address: VirtAddr) -> Option<AreaAt<'g, P, D>> {
        self.entry_ending_after(address.get()).map(AreaAt::new)
    }

    #[inline(always)]
    fn entry_ending_after(self, address: u64) -> Option<index::IndexEntry<Area<P, D>>> {
        match self.company() {
            Company::Alone(index) => index.first_ending_after(address),
            Company::Lanes => self.0.0.first_area_ending_after(address, u64::MAX),
            Company::Parts => {
                let _beside = self.0.0.look_inside();
                self.0.0.first_area_of_lane_ending_after(address)
            }
        }
    }

    /// As [`ReadPermit::last_starting_before`]; who has a part finds no area beyond its lane.
    #[inline]
    pub(super) fn last_starting_before(self, address: VirtAddr) -> Option<AreaAt<'g, P, D>> {
        match self.company() {
            Company::Alone(index) => index.last_starting_before(address.get()).map(AreaAt::new),
            Company::Lanes => self.0.last_starting_before(address),
            Company::Parts => {
                let _beside = self.0.0.look_inside();
                self.0.0.last_area_of_lane_starting_before(address.get()).map(AreaAt::new)
            }
        }
    }

    /// Returns what lies around and in a range, where one look at the index finds that: as far as the lane goes, if the
    /// caller has the lock of its edits.
    #[inline]
    pub(super) fn around(
        self,
        range: PageRange,
        edit: Option<&Editing<'_, P, D>>,
    ) -> Option<index::Around<Area<P, D>>> {
        match edit {
            Some(edit) => edit.around(range),
            None => self.alone()?.around(range.numbers()),
        }
    }

    /// As [`ReadPermit::overlapping`].
    #[inline]
    pub(super) fn overlapping(self, range: Range<VirtAddr>) -> impl Iterator<Item = AreaAt<'g, P, D>> {
        let range = range.start.get()..range.end.get();
        index::overlapping(range, move |address| self.entry_ending_after(address)).map(AreaAt::new)
    }

    /// As [`WritePermit::overlapping`]: by the lane alone if the caller has the lock of its edits, else in one section.
    #[inline]
    pub(super) fn overlapping_with(
        self,
        range: Range<u64>,
        edit: Option<&Editing<'_, P, D>>,
    ) -> impl Iterator<Item = AreaAt<'g, P, D>> {
        let lane = edit.and_then(|edit| edit.lane_around(&range));
        let beside = if lane.is_some() { None } else { self.space().look_beside() };
        let found = index::overlapping(range, move |address| {
            let _beside = &beside;
            match lane {
                Some(lane) => lane.first_ending_after(address),
                None => self.entry_ending_after(address),
            }
        });
        found.map(AreaAt::new)
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Locks a range for looking. What a removal that is under way takes away may be missing already
    /// ([`Space::read_settled`]).
    #[inline]
    #[track_caller]
    pub(crate) fn read(&self, range: Range<VirtAddr>) -> SpaceReadGuard<'_, P, D> {
        SpaceReadGuard { space: self, _read: self.lock.read(range) }
    }

    /// As [`Space::read`], if that takes no waiting.
    #[inline]
    #[track_caller]
    pub(crate) fn try_read(&self, range: Range<VirtAddr>) -> Option<SpaceReadGuard<'_, P, D>> {
        Some(SpaceReadGuard { space: self, _read: self.lock.try_read(range)? })
    }

    /// Locks a range for changing it.
    #[inline]
    #[track_caller]
    pub(super) fn write(&self, range: Range<VirtAddr>) -> SpaceWriteGuard<'_, P, D> {
        SpaceWriteGuard { space: self, write: self.lock.write(range) }
    }

    /// Locks for changing it what `choose` says, under the lock of what is held; with a part comes that lock.
    #[track_caller]
    pub(super) fn write_chosen<'a>(
        &'a self,
        near: VirtAddr,
        choose: &mut Choose<'_, 'a, P>,
    ) -> (SpaceWriteGuard<'a, P, D>, Option<EditGuard<'a, P>>) {
        const { assert!(!(D::Lock::DIVIDES && D::REMOVES_APART), "nobody looks for what leaves beyond a part") };
        let (write, edit) = self.lock.write_part(near, choose);
        (SpaceWriteGuard { space: self, write }, edit)
    }

    /// Begins an RCU section where others may edit the index beside the caller, who has a part locked (R7 of
    /// `ranges`), unless the caller is in one already, which lasts longer.
    #[inline]
    pub(crate) fn look_beside(&self) -> Option<RcuGuard<'_, P>> {
        if self.has_company() { self.look_inside() } else { None }
    }

    /// As [`Space::look_beside`], where others may.
    #[inline]
    fn look_inside(&self) -> Option<RcuGuard<'_, P>> {
        let rcu = self.memory().rcu();
        mutant!(PartLooksUnheld, !rcu.is_reading() => false).then(|| rcu.read())
    }

    /// Says whether others may edit the index beside the caller, who has something locked.
    #[inline]
    pub(super) fn has_company(&self) -> bool {
        // A space that is divided had a second user, who let many look.
        D::Lock::DIVIDES && mutant!(PartLooksUnheld, self.lock.is_divided() => false)
    }

    /// Says whether somebody sleeps in line for the space.
    pub(super) fn is_contended(&self) -> bool {
        self.lock.is_contended()
    }
}
