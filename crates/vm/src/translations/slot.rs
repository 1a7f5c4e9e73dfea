//! The place of an entry in a table.
//!
//! # Guarantee
//! A [`Slot`] holds the hardware's word, and is read and written as an [`Entry`]: the conversion happens here.

use crate::entry::Entry;
use crate::format::TableFormat;
use crate::system::System;
use faultless_platform::{Atomic, AtomicInteger, Ordering};

/// The place of an entry; [`table`](super::table) says who changes it, and when.
pub struct Slot<'a, P: System>(&'a P::AtomicU64);

impl<P: System> Clone for Slot<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System> Copy for Slot<'_, P> {}

impl<'a, P: System> Slot<'a, P> {
    /// Takes a word in a table for an entry's place.
    #[inline(always)]
    pub(crate) fn new(word: &'a P::AtomicU64) -> Self {
        Self(word)
    }

    /// Returns where the entry stands.
    #[inline(always)]
    pub(crate) fn address(self) -> *const u8 {
        core::ptr::from_ref(self.0).cast()
    }

    /// Returns the entry. ORDER: the caller's.
    #[inline(always)]
    pub fn load(self, order: Ordering) -> Entry {
        P::Format::decode(self.0.load(order))
    }

    /// Stores an entry. ORDER: the caller's.
    #[inline(always)]
    pub(crate) fn store(self, entry: Entry, order: Ordering) {
        self.0.store(P::Format::encode(entry), order);
    }

    /// Stores an entry, and returns the one before. ORDER: the caller's.
    #[inline(always)]
    pub(crate) fn swap(self, entry: Entry, order: Ordering) -> Entry {
        P::Format::decode(self.0.swap(P::Format::encode(entry), order))
    }

    /// Stores `entry` if `seen` is there; otherwise returns what is. ORDER: the caller's.
    #[inline(always)]
    pub(crate) fn exchange(self, seen: Entry, entry: Entry, success: Ordering, failure: Ordering) -> Result<(), Entry> {
        let (seen, entry) = (P::Format::encode(seen), P::Format::encode(entry));
        self.0.compare_exchange(seen, entry, success, failure).map(|_| ()).map_err(P::Format::decode)
    }

    /// Clears the accessed and dirty bits. ORDER: the caller's.
    #[inline(always)]
    pub(crate) fn clear_used(self, order: Ordering) {
        self.0.fetch_and(!P::Format::USED, order);
    }

    /// Puts a table in place of what is there; shared or not. ORDER: the caller's.
    #[inline(always)]
    pub(crate) fn store_table(self, table: faultless_phys::Pfn, is_shared: bool, order: Ordering) {
        let word = if is_shared { P::Format::shared_table(table) } else { P::Format::table(table) };
        self.0.store(word, order);
    }

    /// Puts a table into an empty upper entry; otherwise returns what is there.
    #[inline(always)]
    pub(crate) fn install_table(self, table: faultless_phys::Pfn) -> Result<(), Entry> {
        // ORDER: Release pairs with the Acquire in `table::load`; Acquire on failure, to walk into the winner's table.
        let (success, failure) = (Ordering::Release, Ordering::Acquire);
        self.0.compare_exchange(0, P::Format::table(table), success, failure).map(|_| ()).map_err(P::Format::decode)
    }
}
