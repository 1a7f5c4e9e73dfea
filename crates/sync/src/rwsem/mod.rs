//! Reader-writer semaphores: whoever waits long sleeps. One body of code, a value for each generation.
//!
//! # Guarantee
//! Any number of readers, or one writer. What a writer did is seen by those who come after; a reader or writer that finds
//! the lock free pays one read-modify-write each way.
//!
//! # Generations
//! | name | value | a writer that waits | a writer that comes |
//! |---|---|---|---|
//! | `rwsem-2012` | [`Generation::RWSEM_2012`] | sleeps, and is handed the lock | never overtakes |
//! | `rwsem-steal` | [`Generation::RWSEM_STEAL`] | sleeps, then retries | may take the lock before those asleep |
//! | `rwsem-v8` | [`Generation::RWSEM_V8`] | spins while the owner runs, then sleeps and retries | may take the lock before those asleep |
//! | `handoff` | [`Generation::HANDOFF`] | spins while the owner runs, and for a short time for readers, then sleeps and retries | may, until the first in line has waited 4 ms |
//! | `phase-fair` | [`Generation::PHASE_FAIR`] | sleeps, and is handed the lock after one phase of readers | never overtakes |
//!
//! [`Patches`] names what tells them apart, so that each patch of the series can stand alone, and [`SERIES`] says what each is
//! worth measuring between. A generation is a value and
//! not a type: what is built over a semaphore (an address space under five designs, on as many platforms) is then compiled
//! once and not once for each generation, and the price is a plain load of the lock's own line. A semaphore of another
//! family, with another word, is another implementor of [`RwSemaphore`], with generations of its own.
//!
//! # Rooms
//! `word` is the lock word; `body` takes and releases; `owner` is what spinners look at; `slow` queues, sleeps and wakes; `spin` waits awake; `waiters` is the
//! queue; `series` has the generations, `registry` their names; `timed` measures any of them.

mod body;
mod guard;
mod owner;
mod registry;
mod series;
mod slow;
mod spin;
mod timed;
mod waiters;
mod word;

pub use body::Rwsem;
pub use guard::{ReadGuard, WriteGuard};
pub use registry::{SEMAPHORES, SemaphoreVisitor, with_semaphore};
pub use series::{Effect, Generation, Patches, Rules, SERIES, SeriesPatch};
pub use timed::Timed;

use crate::LockStats;
use alloc::sync::Arc;
use faultless_platform::Processor;

/// A reader-writer semaphore. It guards what its user says; waiting for it may sleep.
///
/// # Safety
/// Who takes the lock alone has it alone until it is released or turned into a share, and what its holders did before is
/// seen by those who take it after them. The provided functions are left as they are.
pub unsafe trait RwSemaphore<P: Processor>: Send + Sync + Sized + 'static {
    /// What tells the family's members apart; `()` if it has one.
    type Generation: Copy + Default + Send + Sync + 'static;

    /// Returns a free semaphore of that generation, which notes what it costs in `stats`, if there are any.
    fn with_stats(generation: Self::Generation, stats: Option<Arc<LockStats<P>>>) -> Self;

    /// Returns a free semaphore of that generation, without statistics.
    fn of(generation: Self::Generation) -> Self {
        Self::with_stats(generation, None)
    }

    /// Returns a free semaphore of the family's default generation, without statistics.
    fn new() -> Self {
        Self::of(Self::Generation::default())
    }

    /// Shares the lock; sleeps while a writer has it or stands in line before us.
    #[track_caller]
    fn read_lock(&self);
    /// Gives a share back.
    ///
    /// # Safety
    /// The caller has a share, and uses nothing of what it guards afterwards.
    unsafe fn read_unlock(&self);
    /// Shares the lock if no writer has it or waits for it.
    #[must_use = "the lock is shared if this says true"]
    #[track_caller]
    fn try_read_lock(&self) -> bool;

    /// Takes the lock alone; sleeps while others have it.
    #[track_caller]
    fn write_lock(&self);
    /// Releases the lock.
    ///
    /// # Safety
    /// The caller took it by a write lock, and uses nothing of what it guards afterwards.
    unsafe fn write_unlock(&self);
    /// Takes the lock alone if it is free.
    #[must_use = "the lock is held if this says true"]
    #[track_caller]
    fn try_write_lock(&self) -> bool;

    /// Turns the write lock into a share; readers that wait in front come in.
    ///
    /// # Safety
    /// The caller took it by a write lock, and changes nothing of what it guards afterwards.
    #[track_caller]
    unsafe fn downgrade(&self);

    /// Says whether somebody sleeps in line: whoever holds the lock for long may let them in.
    fn is_contended(&self) -> bool;
    /// Says whether anybody holds the lock; true for sure if the caller does.
    fn is_locked(&self) -> bool;

    /// Shares the lock until the guard is dropped.
    #[inline]
    #[track_caller]
    fn read(&self) -> ReadGuard<'_, P, Self> {
        self.read_lock();
        // SAFETY: just shared.
        unsafe { ReadGuard::new(self) }
    }

    /// Shares the lock until the guard is dropped, if no writer has it or waits for it.
    #[inline]
    #[track_caller]
    fn try_read(&self) -> Option<ReadGuard<'_, P, Self>> {
        // SAFETY: just shared.
        self.try_read_lock().then(|| unsafe { ReadGuard::new(self) })
    }

    /// Takes the lock alone until the guard is dropped.
    #[inline]
    #[track_caller]
    fn write(&self) -> WriteGuard<'_, P, Self> {
        self.write_lock();
        // SAFETY: just taken.
        unsafe { WriteGuard::new(self) }
    }

    /// Takes the lock alone until the guard is dropped, if it is free.
    #[inline]
    #[track_caller]
    fn try_write(&self) -> Option<WriteGuard<'_, P, Self>> {
        // SAFETY: just taken.
        self.try_write_lock().then(|| unsafe { WriteGuard::new(self) })
    }
}
