//! The writer's lookups: those of a call and its edit walk the index once.
//!
//! # Guarantee
//! A [`Writer`]'s lookups answer as the index's own.
//!
//! They begin at the leaf where the writer looked last. A leaf answers for what lies between its first and its last
//! area: others have nothing there.

use super::head::{first_ending_after, last_starting_before, nr_starting_before};
use super::node::NodeSlot;
use super::{Index, IndexEntry};
use crate::system::System;
use core::ops::Range;

impl<P: System, T> Index<P, T> {
    /// Returns the index for the writer: as long as that is used, nobody else edits it (I4).
    #[inline]
    pub fn writer(&self) -> Writer<'_, P, T> {
        Writer(self)
    }
}

/// What lies around and in a range; all of it is in one leaf.
pub struct Around<T> {
    /// The last area that starts below the range.
    pub below: Option<IndexEntry<T>>,
    /// The first area that ends behind the range's start.
    pub first: Option<IndexEntry<T>>,
    /// The first area that ends behind the range's end.
    pub above: Option<IndexEntry<T>>,
    /// How many areas there are from `first` on that end in the range.
    pub nr_up_to_end: usize,
}

/// Looks things up for the writer.
pub struct Writer<'i, P: System, T>(&'i Index<P, T>);

impl<P: System, T> Writer<'_, P, T> {
    /// Returns the area that contains `address`.
    #[inline]
    pub fn containing(&self, address: u64) -> Option<IndexEntry<T>> {
        self.first_ending_after(address).filter(|entry| entry.start <= address)
    }

    /// As [`Index::first_ending_after`].
    #[inline]
    pub fn first_ending_after(&self, address: u64) -> Option<IndexEntry<T>> {
        self.look_up(
            |first, last| first.start <= address && address < last.end,
            |slots, near| first_ending_after(slots, near, address),
        )
    }

    /// As [`Index::last_starting_before`].
    #[inline]
    pub fn last_starting_before(&self, address: u64) -> Option<IndexEntry<T>> {
        self.look_up(
            |first, last| first.start < address && address <= last.end,
            |slots, near| last_starting_before(slots, near, address),
        )
    }

    /// Returns what lies around and in a range; nothing if that takes looks at more than one leaf.
    #[inline(always)]
    pub fn around(&self, range: Range<u64>) -> Option<Around<T>> {
        let head = &self.0.head;
        let (start, end) = (range.start, range.end);
        let nearby = match head.finger.get() {
            Some(near) => near.slots_if(|first, last| first.start < start && end < last.end),
            None => head.only_leaf(),
        };
        let slots = match nearby {
            Some(slots) => slots,
            None => self.slots_elsewhere(&range)?,
        };
        let behind = nr_starting_before(slots, head.finger.place(), start);
        let below = slots[..behind].last();
        let first = behind - usize::from(below.is_some_and(|below| below.end > start));
        let mut above = first;
        while slots.get(above).is_some_and(|slot| slot.end <= end) {
            above += 1;
        }
        head.finger.set_place(behind);
        let entry = |slot: Option<&NodeSlot>| slot.and_then(IndexEntry::from_slot);
        Some(Around {
            below: entry(below),
            first: entry(slots.get(first)),
            above: entry(slots.get(above)),
            nr_up_to_end: above - first,
        })
    }

    /// Returns the slots of the leaf that a range lies in, by a walk; nothing if it lies in none.
    #[inline(never)]
    fn slots_elsewhere(&self, range: &Range<u64>) -> Option<&[NodeSlot]> {
        self.first_ending_after(range.start)?;
        self.0.head.finger.get()?.slots_if(|first, last| first.start < range.start && range.end < last.end)
    }

    /// Returns what `choose` leads to; it is in the leaf of the finger if `is_near` holds of the leaf's ends.
    #[inline]
    fn look_up(
        &self,
        is_near: impl FnOnce(&NodeSlot, &NodeSlot) -> bool,
        choose: impl Fn(&[NodeSlot], usize) -> Option<usize>,
    ) -> Option<IndexEntry<T>> {
        let head = &self.0.head;
        let Some(slots) = head.finger.get().and_then(|near| near.slots_if(is_near)) else {
            return IndexEntry::from_slot(&head.walk(choose)?);
        };
        let place = choose(slots, head.finger.place())?;
        head.finger.set_place(place);
        IndexEntry::from_slot(slots.get(place)?)
    }
}
