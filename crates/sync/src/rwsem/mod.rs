//! Reader-writer semaphores: whoever waits long sleeps. One body of code, a value for each generation.
//!
//! # Guarantee
//! Any number of readers, or one writer. What a writer did is seen by those who come after; a reader or writer that
//! finds the lock free pays one read-modify-write each way.
//!
//! # Generations
//! | name | value | a writer that waits | a writer that comes |
//! |---|---|---|---|
//! | `rwsem-2012` | [`Generation::RWSEM_2012`] | sleeps, and is handed the lock | never overtakes |
//! | `rwsem-steal` | [`Generation::RWSEM_STEAL`] | sleeps, then retries | may take the lock before those asleep |
//! | `rwsem-v8` | [`Generation::RWSEM_V8`] | spins while the owner runs, then sleeps and retries | may take the lock before those asleep |
//! | `handoff` | [`Generation::HANDOFF`] | spins while the owner runs, and for a short time for readers, then sleeps and retries | may, until the first in line has waited 4 ms |
//! | `phase-fair` | [`Generation::PHASE_FAIR`] | sleeps, and is handed the lock after one phase of readers | never overtakes |
//! | `...+cna` | [`Generation::with`] [`Rules::CNA`] | as the one before the `+`; spinners of the head's NUMA node go first | the same |
//! | `...+bravo` | [`Generation::with`] [`Rules::BRAVO`] | as the one before the `+` | the same; readers leave the word alone while no writer comes |
//!
//! [`Patches`] names what tells them apart, so that each patch of the series can stand alone, and [`SERIES`] says what
//! each is worth measuring between. A generation is a value and not a type: what is built over a semaphore (an address
//! space under six designs, on as many platforms) is then compiled once and not once for each generation, and the price
//! is a plain load of the lock's own line. A semaphore of another family, with another word, is another implementor of
//! [`RwSemaphore`], with generations of its own.
//!
//! # Rooms
//! `word` is the lock word; `body` takes and releases; `owner` is what spinners look at; `slow` queues, sleeps and
//! wakes; `spin` waits awake, `caution` remembers where that was in vain; `waiters` is the queue; `limits` ends waits;
//! `readers` is a table for readers, `bravo` how they use it; `series` has the generations, `registry` their names;
//! `timed` measures any of them.

mod body;
mod bravo;
mod caution;
mod guard;
mod limits;
mod owner;
mod readers;
mod registry;
mod series;
mod slow;
mod spin;
mod timed;
mod waiters;
mod word;

pub use body::Rwsem;
pub use guard::{ReadGuard, WriteGuard};
pub use limits::{Ended, Interrupt, WaitLimits};
pub use readers::{ReaderTable, Share};
pub use registry::{SEMAPHORES, SemaphoreVisitor, with_semaphore};
pub use series::{Effect, Generation, Patches, Rules, SERIES, SeriesPatch};
pub use timed::Timed;

use crate::LockStats;
use alloc::sync::Arc;
use faultless_platform::{Processor, ThreadToken};

/// What a semaphore is given by whoever makes it, and may share with others.
pub struct Parts<P: Processor> {
    /// Where it notes what waiting for it costs.
    pub stats: Option<Arc<LockStats<P>>>,
    /// Where readers of a generation under [`Rules::BRAVO`] show themselves; without one they use the word.
    pub readers: Option<Arc<ReaderTable<P>>>,
}

impl<P: Processor> Clone for Parts<P> {
    fn clone(&self) -> Self {
        Self { stats: self.stats.clone(), readers: self.readers.clone() }
    }
}

