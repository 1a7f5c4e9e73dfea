//! The fast path of mmap and munmap: what threads do all the time, each in a lane where nobody else is, or in a space
//! without lanes where nobody else changes anything just then.
//!
//! # Guarantee
//! A call that takes this path does what it would have done on the usual one (`map`); one that finds anything out of
//! the ordinary here has changed nothing, and goes there.
//!
//! # What is ordinary
//! * The edit (`ordinary`).
//! * The place: the kernel chooses it in the calling CPU's range, or it is named, in a lane, any CPU's or an annex, and
//!   reaches no bound of it. A space without lanes is all one lane, without bounds.
//! * Who else is there: nobody holds a part of that lane, or its lock.
//! * No area crosses a lane's bound.
//! * No limit is near, where CPUs hold no credits.
//!
//! # Why it is sound
//! The call has the lock of its lane's edits from the choice to the counters (R3 of `ranges`), and comes to it where
//! the table of parts is empty (`sync::RangeLock`, `edit_first_of`, `write_first_of`): so there is nothing to wait for.
//! A mapping is over when it drops that lock, and needs no part (R2); an unmapping enters one, and has it until the
//! pages are gone. A CPU's range never belongs to another table (I5 there). An annex may: so the call asks again under
//! the table's lock. What the call knows by where it is, it need not find out: a part inside a lane has no seams, and
//! that lane's index has all that lies in it (N1).
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | somebody comes to the lane between the choice and the entering | both happen under the table's lock, and who has a part there, or the lock, makes the call go the usual way |
//! | somebody takes everything, or a second user comes, and lanes | the call has a share of the semaphore; where parts are not given out yet it goes the usual way; that there are no lanes it asks again with the share held |
//! | a fault, or a call that looks, goes through the common index of a space without lanes | nodes and areas that leave it wait for a grace period, always |
//! | mlockall comes while a mapping waits for its share | what it said is read with the share held, under the lane's lock |
//! | an annex grows, goes, or comes anew with the same table, between the look for its table and that table's lock | which annex the address is in, and its bounds, are looked at under the lock, which whoever lets one grow has; they go with everything held; and one that comes anew keeps its bounds away from areas and parts (A2 of `annexes`) |
//! | a fault of another CPU uses what an unmapping takes away | it is noted, or sees the edit (N6): the call keeps its part, and waits for that fault without the lock |
//! | a fault works in an area that grows | its root and its flags stay, or the call goes the usual way (I2, I3 of `design::faultless`) |
//! | a fault gives a neighbour its first root beside the look at it | its absence is pinned before the call relies on it (I4 of `area`) |
//! | the call gives up with credits claimed, or a neighbour's root pinned | both are what the usual way begins with |

use super::Space;
use super::change::{Counted, Sizes, release_area};
use super::credits::Row;
use super::lane_rooms::LaneRooms;
use super::map::with_account;
use super::map_lock::{EditGuard, MapLock};
use super::ordinary::{Leaving, ORDINARY, Site, only_neighbour};
use super::own_lane::{OwnLane, hole_of, widened_to};
use super::permit::{ReadOf, WriteOf};
use super::ranges::Additions;
use super::request::{Backing, MapRequest, Placement};
use crate::addr::{PageRange, VirtAddr};
use crate::area::AreaFlags;
use crate::design::Design;
use crate::system::System;
use crate::translations::lanes::Alone;
use core::ops::Range;
use faultless_sync::PartTableRef;

/// A lane, or a space without lanes, before its lock is had.
struct Near<'a, P: System> {
    /// Nothing of a space without lanes.
    rooms: Option<Rooms<'a, P>>,
    parts: PartTableRef<'a, P>,
}

/// What a mapping locks: a share of everything, and the edits of its lane.
type LockedEdits<'a, P, D> = (ReadOf<'a, P, D>, EditGuard<'a, P>);

/// What an unmapping locks: its part, and the edits of its lane.
type LockedPart<'a, P, D> = (WriteOf<'a, P, D>, EditGuard<'a, P>);

/// What all lanes have, and the purses of their CPUs.
struct Rooms<'a, P: System> {
    rooms: &'a LaneRooms<P>,
    credits: Row<'a, P>,
}

impl<P: System> Clone for Rooms<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System> Copy for Rooms<'_, P> {}

/// What leaves, and the hole that it leaves.
type Found<'a, P, D> = (Leaving<'a, P, D>, Range<u64>);

impl<P: System, D: Design<P>> Space<P, D> {
    /// Maps as `map_part`, if everything is ordinary; else nothing has changed.
    #[inline(never)]
    pub(super) fn map_fast(&self, request: &MapRequest<'_, P>, len: u64) -> Option<(PageRange, AreaFlags)> {
        let asked = request.flags();
        if !matches!(request.backing, Backing::Anonymous) || !ORDINARY.contains(asked) {
            return None;
        }
        let flags = with_account(asked);
        if flags.contains(AreaFlags::ACCOUNT) {
            self.check_commit(len).ok()?;
        }
        // Before the search: all but the first CPU go to their lanes at once.
        self.note_mapper();
        let range = match request.placement {
            Placement::Anywhere => self.map_in_own(request, len, flags)?,
            Placement::Fixed(start) | Placement::FixedNoReplace(start) => self.map_named(start, len, flags)?,
            Placement::Hint(_) | Placement::Low2G { .. } => return None,
        };
        Some((range, asked))
    }

