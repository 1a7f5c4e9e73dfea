//! How annexes come, grow and go.
//!
//! # Guarantee
//! A call never fails for want of an annex: where one can't be had, the part belongs to the rest's table, as before.
//!
//! [`annexes`](super::annexes) has the invariants, A1 to A4, and the races.

use super::Space;
use super::annexes::{GRANULE_BYTES, MOST_GRANULES, granule_above, granule_below};
use super::lane_rooms::LaneRooms;
use super::left_over::LeftOver;
use super::map_lock::MapLock;
use super::permit::WritePermit;
use crate::addr::{PageRange, VirtAddr};
use crate::design::Design;
use crate::index::{Index, IndexEntry, Spare};
use crate::system::System;
use crate::types::Area;
use core::iter::{empty, once};
use core::ops::Range;
use faultless_platform::mutant;
use faultless_sync::HeldRanges;

/// Areas that are moved at most when an annex comes or goes; one that has more stays as it is.
const MOST_MOVED: usize = 1024;
/// Nobody's part has this address.
const NOBODYS: u64 = u64::MAX;

/// What a call leaves in its range, if it succeeds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Comes {
    /// An area that has all of it.
    AnArea,
    /// What was there, or less.
    Nothing,
}

/// Nodes for moving an area from the common index into an annex's.
pub(super) struct MoveNodes<'a, P: System> {
    into: Spare<'a, P>,
    out_of: Spare<'a, P>,
}

type AreaIndex<P, D> = Index<P, Area<P, D>>;

