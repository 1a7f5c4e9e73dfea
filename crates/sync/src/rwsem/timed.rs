//! A semaphore that notes each acquisition, and how long it was held.

use super::{Ended, Parts, ReaderTable, RwSemaphore, Share, WaitLimits};
use crate::{LockStats, Side};
use alloc::sync::Arc;
use faultless_platform::{Processor, ThreadToken};

/// A semaphore of type `S` that reads the clock at each acquisition and release, and notes both in its statistics.
///
/// To be chosen as a type, so that the semaphore itself pays nothing where nobody asks. What it takes is seen by
/// [`LockStats::figures`]; without statistics it is `S` and no more.
/// [`LockStats`](crate::LockStats) has an example. Tools that measure a semaphore put it around.
pub struct Timed<P: Processor, S> {
    semaphore: S,
    stats: Option<Arc<LockStats<P>>>,
}

impl<P: Processor, S: RwSemaphore<P>> Timed<P, S> {
    fn note_acquired(&self, side: Side) {
        if let Some(stats) = &self.stats {
            stats.note_acquired(side);
        }
    }

    fn note_released(&self, side: Side) {
        if let Some(stats) = &self.stats {
            stats.note_released(side);
        }
    }

    fn noted<T>(&self, acquired: T, side: Side) -> T {
        self.note_acquired(side);
        acquired
    }
}

// SAFETY: each function is that of the semaphore inside.
unsafe impl<P: Processor, S: RwSemaphore<P>> RwSemaphore<P> for Timed<P, S> {
    type Generation = S::Generation;

    fn with_parts(generation: S::Generation, parts: Parts<P>) -> Self {
        Self { stats: parts.stats.clone(), semaphore: S::with_parts(generation, parts) }
    }

    fn reader_table(generation: S::Generation, nr_places: usize) -> Option<Arc<ReaderTable<P>>> {
        S::reader_table(generation, nr_places)
    }

    #[track_caller]
    fn read_lock(&self) -> Share {
        self.noted(self.semaphore.read_lock(), Side::Read)
    }

    #[track_caller]
    fn read_lock_within(&self, limits: &WaitLimits<'_, P>) -> Result<Share, Ended> {
        Ok(self.noted(self.semaphore.read_lock_within(limits)?, Side::Read))
    }

    unsafe fn read_unlock(&self, share: Share) {
        self.note_released(Side::Read);
        // SAFETY: passed on as promised.
        unsafe { self.semaphore.read_unlock(share) };
    }

    #[track_caller]
    fn try_read_lock(&self) -> Option<Share> {
        Some(self.noted(self.semaphore.try_read_lock()?, Side::Read))
    }

    #[track_caller]
    fn write_lock(&self) {
        self.semaphore.write_lock();
        self.note_acquired(Side::Write);
    }

    #[track_caller]
    fn write_lock_within(&self, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        self.semaphore.write_lock_within(limits)?;
        self.note_acquired(Side::Write);
        Ok(())
    }

    unsafe fn write_unlock(&self) {
        self.note_released(Side::Write);
        // SAFETY: passed on as promised.
        unsafe { self.semaphore.write_unlock() };
    }

    #[track_caller]
    fn try_write_lock(&self) -> bool {
        let is_taken = self.semaphore.try_write_lock();
        if is_taken {
            self.note_acquired(Side::Write);
        }
        is_taken
    }

    #[track_caller]
    unsafe fn downgrade(&self) -> Share {
        self.note_released(Side::Write);
        self.note_acquired(Side::Read);
        // SAFETY: passed on as promised.
        unsafe { self.semaphore.downgrade() }
    }

    fn expect_readers(&self) {
        self.semaphore.expect_readers();
    }

    fn is_contended(&self) -> bool {
        self.semaphore.is_contended()
    }

    fn is_locked(&self) -> bool {
        self.semaphore.is_locked()
    }

    fn owner(&self) -> Option<ThreadToken> {
        self.semaphore.owner()
    }
}
