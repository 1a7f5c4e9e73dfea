//! A change put in force: who is told, in which order, and when what it removed goes.
//!
//! # Guarantee
//! No step can fail. What the change removed is freed when no fault uses it any more.

use super::sizes::{Counted, Sizes};
use super::{Change, Piece, announced_range};
use crate::addr::VirtAddr;
use crate::area::Area;
use crate::design::Design;
use crate::index::Spare;
use crate::space::map_lock::MapLock;
use crate::space::own_lane::OwnLane;
use crate::space::permit::WritePermit;
use crate::space::{AreaAt, Space};
use crate::system::System;
use crate::translations::lanes::Alone;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_phys::FrameSource;

impl<'a, P: System, D: Design<P>> Change<'a, P, D> {
    /// Puts the change in force, once; `translations` adapts the page tables while faults keep out of the areas.
    #[inline]
    pub(in crate::space) fn commit(&mut self, translations: impl FnOnce()) {
        if self.before.bytes == 0 {
            return self.commit_addition();
        }
        let goes_on = self.moves_bounds_alone || self.only_adds();
        let held = if goes_on { self.commit_addition_beside() } else { self.commit_and_hold() };
        translations();
        held.end();
    }

    /// Says whether the change only fills a hole, so that no fault need be waited for: faults elsewhere may see a
    /// neighbour's bounds as they were or as they are, and its root is the same in both.
    fn only_adds(&self) -> bool {
        let keeps_root = |piece: &Piece<P, D>| {
            piece.is_fresh || piece.area().flags_and_root() == (piece.view.flags, piece.view.root)
        };
        let is_hole = || self.space.overlapping_with(self.range.numbers(), self.edit_guard.as_ref()).next().is_none();
        D::ADDS_FREELY && self.fills_a_hole.unwrap_or_else(is_hole) && self.pieces.iter().flatten().all(keeps_root)
    }

    /// As [`Change::commit_and_hold`], without a wait for the faults that are at work in areas of which bounds move.
    fn commit_addition_beside(&mut self) -> HeldChange<'_, 'a, P, D> {
        self.note_growth();
        let removed = self.announce();
        self.put_in_force(removed)
    }

    /// Notes in the lane whether what comes needed no area of its own, so that the next call sets none aside.
    fn note_growth(&self) {
        if let Some(lane) = self.edit_guard.as_ref().and_then(|held| held.lane_around(&(self.span.0..self.span.1))) {
            lane.index.note_growth(!self.pieces.iter().flatten().any(|piece| piece.is_fresh));
        }
    }

    /// Puts a change in force that only adds: there is no translation to adapt, so whoever finds the area may use it.
    #[inline(never)]
    fn commit_addition(&mut self) {
        for piece in self.pieces.iter().flatten() {
            piece.area().end_change_unpublished();
        }
        self.note_growth();
        let _spare = self.publish();
        self.account();
        self.pieces = [None; 3];
        self.end_edit();
    }

