//! The part of the address range in which a CPU maps, if a space's placement policy spreads mappings.
//!
//! # Guarantee
//! A CPU searches its own range first, then everywhere. Any range may hold any mapping, so the policy makes no call
//! fail.
//!
//! # Why
//! Adjacent mappings of one kind become one area, and a call that changes an area keeps faults out of all of it,
//! including other threads' parts. Mappings in different ranges never join, and a change of one asks only the CPUs that
//! used its range (`translations::lanes`, which says where ranges lie).

use super::Space;
use super::credits;
use super::lane_rooms::{self, LaneRooms};
use super::map_lock::MapLock;
use crate::addr::PAGE;
use crate::design::Design;
use crate::limits::{Limits, PlacementPolicy};
use crate::system::System;
use crate::translations::lanes::Spread;
use core::ops::Range;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Notes that this CPU maps, where that decides anything.
    pub(super) fn note_mapper(&self) {
        if self.limits.placement == PlacementPolicy::Auto {
            self.mappers.note(P::cpu());
        }
    }

    /// Returns the part of `room` that this CPU searches first, if the space's mappings are spread.
    #[inline(always)]
    pub(super) fn own_room(&self, room: Range<u64>) -> Option<Range<u64>> {
        let is_spread = match self.limits.placement {
            PlacementPolicy::Linux => false,
            PlacementPolicy::Spread => true,
            PlacementPolicy::Auto => self.lanes().are_several() && self.mappers.are_many(),
        };
        let own = self.lanes().shape().filter(|_| is_spread)?.range_of(P::cpu());
        // An area that reaches its lane's bound is everybody's (N2 of `lane_rooms`). What is left free is more than the
        // gap that the lowest stack above wants.
        let own = if D::Lock::DIVIDES { own.start..own.end - LaneRooms::<P>::TOP_BYTES } else { own };
        (room.start <= own.start && own.end <= room.end).then_some(own)
    }
}

/// Returns how mappings are, or may come to be, spread, if they may.
pub(super) fn spread<P: System, D: Design<P>>(limits: &Limits) -> Option<Spread> {
    let is_spread = limits.placement != PlacementPolicy::Linux;
    let room = limits.lowest_chosen.max(PAGE)..limits.mmap_base;
    let nr_lane_words = if D::Lock::DIVIDES { lane_rooms::nr_words::<P>(P::nr_cpus()) } else { 0 };
    // Where map calls queue, whom a change asks is not what they wait for.
    let nr_rest_sets = if D::Lock::DIVIDES { (2 * P::nr_cpus()).next_power_of_two() } else { 1 };
    is_spread.then(|| Spread { room, nr_rest_sets, nr_own_words: credits::nr_words::<P, D>() + nr_lane_words })
}
