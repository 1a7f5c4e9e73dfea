//! A ticket lock: first come first served, all waiters on one line.
//!
//! # Words first
//! `next`: the ticket that the next one draws; `serving`: the ticket that has the lock. Equal: the lock is free. Both
//! wrap around.
//!
//! # Race
//! ```text
//! holder, ticket t                next holder, ticket t + 1
//! writes the data                 next += 1
//! serving = t + 1, Release        serving == t + 1, Acquire: reads the data
//! ```
//! Forbidden: the next holder reads older data. Model: `tests/models/spin.rs`.
//!
//! A drawn ticket can't be given back: if a wait ends by a panic, the turn is waited for all the same, and handed on.
//! Every release is read by all who wait; where many do, use [`McsQueue`](crate::McsQueue), whose waiters have lines of
//! their own and may leave.

use crate::watch::Waiting;
use core::marker::PhantomData;
use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};

/// A spin lock that serves in order of arrival; guards what its user says.
///
/// ```
/// use faultless_platform::native::Native;
/// let lock = faultless_sync::TicketLock::<Native>::new();
/// let first = lock.lock();
/// assert!(lock.try_lock().is_none());
/// drop(first);
/// assert!(lock.try_lock().is_some());
/// ```
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::{TicketGuard, TicketLock};
///
/// let lock = TicketLock::<Native>::new();
/// let guard: TicketGuard<'_, Native> = lock.lock();
/// assert!(lock.is_locked() && lock.try_lock().is_none());
/// # drop(guard);
/// ```
pub struct TicketLock<P: Processor> {
    next: P::AtomicU32,
    serving: P::AtomicU32,
}

impl<P: Processor> TicketLock<P> {
    /// Returns a free lock.
    pub fn new() -> Self {
        Self { next: P::AtomicU32::new(0), serving: P::AtomicU32::new(0) }
    }

    /// Takes the lock until the guard is dropped, after all who came before.
    #[inline]
    pub fn lock(&self) -> TicketGuard<'_, P> {
        // Relaxed: seeing that it is our turn orders the data.
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let guard = TicketGuard { lock: self, ticket, is_cpu_bound: PhantomData };
        if !self.is_serving(ticket) {
            let _waiting = Waiting::<P>::begin("");
            // If this ends by a panic the guard waits for its turn, and hands it on.
            P::spin_until(|| self.is_serving(ticket));
        }
        guard
    }

    /// Takes the lock until the guard is dropped, if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<TicketGuard<'_, P>> {
        // ORDER: Acquire pairs with the Release in the guard's drop.
        let ticket = self.serving.load(Ordering::Acquire);
        // Relaxed: it succeeds only if nobody has drawn a ticket since the one served, and then the load above orders
        // the data.
        let drawn = self.next.compare_exchange(ticket, ticket.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
        drawn.is_ok().then(|| TicketGuard { lock: self, ticket, is_cpu_bound: PhantomData })
    }

    /// Says whether somebody holds the lock or waits for it: a hint.
    #[inline]
    pub fn is_locked(&self) -> bool {
        // Relaxed: see above.
        self.next.load(Ordering::Relaxed) != self.serving.load(Ordering::Relaxed)
    }

    #[inline]
    fn is_serving(&self, ticket: u32) -> bool {
        // ORDER: Acquire pairs with the Release in the guard's drop.
        self.serving.load(Ordering::Acquire) == ticket
    }
}

impl<P: Processor> Default for TicketLock<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Holds a [`TicketLock`], or waits for its turn to hand it on.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct TicketGuard<'a, P: Processor> {
    lock: &'a TicketLock<P>,
    ticket: u32,
    is_cpu_bound: PhantomData<*const ()>,
}

impl<P: Processor> Drop for TicketGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if !self.lock.is_serving(self.ticket) {
            P::spin_until(|| self.lock.is_serving(self.ticket));
        }
        // ORDER: Release pairs with the Acquire in `is_serving` and `try_lock`.
        self.lock.serving.store(self.ticket.wrapping_add(1), Ordering::Release);
    }
}
