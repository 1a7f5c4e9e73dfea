//! A semaphore that notes each acquisition, and how long it was held.

use super::RwSemaphore;
use crate::{LockStats, Side};
use alloc::sync::Arc;
use faultless_platform::Processor;

/// A semaphore of type `S` that reads the clock at each acquisition and release, and notes both in its statistics.
///
/// To be chosen as a type, so that the semaphore itself pays nothing where nobody asks. What it takes is seen by
/// [`LockStats::figures`]; without statistics it is `S` and no more.
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

    fn note_if(&self, is_acquired: bool, side: Side) -> bool {
        if is_acquired {
            self.note_acquired(side);
        }
        is_acquired
    }
}

// SAFETY: each function is that of the semaphore inside.
unsafe impl<P: Processor, S: RwSemaphore<P>> RwSemaphore<P> for Timed<P, S> {
    type Generation = S::Generation;

    fn with_stats(generation: S::Generation, stats: Option<Arc<LockStats<P>>>) -> Self {
        Self { semaphore: S::with_stats(generation, stats.clone()), stats }
    }

    #[track_caller]
    fn read_lock(&self) {
        self.semaphore.read_lock();
        self.note_acquired(Side::Read);
    }

    unsafe fn read_unlock(&self) {
        self.note_released(Side::Read);
        // SAFETY: passed on as promised.
        unsafe { self.semaphore.read_unlock() };
    }

    #[track_caller]
    fn try_read_lock(&self) -> bool {
        self.note_if(self.semaphore.try_read_lock(), Side::Read)
    }

    #[track_caller]
    fn write_lock(&self) {
        self.semaphore.write_lock();
        self.note_acquired(Side::Write);
    }

    unsafe fn write_unlock(&self) {
        self.note_released(Side::Write);
        // SAFETY: passed on as promised.
        unsafe { self.semaphore.write_unlock() };
    }

    #[track_caller]
    fn try_write_lock(&self) -> bool {
        self.note_if(self.semaphore.try_write_lock(), Side::Write)
    }

    #[track_caller]
    unsafe fn downgrade(&self) {
        self.note_released(Side::Write);
        self.note_acquired(Side::Read);
        // SAFETY: passed on as promised.
        unsafe { self.semaphore.downgrade() };
    }

    fn is_contended(&self) -> bool {
        self.semaphore.is_contended()
    }

    fn is_locked(&self) -> bool {
        self.semaphore.is_locked()
    }
}