    /// Maps in the calling CPU's own lane, or where the kernel chooses in a space without lanes.
    #[inline(always)]
    fn map_in_own(&self, request: &MapRequest<'_, P>, len: u64, flags: AreaFlags) -> Option<PageRange> {
        let Some(rooms) = self.rooms() else { return self.map_anywhere(request, len, flags) };
        let room = self.own_room(self.chosen_room())?;
        let (near, site) = self.own(rooms);
        let (share, table) = self.lock.edit_first(near.parts)?;
        // What crosses a bound comes and goes with everything held (N5 of `lane_rooms`).
        let is_whole = !rooms.rooms.are_crossed();
        let range = if is_whole { self.search_lane(request, (len, room), &site.lane) } else { None }?;
        self.map_locked_near(&near, &site, (range, flags), (share, table))
    }

    /// Maps where the kernel chooses in a space without lanes.
    #[inline(never)]
    fn map_anywhere(&self, request: &MapRequest<'_, P>, len: u64, flags: AreaFlags) -> Option<PageRange> {
        let near = self.common()?;
        let (share, table) = self.lock.edit_first(near.parts)?;
        let site = self.common_site()?;
        let room = self.chosen_room();
        // On a machine of one CPU mappings may be spread all the same.
        let room = self.own_room(room.clone()).unwrap_or(room);
        let range = self.search_lane(request, (len, room), &site.lane)?;
        self.map_locked_near(&near, &site, (range, flags), (share, table))
    }

    /// Maps at a place that is named. Apart, so that calls pay nothing for it that name none.
    #[inline(never)]
    fn map_named(&self, start: VirtAddr, len: u64, flags: AreaFlags) -> Option<PageRange> {
        let range = self.fixed(start, len).ok()?;
        let near = self.near(self.rooms(), start)?;
        let (share, table) = self.lock.edit_first(near.parts)?;
        let site = self.site_at(&near, range, &table)?;
        self.map_locked_near(&near, &site, (range, flags), (share, table))
    }

