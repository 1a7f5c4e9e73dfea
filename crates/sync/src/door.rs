//! A door: who finds it open goes in; a writer closes it and waits until nobody is inside.
//!
//! # Guarantee
//! Between the return of [`Door::close`] and the call of [`Door::open`] nobody is inside, and the closer sees all that
//! those who were inside did. Whoever goes in afterwards sees what the closer did. Going in never waits: a closed door
//! says no, and the caller takes another way.
//!
//! # Word first
//! | bits | meaning |
//! |---|---|
//! | 0 | `CLOSED`: a writer is at work, or waits for those inside to leave |
//! | 1 | `AWAITED`: it sleeps; only beside `CLOSED` |
//! | 2.. | those who are inside, or have knocked and are about to step back |
//!
//! # Invariants
//! * I1 closers are serialised by their caller, who closes an open door and opens a closed one.
//! * I2 whoever takes the count to 0 beside `AWAITED` wakes the closer; the word may be gone by then, its address is a name.
//!
//! # Race
//! ```text
//! visitor                              closer
//! count += 1, Acquire                  CLOSED on, Acquire
//! CLOSED? step back                    count = 0? (Acquire) else spin a little, then AWAITED on, sleep on the word
//! reads what the closer wrote          changes it
//! count -= 1, Release                  CLOSED off, Release
//! was the last beside AWAITED? wake
//! ```
//! Forbidden: both inside; either sees older data; the closer sleeps for ever. Model: `tests/models/door.rs`.
//!
//! Source: the reader count with a writer bit in Linux's areas since 6.15.

use crate::give_way::SLICE_NS;
use core::marker::PhantomData;
use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};

const CLOSED: u32 = 1;
const AWAITED: u32 = 2;
const VISITOR: u32 = 4;

/// See the module; four bytes.
pub struct Door<P: Processor> {
    word: P::AtomicU32,
}

impl<P: Processor> Door<P> {
    /// Returns an open door with nobody inside.
    pub fn new() -> Self {
        Self { word: P::AtomicU32::new(0) }
    }

    /// Goes in, until the guard is dropped, unless the door is closed.
    #[inline]
    pub fn try_enter(&self) -> Option<DoorGuard<'_, P>> {
        // ORDER: Acquire pairs with the Release in `open`.
        if self.word.fetch_add(VISITOR, Ordering::Acquire) & CLOSED == 0 {
            return Some(DoorGuard { door: self, is_thread_bound: PhantomData });
        }
        self.leave();
        None
    }

    /// Closes the door and waits until nobody is inside; may give the slot up meanwhile, so it is called with
    /// interrupts on and no spin lock held. Nobody else closes or opens the door (I1).
    ///
    /// # Panics
    /// If it is closed already (I1).
    #[inline]
    pub fn close(&self) {
        // ORDER: Acquire pairs with the Release in `leave`: what those inside did is seen.
        let before = self.word.fetch_or(CLOSED, Ordering::Acquire);
        assert_eq!(before & CLOSED, 0, "I1: a closed door is closed again");
        if before != 0 {
            self.wait_until_empty();
        }
    }

    /// Opens the door that the caller closed.
    #[inline]
    pub fn open(&self) {
        debug_assert!(self.is_closed(), "I1: an open door is opened");
        // ORDER: Release pairs with the Acquire in `try_enter`. A read-modify-write: visitors may knock.
        self.word.fetch_and(!CLOSED, Ordering::Release);
    }

    /// Says whether the door is closed: exact for those who close it.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Relaxed: only the closer acts on it, and reads its own write.
        self.word.load(Ordering::Relaxed) & CLOSED != 0
    }

    #[inline]
    fn leave(&self) {
        // ORDER: Release pairs with the Acquire in `close` and `is_empty`.
        let before = self.word.fetch_sub(VISITOR, Ordering::Release);
        if before == VISITOR | CLOSED | AWAITED {
            self.wake_closer();
        }
    }

    #[cold]
    fn wake_closer(&self) {
        P::unpark(&raw const self.word, 1);
    }

    fn is_empty(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `leave`.
        self.word.load(Ordering::Acquire) < VISITOR
    }

    /// 1. spins for a while: those inside are about to leave; 2. sleeps, so that they can have the CPU.
    #[cold]
    fn wait_until_empty(&self) {
        if P::spin_until_deadline(P::now() + SLICE_NS, || self.is_empty()) {
            return;
        }
        loop {
            // ORDER: Acquire as in `is_empty`.
            let seen = self.word.fetch_or(AWAITED, Ordering::Acquire) | AWAITED;
            if seen < VISITOR {
                break;
            }
            P::park(&self.word, seen);
        }
        // Relaxed: the bit is the closer's own.
        self.word.fetch_and(!AWAITED, Ordering::Relaxed);
    }
}

impl<P: Processor> Default for Door<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Is inside; leaves when dropped.
#[must_use = "the visitor leaves as soon as the guard is dropped"]
pub struct DoorGuard<'a, P: Processor> {
    door: &'a Door<P>,
    is_thread_bound: PhantomData<*const ()>,
}

impl<P: Processor> Drop for DoorGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.door.leave();
    }
}
