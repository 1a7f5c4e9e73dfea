//! Where objects stand in a frame.
//!
//! ```text
//! | unused | object 0, its RCU head | object 1, its RCU head | ... | the slab's place |
//! 0        first_slot                                                  4088          4096
//! ```
//! A frame's first line stays unused, unless frames hold few objects and would hold one less: programs touch the starts
//! of pages most, which compete for the caches' same sets. malloc1 under `vma-lock` was 1.003, 1.013 and 1.017 times
//! `mmap-sem`'s time with this, and 1.016 to 1.044 without (`fault_cost`, four runs).
//!
//! A slot begins on a line and is as many lines as it needs: two objects are often two processes', whose stores would
//! take each other's lines away. So 64 bits are enough for a frame's map. The head is used while the object waits for
//! its grace period, when readers may still read all of the object itself; an object may have a place for it inside.

use core::mem::{align_of, size_of};
use faultless_platform::{PAGE_BYTES, Platform};
use faultless_sync::RcuHead;

/// Where the place of the slab stands.
pub(super) const SLAB_OFFSET: usize = PAGE_BYTES - size_of::<*const ()>();

const LINE_BYTES: usize = 64;
/// One object less in a frame does not matter among so many.
const MANY: usize = 16;

/// The numbers of one type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) object_bytes: usize,
    pub(super) head_offset: usize,
    first_slot: u32,
    slot_bytes: u32,
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
        let slot_bytes = used_bytes.next_multiple_of(max(align, LINE_BYTES));
        assert!(used_bytes <= SLAB_OFFSET, "the object does not fit a frame: allocate frames instead");
        // The last slot needs no more than its object.
        let nr_at_most = 1 + (SLAB_OFFSET - used_bytes) / slot_bytes;
        let room_behind_line = SLAB_OFFSET - max(align, LINE_BYTES);
        let behind_line =
            if room_behind_line < used_bytes { 0 } else { 1 + (room_behind_line - used_bytes) / slot_bytes };
        let (first_slot, nr_slots) = match behind_line == nr_at_most || behind_line >= MANY {
            true => (max(align, LINE_BYTES), behind_line),
            false => (0, nr_at_most),
        };
        Self {
            object_bytes: size_of::<T>(),
            head_offset,
            first_slot: first_slot as u32,
            slot_bytes: slot_bytes as u32,
            nr_slots: nr_slots as u32,
        }
    }

    /// Returns where in its frame a slot's object stands.
    pub(super) const fn offset_of(self, slot: u32) -> usize {
        (self.first_slot + slot * self.slot_bytes) as usize
    }

    /// Returns the slot of the object that stands so far into its frame.
    pub(super) const fn slot_at(self, offset: usize) -> u32 {
        (offset as u32).saturating_sub(self.first_slot) / self.slot_bytes
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
