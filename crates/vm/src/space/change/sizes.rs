//! How much there is of what a space counts.
//!
//! # Guarantee
//! A change adds the difference that it makes to each of the space's counters, under the lock that its edit of the
//! index is made under: who has that lock reads them exactly.

use crate::area::AreaFlags;
use crate::design::Design;
use crate::space::permit::WritePermit;
use crate::system::System;
use faultless_platform::{Atomic, Ordering};

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
    /// Counts `bytes` of an area as one area.
    pub fn add(&mut self, flags: AreaFlags, bytes: u64) {
        // What leaves is counted as what it was, until it has left.
        if flags.contains(AreaFlags::LEAVING) {
            return;
        }
        self.areas += 1;
        self.bytes += bytes;
        self.data_bytes += if flags.is_data() { bytes } else { 0 };
        self.locked_bytes += if flags.contains(AreaFlags::LOCKED) { bytes } else { 0 };
    }
}

/// What a change makes of a space's sizes.
#[derive(Clone, Copy)]
pub(in crate::space) struct Counted {
    pub(super) before: Sizes,
    pub(super) after: Sizes,
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Counts a change.
    pub(in crate::space) fn count(self, counted: &Counted) {
        let Counted { before, after } = counted;
        if self.count_in_purse(before, after) {
            return;
        }
        add(&self.nr_areas, after.areas, before.areas);
        add(&self.mapped_bytes, after.bytes, before.bytes);
        add(&self.data_bytes, after.data_bytes, before.data_bytes);
        add(&self.locked_bytes, after.locked_bytes, before.locked_bytes);
    }
}

/// Changes one of the space's counters by `after - before`.
fn add(counter: &impl Atomic<Value = u64>, after: u64, before: u64) {
    if after != before {
        // Relaxed: written under the write lock, and where several have a part of that, under the lock of edits.
        let now = counter.load(Ordering::Relaxed).wrapping_add(after).wrapping_sub(before);
        counter.store(now, Ordering::Relaxed);
    }
}