/// A reader-writer semaphore. It guards what its user says; waiting for it may sleep.
///
/// # Safety
/// Who takes the lock alone has it alone until it is released or turned into a share, and what its holders did before
/// is seen by those who take it after them. The provided functions are left as they are.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{Ended, Generation, WaitLimits, Parts, ReadGuard, ReaderTable, RwSemaphore, Rwsem, Share, WriteGuard};
///
/// let lock = Rwsem::<Native>::of(Generation::RWSEM_V8);
/// Machine::new(1).attach(|| {
///     let read: ReadGuard<'_, Native, _> = lock.read();
///     let more = lock.try_read().expect("readers share it");
///     // A tenth of a millisecond at most.
///     let writer = lock.write_within(&WaitLimits::lasting(100_000));
///     assert!(matches!(writer, Err(Ended::TimedOut)) && lock.try_write().is_none());
///     drop((read, more));
///
///     let write: WriteGuard<'_, Native, _> = lock.write();
///     assert!(lock.is_locked() && !lock.is_contended() && lock.owner().is_some());
///     assert!(lock.read_within(&WaitLimits::lasting(1_000)).is_err());
///     // Readers may soon go by a table again, under a generation that has one.
///     write.expect_readers();
///     RwSemaphore::<Native>::expect_readers(&lock);
///     // Nobody comes between.
///     drop(write.downgrade());
///
///     // By hand, for whoever keeps the share elsewhere than in a guard.
///     let share: Share = lock.read_lock();
///     assert!(lock.try_read_lock().is_some_and(|other| {
///         // SAFETY: the share was just given.
///         unsafe { lock.read_unlock(other) };
///         true
///     }));
///     // SAFETY: as above.
///     unsafe { lock.read_unlock(share) };
///     assert!(lock.read_lock_within(&WaitLimits::NONE).is_ok_and(|share| {
///         // SAFETY: as above.
///         unsafe { lock.read_unlock(share) };
///         true
///     }));
///     lock.write_lock();
///     assert!(!lock.try_write_lock() && lock.write_lock_within(&WaitLimits::lasting(1_000)).is_err());
///     // SAFETY: we have it.
///     unsafe { lock.write_unlock() };
/// });
///
/// // What several semaphores share, as the spaces of one instance do.
/// let places = ReaderTable::<Native>::USUAL_PLACES;
/// let parts = Parts { stats: None, readers: Rwsem::<Native>::reader_table(Generation::default(), places) };
/// let (_one, _two) = (Rwsem::with_parts(Generation::default(), parts.clone()), Rwsem::with_parts(Generation::default(), parts));
/// # let _ = Rwsem::<Native>::with_stats(Generation::default(), None);
/// ```
pub unsafe trait RwSemaphore<P: Processor>: Send + Sync + Sized + 'static {
    /// What tells the family's members apart; `()` if it has one.
    type Generation: Copy + Default + Send + Sync + 'static;

    /// Returns a free semaphore of that generation, with what it is given.
    fn with_parts(generation: Self::Generation, parts: Parts<P>) -> Self;

    /// Returns a table of at least `nr_places`, for all semaphores of one user, if that generation has any use for one;
    /// allocates, so it is for set-up.
    fn reader_table(_generation: Self::Generation, _nr_places: usize) -> Option<Arc<ReaderTable<P>>> {
        None
    }

    /// Returns a free semaphore of that generation, which notes what it costs in `stats`, if there are any.
    /// An instance calls it for the semaphore of each space, so that reports have its waits.
    fn with_stats(generation: Self::Generation, stats: Option<Arc<LockStats<P>>>) -> Self {
        let readers = Self::reader_table(generation, ReaderTable::<P>::USUAL_PLACES);
        Self::with_parts(generation, Parts { stats, readers })
    }

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
    fn read_lock(&self) -> Share;
    /// As [`RwSemaphore::read_lock`], but waits no longer than `limits` say.
    ///
    /// # Errors
    /// Why the wait ended without a share.
    #[track_caller]
    fn read_lock_within(&self, limits: &WaitLimits<'_, P>) -> Result<Share, Ended>;
    /// Gives a share back.
    ///
    /// # Safety
    /// The caller was given this share by this semaphore, gives it back once, and uses nothing of what it guards
    /// afterwards.
    unsafe fn read_unlock(&self, share: Share);
    /// Shares the lock if no writer has it or waits for it.
    #[track_caller]
    fn try_read_lock(&self) -> Option<Share>;

    /// Takes the lock alone; sleeps while others have it.
    #[track_caller]
    fn write_lock(&self);
    /// As [`RwSemaphore::write_lock`], but waits no longer than `limits` say.
    ///
    /// # Errors
    /// Why the wait ended without the lock.
    #[track_caller]
    fn write_lock_within(&self, limits: &WaitLimits<'_, P>) -> Result<(), Ended>;
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
    unsafe fn downgrade(&self) -> Share;

    /// Says that far more readers than writers are to come. The caller has the lock alone.
    #[inline]
    fn expect_readers(&self) {}
    /// Says whether somebody sleeps in line: whoever holds the lock for long may let them in.
    fn is_contended(&self) -> bool;
    /// Says whether anybody holds the lock; true for sure if the caller does.
    fn is_locked(&self) -> bool;
    /// Returns the writer that has the lock, where the generation keeps track of it (those that spin, and
    /// `phase-fair`): a hint, and none for a moment.
    fn owner(&self) -> Option<ThreadToken>;

    /// Shares the lock until the guard is dropped.
    #[inline]
    #[track_caller]
    fn read(&self) -> ReadGuard<'_, P, Self> {
        let share = self.read_lock();
        // SAFETY: just shared.
        unsafe { ReadGuard::new(self, share) }
    }

    /// Shares the lock until the guard is dropped, if it can be had within `limits`.
    ///
    /// # Errors
    /// Why the wait ended without a share.
    #[track_caller]
    fn read_within(&self, limits: &WaitLimits<'_, P>) -> Result<ReadGuard<'_, P, Self>, Ended> {
        let share = self.read_lock_within(limits)?;
        // SAFETY: just shared.
        Ok(unsafe { ReadGuard::new(self, share) })
    }

    /// Takes the lock alone until the guard is dropped, if it can be had within `limits`.
    ///
    /// # Errors
    /// Why the wait ended without the lock.
    #[track_caller]
    fn write_within(&self, limits: &WaitLimits<'_, P>) -> Result<WriteGuard<'_, P, Self>, Ended> {
        self.write_lock_within(limits)?;
        // SAFETY: just taken.
        Ok(unsafe { WriteGuard::new(self) })
    }

    /// Shares the lock until the guard is dropped, if no writer has it or waits for it.
    #[inline]
    #[track_caller]
    fn try_read(&self) -> Option<ReadGuard<'_, P, Self>> {
        // SAFETY: just shared.
        self.try_read_lock().map(|share| unsafe { ReadGuard::new(self, share) })
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
