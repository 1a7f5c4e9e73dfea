//! Where objects stand in a frame.
//!
//! ```text
//! | object 0, its RCU head | object 1, its RCU head | ... | unused | the slab's place |
//! 0                        slot_bytes                               4088            4096
//! ```
//! A slot is at least a line long, so that 64 bits are enough for a frame's map. The head is used while the object waits for
//! its grace period, when readers may still read all of the object itself; an object may have a place for it inside.

use core::mem::{align_of, size_of};
use faultless_platform::{PAGE_BYTES, Platform};
use faultless_sync::RcuHead;

/// Where the place of the slab stands.
pub(super) const SLAB_OFFSET: usize = PAGE_BYTES - size_of::<*const ()>();

const LINE_BYTES: usize = 64;

/// The numbers of one type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) object_bytes: usize,
    pub(super) head_offset: usize,
    pub(super) slot_bytes: u32,
    pub(super) nr_slots: u32,
}

impl Geometry {
    /// Computes them for `T`; does not compile if one doesn't fit.
    pub(super) const fn of<P: Platform, T>() -> Self {
        Self::with_head_at::<P, T>(size_of::<T>().next_multiple_of(align_of::<RcuHead<P>>()))
    }

    /// As [`Geometry::of`], with the head at a multiple of its alignment, inside the object or behind it.
    pub(super) const fn with_head_at<P: Platform, T>(head_offset: usize) -> Self {
        let align = max(align_of::<T>(), align_of::<RcuHead<P>>());
        assert!(head_offset.is_multiple_of(align_of::<RcuHead<P>>()), "the head's place is not aligned");
        let used_bytes = max(head_offset + size_of::<RcuHead<P>>(), size_of::<T>());
        let slot_bytes = max(used_bytes, LINE_BYTES).next_multiple_of(align);
        assert!(slot_bytes <= SLAB_OFFSET, "the object does not fit a frame: allocate frames instead");
        let nr_slots = (SLAB_OFFSET / slot_bytes) as u32;
        Self { object_bytes: size_of::<T>(), head_offset, slot_bytes: slot_bytes as u32, nr_slots }
    }

    /// The map of a frame of which every object is free.
    pub(super) const fn full_map(self) -> u64 {
        (1 << self.nr_slots) - 1
    }
}

/// The largest object.
pub(super) const fn object_bytes_max<P: Platform>() -> usize {
    SLAB_OFFSET - size_of::<RcuHead<P>>()
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}
