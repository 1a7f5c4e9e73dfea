//! How a part is fitted into its lane, and what makes room for one that does not fit.
//!
//! # Guarantee
//! A part that a call gets lies inside its lane (N2 of `lane_rooms`), or reaches one bound and comes with what lies
//! beyond (S4 of `seams`), or the call has everything. Whoever has everything because areas are in the way sees to it
//! that the next call does not need to, as far as memory goes.

use super::annex_edits::{Comes, Founded, MoveNodes};
use super::lane_rooms::LaneRooms;
use super::map_lock::MapLock;
use super::own_lane::OwnLane;
use super::permit::{ReadPermit, WritePermit};
use super::seams::Mixed;
use super::{AreaAt, Space};
use crate::addr::{PageRange, USER_END, VirtAddr};
use crate::area::Area;
use crate::design::Design;
use crate::system::System;
use core::ops::Range;
use faultless_sync::{HeldRanges, PartTableRef};

/// What a call is about, under the lock of what is held.
pub(super) struct Wanted<'w, 'a, P: System, D: Design<P>> {
    /// Whose table that lock is of.
    pub(super) near: VirtAddr,
    pub(super) held: &'w HeldRanges<'w, P>,
    /// The lane, if that alone has what lies there.
    pub(super) lane: Option<&'w OwnLane<'a, P, Area<P, D>>>,
    /// What the call names.
    pub(super) range: PageRange,
    /// With the areas that it meets.
    pub(super) part: Range<u64>,
    pub(super) comes: Comes,
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

impl Unfit {
    /// Says whether who has everything for that reason does away with it, so that who meets it meanwhile comes behind.
    pub(super) fn is_mended(&self) -> bool {
        !matches!(self, Self::Mixed)
    }
}

/// Where a part reaches a bound of its lane.
pub(super) struct Reach {
    /// The bound, if the call reaches it itself and has what lies beyond; else only an area does that it touches.
    pub(super) bound: Option<u64>,
    /// What the call names.
    pub(super) range: PageRange,
}

/// What a call gets.
pub(super) enum Fitted<'a, P: System> {
    /// A part of the lane; of what reaches a bound, or crosses it, comes everything.
    Inside(Range<u64>),
    /// A part that reaches one bound, and what lies beyond, whose lane's lock is had.
    Both(Range<u64>, Range<u64>),
    /// Nothing yet: that lock is somebody's.
    Later(PartTableRef<'a, P>),
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Fits a part that is chosen into the lane of `near`: gives it an annex, or more room in the one that it lies in,
    /// or leaves out the bounds of the lane that areas reach which the range meets. The caller has the lock of the
    /// table that `near` belonged to when it began to wait for that, and maybe another one, or gets that here.
    pub(super) fn fit_part<'a>(
        &'a self,
        wanted: &Wanted<'_, 'a, P, D>,
        other: &mut Option<HeldRanges<'a, P>>,
        nodes: &mut Option<MoveNodes<'_, P>>,
    ) -> Result<Fitted<'a, P>, Unfit> {
        let (&Wanted { near, held, range, comes, .. }, part) = (wanted, wanted.part.clone());
        let Some(lanes) = self.lane_rooms() else { return Ok(Fitted::Inside(part)) };
        if lanes.is_cpus(near.get()) || !self.lock.is_edited_by(near, held) {
            return Ok(Fitted::Inside(part));
        }
        let is_one = lanes.is_part_at(near.get(), &part);
        match lanes.annexes().at(near.get()) {
            Some(_) if is_one => return Ok(Fitted::Inside(part)),
            // It was asked to grow before; who has two locks waits for no third one.
            Some(_) if other.is_some() => {}
            Some(annex) if comes == Comes::AnArea && !lanes.is_part_at(near.get(), &range.numbers()) => {
                _ = self.grow_annex(annex, &part);
            }
            Some(_) => {}
            None if is_one || lanes.is_part_at(near.get(), &range.numbers()) => {
                self.found_or_want(lanes, (range, part.clone()), held, nodes)?;
            }
            None => {}
        }
        if is_one || lanes.is_part_at(near.get(), &part) {
            Ok(Fitted::Inside(part))
        } else {
            self.clipped(lanes, wanted, other)
        }
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

