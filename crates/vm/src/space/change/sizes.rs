//! How much there is of what a space counts.
//!
//! # Guarantee
//! A change adds the difference that it makes to each of the space's counters, under the lock that its edit of the
//! index is made under: who has that lock reads them exactly.

use crate::area::AreaFlags;
use crate::space::quantity::{NR_QUANTITIES, Quantity};

/// How much there is of what a space counts.
///
/// ```
/// use faultless_vm::AreaFlags;
/// use faultless_vm::design::Sizes;
///
/// let mut sizes = Sizes::default();
/// sizes.add(AreaFlags::READ | AreaFlags::WRITE, 8192);
/// sizes.add(AreaFlags::READ | AreaFlags::LOCKED, 4096);
/// assert_eq!((sizes.areas, sizes.bytes, sizes.data_bytes, sizes.locked_bytes), (2, 12288, 8192, 4096));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Areas.
    pub areas: u64,
    /// Bytes of all areas.
    pub bytes: u64,
    /// Bytes of private writable areas but stacks.
    pub data_bytes: u64,
    /// Bytes of locked areas.
    pub locked_bytes: u64,
}

impl Sizes {
    /// Counts `bytes` of an area as one area, or none if it is one with that below.
    pub fn add(&mut self, flags: AreaFlags, bytes: u64) {
        // What leaves is counted as what it was, until it has left.
        if flags.contains(AreaFlags::LEAVING) {
            return;
        }
        self.areas += u64::from(!flags.contains(AreaFlags::SEAM_BELOW));
        self.bytes += bytes;
        self.data_bytes += if flags.is_data() { bytes } else { 0 };
        self.locked_bytes += if flags.contains(AreaFlags::LOCKED) { bytes } else { 0 };
    }

    /// Returns them by [`Quantity`].
    #[inline(always)]
    pub(in crate::space) const fn by_quantity(&self) -> [u64; NR_QUANTITIES] {
        [self.areas, self.bytes, self.data_bytes, self.locked_bytes]
    }

    pub(in crate::space) const fn of(&self, quantity: Quantity) -> u64 {
        match quantity {
            Quantity::Areas => self.areas,
            Quantity::Bytes => self.bytes,
            Quantity::DataBytes => self.data_bytes,
            Quantity::LockedBytes => self.locked_bytes,
        }
    }
}

/// What a change makes of a space's sizes.
#[derive(Clone, Copy)]
pub(in crate::space) struct Counted {
    pub(in crate::space) before: Sizes,
    pub(in crate::space) after: Sizes,
}
