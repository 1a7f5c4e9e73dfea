//! Areas: ranges of one kind of memory (Linux's VMAs).
//!
//! # Guarantee
//! An area's attributes change only under the address space's write lock, inside
//! [`Area::begin_change`] .. `end_change`, so that a design whose faults don't
//! take that lock can see a change coming.
//!
//! # Invariants
//! * I1 `start < end`, both page-aligned; the index holds the same bounds.
//! * I2 what stands behind it is set before the area is published and never changes; the area owns a reference to it.
//! * I3 the reverse-map root goes from 0 to a value once, under the lock that the design names, and stays.

use crate::addr::PAGE;
use crate::content::{Behind, Content};
use crate::design::Design;
use crate::entry::EntryFlags;
use crate::guest::Access;
use crate::object::{Object, ObjectRef};
use crate::space::Space;
use crate::system::System;
use bitflags::bitflags;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use faultless_platform::mutant;
use faultless_platform::{Atomic, AtomicInteger, Ordering};
use faultless_sync::RcuHead;

bitflags! {
    /// What an area is and allows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AreaFlags: u32 {
        /// Loads are allowed.
        const READ = 1 << 0;
        /// Stores are allowed.
        const WRITE = 1 << 1;
        /// Fetches are allowed.
        const EXEC = 1 << 2;
        /// Stores reach the object; without it the area is private.
        const SHARED = 1 << 3;
        /// Grows downwards when touched below its start.
        const GROWSDOWN = 1 << 4;
        /// Pages are locked in memory.
        const LOCKED = 1 << 5;
        /// A child does not get the area (`MADV_DONTFORK`).
        const DONTFORK = 1 << 6;
        /// A child gets the area empty (`MADV_WIPEONFORK`).
        const WIPEONFORK = 1 << 7;
        /// `PROT_WRITE` may not be added: a shared mapping of a read-only descriptor.
        const DENY_WRITE = 1 << 8;
        /// `MAP_NORESERVE` was asked for.
        const NORESERVE = 1 << 9;
        /// Linux would account for its pages: it is, or with pages of its own once was, private and writable.
        const ACCOUNT = 1 << 10;
        /// Came from a fork with a reverse-map root of the parent's: it joins only areas with its own root.
        const INHERITED = 1 << 11;
        /// Locked pages are made when they are touched (`MLOCK_ONFAULT`).
        const LOCK_ON_FAULT = 1 << 12;
        /// Nobody may unmap, move or protect it (mseal).
        const SEALED = 1 << 13;
        /// Will be read at random (`MADV_RANDOM`).
        const RANDOM = 1 << 14;
        /// Will be read in order (`MADV_SEQUENTIAL`).
        const SEQUENTIAL = 1 << 15;
        /// Left out of core dumps (`MADV_DONTDUMP`).
        const NO_DUMP = 1 << 16;
        /// Equal pages may be merged (`MADV_MERGEABLE`); nothing does here.
        const MERGEABLE = 1 << 17;
        /// Huge pages are wanted (`MADV_HUGEPAGE`); there are none here.
        const HUGE = 1 << 18;
        /// Huge pages are not wanted (`MADV_NOHUGEPAGE`, `MAP_STACK`).
        const NO_HUGE = 1 << 19;
        /// Pages may be dropped when memory is short (`MAP_DROPPABLE`).
        const DROPPABLE = 1 << 20;
        /// Guards were installed in it, or in an area that it was joined with; it never goes, and keeps nothing apart.
        const MAYBE_GUARD = 1 << 21;
        /// `MAP_SYNC` was asked for; where it means nothing, it keeps neighbours apart all the same.
        const SYNC = 1 << 22;
        /// Has the protection key of memory that may be fetched from alone: loads and stores are forbidden. Linux gives
        /// it to what is mapped or protected with `PROT_EXEC` and nothing else, where the processor has keys; here,
        /// whoever asks says so. Without [`Limits::has_protection_keys`](crate::Limits::has_protection_keys), or beside
        /// other rights, it is dropped.
        const EXECUTE_ONLY = 1 << 23;
    }
}

