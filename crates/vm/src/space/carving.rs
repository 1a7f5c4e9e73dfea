//! Annexes that are cut out of what lies there already.
//!
//! # Guarantee
//! Whoever makes one has everything. Areas that cross its bounds become pieces with a seam between them (`seams`), all
//! that lies inside moves into its index, and what can't be made changes nothing.
//!
//! [`annexes`](super::annexes) has the invariants.

use super::Space;
use super::annexes::{GRANULE_BYTES, MOST_GRANULES, granule_above, granule_below};
use super::lane_rooms::LaneRooms;
use super::permit::WritePermit;
use crate::addr::{PageRange, VirtAddr};
use crate::design::Design;
use crate::index::IndexEntry;
use crate::system::System;
use crate::types::Area;
use core::iter::empty;
use core::ops::Range;

/// Of so many annexes all of an area becomes, if calls about all of it wait for each other.
const SHARES: u64 = 64;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Lets all annexes go, so that fewer and larger ones come; the caller has everything.
    pub(super) fn begin_anew(&self, permit: WritePermit<'_, P, D>) {
        let Some(lanes) = self.lane_rooms() else { return };
        let annexes = lanes.annexes();
        let mut are_gone = true;
        for (annex, bounds) in annexes.each() {
            are_gone &= bounds.is_empty() || self.give_annex_up(permit, annex, bounds).is_some();
        }
        annexes.note_anew(are_gone);
        self.prune_bounds_that_went();
    }

    /// Makes an annex around a range in a piece of the rest, of what lies there, too, and cuts the areas at its bounds;
    /// says whether it did. The caller has everything.
    pub(super) fn carve_annex(&self, permit: WritePermit<'_, P, D>, range: PageRange, part: &Range<u64>) -> bool {
        let Some(lanes) = self.lane_rooms() else { return false };
        let annexes = lanes.annexes();
        let Some(piece) = lanes.piece(range.start().get()) else { return false };
        let numbers = range.numbers();
        let least = granule_below(numbers.start)..granule_above(numbers.end);
        let share = ((part.end - part.start) / SHARES).next_power_of_two();
        let bytes = share.max(annexes.least_bytes()).min(MOST_GRANULES * GRANULE_BYTES);
        let block = numbers.start / bytes * bytes..numbers.end.next_multiple_of(bytes);
        let within = |block: Range<u64>| {
            let bounds = block.start.min(least.start).max(piece.start)..block.end.max(least.end).min(piece.end);
            let is_whole = bounds.start.is_multiple_of(GRANULE_BYTES) && bounds.end.is_multiple_of(GRANULE_BYTES);
            let is_around = bounds.start < numbers.start && numbers.end < bounds.end;
            (is_whole && is_around && annexes.are_free(&bounds)).then_some(bounds)
        };
        let Some(bounds) = within(block).or_else(|| within(least.clone())) else { return false };
        let cut = |bound: u64| permit.cut_seam(bound).unwrap_or(false);
        let is_made = !annexes.are_used_up()
            && cut(bounds.start)
            && cut(bounds.end)
            && self.take_all_along(lanes, &bounds).is_some();
        if !is_made {
            // No seam lies elsewhere (S1 of `seams`).
            permit.join_seam(VirtAddr::new(bounds.start));
            permit.join_seam(VirtAddr::new(bounds.end));
        }
        is_made
    }

    /// Makes an annex of what lies inside bounds that no area crosses; nothing if there is too much of it, or no
    /// memory. The caller has everything.
    fn take_all_along(&self, lanes: &LaneRooms<P>, bounds: &Range<u64>) -> Option<()> {
        let annex = lanes.annexes().nr();
        let index = lanes.index_of_annex::<Area<P, D>>(annex);
        let spare = self.reserve_to_add(&self.index, index, bounds)?;
        lanes.note_used();
        // As in `take_along`.
        index.note_all_lookers();
        D::update_index(self, || {
            let nodes = self.add_all(&self.index, index, bounds, spare);
            lanes.annexes().publish(annex, bounds);
            if self.index.overlapping(bounds.clone()).next().is_some() {
                let taken = self.index.prepare_from(bounds.clone(), empty::<IndexEntry<Area<P, D>>>(), nodes);
                _ = taken.expect("as many as were set aside").commit(|| self.is_looked_at());
            }
        });
        Some(())
    }
}
