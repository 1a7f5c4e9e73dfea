//! The one place that edits the area list.
//!
//! # Guarantee
//! [`Change::prepare`] allocates everything; [`Change::commit`] can't fail. So a call that runs out of memory or hits
//! the limit of areas has changed nothing.
//!
//! # What a change is
//! ```text
//! before    LLLLLLL CC DDDD RRRRRR      L sticks out to the left, R to the right, C and D are covered
//! range         [............)
//! after     LLLLNNNNNNNNNNNNNRRRRR      N is new, or nothing; it is joined with L and R where they allow it
//! ```
//! If L and R are one area, R becomes an area of its own.

use super::map_lock::{EditGuard, MapLock};
use super::permit::WritePermit;
use super::{AreaAt, Space};
use crate::addr::{PAGE, PageRange, USER_END, VirtAddr};
use crate::area::{Area, AreaFlags, AreaView};
use crate::content::Behind;
use crate::design::Design;
use crate::error::CallError;
use crate::index::{Edit, Index, IndexEntry, Spare};
use crate::system::System;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_phys::OutOfFrames;
use faultless_platform::mutant;
use faultless_platform::{Atomic, Ordering, TouchKind, Tracepoint};

/// An area that stays or comes, with what it shall be.
struct Piece<P: System, D: Design<P>> {
    area: NonNull<Area<P, D>>,
    view: AreaView<P>,
    is_fresh: bool,
}

impl<P: System, D: Design<P>> Clone for Piece<P, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System, D: Design<P>> Copy for Piece<P, D> {}

impl<P: System, D: Design<P>> Piece<P, D> {
    fn entry(&self) -> IndexEntry<Area<P, D>> {
        IndexEntry { start: self.view.start.get(), end: self.view.end.get(), area: self.area }
    }
}

/// A new area, before it is one.
pub(super) struct NewArea<P: System> {
    pub(super) view: AreaView<P>,
    pub(super) behind: Behind<P>,
    pub(super) join: Join,
}

/// Whether a new area may become part of its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// It may.
    Allowed,
    /// It stays by itself, as a forked one does.
    Never,
    /// With the area above it only, as a stack that grows.
    Above,
}

/// How much there is of what a space counts.
///
/// ```
/// use faultless_vm::AreaFlags;
/// use faultless_vm::design::Sizes;
///
/// let mut sizes = Sizes::default();
/// sizes.add(AreaFlags::READ | AreaFlags::WRITE, 8192);
/// sizes.add(AreaFlags::READ | AreaFlags::LOCKED, 4096);
/// assert_eq!((sizes.areas, sizes.bytes, sizes.data_bytes, sizes.locked_bytes), (2, 12288, 8192, 4096));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Areas.
    pub areas: u64,
    /// Bytes of all areas.
    pub bytes: u64,
    /// Bytes of private writable areas but stacks.
    pub data_bytes: u64,
    /// Bytes of locked areas.
    pub locked_bytes: u64,
}

impl Sizes {
    /// Counts `bytes` of an area as one area.
    pub fn add(&mut self, flags: AreaFlags, bytes: u64) {
        // What leaves is counted as what it was, until it has left.
        if flags.contains(AreaFlags::LEAVING) {
            return;
        }
        self.areas += 1;
        self.bytes += bytes;
        self.data_bytes += if flags.is_data() { bytes } else { 0 };
        self.locked_bytes += if flags.contains(AreaFlags::LOCKED) { bytes } else { 0 };
    }
}

/// Which areas a change is announced to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced {
    /// Every area that takes part.
    All,
    /// All but those that are removed: a known bug.
    #[cfg(feature = "mutants")]
    Staying,
    /// Nobody: a known bug.
    #[cfg(feature = "mutants")]
    Nobody,
}

impl Announced {
    /// Says whether an area is told that takes part, and is removed or not.
    fn reaches(self, _is_removed: bool) -> bool {
        match self {
            Self::All => true,
            #[cfg(feature = "mutants")]
            Self::Staying => !_is_removed,
            #[cfg(feature = "mutants")]
            Self::Nobody => false,
        }
    }
}