    /// Puts the index in force; returns nodes that were not needed, to be freed when others may edit again.
    fn publish(&mut self) -> Option<Spare<'a, P>> {
        if D::Lock::DIVIDES
            && let Some(nodes) = self.wide.take()
        {
            return self.publish_wide(nodes);
        }
        debug_assert!(self.edit.is_some(), "a change is put in force once");
        let (space, edit, mut spare) = (self.space, &mut self.edit, None);
        let lane = self.edit_guard.as_ref().and_then(|held| held.lane_around(&(self.span.0..self.span.1)));
        let may_be_in_use = &mut self.may_be_in_use;
        D::update_index(&space, || {
            let may_be_in_use = || {
                let looked_at_in = |lane: &OwnLane<'_, P, _>| lane.may_be_looked_at(space.memory().rcu());
                *may_be_in_use = lane.map_or_else(|| space.is_looked_at(), looked_at_in);
                *may_be_in_use
            };
            spare = edit.as_mut().and_then(|edit| edit.commit(may_be_in_use));
        });
        self.edit = None;
        spare
    }

    /// Puts the change in force and keeps faults out of its areas until [`HeldChange::end`].
    #[inline(never)]
    pub(in crate::space) fn commit_and_hold(&mut self) -> HeldChange<'_, 'a, P, D> {
        if self.edit_guard.is_none() {
            let removed = self.begin();
            return self.put_in_force(removed);
        }
        // Nobody waits for faults under a spin lock. They may use what goes until they are waited for, and what they
        // read of areas that are cut is right beside the range (I5 of `area`, R8 of `ranges`).
        let (space, addresses) = (self.space, self.spanned());
        let removed = self.announce_to_all();
        let held = self.put_in_force(removed);
        // Else no fault is at work that began before, and those that come see the change (N6 of `lane_rooms`).
        if held.change.may_be_in_use {
            D::await_faults(&space, addresses);
        }
        held
    }

    fn put_in_force(&mut self, removed: Option<NonNull<Area<P, D>>>) -> HeldChange<'_, 'a, P, D> {
        let _spare = self.publish();
        for piece in self.pieces.iter().flatten() {
            piece.area().set(&piece.view);
        }
        self.account();
        self.end_edit();
        let removed = RemovedAreas { space: self.space, areas: removed, may_be_in_use: self.may_be_in_use };
        HeldChange { removed, change: self }
    }

    /// Lets faults into the areas that stay.
    fn let_in(&mut self) {
        for place in &mut self.pieces {
            if let Some(piece) = place
                && (self.announced.reaches(false) || piece.is_fresh)
            {
                if self.is_the_calls_last {
                    piece.area().unpin_root();
                }
                piece.area().end_change();
            }
            *place = None;
        }
    }

    /// Puts a change in force that leaves a leaving area behind, and counts nothing yet. The caller waits for faults
    /// afterwards: they may still use what goes. What they read of areas that are cut is right beside the range (I5 of
    /// `area`).
    pub(in crate::space) fn commit_departure(mut self) -> Departing<P, D> {
        let removed = self.announce_to_all();
        drop(self.publish());
        let after = self.sizes();
        for piece in self.pieces.iter().flatten() {
            piece.area().set(&piece.view);
        }
        self.let_in();
        Departing { removed, counted: Counted { before: self.before, after }, spanned: self.spanned() }
    }

    /// Takes areas away that no fault uses; their tables are empty.
    pub(in crate::space) fn commit_arrival(mut self) {
        let removed = self.announce();
        drop(self.publish());
        // SAFETY: the change took them off the index.
        unsafe { release(&self.space, removed, true) };
    }

    /// Announces the change, and waits for the faults that began before; returns the areas that it removes, linked.
    fn begin(&self) -> Option<NonNull<Area<P, D>>> {
        let removed = self.announce_to_all();
        D::await_faults(&self.space, self.spanned());
        removed
    }

    /// As [`Change::announce`], of a change of what faults may have found.
    fn announce_to_all(&self) -> Option<NonNull<Area<P, D>>> {
        let removed = self.announce();
        let alone = if self.edit_guard.is_some() { Alone::InALane } else { Alone::Everywhere };
        debug_assert!(self.edit_guard.is_some() || !self.space.lock.is_divided(), "R3 of `ranges`");
        self.space.note_change(&announced_range(self.range), alone);
        removed
    }

    /// Announces the change to every area that takes part; returns those that it removes, linked.
    fn announce(&self) -> Option<NonNull<Area<P, D>>> {
        let all = announced_range(self.range);
        let range = if self.moves_bounds_alone { all.start..all.start } else { all };
        for piece in self.pieces.iter().flatten().filter(|piece| piece.is_fresh) {
            D::announce_range(&piece.area().state, range.clone());
        }
        let mut removed = None;
        let mut tell = |entry: AreaAt<'a, P, D>| {
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
        };
        match self.only {
            Some(only) => tell(only),
            None => {
                let _beside = self.space.look_beside();
                self.space.overlapping(self.spanned()).for_each(tell);
            }
        }
        removed
    }

    /// Returns how much there will be of what takes part.
    pub(super) fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        for piece in self.pieces.iter().flatten() {
            sizes.add(piece.view.flags, piece.view.end - piece.view.start);
        }
        sizes
    }

    #[inline(always)]
    fn account(&self) {
        if self.may_join {
            self.space.note_joins(&self.range.addresses());
        }
        self.space.count(&Counted { before: self.before, after: self.sizes() });
    }
}

/// Areas that have left the index, while faults may still use them, and what their unmapping makes of the sizes.
#[must_use = "the areas are freed by `release_areas`"]
pub(in crate::space) struct Departing<P: System, D: Design<P>> {
    removed: Option<NonNull<Area<P, D>>>,
    counted: Counted,
    /// What all areas that took part have, or had.
    spanned: Range<VirtAddr>,
}

