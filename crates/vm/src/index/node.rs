//! A node of the area index and its slots.
//!
//! # Who looks how
//! Writers look at [`Node::slots`]: nobody else changes them (I4 of the index). Readers look at [`Node::places`], the
//! same memory word by word, because slots of inner nodes change while they read ([`Node::put`]).

use crate::system::System;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use faultless_platform::TouchKind;

/// Slots of a node: with the header and the slab's RCU head they fill 512 bytes.
pub(super) const FANOUT: usize = 15;
/// A node with fewer slots is merged with a neighbour when it is rebuilt.
pub(super) const MIN_SLOTS: usize = 5;

/// One area in a leaf, or one subtree in an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct NodeSlot {
    /// First byte of the area, or of the subtree's first area.
    pub(super) start: u64,
    /// First byte behind the area, or behind the subtree's last area.
    pub(super) end: u64,
    /// Length in bytes of the largest hole between two areas of the subtree; 0 for an area.
    pub(super) max_gap: u64,
    /// The area, or the child node.
    pub(super) target: usize,
}

impl NodeSlot {
    /// One that stands for nothing.
    pub(super) const NONE: Self = Self { start: 0, end: 0, max_gap: 0, target: 0 };
}

/// A slot as readers see it. The platform's atomics would be a step each for who counts and explores: a node is touched
/// as a whole.
#[repr(C)]
pub(super) struct Place {
    start: AtomicU64,
    end: AtomicU64,
    max_gap: AtomicU64,
    target: AtomicUsize,
}

const _: () = assert!(size_of::<Place>() == size_of::<NodeSlot>() && align_of::<Place>() == align_of::<NodeSlot>());

impl Place {
    /// Returns the first byte.
    #[inline]
    pub(super) fn start(&self) -> u64 {
        // Relaxed: a bound of before or after a change is right (race table of the index).
        self.start.load(Ordering::Relaxed)
    }

    /// Returns the first byte behind.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        // Relaxed: as in `start`.
        self.end.load(Ordering::Relaxed)
    }

    /// Returns the largest hole's length; beside a writer, a hint.
    pub(super) fn max_gap(&self) -> u64 {
        // Relaxed: as in `start`.
        self.max_gap.load(Ordering::Relaxed)
    }

    /// Returns the area, or the child node.
    #[inline]
    pub(super) fn target(&self) -> usize {
        // ORDER: Acquire pairs with the Release in `Node::put`: the child's contents are seen.
        self.target.load(Ordering::Acquire)
    }
}

/// A node. Once it can be reached from the root, a leaf does not change, and of an inner node the words of slots alone
/// do (I2 of the index).
pub struct Node<P: System> {
    /// Links the nodes of one edit; the editing writer's alone.
    pub(super) next_in_edit: UnsafeCell<*mut Node<P>>,
    pub(super) height: u16,
    nr_slots: u16,
    /// The first `nr_slots` are written; the others never were, which is what making a node would cost most.
    slots: [MaybeUninit<Place>; FANOUT],
}

impl<P: System> Node<P> {
    /// Makes a node of those slots in place; they come in parts.
    ///
    /// # Safety
    /// There is room for a node, which is the caller's alone.
    #[inline]
    pub(super) unsafe fn make_at<const N: usize>(place: NonNull<Self>, height: u16, parts: [&[NodeSlot]; N]) {
        let nr_slots: usize = parts.iter().map(|part| part.len()).sum();
        assert!(nr_slots <= FANOUT, "{nr_slots} slots for a node of {FANOUT}");
        let node = place.as_ptr();
        // SAFETY: the caller's promise; the slots fit.
        unsafe {
            (&raw mut (*node).next_in_edit).write(UnsafeCell::new(core::ptr::null_mut()));
            (&raw mut (*node).height).write(height);
            (&raw mut (*node).nr_slots).write(nr_slots as u16);
            let mut to = (&raw mut (*node).slots).cast::<NodeSlot>();
            for part in parts {
                to.copy_from_nonoverlapping(part.as_ptr(), part.len());
                to = to.add(part.len());
            }
        }
        P::touch(node.cast(), offset_of!(Self, slots) + nr_slots * size_of::<NodeSlot>(), TouchKind::Write);
    }

    /// Tells the platform that the part of the node that is in use is read.
    pub(super) fn touch(&self) {
        let used_bytes = offset_of!(Self, slots) + size_of_val(self.places());
        P::touch(core::ptr::from_ref(self).cast(), used_bytes, TouchKind::Read);
    }

    /// Returns the slots, for readers.
    #[inline]
    pub(super) fn places(&self) -> &[Place] {
        // SAFETY: `make_at` wrote so many.
        unsafe { self.slots.get_unchecked(..usize::from(self.nr_slots)).assume_init_ref() }
    }

    /// Returns the slots; the caller is the writer, and keeps them no longer than until it calls [`Node::put`].
    #[inline]
    pub(super) fn slots(&self) -> &[NodeSlot] {
        // SAFETY: `make_at` wrote so many, and a place is a slot, which nobody changes meanwhile.
        unsafe { core::slice::from_raw_parts(self.slots.as_ptr().cast(), usize::from(self.nr_slots)) }
    }

