//! The root of an index, and the finger: where the writer looked last.
//!
//! # Invariants
//! * F1 the finger is at no leaf, or at one that can be reached from the root, below the root, and at its parent. So it
//!   is moved, or taken off, by each edit that is put in force.
//! * F2 the writer alone has it (I4 of the index): it stands on a line of its own, which readers leave alone.
//! * F3 the node that is kept beside it can't be reached from the root, and no reader is at it.

use super::node::{Node, NodeSlot, child};
use crate::system::System;
use core::cell::UnsafeCell;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_platform::{Atomic, CachePadded, Ordering, TouchKind};
use faultless_sync::{Forgetting, Lookers};

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

/// What the writer keeps for its next lookup and its next edit; the writer's alone.
pub(super) struct FingerCell<P: System> {
    finger: UnsafeCell<Option<Finger<P>>>,
    /// The place in its leaf that was looked at last: where the next search begins, whatever leaf that is in.
    place: UnsafeCell<usize>,
    /// A node that an edit replaced where nobody looks beside the writer, for the next edit (F3).
    spare: UnsafeCell<*mut Node<P>>,
    /// Whom the writer has forgotten of those who looked.
    pub(super) forgetting: Forgetting<P>,
}

impl<P: System> FingerCell<P> {
    pub(super) fn new() -> Self {
        let spare = UnsafeCell::new(core::ptr::null_mut());
        Self { finger: UnsafeCell::new(None), place: UnsafeCell::new(0), spare, forgetting: Forgetting::new() }
    }

    #[inline]
    pub(super) fn get(&self) -> Option<Finger<P>> {
        // SAFETY: the writer's alone (F2).
        unsafe { *self.finger.get() }
    }

    #[inline]
    pub(super) fn set(&self, finger: Option<Finger<P>>) {
        if finger.is_none() && self.get().is_none() {
            return;
        }
        P::touch(self.finger.get().cast_const().cast(), size_of::<Self>(), TouchKind::Write);
        // SAFETY: as above.
        unsafe { *self.finger.get() = finger };
    }

    /// Returns where a search in a leaf begins.
    #[inline]
    pub(super) fn place(&self) -> usize {
        // SAFETY: as above.
        unsafe { *self.place.get() }
    }

    /// Notes where a search in a leaf ended.
    #[inline]
    pub(super) fn set_place(&self, place: usize) {
        // SAFETY: as above.
        unsafe { *self.place.get() = place };
    }

    /// Keeps a node, if there is room for it; says whether there was.
    #[inline]
    pub(super) fn keep(&self, node: NonNull<Node<P>>) -> bool {
        // SAFETY: as above.
        let spare = unsafe { &mut *self.spare.get() };
        let has_room = spare.is_null();
        if has_room {
            *spare = node.as_ptr();
        }
        has_room
    }

    /// Takes the node that is kept.
    #[inline]
    pub(super) fn take_kept(&self) -> Option<NonNull<Node<P>>> {
        // SAFETY: as above.
        NonNull::new(unsafe { self.spare.get().replace(core::ptr::null_mut()) })
    }
}

/// What an index is, whatever its areas are.
pub(super) struct Head<P: System> {
    pub(super) root: P::AtomicPtr<Node<P>>,
    /// Beside the root, which they read.
    pub(super) lookers: Lookers<P>,
    /// Whether what came last became part of an area: a hint, which changes seldom.
    pub(super) grows: P::AtomicBool,
    pub(super) finger: CachePadded<FingerCell<P>>,
}

impl<P: System> Head<P> {
    pub(super) fn new() -> Self {
        let root = P::AtomicPtr::new(core::ptr::null_mut());
        Self {
            root,
            lookers: Lookers::new(),
            grows: P::AtomicBool::new(false),
            finger: CachePadded::new(FingerCell::new()),
        }
    }

    /// Returns the slot of a leaf that `choose` leads to, which is told where to begin; and leaves the finger there.
    #[inline]
    pub(super) fn walk(&self, choose: impl Fn(&[NodeSlot], usize) -> Option<usize>) -> Option<NodeSlot> {
        let mut node = root_in_force(self)?;
        let mut finger = None;
        loop {
            let slots = node.slots();
            if node.is_leaf() {
                let place = choose(slots, self.finger.place())?;
                self.finger.set(finger);
                self.finger.set_place(place);
                return slots.get(place).copied();
            }
            let index = choose(slots, slots.len() / 2)?;
            let slot = slots.get(index)?;
            let below = child::<P>(slot);
            finger = Some(Finger { parent: NonNull::from(node), index, leaf: NonNull::from(below) });
            node = below;
        }
    }

    /// Returns the slots of all areas, if they are in one leaf, or there is none.
    #[inline]
    pub(super) fn only_leaf(&self) -> Option<&[NodeSlot]> {
        match root_in_force(self) {
            None => Some(&[]),
            Some(root) => root.is_leaf().then(|| root.slots()),
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

/// Returns the place of the first slot that ends behind `address`, if there is one; the search begins at `near`.
#[inline]
pub(super) fn first_ending_after(slots: &[NodeSlot], near: usize, address: u64) -> Option<usize> {
    let place = boundary(slots, near, |slot| slot.end <= address);
    (place < slots.len()).then_some(place)
}

/// Returns the place of the last slot that starts below `address`, if there is one; the search begins at `near`.
#[inline]
pub(super) fn last_starting_before(slots: &[NodeSlot], near: usize, address: u64) -> Option<usize> {
    nr_starting_before(slots, near, address).checked_sub(1)
}

/// Returns how many slots start below `address`; the search begins at `near`.
#[inline]
pub(super) fn nr_starting_before(slots: &[NodeSlot], near: usize, address: u64) -> usize {
    boundary(slots, near, |slot| slot.start < address)
}

/// Returns how many slots are below a boundary: from the first on, as long as `is_below` holds. The search begins at
/// `near`, since lookups that follow one another mostly are for slots that lie side by side.
#[inline]
fn boundary(slots: &[NodeSlot], near: usize, is_below: impl Fn(&NodeSlot) -> bool) -> usize {
    let mut place = near.min(slots.len());
    while place > 0 && !is_below(&slots[place - 1]) {
        place -= 1;
    }
    while place < slots.len() && is_below(&slots[place]) {
        place += 1;
    }
    place
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
