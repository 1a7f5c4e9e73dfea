//! A queue of spinners, each on a line of its own: an MCS lock whose waiters may leave.
//!
//! # Guarantee
//! One at a time is at the head, first come first served; the head's section sees all that earlier heads did. Who waits
//! spins on its own node, which lives on its stack; one who leaves (because it should yield, say) is out of the queue
//! when it returns, and nobody touches its node any more.
//!
//! # Drawn
//! ```text
//!            tail ----------------------------+
//!                                             v
//!  [H link=null] --next--> [X link=H] --> [N link=X]
//! ```
//!
//! # Words first
//! * `tail`: the last node, or null.
//! * `link`: the node before us; null once we are the head; `BUSY` while we look at the node before us.
//! * `next`: the node behind us, once it has said so; null while somebody has taken it out.
//!
//! # Invariants
//! * I1 a node's neighbour before it may be looked at only while `link` is BUSY; whoever wants to vanish from before
//!   us changes `link` from its own address first, so it waits while we look.
//! * I2 whoever takes a node out of `next` (by an exchange) alone puts something in again, or moves `tail` back. Until
//!   then the node in front stays: it can neither find a successor nor be the tail.
//! * I3 `link == X` and nobody has taken us out of `X.next` implies `X.next` is us.
//!
//! # Leaving, X between P and N
//! ```text
//! X                                    P unlocks at the same time         N leaves at the same time
//! A  link: P -> BUSY                   waits: N... link must be P         link: X -> BUSY
//!    P.next: X -> null (else restore,  takes P.next = X first: X's        X.next: N -> null: X finds no next
//!       and wait until link changes)     exchange fails, link becomes       and waits for N to move tail or
//!                                        null: X is the head                set X.next anew
//! B  take next = N, or tail: X -> P    can't go: no next, not the tail
//! C  P.next = N; N.link: X -> P        goes on with N
//! ```
//! Waits point towards the tail alone (I2), so they end. Unlocking is the same without A, with null in P's place.
//! Forbidden: two heads, a lost successor, a touch of a vanished node. Model: `tests/models/mcs.rs`.
//!
//! Source: Mellor-Crummey and Scott 1991; the shape of leaving is that of the optimistic-spin queue of 2014, whose
//! nodes never die; I1 is what nodes on stacks need beyond it.

use crate::cna::Aside;
use crate::give_way::SLICE_NS;
use core::ptr;
use faultless_platform::mutant;
use faultless_platform::{Atomic, Ordering, Processor, ThreadToken};

/// A queue of spinners without a limit.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::McsQueue;
///
/// let queue = McsQueue::<Native>::new();
/// Machine::new(2).attach(|| {
///     let inside = queue.lock(|| queue.is_occupied());
///     assert!(inside && !queue.is_occupied());
/// });
/// ```
pub struct McsQueue<P: Processor> {
    pub(crate) tail: P::AtomicPtr<Node<P>>,
}

/// A waiter or the head.
pub(crate) struct Node<P: Processor> {
    pub(crate) link: P::AtomicPtr<Node<P>>,
    pub(crate) next: P::AtomicPtr<Node<P>>,
    /// The NUMA node that the waiter spins on, and what `cna` keeps of its passes.
    pub(crate) home: u32,
    pub(crate) nr_passes: P::AtomicU32,
}

/// A waiter's node on its stack. Padded: stack neighbours belong to other locks.
#[repr(align(64))]
struct Padded<P: Processor>(Node<P>);

/// What a caller does that finds the queue empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundEmpty {
    /// Nothing more.
    Goes,
    /// It notes in its own node that it is the head, which nobody reads: as the kernel's did before the series' sixth
    /// patch.
    NotesIt,
}

/// Stands in `link` while the node's owner looks at the node before it.
const fn busy<P: Processor>() -> *mut Node<P> {
    ptr::without_provenance_mut(1)
}

impl<P: Processor> McsQueue<P> {
    /// Returns an empty queue.
    pub fn new() -> Self {
        Self { tail: P::AtomicPtr::new(ptr::null_mut()) }
    }