/// Memory set aside, so that a later change that removes one range can't fail.
pub(super) struct Reserve<'a, P: System, D: Design<P>> {
    space: &'a Space<P, D>,
    nodes: Option<Spare<'a, P>>,
    area: Option<NonNull<Area<P, D>>>,
    /// The lock of edits, had already; whoever must allocate lets go of it first.
    edit: Option<EditGuard<'a, P>>,
}

/// A prepared change; see the module.
#[must_use = "a change that is dropped changes nothing"]
pub(super) struct Change<'a, P: System, D: Design<P>> {
    space: WritePermit<'a, P, D>,
    /// `All`, but where a known bug is put back.
    announced: Announced,
    reserve: Option<Reserve<'a, P, D>>,
    edit: Option<Edit<'a, P>>,
    /// Keeps others from editing the index and the counters, from the edit's preparation until they are changed, where
    /// others could (R3 of `ranges`).
    edit_guard: Option<EditGuard<'a, P>>,
    /// Left, new, right: in order, as far as they exist.
    pieces: [Option<Piece<P, D>>; 3],
    /// The range that changes; outside it only areas' bounds move.
    range: PageRange,
    /// All areas that start in here take part.
    span: (u64, u64),
    /// What is free around the range, and it: from the area below to the one above.
    hole: Range<u64>,
    /// The one area that takes part, if it is one.
    only: Option<AreaAt<'a, P, D>>,
    before: Sizes,
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Sets aside what taking an area that leaves off the index needs at most, unless that grows by three levels
    /// meanwhile.
    pub(super) fn reserve_departure(&self) -> Result<Reserve<'_, P, D>, OutOfFrames> {
        let nr_levels = {
            let _reading = self.look();
            self.index.nr_levels()
        };
        let nodes = Index::<P, Area<P, D>>::reserve_levels(&self.vm().nodes, nr_levels + 3)?;
        Ok(Reserve { space: self, nodes: Some(nodes), area: None, edit: None })
    }

    /// Sets aside what a change of a part mostly needs, so that it is planned and made while the lock is had under
    /// which the part is chosen; nothing where there are no parts.
    pub(super) fn reserve_part(&self) -> Result<Option<Reserve<'_, P, D>>, OutOfFrames> {
        if !D::Lock::DIVIDES || !self.lock.is_divided() {
            return Ok(None);
        }
        let nr_levels = {
            let _beside = self.look_beside();
            self.index.nr_levels()
        };
        let nodes = Index::<P, Area<P, D>>::reserve_nodes(&self.vm().nodes, nr_levels + 2)?;
        let area = self.vm().areas.alloc()?;
        Ok(Some(Reserve { space: self, nodes: Some(nodes), area: Some(area), edit: None }))
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Sets aside what [`WritePermit::prepare_removal`] needs at most.
    pub(super) fn reserve_removal(self) -> Result<Reserve<'g, P, D>, OutOfFrames> {
        let space = self.space();
        let nodes = space.index.reserve(&space.vm().nodes)?;
        let area = self.vm().areas.alloc()?;
        Ok(Reserve { space, nodes: Some(nodes), area: Some(area), edit: None })
    }

    /// As [`WritePermit::prepare_change`] without a new area, out of memory that was set aside: it can't fail.
    pub(super) fn prepare_removal(
        self,
        range: PageRange,
        reserve: Reserve<'g, P, D>,
    ) -> Result<Change<'g, P, D>, CallError> {
        self.prepare(range, None, Some(reserve))
    }

    /// Prepares to take away the area that leaves; out of memory that was set aside, as far as that goes.
    pub(super) fn prepare_arrival(
        self,
        range: PageRange,
        reserve: Option<Reserve<'g, P, D>>,
    ) -> Result<Change<'g, P, D>, CallError> {
        self.prepare(range, None, reserve)
    }

    /// Cuts the area that holds `address` in two there.
    pub(super) fn split_at(self, address: VirtAddr) -> Result<(), CallError> {
        let unmapped = CallError::Unmapped { address };
        let entry = self.containing(address).ok_or(unmapped)?;
        let area = entry.area();
        let old = area.view_pinned();
        let Some(range) = PageRange::between(address, old.end).filter(|_| old.start < address) else { return Ok(()) };
        let view = AreaView { start: address, page_offset: old.page_offset_of(address), ..old };
        let new = NewArea { view, behind: area.behind().clone(), join: Join::Never };
        self.prepare_change(range, Some(new))?.commit(|| ());
        Ok(())
    }

    /// Prepares to put `new`, or nothing, in place of what `range` holds. The caller has checked the limits.
    pub(super) fn prepare_change(
        self,
        range: PageRange,
        new: Option<NewArea<P>>,
    ) -> Result<Change<'g, P, D>, CallError> {
        self.prepare(range, new, None)
    }

    fn prepare(
        self,
        range: PageRange,
        new: Option<NewArea<P>>,
        reserve: Option<Reserve<'g, P, D>>,
    ) -> Result<Change<'g, P, D>, CallError> {
        let mut change = self.unprepared(range, reserve);
        change.fill(new)?;
        Ok(change)
    }

    /// Returns a change of `range` that is still to be prepared ([`Change::fill`]), where its caller keeps it: it is
    /// too large to be handed on by calls that are made all the time.
    #[inline(always)]
    pub(super) fn unprepared(self, range: PageRange, reserve: Option<Reserve<'g, P, D>>) -> Change<'g, P, D> {
        Change {
            space: self,
            announced: mutant!(RemovedUnannounced, Announced::All => Announced::Staying),
            reserve,
            edit: None,
            edit_guard: None,
            pieces: [None; 3],
            range,
            span: (range.start().get(), range.end().get()),
            hole: range.numbers(),
            only: None,
            before: Sizes::default(),
        }
    }
}