    /// Maps in a lane that is locked, where nothing is mapped yet.
    #[inline(always)]
    fn map_locked_near<'a>(
        &'a self,
        near: &Near<'a, P>,
        site: &Site<'a, P, D>,
        (range, flags): (PageRange, AreaFlags),
        (share, table): LockedEdits<'a, P, D>,
    ) -> Option<PageRange> {
        // Where nobody has everything: what is mapped from now on may have to be locked.
        if !self.default_flags().is_empty() {
            return None;
        }
        let around = site.lane.around_hole(range.numbers())?;
        let neighbour = only_neighbour(&range.numbers(), around)?;
        if !site.lane.has_part(&widened_to(range.numbers(), around)) {
            return None;
        }
        let added = Additions { areas: 1, bytes: range.len_bytes(), locked_bytes: 0 };
        let may_add = match &near.rooms {
            Some(Rooms { credits, .. }) => self.claim_credits(credits, &added),
            // Nobody else holds a claim: the table of parts is empty.
            None => self.is_far_from_limits(added.areas),
        };
        if !may_add {
            return None;
        }
        if let Some(Rooms { rooms, .. }) = &near.rooms {
            rooms.note_used();
        }
        let after = site.put(range, flags, neighbour)?;
        self.count_near(near, &Counted { before: Sizes::default(), after });
        drop(table);
        drop(share);
        self.poll_deferred();
        Some(range)
    }

    /// Unmaps as `unmap_part`, if everything is ordinary; else nothing has changed.
    #[inline]
    pub(super) fn unmap_fast(&self, range: PageRange) -> Option<()> {
        let Some(rooms) = self.rooms() else { return self.unmap_elsewhere(None, range) };
        let (near, site) = self.own(rooms);
        if !site.lane.is_around(&range.numbers()) {
            return self.unmap_elsewhere(Some(rooms), range);
        }
        let mut found = None;
        let locked = self.lock.write_first(near.parts, |_| {
            // As in `map_in_own`.
            if rooms.rooms.are_crossed() { None } else { part_leaving(&site, range, &mut found) }
        })?;
        self.unmap_locked_near(&near, &site, (range, found?), locked)
    }

    /// As [`Space::unmap_fast`], in another lane than the calling CPU's own, or in a space without lanes.
    #[inline(never)]
    fn unmap_elsewhere(&self, rooms: Option<Rooms<'_, P>>, range: PageRange) -> Option<()> {
        let near = self.near(rooms, range.start())?;
        // Who comes in vain takes a share of the semaphore for nothing; most of those unmap what lies side by side.
        if near.parts.seems_used() {
            return None;
        }
        let (mut site, mut found) = (None, None);
        let locked = self.lock.write_first(near.parts, |table| {
            part_leaving(site.insert(self.site_at(&near, range, table)?), range, &mut found)
        })?;
        self.unmap_locked_near(&near, &site?, (range, found?), locked)
    }

    /// Unmaps in what is locked.
    #[inline(always)]
    fn unmap_locked_near<'a>(
        &'a self,
        near: &Near<'a, P>,
        site: &Site<'a, P, D>,
        (range, (leaving, hole)): (PageRange, Found<'a, P, D>),
        (write, table): LockedPart<'a, P, D>,
    ) -> Option<()> {
        let may_be_in_use = site.take_off(&leaving, range)?;
        if let Some(Rooms { credits, .. }) = &near.rooms {
            credits.note_out();
        }
        self.count_near(near, &Counted { before: leaving.sizes, after: Sizes::default() });
        drop(table);
        let area = leaving.area;
        if may_be_in_use {
            D::await_faults(self, area.start..area.end);
        }
        if leaving.rest.is_some() {
            area.area().end_change();
        }
        self.zap_and_prune(range, Some(hole), &mut || ());
        if leaving.rest.is_none() {
            // SAFETY: the edit took it off the index, and those faults have ended that began before.
            unsafe { release_area(self, area.place(), may_be_in_use) };
        }
        drop(write);
        self.prune_left_over();
        self.poll_deferred();
        Some(())
    }

    /// Counts a change: out of the CPU's purse, where there are purses; under the lane's lock.
    #[inline(always)]
    fn count_near(&self, near: &Near<'_, P>, counted: &Counted) {
        match &near.rooms {
            Some(Rooms { credits, .. }) => self.count_in_purses(credits, counted),
            None => self.count(counted),
        }
    }

    /// Returns what lanes and purses there are, if there are any.
    #[inline(always)]
    fn rooms(&self) -> Option<Rooms<'_, P>> {
        Some(Rooms { rooms: self.lane_rooms()?, credits: self.row()? })
    }

    /// Returns the calling CPU's lane, for whoever gets its lock.
    #[inline(always)]
    fn own<'a>(&'a self, rooms: Rooms<'a, P>) -> (Near<'a, P>, Site<'a, P, D>) {
        let (parts, lane) = rooms.rooms.lane_of(P::cpu());
        (Near { rooms: Some(rooms), parts }, Site { space: self, lane, alone: Alone::InALane })
    }

    /// Returns the lane that an address lies in, if it lies in one; a space without lanes.
    #[inline(always)]
    fn near<'a>(&'a self, rooms: Option<Rooms<'a, P>>, address: VirtAddr) -> Option<Near<'a, P>> {
        match rooms {
            Some(Rooms { rooms: lanes, .. }) => Some(Near { rooms, parts: lanes.parts_of_lane(address.get())? }),
            None => self.common(),
        }
    }

    /// Returns a space without lanes, if nobody seems to be there: who comes in vain takes a share of the semaphore for
    /// nothing.
    #[inline(always)]
    fn common(&self) -> Option<Near<'_, P>> {
        let parts = self.lock.common_parts().filter(|parts| !parts.seems_used())?;
        Some(Near { rooms: None, parts })
    }

    /// Returns the lane around a range, if the lock that is had is that of its edits; not a piece of the rest. Of a
    /// space without lanes all of it.
    #[inline(always)]
    fn site_at<'a>(&'a self, near: &Near<'a, P>, range: PageRange, held: &EditGuard<'_, P>) -> Option<Site<'a, P, D>> {
        let Some(Rooms { rooms: lanes, .. }) = near.rooms else { return self.common_site() };
        let lane = lanes.own_lane(&self.index, range.start().get(), held, || false)?;
        lane.is_around(&range.numbers()).then_some(Site { space: self, lane, alone: Alone::InALane })
    }

    /// Returns a space as one site, if it has no lanes; the caller has a share, so that none come, and the lock of the
    /// common table.
    #[inline(always)]
    fn common_site(&self) -> Option<Site<'_, P, D>> {
        let lane = OwnLane::whole(&self.index);
        self.lane_rooms().is_none().then_some(Site { space: self, lane, alone: Alone::InALane })
    }
}

/// Returns the part that an unmapping takes in a lane, and says what leaves, and which hole that leaves; under the
/// lane's lock. Nothing if that is not one area, whole or at one end.
#[inline(always)]
fn part_leaving<'a, P: System, D: Design<P>>(
    site: &Site<'a, P, D>,
    range: PageRange,
    found: &mut Option<Found<'a, P, D>>,
) -> Option<Range<u64>> {
    let (area, around) = site.lane.only_area(range.numbers())?;
    let part = widened_to(range.numbers(), around);
    if !site.lane.has_part(&part) {
        return None;
    }
    *found = Some((site.leaving(area, range)?, hole_of(&range.numbers(), around)));
    Some(part)
}

#[cfg(test)]
mod tests;
