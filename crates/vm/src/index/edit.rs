//! Changing the index: prepare, then commit or abandon.
//!
//! # Guarantee
//! [`Edit::prepare`] allocates all that the change needs and changes nothing that a reader sees; [`Edit::commit`]
//! cannot fail. Dropping an [`Edit`] gives the prepared nodes back.
//!
//! # How far an edit goes
//! The leaf in which something changes is made anew. If one leaf takes its place, its parent's slot is pointed at it,
//! and the bounds and holes that the nodes above keep are brought up to date in place. Where leaves merge, split, come
//! or go, the parent is made anew, too, and so on, at most up to the root.

use super::head::{Finger, Head, nr_starting_before, root_in_force};
use super::node::{FANOUT, MIN_SLOTS, Node, NodeSlot, Slots, child};
use super::{Index, IndexEntry};
use crate::system::System;
use core::ops::Range;
use core::ptr::{self, NonNull};
use faultless_phys::{OutOfFrames, Slab};
use faultless_platform::mutant;
use faultless_platform::{Atomic, Ordering, Tracepoint};

/// Most entries that one edit adds.
pub const MAX_ADDED: usize = 3;
/// Most nodes that an edit makes on one level: two rebuilt nodes, what is added and a neighbour, spread anew; and one
/// for a root above.
const NODES_PER_LEVEL: usize = Slots::CAPACITY.div_ceil(FANOUT) + 1;

/// Tells observers where a node lies.
fn tell_name<P: System>(node: NonNull<Node<P>>) {
    if P::WATCHED {
        // SAFETY: just made, and still the caller's.
        P::trace(Tracepoint::named("a node of the area index", unsafe { node.as_ref() }));
    }
}

/// What an edit has too little of.
enum Short {
    Frames(OutOfFrames),
    /// Nodes that were set aside, or are had without sleeping.
    Nodes,
}

impl From<OutOfFrames> for Short {
    fn from(cause: OutOfFrames) -> Self {
        Self::Frames(cause)
    }
}

/// Which nodes an edit gets beside those that were set aside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    /// All that it needs.
    Sleeping,
    /// Such as are had without sleeping: it is made under a lock.
    AtOnce,
    /// No more: so many were set aside that it can't fail.
    Nothing,
}

/// Nodes set aside.
pub struct Spare<'a, P: System> {
    head: *mut Node<P>,
    nodes: &'a Slab<P, Node<P>, P::Frames>,
}

impl<P: System> Spare<'_, P> {
    fn pop(&mut self) -> Option<NonNull<Node<P>>> {
        let node = NonNull::new(self.head)?;
        // SAFETY: nodes in the list are ours.
        self.head = unsafe { (*node.as_ptr()).next_in_edit.get().read() };
        Some(node)
    }
}

impl<P: System> Spare<'_, P> {
    /// Sets more aside until there are so many.
    pub(crate) fn fill_up_to(&mut self, nr_nodes: usize) -> Result<(), OutOfFrames> {
        let (mut nr_there, mut node) = (0, self.head);
        while let Some(there) = NonNull::new(node) {
            // SAFETY: nodes in the list are ours.
            node = unsafe { (*there.as_ptr()).next_in_edit.get().read() };
            nr_there += 1;
        }
        for _ in nr_there..nr_nodes {
            self.set_one_aside()?;
        }
        Ok(())
    }

    fn set_one_aside(&mut self) -> Result<(), OutOfFrames> {
        let node = self.nodes.alloc()?;
        // SAFETY: the slab gave us room for a node.
        unsafe { Node::make_at(node, 0, []) };
        tell_name(node);
        push(&mut self.head, node.as_ptr());
        Ok(())
    }
}

impl<P: System> Drop for Spare<'_, P> {
    #[inline]
    fn drop(&mut self) {
        while let Some(node) = self.pop() {
            // SAFETY: nobody else has seen it.
            unsafe { self.nodes.free(node) };
        }
    }
}

/// What an edit puts in force.
enum Pending<P: System> {
    /// Another root, or none.
    Root(*mut Node<P>),
    /// Another child of a node that stays, in the place of that number: the slot.
    Child(NonNull<Node<P>>, usize, NodeSlot),
}

/// What is to be done above a node whose content changes.
enum Above {
    /// The node is replaced by what its level holds now.
    Replaced,
    /// Nothing: it, or a node below, stays, and gets another child.
    Stays,
}

