//! What a change makes of the areas: what stays, what comes, and the index's edit.
//!
//! # Guarantee
//! Nothing that others can see has changed, and everything is allocated that [`Change::commit`] needs.

use super::{Change, Join, NewArea, Piece};
use crate::addr::{PageRange, VirtAddr};
use crate::area::{Area, AreaFlags, AreaView};
use crate::content::Behind;
use crate::design::Design;
use crate::index::{Around, Index, Spare};
use crate::space::AreaAt;
use crate::space::editing::Editing;
use crate::space::lane_rooms::Edited;
use crate::space::map_lock::MapLock;
use crate::space::own_lane::hole_between;
use crate::space::permit::WritePermit;
use crate::system::System;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_phys::OutOfFrames;
use faultless_platform::mutant;
use faultless_platform::{TouchKind, Tracepoint};

/// Whether what takes part is counted already.
#[derive(PartialEq, Eq)]
enum Count {
    Done,
    Due,
}

impl<'a, P: System, D: Design<P>> Change<'a, P, D> {
    /// Prepares the change, which puts `new`, or nothing, in place of what its range holds. The caller has checked the
    /// limits.
    #[inline(never)]
    pub(in crate::space) fn fill(&mut self, new: Option<NewArea<P>>) -> Result<(), OutOfFrames> {
        if self.plan(new)? == Count::Due {
            self.count_before();
        }
        self.prepare_edit()?;
        // Where nobody edits beside the caller, there is nothing in the places for that lock, and for several indexes.
        let of_parts = 2 * size_of::<Option<Editing<'_, P, D>>>() + size_of::<Option<Spare<'_, P>>>();
        let unused_bytes = if D::Lock::DIVIDES { 0 } else { of_parts };
        P::touch(core::ptr::from_ref(self).cast(), size_of_val(self) - unused_bytes, TouchKind::Write);
        Ok(())
    }

