//! How a part is fitted into its lane, and what makes room for one that does not fit.
//!
//! # Guarantee
//! A part that a call gets lies inside its lane (N2 of `lane_rooms`), or the call has everything. Whoever has
//! everything because areas are in the way sees to it that the next call does not need to, as far as memory goes.

use super::Space;
use super::annex_edits::{Comes, Founded, MoveNodes};
use super::lane_rooms::LaneRooms;
use super::map_lock::MapLock;
use super::permit::{ReadPermit, WritePermit};
use super::seams::Mixed;
use crate::addr::{PageRange, VirtAddr};
use crate::design::Design;
use crate::system::System;
use core::ops::Range;
use faultless_sync::HeldRanges;

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

impl<P: System, D: Design<P>> Space<P, D> {
    /// Fits a part that is chosen into the lane of `near`: gives it an annex, or more room in the one that it lies in,
    /// or leaves out the bounds of the lane that areas reach which the range meets. The caller has the lock of the
    /// table that `near` belonged to when it began to wait for that.
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
        let around = VirtAddr::new(range.start().get().saturating_sub(1))..range.end() + 1;
        match permit.mixes_roots(&around) {
            Mixed::Yes => Err(Unfit::Mixed),
            Mixed::No => Ok(part.start.max(bounds.start + 1)..part.end.min(bounds.end - 1)),
        }
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

    /// Makes seams of the bounds of annexes that an area crosses, as far as it may be cut; lets those annexes go that
    /// it crosses all the same.
    fn cut_at_bounds(&self, permit: WritePermit<'_, P, D>, area: &Range<u64>) {
        let Some(lanes) = self.lane_rooms() else { return };
        for (annex, bounds) in lanes.annexes().each() {
            let is_crossed = |bound: u64| area.start < bound && bound < area.end;
            let cut = |bound: u64| !is_crossed(bound) || permit.cut_seam(bound).unwrap_or(false);
            let is_apart = bounds.is_empty() || cut(bounds.start) && cut(bounds.end);
            if !is_apart {
                _ = self.give_annex_up(permit, annex, bounds);
            }
        }
        lanes.look_for_crossing(&self.index);
        self.prune_bounds_that_went();
    }
}
