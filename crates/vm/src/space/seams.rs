//! Seams: areas that are kept as several, cut where annexes begin and end.
//!
//! # Guarantee
//! What Linux has as one area may be several here, each in one lane, so that calls inside different lanes change it
//! side by side. Nobody sees that: the list shows one area, `map_count` counts one, and whatever is about such a bound
//! finds one there.
//!
//! # Words first
//! A *seam* is a bound of an annex where two areas touch that are one: the lower one says
//! [`SEAM_ABOVE`](AreaFlags::SEAM_ABOVE), the upper one [`SEAM_BELOW`](AreaFlags::SEAM_BELOW). Areas that seams connect
//! are a *chain*.
//!
//! # Invariants
//! * S1 seams come and go with everything held, or by who has parts on both sides (S4); they lie at bounds of annexes.
//! * S2 both sides of a seam are private memory without an object, alike in all that keeps neighbours apart; both have
//!   the same root, or none.
//! * S3 of both sides, the lower one alone counts as an area.
//! * S4 calls, which know nothing of seams, meet none at the bounds of what they change. Who has everything joins both
//!   sides first ([`Space::join_seams`]). Who reaches one bound from inside a lane has, besides his part, all of the
//!   area beyond: he opens the seam ([`WritePermit::open_seam`]), so that the sides are areas of their own, and joins
//!   nothing across the bound; at the call's end he makes a seam if what touches there is one
//!   ([`WritePermit::cut_seams`]). He only does so where all areas concerned have one root, or none has, which is
//!   pinned until the end; what is new at the bound is pinned from its beginning. Or they have several, those without
//!   are of no chain, and an area comes: then Linux joins it with the lower neighbour first, so at a lower bound it has
//!   the root of the area beyond from its beginning, if they may be joined. Else he has everything.
//! * S5 an area of a chain without a root gets one with everything held, together with all others of the chain
//!   ([`Space::root_chains`]): a fault without the lock gives it none, and no call joins it with an area that has a
//!   root, or may get one before the call ends.
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | a fault gives an area a root, beside the cut that makes a seam in it | the cut pins the root's absence first (I4 of `area`); nobody waits for faults, which find the same pages behind either bounds (I5 of `area`) |
//! | a fault works in the upper of two areas that are joined, which leaves the index | it is freed behind the fault's section; if it has no root, the fault gives it none (S5) |
//! | two CPUs store to a chain without a root for the first time | one after the other, with everything held; the second finds the first one's root |
//! | a call with a part joins an area of a chain that has no root with a neighbour that gets one | the absence of the neighbour's is pinned under the table's lock; if it has one, the call has everything |
//! | whoever has a part when another is chosen gives a root or makes a seam, and leaves before that is entered | where it reaches a bound, who has entered looks again, and takes everything if roots mix now (`fitting`; `orders`) |
//! | calls in two lanes change areas on both sides of a seam | neither reaches it, and what they change lies in the lane: bounds other than the seam's, and areas other than these two |
//! | two calls reach one bound, from both sides or from one | each has parts on both sides (S4), so one comes after the other |
//! | a fault reads the flags of an area whose seam is opened or made | both leave rights and content as they are; its root is there, or pinned, and who would give it one under the lock waits for the part |
//! | somebody lists or counts while a seam is open | with everything held, so before or behind the call |
//! | the limit of areas, while a seam is open | the area more is claimed with the parts |
//! | a fault looks for the root of a neighbour beyond a bound, whose lane's calls change it | it looks in an RCU section. Where both touch, rights and content change by who has everything, or both sides: he keeps a fault under the lock out of the own area, and one without the lock leaves such a first root to the lock |
//! | no memory for joining | both sides become areas of their own, as on Linux, where a join that finds no memory is left out |

use super::annexes::GRANULE_BYTES;
use super::change::{Counted, Join, NewArea, Sizes};
use super::lane_rooms::LaneRooms;
use super::map_lock::MapLock;
use super::permit::{ReadPermit, SpaceWriteGuard, WritePermit};
use super::{AreaAt, EVERYTHING, Space};
use crate::addr::{PageRange, VirtAddr};
use crate::area::{AreaFlags, AreaView};
use crate::content::Content;
use crate::design::Design;
use crate::error::CallError;
use crate::system::System;
use core::ops::Range;