    /// Returns the lock of edits, if it was had before the change is prepared.
    fn edit_had(&self) -> Option<&Editing<'a, P, D>> {
        self.reserve.as_ref()?.edit()
    }

    /// Finds what stays and what comes; says whether it has counted what takes part, too.
    fn plan(&mut self, new: Option<NewArea<P>>) -> Result<Count, OutOfFrames> {
        let (permit, range) = (self.space, self.range);
        let around = permit.around(range, self.edit_had());
        let [below, above] = permit.neighbours(range, around.as_ref());
        let hole =
            hole_between(&range.numbers(), below.map(|entry| entry.end.get()), above.map(|entry| entry.start.get()));
        self.fills_a_hole =
            around.as_ref().map(|around| around.first.is_none_or(|first| first.start >= range.end().get()));
        let is_of_now = self.edit_had().is_some() || !permit.lock.may_be_divided();
        self.hole = is_of_now.then_some(hole);
        // An area that merely touches the range matters only if something can join it.
        let matters = |overlap: bool, touches: bool| overlap || (touches && new.is_some());
        if let Some(entry) = below
            && matters(entry.end > range.start(), entry.end == range.start())
        {
            self.pieces[0] = Some(self.trimmed_left(&entry, range, new.as_ref()));
        }
        if let Some(entry) = above
            && matters(entry.start < range.end(), entry.start == range.end())
        {
            self.pieces[2] = Some(self.trimmed_right(&entry, range, new.as_ref())?);
        }
        let [left, _, right] = &self.pieces;
        let is_apart = left.is_none() && right.is_none();
        if let Some(new) = new {
            debug_assert_eq!((new.view.start, new.view.end), (range.start(), range.end()), "it fills the range");
            self.place(new)?;
        }
        if is_apart {
            // All that takes part lies in the range, which is the span already.
            return Ok(around.map_or(Count::Due, |around| self.count_inside(&around)));
        }
        self.leave_untouched();
        let present = || self.pieces.iter().flatten();
        let low = present().map(|piece| piece.view.start).min().map_or(range.start(), |low| low.min(range.start()));
        let high = present().map(|piece| piece.view.end).max().map_or(range.end(), |high| high.max(range.end()));
        self.span = (low.get(), high.get());
        Ok(Count::Due)
    }

    /// As `count_before`, of areas that lie in the range, if there is one at most.
    fn count_inside(&mut self, around: &Around<Area<P, D>>) -> Count {
        match (around.nr_up_to_end, around.first) {
            (0, _) => Count::Done,
            (1, Some(first)) => {
                let entry = AreaAt::new(first);
                self.before.add(entry.area().flags(), entry.end - entry.start);
                self.only = Some(entry);
                Count::Done
            }
            _ => Count::Due,
        }
    }

    fn trimmed_left(&self, entry: &AreaAt<'_, P, D>, range: PageRange, new: Option<&NewArea<P>>) -> Piece<P, D> {
        let view = neighbour(entry, range, new.map(|new| &new.view)).below(range.start());
        Piece { area: entry.place(), view, is_fresh: false }
    }

    /// Returns what stays of an area behind the range; a new area if its left part stays too.
    fn trimmed_right(
        &mut self,
        entry: &AreaAt<'_, P, D>,
        range: PageRange,
        new: Option<&NewArea<P>>,
    ) -> Result<Piece<P, D>, OutOfFrames> {
        let area = entry.area();
        let view = neighbour(entry, range, new.map(|new| &new.view)).from(range.end());
        if self.pieces[0].as_ref().is_some_and(|left| left.area == entry.place()) {
            let area = self.new_area(&view, area.behind().clone())?;
            return Ok(Piece { area, view, is_fresh: true });
        }
        Ok(Piece { area: entry.place(), view, is_fresh: false })
    }

    fn new_area(&mut self, view: &AreaView<P>, behind: Behind<P>) -> Result<NonNull<Area<P, D>>, OutOfFrames> {
        let area = match self.reserve.as_mut().and_then(|reserve| reserve.area.take()) {
            Some(area) => area,
            None if self.edit_had().is_some() => self.alloc_locked()?,
            None => self.alloc_area()?,
        };
        write_area(area, view, behind);
        if self.is_followed || self.space.meets_bound(&(view.start..view.end)) {
            // SAFETY: just written, and still ours.
            unsafe { area.as_ref() }.pinned_root();
        }
        Ok(area)
    }

    /// Takes memory for an area under the lock of edits, if that takes no sleeping: who lets go of it and comes back
    /// stands behind all who wait for it, some of whom wait for his part.
    #[cold]
    fn alloc_locked(&mut self) -> Result<NonNull<Area<P, D>>, OutOfFrames> {
        let areas = &self.space.space().vm().areas;
        areas.try_alloc().or_else(|_| {
            self.end_edit();
            self.alloc_area()
        })
    }

    fn alloc_area(&self) -> Result<NonNull<Area<P, D>>, OutOfFrames> {
        let _kept = self.space.space().keep_slot();
        self.space.vm().areas.alloc()
    }

    /// Puts the new area between its neighbours, joined with them where they allow it.
    fn place(&mut self, new: NewArea<P>) -> Result<(), OutOfFrames> {
        self.may_join = new.join == Join::Allowed;
        let [left, _, right] = &mut self.pieces;
        let may_join_below = matches!(new.join, Join::Allowed | Join::Below);
        let may_join_above = matches!(new.join, Join::Allowed | Join::Above);
        let mut view = new.view;
        let mut host = None;
        if let Some(piece) = left
            && new.join == Join::Seam
        {
            piece.view.flags |= AreaFlags::SEAM_ABOVE;
            view.flags |= AreaFlags::SEAM_BELOW;
        }
        if let Some(piece) = left
            && may_join_below
            && piece.view.joins(&view)
        {
            view = joined(&piece.view, &view);
            host = Some((piece.area, piece.is_fresh));
            *left = None;
        }
        if let Some(piece) = right
            && may_join_above
            && view.joins(&piece.view)
        {
            view = joined(&view, &piece.view);
            let other = (piece.area, piece.is_fresh);
            *right = None;
            match host {
                None => host = Some(other),
                Some(_) if other.1 => self.space.discard(other.0),
                Some(_) => {}
            }
        }
        let (area, is_fresh) = match host {
            Some(host) => host,
            None => (self.new_area(&view, new.behind)?, true),
        };
        self.pieces[1] = Some(Piece { area, view, is_fresh });
        Ok(())
    }

    /// Lets go of neighbours that stay as they are: their faults need not notice anything.
    fn leave_untouched(&mut self) {
        let [left, _, right] = &mut self.pieces;
        for place in [left, right] {
            place.take_if(|piece| {
                let view = &piece.view;
                !piece.is_fresh && piece.area().bounds_and_flags() == (view.start, view.end, view.flags)
            });
        }
    }

    fn count_before(&mut self) {
        let (mut nr_found, mut before, mut only) = (0, self.before, None);
        for entry in self.space.overlapping_with(self.span.0..self.span.1, self.edit_had()) {
            before.add(entry.area().flags(), entry.end - entry.start);
            nr_found += 1;
            only = (nr_found == 1).then_some(entry);
        }
        (self.before, self.only) = (before, only);
    }

    fn prepare_edit(&mut self) -> Result<(), OutOfFrames> {
        let space = self.space.space();
        let span = self.span.0..self.span.1;
        let spare = self.reserve.as_mut().and_then(|reserve| reserve.nodes.take());
        let adds = self.pieces.iter().flatten().next().is_some();
        let index = match self.edit_had().and_then(|edit| edit.lane_around(&span)) {
            Some(lane) => {
                if adds && lane.notes_lookers {
                    space.note_lanes_used();
                }
                lane.index
            }
            None => match space.edited_indexes(&span, adds) {
                Edited::One(index) => index,
                Edited::Several(lanes) => return self.prepare_wide(lanes, spare),
            },
        };
        if self.edit_had().is_none() && !space.lock.is_divided() {
            let edit = self.edit.insert(index.unprepared(&space.vm().nodes, spare));
            return edit.prepare(span, self.pieces.iter().flatten().map(Piece::entry));
        }
        self.prepare_edit_beside(index, spare)
    }

    /// As [`Change::prepare_edit`], where others may edit.
    #[inline(never)]
    fn prepare_edit_beside(
        &mut self,
        index: &'a Index<P, Area<P, D>>,
        mut spare: Option<Spare<'a, P>>,
    ) -> Result<(), OutOfFrames> {
        let (space, span) = (self.space.space(), self.span.0..self.span.1);
        // Nobody sleeps under the lock: what is set aside mostly is enough, or what is had at once.
        let mut nr_more = 2;
        while self.edit.is_none() {
            let nodes = match spare.take() {
                Some(nodes) => nodes,
                None => {
                    let nr_nodes = self.nr_levels() + nr_more;
                    nr_more *= 2;
                    let _kept = space.keep_slot();
                    Index::<P, Area<P, D>>::reserve_nodes(&space.vm().nodes, nr_nodes)?
                }
            };
            self.edit_guard = self.reserve.as_mut().and_then(|reserve| reserve.edit.take());
            if self.edit_guard.is_none() {
                self.edit_guard = space.edit_at(VirtAddr::new(span.start));
            }
            let entries = self.pieces.iter().flatten().map(Piece::entry);
            let edit = self.edit.insert(index.unprepared_from(nodes));
            if !edit.is_prepared(span.clone(), entries) {
                self.edit = None;
                self.end_edit();
            }
        }
        mutant!(EditOfOldVersion => self.edit_guard = None);
        Ok(())
    }

    fn nr_levels(&self) -> usize {
        let _beside = self.space.look_beside();
        self.space.nr_index_levels(self.span.0)
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Returns the last area that starts below a range, and the first one that ends behind it: of what one look found,
    /// or else by a look for each.
    #[inline(always)]
    pub(super) fn neighbours(
        self,
        range: PageRange,
        around: Option<&Around<Area<P, D>>>,
    ) -> [Option<AreaAt<'g, P, D>>; 2] {
        match around {
            Some(around) => [around.below.map(AreaAt::new), around.above.map(AreaAt::new)],
            None => self.around_in_lane(range),
        }
    }

    /// Returns the last area that starts below a range, and the first one that ends behind it; of who has a part, only
    /// such as lie in the range's lane: with what lies beyond a bound nothing is joined here (`space::seams`).
    fn around_in_lane(self, range: PageRange) -> [Option<AreaAt<'g, P, D>>; 2] {
        let around = [self.last_starting_before(range.start()), self.first_ending_after(range.end())];
        if !self.meets_bound(&range.addresses()) {
            return around;
        }
        let Range { start, end } = self.lane_bounds(range.start().get());
        around.map(|entry| entry.filter(|entry| (start..end).contains(&entry.start.get())))
    }
}

