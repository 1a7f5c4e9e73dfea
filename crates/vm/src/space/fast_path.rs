//! The fast path of mmap and munmap: what threads do all the time, each in its own lane.
//!
//! # Guarantee
//! A call that takes this path does what it would have done on the usual one (`map`); one that finds anything out of
//! the ordinary here has changed nothing, and goes there.
//!
//! # What is ordinary
//! Private memory without an object, with rights and no other flags, that may lie anywhere and comes into the calling
//! CPU's range: as an area of its own, or as more of one neighbour. Or that leaves it: a whole area, or one end of it.
//! Nobody else holds a part of that lane, or its lock; no area crosses a lane's bound; no memory need be slept for.
//!
//! # Why it is sound
//! The call holds a part as all calls do (`ranges`), and the lock of its lane's edits from the choice to the counters
//! (R3). It comes to both at once, because the table of parts is empty (`sync::RangeLock::write_first_of`): so there is
//! nothing to wait for, and a CPU's range never belongs to another table (I5 there). What it knows by where it is, it
//! need not find out: such a lane has no seams, its bounds stay, and its index has all that lies in it (N1).
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | somebody comes to the lane between the choice and the entering | both happen under the table's lock, and who has a part there, or the lock, makes the call go the usual way |
//! | somebody takes everything, or a second user comes | the call has a share of the semaphore; where parts are not given out yet it goes the usual way |
//! | mlockall comes while a mapping waits for its share | what it said is read with the share held, under the lane's lock |
//! | a fault of another CPU uses what an unmapping takes away | it is noted, or sees the edit (N6): the call keeps its part, and waits for that fault without the lock |
//! | a fault works in an area that grows | its root and its flags stay, or the call goes the usual way (I2, I3 of `design::faultless`) |
//! | a fault gives a neighbour its first root beside the look at it | its absence is pinned before the call relies on it (I4 of `area`) |
//! | the call gives up with credits claimed, or a neighbour's root pinned | both are what the usual way begins with |

use super::Space;
use super::change::{Counted, Sizes, announced_range, grown, release_area, write_area};
use super::credits::Row;
use super::lane_rooms::LaneRooms;
use super::map::with_account;
use super::map_lock::{EditGuard, MapLock};
use super::own_lane::{OwnLane, widened_to};
use super::permit::{AreaAt, WriteOf};
use super::ranges::Additions;
use super::request::{Backing, MapRequest, Placement};
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
use faultless_sync::PartTableRef;

/// What an area may be and allow that comes or goes on this path.
const ORDINARY: AreaFlags = AreaFlags::RIGHTS
    .union(AreaFlags::ACCOUNT)
    .union(AreaFlags::NORESERVE)
    .union(AreaFlags::INHERITED)
    .union(AreaFlags::MAYBE_GUARD);

/// The calling CPU's lane.
struct Own<'a, P: System, D: Design<P>> {
    rooms: &'a LaneRooms<P>,
    parts: PartTableRef<'a, P>,
    lane: OwnLane<'a, P, Area<P, D>>,
    credits: Row<'a, P>,
}

/// What a call locks: its part, and the edits of its lane.
type Locked<'a, P, D> = (WriteOf<'a, P, D>, EditGuard<'a, P>);

