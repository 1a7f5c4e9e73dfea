//! The line of those who wait for a semaphore: nodes on their own stacks, linked under the queue's lock.
//!
//! # Words first
//! `state`: `WAITING`; `GRANTED`: the lock is ours, and nobody touches the node any more; `ROUSED`: look whether the
//! lock can be had, or whether the wait must end.
//!
//! # Invariants
//! * I1 a node is in the list from `push` to `remove`, or until it is taken into a [`Wake`]; it stays at its place
//!   until it has been removed, or until its `state` says GRANTED.
//! * I2 `place` is read and written under the queue's lock; so are the `links` of a node in line. Those of a node that
//!   a `Wake` has taken are its own, without the lock: a waiter whose time is up looks at its `place` meanwhile, and
//!   at nothing else.
//!
//! # Race: granted while about to sleep, and gone before it is woken
//! ```text
//! waker                              waiter
//! next = node.next                   state WAITING: park(&state, WAITING)
//! swap state, GRANTED  (Release)     compares and sleeps in one step, or returns
//! unpark(address)                    state GRANTED (Acquire): returns, its stack goes
//! ```
//! Forbidden: the waiter sleeps on (park's contract); the waker reads a node that has gone: after the store it uses the
//! address as a name alone. Models: `tests/models/rwsem.rs`.

use super::limits::{Ended, ROUSING, WaitLimits};
use crate::Side;
use core::cell::UnsafeCell;
use core::ptr;
use faultless_platform::{Atomic, Ordering, Processor};

const WAITING: u32 = 0;
const GRANTED: u32 = 1;
const ROUSED: u32 = WAITING + ROUSING;

/// A waiting thread.
pub(super) struct Waiter<P: Processor> {
    state: P::AtomicU32,
    side: Side,
    since_ns: u64,
    place: UnsafeCell<Place>,
    links: UnsafeCell<Links<P>>,
}

struct Links<P: Processor> {
    before: *const Waiter<P>,
    behind: *const Waiter<P>,
}

/// Where a node is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It was never in line.
    Outside,
    /// It stands in line.
    InLine,
    /// It was in line, and was served.
    Served,
    /// It was in line, and has left it by itself.
    Left,
}

impl<P: Processor> Waiter<P> {
    pub(super) fn new(side: Side, since_ns: u64) -> Self {
        let (state, place) = (P::AtomicU32::new(WAITING), UnsafeCell::new(Place::Outside));
        let links = UnsafeCell::new(Links { before: ptr::null(), behind: ptr::null() });
        Self { state, side, since_ns, place, links }
    }

    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// Returns when it came, if its generation wants to know.
    pub(super) fn since_ns(&self) -> u64 {
        self.since_ns
    }

    pub(super) fn is_granted(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `Wake::grant_all`: what the waker saw under the lock is seen.
        self.state.load(Ordering::Acquire) == GRANTED
    }

    /// Sleeps until the state is no longer WAITING, or wakes early. An error: the limits allow no more sleep.
    pub(super) fn sleep(&self, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        limits.sleep_while(&self.state, WAITING)
    }

    pub(super) fn is_waiting(&self) -> bool {
        // Relaxed: whoever was roused takes the queue's lock next.
        self.state.load(Ordering::Relaxed) == WAITING
    }