impl<'a, P: System, D: Design<P>> Change<'a, P, D> {
    /// Prepares the change, which puts `new`, or nothing, in place of what its range holds. The caller has checked the
    /// limits.
    #[inline(never)]
    pub(super) fn fill(&mut self, new: Option<NewArea<P>>) -> Result<(), OutOfFrames> {
        self.plan(new)?;
        self.count_before();
        self.prepare_edit()?;
        // Where nobody edits beside the caller, there is nothing in the places for that lock.
        let unused_bytes = if D::Lock::DIVIDES { 0 } else { 2 * size_of::<Option<EditGuard<'_, P>>>() };
        P::touch(core::ptr::from_ref(self).cast(), size_of_val(self) - unused_bytes, TouchKind::Write);
        Ok(())
    }

    fn plan(&mut self, new: Option<NewArea<P>>) -> Result<(), OutOfFrames> {
        let (permit, range) = (self.space, self.range);
        let (below, above) = (permit.last_starting_before(range.start()), permit.first_ending_after(range.end()));
        let hole_start = below.map_or(VirtAddr::new(0), |entry| entry.end.min(range.start()));
        let hole_end = above.map_or(VirtAddr::new(USER_END + PAGE), |entry| entry.start.max(range.end()));
        self.hole = hole_start.get()..hole_end.get();
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
        if let Some(new) = new {
            self.place(new)?;
        }
        self.leave_untouched();
        let present = || self.pieces.iter().flatten();
        let low = present().map(|piece| piece.view.start).min().map_or(range.start(), |low| low.min(range.start()));
        let high = present().map(|piece| piece.view.end).max().map_or(range.end(), |high| high.max(range.end()));
        self.span = (low.get(), high.get());
        Ok(())
    }

    fn trimmed_left(&self, entry: &AreaAt<'_, P, D>, range: PageRange, new: Option<&NewArea<P>>) -> Piece<P, D> {
        let view = neighbour(entry, range, new);
        let view = AreaView { end: view.end.min(range.start()), ..view };
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
        let old = neighbour(entry, range, new);
        let start = old.start.max(range.end());
        let view = AreaView { start, page_offset: old.page_offset_of(start), ..old };
        if self.pieces[0].as_ref().is_some_and(|left| left.area == entry.place()) {
            let area = self.new_area(&view, area.behind().clone())?;
            return Ok(Piece { area, view, is_fresh: true });
        }
        Ok(Piece { area: entry.place(), view, is_fresh: false })
    }

    fn new_area(&mut self, view: &AreaView<P>, behind: Behind<P>) -> Result<NonNull<Area<P, D>>, OutOfFrames> {
        let area = match self.reserve.as_mut().and_then(|reserve| reserve.area.take()) {
            Some(area) => area,
            None => {
                self.end_edit();
                self.space.vm().areas.alloc()?
            }
        };
        // SAFETY: the slab gave us room for an area.
        unsafe { area.write(Area::new(view, behind)) };
        P::touch(area.as_ptr().cast(), size_of::<Area<P, D>>(), TouchKind::Write);
        if P::WATCHED {
            // SAFETY: just written, and still ours.
            let area = unsafe { area.as_ref() };
            P::trace(Tracepoint::named("an area's bounds and rights", area));
            P::trace(Tracepoint::named(D::AREA_STATE_NAME, &area.state));
        }
        Ok(area)
    }

    /// Puts the new area between its neighbours, joined with them where they allow it.
    fn place(&mut self, new: NewArea<P>) -> Result<(), OutOfFrames> {
        let [left, _, right] = &mut self.pieces;
        let may_join_below = new.join == Join::Allowed;
        let may_join_above = new.join != Join::Never;
        let mut view = new.view;
        let mut host = None;
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
                let now = piece.area().view();
                !piece.is_fresh
                    && (now.start, now.end) == (piece.view.start, piece.view.end)
                    && now.flags == piece.view.flags
            });
        }
    }

    fn count_before(&mut self) {
        let mut nr_found = 0;
        let _beside = self.space.look_beside();
        for entry in self.space.overlapping(self.spanned()) {
            self.before.add(entry.area().flags(), entry.end - entry.start);
            nr_found += 1;
            self.only = (nr_found == 1).then_some(entry);
        }
    }

    /// A known bug: the change is not announced.
    #[cfg(feature = "mutants")]
    pub(super) fn leave_unannounced(&mut self) {
        self.announced = Announced::Nobody;
    }

    /// Returns what will be free around the range, and it, if nothing new comes.
    pub(super) fn hole(&self) -> Range<u64> {
        self.hole.clone()
    }

    /// Returns how many areas more there will be.
    pub(super) fn nr_added(&self) -> i64 {
        self.pieces.iter().flatten().count() as i64 - self.before.areas.cast_signed()
    }

    fn prepare_edit(&mut self) -> Result<(), OutOfFrames> {
        let mut entries = self.pieces.iter().flatten().map(Piece::entry);
        let entries = [entries.next(), entries.next(), entries.next()];
        let space = self.space.space();
        let span = self.span.0..self.span.1;
        let mut spare = self.reserve.as_mut().and_then(|reserve| reserve.nodes.take());
        if !space.lock.is_divided() {
            self.edit = Some(space.index.prepare(&space.vm().nodes, span, &entries, spare)?);
            return Ok(());
        }
        // Nothing is allocated under the lock: what is set aside mostly is enough.
        let mut nr_nodes = 2 + self.nr_levels();
        while self.edit.is_none() {
            let nodes = match spare.take() {
                Some(nodes) => nodes,
                None => Index::<P, Area<P, D>>::reserve_nodes(&space.vm().nodes, nr_nodes)?,
            };
            let edit = self.reserve.as_mut().and_then(|reserve| reserve.edit.take());
            self.edit_guard = edit.or_else(|| space.lock.edit());
            self.edit = space.index.prepare_from(span.clone(), &entries, nodes);
            if self.edit.is_none() {
                self.edit_guard = None;
                nr_nodes *= 2;
            }
        }
        mutant!(EditOfOldVersion => self.edit_guard = None);
        Ok(())
    }

    fn nr_levels(&self) -> usize {
        let _beside = self.space.look_beside();
        self.space.index.nr_levels()
    }

    /// Lets others edit again.
    fn end_edit(&mut self) {
        self.edit_guard = None;
        if let Some(reserve) = &mut self.reserve {
            reserve.end_edit();
        }
    }

    /// Puts the change in force, once; `translations` adapts the page tables while faults keep out of the areas.
    #[inline]
    pub(super) fn commit(&mut self, translations: impl FnOnce()) {
        if self.before.areas == 0 {
            return self.commit_addition();
        }
        let held = if self.only_adds() { self.commit_addition_beside() } else { self.commit_and_hold() };
        translations();
        held.end();
    }

    /// Says whether the change only fills a hole, so that no fault need be waited for: faults elsewhere may see a
    /// neighbour's bounds as they were or as they are, and its root is the same in both.
    fn only_adds(&self) -> bool {
        let keeps_root = |piece: &Piece<P, D>| {
            piece.is_fresh || piece.area().flags_and_root() == (piece.view.flags, piece.view.root)
        };
        D::ADDS_FREELY
            && self.space.overlapping(self.range.addresses()).next().is_none()
            && self.pieces.iter().flatten().all(keeps_root)
    }

    /// As [`Change::commit_and_hold`], without a wait for the faults that are at work in areas that grow.
    fn commit_addition_beside(&mut self) -> Held<'_, 'a, P, D> {
        let removed = self.announce();
        self.put_in_force(removed)
    }

    /// Puts a change in force that only adds: there is no translation to adapt, so whoever finds the area may use it.
    #[inline(never)]
    fn commit_addition(&mut self) {
        for piece in self.pieces.iter().flatten() {
            piece.area().end_change_unpublished();
        }
        let _spare = self.publish();
        self.account();
        self.pieces = [None; 3];
        self.end_edit();
    }

    /// Puts the index in force; returns nodes that were not needed, to be freed when others may edit again.
    fn publish(&mut self) -> Option<Spare<'a, P>> {
        debug_assert!(self.edit.is_some(), "a change is put in force once");
        let edit = self.edit.take();
        let mut spare = None;
        D::update_index(&self.space, || spare = edit.and_then(|edit| edit.commit(|| self.space.is_looked_at())));
        spare
    }

    /// Puts the change in force and keeps faults out of its areas until [`Held::end`].
    #[inline(never)]
    pub(super) fn commit_and_hold(&mut self) -> Held<'_, 'a, P, D> {
        if self.edit_guard.is_none() {
            let removed = self.begin();
            return self.put_in_force(removed);
        }
        // Nobody waits for faults under a spin lock. They may use what goes until they are waited for, and what they
        // read of areas that are cut is right beside the range (I5 of `area`, R8 of `ranges`).
        let (space, addresses) = (self.space, self.spanned());
        let removed = self.announce();
        let held = self.put_in_force(removed);
        D::await_faults(&space, addresses);
        held
    }

    fn put_in_force(&mut self, removed: Option<NonNull<Area<P, D>>>) -> Held<'_, 'a, P, D> {
        let _spare = self.publish();
        for piece in self.pieces.iter().flatten() {
            piece.area().set(&piece.view);
        }
        self.account();
        self.end_edit();
        Held { removed: Removed { space: self.space, areas: removed }, change: self }
    }

    /// Lets faults into the areas that stay.
    fn let_in(&mut self) {
        for place in &mut self.pieces {
            if let Some(piece) = place
                && (self.announced.reaches(false) || piece.is_fresh)
            {
                piece.area().end_change();
            }
            *place = None;
        }
    }

    /// Puts a change in force that leaves a leaving area behind, and counts nothing yet. The caller waits for faults
    /// afterwards: they may still use what goes. What they read of areas that are cut is right beside the range (I5 of
    /// `area`).
    pub(super) fn commit_departure(mut self) -> Departing<P, D> {
        let removed = self.announce();
        drop(self.publish());
        let after = self.sizes();
        for piece in self.pieces.iter().flatten() {
            piece.area().set(&piece.view);
        }
        self.let_in();
        Departing { removed, counted: Counted { before: self.before, after }, spanned: self.spanned() }
    }

    /// Takes areas away that no fault uses; their tables are empty.
    pub(super) fn commit_arrival(mut self) {
        let removed = self.announce();
        drop(self.publish());
        // SAFETY: the change took them off the index.
        unsafe { release(&self.space, removed) };
    }

    /// Announces the change, and waits for the faults that began before; returns the areas that it removes, linked.
    fn begin(&self) -> Option<NonNull<Area<P, D>>> {
        let removed = self.announce();
        D::await_faults(&self.space, self.spanned());
        removed
    }

    /// Announces the change to every area that takes part; returns those that it removes, linked.
    fn announce(&self) -> Option<NonNull<Area<P, D>>> {
        let range = mutant!(RangeTooShort, self.range.addresses() => self.range.start()..self.range.start() + PAGE);
        for piece in self.pieces.iter().flatten().filter(|piece| piece.is_fresh) {
            D::announce_range(&piece.area().state, range.clone());
        }
        let mut removed = None;
        let _beside = self.space.look_beside();
        let among = || self.space.overlapping(self.spanned());
        let mut others = self.only.is_none().then(among);
        for entry in self.only.into_iter().chain(core::iter::from_fn(|| others.as_mut()?.next())) {
            let area = entry.area();
            let is_removed = !self.pieces.iter().flatten().any(|piece| piece.area == entry.place());
            if self.announced.reaches(is_removed) {
                area.begin_change_within(range.clone());
            }
            if is_removed {
                // SAFETY: the link is the writer's alone.
                unsafe { area.next_removed.get().write(removed) };
                removed = Some(entry.place());
            }
        }
        removed
    }

    /// Returns what all areas that take part have, or had.
    fn spanned(&self) -> Range<VirtAddr> {
        VirtAddr::new(self.span.0)..VirtAddr::new(self.span.1)
    }

    /// Returns how much there will be of what takes part.
    fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        for piece in self.pieces.iter().flatten() {
            sizes.add(piece.view.flags, piece.view.end - piece.view.start);
        }
        sizes
    }

    fn account(&self) {
        self.space.count(&Counted { before: self.before, after: self.sizes() });
    }
}