/// What came of a wish for an annex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Founded {
    Made,
    /// Others hold or have something there.
    TooNear,
    /// What lies there takes nodes that were not set aside: a later call sets them aside.
    Unprepared,
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Sets aside what an annex may take that is made around an address, if one may be.
    pub(super) fn reserve_annex(&self, near: VirtAddr) -> Option<MoveNodes<'_, P>> {
        self.lane_rooms().filter(|lanes| lanes.is_in_a_piece(near.get()) && lanes.annexes().are_wanted())?;
        let nr_levels = {
            let _beside = self.look_beside();
            self.index.nr_levels()
        };
        let reserve = |nr_levels: usize| {
            let nr_nodes = Index::<P, Area<P, D>>::nr_nodes_in_levels(nr_levels);
            Index::<P, Area<P, D>>::reserve_nodes(&self.vm().nodes, nr_nodes).ok()
        };
        // The annex that comes is empty.
        Some(MoveNodes { into: reserve(0)?, out_of: reserve(nr_levels)? })
    }

    /// Makes an annex around a part; under the lock of the rest's table.
    #[cold]
    pub(super) fn found_annex(
        &self,
        held: &HeldRanges<'_, P>,
        part: &Range<u64>,
        nodes: &mut Option<MoveNodes<'_, P>>,
    ) -> Founded {
        let Some(lanes) = self.lane_rooms() else { return Founded::Unprepared };
        let annexes = lanes.annexes();
        let _beside = self.look_beside();
        let piece = lanes.bounds(part.start);
        let below = self.index.last_starting_before(part.start).map(|below| below.end);
        let above = self.index.first_ending_after(part.end).map(|above| above.start);
        let is_apart = |bounds: &Range<u64>| {
            let is_below = below.is_none_or(|end| end < bounds.start);
            let is_above = above.is_none_or(|start| start > bounds.end);
            let is_inside = piece.start <= bounds.start && bounds.end <= piece.end;
            is_below && is_above && is_inside && annexes.are_free(bounds) && !is_held(held, bounds)
        };
        let around = |bytes: u64| part.start.saturating_sub(1) / bytes * bytes..(part.end / bytes + 1) * bytes;
        let [granules, large] = [GRANULE_BYTES, annexes.roomy_bytes()].map(around);
        let clipped = granules.start.min(large.start.max(piece.start))..granules.end.max(large.end.min(piece.end));
        let Some(bounds) = [clipped, granules].into_iter().find(is_apart) else {
            return Founded::TooNear;
        };
        let first = self.index.first_ending_after(part.start).filter(|first| first.start < part.end);
        let Some(area) = mutant!(AreaLeftBehind, first => None) else {
            annexes.publish(annexes.nr(), &bounds);
            return Founded::Made;
        };
        let is_only = self.index.first_ending_after(area.end).is_none_or(|second| second.start >= part.end);
        if !is_only {
            return Founded::TooNear;
        }
        match nodes.take().and_then(|nodes| self.take_along(lanes, &bounds, area, nodes)) {
            Some(()) => Founded::Made,
            None => Founded::Unprepared,
        }
    }

    /// Makes an annex in which an area lies already; nothing if it takes more nodes.
    fn take_along(
        &self,
        lanes: &LaneRooms<P>,
        bounds: &Range<u64>,
        area: IndexEntry<Area<P, D>>,
        MoveNodes { into, out_of }: MoveNodes<'_, P>,
    ) -> Option<()> {
        let annexes = lanes.annexes();
        let annex = annexes.nr();
        let span = area.start..area.end;
        let mut added = lanes.index_of_annex(annex).prepare_from(span.clone(), once(area), into)?;
        let mut taken = self.index.prepare_from(span, empty::<IndexEntry<Area<P, D>>>(), out_of)?;
        lanes.note_used();
        // Who found the area in the common index is noted nowhere; nobody edits the annex before it has left that, so
        // that whoever forgets lookers waits for those, too.
        lanes.index_of_annex::<Area<P, D>>(annex).note_all_lookers();
        let _edits = lanes.parts_of_annex(annex).lock();
        D::update_index(self, || {
            added.commit(|| self.is_looked_at());
            annexes.publish(annex, bounds);
            taken.commit(|| self.is_looked_at());
        });
        Some(())
    }

    /// Lets an annex grow so that it has a part that reaches its bounds; under the lock of its table.
    #[cold]
    pub(super) fn grow_annex(&self, annex: usize, part: &Range<u64>) -> Option<()> {
        let lanes = self.lane_rooms()?;
        let annexes = lanes.annexes();
        let rest = self.lock.edit_rest()?;
        let _beside = self.look_beside();
        let mut bounds = annexes.bounds(annex);
        // Twice as much as there is, so that an area that grows by pages seldom asks.
        let more = (part.end - part.start).max(GRANULE_BYTES);
        if bounds.end <= part.end {
            let above = self.index.first_ending_after(bounds.end).map_or(u64::MAX, |above| above.start);
            let piece = lanes.piece(bounds.end).filter(|piece| part.end < piece.end && part.end < above)?;
            let furthest = granule_above(part.end + more).min(piece.end).min(granule_below(above));
            let grown = bounds.end..furthest;
            if furthest <= part.end || !annexes.are_free(&grown) || is_held(&rest, &grown) {
                return None;
            }
            bounds.end = furthest;
        }
        if part.start <= bounds.start {
            let below = self.index.last_starting_before(bounds.start).map_or(0, |below| below.end);
            let piece = lanes.piece(bounds.start.checked_sub(1)?);
            let piece = piece.filter(|piece| piece.start < part.start && below < part.start)?;
            let furthest = granule_below(part.start.saturating_sub(more).max(1)).max(piece.start);
            let furthest = if below == 0 { furthest } else { furthest.max(granule_above(below)) };
            let grown = furthest..bounds.start;
            if furthest >= part.start || !annexes.are_free(&grown) || is_held(&rest, &grown) {
                return None;
            }
            bounds.start = furthest;
        }
        if bounds.end - bounds.start > MOST_GRANULES * GRANULE_BYTES {
            return None;
        }
        annexes.publish(annex, &bounds);
        Some(())
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Takes the tables away that spanned bounds of annexes; the caller has everything.
    pub(super) fn prune_bounds_that_went(&self) {
        // Among them tables that spanned a bound, and now span none.
        let left_over = self.lock.left_over().map_or(0..0, LeftOver::taken);
        if let Some(range) = PageRange::between(VirtAddr::new(left_over.start), VirtAddr::new(left_over.end)) {
            self.prune_holes(range);
        }
    }

    /// Sets aside what it takes to add the areas that one index has in a range to another, and to take them away from
    /// the first; nothing if they are too many, or there is no memory.
    pub(super) fn reserve_to_add(
        &self,
        from: &AreaIndex<P, D>,
        into: &AreaIndex<P, D>,
        range: &Range<u64>,
    ) -> Option<Spare<'_, P>> {
        let nr_areas = from.overlapping(range.clone()).take(MOST_MOVED + 1).count();
        if nr_areas > MOST_MOVED {
            return None;
        }
        let mut spare = AreaIndex::<P, D>::reserve_nodes(&self.vm().nodes, 0).ok()?;
        // Each edit may make it a level higher.
        spare.fill_up_to(nr_areas * (into.nr_nodes_for_edit() + 2) + from.nr_nodes_for_edit()).ok()?;
        Some(spare)
    }

    /// Adds the areas that one index has in a range to another, which edits as many times as there are areas; returns
    /// what is left of the nodes. The caller has everything.
    pub(super) fn add_all<'a>(
        &self,
        from: &AreaIndex<P, D>,
        into: &'a AreaIndex<P, D>,
        range: &Range<u64>,
        spare: Spare<'a, P>,
    ) -> Spare<'a, P> {
        from.overlapping(range.clone()).fold(spare, |nodes, area| {
            let added = into.prepare_from(area.start..area.end, once(area), nodes);
            let left = added.expect("as many as were set aside").commit(|| self.is_looked_at());
            left.expect("an edit gives back what it did not need")
        })
    }

    /// Gives what lies in an annex back to the rest, if there is not too much of it; the caller has everything.
    pub(super) fn give_annex_up(&self, permit: WritePermit<'_, P, D>, annex: usize, bounds: Range<u64>) -> Option<()> {
        debug_assert!(!self.lock.is_divided(), "A1");
        let (lanes, nodes) = (self.lane_rooms()?, &self.vm().nodes);
        for bound in [bounds.start, bounds.end].map(VirtAddr::new) {
            permit.join_seams(&(bound..bound));
        }
        let index = lanes.index_of_annex::<Area<P, D>>(annex);
        let spare = self.reserve_to_add(index, &self.index, &(0..u64::MAX))?;
        D::update_index(self, || {
            _ = self.add_all(index, &self.index, &(0..u64::MAX), spare);
            lanes.annexes().retire(annex);
        });
        D::await_faults(self, VirtAddr::new(bounds.start)..VirtAddr::new(bounds.end));
        // An edit that leaves nothing needs no memory.
        let mut edit = index.unprepared(nodes, None);
        if edit.prepare(0..u64::MAX, empty::<IndexEntry<Area<P, D>>>()).is_ok() {
            D::update_index(self, || _ = edit.commit(|| self.is_looked_at()));
        }
        drop(edit);
        index.free_kept(nodes);
        Some(())
    }
}

/// Says whether somebody holds a part of what is to come into an annex, or of what touches it (A2).
fn is_held<P: System>(held: &HeldRanges<'_, P>, bounds: &Range<u64>) -> bool {
    let around = bounds.start.saturating_sub(1)..bounds.end + 1;
    mutant!(AnnexOverParts, held.is_held_by_others(&around, NOBODYS) => false)
}

#[cfg(test)]
mod tests;
