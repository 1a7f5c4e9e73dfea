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
use crate::addr::{PAGE, PageRange, VirtAddr};
use crate::design::Design;
use crate::index::IndexEntry;
use crate::system::System;
use crate::types::Area;
use core::iter::empty;
use core::ops::Range;

/// Areas that lie further apart are not near each other.
const MOST_APART_BYTES: u64 = MOST_GRANULES * GRANULE_BYTES;
/// Of so many annexes for each CPU all of an area becomes, if calls about all of it wait for each other.
const SHARES_PER_CPU: u64 = 2;

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

    /// Makes an annex around a range in a piece of the rest, and some more around what lies near, with the areas that
    /// the range meets, which `part` has; says whether it made the first. The caller has everything.
    pub(super) fn carve_annexes(&self, permit: WritePermit<'_, P, D>, range: PageRange, part: &Range<u64>) -> bool {
        let Some(lanes) = self.lane_rooms() else { return false };
        let share = ((part.end - part.start) / (SHARES_PER_CPU * P::nr_cpus() as u64)).next_power_of_two();
        let bytes = share.max(lanes.annexes().least_bytes()).min(MOST_GRANULES * GRANULE_BYTES);
        let is_made = self.carve_annex(permit, range, bytes);
        if is_made {
            self.carve_beside(permit, range.start().get() / bytes * bytes, bytes);
        }
        is_made
    }

    /// Makes annexes of blocks above one and below it, as many as there are CPUs at most, where areas of the rest lie
    /// that are near each other: whoever has everything keeps all CPUs waiting, which costs more the more there are.
    fn carve_beside(&self, permit: WritePermit<'_, P, D>, first: u64, bytes: u64) {
        let Some(lanes) = self.lane_rooms() else { return };
        let has_room = || !lanes.annexes().are_used_up();
        let (mut nr_left, mut bound) = (P::nr_cpus(), first + bytes);
        while nr_left > P::nr_cpus() / 2
            && has_room()
            && let Some(area) =
                self.index.first_ending_after(bound).filter(|area| area.start < bound + MOST_APART_BYTES)
        {
            let block = bound.max(area.start) / bytes * bytes;
            self.carve_block(permit, block..block + bytes, area.start);
            (nr_left, bound) = (nr_left - 1, block + bytes);
        }
        bound = first;
        while nr_left > 0
            && has_room()
            && let Some(area) =
                self.index.last_starting_before(bound).filter(|area| area.end + MOST_APART_BYTES > bound)
        {
            let block = (bound.min(area.end) - 1) / bytes * bytes;
            self.carve_block(permit, block..block + bytes, area.start);
            (nr_left, bound) = (nr_left - 1, block);
        }
    }

    /// Makes an annex of a block, if it is free, or else of a granule of it where an area lies.
    fn carve_block(&self, permit: WritePermit<'_, P, D>, block: Range<u64>, area: u64) {
        // Inside the block, so that it is the block that comes.
        let start = area.clamp(block.start + PAGE, block.end - 2 * PAGE);
        let page = PageRange::new(VirtAddr::new(start), PAGE);
        _ = page.is_some_and(|page| self.carve_annex(permit, page, block.end - block.start));
    }

    /// Makes an annex of so many bytes around a range in a piece of the rest, if they are free, or else of a granule;
    /// of what lies there, too, and cuts the areas at its bounds. Says whether it did; the caller has everything.
    fn carve_annex(&self, permit: WritePermit<'_, P, D>, range: PageRange, bytes: u64) -> bool {
        let Some(lanes) = self.lane_rooms() else { return false };
        let annexes = lanes.annexes();
        let Some(piece) = lanes.piece(range.start().get()) else { return false };
        let numbers = range.numbers();
        let least = granule_below(numbers.start)..granule_above(numbers.end);
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
            // No seam lies elsewhere (S1 of `seams`); but one may be a neighbour's.
            for bound in [bounds.start, bounds.end].into_iter().filter(|&bound| !lanes.is_bound(bound)) {
                permit.join_seam(VirtAddr::new(bound));
            }
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
