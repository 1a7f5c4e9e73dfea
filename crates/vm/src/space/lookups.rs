//! The areas of a space, whichever index they are in: the space's one, or those of its lanes.
//!
//! # Guarantee
//! A lookup answers as that of one index of all areas. Where no lanes have indexes it is one.
//!
//! A limit says how far a caller looks. What lies beyond it is found nevertheless where there is one index, which
//! tells it at no cost: callers that need to know look at what they got.

use super::Space;
use super::lane_rooms::{Edited, LaneRooms, Looks};
use super::map_lock::MapLock;
use crate::addr::VirtAddr;
use crate::design::Design;
use crate::index::{Index, IndexEntry, overlapping};
use crate::limits::PlacementPolicy;
use crate::system::System;
use crate::translations::lanes::Alone;
use crate::types::Area;
use core::ops::Range;
use faultless_platform::mutant;

impl<P: System, D: Design<P>> Space<P, D> {
    #[inline]
    pub(super) fn lane_rooms(&self) -> Option<&LaneRooms<P>> {
        let may_be = D::Lock::DIVIDES && self.limits.placement != PlacementPolicy::Linux;
        if may_be { self.lock.lanes() } else { None }
    }

    /// Says how somebody looks who holds something of the space.
    #[inline]
    fn looks(&self) -> Looks {
        if self.has_company() { Looks::Beside } else { Looks::Alone }
    }

    /// Returns the area that contains `address`, to a caller who is in an RCU section and holds nothing of the space.
    #[inline]
    pub(crate) fn area_containing_unlocked(&self, address: u64) -> Option<IndexEntry<Area<P, D>>> {
        match self.lane_rooms() {
            None => self.index.containing(address),
            Some(lanes) => lanes.containing(&self.index, address, Looks::Beside),
        }
    }

    /// Returns the area that contains `address`.
    #[inline]
    pub(crate) fn area_containing(&self, address: u64) -> Option<IndexEntry<Area<P, D>>> {
        match self.lane_rooms() {
            None => self.index.containing(address),
            Some(lanes) => lanes.containing(&self.index, address, self.looks()),
        }
    }

    /// Returns the first area that ends behind `address`, if it starts below `limit`.
    #[inline]
    pub(crate) fn first_area_ending_after(&self, address: u64, limit: u64) -> Option<IndexEntry<Area<P, D>>> {
        match self.lane_rooms() {
            None => self.index.first_ending_after(address),
            Some(lanes) => lanes.first_ending_after(&self.index, (address, limit), self.looks()),
        }
    }

    /// As [`Space::first_area_ending_after`], if the area starts in the lane of `address`.
    #[inline]
    pub(super) fn first_area_of_lane_ending_after(&self, address: u64) -> Option<IndexEntry<Area<P, D>>> {
        match self.lane_rooms() {
            None => self.index.first_ending_after(address),
            Some(lanes) => lanes.first_of_lane_ending_after(&self.index, address, self.looks()),
        }
    }

    /// Returns the last area that starts below `address`, if it ends behind `limit`.
    #[inline]
    pub(super) fn last_area_starting_before(&self, address: u64, limit: u64) -> Option<IndexEntry<Area<P, D>>> {
        match self.lane_rooms() {
            None => self.index.last_starting_before(address),
            Some(lanes) => lanes.last_starting_before(&self.index, (address, limit), self.looks()),
        }
    }

    /// As [`Space::last_area_starting_before`], if the area ends in the lane of the address below.
    #[inline]
    pub(super) fn last_area_of_lane_starting_before(&self, address: u64) -> Option<IndexEntry<Area<P, D>>> {
        match self.lane_rooms() {
            None => self.index.last_starting_before(address),
            Some(lanes) => lanes.last_of_lane_starting_before(&self.index, address, self.looks()),
        }
    }

    /// Returns the start of the highest hole of at least `len_bytes` inside `room`.
    #[inline]
    pub(super) fn highest_gap(&self, len_bytes: u64, room: Range<u64>) -> Option<u64> {
        match self.lane_rooms() {
            None => self.index.highest_gap(len_bytes, room),
            Some(lanes) => {
                let _beside = self.look_beside();
                lanes.highest_gap(&self.index, len_bytes, room, self.looks())
            }
        }
    }

    /// As [`Space::highest_gap`], to a caller who is in an RCU section and holds nothing of the space.
    pub(super) fn highest_gap_unlocked(&self, len_bytes: u64, room: Range<u64>) -> Option<u64> {
        match self.lane_rooms() {
            None => self.index.highest_gap(len_bytes, room),
            Some(lanes) => lanes.highest_gap(&self.index, len_bytes, room, Looks::Beside),
        }
    }

    /// Notes that the calling CPU looks, in an RCU section and with nothing held, at areas around an address.
    #[inline]
    pub(crate) fn note_looker_at(&self, address: u64) {
        if let Some(index) = self.lane_rooms().and_then(|lanes| lanes.index_at(address)) {
            index.note_looker();
        }
    }

    /// Notes that a change of a range was announced, where faults go by what earlier ones found.
    #[inline]
    pub(crate) fn note_change(&self, range: &Range<VirtAddr>, alone: Alone) {
        if D::STAMPS {
            let numbers = range.start.get()..range.end.get();
            mutant!(ChangeUnstamped, self.lanes().note_change(&numbers, alone) => ());
        }
    }

    /// Returns the bounds beyond which the holder of a part that has `address` neither changes nor looks at anything.
    #[inline]
    pub(super) fn lane_bounds(&self, address: u64) -> Range<u64> {
        self.lane_rooms().map_or(0..u64::MAX, |lanes| lanes.bounds(address))
    }

    /// Returns the indexes that an edit is about which changes what starts in a span, and adds something there or not.
    #[inline]
    pub(super) fn edited_indexes(&self, span: &Range<u64>, adds: bool) -> Edited<'_, P, Area<P, D>> {
        match self.lane_rooms() {
            None => Edited::One(&self.index),
            Some(lanes) => lanes.edited(&self.index, span, adds),
        }
    }

    /// Notes that a lane's index comes to hold an area.
    #[inline]
    pub(super) fn note_lanes_used(&self) {
        if let Some(lanes) = self.lane_rooms() {
            lanes.note_used();
        }
    }

    /// Returns how many levels the index has that areas around an address are in.
    pub(super) fn nr_index_levels(&self, address: u64) -> usize {
        match self.edited_indexes(&(address..address), false) {
            Edited::One(index) => self.nr_levels_of(index),
            Edited::Several(_) => self.index.nr_levels(),
        }
    }

    fn nr_levels_of(&self, index: &Index<P, Area<P, D>>) -> usize {
        if self.has_company() {
            index.note_looker();
        }
        index.nr_levels()
    }

    /// Returns the most levels that any index has.
    pub(super) fn most_index_levels(&self) -> usize {
        let mut most = self.index.nr_levels();
        if let Some(lanes) = self.lane_rooms() {
            lanes.for_each_index::<Area<P, D>>(&(0..u64::MAX), |index| most = most.max(self.nr_levels_of(index)));
        }
        most
    }

    /// Visits the areas that overlap `range`, ascending.
    #[inline]
    pub(crate) fn areas_overlapping(&self, range: Range<u64>) -> impl Iterator<Item = IndexEntry<Area<P, D>>> + '_ {
        let end = range.end;
        overlapping(range, move |address| self.first_area_ending_after(address, end))
    }
}
