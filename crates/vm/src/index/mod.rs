//! The ordered index of an address space's areas.
//!
//! # Guarantee
//! A reader in an RCU section that writers know of sees one consistent version of the index, also while a writer
//! changes it: an edit that removes several areas and adds others appears as one step. An edit that finds no memory
//! changes nothing.
//!
//! # Shape
//! A B+tree of 512-byte nodes out of the frame source. An edit copies the nodes on its way and publishes a new root.
//! ```text
//!   root ---> [ 1..9 | 12..40 ]                 after edit of 12..14: root'---> [ 1..9 | 12..40 ]
//!               /         \                                                        |        \
//!       [1..3|5..9]   [12..14|20..40]                                     [1..3|5..9]   [12..13|20..40]
//! ```
//! Inner slots carry the largest hole beneath, so that a search for free room visits one path.
//!
//! # Invariants
//! * I1 slots are sorted and disjoint; an inner slot's bounds are those of its first and last area.
//! * I2 a node does not change once it can be reached from a published root.
//! * I3 a replaced node is freed after a grace period, or at once where nobody looks beside the writer.
//! * I4 writers are serialised by the caller (the address space's lock).
//!
//! # Race table (model: the property test with readers in `tests`)
//! ```text
//! reader                                   writer
//! enter RCU section                        build the new nodes
//! root = load(Acquire)                     swap root (Release)
//! walk immutable nodes                     defer the old nodes: freed when the reader has left
//! leave
//! ```
//! Source: the copying ordered index is Bonsai's idea (Clements, ASPLOS 2012) in B+tree form.

mod edit;
mod node;
mod search;
#[cfg(test)]
mod tests;

pub use edit::{Edit, Spare};
pub use node::Node;

use crate::system::System;
use core::ptr::NonNull;
use faultless_platform::{Atomic, Ordering};
use node::Slot;

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
    fn from_slot(slot: &Slot) -> Option<Self> {
        let area = NonNull::new(core::ptr::with_exposed_provenance_mut(slot.target))?;
        Some(Self { start: slot.start, end: slot.end, area })
    }

    fn to_slot(self) -> Slot {
        Slot { start: self.start, end: self.end, max_gap: 0, target: self.area.as_ptr().expose_provenance() }
    }
}

/// Names a version of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(usize);

/// The index; see the module.
pub struct Index<P: System, T> {
    root: P::AtomicPtr<Node<P>>,
    areas: core::marker::PhantomData<NonNull<T>>,
}

// SAFETY: the index only hands out pointers to areas; it never follows them.
unsafe impl<P: System, T> Send for Index<P, T> {}
// SAFETY: readers follow immutable nodes under RCU (I2, I3); writers are serialised by the caller (I4).
unsafe impl<P: System, T> Sync for Index<P, T> {}

impl<P: System, T> Index<P, T> {
    /// Returns an empty index.
    pub fn new() -> Self {
        Self { root: P::AtomicPtr::new(core::ptr::null_mut()), areas: core::marker::PhantomData }
    }

    /// Returns the version in force: as long as the caller keeps its nodes from being freed, no other one is equal.
    #[inline]
    pub fn version(&self) -> Version {
        // ORDER: Acquire pairs with the Release in `Edit::commit`: a lookup that follows finds this version or a later
        // one.
        Version(self.root.load(Ordering::Acquire).addr())
    }

    /// Returns the root of the version in force.
    #[inline]
    fn root(&self) -> Option<&Node<P>> {
        root_in_force::<P>(&self.root)
    }
}

/// Returns the root that a place has; the caller is inside an RCU section, or holds the writers' lock (I3, I4).
#[inline]
fn root_in_force<P: System>(place: &P::AtomicPtr<Node<P>>) -> Option<&Node<P>> {
    // ORDER: Acquire pairs with the Release in `Edit::commit`: the nodes' contents are seen.
    let root = NonNull::new(place.load(Ordering::Acquire))?;
    // SAFETY: the caller's part.
    let root = unsafe { root.as_ref() };
    root.touch();
    Some(root)
}

impl<P: System, T> Default for Index<P, T> {
    fn default() -> Self {
        Self::new()
    }
}
