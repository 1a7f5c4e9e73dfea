//! The ordered index of an address space's areas.
//!
//! # Guarantee
//! A lookup in an RCU section that writers know of returns, also while a writer changes the index, what was the answer
//! for its address before the change, or what is the answer after it. An edit that finds no memory changes nothing.
//!
//! # Shape
//! A B+tree of 512-byte nodes out of the frame source. An edit makes the leaf anew in which something changes, and
//! points its parent's slot at it.
//! ```text
//!   root ---> [ 1..9 | 12..40 ]                 after edit of 12..14: root ---> [ 1..9 | 12..40 ]
//!               /         \                                                       /          \
//!       [1..3|5..9]   [12..14|20..40]                                     [1..3|5..9]   [12..13|20..40]
//! ```
//! Where leaves merge, split, come or go, their parent is made anew in the same way. Inner slots carry the largest hole
//! beneath, so that a search for free room visits one path.
//!
//! # Invariants
//! * I1 slots are sorted and disjoint; between edits, an inner slot's bounds are those of its first and last area.
//! * I2 of a node that can be reached from the root, only inner slots' words change: the child, its bounds, its holes.
//!   So an area's bounds and its pointer belong together, and every child that a reader finds is a node.
//! * I3 a replaced node is freed after a grace period, or at once where nobody looks beside the writer: the caller says
//!   so, by [`Index::may_be_looked_at`] if all who look there without the writers' lock note it.
//! * I4 writers are serialised by the caller (the address space's lock, or that of parts), from an edit's preparation
//!   to its commit.
//!
//! # Race table (tests: `orders`, a reader between any two stores; the readers in `tests`)
//! ```text
//! reader of address a                      writer
//! enter RCU section                        build the new leaf
//! at each level: the first slot that       parent's slot: child (Release), start, end, hole
//!   ends behind a; its child (Acquire)     the slots above: start, end, hole
//! in the leaf: the first area that         defer the old leaf: freed when the reader has left
//!   ends behind a
//! leave
//! ```
//! | between two stores a reader sees | why it is right |
//! |---|---|
//! | an old or a new bound, a in an area before and after | both bounds hold a: the child is found, and it, old or new, has an area at a |
//! | an old bound behind a, and a new child that ends before a | a is unmapped now: the reader goes on behind the old bound, where the next area lies |
//! | a new bound behind a, and an old child that ends before a | a was unmapped then: the same, of before the edit; no area that stays lies between |
//! | a new bound that leaves a out, and an old child that has it | it goes to the next child, as after the edit |
//! | two addresses, one of before and one of after the edit | each is right by itself: who relies on more excludes writers, or looks for announcements |
//! | bounds of two slots or holes, in a search for room without the lock | the room may be taken by now: it is a hint |
//!
//! [`last_starting_before`](Index::last_starting_before) is the mirror image. A reader repeats its walk only where an
//! edit came in between, and each time farther on.
//!
//! # Rooms
//! `node` is a node and its slots, `head` the root and where the writer looked last, `search` the lookups of all,
//! `writer` those of the writer, who walks once for a call; `edit` changes it.
//! Where nobody looks beside the writer, the leaf that an edit replaced is kept for the next edit.
//!
//! Source: the copying ordered index is Bonsai's idea (Clements, ASPLOS 2012) in B+tree form.

mod edit;
mod head;
mod node;
#[cfg(test)]
mod orders;
mod search;
#[cfg(test)]
mod tests;
mod writer;

pub use edit::{Edit, Spare};
pub use node::Node;
pub(crate) use search::overlapping;
pub use writer::{Around, Writer};

use crate::system::System;
use core::ptr::NonNull;
use faultless_platform::{Atomic, Ordering, mutant};
use faultless_sync::Rcu;
use head::{Head, root_in_force};
use node::{NodeSlot, Place};

/// One area as the index knows it.
#[derive(Debug)]
pub struct IndexEntry<T> {
    /// First byte.
    pub start: u64,
    /// First byte behind.
    pub end: u64,
    /// The area.
    pub area: NonNull<T>,
}

impl<T> Clone for IndexEntry<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for IndexEntry<T> {}

impl<T> IndexEntry<T> {
    #[inline]
    fn from_place(place: &Place) -> Option<Self> {
        let area = NonNull::new(core::ptr::with_exposed_provenance_mut(place.target()))?;
        Some(Self { start: place.start(), end: place.end(), area })
    }

    #[inline]
    fn from_slot(slot: &NodeSlot) -> Option<Self> {
        let area = NonNull::new(core::ptr::with_exposed_provenance_mut(slot.target))?;
        Some(Self { start: slot.start, end: slot.end, area })
    }

    fn to_slot(self) -> NodeSlot {
        NodeSlot { start: self.start, end: self.end, max_gap: 0, target: self.area.as_ptr().expose_provenance() }
    }
}

/// The index; see the module.
#[repr(transparent)]
pub struct Index<P: System, T> {
    head: Head<P>,
    areas: core::marker::PhantomData<NonNull<T>>,
}

// SAFETY: the index only hands out pointers to areas; it never follows them.
unsafe impl<P: System, T> Send for Index<P, T> {}
// SAFETY: readers follow immutable nodes under RCU (I2, I3); writers are serialised by the caller (I4).
unsafe impl<P: System, T> Sync for Index<P, T> {}

impl<P: System, T> Index<P, T> {
    /// Returns an empty index.
    pub fn new() -> Self {
        Self { head: Head::new(), areas: core::marker::PhantomData }
    }

    /// Returns the root in force.
    #[inline]
    fn root(&self) -> Option<&Node<P>> {
        root_in_force(&self.head)
    }

    /// Notes that the calling CPU looks beside the writers, in an RCU section.
    #[inline]
    pub(crate) fn note_looker(&self) {
        mutant!(LaneLookersUnnoted, self.head.lookers.note() => ());
    }

    /// Notes that any CPU may be at what is put into the index.
    pub(crate) fn note_all_lookers(&self) {
        self.head.lookers.let_many_in();
    }

    /// Says whether another CPU may be looking at what the writer has taken away, if all who look note that, in
    /// sections of `rcu`.
    #[inline]
    pub(crate) fn may_be_looked_at(&self, rcu: &Rcu<P>) -> bool {
        self.head.finger.forgetting.may_be_elsewhere(&self.head.lookers, rcu)
    }

    /// Says whether what came last became part of an area; a hint.
    #[inline]
    pub(crate) fn grows(&self) -> bool {
        // Relaxed: a hint.
        self.head.grows.load(Ordering::Relaxed)
    }

    /// Notes whether what comes becomes part of an area; the writer.
    #[inline]
    pub(crate) fn note_growth(&self, grows: bool) {
        if self.grows() != grows {
            // Relaxed: a hint.
            self.head.grows.store(grows, Ordering::Relaxed);
        }
    }

    /// Says whether no CPU but the calling one has looked; a hint to whoever is not the writer.
    #[inline]
    pub(crate) fn is_the_callers(&self) -> bool {
        self.head.lookers.are_the_callers() && !self.head.finger.forgetting.is_under_way()
    }
}

impl<P: System> Index<P, ()> {
    /// Returns an index that was made before its areas' type was known, as one of that type.
    #[inline]
    pub(crate) fn of_areas<T>(&self) -> &Index<P, T> {
        // SAFETY: an index is its head alone, which does not depend on what areas are.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }
}

impl<P: System, T> Default for Index<P, T> {
    fn default() -> Self {
        Self::new()
    }
}
