//! Grace periods by number, one at a time.
//!
//! # Guarantee
//! A ticket's number is that of a grace period that begins after the ticket was drawn.
//!
//! # Words
//! `completed <= started <= completed + 1`; both are written under the lock of whoever drives grace periods.

use faultless_platform::{Atomic, Ordering, Processor};

pub(crate) struct Numbers<P: Processor> {
    started: P::AtomicU64,
    completed: P::AtomicU64,
}

impl<P: Processor> Numbers<P> {
    pub(crate) fn new() -> Self {
        Self { started: P::AtomicU64::new(0), completed: P::AtomicU64::new(0) }
    }

    /// Returns the number of a grace period that begins after all that the caller has done.
    pub(crate) fn ticket(&self) -> u64 {
        // ORDER: pairs with the fences in `begin` and of readers: the caller's removals come before the number is read.
        P::fence(Ordering::SeqCst);
        // Relaxed: the fence orders it; an old value means an earlier fence (table of the module above).
        self.started.load(Ordering::Relaxed) + 1
    }

    /// Says whether the ticket's grace period has ended; what its sections did is seen by the caller.
    pub(crate) fn is_complete(&self, ticket: u64) -> bool {
        // ORDER: Acquire pairs with the Release in `end`.
        self.completed.load(Ordering::Acquire) >= ticket
    }

    /// Says whether a grace period is at work. Under the driver's lock.
    pub(crate) fn is_at_work(&self) -> bool {
        // Relaxed: both are written under the lock that the caller holds.
        self.started.load(Ordering::Relaxed) != self.completed.load(Ordering::Relaxed)
    }

    /// Begins the next grace period; what the caller reads of readers afterwards tells who is inside. Under the driver's lock.
    pub(crate) fn begin(&self) {
        // Relaxed: as in `is_at_work`; the fences order it for `ticket`, which reads nothing else by it.
        let number = self.started.load(Ordering::Relaxed) + 1;
        self.started.store(number, Ordering::Relaxed);
        // ORDER: pairs with the fences of readers and in `ticket`; forbids found and freed (table of the module above).
        P::fence(Ordering::SeqCst);
    }

    /// Ends the grace period at work. Under the driver's lock.
    pub(crate) fn end(&self) {
        // ORDER: Release pairs with the Acquire in `is_complete`: it hands on that the sections are over.
        self.completed.store(self.started.load(Ordering::Relaxed), Ordering::Release);
    }
}