    /// Gives a slot of an inner node another child, or the same one with other bounds, while readers look. Who finds
    /// the old child under new bounds or the other way round looks again, if nothing is there.
    pub(super) fn put(&self, index: usize, slot: &NodeSlot) {
        let place = &self.places()[index];
        let touch = || P::touch(core::ptr::from_ref(place).cast(), size_of::<Place>(), TouchKind::Write);
        touch();
        // ORDER: Release pairs with the Acquire in `Place::target`: readers see the child's contents.
        place.target.store(slot.target, Ordering::Release);
        touch();
        // Relaxed: as in `Place::start`. Each store is a step for who explores.
        place.start.store(slot.start, Ordering::Relaxed);
        touch();
        place.end.store(slot.end, Ordering::Relaxed);
        place.max_gap.store(slot.max_gap, Ordering::Relaxed);
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.height == 0
    }

    /// Returns the slot that a parent keeps for this node.
    pub(super) fn summary(&self) -> NodeSlot {
        let slots = self.slots();
        let start = slots.first().map_or(0, |slot| slot.start);
        let (mut end, mut max_gap) = (start, 0);
        for slot in slots {
            max_gap = slot.max_gap.max(slot.start - end).max(max_gap);
            end = slot.end;
        }
        NodeSlot { start, end, max_gap, target: core::ptr::from_ref(self).expose_provenance() }
    }

    /// As [`Node::summary`] of a leaf that takes the place of one of which `kept` was kept: the widest hole that went
    /// was `gone` bytes, and the widest that came is `come`.
    #[inline]
    pub(super) fn summary_after(&self, kept: &NodeSlot, gone: u64, come: u64) -> NodeSlot {
        let slots = self.slots();
        // If the widest of all went, another one may be as wide.
        let is_another = || slots.array_windows().any(|[below, above]| above.start - below.end >= gone);
        if gone == kept.max_gap && come < gone && !is_another() {
            return self.summary();
        }
        let (start, end) = (slots.first().map_or(0, |slot| slot.start), slots.last().map_or(0, |slot| slot.end));
        let target = core::ptr::from_ref(self).expose_provenance();
        let summary = NodeSlot { start, end, max_gap: kept.max_gap.max(come), target };
        debug_assert_eq!(summary, self.summary());
        summary
    }

    /// Returns the place of the last slot that starts at or below `address`, or 0.
    pub(super) fn position(&self, address: u64) -> usize {
        self.slots().iter().rposition(|slot| slot.start <= address).unwrap_or(0)
    }
}

/// Returns the child that an inner slot stands for; for the writer.
pub(super) fn child<P: System>(slot: &NodeSlot) -> &Node<P> {
    // SAFETY: the writer's alone to replace (I4).
    unsafe { node_at(slot.target) }
}

/// Returns the child that an inner slot stands for at some instant.
#[inline]
pub(super) fn child_at<P: System>(place: &Place) -> &Node<P> {
    // SAFETY: it could be reached within the reader's section, or under its lock, and so is not freed before that ends
    // (I3).
    unsafe { node_at(place.target()) }
}

/// # Safety
/// An inner slot's target, which is not freed while the reference is used.
#[inline]
unsafe fn node_at<'a, P: System>(target: usize) -> &'a Node<P> {
    // SAFETY: the caller's promise.
    let node = unsafe { &*core::ptr::with_exposed_provenance::<Node<P>>(target) };
    node.touch();
    node
}

/// A few slots in order, on the way into new nodes.
pub(super) struct Slots {
    /// The first `len` are written.
    slots: [MaybeUninit<NodeSlot>; Self::CAPACITY],
    len: usize,
}

impl Slots {
    /// Two rebuilt nodes, what an edit adds, and one neighbour.
    pub(super) const CAPACITY: usize = 3 * FANOUT + 8;

    pub(super) fn new() -> Self {
        Self { slots: [const { MaybeUninit::uninit() }; Self::CAPACITY], len: 0 }
    }

    pub(super) fn extend<P: System>(&mut self, more: &[NodeSlot]) {
        let place = &mut self.slots[self.len..self.len + more.len()];
        place.write_copy_of_slice(more);
        P::touch(place.as_ptr().cast(), size_of_val(place), TouchKind::Write);
        self.len += more.len();
    }

    pub(super) fn prepend<P: System>(&mut self, more: &[NodeSlot]) {
        self.slots.copy_within(..self.len, more.len());
        self.slots[..more.len()].write_copy_of_slice(more);
        self.len += more.len();
        P::touch(self.slots.as_ptr().cast(), size_of_val(self.as_slice()), TouchKind::Write);
    }

    pub(super) fn as_slice(&self) -> &[NodeSlot] {
        // SAFETY: so many are written.
        unsafe { self.slots[..self.len].assume_init_ref() }
    }
}
