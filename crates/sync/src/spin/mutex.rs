//! A value behind a spin lock.

use super::RawSpinLock;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use faultless_platform::Processor;

/// A value that one CPU at a time reaches.
pub struct SpinMutex<P: Processor, T> {
    lock: RawSpinLock<P>,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes where the mutex goes.
unsafe impl<P: Processor, T: Send> Send for SpinMutex<P, T> {}
// SAFETY: the lock lets one thread at a time reach the value.
unsafe impl<P: Processor, T: Send> Sync for SpinMutex<P, T> {}

impl<P: Processor, T> SpinMutex<P, T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self { lock: RawSpinLock::new(), value: UnsafeCell::new(value) }
    }

    /// Takes the lock, spinning until it is free.
    #[inline]
    pub fn lock(&self) -> SpinMutexGuard<'_, P, T> {
        self.lock.lock();
        SpinMutexGuard { mutex: self, is_cpu_bound: PhantomData }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinMutexGuard<'_, P, T>> {
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
pub struct SpinMutexGuard<'a, P: Processor, T> {
    mutex: &'a SpinMutex<P, T>,
    is_cpu_bound: PhantomData<*const ()>,
}

impl<P: Processor, T> Deref for SpinMutexGuard<'_, P, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<P: Processor, T> DerefMut for SpinMutexGuard<'_, P, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed alone.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<P: Processor, T> Drop for SpinMutexGuard<'_, P, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard was made by the one who took the lock, and its borrows have ended.
        unsafe { self.mutex.lock.unlock() };
    }
}