impl<P: System, D: Design<P>> Space<P, D> {
    /// Maps as `map_part`, if everything is ordinary; else nothing has changed.
    #[inline(never)]
    pub(super) fn map_fast(&self, request: &MapRequest<'_, P>, len: u64) -> Option<(PageRange, AreaFlags)> {
        let asked = request.flags();
        let is_ordinary = matches!((request.placement, &request.backing), (Placement::Anywhere, Backing::Anonymous));
        if !is_ordinary || !ORDINARY.contains(asked) {
            return None;
        }
        let flags = with_account(asked);
        if flags.contains(AreaFlags::ACCOUNT) {
            self.check_commit(len).ok()?;
        }
        // Before the search: all but the first CPU go to their lanes at once.
        self.note_mapper();
        let room = self.own_room(self.chosen_room())?;
        let own = self.own()?;
        let mut chosen = None;
        let (write, table) = self.write_own(&own, || {
            // Where nobody has everything: what is mapped from now on may have to be locked.
            if !self.default_flags().is_empty() {
                return None;
            }
            let range = self.search_lane(request, (len, room), &own.lane)?;
            let Range { start, end } = range.numbers();
            let around = own.lane.around(start..end);
            let [below, above] = around;
            let neighbour = match (below.filter(|below| below.end == start), above.filter(|above| above.start == end)) {
                // It may make one of both.
                (Some(_), Some(_)) => return None,
                (below, above) => below.or(above),
            };
            let added = Additions { areas: 1, bytes: len, locked_bytes: 0 };
            if !self.claim_credits(&own.credits, &added) {
                return None;
            }
            chosen = Some((range, neighbour));
            Some(widened_to(start..end, around))
        })?;
        let (range, neighbour) = chosen?;
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
        own.rooms.note_used();
        let neighbour = neighbour.map(AreaAt::new);
        let grown = neighbour.and_then(|area| Some((area, grown(&area, range, &view)?)));
        let mut added = Sizes::default();
        added.add(flags, len);
        match grown {
            Some((area, view)) => {
                added.areas = 0;
                self.grow(&own, (area, &view), range)?;
            }
            None => self.add(&own, &view)?,
        }
        self.count_in_purses(&own.credits, &Counted { before: Sizes::default(), after: added });
        drop(table);
        drop(write);
        self.poll_deferred();
        Some((range, asked))
    }

    /// Unmaps as `unmap_part`, if everything is ordinary; else nothing has changed.
    #[inline]
    pub(super) fn unmap_fast(&self, range: PageRange) -> Option<()> {
        let own = self.own()?;
        if !own.lane.is_around(&range.numbers()) {
            return None;
        }
        let mut found = None;
        let (write, table) = self.write_own(&own, || {
            let Range { start, end } = range.numbers();
            let (area, around) = own.lane.only_area(start..end)?;
            let [below, above] = around;
            let hole_start = below.map_or(0, |below| below.end.min(start));
            found = Some((area, hole_start..above.map_or(u64::MAX, |above| above.start.max(end))));
            Some(widened_to(start..end, around))
        })?;
        let (area, hole) = found.map(|(entry, hole)| (AreaAt::new(entry), hole))?;
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
        let may_be_in_use = self.take_off(&own, (area, rest.as_ref()), range)?;
        let mut before = Sizes::default();
        before.add(flags, area.end.min(range.end()) - area.start.max(range.start()));
        before.areas = u64::from(rest.is_none());
        self.count_in_purses(&own.credits, &Counted { before, after: Sizes::default() });
        drop(table);
        if may_be_in_use {
            D::await_faults(self, area.start..area.end);
        }
        if rest.is_some() {
            area.area().end_change();
        }
        self.zap_and_prune(range, Some(hole), &mut || ());
        if rest.is_none() {
            // SAFETY: the edit took it off the index, and those faults have ended that began before.
            unsafe { release_area(self, area.place(), may_be_in_use) };
        }
        drop(write);
        self.prune_left_over();
        self.poll_deferred();
        Some(())
    }