/// Makes an area in room that a slab gave, for the change that it comes with.
#[inline(always)]
pub(in crate::space) fn write_area<P: System, D: Design<P>>(
    area: NonNull<Area<P, D>>,
    view: &AreaView<P>,
    behind: Behind<P>,
) {
    // SAFETY: the slab gave us room for an area.
    unsafe { area.write(Area::new(view, behind)) };
    P::touch(area.as_ptr().cast(), size_of::<Area<P, D>>(), TouchKind::Write);
    if P::WATCHED {
        // SAFETY: just written, and still ours.
        let area = unsafe { area.as_ref() };
        P::trace(Tracepoint::named("an area's bounds and rights", area));
        P::trace(Tracepoint::named(D::AREA_STATE_NAME, &area.state));
    }
}

/// An area that touches what comes, with that, as one.
pub(in crate::space) struct Grown<P: System> {
    pub(in crate::space) view: AreaView<P>,
    /// Whether its bounds alone differ.
    pub(in crate::space) moves_bounds_alone: bool,
}

/// Returns an area that touches what comes in a range, with that, as one; nothing if they stay apart.
#[inline]
pub(in crate::space) fn grown<P: System, D: Design<P>>(
    entry: &AreaAt<'_, P, D>,
    range: PageRange,
    new: &AreaView<P>,
) -> Option<Grown<P>> {
    let view = &neighbour(entry, range, Some(new));
    let (below, above) = if view.end == new.start { (view, new) } else { (new, view) };
    below.joins(above).then(|| {
        let grown = joined(below, above);
        Grown { view: grown, moves_bounds_alone: (view.flags, view.root) == (grown.flags, grown.root) }
    })
}

