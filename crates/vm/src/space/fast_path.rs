//! The fast path of mmap and munmap: what threads do all the time, each in a lane where nobody else is.
//!
//! # Guarantee
//! A call that takes this path does what it would have done on the usual one (`map`); one that finds anything out of
//! the ordinary here has changed nothing, and goes there.
//!
//! # What is ordinary
//! * The edit (`ordinary`).
//! * The place: the kernel chooses it in the calling CPU's range, or it is named, in a lane, any CPU's or an annex, and
//!   reaches no bound of it.
//! * Who else is there: nobody holds a part of that lane, or its lock.
//! * No area crosses a lane's bound.
//!
//! # Why it is sound
//! The call holds a part as all calls do (`ranges`), and the lock of its lane's edits from the choice to the counters
//! (R3). It comes to both at once, because the table of parts is empty (`sync::RangeLock::write_first_of`): so there is
//! nothing to wait for. A CPU's range never belongs to another table (I5 there). An annex may: so the call asks again
//! under the table's lock. What the call knows by where it is, it need not find out: a part inside a lane has no seams,
//! and that lane's index has all that lies in it (N1).
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | somebody comes to the lane between the choice and the entering | both happen under the table's lock, and who has a part there, or the lock, makes the call go the usual way |
//! | somebody takes everything, or a second user comes | the call has a share of the semaphore; where parts are not given out yet it goes the usual way |
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
use super::permit::WriteOf;
use super::ranges::Additions;
use super::request::{Backing, MapRequest, Placement};
use crate::addr::{PageRange, VirtAddr};
use crate::area::{Area, AreaFlags};
use crate::design::Design;
use crate::index::IndexEntry;
use crate::system::System;
use crate::translations::lanes::Alone;
use core::ops::Range;
use faultless_sync::PartTableRef;

/// A lane, before its lock is had.
struct Near<'a, P: System> {
    rooms: &'a LaneRooms<P>,
    parts: PartTableRef<'a, P>,
    credits: Row<'a, P>,
}

/// What a call locks: its part, and the edits of its lane.
type Locked<'a, P, D> = (WriteOf<'a, P, D>, EditGuard<'a, P>);

/// Where a mapping comes: the range, and the area that it touches, if there is one.
type Chosen<P, D> = (PageRange, Option<IndexEntry<Area<P, D>>>);