/// What an area may be and allow that is cut at a seam.
const CUTTABLE: AreaFlags = AreaFlags::RIGHTS
    .union(AreaFlags::ACCOUNT)
    .union(AreaFlags::NORESERVE)
    .union(AreaFlags::INHERITED)
    .union(AreaFlags::MAYBE_GUARD)
    .union(AreaFlags::HUGE)
    .union(AreaFlags::NO_HUGE)
    .union(AreaFlags::SEAMS)
    .union(AreaFlags::SEAM_OPEN);

impl<P: System> AreaView<P> {
    /// Says whether the area is one of a chain, and has no root (S5).
    #[inline]
    pub(crate) fn lacks_root_of_chain(&self) -> bool {
        self.root == 0 && self.flags.intersects(AreaFlags::SEAMS)
    }

    /// Says whether the area may be cut at a bound, and be one of a chain.
    pub(super) fn is_cuttable(&self) -> bool {
        self.object.is_none() && self.content == Content::Zeros && CUTTABLE.contains(self.flags)
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Makes a seam of a bound that lies inside an area; says whether no area lies across it any more. The caller has
    /// everything.
    pub(super) fn cut_seam(self, bound: u64) -> Result<bool, CallError> {
        let bound = VirtAddr::new(bound);
        let Some(entry) = self.containing(bound).filter(|entry| entry.start < bound) else { return Ok(true) };
        if !entry.area().view().is_cuttable() {
            return Ok(false);
        }
        if let Some(mut change) = self.prepare_split(&entry, bound, Join::Seam)? {
            change.note_bounds_alone();
            change.commit(|| ());
            self.note_seams(1);
        }
        Ok(true)
    }

    /// Makes seams of the bounds of annexes in a range, or at its ends, that an area has come to lie across, if the
    /// caller has everything, so that the next one need not; where it is not called, the next call about that area cuts
    /// it (`fitting`). Who has parts on both sides of a bound must call it at the end: he closes what he has opened.
    #[inline(always)]
    pub(super) fn cut_seams(self, range: &Range<VirtAddr>) {
        if self.lane_rooms().is_some() {
            self.cut_seams_in_lanes(range);
        }
    }

    fn cut_seams_in_lanes(self, range: &Range<VirtAddr>) {
        if self.lock.is_divided() {
            if self.may_meet_bound(range) {
                self.close_seams(range);
            }
        } else {
            self.cut_seams_of_all(range);
        }
    }

    /// Says whether a range begins or ends where an annex may. Asked first, because most ranges don't. Who has a part
    /// of a CPU's range reaches none of its bounds.
    #[inline]
    fn may_meet_bound(self, range: &Range<VirtAddr>) -> bool {
        let [start, end] = [range.start, range.end].map(VirtAddr::get);
        let is_aligned = start.is_multiple_of(GRANULE_BYTES) || end.is_multiple_of(GRANULE_BYTES);
        is_aligned && self.lane_rooms().is_some_and(|lanes| !lanes.is_cpus(start))
    }

    #[cold]
    fn close_seams(self, range: &Range<VirtAddr>) {
        self.bounds_met(range).for_each(|bound| self.close_seam(bound, range));
    }

    fn cut_seams_of_all(self, range: &Range<VirtAddr>) {
        let Some(lanes) = self.lane_rooms() else { return };
        let bounds = || lanes.annexes().bounds_reached(&(range.start.get()..range.end.get()));
        if bounds().next().is_some() {
            // What could not be cut is left to the next call about it.
            bounds().for_each(|bound| _ = self.cut_seam(bound));
            lanes.look_for_crossing(&self.index);
        }
    }

    /// Returns the bounds of lanes at the ends of a range, if the caller has a part: then he has one beyond, too.
    fn bounds_met(self, range: &Range<VirtAddr>) -> impl Iterator<Item = VirtAddr> + use<'g, P, D> {
        let ends = [range.start, range.end];
        let may_be = |bound: &VirtAddr| D::Lock::DIVIDES && bound.get().is_multiple_of(GRANULE_BYTES);
        let is_one = move |bound: &VirtAddr| {
            // At the bounds of a CPU's range, or inside it, nobody has parts on both sides.
            let is_met = |lanes: &LaneRooms<P>| !lanes.is_cpus(bound.get()) && lanes.is_bound(bound.get());
            self.lane_rooms().is_some_and(is_met) && self.lock.is_divided()
        };
        ends.into_iter().filter(may_be).filter(is_one)
    }

