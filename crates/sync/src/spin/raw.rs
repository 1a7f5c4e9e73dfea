//! A spin lock in one word, which may stand inside zeroed memory.
//!
//! # Word first
//! 0 free; 1 held. A lock in zeroed memory is free.
//!
//! # Race
//! ```text
//! holder                          next holder
//! writes the data                 exchange 0 -> 1, Acquire
//! word = 0, Release               reads the data
//! ```
//! Forbidden: the next holder reads older data. Model: `tests/models/spin.rs`.

use crate::watch::{LockClass, Unnamed, Wait, Waiting, Wanted, released, tried};
use core::marker::PhantomData;
use faultless_platform::{Atomic, Holding, Ordering, Processor};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A spin lock that guards what its user says; four bytes, free when zeroed.
///
/// For memory that already has a place for the lock, as metadata of frames:
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::{RawSpinGuard, RawSpinLock, Unnamed};
///
/// let lock = RawSpinLock::<Native>::new();
/// let guard: RawSpinGuard<'_, Native, Unnamed> = lock.guard();
/// assert!(lock.is_locked() && lock.try_guard().is_none());
/// drop(guard);
///
/// lock.lock();
/// assert!(!lock.try_lock());
/// // SAFETY: we have it.
/// unsafe { lock.unlock() };
///
/// // Reports say which function had this one.
/// let named = RawSpinLock::<Native, Unnamed>::classed();
/// named.lock_in("zap");
/// // SAFETY: as above.
/// unsafe { named.unlock() };
/// ```
#[repr(transparent)]
pub struct RawSpinLock<P: Processor, C = Unnamed> {
    word: P::AtomicU32,
    class: PhantomData<fn() -> C>,
}

impl<P: Processor> RawSpinLock<P> {
    /// Returns a free lock.
    pub fn new() -> Self {
        Self::classed()
    }
}

impl<P: Processor, C: LockClass> RawSpinLock<P, C> {
    /// Returns a free lock of a class.
    pub fn classed() -> Self {
        Self { word: P::AtomicU32::new(FREE), class: PhantomData }
    }

    /// Takes the lock, spinning until it is free.
    #[inline]
    #[track_caller]
    pub fn lock(&self) {
        self.lock_in("");
    }

    /// Takes the lock as [`RawSpinLock::lock`] does; reports show `function` as the caller.
    #[inline]
    #[track_caller]
    pub fn lock_in(&self, function: &'static str) {
        let (wanted, mut wait) = (Wanted::<P>::begin(C::NAME), Wait::None);
        while !self.try_take() {
            self.wait_until_free();
            wait = Wait::Some;
        }
        wanted.taken_in(function, C::NAME, self.address(), Holding::Plain, wait);
    }

    /// Takes the lock if it is free.
    #[inline]
    #[track_caller]
    #[must_use = "the lock is held if this says true"]
    pub fn try_lock(&self) -> bool {
        tried::<P>(self.try_take(), C::NAME, self.address(), Holding::Plain)
    }

    #[inline]
    fn try_take(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `unlock`.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// The caller holds the lock, and no reference to what it guards is used afterwards.
    #[inline]
    pub unsafe fn unlock(&self) {
        released::<P>(C::NAME, self.address(), Holding::Plain);
        // ORDER: Release pairs with the Acquire in `try_take`.
        self.word.store(FREE, Ordering::Release);
    }

    /// Says whether somebody holds the lock; true for sure if the caller does.
    #[inline]
    pub fn is_locked(&self) -> bool {
        // Relaxed: a hint for all but the holder, who reads its own write.
        self.word.load(Ordering::Relaxed) != FREE
    }

    /// Takes the lock until the guard is dropped.
    #[inline]
    #[track_caller]
    pub fn guard(&self) -> RawSpinGuard<'_, P, C> {
        self.lock();
        RawSpinGuard { lock: self, is_cpu_bound: PhantomData }
    }

    /// Takes the lock until the guard is dropped, if it is free.
    #[inline]
    #[track_caller]
    pub fn try_guard(&self) -> Option<RawSpinGuard<'_, P, C>> {
        self.try_lock().then(|| RawSpinGuard { lock: self, is_cpu_bound: PhantomData })
    }

    #[cold]
    fn wait_until_free(&self) {
        let _waiting = Waiting::<P>::begin(C::NAME);
        P::spin_until(|| !self.is_locked());
    }
}

impl<P: Processor> Default for RawSpinLock<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Holds a [`RawSpinLock`].
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct RawSpinGuard<'a, P: Processor, C: LockClass = Unnamed> {
    lock: &'a RawSpinLock<P, C>,
    is_cpu_bound: PhantomData<*const ()>,
}

impl<P: Processor, C: LockClass> Drop for RawSpinGuard<'_, P, C> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard was made by the one who took the lock, and lives no longer.
        unsafe { self.lock.unlock() };
    }
}