/// What a change makes of a space's sizes.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    before: Sizes,
    after: Sizes,
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Counts a change.
    pub(super) fn count(self, counted: &Counted) {
        let Counted { before, after } = counted;
        add(&self.nr_areas, after.areas, before.areas);
        add(&self.mapped_bytes, after.bytes, before.bytes);
        add(&self.data_bytes, after.data_bytes, before.data_bytes);
        add(&self.locked_bytes, after.locked_bytes, before.locked_bytes);
    }
}

/// Areas that have left the index, while faults may still use them, and what their unmapping makes of the sizes.
#[must_use = "the areas are freed by `release_areas`"]
pub(super) struct Departing<P: System, D: Design<P>> {
    removed: Option<NonNull<Area<P, D>>>,
    counted: Counted,
    /// What all areas that took part have, or had.
    spanned: Range<VirtAddr>,
}

impl<P: System, D: Design<P>> Departing<P, D> {
    /// Returns what the areas that took part have, or had.
    pub(super) fn addresses(&self) -> Range<VirtAddr> {
        self.spanned.clone()
    }

    /// Lets the areas go, which faults do not use any more.
    pub(super) fn release_areas(self, space: &Space<P, D>) -> Counted {
        // SAFETY: the change took them off the index, and nobody else has the list.
        unsafe { release(space, self.removed) };
        self.counted
    }
}

