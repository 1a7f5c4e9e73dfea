//! The root of an index, and the finger: where the writer looked last.
//!
//! # Invariants
//! * F1 the finger is at no leaf, or at one that can be reached from the root, below the root, and at its parent. So it
//!   is moved, or taken off, by each edit that is put in force.
//! * F2 the writer alone has it (I4 of the index): it stands on a line of its own, which readers leave alone.

use super::node::{Node, NodeSlot, child};
use crate::system::System;
use core::cell::UnsafeCell;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_platform::{Atomic, CachePadded, Ordering, TouchKind};

/// A leaf, and where it is in its parent.
pub(super) struct Finger<P: System> {
    pub(super) parent: NonNull<Node<P>>,
    pub(super) index: usize,
    pub(super) leaf: NonNull<Node<P>>,
}

impl<P: System> Clone for Finger<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System> Copy for Finger<P> {}

impl<P: System> Finger<P> {
    /// Returns the slots of the leaf, if it holds all areas that `is_inside` is about; it gets the first and the last.
    #[inline]
    pub(super) fn slots_if<'i>(&self, is_inside: impl FnOnce(&NodeSlot, &NodeSlot) -> bool) -> Option<&'i [NodeSlot]> {
        // SAFETY: reached from the root (F1), and the writer's alone to replace (I4).
        let leaf = unsafe { self.leaf.as_ref() };
        let slots = leaf.slots();
        if !is_inside(slots.first()?, slots.last()?) {
            return None;
        }
        leaf.touch();
        Some(slots)
    }
}

/// The place for a finger; the writer's alone.
pub(super) struct FingerCell<P: System>(UnsafeCell<Option<Finger<P>>>);

impl<P: System> FingerCell<P> {
    pub(super) fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    #[inline]
    pub(super) fn get(&self) -> Option<Finger<P>> {
        // SAFETY: the writer's alone (F2).
        unsafe { *self.0.get() }
    }

    #[inline]
    pub(super) fn set(&self, finger: Option<Finger<P>>) {
        if finger.is_none() && self.get().is_none() {
            return;
        }
        P::touch(self.0.get().cast_const().cast(), size_of::<Self>(), TouchKind::Write);
        // SAFETY: as above.
        unsafe { *self.0.get() = finger };
    }
}

/// What an index is, whatever its areas are.
pub(super) struct Head<P: System> {
    pub(super) root: P::AtomicPtr<Node<P>>,
    pub(super) finger: CachePadded<FingerCell<P>>,
}

impl<P: System> Head<P> {
    pub(super) fn new() -> Self {
        let root = P::AtomicPtr::new(core::ptr::null_mut());
        Self { root, finger: CachePadded::new(FingerCell::new()) }
    }

    /// Returns the slot of a leaf that `choose` leads to, and leaves the finger there.
    #[inline]
    pub(super) fn walk(&self, choose: impl Fn(&[NodeSlot]) -> Option<usize>) -> Option<NodeSlot> {
        let mut node = root_in_force(self)?;
        let mut finger = None;
        loop {
            let index = choose(node.slots())?;
            let slot = &node.slots()[index];
            if node.is_leaf() {
                self.finger.set(finger);
                return Some(*slot);
            }
            let below = child::<P>(slot);
            finger = Some(Finger { parent: NonNull::from(node), index, leaf: NonNull::from(below) });
            node = below;
        }
    }

    /// Returns the finger if a change of `range` is within its leaf.
    #[inline]
    pub(super) fn finger_at(&self, range: &Range<u64>) -> Option<Finger<P>> {
        self.finger.get().filter(|finger| {
            finger.slots_if(|first, last| first.start <= range.start && range.end <= last.end).is_some()
        })
    }
}

/// Returns the root that an index has; the caller is inside an RCU section, or holds the writers' lock (I3, I4).
#[inline]
pub(super) fn root_in_force<P: System>(head: &Head<P>) -> Option<&Node<P>> {
    // ORDER: Acquire pairs with the Release in `Edit::commit`: the nodes' contents are seen.
    let root = NonNull::new(head.root.load(Ordering::Acquire))?;
    // SAFETY: the caller's part.
    let root = unsafe { root.as_ref() };
    root.touch();
    Some(root)
}
