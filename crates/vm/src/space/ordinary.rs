//! Edits that need no plan: an area comes into a hole, or a neighbour grows over that, or an area leaves, whole or at
//! one end.
//!
//! # Guarantee
//! A call that does this leaves what a [`Change`](super::change::Change) would have left. One that finds anything out of
//! the ordinary here, or too little memory, makes a change; by then it has changed nothing, but may have pinned the
//! absence of a root, as a change does first (I4 of `area`).
//!
//! What is done here in what order is what `change::commit` does: who changes one looks at the other. One step is left
//! out: a growth that no fault can tell is not announced (`Site::grow`).
//!
//! # What is ordinary
//! Private memory without an object, of [`ORDINARY`] flags. It comes into a range in which nothing is mapped, without
//! content, as an area of its own, or as more of one neighbour. Or it leaves, whatever its content: a whole area, or
//! one end of it.
//!
//! # Who edits
//! Somebody alone with an index that has all there is in a [`Site`]: whoever has everything, of a space that was never
//! divided and has no lanes (here), or the lock of the edits of a lane, or of a space without lanes (`fast_path`). The
//! first may wait for faults before the index changes; the second, under a spin lock, waits behind it (I5 of `area`, R8
//! of `ranges`).

use super::Space;
use super::change::{Counted, Grown, RemovedAreas, Sizes, announced_range, grown, write_area};
use super::own_lane::{Around, OwnLane, hole_of};
use super::permit::{AreaAt, WritePermit};
use super::removal::Removal;
use crate::addr::PageRange;
use crate::area::{Area, AreaFlags, AreaView};
use crate::content::{Behind, Content};
use crate::design::Design;
use crate::index::{Edit, Index, IndexEntry};
use crate::system::System;
use crate::translations::lanes::Alone;
use core::ops::Range;
use faultless_phys::FrameSource;
use faultless_platform::mutant;

/// What an area may be and allow that comes or goes without a plan.
pub(super) const ORDINARY: AreaFlags = AreaFlags::RIGHTS
    .union(AreaFlags::ACCOUNT)
    .union(AreaFlags::NORESERVE)
    .union(AreaFlags::INHERITED)
    .union(AreaFlags::MAYBE_GUARD);

/// Where somebody is alone with an index.
pub(super) struct Site<'a, P: System, D: Design<P>> {
    pub(super) space: &'a Space<P, D>,
    pub(super) lane: OwnLane<'a, P, Area<P, D>>,
    /// Under a lane's lock nothing is waited for, and others make changes elsewhere.
    pub(super) alone: Alone,
}

/// What leaves: an area or an end of it.
pub(super) struct Leaving<'a, P: System, D: Design<P>> {
    pub(super) area: AreaAt<'a, P, D>,
    /// What stays of it.
    pub(super) rest: Option<AreaView<P>>,
    /// What leaves, as it is counted.
    pub(super) sizes: Sizes,
}

/// Returns the one area that touches a range, of those around it; nothing if both do, which may become one.
#[inline(always)]
#[expect(clippy::option_option, reason = "no neighbour is an answer")]
pub(super) fn only_neighbour<T>(range: &Range<u64>, [below, above]: Around<T>) -> Option<Option<IndexEntry<T>>> {
    match (below.filter(|below| below.end == range.start), above.filter(|above| above.start == range.end)) {
        (Some(_), Some(_)) => None,
        (below, above) => Some(below.or(above)),
    }
}

