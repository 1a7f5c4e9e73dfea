//! A queue of spinners in which those of the head's NUMA node go first.
//!
//! # Guarantee
//! As the [MCS queue](crate::McsQueue): one waiter at a time is at the head; the others each spin on a line of their own,
//! and may leave. The head is handed on within a node, where lines move fast, but while others wait at most
//! [`CnaQueue::PASSES`] times in a row (or as [`CnaQueue::with_passes`] says); then the longest waiter gets it. So the
//! n-th in the queue is at the head after at most n * (PASSES + 1) tenures.
//!
//! # Drawn
//! ```text
//!  tail --------------------------------------------+
//!                                                   v
//!  [H home=0 passes=2] --next--> [X home=0] --> [N home=1]
//!
//!  aside: front --next--> [S home=1] --> [T home=2] <-- tail
//! ```
//! Waiters that were passed by stand aside, in a second queue of the same kind behind `front`, which never leaves; its
//! `tail` is null while nobody is there. A waiter leaves either queue as it would leave an MCS queue.
//!
//! # Invariants
//! I1 to I3 of `mcs` hold in both queues, and:
//! * I4 only the head moves others: it puts the waiter behind it aside, and brings those aside back to the front.
//! * I5 whoever is aside came before everybody in the queue but the head, and each queue is in the order of arrival:
//!   nodes are put aside from the queue's front, one by one, and come back to it all at once.
//!
//! # Moving X, behind the head H, aside
//! ```text
//! H                                              X leaves at the same time
//! 1  takes H.next = X                            H.next is not X: waits until its link changes (I3)
//! 2  B and C of leaving, for X: N behind H
//! 3  aside.tail: last -> X; last.next = X
//! 4  X.link: H -> last                           goes on: takes itself out of last.next
//! ```
//! Steps 1 to 4 keep what leavers rely on: between 1 and 4 no `next` names X, so X stays; and between the two halves of
//! 3 `last` stays (I2).
//!
//! # Bringing all back
//! ```text
//! 1  takes S = front.next          S stays (I3), so somebody is aside
//! 2  last = aside.tail -> null     last stays: it is no tail and knows no next (I2)
//! 3  H leaves as from behind last  the tail: H -> last, or last.next = N and N.link: H -> last
//! 4  S.link: front -> null         S is the head
//! ```
//! X.link may name one node in the queue and later the same node aside, so whoever has looked at it changes it by an
//! exchange.
//! Forbidden: two heads, a lost waiter, a touch of a vanished node. Models: `tests/models/cna.rs`.
//!
//! Source: Dice and Kogan, "Compact NUMA-aware Locks", EuroSys 2019. Their head looks
//! through the queue before it moves anybody; here nodes may vanish, so each is moved before the next one is looked at.
//! Theirs ends a node's turn by chance, so it has no firm bound.

use crate::mcs::{FoundEmpty, McsQueue, Node, Turn, hand_over, while_it_runs};
use core::mem::ManuallyDrop;
use core::ptr;
use faultless_platform::{Atomic, Ordering, Processor, ThreadToken};

/// A queue of spinners without a limit, for machines of several NUMA nodes.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::CnaQueue;
///
/// let (queue, mut count) = (CnaQueue::<Native>::new(), 0);
/// queue.lock(|| count += 1);
/// // Leaves the queue when it is told to; here it is at the head at once.
/// assert_eq!(queue.lock_while(|| false, || count), Some(1));
/// assert!(!queue.is_occupied());
/// // In turns of nine: the first of a node, and eight that overtake others.
/// assert!(CnaQueue::<Native>::PASSES > 8);
/// CnaQueue::<Native>::with_passes(8).lock(|| ());
/// ```
pub struct CnaQueue<P: Processor> {
    queue: McsQueue<P>,
    aside: Aside<P>,
}

impl<P: Processor> CnaQueue<P> {
    /// How many times in a row the head is handed on within a node while others wait, by default.
    pub const PASSES: u32 = 256;

    /// Returns an empty queue.
    pub fn new() -> Self {
        Self::with_passes(Self::PASSES)
    }

    /// Returns an empty queue in which the head is handed on within a node at most `nr_passes` times in a row while
    /// others wait; with 0 it is a slower MCS queue.
    pub fn with_passes(nr_passes: u32) -> Self {
        Self { queue: McsQueue::new(), aside: Aside::new(nr_passes) }
    }

    /// Says whether anybody is in the queue: a hint, unless the caller's fences make it more.
    #[inline]
    pub fn is_occupied(&self) -> bool {
        self.queue.is_occupied()
    }