/// Lets removed areas go.
///
/// # Safety
/// A change took them off the index of `space`, and linked them for the caller.
unsafe fn release<P: System, D: Design<P>>(space: &Space<P, D>, mut removed: Option<NonNull<Area<P, D>>>) {
    while let Some(area) = removed {
        // SAFETY: the link is the caller's alone, read before the area is let go; passed on.
        unsafe {
            removed = *area.as_ref().next_removed.get();
            D::release_area(space, area);
        }
    }
}

/// Changes one of the space's counters by `after - before`.
fn add(counter: &impl Atomic<Value = u64>, after: u64, before: u64) {
    if after != before {
        // Relaxed: written under the write lock, and where several have a part of that, under the lock of edits.
        let now = counter.load(Ordering::Relaxed).wrapping_add(after).wrapping_sub(before);
        counter.store(now, Ordering::Relaxed);
    }
}

/// A change in force whose areas don't serve faults yet.
///
/// Overlapping holds end oldest first: the newer may free an area that the older holds.
#[must_use = "faults stay out of the areas until the change ends"]
pub(super) struct Held<'c, 'a, P: System, D: Design<P>> {
    change: &'c mut Change<'a, P, D>,
    /// Dropped when faults are let in.
    removed: Removed<'a, P, D>,
}