impl<'a, P: System, D: Design<P>> Site<'a, P, D> {
    /// Puts private memory into a range in which nothing is mapped, with the one neighbour that touches it, if that may
    /// be; returns what was added. Nothing if memory is short, or more changes than bounds under a lane's lock.
    #[inline(always)]
    pub(super) fn put(
        &self,
        range: PageRange,
        flags: AreaFlags,
        neighbour: Option<IndexEntry<Area<P, D>>>,
    ) -> Option<Sizes> {
        let view = AreaView {
            start: range.start(),
            end: range.end(),
            flags,
            page_offset: range.start().page_number(),
            object: None,
            content: Content::Zeros,
            opening: 0,
            root: 0,
        };
        let mut added = Sizes::default();
        added.add(flags, range.len_bytes());
        let neighbour = neighbour.map(AreaAt::new);
        match neighbour.and_then(|area| Some((area, grown(&area, range, &view)?))) {
            Some((area, grown)) => {
                added.areas = 0;
                self.grow((area, &grown), range)?;
            }
            None => self.add(&view)?,
        }
        Some(added)
    }

    /// Puts an area of its own into a hole; nothing if memory is short.
    #[inline(always)]
    fn add(&self, view: &AreaView<P>) -> Option<()> {
        let area = self.space.vm().areas.try_alloc().ok()?;
        write_area(area, view, Behind::Zeros);
        let entry = IndexEntry { start: view.start.get(), end: view.end.get(), area };
        let Some(mut edit) = self.edit(entry.start..entry.end, Some(entry)) else {
            self.space.discard(area);
            return None;
        };
        // SAFETY: just written, and still ours.
        unsafe { area.as_ref() }.end_change_unpublished();
        self.publish(&mut edit);
        Some(())
    }

    /// Lets an area have a range more; nothing if memory is short, or faults would have to be waited for under a lane's
    /// lock.
    ///
    /// Where its bounds alone move, over a hole, no fault can tell, of a design that adds freely (I2, I3 of
    /// `design::faultless`): then nothing is announced. The root is pinned, or there (I4 of `area`).
    #[inline(always)]
    fn grow(&self, (entry, grown): (AreaAt<'_, P, D>, &Grown<P>), range: PageRange) -> Option<()> {
        let (area, view) = (entry.area(), &grown.view);
        let moves_bounds_alone = D::ADDS_FREELY && grown.moves_bounds_alone;
        if !moves_bounds_alone && self.alone == Alone::InALane {
            return None;
        }
        let (start, end) = (view.start.get(), view.end.get());
        let mut edit = self.edit(start..end, Some(IndexEntry { start, end, area: entry.place() }))?;
        if moves_bounds_alone {
            self.publish(&mut edit);
            area.set_bounds(view.start..view.end);
            return Some(());
        }
        let told = announced_range(range);
        area.begin_change_within(told.clone());
        self.space.note_change(&told, self.alone);
        D::await_faults(self.space, view.start..view.end);
        self.publish(&mut edit);
        area.set(view);
        area.end_change();
        Some(())
    }

    /// Returns what leaves with a range that meets no other area; nothing if the area would be cut in two, or is out of
    /// the ordinary.
    #[inline(always)]
    pub(super) fn leaving(&self, entry: IndexEntry<Area<P, D>>, range: PageRange) -> Option<Leaving<'a, P, D>> {
        let area = AreaAt::new(entry);
        let flags = area.area().flags();
        if !ORDINARY.contains(flags) || area.area().object().is_some() {
            return None;
        }
        let rest = match (area.start < range.start(), range.end() < area.end) {
            (true, true) => return None,
            (false, false) => None,
            (true, false) => Some(area.area().view_pinned().below(range.start())),
            (false, true) => Some(area.area().view_pinned().from(range.end())),
        };
        let mut sizes = Sizes::default();
        sizes.add(flags, area.end.min(range.end()) - area.start.max(range.start()));
        sizes.areas = u64::from(rest.is_none());
        Some(Leaving { area, rest, sizes })
    }

