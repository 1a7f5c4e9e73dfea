//! What waits for grace periods, of whatever kind: callers of `synchronize`, and callbacks.
//!
//! # Guarantee
//! What is deferred runs after a grace period that began after it was deferred, once, outside all locks.

use super::deferred::{Deferred, RcuCallback, RcuHead};
use super::numbers::Numbers;
use crate::PerCpu;
use crate::give_way::{SLICE_NS, give_way};
use crate::watch::Waiting;
use core::ptr::NonNull;
use faultless_platform::Processor;

/// A kind of grace periods.
pub(crate) trait Periods<P: Processor> {
    /// Returns their numbers.
    fn numbers(&self) -> &Numbers<P>;
    /// Brings grace periods on as far as they go without waiting, up to the ticket's.
    fn drive(&self, ticket: u64, urgency: Urgency) -> Driven;
    /// As `drive`, but waits until the deadline for whoever is in the way.
    fn drive_until(&self, ticket: u64, deadline_ns: u64) -> bool;
    /// Lets another thread have the calling CPU's slot between two slices of a wait, if it may.
    fn give_way(&self) {
        give_way::<P>();
    }
}

/// How much a CPU does for a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It looks at its own group, and leaves the beginning to others.
    Patient,
    /// It begins, too.
    Pressing,
    /// It looks at the groups of others, too, where perhaps nobody comes by.
    Waiting,
}

/// How far grace periods went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driven {
    /// The ticket's is over.
    Complete,
    /// A reader is in the way.
    Blocked,
    /// Another CPU drives.
    Busy,
}

/// Grace periods, and what waits for them.
pub(crate) struct Domain<P: Processor, G, const BATCH: usize> {
    pub(crate) periods: G,
    deferred: PerCpu<P, Deferred<P>>,
}

impl<P: Processor, G: Periods<P>, const BATCH: usize> Domain<P, G, BATCH> {
    const HAS_ROOM: () = assert!(BATCH > 0, "a batch holds at least one callback");

    pub(crate) fn new(nr_cpus: usize, periods: G) -> Self {
        let () = Self::HAS_ROOM;
        Self { periods, deferred: PerCpu::new(nr_cpus, |_| Deferred::new()) }
    }

    /// Waits for a grace period that begins now or later.
    pub(crate) fn synchronize(&self) {
        self.wait_for(self.periods.numbers().ticket());
    }

    /// Lets `callback` run with `head` after a grace period.
    ///
    /// # Safety
    /// * What `head` stands for was made unreachable for readers that begin from now on.
    /// * `head` stays valid, and nobody else touches it, until `callback` gets it.
    /// * `callback` may be called with it on any CPU; it does not sleep, and calls neither `poll`, `flush` nor
    ///   `synchronize`.
    pub(crate) unsafe fn defer(&self, head: NonNull<RcuHead<P>>, callback: RcuCallback<P>) {
        // SAFETY: passed on as promised.
        unsafe { self.deferred.here().push::<BATCH>(head, callback, self.periods.numbers()) };
    }

    /// Runs those of this CPU's callbacks whose grace period has passed, and helps the current one on; never waits.
    #[inline]
    pub(crate) fn poll(&self) {
        if self.deferred.here().has_batches() {
            self.poll_slow();
        }
    }

    /// Waits until every callback that was deferred before, on any CPU, has run; runs those that nobody else does.
    pub(crate) fn flush(&self) {
        let numbers = self.periods.numbers();
        for cpu in self.deferred.iter() {
            cpu.close_batch(numbers);
        }
        self.wait_for(numbers.ticket());
        for cpu in self.deferred.iter() {
            cpu.run_ready(numbers);
        }
        for cpu in self.deferred.iter() {
            while !P::spin_until_deadline(P::now() + SLICE_NS, || !cpu.is_running()) {
                self.periods.give_way();
            }
        }
    }

    /// Returns how many callbacks wait to run: exact while nobody defers or runs any.
    pub(crate) fn nr_deferred(&self) -> u64 {
        self.deferred.iter().map(Deferred::len).sum()
    }

    #[cold]
    fn poll_slow(&self) {
        let (mine, numbers) = (self.deferred.here(), self.periods.numbers());
        if mine.is_patient() {
            return;
        }
        mine.run_ready(numbers);
        let Some((ticket, urgency)) = mine.oldest_ticket::<BATCH>() else { return };
        let driven = self.periods.drive(ticket, urgency);
        mine.set_patience(driven);
        if driven == Driven::Complete {
            mine.run_ready(numbers);
        }
    }

    fn wait_for(&self, ticket: u64) {
        let _waiting = Waiting::<P>::begin("rcu");
        while !self.periods.drive_until(ticket, P::now() + SLICE_NS) {
            self.periods.give_way();
        }
    }
}
