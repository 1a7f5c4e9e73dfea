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
use super::permit::{ReadPermit, WritePermit};
use super::seams::Mixed;
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
/// Of so many annexes all of an area becomes, if calls about all of it wait for each other.
const SHARES: u64 = 64;
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

/// Why a call has everything that named a part.
#[derive(Debug)]
pub(super) enum Unfit {
    /// An area that the range meets crosses a bound of the lane; the part with it.
    Crossing(Range<u64>),
    /// Others waited for the rest's table, too, and what lies around the part, or how many annexes came, forbids one.
    Crowded {
        /// What the call is about.
        range: PageRange,
        /// With the areas that it meets.
        part: Range<u64>,
    },
    /// Areas with roots would be joined with such as are of a chain without (S5 of `seams`).
    Mixed,
}

/// What came of a wish for an annex.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Founded {
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

    /// Fits a part that is chosen into the lane of `near`: gives it an annex, or more room in the one that it lies in,
    /// or leaves out the bounds of the lane that areas reach which the range meets. The caller has the lock of the table
    /// that `near` belonged to when it began to wait for that.
    #[inline]
    pub(super) fn fit_part(
        &self,
        (near, range, comes): (VirtAddr, PageRange, Comes),
        held: &HeldRanges<'_, P>,
        part: Range<u64>,
        nodes: &mut Option<MoveNodes<'_, P>>,
    ) -> Result<Range<u64>, Unfit> {
        let Some(lanes) = self.lane_rooms() else { return Ok(part) };
        if lanes.is_cpus(near.get()) || !self.lock.is_edited_by(near, held) {
            return Ok(part);
        }
        let is_one = lanes.is_part_at(near.get(), &part);
        match lanes.annexes().at(near.get()) {
            Some(_) if is_one => return Ok(part),
            Some(annex) if comes == Comes::AnArea && !lanes.is_part_at(near.get(), &range.numbers()) => {
                _ = self.grow_annex(annex, &part);
            }
            Some(_) => {}
            None => self.found_or_want(lanes, (range, part.clone()), held, nodes)?,
        }
        if is_one || lanes.is_part_at(near.get(), &part) { Ok(part) } else { self.clipped(lanes, near, range, part) }
    }

    /// Makes an annex around a part in a piece of the rest, if one is wanted.
    fn found_or_want(
        &self,
        lanes: &LaneRooms<P>,
        (range, part): (PageRange, Range<u64>),
        held: &HeldRanges<'_, P>,
        nodes: &mut Option<MoveNodes<'_, P>>,
    ) -> Result<(), Unfit> {
        let annexes = lanes.annexes();
        if held.had_to_wait() {
            annexes.want();
            if annexes.are_used_up() && annexes.note_crowd() {
                return Err(Unfit::Crowded { range, part });
            }
        }
        if !annexes.are_wanted() {
            return Ok(());
        }
        match self.found_annex(held, &part, nodes) {
            Founded::Unprepared => Ok(()),
            Founded::TooNear if held.had_to_wait() => Err(Unfit::Crowded { range, part }),
            found => {
                annexes.note_asked(found == Founded::Made);
                Ok(())
            }
        }
    }

    /// Returns what a part has inside the lane of `near`, where the areas that reach its bounds do not cross them.
    #[cold]
    fn clipped(
        &self,
        lanes: &LaneRooms<P>,
        near: VirtAddr,
        range: PageRange,
        part: Range<u64>,
    ) -> Result<Range<u64>, Unfit> {
        let bounds = lanes.bounds(near.get());
        if !lanes.is_part_at(near.get(), &range.numbers()) {
            // The call reaches a bound itself, and has everything.
            return Ok(part);
        }
        if part.start < bounds.start || bounds.end < part.end {
            return Err(Unfit::Crossing(part));
        }
        // SAFETY: who edits these areas has the lock of what is held, and the areas' lane is this one.
        let permit = unsafe { ReadPermit::assume(self) };
        let around = range.start() - 1..range.end() + 1;
        match permit.mixes_roots(&around) {
            Mixed::Yes => Err(Unfit::Mixed),
            Mixed::No => Ok(part.start.max(bounds.start + 1)..part.end.min(bounds.end - 1)),
        }
    }

    /// Makes an annex around a part; under the lock of the rest's table.
    #[cold]
    fn found_annex(
        &self,
        held: &HeldRanges<'_, P>,
        part: &Range<u64>,
        nodes: &mut Option<MoveNodes<'_, P>>,
    ) -> Founded {
        let Some(lanes) = self.lane_rooms() else { return Founded::Unprepared };
        let annexes = lanes.annexes();
        let bounds = granule_below(part.start)..granule_above(part.end);
        let _beside = self.look_beside();
        let is_below = self.index.last_starting_before(part.start).is_none_or(|below| below.end < bounds.start);
        let is_above = self.index.first_ending_after(part.end).is_none_or(|above| above.start > bounds.end);
        let piece = lanes.bounds(part.start);
        let is_inside = piece.start <= bounds.start && bounds.end <= piece.end;
        if !(is_below && is_above && is_inside && annexes.are_free(&bounds)) || is_held(held, &bounds) {
            return Founded::TooNear;
        }
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
    fn grow_annex(&self, annex: usize, part: &Range<u64>) -> Option<()> {
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
    /// Makes room for what did not fit into a lane; the caller has everything.
    #[cold]
    pub(super) fn make_fit(&self, permit: WritePermit<'_, P, D>, unfit: &Unfit) {
        match unfit {
            Unfit::Crossing(area) => self.cut_at_bounds(permit, area),
            Unfit::Crowded { range, part } => {
                let Some(lanes) = self.lane_rooms() else { return };
                if lanes.annexes().are_used_up() {
                    self.begin_anew(permit);
                }
                let is_made = self.carve_annex(permit, *range, part);
                lanes.annexes().note_asked(is_made);
            }
            Unfit::Mixed => {}
        }
    }

    /// Makes seams of the bounds of annexes that an area crosses, as far as it may be cut; lets those annexes go that it
    /// crosses all the same.
    fn cut_at_bounds(&self, permit: WritePermit<'_, P, D>, area: &Range<u64>) {
        let Some(lanes) = self.lane_rooms() else { return };
        for (annex, bounds) in lanes.annexes().each() {
            let is_crossed = |bound: u64| area.start < bound && bound < area.end;
            let cut = |bound: u64| !is_crossed(bound) || permit.cut_seam(bound).unwrap_or(false);
            if !bounds.is_empty() && !(cut(bounds.start) && cut(bounds.end)) {
                _ = self.give_annex_up(permit, annex, bounds);
            }
        }
        lanes.look_for_crossing(&self.index);
        self.prune_bounds_that_went();
    }

    fn prune_bounds_that_went(&self) {
        // Among them tables that spanned a bound, and now span none.
        let left_over = self.lock.left_over().map_or(0..0, LeftOver::taken);
        if let Some(range) = PageRange::between(VirtAddr::new(left_over.start), VirtAddr::new(left_over.end)) {
            self.prune_holes(range);
        }
    }

    fn give_annex_up(&self, permit: WritePermit<'_, P, D>, annex: usize, bounds: Range<u64>) -> Option<()> {
        debug_assert!(!self.lock.is_divided(), "A1");
        let (lanes, nodes) = (self.lane_rooms()?, &self.vm().nodes);
        for bound in [bounds.start, bounds.end].map(VirtAddr::new) {
            permit.join_seams(&(bound..bound));
        }
        let index = lanes.index_of_annex::<Area<P, D>>(annex);
        let nr_areas = index.overlapping(0..u64::MAX).take(MOST_MOVED + 1).count();
        if nr_areas > MOST_MOVED {
            return None;
        }
        let mut spare = Index::<P, Area<P, D>>::reserve_nodes(nodes, 0).ok()?;
        // Each edit may make it a level higher.
        spare.fill_up_to(nr_areas * (self.index.nr_nodes_for_edit() + 2)).ok()?;
        let mut spare = Some(spare);
        D::update_index(self, || {
            for area in index.overlapping(0..u64::MAX) {
                let nodes = spare.take().expect("an edit gives back what it did not need");
                let added = self.index.prepare_from(area.start..area.end, once(area), nodes);
                spare = added.expect("as many as were set aside").commit(|| self.is_looked_at());
            }
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

impl<P: System, D: Design<P>> Space<P, D> {
    /// Lets all annexes go, so that fewer and larger ones come; the caller has everything.
    fn begin_anew(&self, permit: WritePermit<'_, P, D>) {
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
    fn carve_annex(&self, permit: WritePermit<'_, P, D>, range: PageRange, part: &Range<u64>) -> bool {
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

    /// Makes an annex of what lies inside bounds that no area crosses; nothing if there is too much of it, or no memory.
    /// The caller has everything.
    fn take_all_along(&self, lanes: &LaneRooms<P>, bounds: &Range<u64>) -> Option<()> {
        let nodes = &self.vm().nodes;
        let annex = lanes.annexes().nr();
        let index = lanes.index_of_annex::<Area<P, D>>(annex);
        let nr_areas = self.index.overlapping(bounds.clone()).take(MOST_MOVED + 1).count();
        if nr_areas > MOST_MOVED {
            return None;
        }
        let mut spare = Index::<P, Area<P, D>>::reserve_nodes(nodes, 0).ok()?;
        let nr_of_first_levels = Index::<P, Area<P, D>>::nr_nodes_in_levels(4);
        spare.fill_up_to(nr_areas * nr_of_first_levels + self.index.nr_nodes_for_edit()).ok()?;
        let mut spare = Some(spare);
        lanes.note_used();
        // As in `take_along`.
        index.note_all_lookers();
        D::update_index(self, || {
            for area in self.index.overlapping(bounds.clone()) {
                let nodes = spare.take().expect("an edit gives back what it did not need");
                let added = index.prepare_from(area.start..area.end, once(area), nodes);
                spare = added.expect("as many as were set aside").commit(|| self.is_looked_at());
            }
            lanes.annexes().publish(annex, bounds);
            if nr_areas != 0 {
                let nodes = spare.take().expect("an edit gives back what it did not need");
                let taken = self.index.prepare_from(bounds.clone(), empty::<IndexEntry<Area<P, D>>>(), nodes);
                spare = taken.expect("as many as were set aside").commit(|| self.is_looked_at());
            }
        });
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
