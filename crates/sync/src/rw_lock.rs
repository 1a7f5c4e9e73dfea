//! A value behind a semaphore, in the idiom of `lock_api`: guards that are references, no poisoning.
//!
//! # Guarantee
//! A read guard shares the value, a write guard has it alone. A thread that panics while it has
//! a guard releases it, and the value is as it left it. On `Native` any thread may use it: no machine, no slot, no
//! set-up.

use crate::{Ended, Generation, Interrupt, ReadGuard, RwSemaphore, Rwsem, WaitLimits, WriteGuard};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use faultless_platform::Processor;

/// A value that many may read or one may change, behind a semaphore of any generation.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::{Generation, RwLock};
/// use std::time::Duration;
///
/// let table = RwLock::<Native, _>::of(Generation::PHASE_FAIR, vec![1, 2]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| table.write().push(3));
///     scope.spawn(|| assert!(table.read().len() >= 2));
/// });
/// let writer = table.write();
/// assert!(table.try_read_for(Duration::from_millis(1)).is_none());
/// let reader = faultless_sync::RwLockWriteGuard::downgrade(writer);
/// assert_eq!((reader.len(), table.try_read().is_some(), table.try_write().is_none()), (3, true, true));
/// ```
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{Ended, Generation, Interrupt, RwLock, RwLockReadGuard, RwSemaphore, Rwsem};
/// use std::time::Duration;
///
/// let mut table = RwLock::<Native, Vec<u32>>::with_semaphore(Rwsem::of(Generation::RWSEM_2012), vec![1]);
/// Machine::new(1).attach(|| {
///     let shared: RwLockReadGuard<'_, _, _> = table.read();
///     assert_eq!(*shared, [1]);
///     assert!(table.try_write_for(Duration::from_micros(10)).is_none() && table.semaphore().is_locked());
///     drop(shared);
///
///     let stop = Interrupt::new();
///     stop.raise();
///     let writer = table.write();
///     assert!(matches!(table.read_interruptible(&stop), Err(Ended::Interrupted)));
///     assert!(matches!(table.write_interruptible(&stop), Err(Ended::Interrupted)));
///     drop(writer);
/// });
/// table.get_mut().push(2);
/// assert_eq!(table.into_inner(), [1, 2]);
/// ```
pub struct RwLock<P: Processor, T, S: RwSemaphore<P> = Rwsem<P>> {
    semaphore: S,
    processor: PhantomData<fn() -> P>,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes where the lock goes.
unsafe impl<P: Processor, T: Send, S: RwSemaphore<P>> Send for RwLock<P, T, S> {}
// SAFETY: readers share the value, and a writer that has it alone may take it away.
unsafe impl<P: Processor, T: Send + Sync, S: RwSemaphore<P>> Sync for RwLock<P, T, S> {}

impl<P: Processor, T> RwLock<P, T> {
    /// Wraps a value behind a semaphore of the default generation.
    pub fn new(value: T) -> Self {
        Self::of(Generation::default(), value)
    }

    /// Wraps a value behind a semaphore of that generation.
    pub fn of(generation: Generation, value: T) -> Self {
        Self::with_semaphore(Rwsem::of(generation), value)
    }
}

impl<P: Processor, T, S: RwSemaphore<P>> RwLock<P, T, S> {
    /// Wraps a value behind a semaphore that nobody has used.
    pub fn with_semaphore(semaphore: S, value: T) -> Self {
        Self { semaphore, processor: PhantomData, value: UnsafeCell::new(value) }
    }

    /// Shares the value; sleeps while a writer has it or stands in line before us.
    ///
    /// # Panics
    /// If more than eight million guards were forgotten: the word counts no more readers.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, P, T, S> {
        self.shared(self.semaphore.read())
    }

