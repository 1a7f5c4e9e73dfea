//! The writer's lookups: those of a call and its edit walk the index once.
//!
//! # Guarantee
//! A [`Writer`]'s lookups answer as the index's own.
//!
//! They begin at the leaf where the writer looked last. A leaf answers for what lies between its first and its last
//! area: others have nothing there.

use super::node::NodeSlot;
use super::{Index, IndexEntry};
use crate::system::System;

impl<P: System, T> Index<P, T> {
    /// Returns the index for the writer: as long as that is used, nobody else edits it (I4).
    #[inline]
    pub fn writer(&self) -> Writer<'_, P, T> {
        Writer(self)
    }
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
        let choose = |slots: &[NodeSlot]| slots.iter().position(|slot| slot.end > address);
        let head = &self.0.head;
        let near = head.finger.get();
        match near.and_then(|near| near.slots_if(|first, last| first.start <= address && address < last.end)) {
            Some(slots) => IndexEntry::from_slot(&slots[choose(slots)?]),
            None => IndexEntry::from_slot(&head.walk(choose)?),
        }
    }

    /// As [`Index::last_starting_before`].
    #[inline]
    pub fn last_starting_before(&self, address: u64) -> Option<IndexEntry<T>> {
        let choose = |slots: &[NodeSlot]| slots.iter().rposition(|slot| slot.start < address);
        let head = &self.0.head;
        let near = head.finger.get();
        match near.and_then(|near| near.slots_if(|first, last| first.start < address && address <= last.end)) {
            Some(slots) => IndexEntry::from_slot(&slots[choose(slots)?]),
            None => IndexEntry::from_slot(&head.walk(choose)?),
        }
    }
}