impl<'a, P: System, D: Design<P>> Held<'_, 'a, P, D> {
    /// Lets faults in again, and the removed areas go.
    pub(super) fn end(self) {}

    /// Lets faults into the areas that stay, and returns those that were removed.
    pub(super) fn let_in(mut self) -> Removed<'a, P, D> {
        Removed { areas: self.removed.areas.take(), space: self.removed.space }
    }
}

impl<P: System, D: Design<P>> Drop for Held<'_, '_, P, D> {
    fn drop(&mut self) {
        self.change.let_in();
    }
}

/// Areas that a change in force took off the index; they go when this is dropped.
#[must_use = "the areas go as soon as this is dropped"]
pub(super) struct Removed<'a, P: System, D: Design<P>> {
    space: WritePermit<'a, P, D>,
    areas: Option<NonNull<Area<P, D>>>,
}

impl<P: System, D: Design<P>> Drop for Removed<'_, P, D> {
    fn drop(&mut self) {
        // SAFETY: the change took them off the index; the list is the writer's alone.
        unsafe { release(&self.space, self.areas.take()) };
    }
}

impl<'a, P: System, D: Design<P>> Reserve<'a, P, D> {
    /// Takes the lock of edits over.
    pub(super) fn with_edit(mut self, edit: Option<EditGuard<'a, P>>) -> Self {
        self.edit = edit;
        self
    }