    /// Forgets that it was roused, without the queue's lock: it may have been granted meanwhile.
    pub(super) fn forget_rousing(&self) {
        // Relaxed: nothing is handed over.
        let _ = self.state.compare_exchange(ROUSED, WAITING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Forgets that it was roused; under the queue's lock.
    pub(super) fn wait_again(&self) {
        // Relaxed: the queue's lock orders it.
        self.state.store(WAITING, Ordering::Relaxed);
    }
}

/// The line, first come first.
pub(super) struct WaitList<P: Processor> {
    front: *const Waiter<P>,
    back: *const Waiter<P>,
    len: u32,
    nr_readers: u32,
    phase: Side,
}

// SAFETY: the list is reached under the queue's lock alone, and its nodes stay while they are in it (I1).
unsafe impl<P: Processor> Send for WaitList<P> {}

impl<P: Processor> WaitList<P> {
    pub(super) const fn new() -> Self {
        Self { front: ptr::null(), back: ptr::null(), len: 0, nr_readers: 0, phase: Side::Read }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Says who has the lock, or had it last, when somebody comes into the empty line.
    pub(super) fn set_phase(&mut self, phase: Side) {
        self.phase = phase;
    }

    /// Returns whose turn it is: the side that did not have the lock last, if any of it waits.
    pub(super) fn next_phase(&self) -> Option<Side> {
        match (self.phase, self.nr_readers, self.len - self.nr_readers) {
            (_, 0, 0) => None,
            (Side::Write, 1.., _) | (Side::Read, _, 0) => Some(Side::Read),
            _ => Some(Side::Write),
        }
    }

    pub(super) fn front(&self) -> Option<&Waiter<P>> {
        // SAFETY: nodes in the list are valid (I1).
        unsafe { self.front.as_ref() }
    }

    pub(super) fn is_front(&self, waiter: &Waiter<P>) -> bool {
        ptr::eq(self.front, waiter)
    }

    /// Puts a node at the end.
    ///
    /// # Safety
    /// The node is in no list, and I1 holds of it from now on.
    pub(super) unsafe fn push(&mut self, waiter: &Waiter<P>) {
        Self::set_place(waiter, Place::InLine);
        *Self::links(waiter) = Links { before: self.back, behind: ptr::null() };
        // SAFETY: nodes in the list are valid (I1).
        match unsafe { self.back.as_ref() } {
            Some(back) => Self::links(back).behind = waiter,
            None => self.front = waiter,
        }
        self.back = waiter;
        self.len += 1;
        self.nr_readers += u32::from(waiter.side == Side::Read);
    }

    /// Takes a node out if it stands in line; returns where it was.
    pub(super) fn remove(&mut self, waiter: &Waiter<P>) -> Place {
        // SAFETY: I2, and nobody keeps a reference to it.
        let place = unsafe { *waiter.place.get() };
        if place != Place::InLine {
            return place;
        }
        Self::set_place(waiter, Place::Left);
        let links = Self::links(waiter);
        // SAFETY: nodes in the list are valid (I1).
        match unsafe { links.before.as_ref() } {
            Some(before) => Self::links(before).behind = links.behind,
            None => self.front = links.behind,
        }
        // SAFETY: as above.
        match unsafe { links.behind.as_ref() } {
            Some(behind) => Self::links(behind).before = links.before,
            None => self.back = links.before,
        }
        self.len -= 1;
        self.nr_readers -= u32::from(waiter.side == Side::Read);
        Place::InLine
    }

    /// Moves a node that stands in line to `wake`.
    fn grant(&mut self, waiter: &Waiter<P>, wake: &mut Wake<P>) {
        self.remove(waiter);
        Self::set_place(waiter, Place::Served);
        self.phase = waiter.side;
        wake.push(waiter);
    }

    /// Moves the first writer in line to `wake`; it is the first of all where readers do not go ahead of writers.
    pub(super) fn grant_writer(&mut self, wake: &mut Wake<P>) {
        let mut next = self.front;
        // SAFETY: nodes in the list are valid (I1).
        while let Some(waiter) = unsafe { next.as_ref() } {
            if waiter.side == Side::Write {
                return self.grant(waiter, wake);
            }
            next = Self::links(waiter).behind;
        }
    }

    /// Moves the readers at the front, up to the first writer, to `wake`; returns how many.
    pub(super) fn grant_readers(&mut self, wake: &mut Wake<P>) -> u32 {
        let before = self.len;
        // SAFETY: nodes in the list are valid (I1).
        while let Some(front) = unsafe { self.front.as_ref() }
            && front.side == Side::Read
        {
            self.grant(front, wake);
        }
        before - self.len
    }

    /// Moves all readers, wherever they stand, to `wake`; returns how many.
    pub(super) fn grant_all_readers(&mut self, wake: &mut Wake<P>) -> u32 {
        let (before, mut next) = (self.len, self.front);
        // SAFETY: nodes in the list are valid (I1).
        while let Some(waiter) = unsafe { next.as_ref() }
            && self.nr_readers > 0
        {
            next = Self::links(waiter).behind;
            if waiter.side == Side::Read {
                self.grant(waiter, wake);
            }
        }
        before - self.len
    }

    /// Rouses the first in line, which stays there; under the queue's lock.
    pub(super) fn rouse_front(&self, wake: &mut Wake<P>) {
        if let Some(front) = self.front()
            && front.is_waiting()
        {
            // Relaxed: it takes the queue's lock next.
            front.state.store(ROUSED, Ordering::Relaxed);
            wake.roused = &raw const front.state;
        }
    }

    /// Notes where a node is; under the queue's lock.
    fn set_place(waiter: &Waiter<P>, place: Place) {
        // SAFETY: I2, and nobody keeps a reference to it.
        unsafe { *waiter.place.get() = place };
    }

    /// Returns a node's links. The borrow is over before the next one of the same node begins.
    #[expect(clippy::mut_from_ref, reason = "the cell is the caller's by I2")]
    fn links(waiter: &Waiter<P>) -> &mut Links<P> {
        // SAFETY: I2; each caller uses the links of one node at a time.
        unsafe { &mut *waiter.links.get() }
    }
}

/// Those to wake once the queue's lock is dropped.
#[must_use = "whoever is in it sleeps until it is run"]
pub(super) struct Wake<P: Processor> {
    granted: *const Waiter<P>,
    last: *const Waiter<P>,
    roused: *const P::AtomicU32,
}

impl<P: Processor> Wake<P> {
    pub(super) const fn new() -> Self {
        Self { granted: ptr::null(), last: ptr::null(), roused: ptr::null() }
    }

    fn push(&mut self, waiter: &Waiter<P>) {
        WaitList::links(waiter).behind = ptr::null();
        // SAFETY: what we have taken stays until we grant it (I1).
        match unsafe { self.last.as_ref() } {
            Some(last) => WaitList::links(last).behind = waiter,
            None => self.granted = waiter,
        }
        self.last = waiter;
    }

    /// Wakes them all; after the queue's lock was dropped.
    pub(super) fn run(self) {
        if !self.roused.is_null() {
            P::unpark(self.roused, 1);
        }
        let mut next = self.granted;
        // SAFETY: what we have taken stays until we grant it (I1).
        while let Some(waiter) = unsafe { next.as_ref() } {
            next = WaitList::links(waiter).behind;
            let address = &raw const waiter.state;
            // ORDER: Release pairs with the Acquire in `is_granted`. The node may go from here on. An exchange: the
            // waiter may be about to forget that it was roused, and the grant must come after that.
            waiter.state.swap(GRANTED, Ordering::Release);
            P::unpark(address, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::native::Native;

    #[test]
    fn a_waiter_says_for_what_and_since_when_it_waits() {
        let waiter = Waiter::<Native>::new(Side::Read, 77);
        assert!(waiter.side() == Side::Read && waiter.since_ns() == 77 && waiter.is_waiting() && !waiter.is_granted());
    }

    #[test]
    fn it_is_the_turn_of_the_side_that_did_not_have_the_lock_last() {
        let waiters = [Side::Read, Side::Read, Side::Write].map(|side| Waiter::<Native>::new(side, 0));
        let mut line = WaitList::new();
        let turns = |line: &mut WaitList<Native>| {
            [Side::Read, Side::Write].map(|had_it_last| {
                line.set_phase(had_it_last);
                line.next_phase()
            })
        };
        let expected = [(Side::Read, Side::Read), (Side::Read, Side::Read), (Side::Write, Side::Read)];
        assert_eq!(turns(&mut line), [None, None]);
        for (waiter, (after_readers, after_a_writer)) in waiters.iter().zip(expected) {
            // SAFETY: the nodes outlive the line and stay where they are.
            unsafe { line.push(waiter) };
            assert_eq!(turns(&mut line), [Some(after_readers), Some(after_a_writer)]);
        }
        waiters[..2].iter().for_each(|reader| assert!(line.remove(reader) == Place::InLine));
        assert_eq!(turns(&mut line), [Some(Side::Write), Some(Side::Write)]);
        assert!(line.remove(&waiters[2]) == Place::InLine && line.is_empty());
    }
}
