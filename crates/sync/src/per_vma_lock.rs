//! The lock of one area (VMA): readers never wait, the writer waits for them.
//!
//! # Guarantee
//! Between the return of [`PerVmaLock::write_lock`] and the call of [`PerVmaLock::write_unlock`] there is no reader,
//! and the writer sees all that readers did. Readers that come afterwards see what the writer did. Reading never waits:
//! a locked area says no, and the caller takes another way.
//!
//! # Word first
//! | bits | meaning |
//! |---|---|
//! | 0 | `WRITER`: a writer is at work, or waits for readers to leave |
//! | 1 | `AWAITED`: it sleeps; only beside `WRITER` |
//! | 2.. | readers, and those who have knocked and are about to step back |
//!
//! # Invariants
//! * I1 writers are serialised by their caller, who locks a free lock and unlocks a locked one.
//! * I2 whoever takes the count to 0 beside `AWAITED` wakes the writer; the word may be gone by then, its address is a
//!   name.
//!
//! # Race
//! ```text
//! reader                               writer
//! count += 1, Acquire                  WRITER on, Acquire
//! WRITER? step back                    count = 0? (Acquire) else spin a little, then AWAITED on, sleep on the word
//! reads what the writer wrote          changes it
//! count -= 1, Release                  WRITER off, Release
//! was the last beside AWAITED? wake
//! ```
//! Forbidden: both inside; either sees older data; the writer sleeps for ever. Model: `tests/models/per_vma_lock.rs`.
//!
//! Source: the reader count with a writer bit in Linux's areas since 6.15.

use crate::give_way::SLICE_NS;
use crate::watch::{Wait, Waiting, Wanted, released, tried};
use core::marker::PhantomData;
use faultless_platform::{Atomic, AtomicInteger, Holding, Ordering, Processor};

/// What those who watch see.
const NAME: &str = "vma_lock";

const WRITER: u32 = 1;
const AWAITED: u32 = 2;
const READER: u32 = 4;

/// See the module; four bytes.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{PerVmaLock, PerVmaReadGuard};
///
/// Machine::new(1).attach(|| {
///     // An area that is about to be linked in: its writer has the lock.
///     let lock = PerVmaLock::<Native>::new_locked();
///     assert!(lock.try_read().is_none(), "a fault takes the space's lock instead");
///     lock.write_unlock_unpublished();
///
///     let fault: PerVmaReadGuard<'_, Native> = lock.try_read().expect("no writer");
///     drop(fault);
///     lock.write_lock();
///     assert!(lock.is_write_locked());
///     lock.write_unlock();
/// });
/// ```
pub struct PerVmaLock<P: Processor> {
    word: P::AtomicU32,
}

impl<P: Processor> PerVmaLock<P> {
    /// Returns a free lock.
    pub fn new() -> Self {
        Self { word: P::AtomicU32::new(0) }
    }

    /// Returns a lock that a writer has, for an area that nobody has reached yet.
    pub fn new_locked() -> Self {
        Self { word: P::AtomicU32::new(WRITER) }
    }

    /// Shares the lock, until the guard is dropped, unless a writer has it or waits for it.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<PerVmaReadGuard<'_, P>> {
        let is_shared = self.knock() & WRITER == 0;
        if !is_shared {
            self.read_unlock();
        }
        // `then`, not `then_some`: dropping an eager guard would release a share that others hold.
        let is_told = tried::<P>(is_shared, NAME, self.address(), Holding::Shared);
        is_told.then(|| PerVmaReadGuard { lock: self, is_thread_bound: PhantomData })
    }

    /// Counts a reader in; returns what the word was.
    #[inline]
    fn knock(&self) -> u32 {
        // ORDER: Acquire pairs with the Release in `write_unlock`.
        self.word.fetch_add(READER, Ordering::Acquire)
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Keeps readers out and waits until none is left; may give the slot up meanwhile, so it is called with interrupts
    /// on and no spin lock held. Nobody else locks or unlocks it as a writer (I1).
    ///
    /// # Panics
    /// If it is locked already (I1).
    #[inline]
    #[track_caller]
    pub fn write_lock(&self) {
        let (wanted, mut wait) = (Wanted::<P>::begin(NAME), Wait::None);
        let before = self.shut_out();
        assert_eq!(before & WRITER, 0, "I1: a locked area is locked again");
        if before != 0 {
            self.wait_for_readers();
            wait = Wait::Some;
        }
        wanted.taken(NAME, self.address(), Holding::Alone, wait);
    }

    /// Keeps readers out from now on; returns what the word was.
    #[inline]
    fn shut_out(&self) -> u32 {
        // ORDER: Acquire pairs with the Release in `read_unlock`: what readers did is seen.
        self.word.fetch_or(WRITER, Ordering::Acquire)
    }

    /// Lets readers in again.
    #[inline]
    pub fn write_unlock(&self) {
        debug_assert!(self.is_write_locked(), "I1: a free area is unlocked");
        released::<P>(NAME, self.address(), Holding::Alone);
        // ORDER: Release pairs with the Acquire in `try_read`. A read-modify-write: readers may knock.
        self.word.fetch_and(!WRITER, Ordering::Release);
    }

    /// As [`PerVmaLock::write_unlock`], of a lock from [`PerVmaLock::new_locked`] that no reader has reached yet: a
    /// store.
    #[inline]
    pub fn write_unlock_unpublished(&self) {
        // Relaxed: no reader knocks before the area is published, and the publication orders it.
        let before = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(before, WRITER, "somebody has reached a lock that is not published");
        self.word.store(0, Ordering::Relaxed);
    }

    /// Says whether a writer has the lock: exact for writers.
    #[inline]
    pub fn is_write_locked(&self) -> bool {
        // Relaxed: only the writer acts on it, and reads its own write.
        self.word.load(Ordering::Relaxed) & WRITER != 0
    }

    #[inline]
    fn read_unlock(&self) {
        // ORDER: Release pairs with the Acquire in `write_lock` and `has_no_reader`.
        let before = self.word.fetch_sub(READER, Ordering::Release);
        if before == READER | WRITER | AWAITED {
            self.wake_writer();
        }
    }

    #[cold]
    fn wake_writer(&self) {
        P::unpark(&raw const self.word, 1);
    }

    fn has_no_reader(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `read_unlock`.
        self.word.load(Ordering::Acquire) < READER
    }

    /// 1. spins for a while: readers are about to leave; 2. sleeps, so that they can have the CPU.
    #[cold]
    fn wait_for_readers(&self) {
        let _waiting = Waiting::<P>::begin(NAME);
        if P::spin_until_deadline(P::now() + SLICE_NS, || self.has_no_reader()) {
            return;
        }
        loop {
            // ORDER: Acquire as in `has_no_reader`.
            let seen = self.word.fetch_or(AWAITED, Ordering::Acquire) | AWAITED;
            if seen < READER {
                break;
            }
            P::park(&self.word, seen);
        }
        // Relaxed: the bit is the writer's own.
        self.word.fetch_and(!AWAITED, Ordering::Relaxed);
    }
}

impl<P: Processor> Default for PerVmaLock<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Shares a [`PerVmaLock`]; gives the share back when dropped.
#[must_use = "the share is given back as soon as the guard is dropped"]
pub struct PerVmaReadGuard<'a, P: Processor> {
    lock: &'a PerVmaLock<P>,
    is_thread_bound: PhantomData<*const ()>,
}

impl<P: Processor> Drop for PerVmaReadGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        released::<P>(NAME, self.lock.address(), Holding::Shared);
        self.lock.read_unlock();
    }
}