impl AreaFlags {
    /// The rights among the flags.
    pub const RIGHTS: Self = Self::READ.union(Self::WRITE).union(Self::EXEC);
    /// What neighbours may differ in and be joined all the same.
    pub const IGNORED_BY_JOINS: Self = Self::INHERITED.union(Self::MAYBE_GUARD);
    /// The rights, and what takes loads away from them.
    pub const PROTECTION: Self = Self::RIGHTS.union(Self::EXECUTE_ONLY);
    /// What says that pages are locked, and how.
    pub const LOCKS: Self = Self::LOCKED.union(Self::LOCK_ON_FAULT);

    /// Says whether Linux counts such an area as data (RLIMIT_DATA): private, writable, no stack.
    pub const fn is_data(self) -> bool {
        let decisive = Self::WRITE.union(Self::SHARED).union(Self::GROWSDOWN);
        self.intersection(decisive).bits() == Self::WRITE.bits()
    }
}

/// An area as it was at one instant.
#[derive(Debug)]
pub struct AreaView<P: System> {
    /// First byte.
    pub start: u64,
    /// First byte behind.
    pub end: u64,
    /// What it is and allows.
    pub flags: AreaFlags,
    /// Page offset of the first page: in the object, or for anonymous memory `start` / 4096 when it was made.
    pub page_offset: u64,
    /// The object behind it; none for private anonymous memory.
    pub object: Option<NonNull<Object<P>>>,
    /// What untouched pages read as, without an object.
    pub content: Content<P>,
    /// Which opening of the object it was mapped from: areas of different ones are not joined. 0 without an object.
    pub opening: u64,
    /// The reverse-map root; 0 is none.
    pub root: u64,
}

impl<P: System> Clone for AreaView<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System> Copy for AreaView<P> {}

impl<P: System> AreaView<P> {
    /// Returns the page offset of `address`.
    pub fn page_offset_of(&self, address: u64) -> u64 {
        self.page_offset.wrapping_add(address.wrapping_sub(self.start) / PAGE)
    }

    /// Returns the entry flags for a page of this area that stores may not reach.
    pub fn read_only_entry(&self) -> EntryFlags {
        let mut flags = EntryFlags::USER | EntryFlags::ACCESSED;
        // x86: a present entry is readable; only areas without any right have none.
        flags.set(EntryFlags::PRESENT, self.flags.intersects(AreaFlags::RIGHTS));
        flags.set(EntryFlags::NO_EXECUTE, !self.flags.contains(AreaFlags::EXEC));
        flags.set(EntryFlags::EXECUTE_ONLY, self.flags.contains(AreaFlags::EXECUTE_ONLY));
        flags
    }

    /// Says whether `next`, which starts where this area ends, may be joined with it.
    pub fn joins(&self, next: &Self) -> bool {
        self.end == next.start
            && self.flags - AreaFlags::IGNORED_BY_JOINS == next.flags - AreaFlags::IGNORED_BY_JOINS
            && self.is_of_one_content(next)
            && self.page_offset_of(self.end) == next.page_offset
            && (self.root == next.root || self.may_get_root_of(next) || next.takes_root_of(self))
    }

    /// Says whether both areas show the same.
    pub(crate) fn is_of_one_content(&self, other: &Self) -> bool {
        let is_equal = self.content == other.content;
        (self.object, self.opening) == (other.object, other.opening)
            && mutant!(ReferencesMerged, is_equal => is_equal || (self.is_reference() && other.is_reference()))
    }

    /// Says whether the area is a reference area: untouched pages read as a reference page.
    pub fn is_reference(&self) -> bool {
        matches!(self.content, Content::Reference(_))
    }

    /// Says whether Linux sees a file behind the area: an object, or the handle of a reference page.
    pub fn has_file(&self) -> bool {
        self.object.is_some() || self.is_reference()
    }

    /// Says whether an access makes a page of the area's own.
    pub(crate) fn makes_page(&self, access: Access) -> bool {
        let is_shared = self.flags.contains(AreaFlags::SHARED);
        !is_shared && (access.is_write() || matches!(self.content, Content::Pattern(_)))
    }

