//! The bytes that two registers name.

use faultless_vm::{AddressRange, VirtAddr};

/// Returns the range of so many bytes from `start`; any numbers are one.
pub(crate) const fn range(start: u64, len: u64) -> AddressRange {
    AddressRange::new(VirtAddr::new(start), len)
}
