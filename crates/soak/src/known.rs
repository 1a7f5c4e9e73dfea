//! What a thread knows of memory, and what all of them ask for.

use faultless_platform::native::Native;
use faultless_vm::{AreaFlags, Backing, MapRequest, Placement, Populate, VirtAddr};

/// Loads and stores.
pub(crate) const RW: AreaFlags = AreaFlags::READ.union(AreaFlags::WRITE);

/// Begins every value that a thread stores.
pub(crate) const MARK: u64 = 0xfa17_0000_0000_0000;

/// Pages of a thread's own region; it spans two page tables.
pub(crate) const OWN_PAGES: u64 = 48;

/// What a thread knows of one of its pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Page {
    pub rights: Option<AreaFlags>,
    pub value: u64,
    /// What it held before the first store, and holds when it was dropped.
    pub untouched: u64,
}

impl Page {
    pub const UNMAPPED: Self = Self { rights: None, value: 0, untouched: 0 };
}

/// Pages of the object.
pub(crate) const FILE_PAGES: u64 = 8;

/// What a thread knows of its word of a page of the object: its value, and how many removals were over before it was
/// so.
pub(crate) type Known = Option<(u64, u64)>;

/// Asks for private anonymous memory at an address.
pub(crate) fn anonymous(at: u64, len_bytes: u64) -> MapRequest<'static, Native> {
    MapRequest {
        placement: Placement::Fixed(VirtAddr::new(at)),
        len_bytes,
        protection: RW.protection(),
        options: RW.options(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}