    /// Takes a range of an area off the index, so that `rest` is left, or nothing of it; says whether others may be
    /// using what went. Nothing if memory is short.
    #[inline(always)]
    fn take_off(
        &self,
        own: &Own<'_, P, D>,
        (entry, rest): (AreaAt<'_, P, D>, Option<&AreaView<P>>),
        range: PageRange,
    ) -> Option<bool> {
        let area = entry.area();
        let place = entry.place();
        let added = rest.map(|view| IndexEntry { start: view.start.get(), end: view.end.get(), area: place });
        let mut edit = self.edit_own(own, entry.start.get()..entry.end.get(), added)?;
        own.credits.note_out();
        let told = announced_range(range);
        if mutant!(RemovedUnannounced, true => rest.is_some()) {
            area.begin_change_within(told.clone());
        }
        self.note_change(&told, Alone::InALane);
        let may_be_in_use = self.publish_own(own, &mut edit);
        if let Some(view) = rest {
            area.set(view);
        }
        Some(may_be_in_use)
    }

    /// Returns the calling CPU's lane, where it has one.
    #[inline(always)]
    fn own(&self) -> Option<Own<'_, P, D>> {
        let (rooms, credits) = (self.lane_rooms()?, self.row()?);
        let (parts, lane) = rooms.lane_of(P::cpu());
        Some(Own { rooms, parts, lane, credits })
    }

    /// Locks the part of the lane that `choose` says, if nobody else is there.
    #[inline(always)]
    #[track_caller]
    fn write_own<'a>(
        &'a self,
        own: &Own<'a, P, D>,
        choose: impl FnOnce() -> Option<Range<u64>>,
    ) -> Option<Locked<'a, P, D>> {
        // What crosses a bound comes and goes with everything held (N5 of `lane_rooms`).
        let chosen = || if own.rooms.are_crossed() { None } else { choose() };
        self.lock.write_first(own.parts, || chosen().filter(|part| own.lane.has_part(part)))
    }

    /// Prepares an edit, out of what the index keeps or what is had without sleeping; nothing if that is too little.
    #[inline(always)]
    fn edit_own<'a>(
        &'a self,
        own: &Own<'a, P, D>,
        span: Range<u64>,
        added: Option<IndexEntry<Area<P, D>>>,
    ) -> Option<Edit<'a, P>> {
        let mut edit = own.lane.index.unprepared_from(Index::<P, Area<P, D>>::nothing_aside(&self.vm().nodes));
        edit.is_prepared(span, added.into_iter()).then_some(edit)
    }

    /// Puts an edit in force; says whether others may be using what it took away.
    #[inline(always)]
    fn publish_own(&self, own: &Own<'_, P, D>, edit: &mut Edit<'_, P>) -> bool {
        let mut may_be_in_use = true;
        D::update_index(self, || {
            _ = edit.commit(|| {
                may_be_in_use = own.lane.may_be_looked_at(self.memory().rcu());
                may_be_in_use
            });
        });
        may_be_in_use
    }

    /// Puts an area of its own into a hole; nothing if memory is short.
    #[inline(always)]
    fn add(&self, own: &Own<'_, P, D>, view: &AreaView<P>) -> Option<()> {
        let area = self.vm().areas.try_alloc().ok()?;
        write_area(area, view, Behind::Zeros);
        let entry = IndexEntry { start: view.start.get(), end: view.end.get(), area };
        let Some(mut edit) = self.edit_own(own, entry.start..entry.end, Some(entry)) else {
            self.discard(area);
            return None;
        };
        // SAFETY: just written, and still ours.
        unsafe { area.as_ref() }.end_change_unpublished();
        self.publish_own(own, &mut edit);
        Some(())
    }

    /// Lets an area become `view`, which has a range more; nothing if memory is short, or more changes than bounds.
    #[inline(always)]
    fn grow(
        &self,
        own: &Own<'_, P, D>,
        (entry, view): (AreaAt<'_, P, D>, &AreaView<P>),
        range: PageRange,
    ) -> Option<()> {
        let area = entry.area();
        if !D::ADDS_FREELY || area.flags_and_root() != (view.flags, view.root) {
            return None;
        }
        let (start, end) = (view.start.get(), view.end.get());
        let mut edit = self.edit_own(own, start..end, Some(IndexEntry { start, end, area: entry.place() }))?;
        area.begin_change_within(announced_range(range));
        self.publish_own(own, &mut edit);
        area.set(view);
        area.end_change();
        Some(())
    }
}

#[cfg(test)]
mod tests;