    /// Waits for the head of the queue and runs `section` there.
    pub fn lock<R>(&self, section: impl FnOnce() -> R) -> R {
        self.queue.lock_beside(Some(&self.aside), section)
    }

    /// As [`CnaQueue::lock`], but asks `keep_waiting` from time to time and leaves the queue when it says no. Called by
    /// spinners that may give up; semaphores call [`CnaQueue::lock_while_owner_runs`].
    pub fn lock_while<R>(&self, keep_waiting: impl FnMut() -> bool, section: impl FnOnce() -> R) -> Option<R> {
        self.queue.lock_while_as(Some(&self.aside), FoundEmpty::Goes, keep_waiting, section)
    }

    /// As [`McsQueue::lock_while_owner_runs`].
    ///
    /// ```
    /// use faultless_platform::{ThreadToken, native::Native};
    /// let queue = faultless_sync::CnaQueue::<Native>::new();
    /// assert_eq!(queue.lock_while_owner_runs(|| ThreadToken::NONE, || 7), Some(7));
    /// ```
    pub fn lock_while_owner_runs<R>(
        &self,
        owner: impl FnMut() -> ThreadToken,
        section: impl FnOnce() -> R,
    ) -> Option<R> {
        self.lock_while(while_it_runs::<P>(owner), section)
    }
}

impl<P: Processor> Default for CnaQueue<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// The waiters that were passed by.
pub(crate) struct Aside<P: Processor> {
    front: Node<P>,
    tail: P::AtomicPtr<Node<P>>,
    /// How many times in a row the head may be handed on within a node while somebody is aside.
    passes_max: u32,
    /// Fills the line, so that the fields behind it in a semaphore keep their place on their line.
    _rest: [u64; 3],
}

impl<P: Processor> Aside<P> {
    pub(crate) fn new(passes_max: u32) -> Self {
        Self { front: Node::at(0), tail: P::AtomicPtr::new(ptr::null_mut()), passes_max, _rest: [0; 3] }
    }

