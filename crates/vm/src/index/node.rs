//! A node of the area index and its slots.

use crate::system::System;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::mem::offset_of;
use core::ptr::NonNull;
use faultless_platform::TouchKind;

/// Slots of a node: with the header and the slab's RCU head they fill 512 bytes.
pub(super) const FANOUT: usize = 15;
/// A node with fewer slots is merged with a neighbour when it is rebuilt.
pub(super) const MIN_SLOTS: usize = 5;

/// One area in a leaf, or one subtree in an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// First byte of the area, or of the subtree's first area.
    pub(super) start: u64,
    /// First byte behind the area, or behind the subtree's last area.
    pub(super) end: u64,
    /// Length in bytes of the largest hole between two areas of the subtree; 0 for an area.
    pub(super) max_gap: u64,
    /// The area, or the child node.
    pub(super) target: usize,
}

/// A node: immutable once it is published (I2 of the index).
pub struct Node<P: System> {
    /// Links the nodes of one edit; the editing writer's alone.
    pub(super) next_in_edit: UnsafeCell<*mut Node<P>>,
    pub(super) height: u16,
    nr_slots: u16,
    /// The first `nr_slots` are written; the others never were, which is what making a node would cost most.
    slots: [MaybeUninit<Slot>; FANOUT],
}

impl<P: System> Node<P> {
    /// Makes a node of those slots in place.
    ///
    /// # Safety
    /// There is room for a node, which is the caller's alone.
    pub(super) unsafe fn make_at(place: NonNull<Self>, height: u16, slots: &[Slot]) {
        assert!(slots.len() <= FANOUT, "{} slots for a node of {FANOUT}", slots.len());
        let node = place.as_ptr();
        // SAFETY: the caller's promise; the slots fit.
        unsafe {
            (&raw mut (*node).next_in_edit).write(UnsafeCell::new(core::ptr::null_mut()));
            (&raw mut (*node).height).write(height);
            (&raw mut (*node).nr_slots).write(slots.len() as u16);
            (&raw mut (*node).slots).cast::<Slot>().copy_from_nonoverlapping(slots.as_ptr(), slots.len());
        }
        P::touch(node.cast(), offset_of!(Self, slots) + size_of_val(slots), TouchKind::Write);
    }

    /// Tells the platform that the part of the node that is in use is read.
    pub(super) fn touch(&self) {
        let used_bytes = offset_of!(Self, slots) + size_of_val(self.slots());
        P::touch(core::ptr::from_ref(self).cast(), used_bytes, TouchKind::Read);
    }

    pub(super) fn slots(&self) -> &[Slot] {
        // SAFETY: `make_at` wrote so many.
        unsafe { core::slice::from_raw_parts(self.slots.as_ptr().cast(), usize::from(self.nr_slots)) }
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.height == 0
    }

    /// Returns the slot that a parent keeps for this node.
    pub(super) fn summary(&self) -> Slot {
        let slots = self.slots();
        let start = slots.first().map_or(0, |slot| slot.start);
        let (mut end, mut max_gap) = (start, 0);
        for slot in slots {
            max_gap = slot.max_gap.max(slot.start - end).max(max_gap);
            end = slot.end;
        }
        Slot { start, end, max_gap, target: core::ptr::from_ref(self).expose_provenance() }
    }

    /// Returns the place of the last slot that starts at or below `address`, or 0.
    pub(super) fn position(&self, address: u64) -> usize {
        self.slots().iter().rposition(|slot| slot.start <= address).unwrap_or(0)
    }
}

/// A few slots in order, on the way into new nodes.
pub(super) struct Slots {
    /// The first `len` are written.
    slots: [MaybeUninit<Slot>; Self::CAPACITY],
    len: usize,
}

impl Slots {
    /// Two rebuilt nodes, what an edit adds, and one neighbour.
    pub(super) const CAPACITY: usize = 3 * FANOUT + 8;

    pub(super) fn new() -> Self {
        Self { slots: [const { MaybeUninit::uninit() }; Self::CAPACITY], len: 0 }
    }

    pub(super) fn extend<P: System>(&mut self, more: &[Slot]) {
        let place = &mut self.slots[self.len..self.len + more.len()];
        place.write_copy_of_slice(more);
        P::touch(place.as_ptr().cast(), size_of_val(place), TouchKind::Write);
        self.len += more.len();
    }

    pub(super) fn prepend<P: System>(&mut self, more: &[Slot]) {
        self.slots.copy_within(..self.len, more.len());
        self.slots[..more.len()].write_copy_of_slice(more);
        self.len += more.len();
        P::touch(self.slots.as_ptr().cast(), size_of_val(self.as_slice()), TouchKind::Write);
    }

    pub(super) fn as_slice(&self) -> &[Slot] {
        // SAFETY: so many are written.
        unsafe { self.slots[..self.len].assume_init_ref() }
    }
}
