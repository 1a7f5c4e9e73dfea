//! A spinning reader-writer lock.
//!
//! # Word first
//! | bits | meaning |
//! |---|---|
//! | 0 | `WRITER`: a writer holds the lock |
//! | 1 | `AWAITED`: a writer waits, new readers stay out |
//! | 2.. | readers that hold the lock, or have knocked and are about to step back |
//!
//! `WRITER` and readers that hold it exclude each other; readers that knock may be counted beside either bit.
//!
//! # Guarantee
//! A reader costs one read-modify-write each way. A waiting writer keeps new readers out, so it gets in once those
//! inside have left; hence nobody reads twice at a time on one thread. Writers among themselves are not ordered.
//!
//! # Race
//! ```text
//! reader                              writer
//! count += 1, Acquire                 exchange 0 or AWAITED -> WRITER, Acquire
//! WRITER or AWAITED? step back        (fails while any reader is counted)
//! reads the data                      writes the data
//! count -= 1, Release                 WRITER off, Release
//! ```
//! Forbidden: both inside, or either reading older data. Model: `tests/models/spin.rs`.

use crate::watch::{LockClass, Unnamed, Wait, Waiting, Wanted, released, tried};
use core::marker::PhantomData;
use faultless_platform::{Atomic, AtomicInteger, Holding, Ordering, Processor};

const WRITER: u32 = 1;
const AWAITED: u32 = 2;
const READER: u32 = 4;

/// A reader-writer lock for short sections; guards what its user says.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::{RwSpinLock, RwSpinReadGuard, RwSpinWriteGuard, Unnamed};
///
/// let index = RwSpinLock::<Native>::new();
/// let one: RwSpinReadGuard<'_, Native, Unnamed> = index.read();
/// let two = index.try_read().expect("readers share it");
/// assert!(index.is_locked() && index.try_write().is_none());
/// drop((one, two));
/// let alone: RwSpinWriteGuard<'_, Native, Unnamed> = index.write();
/// assert!(index.try_read().is_none());
/// # drop(alone);
/// let _named = RwSpinLock::<Native, Unnamed>::classed();
/// ```
pub struct RwSpinLock<P: Processor, C = Unnamed> {
    word: P::AtomicU32,
    class: PhantomData<fn() -> C>,
}

impl<P: Processor> RwSpinLock<P> {
    /// Returns a free lock.
    pub fn new() -> Self {
        Self::classed()
    }
}

impl<P: Processor, C: LockClass> RwSpinLock<P, C> {
    /// Returns a free lock of a class.
    pub fn classed() -> Self {
        Self { word: P::AtomicU32::new(0), class: PhantomData }
    }