/// Says, under a lane's lock, which part of that lane a call takes; nothing if it goes the usual way.
type ChooseAt<'c, 'a, P, D> = dyn FnMut(&Site<'a, P, D>) -> Option<Range<u64>> + 'c;

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

    /// Maps in the calling CPU's own lane.
    #[inline(always)]
    fn map_in_own(&self, request: &MapRequest<'_, P>, len: u64, flags: AreaFlags) -> Option<PageRange> {
        let room = self.own_room(self.chosen_room())?;
        let (near, site) = self.own()?;
        let mut chosen = None;
        let locked = self.lock.write_first(near.parts, |_| {
            // What crosses a bound comes and goes with everything held (N5 of `lane_rooms`).
            let range =
                if near.rooms.are_crossed() { None } else { self.search_lane(request, (len, room), &site.lane) }?;
            self.part_of(&near, &site.lane, range, &mut chosen)
        })?;
        self.map_locked_near(&near, &site, (chosen?, flags), locked)
    }

    /// Maps at a place that is named. Apart, so that calls pay nothing for it that name none.
    #[inline(never)]
    fn map_named(&self, start: VirtAddr, len: u64, flags: AreaFlags) -> Option<PageRange> {
        let range = self.fixed(start, len).ok()?;
        let near = self.near(start)?;
        let mut chosen = None;
        let choose = &mut |site: &Site<'_, P, D>| self.part_of(&near, &site.lane, range, &mut chosen);
        let (locked, site) = self.lock_around(&near, range, choose)?;
        self.map_locked_near(&near, &site, (chosen?, flags), locked)
    }

    /// Returns the part that a mapping takes whose range was chosen in a lane, if nothing is mapped there, and says
    /// what it touches; under the lane's lock.
    #[inline(always)]
    fn part_of(
        &self,
        near: &Near<'_, P>,
        lane: &OwnLane<'_, P, Area<P, D>>,
        range: PageRange,
        chosen: &mut Option<Chosen<P, D>>,
    ) -> Option<Range<u64>> {
        // Where nobody has everything: what is mapped from now on may have to be locked.
        if !self.default_flags().is_empty() {
            return None;
        }
        let around = lane.around_hole(range.numbers())?;
        let neighbour = only_neighbour(&range.numbers(), around)?;
        let added = Additions { areas: 1, bytes: range.len_bytes(), locked_bytes: 0 };
        let part = widened_to(range.numbers(), around);
        *chosen = Some((range, neighbour));
        (lane.has_part(&part) && self.claim_credits(&near.credits, &added)).then_some(part)
    }

    /// Maps in what is locked.
    #[inline(always)]
    fn map_locked_near<'a>(
        &'a self,
        near: &Near<'a, P>,
        site: &Site<'a, P, D>,
        ((range, neighbour), flags): (Chosen<P, D>, AreaFlags),
        (write, table): Locked<'a, P, D>,
    ) -> Option<PageRange> {
        near.rooms.note_used();
        let after = site.put(range, flags, neighbour)?;
        self.count_in_purses(&near.credits, &Counted { before: Sizes::default(), after });
        drop(table);
        drop(write);
        self.poll_deferred();
        Some(range)
    }

    /// Unmaps as `unmap_part`, if everything is ordinary; else nothing has changed.
    #[inline]
    pub(super) fn unmap_fast(&self, range: PageRange) -> Option<()> {
        let (near, site) = self.own()?;
        if !site.lane.is_around(&range.numbers()) {
            return self.unmap_elsewhere(range);
        }
        let mut found = None;
        let locked = self.lock.write_first(near.parts, |_| {
            // As in `map_in_own`.
            if near.rooms.are_crossed() { None } else { part_leaving(&site, range, &mut found) }
        })?;
        self.unmap_locked_near(&near, &site, (range, found?), locked)
    }

    /// As [`Space::unmap_fast`], in another lane than the calling CPU's own.
    #[inline(never)]
    fn unmap_elsewhere(&self, range: PageRange) -> Option<()> {
        let near = self.near(range.start())?;
        // Who comes in vain takes a share of the semaphore for nothing; most of those unmap what lies side by side.
        if near.parts.seems_used() {
            return None;
        }
        let mut found = None;
        let (locked, site) = self.lock_around(&near, range, &mut |site| part_leaving(site, range, &mut found))?;
        self.unmap_locked_near(&near, &site, (range, found?), locked)
    }

    /// Unmaps in what is locked.
    #[inline(always)]
    fn unmap_locked_near<'a>(
        &'a self,
        near: &Near<'a, P>,
        site: &Site<'a, P, D>,
        (range, (leaving, hole)): (PageRange, Found<'a, P, D>),
        (write, table): Locked<'a, P, D>,
    ) -> Option<()> {
        let may_be_in_use = site.take_off(&leaving, range)?;
        near.credits.note_out();
        self.count_in_purses(&near.credits, &Counted { before: leaving.sizes, after: Sizes::default() });
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

    /// Returns the calling CPU's lane, where it has one, for whoever gets its lock.
    #[inline(always)]
    fn own(&self) -> Option<(Near<'_, P>, Site<'_, P, D>)> {
        let (rooms, credits) = (self.lane_rooms()?, self.row()?);
        let (parts, lane) = rooms.lane_of(P::cpu());
        Some((Near { rooms, parts, credits }, Site { space: self, lane, alone: Alone::InALane }))
    }

    /// Returns the lane that an address lies in, if it lies in one.
    #[inline(always)]
    fn near(&self, address: VirtAddr) -> Option<Near<'_, P>> {
        let (rooms, credits) = (self.lane_rooms()?, self.row()?);
        Some(Near { rooms, parts: rooms.parts_of_lane(address.get())?, credits })
    }

    /// Locks the part that `choose` says of the lane around a range, if nobody else is there. Apart, and compiled once.
    #[inline(never)]
    #[track_caller]
    fn lock_around<'a>(
        &'a self,
        near: &Near<'a, P>,
        range: PageRange,
        choose: &mut ChooseAt<'_, 'a, P, D>,
    ) -> Option<(Locked<'a, P, D>, Site<'a, P, D>)> {
        let mut site = None;
        let locked = self.lock.write_first(near.parts, |held| {
            let site = site.insert(self.site_at(range.start(), held)?);
            if site.lane.is_around(&range.numbers()) { choose(site) } else { None }
        })?;
        Some((locked, site?))
    }

    /// Returns an address's lane, if the lock that is had is that of its edits; not a piece of the rest.
    #[inline(always)]
    fn site_at<'a>(&'a self, address: VirtAddr, held: &EditGuard<'_, P>) -> Option<Site<'a, P, D>> {
        let lane = self.own_lane(address.get(), held).filter(|lane| lane.notes_lookers)?;
        Some(Site { space: self, lane, alone: Alone::InALane })
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