    /// Says whether a range, of which the caller has a part, meets a bound of its lane: then he has what lies beyond,
    /// too, and whether that is one with what he makes is decided at the call's end.
    #[inline]
    pub(super) fn meets_bound(self, range: &Range<VirtAddr>) -> bool {
        D::Lock::DIVIDES && self.may_meet_bound(range) && self.is_bound_met(range)
    }

    #[cold]
    fn is_bound_met(self, range: &Range<VirtAddr>) -> bool {
        self.bounds_met(range).next().is_some()
    }

    /// Returns the areas that touch at a bound.
    fn sides(self, bound: VirtAddr) -> Option<[AreaAt<'g, P, D>; 2]> {
        let (lower, upper) = (self.containing(bound - 1)?, self.containing(bound)?);
        (lower.end == bound && upper.start == bound).then_some([lower, upper])
    }

    /// Returns the area beyond a bound that an end of a range meets.
    fn beyond(self, bound: VirtAddr, range: &Range<VirtAddr>) -> Option<AreaAt<'g, P, D>> {
        match bound == range.start {
            true => self.containing(bound - 1).filter(|lower| lower.end == bound),
            false => self.containing(bound).filter(|upper| upper.start == bound),
        }
    }

    /// Lets the sides of a seam, if there is one at a bound, be areas of their own until the end of the call. The
    /// caller has parts of both, of all that they are in their lanes, and a lock of edits.
    pub(super) fn open_seam(self, bound: VirtAddr, range: &Range<VirtAddr>) {
        let Some([lower, upper]) = self.sides(bound) else { return };
        if upper.area().flags().contains(AreaFlags::SEAM_BELOW) {
            self.note_sides([lower, upper], |flags, seam| flags - seam, -1);
            self.mark_beyond(bound, range, |flags| flags | AreaFlags::SEAM_OPEN);
        }
    }

    /// Returns the root that an area which comes has from the beginning: that of the area beyond the lower bound of the
    /// lane, if it may be joined with that; else none. As on Linux, where the lower neighbour is asked first.
    #[inline]
    pub(super) fn root_at_bound(self, view: &AreaView<P>) -> u64 {
        let may_be_met = D::Lock::DIVIDES && view.start.get().is_multiple_of(GRANULE_BYTES);
        if may_be_met { self.root_beyond(view) } else { 0 }
    }

    #[cold]
    fn root_beyond(self, view: &AreaView<P>) -> u64 {
        let range = view.start..view.end;
        let is_met = self.bounds_met(&range).any(|bound| bound == view.start);
        let below = self.beyond(view.start, &range).filter(|_| is_met).map(|below| below.area().view());
        below.filter(|below| below.joins(view)).map_or(0, |below| below.root)
    }

    /// Notes that what comes in a range may be joined with what it touches: at a bound that is done at the call's end.
    #[inline]
    pub(super) fn note_joins(self, range: &Range<VirtAddr>) {
        if D::Lock::DIVIDES && self.may_meet_bound(range) {
            self.open_bounds(range);
        }
    }

    #[cold]
    fn open_bounds(self, range: &Range<VirtAddr>) {
        for bound in self.bounds_met(range) {
            self.mark_beyond(bound, range, |flags| flags | AreaFlags::SEAM_OPEN);
        }
    }

    /// Lets what touches at an address stay apart, as on Linux, which cuts there although the call fails then.
    pub(super) fn keep_apart(self, address: VirtAddr) {
        if self.meets_bound(&(address..address)) {
            for side in [self.containing(address - 1), self.containing(address)].into_iter().flatten() {
                side.area().set_flags(side.area().flags() - AreaFlags::SEAM_OPEN);
            }
        }
    }

    fn mark_beyond(self, bound: VirtAddr, range: &Range<VirtAddr>, change: impl FnOnce(AreaFlags) -> AreaFlags) {
        if let Some(beyond) = self.beyond(bound, range) {
            beyond.area().set_flags(change(beyond.area().flags()));
        }
    }

    /// Makes a seam of a bound where one was opened, or a change was made since, if what touches there is one. The
    /// caller is that of [`WritePermit::open_seam`], without the lock.
    fn close_seam(self, bound: VirtAddr, range: &Range<VirtAddr>) {
        let Some(beyond) = self.beyond(bound, range) else { return };
        let is_open = beyond.area().flags().contains(AreaFlags::SEAM_OPEN);
        self.mark_beyond(bound, range, |flags| flags - AreaFlags::SEAM_OPEN);
        let Some(sides) = self.sides(bound).filter(|_| is_open) else { return };
        let [lower, upper] = sides.map(|side| side.area().view_pinned());
        if !lower.is_cuttable() || !upper.is_cuttable() || !lower.joins(&upper) {
            debug_assert!(!lower.joins(&upper), "`fitting` lets none come that may not be cut");
            return;
        }
        for (side, root) in sides.into_iter().zip([upper.root, lower.root]) {
            // What is new has no root, and is pinned: it gets that of the whole.
            _ = if root == 0 { 0 } else { side.area().root_or_set(|| root) };
        }
        let edit = self.lock.edit(bound);
        self.note_sides(sides, |flags, seam| flags | seam, 1);
        drop(edit);
    }

    /// Changes what the sides of a bound are to each other. Faults may look on: what they read of flags else stays.
    fn note_sides(self, sides: [AreaAt<'_, P, D>; 2], change: fn(AreaFlags, AreaFlags) -> AreaFlags, added: i64) {
        let mut counted = Counted { before: Sizes::default(), after: Sizes::default() };
        for (side, seam) in sides.into_iter().zip([AreaFlags::SEAM_ABOVE, AreaFlags::SEAM_BELOW]) {
            let (old, bytes) = (side.area().flags(), side.end - side.start);
            let new = change(old, seam);
            counted.before.add(old, bytes);
            counted.after.add(new, bytes);
            side.area().set_flags(new);
        }
        self.count(&counted);
        self.note_seams(added);
    }

    /// Joins what a seam keeps apart, if there is one at a bound. The caller has everything.
    pub(super) fn join_seam(self, bound: VirtAddr) {
        let is_upper =
            |entry: &AreaAt<'_, P, D>| entry.start == bound && entry.area().flags().contains(AreaFlags::SEAM_BELOW);
        let Some(upper) = self.containing(bound).filter(is_upper) else { return };
        self.note_seams(-1);
        let area = upper.area();
        let old = area.view_pinned();
        let view = AreaView { flags: old.flags - AreaFlags::SEAM_BELOW, ..old };
        let new = NewArea { view, behind: area.behind().clone(), join: Join::Below };
        let joined = PageRange::between(bound, old.end).map(|range| self.prepare_change(range, Some(new)));
        match joined {
            Some(Ok(mut change)) => {
                debug_assert_eq!(change.nr_added(), 0, "S2, S3");
                change.note_bounds_alone();
                change.commit(|| ());
            }
            _ => self.forget_seam(bound),
        }
    }

    /// Lets both sides of a seam be areas of their own.
    #[cold]
    fn forget_seam(self, bound: VirtAddr) {
        let sides =
            [(self.containing(bound - 1), AreaFlags::SEAM_ABOVE), (self.containing(bound), AreaFlags::SEAM_BELOW)];
        for (side, flag) in sides {
            let Some(range) = side.and_then(|side| PageRange::between(side.start, side.end)) else { continue };
            let Some(area) = side.map(|side| side.area()) else { continue };
            self.reflag_in_place((area, range), area.flags() - flag, false, || ());
        }
    }

    /// Joins the whole chain of the area that holds an address. The caller has everything.
    fn join_chain(self, address: VirtAddr) {
        while let Some(entry) = self.containing(address) {
            let flags = entry.area().flags();
            if flags.contains(AreaFlags::SEAM_BELOW) {
                self.join_seam(entry.start);
            } else if flags.contains(AreaFlags::SEAM_ABOVE) {
                self.join_seam(entry.end);
            } else {
                return;
            }
        }
    }

    /// Joins what seams keep apart in a range and at its ends, and where the range meets areas of which some have
    /// roots, all chains that have none (S4, S5). The caller has everything.
    #[inline]
    pub(super) fn join_seams(self, range: &Range<VirtAddr>) {
        if let Some(lanes) = self.lane_rooms().filter(|lanes| lanes.annexes().have_seams()) {
            self.join_seams_of(lanes, range);
        }
    }

    fn join_seams_of(self, lanes: &LaneRooms<P>, range: &Range<VirtAddr>) {
        for bound in lanes.annexes().bounds_reached(&(range.start.get()..range.end.get())) {
            self.join_seam(VirtAddr::new(bound));
        }
        let around = VirtAddr::new(range.start.get().saturating_sub(1))..range.end.checked_add(1).unwrap_or(range.end);
        if self.mixes_roots(&around) == Mixed::Yes {
            self.join_chains(&around);
        }
    }

    /// Joins all chains of a range that have no root. The caller has everything.
    fn join_chains(self, range: &Range<VirtAddr>) {
        let mut position = range.start;
        while let Some(entry) = self.first_ending_after(position).filter(|entry| entry.start < range.end) {
            let address = position.max(entry.start);
            position = entry.end;
            if entry.area().view().lacks_root_of_chain() {
                self.join_chain(address);
                let Some(whole) = self.containing(address) else { return };
                position = whole.end;
            }
        }
    }

    /// Gives all areas of the chain of one the root that they would get as one; returns where the chain ends. The
    /// caller has everything.
    fn root_chain(self, area: AreaAt<'g, P, D>) -> VirtAddr {
        let (mut lowest, mut highest) = (area, area);
        while lowest.area().flags().contains(AreaFlags::SEAM_BELOW)
            && let Some(below) = self.containing(lowest.start - 1)
        {
            lowest = below;
        }
        while highest.area().flags().contains(AreaFlags::SEAM_ABOVE)
            && let Some(above) = self.containing(highest.end)
        {
            highest = above;
        }
        let root = self.root_for(&AreaView { end: highest.end, ..lowest.area().view() });
        for piece in self.overlapping(lowest.start..highest.end) {
            _ = piece.area().root_or_set(|| root);
        }
        highest.end
    }
}

