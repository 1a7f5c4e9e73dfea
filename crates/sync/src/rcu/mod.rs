//! Read-copy-update: readers write only their own line, and what they may still see is freed after them.
//!
//! # Guarantee
//! What was reachable when a [`RcuGuard`] was made, or became so later, is not freed before the guard is dropped, if its
//! owner makes it unreachable first and then calls [`Rcu::synchronize`] or [`Rcu::defer`].
//!
//! # Invariants
//! * I1 nobody parks, waits for a slot or sleeps inside a read section.
//! * I2 a reader's word is changed by the owner of its slot alone.
//! * I3 a grace period that starts after a fence ends after every section that began before that fence's removals were visible.
//!
//! # Race: a section begins while something is taken away
//! ```text
//! reader                            remover
//! word = inside        (Release)    make it unreachable     (any)
//! fence SeqCst                      fence SeqCst            (ticket)
//! look it up, use it                read `started`: a grace period numbered later will do
//!                                   scanner: started += 1; fence SeqCst; read the words
//! word = outside       (Release)                read the words again (Acquire), until outside
//! ```
//! Of the reader's and the scanner's fence one comes first. The reader's: the scan sees it inside, and waits; its accesses happen
//! before the free by the Release of its exit. The scanner's: the remover's fence came before that one, or
//! it would have read the larger `started`, so the reader's lookups see the removal. Forbidden: found and freed.
//! Models: `tests/models/rcu.rs`.
//!
//! # Rooms
//! `reader` is the word of a CPU; `grace` numbers grace periods and drives them, without a thread of its own; `deferred` keeps
//! what waits to be freed.

mod deferred;
mod grace;
mod reader;

use crate::PerCpu;
use crate::give_way::{SLICE_NS, give_way};
use deferred::{Chain, Deferred};
use faultless_platform::Processor;
use grace::{Grace, Progress};
use reader::Reader;

pub use deferred::{RcuCallback, RcuHead};
pub use reader::RcuGuard;

use core::ptr::NonNull;

/// One domain of readers and of what is freed after them.
///
/// A batch of `BATCH` callbacks shares a grace period; in tests it shrinks, so that rare paths are common. Dropping the
/// domain frees nothing that was deferred: [`Rcu::flush`] first.
pub struct Rcu<P: Processor, const BATCH: usize = 64> {
    readers: PerCpu<P, Reader<P>>,
    deferred: PerCpu<P, Deferred<P>>,
    grace: Grace<P>,
}

impl<P: Processor> Rcu<P> {
    /// Returns a domain for a machine of `nr_cpus` slots; allocates, so it is for set-up.
    pub fn new(nr_cpus: usize) -> Self {
        Self::with_batch(nr_cpus)
    }
}

impl<P: Processor, const BATCH: usize> Rcu<P, BATCH> {
    const HAS_ROOM: () = assert!(BATCH > 0, "a batch holds at least one callback");

    /// As [`Rcu::new`], with batches of another size.
    pub fn with_batch(nr_cpus: usize) -> Self {
        let () = Self::HAS_ROOM;
        Self {
            readers: PerCpu::new(nr_cpus, |_| Reader::new()),
            deferred: PerCpu::new(nr_cpus, |_| Deferred::new()),
            grace: Grace::new(nr_cpus),
        }
    }

    /// Begins a read section, until the guard is dropped; nests.
    #[inline]
    pub fn read(&self) -> RcuGuard<'_, P> {
        self.readers.here().enter()
    }

    /// Says whether the calling CPU is inside a read section.
    #[inline]
    pub fn is_reading(&self) -> bool {
        self.readers.here().is_inside()
    }

    /// Waits until all read sections that may see what the caller has made unreachable are over; may give the slot up
    /// meanwhile, so it is called with interrupts on and no spin lock held.
    ///
    /// # Panics
    /// Inside a read section (I1): it would wait for itself.
    pub fn synchronize(&self) {
        self.wait_for(self.grace.ticket());
    }

    /// Lets `callback` run with `head` after a grace period: by a later [`Rcu::poll`] on this CPU, or by a [`Rcu::flush`] on any.
    ///
    /// Neither allocates nor runs a callback, so it may be called under spin locks.
    ///
    /// # Safety
    /// * What `head` stands for was made unreachable for readers that begin from now on.
    /// * `head` stays valid, and nobody else touches it, until `callback` gets it.
    /// * `callback` may be called with it on any CPU; it does not sleep, and calls neither `poll`, `flush` nor `synchronize`.
    pub unsafe fn defer(&self, head: NonNull<RcuHead<P>>, callback: RcuCallback<P>) {
        // SAFETY: passed on as promised.
        unsafe { self.deferred.here().push::<BATCH>(head, callback, &self.grace) };
    }

    /// Runs those of this CPU's callbacks whose grace period has passed, and helps the current one on; never waits.
    ///
    /// Costs one load while less than a batch has been deferred on this CPU. Called where no lock is held that a callback takes.
    #[inline]
    pub fn poll(&self) {
        if self.deferred.here().has_batches() {
            self.poll_slow();
        }
    }

    /// Waits until every callback that was deferred before, on any CPU, has run; runs those that nobody else does.
    ///
    /// May give the slot up. Called with interrupts on, where no lock is held that a callback takes, and not by a callback.
    ///
    /// # Panics
    /// Inside a read section (I1).
    pub fn flush(&self) {
        for cpu in self.deferred.iter() {
            cpu.close_batch(&self.grace);
        }
        self.wait_for(self.grace.ticket());
        for cpu in self.deferred.iter() {
            cpu.run_ready(&self.grace);
        }
        for cpu in self.deferred.iter() {
            while !P::spin_until_deadline(P::now() + SLICE_NS, || !cpu.is_running()) {
                give_way::<P>();
            }
        }
    }

    /// Returns how many callbacks wait to run: exact while nobody defers or runs any.
    pub fn nr_deferred(&self) -> u64 {
        self.deferred.iter().map(Deferred::len).sum()
    }

    #[cold]
    fn poll_slow(&self) {
        let deferred = self.deferred.here();
        deferred.run_ready(&self.grace);
        if let Some(ticket) = self.deferred.here().oldest_ticket()
            && matches!(self.grace.drive(&self.readers, ticket), Progress::Complete)
        {
            self.deferred.here().run_ready(&self.grace);
        }
    }

    fn wait_for(&self, ticket: u64) {
        assert!(!self.is_reading(), "RCU I1: a read section would wait for its own end");
        loop {
            let deadline_ns = P::now() + SLICE_NS;
            match self.grace.drive(&self.readers, ticket) {
                Progress::Complete => return,
                Progress::Blocked { cpu, word } => {
                    P::spin_until_deadline(deadline_ns, || self.readers.get(cpu).has_passed(word));
                }
                Progress::Busy => {
                    P::spin_until_deadline(deadline_ns, || !self.grace.is_busy());
                }
            }
            give_way::<P>();
        }
    }
}

/// Runs a chain of callbacks, outside all locks.
fn run<P: Processor>(chain: Chain<P>) {
    for (head, callback) in chain {
        // SAFETY: `Rcu::defer` vouched for both, and the chain's grace period has passed.
        unsafe { callback(head) };
    }
}
