//! The lock of edits, had, and the lane that it is of.
//!
//! # Guarantee
//! Lookups by whoever holds an [`Editing`], of what lies in its lane, take no RCU section: nobody else edits the index
//! that they walk (N3 of `lane_rooms`). Nobody waits with it, because the lock is a spin lock.

use super::Space;
use super::map_lock::{EditGuard, MapLock};
use crate::addr::{PageRange, VirtAddr};
use crate::area::Area;
use crate::design::Design;
use crate::index::{Around, Index, IndexEntry};
use crate::system::System;
use core::ops::Range;

/// A lane, or a piece of the rest, or a space without lanes, whose index alone has all that lies in it; for whoever has
/// the lock of its edits. Made under that, and used no longer.
pub(super) struct OwnLane<'a, P: System, T> {
    pub(super) index: &'a Index<P, T>,
    pub(super) bounds: Range<u64>,
}

impl<'a, P: System, T> OwnLane<'a, P, T> {
    /// Says whether a range lies in the lane, and reaches no bound where something else could begin.
    pub(super) fn is_around(&self, range: &Range<u64>) -> bool {
        (self.bounds.start < range.start || self.bounds.start == 0) && range.end < self.bounds.end
    }

    /// Returns the first area of the lane that ends behind an address of it.
    pub(super) fn first_ending_after(&self, address: u64) -> Option<IndexEntry<T>> {
        self.index.writer().first_ending_after(address).filter(|entry| entry.start < self.bounds.end)
    }

    /// Returns the last area of the lane that starts below an address of it.
    pub(super) fn last_starting_before(&self, address: u64) -> Option<IndexEntry<T>> {
        self.index.writer().last_starting_before(address).filter(|entry| entry.end > self.bounds.start)
    }

    /// Returns a range of the lane and the areas that overlap or touch it, as one.
    pub(super) fn widened(&self, range: Range<u64>) -> Range<u64> {
        let (below, above) = match self.index.writer().around(range.clone()) {
            Some(around) => (around.below, around.above),
            None => (self.last_starting_before(range.start), self.first_ending_after(range.end)),
        };
        let below = below.filter(|entry| entry.end >= range.start);
        let above = above.filter(|entry| entry.start <= range.end);
        below.map_or(range.start, |entry| entry.start)..above.map_or(range.end, |entry| entry.end)
    }

    /// Visits the areas of the lane that overlap a range of it, ascending.
    pub(super) fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = IndexEntry<T>> {
        let mut position = Some(range.start);
        core::iter::from_fn(move || {
            let entry = self.first_ending_after(position?).filter(|entry| entry.start < range.end)?;
            position = (entry.end < range.end).then_some(entry.end);
            Some(entry)
        })
    }

    /// Returns the hole that holds an address of the lane, as far as it lies there.
    pub(super) fn hole_around(&self, address: u64) -> Range<u64> {
        let below = self.last_starting_before(address).map_or(self.bounds.start, |entry| entry.end);
        below..self.first_ending_after(address).map_or(self.bounds.end, |entry| entry.start)
    }
}

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
            None => Some(OwnLane { index: &self.index, bounds: 0..u64::MAX }),
            Some(lanes) => {
                lanes.own_lane(&self.index, address, held, || self.lock.is_edited_by(VirtAddr::new(address), held))
            }
        }
    }
}
