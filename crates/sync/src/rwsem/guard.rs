//! Guards of a reader-writer semaphore.

use super::{RwSemaphore, Share};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use faultless_platform::Processor;

/// A share of a semaphore; given back when dropped. It belongs to the thread that took it.
#[must_use = "the share is given back as soon as the guard is dropped"]
pub struct ReadGuard<'a, P: Processor, S: RwSemaphore<P>> {
    semaphore: &'a S,
    share: Share,
    is_thread_bound: PhantomData<*const P>,
}

impl<'a, P: Processor, S: RwSemaphore<P>> ReadGuard<'a, P, S> {
    /// Returns a guard for a share that the caller has.
    ///
    /// # Safety
    /// The caller was given `share` by the semaphore, and gives it to the guard.
    #[inline]
    pub unsafe fn new(semaphore: &'a S, share: Share) -> Self {
        Self { semaphore, share, is_thread_bound: PhantomData }
    }
}

impl<P: Processor, S: RwSemaphore<P>> Drop for ReadGuard<'_, P, S> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the share is the guard's.
        unsafe { self.semaphore.read_unlock(self.share) };
    }
}

/// Has a semaphore alone; releases it when dropped. It belongs to the thread that took it.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct WriteGuard<'a, P: Processor, S: RwSemaphore<P>> {
    semaphore: &'a S,
    is_thread_bound: PhantomData<*const P>,
}

impl<'a, P: Processor, S: RwSemaphore<P>> WriteGuard<'a, P, S> {
    /// Returns a guard for a write lock that the caller has.
    ///
    /// # Safety
    /// The caller has the semaphore alone, and gives it to the guard.
    #[inline]
    pub unsafe fn new(semaphore: &'a S) -> Self {
        Self { semaphore, is_thread_bound: PhantomData }
    }

    /// Turns the write lock into a share, with no moment between at which a writer could come in.
    #[track_caller]
    pub fn downgrade(self) -> ReadGuard<'a, P, S> {
        let semaphore = ManuallyDrop::new(self).semaphore;
        // SAFETY: the write lock was the guard's, which is gone; the share is the new one's.
        unsafe {
            let share = semaphore.downgrade();
            ReadGuard::new(semaphore, share)
        }
    }

    /// Says that far more readers than writers are to come, as [`RwSemaphore::expect_readers`].
    #[inline]
    pub fn expect_readers(&self) {
        self.semaphore.expect_readers();
    }
}

impl<P: Processor, S: RwSemaphore<P>> Drop for WriteGuard<'_, P, S> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the write lock is the guard's.
        unsafe { self.semaphore.write_unlock() };
    }
}