    /// Lets others edit.
    pub(super) fn end_edit(&mut self) {
        self.edit = None;
    }
}

impl<P: System, D: Design<P>> Drop for Reserve<'_, P, D> {
    fn drop(&mut self) {
        self.end_edit();
        if let Some(area) = self.area.take() {
            // SAFETY: never written, never published.
            unsafe { self.space.vm().areas.free(area) };
        }
    }
}

impl<P: System, D: Design<P>> Drop for Change<'_, P, D> {
    fn drop(&mut self) {
        // What is not needed is freed when others may edit again; but the edit looks at the index.
        self.edit = None;
        self.end_edit();
        for piece in self.pieces.iter().flatten().filter(|piece| piece.is_fresh) {
            self.space.discard(piece.area);
        }
    }
}

impl<P: System, D: Design<P>> Piece<P, D> {
    fn area(&self) -> &Area<P, D> {
        // SAFETY: the write lock, or the change that made it, keeps the area.
        unsafe { self.area.as_ref() }
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Frees an area that was never published.
    fn discard(&self, area: NonNull<Area<P, D>>) {
        // SAFETY: nobody else knows it.
        unsafe {
            core::ptr::drop_in_place(area.as_ptr());
            self.vm().areas.free(area);
        }
    }
}

/// Returns a view of an area that meets a range. The area's root is pinned if the change cuts the area, or may join it
/// with what is new.
fn neighbour<P: System, D: Design<P>>(
    entry: &AreaAt<'_, P, D>,
    range: PageRange,
    new: Option<&NewArea<P>>,
) -> AreaView<P> {
    let view = entry.area().view();
    let is_cut = view.start < range.end() && range.start() < view.end;
    let may_join = |new: &NewArea<P>| joins_but_for_roots(&view, &new.view) || joins_but_for_roots(&new.view, &view);
    let is_pinned = D::ROOTS_FREELY && (is_cut || new.is_some_and(may_join));
    if is_pinned { entry.area().view_pinned() } else { view }
}

fn joins_but_for_roots<P: System>(below: &AreaView<P>, above: &AreaView<P>) -> bool {
    AreaView { root: 0, ..*below }.joins(&AreaView { root: 0, ..*above })
}

/// Returns two neighbours as one.
fn joined<P: System>(left: &AreaView<P>, right: &AreaView<P>) -> AreaView<P> {
    let (root, inherited) = if left.root == 0 { (right.root, right.flags) } else { (left.root, left.flags) };
    let guards = right.flags & AreaFlags::MAYBE_GUARD;
    let flags = (left.flags - AreaFlags::INHERITED) | (inherited & AreaFlags::INHERITED) | guards;
    AreaView { end: right.end, root, flags, ..*left }
}