/// A prepared change; see the module.
#[must_use = "an edit that is dropped changes nothing"]
pub struct Edit<'a, P: System> {
    /// What areas are does not matter here.
    head: &'a Head<P>,
    nodes: &'a Slab<P, Node<P>, P::Frames>,
    spare: Option<Spare<'a, P>>,
    /// What there is beside that.
    more: More,
    /// What is put in force.
    change: Pending<P>,
    /// Nodes made by this edit.
    fresh: *mut Node<P>,
    /// Nodes that this edit replaces; each alone.
    replaced: *mut Node<P>,
    /// Roots of subtrees that this edit drops whole.
    dropped: *mut Node<P>,
}

impl<P: System, T> Index<P, T> {
    /// Returns an edit that is still to be prepared, which takes nodes that are set aside first, and then others. It is
    /// prepared where its caller keeps it: it is too large to be handed on by calls that are made all the time.
    #[inline(always)]
    pub fn unprepared<'a>(
        &'a self,
        nodes: &'a Slab<P, Node<P>, P::Frames>,
        spare: Option<Spare<'a, P>>,
    ) -> Edit<'a, P> {
        let null = ptr::null_mut();
        let (change, fresh, replaced, dropped) = (Pending::Root(null), null, null, null);
        Edit { head: &self.head, nodes, spare, more: More::Sleeping, change, fresh, replaced, dropped }
    }

    /// As [`Index::unprepared`], out of nodes that were set aside, and such as are had without sleeping: under a lock.
    #[inline(always)]
    pub fn unprepared_from<'a>(&'a self, spare: Spare<'a, P>) -> Edit<'a, P> {
        let mut edit = self.unprepared(spare.nodes, Some(spare));
        edit.more = More::AtOnce;
        edit
    }

    /// As [`Edit::prepare`] of an edit out of nodes that were set aside alone; nothing if they are too few.
    pub fn prepare_from<'a>(
        &'a self,
        range: Range<u64>,
        added: impl Iterator<Item = IndexEntry<T>>,
        spare: Spare<'a, P>,
    ) -> Option<Edit<'a, P>> {
        let mut edit = self.unprepared_from(spare);
        edit.more = More::Nothing;
        edit.is_prepared(range, added).then_some(edit)
    }

    /// Gives back what is kept for the next edit; there is none.
    pub fn free_kept(&self, nodes: &Slab<P, Node<P>, P::Frames>) {
        if let Some(kept) = self.head.finger.take_kept() {
            // SAFETY: made by an edit out of this slab, and nobody is at it (F3 of `head`).
            unsafe { nodes.free(kept) };
        }
    }

    /// Sets aside the nodes that one edit without additions needs at most.
    pub fn reserve<'a>(&self, nodes: &'a Slab<P, Node<P>, P::Frames>) -> Result<Spare<'a, P>, OutOfFrames> {
        Self::reserve_levels(nodes, self.nr_levels() + 1)
    }

    /// Returns how many levels of nodes there are.
    pub fn nr_levels(&self) -> usize {
        self.root().map_or(0, |root| usize::from(root.height) + 1)
    }

    /// Sets aside the nodes that one edit without additions needs at most in an index of less than so many levels.
    pub fn reserve_levels<'a>(
        nodes: &'a Slab<P, Node<P>, P::Frames>,
        nr_levels: usize,
    ) -> Result<Spare<'a, P>, OutOfFrames> {
        Self::reserve_nodes(nodes, nr_levels * NODES_PER_LEVEL)
    }

    /// Sets no node aside: an edit takes what the index keeps, and others.
    #[inline]
    pub(crate) fn nothing_aside(nodes: &Slab<P, Node<P>, P::Frames>) -> Spare<'_, P> {
        Spare { head: ptr::null_mut(), nodes }
    }

    /// Sets so many nodes aside.
    pub fn reserve_nodes(nodes: &Slab<P, Node<P>, P::Frames>, nr_nodes: usize) -> Result<Spare<'_, P>, OutOfFrames> {
        let mut spare = Self::nothing_aside(nodes);
        for _ in 0..nr_nodes {
            spare.set_one_aside()?;
        }
        Ok(spare)
    }

    /// Returns how many nodes an edit needs at most, also one that adds areas.
    pub(crate) fn nr_nodes_for_edit(&self) -> usize {
        Self::nr_nodes_in_levels(self.nr_levels())
    }

    /// As [`Index::nr_nodes_for_edit`], of an index of so many levels.
    pub(crate) const fn nr_nodes_in_levels(nr_levels: usize) -> usize {
        (nr_levels + 2) * NODES_PER_LEVEL
    }
}