impl<P: System, D: Design<P>> Departing<P, D> {
    /// Returns what the areas that took part have, or had.
    pub(in crate::space) fn addresses(&self) -> Range<VirtAddr> {
        self.spanned.clone()
    }

    /// Lets the areas go, which faults do not use any more.
    pub(in crate::space) fn release_areas(self, space: &Space<P, D>) -> Counted {
        // SAFETY: the change took them off the index, and nobody else has the list.
        unsafe { release(space, self.removed, true) };
        self.counted
    }
}

/// Lets removed areas go: at once if no other CPU can be at them.
///
/// # Safety
/// A change took them off the index of `space`, and linked them for the caller.
unsafe fn release<P: System, D: Design<P>>(
    space: &Space<P, D>,
    mut removed: Option<NonNull<Area<P, D>>>,
    may_be_in_use: bool,
) {
    while let Some(area) = removed {
        // SAFETY: the link is the caller's alone, read before the area is let go; passed on.
        unsafe {
            removed = *area.as_ref().next_removed.get();
            release_area(space, area, may_be_in_use);
        }
    }
}

/// As [`release`], of one area.
///
/// # Safety
/// As there.
#[inline(always)]
pub(in crate::space) unsafe fn release_area<P: System, D: Design<P>>(
    space: &Space<P, D>,
    area: NonNull<Area<P, D>>,
    may_be_in_use: bool,
) {
    // SAFETY: passed on.
    unsafe {
        match D::Lock::DIVIDES && !may_be_in_use {
            true => space.vm().free_area_at_once(area),
            false => D::release_area(space, area),
        }
    }
}

/// A change in force whose areas don't serve faults yet.
///
/// Overlapping holds end oldest first: the newer may free an area that the older holds.
#[must_use = "faults stay out of the areas until the change ends"]
pub(in crate::space) struct HeldChange<'c, 'a, P: System, D: Design<P>> {
    change: &'c mut Change<'a, P, D>,
    /// Dropped when faults are let in.
    removed: RemovedAreas<'a, P, D>,
}

impl<'a, P: System, D: Design<P>> HeldChange<'_, 'a, P, D> {
    /// Lets faults in again, and the removed areas go.
    pub(in crate::space) fn end(self) {}

    /// Lets faults into the areas that stay, and returns those that were removed.
    pub(in crate::space) fn let_in(mut self) -> RemovedAreas<'a, P, D> {
        let RemovedAreas { space, may_be_in_use, .. } = self.removed;
        RemovedAreas { areas: self.removed.areas.take(), space, may_be_in_use }
    }
}

impl<P: System, D: Design<P>> Drop for HeldChange<'_, '_, P, D> {
    fn drop(&mut self) {
        self.change.let_in();
    }
}

/// Areas that a change in force took off the index; they go when this is dropped.
#[must_use = "the areas go as soon as this is dropped"]
pub(in crate::space) struct RemovedAreas<'a, P: System, D: Design<P>> {
    space: WritePermit<'a, P, D>,
    areas: Option<NonNull<Area<P, D>>>,
    may_be_in_use: bool,
}

impl<'a, P: System, D: Design<P>> RemovedAreas<'a, P, D> {
    /// Returns none.
    #[inline]
    pub(in crate::space) fn none(space: WritePermit<'a, P, D>) -> Self {
        Self { space, areas: None, may_be_in_use: true }
    }

    /// Returns one area.
    ///
    /// # Safety
    /// The caller took it off the space's index, announced as the design has it, and lets it go no other way. Nobody
    /// else is using it if `may_be_in_use` is false.
    #[inline]
    pub(in crate::space) unsafe fn one(
        space: WritePermit<'a, P, D>,
        area: NonNull<Area<P, D>>,
        may_be_in_use: bool,
    ) -> Self {
        // SAFETY: the link is the writer's alone.
        unsafe { area.as_ref().next_removed.get().write(None) };
        Self { space, areas: Some(area), may_be_in_use }
    }
}

impl<P: System, D: Design<P>> Drop for RemovedAreas<'_, P, D> {
    fn drop(&mut self) {
        // SAFETY: the change took them off the index; the list is the writer's alone.
        unsafe { release(&self.space, self.areas.take(), self.may_be_in_use) };
    }
}