    /// Says whether nobody is aside. The head may rely on a yes: it alone puts others there.
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: whoever is there was put there by the head, or by one before it.
        self.tail.load(Ordering::Relaxed).is_null()
    }

    /// Peeks whether a node is the last one aside.
    pub(crate) fn is_last(&self, node: *mut Node<P>) -> bool {
        // Relaxed: see above.
        self.tail.load(Ordering::Relaxed) == node
    }

    /// Makes `before` the last one aside if the node was; says whether it was.
    pub(crate) fn ends_at(&self, node: *mut Node<P>, before: *mut Node<P>) -> bool {
        let before = if before == self.front.address() { ptr::null_mut() } else { before };
        // ORDER: Release pairs with the Acquire of whoever finds `before` the tail, here, in `put` or in `take_all`: we
        // touch its node no more. Acquire is the other half.
        self.is_last(node) && self.tail.compare_exchange(node, before, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Appends a node.
    ///
    /// # Safety
    /// The caller is the head, and has taken the node out from behind itself.
    unsafe fn put(&self, node: *mut Node<P>, head: *mut Node<P>) {
        // ORDER: Acquire pairs with the Release of those who left here and made the one before the tail: they touch its
        // node no more.
        let last = self.tail.swap(node, Ordering::Acquire);
        let last = if last.is_null() { self.front.address() } else { last };
        // SAFETY: it is not the tail and knows no successor, so it stays until we have named one (I2); `front` does.
        let next = unsafe { &(*last).next };
        // ORDER: Release pairs with the Acquire in `try_take_next`.
        next.store(node, Ordering::Release);
        // SAFETY: the caller's promise.
        unsafe { hand_over(node, head, last) };
    }

    /// Takes the first one out, which then stays; none if nobody is aside.
    fn take_first(&self) -> Option<*mut Node<P>> {
        self.front.take_next_unless(|| self.is_empty())
    }

    /// Takes out all the others once the first was taken out; returns the last.
    fn take_all(&self) -> *mut Node<P> {
        // ORDER: Acquire pairs with the Release of those who left here and made the one before the tail, as in `put`.
        self.tail.swap(ptr::null_mut(), Ordering::Acquire)
    }

    fn front(&self) -> *mut Node<P> {
        self.front.address()
    }
}

impl<P: Processor> Turn<'_, P> {
    /// Leaves from the head: hands it to the next waiter of our node, or to the longest waiter.
    pub(crate) fn pass_on(&self, aside: &Aside<P>) {
        // Relaxed: whoever made us the head wrote it before.
        let mut nr_passes = self.node.nr_passes.load(Ordering::Relaxed);
        loop {
            if aside.is_empty() {
                nr_passes = 0;
                let Some(next) = self.take_next(ptr::null_mut()) else { return };
                // SAFETY: we took it out, so it stays until its link changes (I3).
                unsafe {
                    if self.is_near(next) || self.is_alone(next) {
                        return self.make_head(next, self.node.address(), 0);
                    }
                    self.put_aside(aside, next);
                }
            } else if nr_passes < aside.passes_max
                && let Some(next) = self.node.take_next_unless(|| self.is_last())
            {
                // SAFETY: as above.
                unsafe {
                    if self.is_near(next) {
                        return self.make_head(next, self.node.address(), nr_passes + 1);
                    }
                    self.put_aside(aside, next);
                }
            } else if let Some(first) = aside.take_first() {
                return self.bring_back(aside, first);
            }
        }
    }

    /// # Safety
    /// The node was taken out.
    unsafe fn is_near(&self, next: *mut Node<P>) -> bool {
        // SAFETY: it stays until its link changes (I3).
        unsafe { (*next).home == self.node.home }
    }

    /// Peeks whether nobody is behind the next one.
    fn is_alone(&self, next: *mut Node<P>) -> bool {
        // Relaxed: see above.
        self.queue.tail.load(Ordering::Relaxed) == next
    }

    /// Puts the next waiter aside (steps 2 to 4).
    ///
    /// # Safety
    /// We have taken it out from behind us.
    unsafe fn put_aside(&self, aside: &Aside<P>, next: *mut Node<P>) {
        // SAFETY: it stays until its link changes (I3), which is the last step.
        let node = unsafe { &*next };
        // It can't leave by itself, so we do that for it. Dropping it would leave once more.
        let its = ManuallyDrop::new(Turn { queue: self.queue, aside: None, node });
        its.leave_from(self.node.address());
        // SAFETY: the caller's promise.
        unsafe { aside.put(next, self.node.address()) };
    }

    /// Puts all who are aside in front of those behind us, and hands the head to the first, which was taken out.
    fn bring_back(&self, aside: &Aside<P>, first: *mut Node<P>) {
        let last = aside.take_all();
        self.leave_from(last);
        // SAFETY: it was taken out, so it stays until its link changes (I3).
        unsafe { self.make_head(first, aside.front(), 0) };
    }

    /// Hands the head to a node that was behind `behind`.
    ///
    /// # Safety
    /// The caller has taken the node out.
    unsafe fn make_head(&self, next: *mut Node<P>, behind: *mut Node<P>, nr_passes: u32) {
        // SAFETY: it stays until its link changes (I3), which is the last step. Relaxed: handing over orders it.
        unsafe {
            (*next).nr_passes.store(nr_passes, Ordering::Relaxed);
            hand_over(next, behind, ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use faultless_platform::native::Native;
    use std::collections::{BTreeMap, VecDeque};
    use std::vec::Vec;

    /// A queue whose waiters all stand on one thread: nobody waits, and each step is a call.
    struct Standing<'a> {
        queue: &'a CnaQueue<Native>,
        nodes: &'a [Node<Native>],
        turns: BTreeMap<usize, Turn<'a, Native>>,
    }

    impl<'a> Standing<'a> {
        fn new(queue: &'a CnaQueue<Native>, nodes: &'a [Node<Native>]) -> Self {
            Self { queue, nodes, turns: BTreeMap::new() }
        }

        fn join(&mut self, waiter: usize) {
            let turn = Turn { queue: &self.queue.queue, aside: Some(&self.queue.aside), node: &self.nodes[waiter] };
            turn.join(FoundEmpty::Goes);
            self.turns.insert(waiter, turn);
        }

        /// Leaves, from the head or from elsewhere.
        fn leave(&mut self, waiter: usize) {
            drop(self.turns.remove(&waiter).expect("it is there"));
        }

        fn head(&self) -> Option<usize> {
            let mut heads = self.turns.iter().filter(|(_, turn)| turn.node.is_head()).map(|(&waiter, _)| waiter);
            let head = heads.next();
            assert!(heads.next().is_none() && head.is_some() == self.queue.is_occupied(), "one head, if anybody");
            head
        }
    }

    /// Returns a node for each waiter.
    fn nodes_at(homes: &[u32]) -> Vec<Node<Native>> {
        homes.iter().map(|&home| Node::at(home)).collect()
    }

    /// The same, as lists.
    #[derive(Default)]
    struct Plain {
        head: Option<usize>,
        queue: VecDeque<usize>,
        aside: VecDeque<usize>,
        nr_passes: u32,
    }

    impl Plain {
        fn join(&mut self, waiter: usize) {
            if self.head.is_none() { self.head = Some(waiter) } else { self.queue.push_back(waiter) }
        }

        fn leave(&mut self, waiter: usize, homes: &[u32], passes_max: u32) {
            self.queue.retain(|&other| other != waiter);
            self.aside.retain(|&other| other != waiter);
            if self.head == Some(waiter) {
                self.head = self.next(homes[waiter], homes, passes_max);
            }
        }

        fn next(&mut self, home: u32, homes: &[u32], passes_max: u32) -> Option<usize> {
            if self.aside.is_empty() {
                self.nr_passes = 0;
            }
            let near = self.queue.iter().position(|&waiter| homes[waiter] == home);
            let may_pass = self.aside.is_empty() && near == Some(0) || self.nr_passes < passes_max;
            if let Some(place) = near.filter(|_| may_pass) {
                self.aside.extend(self.queue.drain(..place));
                self.nr_passes += u32::from(!self.aside.is_empty());
                return self.queue.pop_front();
            }
            // The longest waiter of all.
            self.nr_passes = 0;
            self.aside.append(&mut self.queue);
            self.queue = core::mem::take(&mut self.aside);
            self.queue.pop_front()
        }
    }

    #[test]
    fn those_aside_take_a_line() {
        assert_eq!(size_of::<Aside<Native>>(), 64);
    }

    #[test]
    fn those_of_the_heads_node_go_first() {
        let (queue, nodes) = (CnaQueue::with_passes(10), nodes_at(&[0, 1, 0, 1, 0]));
        let mut standing = Standing::new(&queue, &nodes);
        (0..5).for_each(|waiter| standing.join(waiter));
        let order: Vec<usize> = core::iter::from_fn(|| standing.head().inspect(|&head| standing.leave(head))).collect();
        assert_eq!(order, [0, 2, 4, 1, 3]);
    }

    #[test]
    fn it_is_as_with_plain_lists_whoever_comes_and_leaves() {
        let mut state = 1_u64;
        let mut below = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % end
        };
        // Each number of nodes with each of passes; Miri takes minutes for more.
        let (nr_rounds, nr_waiters) = if cfg!(miri) { (16, 30) } else { (400, 200) };
        for round in 0..nr_rounds {
            let (nr_nodes, passes_max) = (1 + round % 4, [0, 1, 3, 100][round / 4 % 4]);
            let homes: Vec<u32> = (0..nr_waiters).map(|_| below(nr_nodes) as u32).collect();
            let (queue, nodes) = (CnaQueue::with_passes(passes_max), nodes_at(&homes));
            let (mut standing, mut plain) = (Standing::new(&queue, &nodes), Plain::default());
            for waiter in 0..homes.len() {
                standing.join(waiter);
                plain.join(waiter);
                while below(9) < 4 && !standing.turns.is_empty() {
                    let any = *standing.turns.keys().nth(below(standing.turns.len())).expect("somebody is there");
                    let leaver = if below(3) == 0 { any } else { standing.head().expect("somebody is there") };
                    standing.leave(leaver);
                    plain.leave(leaver, &homes, passes_max);
                    assert_eq!(standing.head(), plain.head, "round {round}, after {leaver}");
                }
            }
        }
    }

    /// Two waiters of each of four nodes come again and again: the worst case for the third in line.
    #[test]
    fn nobody_is_overtaken_more_often_than_passes_allow() {
        for nr_passes in [0, 1, 5, CnaQueue::<Native>::PASSES] {
            let homes: Vec<u32> = (0..2000).map(|waiter| waiter % 4).collect();
            let (queue, nodes) = (CnaQueue::with_passes(nr_passes), nodes_at(&homes));
            let mut standing = Standing::new(&queue, &nodes);
            (0..8).for_each(|waiter| standing.join(waiter));
            let (mut fresh, mut nr_tenures) = ([8, 9, 10, 11], 0);
            while let Some(head) = standing.head().filter(|&head| head != 3) {
                standing.leave(head);
                standing.join(fresh[head % 4]);
                fresh[head % 4] += 4;
                nr_tenures += 1;
            }
            assert_eq!(nr_tenures, 3 * (nr_passes + 1), "{nr_passes} passes");
        }
    }
}