impl<'a, P: System> Edit<'a, P> {
    /// Prepares to remove every area that starts inside `range` and to add `added` (sorted, inside `range`, and at most
    /// [`MAX_ADDED`]), once.
    #[inline]
    pub fn prepare<T>(
        &mut self,
        range: Range<u64>,
        added: impl Iterator<Item = IndexEntry<T>>,
    ) -> Result<(), OutOfFrames> {
        match self.prepare_all(range, added) {
            Ok(()) => Ok(()),
            Err(Short::Frames(cause)) => Err(cause),
            Err(Short::Nodes) => unreachable!("it takes more"),
        }
    }

    /// As [`Edit::prepare`], of an edit under a lock; says whether there were nodes enough.
    #[inline]
    pub fn is_prepared<T>(&mut self, range: Range<u64>, added: impl Iterator<Item = IndexEntry<T>>) -> bool {
        self.prepare_all(range, added).is_ok()
    }

    #[inline]
    fn prepare_all<T>(&mut self, range: Range<u64>, added: impl Iterator<Item = IndexEntry<T>>) -> Result<(), Short> {
        let (mut slots, mut nr_added) = ([NodeSlot::NONE; MAX_ADDED], 0);
        for entry in added {
            slots[nr_added] = entry.to_slot();
            nr_added += 1;
        }
        self.build(range, &slots[..nr_added])
    }

