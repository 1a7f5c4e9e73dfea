//! An area by value: what it is and allows, and what it was at one instant.

use crate::access::Access;
use crate::addr::{PAGE, VirtAddr};
use crate::content::Content;
use crate::entry::EntryFlags;
use crate::object::Object;
use crate::system::System;
use bitflags::bitflags;
use core::ptr::NonNull;
use faultless_platform::mutant;

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
        /// Guards were installed in it, or in an area that it was joined with. Sticky; ignored when merging.
        const MAYBE_GUARD = 1 << 21;
        /// `MAP_SYNC` was asked for; where it means nothing, it keeps neighbours apart all the same.
        const SYNC = 1 << 22;
        /// Has the protection key of memory that may be fetched from alone: loads and stores are forbidden. Linux gives
        /// it to what is mapped or protected with `PROT_EXEC` and nothing else, where the processor has keys; here,
        /// whoever asks says so. Without [`Limits::has_protection_keys`](crate::Limits::has_protection_keys), or beside
        /// other rights, it is dropped.
        const EXECUTE_ONLY = 1 << 23;
        /// Nothing any more but a place that is not free yet (`space::departure`); nobody asks for it.
        const LEAVING = 1 << 24;
        /// Is one with the area that ends where it begins, but for a bound of an annex (`space::seams`); nobody asks
        /// for it, and no list shows it.
        const SEAM_BELOW = 1 << 25;
        /// Is one with the area that begins where it ends, as [`AreaFlags::SEAM_BELOW`].
        const SEAM_ABOVE = 1 << 26;
        /// Of an area beyond a lane's bound that a call has reached: it may be one with what touches it there when the
        /// call ends (`space::seams`).
        const SEAM_OPEN = 1 << 27;
        /// `PROT_EXEC` may not be added: a file that lies where nothing may be executed.
        const DENY_EXEC = 1 << 28;
    }
}

impl AreaFlags {
    /// The rights among the flags.
    pub const RIGHTS: Self = Self::READ.union(Self::WRITE).union(Self::EXEC);
    /// What neighbours may differ in and be joined all the same.
    pub const IGNORED_BY_JOINS: Self =
        Self::INHERITED.union(Self::MAYBE_GUARD).union(Self::SEAMS).union(Self::SEAM_OPEN);
    /// What says that an area is one with a neighbour.
    pub const SEAMS: Self = Self::SEAM_BELOW.union(Self::SEAM_ABOVE);
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

/// An area as it was at one instant: what a fault decides by, under whichever design.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_vm::{AreaFlags, AreaView, Content, EntryFlags, PAGE, VirtAddr};
///
/// let area = |start: u64, page_offset| AreaView::<Native> {
///     start: VirtAddr::new(start),
///     end: VirtAddr::new(start + PAGE),
///     flags: AreaFlags::READ | AreaFlags::WRITE,
///     page_offset,
///     object: None,
///     content: Content::Zeros,
///     opening: 0,
///     root: 0,
/// };
/// let (first, second) = (area(0x10000, 16), area(0x11000, 17));
/// assert!(first.joins(&second) && !second.joins(&first));
/// assert_eq!(first.page_offset_of(VirtAddr::new(0x10000)), 16);
/// assert!(first.flags.is_data() && !first.has_file() && !first.is_reference());
/// // A page that loads have mapped takes a fault at a store.
/// assert!(!first.read_only_entry().contains(EntryFlags::WRITE));
/// ```
#[derive(Debug)]
pub struct AreaView<P: System> {
    /// First byte.
    pub start: VirtAddr,
    /// First byte behind.
    pub end: VirtAddr,
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
    pub fn page_offset_of(&self, address: VirtAddr) -> u64 {
        self.page_offset.wrapping_add(address.get().wrapping_sub(self.start.get()) / PAGE)
    }

    /// Returns what is left of the area below an address, if it goes beyond.
    pub(crate) fn below(&self, address: VirtAddr) -> Self {
        if address >= self.end {
            return *self;
        }
        Self { end: address, flags: self.flags - AreaFlags::SEAM_ABOVE, ..*self }
    }

    /// Returns what is left of the area from an address on, if it begins below.
    pub(crate) fn from(&self, address: VirtAddr) -> Self {
        if address <= self.start {
            return *self;
        }
        let page_offset = self.page_offset_of(address);
        Self { start: address, page_offset, flags: self.flags - AreaFlags::SEAM_BELOW, ..*self }
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