    /// Shares the value if no writer has it or waits for it.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, P, T, S>> {
        Some(self.shared(self.semaphore.try_read()?))
    }

    /// Shares the value if it can be had within `timeout`.
    #[track_caller]
    pub fn try_read_for(&self, timeout: Duration) -> Option<RwLockReadGuard<'_, P, T, S>> {
        Some(self.shared(self.semaphore.read_within(&lasting(timeout)).ok()?))
    }

    /// Shares the value unless `interrupt` is raised before that.
    ///
    /// # Errors
    /// [`Ended::Interrupted`].
    #[track_caller]
    pub fn read_interruptible(&self, interrupt: &Interrupt<P>) -> Result<RwLockReadGuard<'_, P, T, S>, Ended> {
        Ok(self.shared(self.semaphore.read_within(&WaitLimits::NONE.or_interrupted_by(interrupt))?))
    }

    /// Takes the value alone; sleeps while others have it.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, P, T, S> {
        self.alone(self.semaphore.write())
    }

    /// Takes the value alone if nobody has it.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, P, T, S>> {
        Some(self.alone(self.semaphore.try_write()?))
    }

    /// Takes the value alone if it can be had within `timeout`.
    #[track_caller]
    pub fn try_write_for(&self, timeout: Duration) -> Option<RwLockWriteGuard<'_, P, T, S>> {
        Some(self.alone(self.semaphore.write_within(&lasting(timeout)).ok()?))
    }

    /// Takes the value alone unless `interrupt` is raised before that.
    ///
    /// # Errors
    /// [`Ended::Interrupted`].
    #[track_caller]
    pub fn write_interruptible(&self, interrupt: &Interrupt<P>) -> Result<RwLockWriteGuard<'_, P, T, S>, Ended> {
        Ok(self.alone(self.semaphore.write_within(&WaitLimits::NONE.or_interrupted_by(interrupt))?))
    }

    /// Returns the semaphore: for its owner, and for whether anybody holds or awaits it.
    pub fn semaphore(&self) -> &S {
        &self.semaphore
    }

    /// Reaches the value without the lock: nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    #[inline]
    fn shared<'a>(&'a self, guard: ReadGuard<'a, P, S>) -> RwLockReadGuard<'a, P, T, S> {
        RwLockReadGuard { guard, lock: self }
    }

    #[inline]
    fn alone<'a>(&'a self, guard: WriteGuard<'a, P, S>) -> RwLockWriteGuard<'a, P, T, S> {
        RwLockWriteGuard { guard, lock: self }
    }
}

fn lasting<P: Processor>(timeout: Duration) -> WaitLimits<'static, P> {
    WaitLimits::lasting(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

impl<P: Processor, T: Default> Default for RwLock<P, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Shares the value of a [`RwLock`]; it belongs to the thread that took it.
#[must_use = "the share is given back as soon as the guard is dropped"]
pub struct RwLockReadGuard<'a, P: Processor, T, S: RwSemaphore<P> = Rwsem<P>> {
    #[expect(dead_code, reason = "it gives the share back when it is dropped")]
    guard: ReadGuard<'a, P, S>,
    lock: &'a RwLock<P, T, S>,
}

impl<P: Processor, T, S: RwSemaphore<P>> Deref for RwLockReadGuard<'_, P, T, S> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard has a share, so that nobody changes the value.
        unsafe { &*self.lock.value.get() }
    }
}

/// Has the value of a [`RwLock`] alone; it belongs to the thread that took it.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct RwLockWriteGuard<'a, P: Processor, T, S: RwSemaphore<P> = Rwsem<P>> {
    guard: WriteGuard<'a, P, S>,
    lock: &'a RwLock<P, T, S>,
}

impl<'a, P: Processor, T, S: RwSemaphore<P>> RwLockWriteGuard<'a, P, T, S> {
    /// Turns the write lock into a share, with no moment between at which a writer could come in.
    #[track_caller]
    pub fn downgrade(this: Self) -> RwLockReadGuard<'a, P, T, S> {
        this.lock.shared(this.guard.downgrade())
    }
}

impl<P: Processor, T, S: RwSemaphore<P>> Deref for RwLockWriteGuard<'_, P, T, S> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard has the lock alone.
        unsafe { &*self.lock.value.get() }
    }
}

impl<P: Processor, T, S: RwSemaphore<P>> DerefMut for RwLockWriteGuard<'_, P, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard has the lock alone, and is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}