    /// Puts the change in force; returns what is left of the nodes that were set aside. Those that it replaces are
    /// freed after a grace period if `is_looked_at`, asked then, says that somebody may be reading them, else at once.
    #[inline]
    pub fn commit(&mut self, is_looked_at: impl FnOnce() -> bool) -> Option<Spare<'a, P>> {
        let spare = self.spare.take();
        match &self.change {
            Pending::Root(root) => {
                // ORDER: Release pairs with the Acquire in `Index::root`: readers see the nodes' contents.
                self.head.root.store(*root, Ordering::Release);
                self.head.finger.set(None);
            }
            // SAFETY: reached from the root, which the caller keeps others from editing (I4); and made by this edit.
            Pending::Child(parent, index, slot) => unsafe { self.put(parent.as_ref(), *index, slot) },
        }
        self.fresh = ptr::null_mut();
        let replaced = core::mem::replace(&mut self.replaced, ptr::null_mut());
        let dropped = core::mem::replace(&mut self.dropped, ptr::null_mut());
        if replaced.is_null() && dropped.is_null() {
            return spare;
        }
        let is_looked_at = is_looked_at();
        Self::for_each(replaced, |node| {
            if is_looked_at || !self.head.finger.keep(node) {
                self.retire(node, is_looked_at);
            }
        });
        Self::for_each(dropped, |node| self.retire_tree(node, is_looked_at));
        spare
    }

    /// Gives a node another child, and the nodes above it what they keep of it.
    #[inline]
    fn put(&self, parent: &Node<P>, index: usize, new: &NodeSlot) {
        let (old, below) = (parent.slots()[index], child::<P>(new));
        parent.put(index, new);
        let finger = Finger { parent: NonNull::from(parent), index, leaf: NonNull::from(below) };
        self.head.finger.set(below.is_leaf().then_some(finger));
        if (old.start, old.end, old.max_gap) != (new.start, new.end, new.max_gap)
            && let Some(root) = root_in_force(self.head)
        {
            Self::refresh(root, parent, old.start);
        }
    }

    /// Brings what is kept of `changed` in the nodes from `node` down to it up to date; `address` is in its old bounds.
    /// Says whether what is kept of `node` may have to change.
    fn refresh(node: &Node<P>, changed: &Node<P>, address: u64) -> bool {
        if ptr::eq(node, changed) || node.is_leaf() {
            return ptr::eq(node, changed);
        }
        let index = node.position(address);
        let old = node.slots()[index];
        let below = child(&old);
        if !Self::refresh(below, changed, address) {
            return false;
        }
        let new = below.summary();
        if new != old {
            node.put(index, &new);
        }
        new != old
    }

    fn build(&mut self, range: Range<u64>, added: &[NodeSlot]) -> Result<(), Short> {
        if let Some(Finger { parent, index, leaf }) = self.head.finger_at(&range)
            // SAFETY: reached from the root (F1 of `head`), and the writer's alone to replace (I4).
            && let Some(new) = unsafe { self.edited_leaf(leaf.as_ref(), &parent.as_ref().slots()[index], &range, added)? }
        {
            self.change = Pending::Child(parent, index, new);
            return Ok(());
        }
        let Some(root) = root_in_force(self.head) else {
            return if added.is_empty() { Ok(()) } else { self.make_root([added]) };
        };
        if root.is_leaf() {
            let (parts, replaced) = self.parts_of_leaf(root, &range, added);
            let nr_slots = root.slots().len() - replaced.len() + added.len();
            if nr_slots <= FANOUT {
                push(&mut self.replaced, ptr::from_ref(root).cast_mut());
                return if nr_slots == 0 { Ok(()) } else { self.make_root(parts) };
            }
        }
        self.build_levels(root, &range, added)
    }

    /// As [`Edit::build`], where a leaf alone is not enough.
    #[inline(never)]
    fn build_levels(&mut self, root: &Node<P>, range: &Range<u64>, added: &[NodeSlot]) -> Result<(), Short> {
        let mut top = Slots::new();
        if root.is_leaf() {
            self.rebuild(root, range, added, &mut top)?;
        } else if let Above::Stays = self.change_below(root, range, added, &mut top)? {
            return Ok(());
        }
        self.grow(top.as_slice(), root.height)
    }

    /// Makes the root a leaf of a few slots.
    fn make_root<const N: usize>(&mut self, parts: [&[NodeSlot]; N]) -> Result<(), Short> {
        self.change = Pending::Root(self.new_node(parts, 0)?.as_ptr());
        Ok(())
    }

    /// Makes a leaf after the change, in place of `leaf`, of which the parent keeps `kept`, and returns what the parent
    /// will keep; nothing if it has too few slots or too many.
    fn edited_leaf(
        &mut self,
        leaf: &Node<P>,
        kept: &NodeSlot,
        range: &Range<u64>,
        added: &[NodeSlot],
    ) -> Result<Option<NodeSlot>, Short> {
        let (parts, replaced) = self.parts_of_leaf(leaf, range, added);
        let nr_slots = leaf.slots().len() - replaced.len() + added.len();
        if !(MIN_SLOTS..=FANOUT).contains(&nr_slots) {
            return Ok(None);
        }
        push(&mut self.replaced, ptr::from_ref(leaf).cast_mut());
        let node = self.new_node(parts, 0)?;
        // SAFETY: just made.
        let new = unsafe { node.as_ref() };
        let came = replaced.start..replaced.start + added.len();
        Ok(Some(new.summary_after(kept, widest_hole(leaf.slots(), replaced), widest_hole(new.slots(), came))))
    }

    /// Makes the new root over the contents of the topmost level.
    fn grow(&mut self, contents: &[NodeSlot], height: u16) -> Result<(), Short> {
        match contents {
            [] => Ok(()),
            [only] if height > 0 => {
                self.change = Pending::Root(ptr::from_ref(child::<P>(only)).cast_mut());
                Ok(())
            }
            level => {
                let mut above = Slots::new();
                self.materialise(level, height, &mut above)?;
                self.grow(above.as_slice(), height + 1)
            }
        }
    }

    /// Changes what is below an inner node. Where that leaves one of its children one node, it or a node below stays;
    /// otherwise puts into `out` what its level holds after the change, and it is replaced.
    fn change_below(
        &mut self,
        node: &Node<P>,
        range: &Range<u64>,
        added: &[NodeSlot],
        out: &mut Slots,
    ) -> Result<Above, Short> {
        let (first, last) = Self::children_of(node, range);
        if first < last {
            // The children change as one, so each of them is replaced.
            self.rebuild(node, range, added, out)?;
            return Ok(Above::Replaced);
        }
        let old = child::<P>(&node.slots()[first]);
        let mut middle = Slots::new();
        let new = if old.is_leaf() {
            self.edited_leaf(old, &node.slots()[first], range, added)?
        } else {
            match self.change_below(old, range, added, &mut middle)? {
                Above::Stays => return Ok(Above::Stays),
                Above::Replaced => self.one_node(middle.as_slice(), old.height)?,
            }
        };
        if let Some(new) = new {
            self.change = Pending::Child(NonNull::from(node), first, new);
            return Ok(Above::Stays);
        }
        if old.is_leaf() {
            self.rebuild(old, range, added, &mut middle)?;
        }
        self.replace(node, first..last + 1, middle, out)?;
        Ok(Above::Replaced)
    }

    /// Puts into `out` what this node's level holds after the change; the node itself is replaced, and so are those
    /// below it that change.
    fn rebuild(
        &mut self,
        node: &Node<P>,
        range: &Range<u64>,
        added: &[NodeSlot],
        out: &mut Slots,
    ) -> Result<(), Short> {
        if node.is_leaf() {
            push(&mut self.replaced, ptr::from_ref(node).cast_mut());
            self.parts_of_leaf(node, range, added).0.iter().for_each(|part| out.extend::<P>(part));
            return Ok(());
        }
        let slots = node.slots();
        let (first, last) = Self::children_of(node, range);
        let mut middle = Slots::new();
        self.rebuild(child(&slots[first]), range, added, &mut middle)?;
        for slot in &slots[first + 1..last.max(first + 1)] {
            push(&mut self.dropped, ptr::from_ref(child::<P>(slot)).cast_mut());
        }
        if last > first {
            self.rebuild(child(&slots[last]), range, &[], &mut middle)?;
        }
        self.replace(node, first..last + 1, middle, out)
    }

    /// Puts into `out` what an inner node's level holds when `middle` takes the place of some of its children's slots;
    /// the node is replaced.
    fn replace(
        &mut self,
        node: &Node<P>,
        children: Range<usize>,
        mut middle: Slots,
        out: &mut Slots,
    ) -> Result<(), Short> {
        push(&mut self.replaced, ptr::from_ref(node).cast_mut());
        let slots = node.slots();
        let (mut left, mut right) = (&slots[..children.start], &slots[children.end..]);
        self.feed(&mut middle, &mut left, &mut right);
        out.extend::<P>(left);
        self.materialise(middle.as_slice(), node.height - 1, out)?;
        out.extend::<P>(right);
        Ok(())
    }

    /// Returns the first and the last child of an inner node that a change of `range` is about.
    fn children_of(node: &Node<P>, range: &Range<u64>) -> (usize, usize) {
        let first = node.position(range.start);
        let last = node.slots().iter().rposition(|slot| slot.start < range.end).unwrap_or(first);
        (first, last.max(first))
    }

    /// Makes a node of what a level holds, and returns its parent's slot, if that is enough for one and not too much.
    fn one_node(&mut self, slots: &[NodeSlot], height: u16) -> Result<Option<NodeSlot>, Short> {
        if !(MIN_SLOTS..=FANOUT).contains(&slots.len()) {
            return Ok(None);
        }
        let node = self.new_node([slots], height)?;
        // SAFETY: just made.
        Ok(Some(unsafe { node.as_ref() }.summary()))
    }

    /// Takes a neighbour in when too little is left for a node of its own.
    fn feed(&mut self, middle: &mut Slots, left: &mut &[NodeSlot], right: &mut &[NodeSlot]) {
        let len = middle.as_slice().len();
        if len == 0 || len >= MIN_SLOTS {
            return;
        }
        if let Some((neighbour, rest)) = left.split_last() {
            middle.prepend::<P>(self.replace_child(neighbour));
            *left = rest;
        } else if let Some((neighbour, rest)) = right.split_first() {
            middle.extend::<P>(self.replace_child(neighbour));
            *right = rest;
        }
    }

    fn replace_child<'s>(&mut self, slot: &'s NodeSlot) -> &'s [NodeSlot] {
        let node = child::<P>(slot);
        push(&mut self.replaced, ptr::from_ref(node).cast_mut());
        node.slots()
    }

    /// Returns what a leaf holds after the change, and the places of those that go.
    #[inline]
    fn parts_of_leaf<'s>(
        &self,
        leaf: &'s Node<P>,
        range: &Range<u64>,
        added: &'s [NodeSlot],
    ) -> ([&'s [NodeSlot]; 3], Range<usize>) {
        let slots = leaf.slots();
        let below = nr_starting_before(slots, self.head.finger.place(), range.start);
        let above = nr_starting_before(slots, below, range.end);
        ([&slots[..below], added, &slots[above..]], below..above)
    }

    /// Spreads slots evenly over as few new nodes as hold them, and puts those nodes' slots into `out`.
    fn materialise(&mut self, slots: &[NodeSlot], height: u16, out: &mut Slots) -> Result<(), Short> {
        let nr_nodes = slots.len().div_ceil(FANOUT);
        for chunk in 0..nr_nodes {
            let part = &slots[chunk * slots.len() / nr_nodes..(chunk + 1) * slots.len() / nr_nodes];
            let node = self.new_node([part], height)?;
            // SAFETY: just made.
            out.extend::<P>(&[unsafe { node.as_ref() }.summary()]);
        }
        Ok(())
    }

    #[inline(always)]
    fn new_node<const N: usize>(&mut self, parts: [&[NodeSlot]; N], height: u16) -> Result<NonNull<Node<P>>, Short> {
        let spare = self.spare.as_mut().and_then(Spare::pop);
        let node = match spare.or_else(|| self.head.finger.take_kept()) {
            Some(node) => node,
            None if self.more != More::Sleeping => self.take_without_sleep()?,
            None => self.nodes.alloc()?,
        };
        // SAFETY: the slab gave us room for a node.
        unsafe { Node::make_at(node, height, parts) };
        tell_name(node);
        push(&mut self.fresh, node.as_ptr());
        Ok(node)
    }

    /// Takes a node under a lock, if the edit may have any.
    #[cold]
    fn take_without_sleep(&self) -> Result<NonNull<Node<P>>, Short> {
        match self.more {
            More::Nothing => Err(Short::Nodes),
            _ => self.nodes.try_alloc().map_err(|_| Short::Nodes),
        }
    }

    fn for_each(mut list: *mut Node<P>, mut act: impl FnMut(NonNull<Node<P>>)) {
        while let Some(node) = NonNull::new(list) {
            // SAFETY: as in `push`; read before `act` may free the node.
            list = unsafe { (*node.as_ptr()).next_in_edit.get().read() };
            act(node);
        }
    }

    fn retire(&self, node: NonNull<Node<P>>, is_looked_at: bool) {
        // SAFETY: the node came from this slab and is no longer reachable from a published root (I3).
        unsafe {
            match mutant!(StackGrowthUnderRead, is_looked_at => false) {
                true => self.nodes.free_deferred(node),
                false => self.nodes.free(node),
            }
        }
    }

    fn retire_tree(&self, node: NonNull<Node<P>>, is_looked_at: bool) {
        // SAFETY: not yet freed: that comes after the descent.
        let slots = unsafe { node.as_ref() };
        if !slots.is_leaf() {
            slots.slots().iter().for_each(|slot| self.retire_tree(NonNull::from(child::<P>(slot)), is_looked_at));
        }
        self.retire(node, is_looked_at);
    }
}

/// Returns the length of the longest hole beside or between slots that go or came.
#[inline]
fn widest_hole(slots: &[NodeSlot], changed: Range<usize>) -> u64 {
    let (mut widest, mut place) = (0, changed.start.max(1));
    while place <= changed.end
        && let (Some(below), Some(above)) = (slots.get(place - 1), slots.get(place))
    {
        widest = widest.max(above.start - below.end);
        place += 1;
    }
    widest
}

fn push<P: System>(list: &mut *mut Node<P>, node: *mut Node<P>) {
    // SAFETY: the link is the editing writer's alone (I4), and the node outlives the edit. Readers never read it.
    unsafe { (*node).next_in_edit.get().write(*list) };
    *list = node;
}

impl<P: System> Edit<'_, P> {
    /// Gives the nodes back of an edit that was not put in force.
    #[cold]
    fn abandon(&mut self) {
        let fresh = core::mem::replace(&mut self.fresh, ptr::null_mut());
        // SAFETY: nobody else has seen these nodes.
        Self::for_each(fresh, |node| unsafe { self.nodes.free(node) });
    }
}

impl<P: System> Drop for Edit<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if !self.fresh.is_null() {
            self.abandon();
        }
    }
}