    /// Says whether anybody is in the queue: a hint, unless the caller's fences make it more.
    #[inline]
    pub fn is_occupied(&self) -> bool {
        // Relaxed: see above.
        !self.tail.load(Ordering::Relaxed).is_null()
    }

    /// Waits for the head of the queue and runs `section` there.
    pub fn lock<R>(&self, section: impl FnOnce() -> R) -> R {
        self.lock_beside(None, section)
    }

    /// As [`McsQueue::lock`], where waiters may stand aside meanwhile.
    pub(crate) fn lock_beside<R>(&self, aside: Option<&Aside<P>>, section: impl FnOnce() -> R) -> R {
        let node = Padded(Node::of(aside));
        let turn = Turn { queue: self, aside, node: &node.0 };
        if !turn.join(FoundEmpty::Goes) {
            turn.wait_for_head();
        }
        section()
    }

    /// As [`McsQueue::lock`], but asks `keep_waiting` from time to time and leaves the queue when it says no.
    /// Called by spinners that may give up; semaphores call [`McsQueue::lock_while_owner_runs`].
    pub fn lock_while<R>(&self, keep_waiting: impl FnMut() -> bool, section: impl FnOnce() -> R) -> Option<R> {
        self.lock_while_as(None, FoundEmpty::Goes, keep_waiting, section)
    }

    /// As [`McsQueue::lock`], in the hope that an owner releases something soon: leaves the queue when the owner
    /// does not run any more, or when another thread waits for our CPU. While nobody owns it the wait goes on.
    ///
    /// ```
    /// use faultless_platform::{ThreadToken, native::Native};
    /// let queue = faultless_sync::McsQueue::<Native>::new();
    /// assert_eq!(queue.lock_while_owner_runs(|| ThreadToken::NONE, || 7), Some(7));
    /// ```
    pub fn lock_while_owner_runs<R>(
        &self,
        owner: impl FnMut() -> ThreadToken,
        section: impl FnOnce() -> R,
    ) -> Option<R> {
        self.lock_while(while_it_runs::<P>(owner), section)
    }

    /// As [`McsQueue::lock_while`], where waiters may stand aside; `found_empty` says what a caller does at once at the
    /// head.
    pub(crate) fn lock_while_as<R>(
        &self,
        aside: Option<&Aside<P>>,
        found_empty: FoundEmpty,
        mut keep_waiting: impl FnMut() -> bool,
        section: impl FnOnce() -> R,
    ) -> Option<R> {
        let node = Padded(Node::of(aside));
        let turn = Turn { queue: self, aside, node: &node.0 };
        let mut is_head = turn.join(found_empty);
        while !is_head {
            if !keep_waiting() {
                // Dropping the turn leaves the queue.
                return None;
            }
            is_head = turn.wait_a_slice();
        }
        Some(section())
    }
}

/// Returns a closure that says whether it is worth waiting for the owner.
pub(crate) fn while_it_runs<P: Processor>(mut owner: impl FnMut() -> ThreadToken) -> impl FnMut() -> bool {
    let is_awake = |owner| owner == ThreadToken::NONE || P::is_running(owner);
    move || is_awake(owner()) && !P::should_yield()
}

impl<P: Processor> Default for McsQueue<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Processor> Node<P> {
    /// Returns the node of a new waiter; where none stand aside, nobody asks for its home.
    fn of(aside: Option<&Aside<P>>) -> Self {
        Self::at(if aside.is_some() { P::node() as u32 } else { 0 })
    }

    pub(crate) fn at(home: u32) -> Self {
        // BUSY until joined: nobody may take the node for a head or vanish before it.
        let (link, next) = (P::AtomicPtr::new(busy::<P>()), P::AtomicPtr::new(ptr::null_mut()));
        Self { link, next, home, nr_passes: P::AtomicU32::new(0) }
    }

    pub(crate) fn is_head(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `hand_over`.
        self.link.load(Ordering::Acquire).is_null()
    }

    pub(crate) fn address(&self) -> *mut Self {
        ptr::from_ref(self).cast_mut()
    }

