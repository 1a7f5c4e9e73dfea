//! The page tables of holes.
//!
//! # Guarantee
//! A table goes with the last area that has a part of what it translates: the index says where holes are, and the
//! translations free what lies wholly in one (I4 of `table`). Where mappings are spread, those tables that a CPU's
//! range needs at its *top* stay as long as the space, one of each level, because that CPU maps there again and again.

use super::lane_rooms::LaneRooms;
use super::left_over::LeftOver;
use super::map_lock::MapLock;
use super::{EVERYTHING, Space};
use crate::addr::{PAGE, PageRange, USER_END, VirtAddr};
use crate::design::Design;
use crate::system::System;
use crate::translations::Emptied;
use crate::translations::gather::Gather;
use crate::translations::table::{Tables, has_whole_leaf};
use core::ops::Range;
use faultless_platform::mutant;

/// What a remover knows of the hole that its range left.
struct LeftHole {
    /// As it was when the range left the index.
    hole: Option<Range<u64>>,
    /// Whether there may be leaf tables that have a part of the range.
    has_leaves: bool,
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Empties the entries of a range that is not mapped any more, drops what they held, and takes away the tables that
    /// it leaves empty. The index says where the holes are, unless the caller knows in which one the range lay when it
    /// left the index. `pause` is called between one leaf table that holds pages and the next, without a lock.
    pub(super) fn zap_and_prune(&self, range: PageRange, hole: Option<Range<u64>>, pause: &mut dyn FnMut()) {
        // Others who find nothing mapped there wait (`removal`), or have no part of it (R1 of `ranges`).
        let mut gather = Gather::of_its_only_zapper(&self.translations, range);
        let has_leaves = self.translations.zap_into(range, Emptied::All, &mut gather, pause);
        match hole {
            Some(hole) if self.is_undivided() => self.translations.prune(range.numbers(), hole, &mut gather),
            Some(hole) if self.lock.is_divided() => {
                // Else an area of the lane lies in each of its leaf tables, so that those above it stay as well (I4 of
                // `table`).
                if !has_leaves || has_whole_leaf(&range.numbers(), &hole) {
                    self.prune_part(range.numbers(), LeftHole { hole: Some(hole), has_leaves }, &mut gather);
                }
            }
            _ => self.prune_into(range, &mut gather),
        }
    }

    /// Says whether nobody had a part of the space yet, and there are no lanes: no table is left over, and none is
    /// kept.
    #[inline]
    pub(super) fn is_undivided(&self) -> bool {
        !D::Lock::DIVIDES || !self.lock.may_be_divided() && self.lane_rooms().is_none()
    }

    /// Takes away the tables of those parts of a range that no area has.
    #[cold]
    pub(super) fn prune_holes(&self, range: PageRange) {
        self.prune_into(range, &mut Gather::new(&self.translations, range));
    }

    /// As [`Space::prune_holes`], into a gather of the caller's.
    pub(super) fn prune_into(&self, range: PageRange, gather: &mut Gather<'_, P>) {
        let mut range = range.numbers();
        if let Some(left_over) = self.lock.left_over() {
            if self.lock.is_divided() {
                return self.prune_part(range, LeftHole { hole: None, has_leaves: true }, gather);
            }
            range = left_over.taken_with(range);
        }
        let Range { start: mut position, end } = range;
        let mut below = self.last_area_starting_before(position, 0).map_or(0, |entry| entry.end);
        while position < end {
            let next = self.first_area_ending_after(position, u64::MAX);
            let hole = below..next.map_or(USER_END + PAGE, |entry| entry.start);
            self.prune_between_tops(position..hole.end.min(end), &hole, gather);
            below = next.map_or(end, |entry| entry.end);
            position = below;
        }
    }

    /// Takes away the tables of a part of a hole, but for those of the tops of CPUs' ranges.
    #[inline]
    fn prune_between_tops(&self, mut part: Range<u64>, hole: &Range<u64>, gather: &mut Gather<'_, P>) {
        let Some(lanes) = self.lane_rooms() else { return self.translations.prune(part, hole.clone(), gather) };
        while part.start < part.end {
            let free = lanes.between_tops(part.start);
            let hole = hole.start.max(free.start)..hole.end.min(free.end);
            self.translations.prune(part.start..part.end.min(hole.end), hole, gather);
            part.start = free.end.saturating_add(LaneRooms::<P>::TOP_BYTES);
        }
    }