    /// Takes what leaves off the index; says whether others may be using it. Nothing if memory is short. The caller
    /// ends the change of an area that stays, and in a lane it waits for faults before.
    #[inline(always)]
    pub(super) fn take_off(&self, leaving: &Leaving<'_, P, D>, range: PageRange) -> Option<bool> {
        let Leaving { area: entry, rest, .. } = leaving;
        let (area, place) = (entry.area(), entry.place());
        let added = rest.as_ref().map(|view| IndexEntry { start: view.start.get(), end: view.end.get(), area: place });
        let mut edit = self.edit(entry.start.get()..entry.end.get(), added)?;
        let told = announced_range(range);
        if mutant!(RemovedUnannounced, true => rest.is_some()) {
            area.begin_change_within(told.clone());
        }
        self.space.note_change(&told, self.alone);
        if self.alone == Alone::Everywhere {
            D::await_faults(self.space, entry.start..entry.end);
        }
        let may_be_in_use = self.publish(&mut edit);
        if let Some(view) = rest {
            // Of the ordinary an end that goes changes nothing else (I5 of `area`).
            area.set_bounds(view.start..view.end);
        }
        Some(may_be_in_use)
    }

    /// Prepares an edit, out of what the index keeps or what is had without sleeping; nothing if that is too little.
    #[inline(always)]
    fn edit(&self, span: Range<u64>, added: Option<IndexEntry<Area<P, D>>>) -> Option<Edit<'_, P>> {
        let mut edit = self.lane.index.unprepared_from(Index::<P, Area<P, D>>::nothing_aside(&self.space.vm().nodes));
        edit.is_prepared(span, added.into_iter()).then_some(edit)
    }

    /// Puts an edit in force; says whether others may be using what it took away.
    #[inline(always)]
    fn publish(&self, edit: &mut Edit<'_, P>) -> bool {
        let mut may_be_in_use = true;
        D::update_index(self.space, || {
            _ = edit.commit(|| {
                may_be_in_use = match self.alone {
                    Alone::InALane => self.lane.may_be_looked_at(self.space.memory().rcu()),
                    Alone::Everywhere => self.space.is_looked_at(),
                };
                may_be_in_use
            });
        });
        may_be_in_use
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Returns the space as one site, where it was never divided and has no lanes: the caller has everything then.
    #[inline(always)]
    fn whole(self) -> Option<Site<'g, P, D>> {
        let space = self.space();
        let lane = OwnLane::whole(&space.index);
        space.is_undivided().then_some(Site { space, lane, alone: Alone::Everywhere })
    }

    /// Puts private memory into a range, if everything is ordinary, and allowed; else nothing has changed.
    #[inline]
    pub(super) fn add_ordinary(self, range: PageRange, flags: AreaFlags) -> Option<()> {
        let site = self.whole()?;
        if !ORDINARY.contains(flags) {
            return None;
        }
        let around = site.lane.around_hole(range.numbers())?;
        let neighbour = only_neighbour(&range.numbers(), around)?;
        self.check_expansion(flags, range.len_bytes(), 0).ok()?;
        if flags.contains(AreaFlags::ACCOUNT) {
            self.check_commit(range.len_bytes()).ok()?;
        }
        let after = site.put(range, flags, neighbour)?;
        self.count(&Counted { before: Sizes::default(), after });
        Some(())
    }

    /// Takes what a range holds off the index, if everything is ordinary; else nothing has changed.
    #[inline(always)]
    pub(super) fn remove_ordinary(self, range: PageRange) -> Option<Removal<'g, P, D>> {
        let site = self.whole()?;
        let (entry, around) = site.lane.only_area(range.numbers())?;
        let leaving = site.leaving(entry, range)?;
        let may_be_in_use = site.take_off(&leaving, range)?;
        let Leaving { area, rest, sizes: before } = leaving;
        self.count(&Counted { before, after: Sizes::default() });
        let removed = match rest {
            Some(_) => {
                area.area().end_change();
                RemovedAreas::none(self)
            }
            // SAFETY: the edit took it off the index behind its announcement.
            None => unsafe { RemovedAreas::one(self, area.place(), may_be_in_use) },
        };
        Some(Removal::new(removed, range, Some(hole_of(&range.numbers(), around))))
    }
}