    /// Shares the lock, spinning while a writer has it or waits for it.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwSpinReadGuard<'_, P, C> {
        let (wanted, mut wait) = (Wanted::<P>::begin(C::NAME), Wait::None);
        while !self.try_enter_as_reader() {
            self.wait_until_open();
            wait = Wait::Some;
        }
        wanted.taken(C::NAME, self.address(), Holding::Shared, wait);
        RwSpinReadGuard { lock: self, is_cpu_bound: PhantomData }
    }

    /// Shares the lock unless a writer has it or waits for it.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<RwSpinReadGuard<'_, P, C>> {
        let is_taken = tried::<P>(self.try_enter_as_reader(), C::NAME, self.address(), Holding::Shared);
        is_taken.then(|| RwSpinReadGuard { lock: self, is_cpu_bound: PhantomData })
    }

    /// Takes the lock alone, spinning until all readers and the writer have left.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwSpinWriteGuard<'_, P, C> {
        let (wanted, mut wait) = (Wanted::<P>::begin(C::NAME), Wait::None);
        if !self.try_enter_as_writer(0) {
            self.write_slow();
            wait = Wait::Some;
        }
        wanted.taken(C::NAME, self.address(), Holding::Alone, wait);
        RwSpinWriteGuard { lock: self, is_cpu_bound: PhantomData }
    }

    /// Takes the lock alone if it is free.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> Option<RwSpinWriteGuard<'_, P, C>> {
        let is_taken = tried::<P>(self.try_enter_as_writer(0), C::NAME, self.address(), Holding::Alone);
        is_taken.then(|| RwSpinWriteGuard { lock: self, is_cpu_bound: PhantomData })
    }

    /// Says whether anybody holds the lock; true for sure if the caller does.
    #[inline]
    pub fn is_locked(&self) -> bool {
        // Relaxed: a hint for all but the holder.
        self.word.load(Ordering::Relaxed) & !AWAITED != 0
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    #[inline]
    fn try_enter_as_reader(&self) -> bool {
        // ORDER: Acquire pairs with the Release in the write guard's drop.
        let before = self.word.fetch_add(READER, Ordering::Acquire);
        let is_open = before & (WRITER | AWAITED) == 0;
        if !is_open {
            // Relaxed: nothing was read under the lock.
            self.word.fetch_sub(READER, Ordering::Relaxed);
        }
        is_open
    }

    #[cold]
    fn wait_until_open(&self) {
        let _waiting = Waiting::<P>::begin(C::NAME);
        // Relaxed: a hint; entering looks again.
        P::spin_until(|| self.word.load(Ordering::Relaxed) & (WRITER | AWAITED) == 0);
    }

    /// Exchanges `expected` for WRITER: from AWAITED it takes the bit away, and those who still wait set it again.
    #[inline]
    fn try_enter_as_writer(&self, expected: u32) -> bool {
        // ORDER: Acquire pairs with the Release in both guards' drops.
        self.word.compare_exchange(expected, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn write_slow(&self) {
        let _waiting = Waiting::<P>::begin(C::NAME);
        let closed = Closed { lock: self };
        loop {
            // Relaxed: the bit only keeps readers out; entering orders the data.
            let seen = self.word.fetch_or(AWAITED, Ordering::Relaxed) | AWAITED;
            if seen == AWAITED && self.try_enter_as_writer(AWAITED) {
                return core::mem::forget(closed);
            }
            // Relaxed: a hint. It ends too when another writer has taken AWAITED away.
            P::spin_until(|| matches!(self.word.load(Ordering::Relaxed), 0 | AWAITED | WRITER));
        }
    }
}

/// Lets readers in again if a writer's wait ends by a panic.
struct Closed<'a, P: Processor, C> {
    lock: &'a RwSpinLock<P, C>,
}

impl<P: Processor, C> Drop for Closed<'_, P, C> {
    fn drop(&mut self) {
        // Relaxed: other writers that wait set the bit again.
        self.lock.word.fetch_and(!AWAITED, Ordering::Relaxed);
    }
}

impl<P: Processor> Default for RwSpinLock<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Shares a [`RwSpinLock`].
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct RwSpinReadGuard<'a, P: Processor, C: LockClass = Unnamed> {
    lock: &'a RwSpinLock<P, C>,
    is_cpu_bound: PhantomData<*const ()>,
}

impl<P: Processor, C: LockClass> Drop for RwSpinReadGuard<'_, P, C> {
    #[inline]
    fn drop(&mut self) {
        released::<P>(C::NAME, self.lock.address(), Holding::Shared);
        // ORDER: Release pairs with the Acquire of the writer that enters next.
        self.lock.word.fetch_sub(READER, Ordering::Release);
    }
}

/// Has a [`RwSpinLock`] alone.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct RwSpinWriteGuard<'a, P: Processor, C: LockClass = Unnamed> {
    lock: &'a RwSpinLock<P, C>,
    is_cpu_bound: PhantomData<*const ()>,
}

impl<P: Processor, C: LockClass> Drop for RwSpinWriteGuard<'_, P, C> {
    #[inline]
    fn drop(&mut self) {
        released::<P>(C::NAME, self.lock.address(), Holding::Alone);
        // ORDER: Release pairs with the Acquire of whoever enters next. A subtraction: knocking readers may be counted.
        self.lock.word.fetch_sub(WRITER, Ordering::Release);
    }
}
