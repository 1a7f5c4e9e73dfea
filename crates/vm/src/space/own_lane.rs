//! A lane as whoever has the lock of its edits sees it: alone with its index.
//!
//! # Guarantee
//! Lookups answer for what lies in the lane, as those of all indexes would, and take no RCU section.

use crate::addr::{PAGE, USER_END};
use crate::index::{Index, IndexEntry};
use crate::system::System;
use core::ops::Range;
use faultless_platform::mutant;
use faultless_sync::Rcu;

/// Says whether a part of a lane neither reaches a bound nor crosses one (N2 of `lane_rooms`).
#[inline]
pub(super) fn is_part_of(lane: &Range<u64>, part: &Range<u64>) -> bool {
    mutant!(LaneBoundTouched, is_inside(lane, part) => lane.start <= part.start && part.end <= lane.end)
}

#[inline]
fn is_inside(lane: &Range<u64>, range: &Range<u64>) -> bool {
    (lane.start < range.start || lane.start == 0) && range.end < lane.end
}

/// The last area that starts below a range, and the first one that ends behind it.
pub(super) type Around<T> = [Option<IndexEntry<T>>; 2];

/// Returns a range and those of the areas around it that overlap or touch it, as one.
#[inline(always)]
pub(super) fn widened_to<T>(range: Range<u64>, [below, above]: Around<T>) -> Range<u64> {
    let below = below.filter(|entry| entry.end >= range.start);
    let above = above.filter(|entry| entry.start <= range.end);
    below.map_or(range.start, |entry| entry.start)..above.map_or(range.end, |entry| entry.end)
}

/// Returns what is free around a range when that is, as far as the areas around it leave it.
#[inline(always)]
pub(super) fn hole_of<T>(range: &Range<u64>, [below, above]: Around<T>) -> Range<u64> {
    hole_between(range, below.map(|below| below.end), above.map(|above| above.start))
}

/// As [`hole_of`], of areas of which the one below ends, and the one above starts, there.
#[inline(always)]
pub(super) fn hole_between(range: &Range<u64>, below_end: Option<u64>, above_start: Option<u64>) -> Range<u64> {
    let start = below_end.map_or(0, |end| end.min(range.start));
    start..above_start.map_or(USER_END + PAGE, |start| start.max(range.end))
}

/// A lane, or a piece of the rest, or a space without lanes, whose index alone has all that lies in it; for whoever has
/// the lock of its edits. Made under that, and used no longer.
pub(super) struct OwnLane<'a, P: System, T> {
    pub(super) index: &'a Index<P, T>,
    pub(super) bounds: Range<u64>,
    /// Whether all who look into the index without that lock note it (N6 of `lane_rooms`).
    pub(super) notes_lookers: bool,
    /// Whether it is a CPU's range, whose bounds are as they are.
    pub(super) is_cpus: bool,
}

impl<'a, P: System, T> OwnLane<'a, P, T> {
    /// Returns a space without lanes as one, whose index this is.
    #[inline(always)]
    pub(super) fn whole(index: &'a Index<P, T>) -> Self {
        Self { index, bounds: 0..u64::MAX, notes_lookers: false, is_cpus: false }
    }

    /// Says whether another CPU may be using what the caller has taken off the index.
    #[inline]
    pub(super) fn may_be_looked_at(&self, rcu: &Rcu<P>) -> bool {
        !self.notes_lookers || self.index.may_be_looked_at(rcu)
    }

    /// Says whether a range lies in the lane, and reaches no bound where something else could begin.
    pub(super) fn is_around(&self, range: &Range<u64>) -> bool {
        is_inside(&self.bounds, range)
    }

    /// Says whether a range lies in the lane.
    #[inline]
    pub(super) fn has(&self, range: &Range<u64>) -> bool {
        self.bounds.start <= range.start && range.end <= self.bounds.end
    }

    /// Says whether a part is one of the lane (N2 of `lane_rooms`).
    #[inline]
    pub(super) fn has_part(&self, part: &Range<u64>) -> bool {
        is_part_of(&self.bounds, part)
    }

    /// Returns the first area of the lane that ends behind an address of it.
    pub(super) fn first_ending_after(&self, address: u64) -> Option<IndexEntry<T>> {
        self.index.writer().first_ending_after(address).filter(|entry| entry.start < self.bounds.end)
    }

    /// Returns the last area of the lane that starts below an address of it.
    pub(super) fn last_starting_before(&self, address: u64) -> Option<IndexEntry<T>> {
        self.index.writer().last_starting_before(address).filter(|entry| entry.end > self.bounds.start)
    }

    /// Returns the last area that starts below a range of the lane, and the first one that ends behind it.
    #[inline(always)]
    pub(super) fn around(&self, range: Range<u64>) -> Around<T> {
        match self.index.writer().around(range.clone()) {
            Some(around) => [around.below, around.above],
            None => [self.last_starting_before(range.start), self.first_ending_after(range.end)],
        }
    }

    /// As [`OwnLane::around`], of a range that meets no area; nothing if it meets one.
    #[inline(always)]
    pub(super) fn around_hole(&self, range: Range<u64>) -> Option<Around<T>> {
        let (below, first) = match self.index.writer().around(range.clone()) {
            Some(around) => (around.below, around.first),
            None => (self.last_starting_before(range.start), self.first_ending_after(range.start)),
        };
        first.is_none_or(|first| range.end <= first.start).then_some([below, first])
    }

    /// Returns the one area that meets a range of the lane, and those of [`OwnLane::around`], each of which may be the
    /// same; nothing if none meets it, or several do.
    #[inline(always)]
    pub(super) fn only_area(&self, range: Range<u64>) -> Option<(IndexEntry<T>, Around<T>)> {
        let (below, area, above) = match self.index.writer().around(range.clone()) {
            Some(around) if around.nr_up_to_end > 1 => return None,
            Some(around) => (around.below, around.first?, around.above),
            None => {
                let area = self.first_ending_after(range.start)?;
                let above = if area.end > range.end { Some(area) } else { self.first_ending_after(area.end) };
                (self.last_starting_before(range.start), area, above)
            }
        };
        let is_only = |above: IndexEntry<T>| above.area == area.area || range.end <= above.start;
        (area.start < range.end && above.is_none_or(is_only)).then_some((area, [below, above]))
    }

    /// Returns a range of the lane and the areas that overlap or touch it, as one.
    pub(super) fn widened(&self, range: Range<u64>) -> Range<u64> {
        let around = self.around(range.clone());
        widened_to(range, around)
    }

    /// Returns the hole that holds an address of the lane, as far as it lies there.
    pub(super) fn hole_around(&self, address: u64) -> Range<u64> {
        let below = self.last_starting_before(address).map_or(self.bounds.start, |entry| entry.end);
        below..self.first_ending_after(address).map_or(self.bounds.end.min(USER_END + PAGE), |entry| entry.start)
    }
}
