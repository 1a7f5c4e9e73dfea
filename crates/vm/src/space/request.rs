//! What mmap is asked for.

use crate::addr::VirtAddr;
use crate::asked::{MapOptions, Protection};
use crate::error::CallError;
use crate::object::ObjectHandle;
use crate::pattern::Pattern;
use crate::reference::ReferenceHandle;
use crate::system::System;
use crate::view::AreaFlags;

/// The arguments of mmap.
pub struct MapRequest<'a, P: System> {
    /// Where.
    pub placement: Placement,
    /// Length in bytes, rounded up to pages.
    pub len_bytes: u64,
    /// What may be done with it.
    pub protection: Protection,
    /// How it is mapped.
    pub options: MapOptions,
    /// What stands behind it. Of anonymous memory, only [`Backing::SharedZeros`] is shared.
    pub backing: Backing<'a, P>,
    /// Whether its pages are made at once (`MAP_POPULATE`).
    pub populate: Populate,
}

impl<P: System> MapRequest<'_, P> {
    /// Returns the flags of the area that is asked for; a [`Map`](crate::design::Map) calls it.
    pub fn flags(&self) -> AreaFlags {
        AreaFlags::from(self.protection) | AreaFlags::from(self.options)
    }
}

/// Where a mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Where there is room.
    Anywhere,
    /// At this address if there is room, else elsewhere.
    Hint(VirtAddr),
    /// At this address, in place of what is there (`MAP_FIXED`).
    Fixed(VirtAddr),
    /// At this address if nothing is there (`MAP_FIXED_NOREPLACE`).
    FixedNoReplace(VirtAddr),
    /// Below 2 GiB (`MAP_32BIT`): at the hint if it is below 2 GiB and free, else at the lowest free range from 1 GiB
    /// up.
    Low2G {
        /// The address asked for; 0 asks for none.
        hint: VirtAddr,
    },
}

/// Whether pages are made at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    /// They are.
    Now,
    /// When they are touched.
    OnFault,
}

/// What stands behind a mapping.
pub enum Backing<'a, P: System> {
    /// Zeros of the mapping's own.
    Anonymous,
    /// Zeros of a new object of the mapping's length; the area is shared with forked children.
    SharedZeros,
    /// An object, from this byte on (a multiple of the page size).
    Object(&'a ObjectHandle<'a, P>, u64),
    /// A reference page, as a file from this byte on (a multiple of the page size): mappings are private, or shared and
    /// read-only.
    Reference(&'a ReferenceHandle<'a, P>, u64),
    /// A pattern in place of the zeros of private anonymous memory; there is no page before the first access.
    Pattern(Pattern),
    /// A file that can't be mapped so: the call fails with this error, unless the place or a limit refuses it first.
    /// Linux looks at the file as late.
    Refused(CallError),
}

/// Large mappings of anonymous memory begin at a multiple of this, so that huge pages would fit.
pub(super) const HUGE_BYTES: u64 = 2 << 20;

impl<P: System> Backing<'_, P> {
    pub(super) fn alignment(&self, len: u64) -> Alignment {
        match self {
            Self::Anonymous | Self::Pattern(_) => Alignment::of_private(len),
            Self::SharedZeros | Self::Object(..) | Self::Reference(..) | Self::Refused(_) => Alignment::Page,
        }
    }
}

/// Where a search puts a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Alignment {
    /// At a page.
    Page,
    /// Where a huge page could begin.
    Huge,
}

impl Alignment {
    /// Returns that of private anonymous memory: whole huge pages' worth is aligned so, whether there are any or not.
    pub(super) fn of_private(len: u64) -> Self {
        if len.is_multiple_of(HUGE_BYTES) { Self::Huge } else { Self::Page }
    }
}