    /// Takes the node behind this one out, once it has said that it is there; none if nobody is behind.
    pub(crate) fn take_next_unless(&self, is_last: impl Fn() -> bool) -> Option<*mut Self> {
        loop {
            let next = self.try_take_next();
            if next.is_some() || is_last() {
                return next;
            }
            // Relaxed: we look again.
            P::spin_until(|| is_last() || !self.next.load(Ordering::Relaxed).is_null());
        }
    }

    /// Takes the node behind this one out, if one has said that it is there.
    pub(crate) fn try_take_next(&self) -> Option<*mut Self> {
        // Relaxed: a peek.
        let next = self.next.load(Ordering::Relaxed);
        // ORDER: Acquire pairs with the Release of those who set `next`: the node named is initialised.
        let is_taken = !next.is_null()
            && self.next.compare_exchange(next, ptr::null_mut(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        is_taken.then_some(next)
    }
}

/// A node in the queue; leaves it when dropped, from the head or from the middle, also while unwinding.
pub(crate) struct Turn<'a, P: Processor> {
    pub(crate) queue: &'a McsQueue<P>,
    /// The waiters that stand aside, in a queue that prefers waiters of a node.
    pub(crate) aside: Option<&'a Aside<P>>,
    pub(crate) node: &'a Node<P>,
}

impl<P: Processor> Turn<'_, P> {
    /// Joins the end of the queue; says whether that is the head.
    pub(crate) fn join(&self, found_empty: FoundEmpty) -> bool {
        let me = self.node.address();
        // ORDER: Release publishes our node to the next one; Acquire pairs with the Release of a tail exchange in
        // `leave_from`.
        let before = self.queue.tail.swap(me, Ordering::AcqRel);
        // Relaxed: the node before us learns of us by the next store alone.
        self.node.link.store(before, Ordering::Relaxed);
        if before.is_null() {
            self.note_if(found_empty);
            return true;
        }
        // SAFETY: the node before us is not the tail and knows no successor, so it stays until we have said so (I2).
        let before = unsafe { &*before };
        // ORDER: Release pairs with the Acquire in `try_take_next`.
        before.next.store(me, Ordering::Release);
        false
    }

