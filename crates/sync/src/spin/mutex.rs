//! A value behind a spin lock.

use super::RawSpinLock;
use crate::watch::{LockClass, Unnamed};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use faultless_platform::Processor;

/// A value that one CPU at a time reaches.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::{SpinMutex, SpinMutexGuard, Unnamed};
///
/// let mut queue = SpinMutex::<Native, Vec<u32>>::new(vec![1]);
/// let guard: SpinMutexGuard<'_, Native, Vec<u32>, Unnamed> = queue.lock();
/// assert!(queue.is_locked() && queue.try_lock().is_none());
/// drop(guard);
/// queue.lock_in("drain").clear();
/// queue.get_mut().push(4);
/// assert_eq!(queue.into_inner(), [4]);
/// ```
pub struct SpinMutex<P: Processor, T, C = Unnamed> {
    lock: RawSpinLock<P, C>,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes where the mutex goes.
unsafe impl<P: Processor, T: Send, C> Send for SpinMutex<P, T, C> {}
// SAFETY: the lock lets one thread at a time reach the value.
unsafe impl<P: Processor, T: Send, C> Sync for SpinMutex<P, T, C> {}

impl<P: Processor, T> SpinMutex<P, T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self::classed(value)
    }
}

impl<P: Processor, T, C: LockClass> SpinMutex<P, T, C> {
    /// Wraps a value behind a lock of a class.
    pub fn classed(value: T) -> Self {
        Self { lock: RawSpinLock::classed(), value: UnsafeCell::new(value) }
    }

    /// Takes the lock, spinning until it is free.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> SpinMutexGuard<'_, P, T, C> {
        self.lock.lock();
        SpinMutexGuard { mutex: self, is_cpu_bound: PhantomData }
    }

    /// Takes the lock as [`SpinMutex::lock`] does; reports show `function` as the caller.
    #[inline]
    #[track_caller]
    pub fn lock_in(&self, function: &'static str) -> SpinMutexGuard<'_, P, T, C> {
        self.lock.lock_in(function);
        SpinMutexGuard { mutex: self, is_cpu_bound: PhantomData }
    }

    /// Takes the lock if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<SpinMutexGuard<'_, P, T, C>> {
        self.lock.try_lock().then(|| SpinMutexGuard { mutex: self, is_cpu_bound: PhantomData })
    }

    /// Says whether somebody holds the lock: a hint.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    /// Reaches the value without the lock: nobody else has the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<P: Processor, T: Default> Default for SpinMutex<P, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Holds a [`SpinMutex`].
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct SpinMutexGuard<'a, P: Processor, T, C: LockClass = Unnamed> {
    mutex: &'a SpinMutex<P, T, C>,
    is_cpu_bound: PhantomData<*const ()>,
}

impl<P: Processor, T, C: LockClass> Deref for SpinMutexGuard<'_, P, T, C> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<P: Processor, T, C: LockClass> DerefMut for SpinMutexGuard<'_, P, T, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed alone.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<P: Processor, T, C: LockClass> Drop for SpinMutexGuard<'_, P, T, C> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard was made by the one who took the lock, and its borrows have ended.
        unsafe { self.mutex.lock.unlock() };
    }
}