/// Whether areas with roots lie beside such as are of a chain without one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mixed {
    Yes,
    No,
}

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    /// Says whether an area that overlaps a range is of a chain that has no root.
    pub(super) fn has_chain_without_root(self, range: &Range<VirtAddr>) -> bool {
        self.overlapping(range.clone()).any(|entry| entry.area().view().lacks_root_of_chain())
    }

    /// Says whether areas that overlap a range have different roots, or some have none. To those that have none nobody
    /// gives any until the caller lets go of them.
    pub(super) fn have_several_roots(self, range: &Range<VirtAddr>) -> bool {
        let mut roots = self.overlapping(range.clone()).map(|entry| entry.area().view_pinned().root);
        let first = roots.next();
        // All are looked at, and so pinned.
        roots.fold(false, |are_several, root| are_several | (Some(root) != first))
    }

    /// Says whether of the areas that overlap a range some have roots, and others are of a chain without one. If none
    /// has, and some are of such a chain, then nobody gives the others roots until the caller lets go of them (S5).
    pub(super) fn mixes_roots(self, range: &Range<VirtAddr>) -> Mixed {
        let has_one = |entry: AreaAt<'_, P, D>| entry.area().view_pinned().root != 0;
        let is_mixed = self.has_chain_without_root(range) && self.overlapping(range.clone()).any(has_one);
        if is_mixed { Mixed::Yes } else { Mixed::No }
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    fn note_seams(&self, added: i64) {
        if let Some(lanes) = self.lane_rooms() {
            lanes.annexes().note_seams(added);
        }
    }

    /// As [`WritePermit::join_seams`], with everything locked.
    #[inline]
    pub(super) fn join_seams(&self, write: &SpaceWriteGuard<'_, P, D>, range: &Range<VirtAddr>) {
        if write.is_whole() {
            write.permit().join_seams(range);
        }
    }

    /// Gives the areas of a range roots that are of chains which have none, and those of the rest of each chain. Seams
    /// stay: to join a chain of many lanes and cut it again would keep all others out for as long.
    #[cold]
    pub(crate) fn root_chains(&self, range: &Range<VirtAddr>) {
        let write = self.write(EVERYTHING);
        let permit = write.permit();
        let mut position = range.start;
        while let Some(entry) = permit.first_ending_after(position).filter(|entry| entry.start < range.end) {
            let is_rootless = entry.area().view().lacks_root_of_chain();
            position = if is_rootless { permit.root_chain(entry) } else { entry.end };
        }
    }
}

// Not under Miri, which knows no coroutines.
#[cfg(all(test, not(miri)))]
mod orders;