    fn note_if(&self, found_empty: FoundEmpty) {
        if found_empty == FoundEmpty::NotesIt {
            // Relaxed: nobody reads it.
            self.node.link.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }

    fn wait_for_head(&self) {
        P::spin_until(|| self.node.is_head());
    }

    fn wait_a_slice(&self) -> bool {
        P::spin_until_deadline(P::now() + SLICE_NS, || self.node.is_head())
    }

    /// Step A: takes us out of the node before us, which then stays; null if we became the head instead.
    fn detach(&self) -> *mut Node<P> {
        loop {
            // ORDER: Acquire pairs with the Release in `hand_over` and in step C of `leave_from`: the node named is
            // initialised.
            let before = self.node.link.load(Ordering::Acquire);
            if before.is_null() || self.try_detach(before) {
                return before;
            }
            // Somebody has taken us out of `before.next`, and will name another node (I3). Relaxed: we look again.
            P::spin_until(|| self.node.link.load(Ordering::Relaxed) != before);
        }
    }

    fn try_detach(&self, before: *mut Node<P>) -> bool {
        // ORDER: Acquire pairs with the Release in `hand_over`: where nodes are moved, `before` may have been named
        // once more since `detach` looked. One that has left is never named again.
        let marked = self.node.link.compare_exchange(before, busy::<P>(), Ordering::Acquire, Ordering::Relaxed);
        if marked.is_err() {
            return false;
        }
        // SAFETY: link is BUSY, and named `before` until now, so `before` can't vanish (I1).
        let next = unsafe { &(*before).next };
        // Relaxed: taking ourselves out publishes nothing.
        let me = self.node.address();
        let is_out = next.compare_exchange(me, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // ORDER: Release pairs with the Acquire of the exchange in `hand_over`: our look at `before` is over.
        self.node.link.store(before, Ordering::Release);
        is_out
    }

    /// Steps B and C: leaves from behind `before`, which stays meanwhile; from the head if that is null.
    pub(crate) fn leave_from(&self, before: *mut Node<P>) {
        let Some(next) = self.take_next(before) else { return };
        if !before.is_null() {
            // SAFETY: `before` has no successor and is not the tail until the next line (I2).
            let before = unsafe { &*before };
            // ORDER: Release pairs with the Acquire in `try_take_next`.
            before.next.store(next, Ordering::Release);
        }
        // SAFETY: we took it out of our `next`, so it stays until its link changes (I3).
        unsafe { hand_over(next, self.node.address(), before) };
    }

    /// Step B: takes the node behind us out, or makes `before` the tail if there is none.
    pub(crate) fn take_next(&self, before: *mut Node<P>) -> Option<*mut Node<P>> {
        loop {
            if self.ends_at(before) {
                return None;
            }
            if let Some(next) = self.node.try_take_next() {
                return Some(next);
            }
            // Relaxed: we look again.
            P::spin_until(|| self.is_last() || !self.node.next.load(Ordering::Relaxed).is_null());
        }
    }

    /// Makes `before` the tail in our place if nobody is behind us; says whether it did.
    fn ends_at(&self, before: *mut Node<P>) -> bool {
        let (me, tail) = (self.node.address(), &self.queue.tail);
        // ORDER: Release hands the head's section on to the next that joins an empty queue, by the Acquire in `join`;
        // Acquire pairs with the Release of those who left here and made us the tail: they touch our node no more.
        tail.load(Ordering::Relaxed) == me
            && tail.compare_exchange(me, before, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            || self.aside.is_some_and(|aside| aside.ends_at(me, before))
    }

    /// Peeks whether nobody is behind us.
    pub(crate) fn is_last(&self) -> bool {
        let me = self.node.address();
        // Relaxed: see above.
        self.queue.tail.load(Ordering::Relaxed) == me || self.aside.is_some_and(|aside| aside.is_last(me))
    }
}

/// Step C: tells a node, which was behind `behind`, that it is behind `before` now; null makes it the head.
///
/// By address: a reference to all of the node would promise that it stays until this returns, and its owner may be
/// faster.
///
/// # Safety
/// The caller has taken the node out, so that it can't leave before its link changes (I3); that is the last touch.
pub(crate) unsafe fn hand_over<P: Processor>(node: *mut Node<P>, behind: *mut Node<P>, before: *mut Node<P>) {
    // SAFETY: the caller's promise.
    let link = unsafe { &(*node).link };
    // ORDER: Release hands the section on, by the Acquire in `is_head` and `detach`; Acquire pairs with the Release
    // in `try_detach`.
    while link.compare_exchange(behind, before, handing_over(), Ordering::Relaxed).is_err() {
        // The node is looking at the one before it, or the one between has yet to tell it. Relaxed: the exchange looks
        // again.
        P::spin_until(|| link.load(Ordering::Relaxed) == behind);
    }
}

/// Returns the ordering by which the head hands its section on, which the series' seventh patch mended.
fn handing_over() -> Ordering {
    // ORDER: `hand_over` says with whom it pairs; the mutant is a kernel before that patch.
    mutant!(McsUnordered, Ordering::AcqRel => Ordering::Relaxed)
}

impl<P: Processor> Drop for Turn<'_, P> {
    fn drop(&mut self) {
        match (self.detach(), self.aside) {
            (before, Some(aside)) if before.is_null() => self.pass_on(aside),
            (before, _) => self.leave_from(before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::count::{Count, Machine};

    /// Returns what it costs to find the queue empty and to leave it.
    fn nr_atomics(found_empty: FoundEmpty) -> u64 {
        let (machine, queue) = (Machine::new(1), McsQueue::<Count>::new());
        machine.attach(|| queue.lock_while_as(None, found_empty, || true, || ()).expect("nobody is before us"));
        machine.figures(0).atomics
    }

    #[test]
    fn a_spinner_before_the_sixth_patch_stores_once_more() {
        assert_eq!(nr_atomics(FoundEmpty::NotesIt), nr_atomics(FoundEmpty::Goes) + 1);
    }
}