    /// As `takes_root_of`, for the lower of two neighbours.
    fn may_get_root_of(&self, next: &Self) -> bool {
        mutant!(MergeComparesWrongSide, self.takes_root_of(next) => false)
    }

    /// Says whether this area has no root and may get that of `other`.
    fn takes_root_of(&self, other: &Self) -> bool {
        self.root == 0 && !other.flags.contains(AreaFlags::INHERITED)
    }
}

/// An area; see the module.
pub struct Area<P: System, D: Design<P>> {
    start: P::AtomicU64,
    end: P::AtomicU64,
    page_offset: P::AtomicU64,
    flags: P::AtomicU32,
    root: P::AtomicU64,
    behind: Behind<P>,
    opening: u64,
    /// What the design keeps for each area.
    pub(crate) state: D::AreaState,
    /// For whoever frees the area after a grace period; readers never look at it.
    pub(crate) head: UnsafeCell<MaybeUninit<RcuHead<P>>>,
    /// Links areas that one change removes; the writer's alone.
    pub(crate) next_removed: UnsafeCell<Option<NonNull<Self>>>,
    /// Changes at work: a move changes its source while its target is still held. The writer's alone.
    nr_changes: UnsafeCell<u32>,
}

// SAFETY: all that several threads use is atomic; `next_removed` and `nr_changes` belong to the writer, `head` to the
// one who frees.
unsafe impl<P: System, D: Design<P>> Sync for Area<P, D> {}

impl<P: System, D: Design<P>> Area<P, D> {
    /// Returns an area as `view` describes it, which owns what stands behind it; under a change, as if announced by
    /// `begin_change`.
    pub(crate) fn new(view: &AreaView<P>, behind: Behind<P>) -> Self {
        Self {
            start: P::AtomicU64::new(view.start),
            end: P::AtomicU64::new(view.end),
            page_offset: P::AtomicU64::new(view.page_offset),
            flags: P::AtomicU32::new(view.flags.bits()),
            root: P::AtomicU64::new(view.root),
            behind,
            opening: view.opening,
            state: D::new_area_state(),
            head: UnsafeCell::new(MaybeUninit::uninit()),
            next_removed: UnsafeCell::new(None),
            nr_changes: UnsafeCell::new(1),
        }
    }

    /// Returns what the area is now. Under the space's lock, or checked by the design afterwards, it is consistent.
    #[inline]
    pub fn view(&self) -> AreaView<P> {
        // Relaxed: the space's lock or the design's sequence count orders these loads.
        let order = Ordering::Relaxed;
        AreaView {
            start: self.start.load(order),
            end: self.end.load(order),
            flags: AreaFlags::from_bits_truncate(self.flags.load(order)),
            page_offset: self.page_offset.load(order),
            object: self.behind.object().map(ObjectRef::as_ptr),
            content: self.behind.content(),
            opening: self.opening,
            root: self.root.load(order),
        }
    }

    /// Returns what the area is and allows now; as [`Area::view`].
    #[inline]
    pub(crate) fn flags(&self) -> AreaFlags {
        // Relaxed: as in `view`.
        AreaFlags::from_bits_truncate(self.flags.load(Ordering::Relaxed))
    }

    /// Notes that guards may be in it; under the space's lock, at least for reading.
    pub(crate) fn note_guards(&self) {
        // Relaxed: a mark that no fault looks at; those who change other flags hold the lock for writing.
        self.flags.fetch_or(AreaFlags::MAYBE_GUARD.bits(), Ordering::Relaxed);
    }

    /// Returns the object behind the area.
    pub(crate) fn object(&self) -> Option<&ObjectRef<P>> {
        self.behind.object()
    }

    /// Returns what stands behind the area.
    #[inline]
    pub(crate) fn behind(&self) -> &Behind<P> {
        &self.behind
    }