/// Returns a view of an area that meets a range. The area's root is pinned if the change cuts the area, or may join it
/// with what is new.
fn neighbour<P: System, D: Design<P>>(
    entry: &AreaAt<'_, P, D>,
    range: PageRange,
    new: Option<&AreaView<P>>,
) -> AreaView<P> {
    let view = entry.area().view();
    let is_cut = view.start < range.end() && range.start() < view.end;
    let may_join = |new: &AreaView<P>| joins_but_for_roots(&view, new) || joins_but_for_roots(new, &view);
    let is_pinned = D::ROOTS_FREELY && (is_cut || new.is_some_and(may_join));
    if is_pinned { AreaView { root: entry.area().pinned_root(), ..view } } else { view }
}

fn joins_but_for_roots<P: System>(below: &AreaView<P>, above: &AreaView<P>) -> bool {
    AreaView { root: 0, ..*below }.joins(&AreaView { root: 0, ..*above })
}

/// Returns two neighbours as one.
fn joined<P: System>(left: &AreaView<P>, right: &AreaView<P>) -> AreaView<P> {
    let (root, inherited) = if left.root == 0 { (right.root, right.flags) } else { (left.root, left.flags) };
    let of_right = right.flags & (AreaFlags::MAYBE_GUARD | AreaFlags::SEAM_ABOVE);
    let of_left = left.flags - AreaFlags::INHERITED - AreaFlags::SEAM_ABOVE;
    let flags = of_left | (inherited & AreaFlags::INHERITED) | of_right;
    AreaView { end: right.end, root, flags, ..*left }
}