    /// Takes away the tables of a hole that touch `range`, which is one and which the caller has a part of the space's
    /// lock for; they are left over if others hold a part of them (R4 of `ranges`).
    fn prune_part(&self, range: Range<u64>, left: LeftHole, gather: &mut Gather<'_, P>) {
        if !left.has_leaves && self.is_beside_a_top(&range) {
            return;
        }
        let Some(left_over) = self.lock.left_over() else { return };
        let spanned = |hole: &Range<u64>| Tables::<P>::spanned_within(&range, hole, left.has_leaves);
        // Whoever makes that hole larger comes after the caller, and sees all of it.
        let seen = match left.hole {
            Some(hole) => self.of_lane(range.start, hole),
            None => {
                let _beside = self.look_beside();
                self.hole_around(range.start)
            }
        };
        let leaves_crossing = || !left_over.has_crossing_of(&range) && self.may_leave_crossing(&seen);
        if spanned(&seen).is_none() && !leaves_crossing() {
            return;
        }
        let edit = self.lock.edit(VirtAddr::new(range.start));
        let own = edit.as_ref().and_then(|held| self.own_lane(range.start, held));
        let hole = match mutant!(HoleBeyondLane, own => None) {
            Some(lane) => self.between_tops(range.start, lane.hole_around(range.start)),
            None => {
                let _beside = self.look_beside();
                self.hole_around(range.start)
            }
        };
        if self.may_leave_crossing(&hole) {
            left_over.note_crossing(&range);
        }
        let (Some(held), Some(tables)) = (edit, spanned(&hole)) else { return };
        let is_held = mutant!(TablesOfOthersFreed, held.is_held_by_others(&tables, range.start) => false);
        // Tables in high memory are mapped meanwhile: nobody who waits for this lock has a map that they may wait for.
        if is_held || left_over.is_there() {
            left_over.note(&range);
        } else {
            self.translations.prune(range, hole, gather);
        }
    }

    /// Says whether a range of a lane has no table above the leaves that its top has not as well.
    #[inline]
    fn is_beside_a_top(&self, range: &Range<u64>) -> bool {
        let top = |lanes: &LaneRooms<P>| lanes.top_above(range.start);
        let above_leaves = |address: u64| address / Tables::<P>::SPAN_ABOVE_LEAVES;
        mutant!(HoleBeyondLane, self.lane_rooms().and_then(top) => None)
            .is_some_and(|top| range.end <= top.start && above_leaves(range.start) == above_leaves(top.start))
    }

    /// Returns the hole that holds `address`, as far as it lies in the lane, and not in its top.
    fn hole_around(&self, address: u64) -> Range<u64> {
        let bounds = mutant!(HoleBeyondLane, self.lane_bounds(address) => 0..u64::MAX);
        let below = self.last_area_starting_before(address, bounds.start).map_or(bounds.start, |entry| entry.end);
        let above = self.first_area_ending_after(address, bounds.end);
        let end = above.map_or(bounds.end.min(USER_END + PAGE), |entry| entry.start);
        self.between_tops(address, below..end)
    }

    /// Returns what a hole around an address has in the lane, and not in its top.
    fn of_lane(&self, address: u64, hole: Range<u64>) -> Range<u64> {
        let bounds = mutant!(HoleBeyondLane, self.lane_bounds(address) => 0..u64::MAX);
        self.between_tops(address, hole.start.max(bounds.start)..hole.end.min(bounds.end))
    }

    fn between_tops(&self, address: u64, hole: Range<u64>) -> Range<u64> {
        let Some(lanes) = mutant!(HoleBeyondLane, self.lane_rooms() => None) else { return hole };
        let free = lanes.between_tops(address);
        hole.start.max(free.start)..hole.end.min(free.end)
    }

    /// Says whether a hole reaches a lane's bound that a table spans which goes some day.
    fn may_leave_crossing(&self, hole: &Range<u64>) -> bool {
        self.lane_rooms().is_some_and(|lanes| {
            let is_spanned = |bound: u64| lanes.is_bound(bound) && !bound.is_multiple_of(Tables::<P>::TOP_SPAN);
            let has_a_top_below = |bound: u64| lanes.between_tops(bound).start == bound;
            is_spanned(hole.start) && !has_a_top_below(hole.start) || is_spanned(hole.end)
        })
    }

    /// Says whether a table may stand that spans no area: one of several lanes, or of a top.
    pub(crate) fn may_keep_table_of(&self, span: &Range<u64>) -> bool {
        let lanes = self.lane_rooms();
        let has_a_top = lanes.is_some_and(|lanes| lanes.between_tops(span.start).end < span.end);
        has_a_top || self.lane_bounds(span.start).end < span.end
    }

    /// Takes away the tables that holders of parts left standing, if there are any; called without a lock.
    #[inline]
    pub(super) fn prune_left_over(&self) {
        if self.lock.left_over().is_some_and(LeftOver::is_there) {
            self.prune_all_left_over();
        }
    }

    /// As [`Space::prune_left_over`], of tables that spanned a lane's bound.
    #[cold]
    pub(super) fn prune_crossing(&self) {
        if self.lock.left_over().is_some_and(LeftOver::has_crossing) {
            self.prune_all_left_over();
        }
    }

    #[cold]
    fn prune_all_left_over(&self) {
        self.with_any_write(EVERYTHING, |permit| {
            let range = self.lock.left_over().map_or(0..0, LeftOver::taken);
            if let Some(range) = PageRange::between(VirtAddr::new(range.start), VirtAddr::new(range.end)) {
                permit.prune_holes(range);
            }
        });
    }
}