    /// Says whether a store to private memory would need a reverse-map root, which the area has not got yet; without a
    /// lock or a look at a sequence count, a hint.
    #[inline]
    pub(crate) fn lacks_root(&self) -> bool {
        // Relaxed: see `view`.
        let order = Ordering::Relaxed;
        let is_missing = self.root.load(order) == 0
            && !AreaFlags::from_bits_truncate(self.flags.load(order)).contains(AreaFlags::SHARED);
        mutant!(FaultWithoutRoot, mutant!(RootSetWithoutLock, is_missing => false) => false)
    }

    /// Announces a change to the design, until [`Area::end_change`]; nests. Under the write lock.
    pub(crate) fn begin_change(&self) {
        // SAFETY: the count is the writer's alone, and the caller is the writer.
        let nr_changes = unsafe { &mut *self.nr_changes.get() };
        *nr_changes += 1;
        if *nr_changes == 1 {
            D::begin_change(&self.state);
        }
    }

    /// As [`Area::begin_change`], until the guard is dropped, with the wait for faults; the area outlives it.
    pub(crate) fn announce_change(&self, space: &Space<P, D>) -> ChangeGuard<'_, P, D> {
        self.begin_change();
        D::await_faults(space);
        ChangeGuard(self)
    }

    /// Ends a change; the design hears of the outermost one. Under the write lock, before the area is let go.
    pub(crate) fn end_change(&self) {
        // SAFETY: as in `begin_change`.
        let nr_changes = unsafe { &mut *self.nr_changes.get() };
        *nr_changes -= 1;
        if *nr_changes == 0 {
            D::end_change(&self.state);
        }
    }

    /// As [`Area::end_change`], for an area that nobody has reached yet and that is what its change made it.
    pub(crate) fn end_change_unpublished(&self) {
        // SAFETY: as in `begin_change`.
        let nr_changes = unsafe { &mut *self.nr_changes.get() };
        debug_assert_eq!(*nr_changes, 1, "an unpublished area is under the change that made it");
        *nr_changes = 0;
        D::end_change_unpublished(&self.state);
    }

    /// Changes bounds, offset and flags; inside `begin_change` .. `end_change`.
    pub(crate) fn set(&self, view: &AreaView<P>) {
        // Relaxed: the design's sequence count orders these stores for those who don't hold the lock.
        let order = Ordering::Relaxed;
        self.start.store(view.start, order);
        self.end.store(view.end, order);
        self.page_offset.store(view.page_offset, order);
        self.flags.store(view.flags.bits(), order);
        if self.root.load(order) != view.root {
            self.root.store(view.root, order);
        }
    }

    /// Gives the area a reverse-map root unless it has one (I3); returns the one in force.
    pub(crate) fn root_or_set(&self, fresh: impl FnOnce() -> u64) -> u64 {
        // Relaxed: the root is an identity, nothing is reached through it.
        match self.root.load(Ordering::Relaxed) {
            0 => {
                let root = fresh();
                // Relaxed: as above; two faults under the read lock may race, and one value wins.
                let result = self.root.compare_exchange(0, root, Ordering::Relaxed, Ordering::Relaxed);
                result.map_or_else(|winner| winner, |_| root)
            }
            root => root,
        }
    }
}

/// A known bug: the words of the bounds are used for what waits to be freed, and looked at before the area is had.
#[cfg(feature = "mutants")]
impl<P: System, D: Design<P>> Area<P, D> {
    pub(crate) fn lend_bounds(&self) {
        P::forbid(core::ptr::from_ref(&self.start).cast(), size_of::<u64>());
    }

    pub(crate) fn look_at_bounds(&self, address: u64) -> Result<(), crate::events::GiveUp> {
        let view = self.view();
        (view.start..view.end).contains(&address).then_some(()).ok_or(crate::events::GiveUp::VmaChanged)
    }
}

/// A change that was announced; ends when dropped.
#[must_use = "the change ends as soon as the guard is dropped"]
pub(crate) struct ChangeGuard<'a, P: System, D: Design<P>>(&'a Area<P, D>);

impl<P: System, D: Design<P>> Drop for ChangeGuard<'_, P, D> {
    fn drop(&mut self) {
        self.0.end_change();
    }
}
