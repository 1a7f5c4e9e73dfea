//! Looking things up: areas by address, holes by length.

use super::node::{Node, child_at};
use super::{Index, IndexEntry};
use crate::system::System;
use core::ops::Range;

/// All lookups are made inside an RCU section or under the writers' lock, and so are the uses of what they return.
impl<P: System, T> Index<P, T> {
    /// Returns the area that contains `address`.
    #[inline]
    pub fn containing(&self, address: u64) -> Option<IndexEntry<T>> {
        self.first_ending_after(address).filter(|entry| entry.start <= address)
    }

    /// Returns the first area that ends behind `address`: the one around it, or else the next one above.
    #[inline]
    pub fn first_ending_after(&self, mut address: u64) -> Option<IndexEntry<T>> {
        loop {
            let mut node = self.root()?;
            let mut end = None;
            while let Some(place) = node.places().iter().find(|place| place.end() > address) {
                if node.is_leaf() {
                    return IndexEntry::from_place(place);
                }
                end = Some(place.end());
                node = child_at(place);
            }
            // A child that ends earlier than its slot said: one of the two is newer. What follows lies behind it.
            address = address.max(end?);
        }
    }

    /// Returns the last area that starts below `address`.
    pub fn last_starting_before(&self, mut address: u64) -> Option<IndexEntry<T>> {
        loop {
            let mut node = self.root()?;
            let mut start = None;
            while let Some(place) = node.places().iter().rfind(|place| place.start() < address) {
                if node.is_leaf() {
                    return IndexEntry::from_place(place);
                }
                start = Some(place.start());
                node = child_at(place);
            }
            // As in `first_ending_after`.
            address = address.min(start?);
        }
    }

    /// Visits the areas that overlap `range`, ascending.
    pub fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = IndexEntry<T>> + '_ {
        overlapping(range, |address| self.first_ending_after(address))
    }

    /// Returns where the first area starts and the last one ends, if there are any; beside a writer, a hint.
    pub(crate) fn bounds(&self) -> Option<Range<u64>> {
        let places = self.root()?.places();
        Some(places.first()?.start()..places.last()?.end())
    }

    /// Returns the start of the highest hole of at least `len_bytes` inside `room`, flush with the hole's upper end.
    pub fn highest_gap(&self, len_bytes: u64, room: Range<u64>) -> Option<u64> {
        // Slots of leaves have a largest gap of 0, and areas behind them: a search for 0 bytes would take those for
        // nodes.
        if len_bytes == 0 {
            return None;
        }
        let found = |low: u64, high: u64| {
            let (low, high) = (low.max(room.start), high.min(room.end));
            (high.saturating_sub(low) >= len_bytes && high > low).then(|| high - len_bytes)
        };
        let Some(root) = self.root() else { return found(room.start, room.end) };
        let (first, last) = (root.places().first()?, root.places().last()?);
        found(last.end(), room.end)
            .or_else(|| highest_in(root, len_bytes, &room, &found))
            .or_else(|| found(room.start, first.start()))
    }
}

/// Searches the holes between the areas of a subtree, from above; no part of it that lies beside the room.
fn highest_in<P: System>(
    node: &Node<P>,
    len_bytes: u64,
    room: &Range<u64>,
    found: &dyn Fn(u64, u64) -> Option<u64>,
) -> Option<u64> {
    let mut upper = None;
    for slot in node.places().iter().rev() {
        if let Some(place) = upper.and_then(|upper| found(slot.end(), upper)) {
            return Some(place);
        }
        if slot.end() <= room.start {
            return None;
        }
        if slot.max_gap() >= len_bytes
            && slot.start() < room.end
            && let Some(place) = highest_in(child_at::<P>(slot), len_bytes, room, found)
        {
            return Some(place);
        }
        upper = Some(slot.start());
    }
    None
}

/// Visits the areas that overlap a range, ascending; `first_ending_after` looks each of them up when the one before has
/// been visited.
#[inline]
pub(crate) fn overlapping<T>(
    range: Range<u64>,
    mut first_ending_after: impl FnMut(u64) -> Option<IndexEntry<T>>,
) -> impl Iterator<Item = IndexEntry<T>> {
    let mut position = Some(range.start);
    core::iter::from_fn(move || {
        let entry = first_ending_after(position?).filter(|entry| entry.start < range.end)?;
        position = (entry.end < range.end).then_some(entry.end);
        Some(entry)
    })
}
