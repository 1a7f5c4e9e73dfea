//! The part of the address range in which a CPU maps, if a space's placement policy spreads mappings.
//!
//! # Guarantee
//! A CPU searches its own range first, then everywhere. Any range may hold any mapping, so the policy makes no call
//! fail.
//!
//! # Why
//! Adjacent mappings of one kind become one area, and a call that changes an area keeps faults out of all of it,
//! including other threads' parts. Mappings in different ranges never join.

use super::Space;
use super::permit::WritePermit;
use crate::design::Design;
use crate::limits::PlacementPolicy;
use crate::system::System;
use core::ops::Range;

/// Ranges begin at a multiple of this: what the upper two levels of page tables divide.
const RANGE_UNIT: u64 = 1 << 30;

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Notes that this CPU maps, where that decides anything.
    pub(super) fn note_mapper(self) {
        if self.limits.placement == PlacementPolicy::Auto {
            self.mappers.note(P::cpu());
        }
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns the part of `room` that this CPU searches first, if the space's mappings are spread.
    pub(super) fn own_room(&self, room: Range<u64>) -> Option<Range<u64>> {
        let is_spread = match self.limits.placement {
            PlacementPolicy::Linux => false,
            PlacementPolicy::Spread => true,
            PlacementPolicy::Auto => self.mappers.are_many(),
        };
        if is_spread { range_of(P::cpu(), P::nr_cpus(), &room) } else { None }
    }
}

/// Returns the range of one of `nr_cpus` CPUs, the first one's being the highest; nothing if there is no room for so
/// many. Above them all a range is nobody's: there lies what was mapped before there were several, and what fits
/// nowhere else.
fn range_of(cpu: usize, nr_cpus: usize, room: &Range<u64>) -> Option<Range<u64>> {
    let (low, top) = (room.start.next_multiple_of(RANGE_UNIT), room.end / RANGE_UNIT * RANGE_UNIT);
    let len = top.checked_sub(low)? / (nr_cpus as u64 + 1) / RANGE_UNIT * RANGE_UNIT;
    let end = top - (cpu as u64 + 1) * len;
    (len > 0).then(|| end - len..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn ranges_lie_apart_inside_the_room_and_are_as_large_as_can_be() {
        let limits = Limits::default();
        let room = limits.lowest_chosen..limits.mmap_base;
        for nr_cpus in [1, 2, 3, 384, 512] {
            let ranges: std::vec::Vec<_> = (0..nr_cpus).map(|cpu| range_of(cpu, nr_cpus, &room).unwrap()).collect();
            let len = ranges[0].end - ranges[0].start;
            assert!(ranges.windows(2).all(|pair| pair[1].end == pair[0].start));
            assert!(ranges.iter().all(|range| range.end - range.start == len && range.start % RANGE_UNIT == 0));
            assert!(room.end - ranges[0].end >= len, "{nr_cpus}: the highest is nobody's");
            let lowest = ranges.last().unwrap().start;
            assert!(lowest >= room.start && lowest - room.start < (nr_cpus as u64 + 2) * RANGE_UNIT, "{nr_cpus}");
        }
    }

    #[test]
    fn a_room_too_small_for_all_has_no_ranges() {
        assert_eq!(range_of(0, 3, &(0..4 * RANGE_UNIT)), Some(2 * RANGE_UNIT..3 * RANGE_UNIT));
        assert_eq!(range_of(2, 3, &(0..4 * RANGE_UNIT)), Some(0..RANGE_UNIT));
        assert_eq!(range_of(0, 4, &(0..4 * RANGE_UNIT)), None);
        assert_eq!(range_of(0, 1, &(1..2 * RANGE_UNIT)), None);
        assert_eq!(range_of(0, 1, &(5..6)), None);
    }
}