    /// Returns what a part has inside the lane of `near`, where the areas that reach its bounds do not cross them; with
    /// what lies beyond one that the call reaches itself.
    #[cold]
    fn clipped<'a>(
        &'a self,
        lanes: &LaneRooms<P>,
        wanted: &Wanted<'_, 'a, P, D>,
        other: &mut Option<HeldRanges<'a, P>>,
    ) -> Result<Fitted<'a, P>, Unfit> {
        let (&Wanted { near, range, .. }, part) = (wanted, wanted.part.clone());
        let bounds = lanes.bounds(near.get());
        if !lanes.is_part_at(near.get(), &range.numbers()) {
            let both = self.with_beyond((lanes, &bounds), wanted, other);
            return both.transpose().unwrap_or(Ok(Fitted::Inside(part)));
        }
        if part.start < bounds.start || bounds.end < part.end {
            return Err(Unfit::Crossing(part));
        }
        match self.is_decided(&Reach { bound: None, range }, wanted.comes) {
            false => Err(Unfit::Mixed),
            true => Ok(Fitted::Inside(part.start.max(bounds.start + 1)..part.end.min(bounds.end - 1))),
        }
    }

    /// Says whether it is known which root each area has in the end that a call about a range touches (S4 and S5 of
    /// `seams`). Asked when a part is chosen, by who has the lock of all that edit these areas: whoever has some of
    /// them may still give roots, and make seams. So it is asked again by who has the part, and then it stays.
    pub(super) fn is_decided(&self, reach: &Reach, comes: Comes) -> bool {
        // SAFETY: nobody edits these areas meanwhile: the caller has the locks of edits, or parts of all of them.
        let permit = unsafe { ReadPermit::assume(self) };
        let around = VirtAddr::new(reach.range.start().get().saturating_sub(1))..reach.range.end() + 1;
        let is_unmixed = || permit.mixes_roots(&around) == Mixed::No;
        match reach.bound {
            None => is_unmixed(),
            // What comes takes one of several roots, and Linux asks the lower neighbour first.
            Some(_) => !permit.have_several_roots(&around) || comes == Comes::AnArea && is_unmixed(),
        }
    }

    /// Returns a part that reaches one bound of its lane, and the area beyond that bound; nothing if the call reaches
    /// both bounds, or what lies beyond is a CPU's.
    fn with_beyond<'a>(
        &'a self,
        (lanes, bounds): (&LaneRooms<P>, &Range<u64>),
        Wanted { range, part, comes, .. }: &Wanted<'_, 'a, P, D>,
        other: &mut Option<HeldRanges<'a, P>>,
    ) -> Result<Option<Fitted<'a, P>>, Unfit> {
        let Range { start, end } = range.numbers();
        // Of an area that reaches the other bound, the part leaves the outermost byte out, as always.
        let (own, bound, inside, beyond) = if start == bounds.start && start > 0 && end < bounds.end {
            (start..part.end.min(bounds.end - 1), start, start, start - 1)
        } else if end == bounds.end && end <= USER_END && start > bounds.start {
            (part.start.max(bounds.start + 1)..end, end, end - 1, end)
        } else {
            return Ok(None);
        };
        let (beyond, inside) = (VirtAddr::new(beyond), VirtAddr::new(inside));
        let Some(table) = self.lock.parts_at(beyond).filter(|_| !lanes.is_cpus(beyond.get())) else { return Ok(None) };
        if !other.as_ref().is_some_and(|held| held.is_of(table)) {
            *other = table.try_lock();
        }
        if !other.as_ref().is_some_and(|held| self.lock.is_edited_by(beyond, held)) {
            return Ok(Some(Fitted::Later(table)));
        }
        // SAFETY: both lanes' locks of edits are had.
        let permit = unsafe { ReadPermit::assume(self) };
        let crosses_far = if bound == start { bounds.end < part.end } else { part.start < bounds.start };
        if crosses_far {
            return Err(Unfit::Crossing(part.clone()));
        }
        let (lane, neighbour) = (lanes.bounds(beyond.get()), permit.containing(beyond));
        let addresses = |entry: AreaAt<'_, P, D>| entry.start.get()..entry.end.get();
        let crosses = |area: &Range<u64>, lane: &Range<u64>| area.start < lane.start || lane.end < area.end;
        for (entry, lane) in [(permit.containing(inside), bounds), (neighbour, &lane)] {
            if let Some(area) = entry.map(addresses).filter(|area| crosses(area, lane)) {
                return Err(Unfit::Crossing(area));
            }
        }
        // What may be one with a neighbour that may be cut can be cut as well: a seam can be made in the end.
        if neighbour.is_some_and(|entry| !entry.area().view().is_cuttable()) {
            return Ok(None);
        }
        if !self.is_decided(&Reach { bound: Some(bound), range: *range }, *comes) {
            return Err(Unfit::Mixed);
        }
        let area = neighbour.map_or(beyond.get()..beyond.get() + 1, addresses);
        let beyond =
            if bound == start { area.start.max(lane.start + 1)..bound } else { bound..area.end.min(lane.end - 1) };
        Ok(Some(Fitted::Both(own, beyond)))
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
                if lanes.piece(range.start().get()).is_none() {
                    // Somebody else has made one meanwhile.
                    return;
                }
                if lanes.annexes().are_used_up() && lanes.annexes().may_begin_anew() {
                    self.begin_anew(permit);
                }
                let is_made = self.carve_annexes(permit, *range, part);
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
