//! The lock of edits, had, and the lane that it is of.
//!
//! # Guarantee
//! Lookups by whoever holds an [`Editing`], of what lies in its lane, take no RCU section: nobody else edits the index
//! that they walk (N3 of `lane_rooms`). Nobody waits with it, because the lock is a spin lock.

use super::Space;
use super::map_lock::{EditGuard, MapLock};
use super::own_lane::OwnLane;
use crate::addr::{PageRange, VirtAddr};
use crate::area::Area;
use crate::design::Design;
use crate::index::Around;
use crate::system::System;
use core::ops::Range;

/// The lock of edits, had; others replace nodes of other indexes meanwhile (R7 of `ranges`).
pub(super) struct Editing<'a, P: System, D: Design<P>> {
    lane: Option<OwnLane<'a, P, Area<P, D>>>,
    _lock: EditGuard<'a, P>,
}

impl<'a, P: System, D: Design<P>> Editing<'a, P, D> {
    /// Takes the lock over, and the lane that was found with it.
    #[inline]
    pub(super) fn new(lock: EditGuard<'a, P>, lane: Option<OwnLane<'a, P, Area<P, D>>>) -> Self {
        Self { lane, _lock: lock }
    }

    /// Returns what lies around and in a range of the lane, if one look at the index finds that.
    #[inline]
    pub(super) fn around(&self, range: PageRange) -> Option<Around<Area<P, D>>> {
        self.lane_around(&range.numbers())?.index.writer().around(range.numbers())
    }

    /// Returns the lane, if a range lies in it and reaches no bound.
    #[inline]
    pub(super) fn lane_around(&self, range: &Range<u64>) -> Option<&OwnLane<'a, P, Area<P, D>>> {
        self.lane.as_ref().filter(|lane| lane.is_around(range))
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Takes the lock of edits of an address's lane, where others may edit.
    pub(super) fn edit_at(&self, address: VirtAddr) -> Option<Editing<'_, P, D>> {
        let lock = self.lock.edit(address)?;
        let lane = self.own_lane(address.get(), &lock);
        Some(Editing::new(lock, lane))
    }

    /// Returns an address's lane, if the lock that is had is that of its edits, and no area there can be in another
    /// lane, too.
    #[inline]
    pub(super) fn own_lane(&self, address: u64, held: &EditGuard<'_, P>) -> Option<OwnLane<'_, P, Area<P, D>>> {
        match self.lane_rooms() {
            None => Some(OwnLane::whole(&self.index)),
            Some(lanes) => {
                lanes.own_lane(&self.index, address, held, || self.lock.is_edited_by(VirtAddr::new(address), held))
            }
        }
    }
}
