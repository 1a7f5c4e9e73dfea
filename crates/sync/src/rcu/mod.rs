//! Read-copy-update: readers write only their own line, and what they may still see is freed after them.
//!
//! # Guarantee
//! What was reachable when a [`RcuGuard`] was made, or became so later, is not freed before the guard is dropped, if
//! its owner makes it unreachable first and then calls [`Rcu::synchronize`] or [`Rcu::defer`].
//!
//! # Invariants
//! * I1 nobody parks, waits for a slot or sleeps inside a read section.
//! * I2 a reader's word is changed by the owner of its slot alone.
//! * I3 a grace period that starts after a fence ends after every section that began before that fence's removals were
//!   visible.
//!
//! # Race: a section begins while something is taken away
//! ```text
//! reader                            remover
//! word = inside        (Release)    make it unreachable     (any)
//! fence SeqCst                      fence SeqCst            (ticket)
//! look it up, use it                read the number: a grace period that begins later will do
//!                                   scanner: it has begun; fence SeqCst; read the words
//! word = outside       (Release)                read the words again (Acquire), until outside
//! ```
//! Of the reader's and the scanner's fence one comes first. The reader's: the scan sees it inside, and waits; its
//! accesses happen before the free by the Release of its exit. The scanner's: the remover's fence came before that one,
//! or it would have read the larger number, so the reader's lookups see the removal. Forbidden: found and freed.
//! Models: `tests/models/rcu.rs`. [`Rcu::await_sections_of`] is the scanner's column alone, done by the remover.
//!
//! # Rooms
//! `reader` is the word of a CPU; `numbers` numbers grace periods, `grace` drives RCU's, without a thread of its own;
//! `deferred` keeps what waits to be freed; `domain` brings both together, for RCU and for [`Srcu`](crate::Srcu).

mod deferred;
pub(crate) mod domain;
mod grace;
pub(crate) mod numbers;
mod reader;

use domain::{Domain, Periods};
use faultless_platform::{GROUP_BITS, Processor};
use grace::Grace;

pub use deferred::{RcuCallback, RcuHead};
pub use reader::{RcuGuard, SlotKept};

use core::ptr::NonNull;

/// One domain of readers and of what is freed after them.
///
/// A batch of `BATCH` callbacks shares a grace period; in tests it shrinks, so that rare paths are common. Dropping the
/// domain frees nothing that was deferred: [`Rcu::flush`] first.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{Rcu, RcuCallback, RcuHead};
/// use std::ptr::NonNull;
///
/// unsafe fn free(head: NonNull<RcuHead<Native>>) {
///     // SAFETY: the head was a box's.
///     drop(unsafe { Box::from_raw(head.as_ptr()) });
/// }
/// let callback: RcuCallback<Native> = free;
///
/// let rcu = Rcu::<Native>::with_batch(2);
/// Machine::new(2).attach(|| {
///     let section = rcu.read();
///     assert!(rcu.is_reading());
///     drop(section);
///     let head = NonNull::from(Box::leak(Box::new(RcuHead::new())));
///     // SAFETY: nobody reaches the head any more, but readers that were there before.
///     unsafe { rcu.defer(head, callback) };
///     assert_eq!(rcu.nr_deferred(), 1);
///     // Now and then, where no lock is held.
///     rcu.poll();
///     // Before a test counts what is left.
///     rcu.flush();
///     assert_eq!(rcu.nr_deferred(), 0);
///     // A change that readers on CPU 1 must have seen.
///     rcu.await_sections_of([1]);
/// });
/// ```
pub struct Rcu<P: Processor, const BATCH: usize = 64> {
    domain: Domain<P, Grace<P>, BATCH>,
}

impl<P: Processor> Rcu<P> {
    /// Returns a domain for a machine of `nr_cpus` slots; allocates, so it is for set-up.
    pub fn new(nr_cpus: usize) -> Self {
        Self::with_batch(nr_cpus)
    }
}

impl<P: Processor, const BATCH: usize> Rcu<P, BATCH> {
    /// As [`Rcu::new`], with batches of another size.
    pub fn with_batch(nr_cpus: usize) -> Self {
        Self::with_groups(nr_cpus, GROUP_BITS)
    }

    /// As [`Rcu::with_batch`], with `1 << group_bits` CPUs in a group that is looked at together.
    /// For tests, which make groups of one or two CPUs to reach what takes several.
    pub fn with_groups(nr_cpus: usize, group_bits: u32) -> Self {
        Self { domain: Domain::new(nr_cpus, Grace::new(nr_cpus, group_bits)) }
    }

    /// Tells observers where CPUs say that they read.
    /// Called by the owner of the memory, when an instance is made.
    pub fn tell_names(&self) {
        self.domain.periods.readers.tell("where CPUs say that they are in a read section");
    }

    /// Begins a read section, until the guard is dropped; nests.
    ///
    /// # Panics
    /// If 65,535 sections are nested already: a CPU that counted on would look as though it were in none.
    #[inline]
    pub fn read(&self) -> RcuGuard<'_, P> {
        let cpu = P::cpu();
        self.domain.periods.readers.get(cpu).enter(cpu)
    }

    /// As [`Rcu::read`], where a section that nests in another one sees what was done before it, too.
    #[inline]
    pub(crate) fn read_fenced(&self) -> RcuGuard<'_, P> {
        let cpu = P::cpu();
        self.domain.periods.readers.get(cpu).enter_fenced(cpu)
    }

    /// Says whether the calling CPU is inside a read section.
    #[inline]
    pub fn is_reading(&self) -> bool {
        self.domain.periods.readers.here().is_inside()
    }

    /// Says whether a CPU is inside a read section, behind a fence of the caller's: one that is not, and begins a
    /// section later, sees what the caller did before that fence.
    /// For a caller that takes a CPU out of a set on which its sections rely.
    #[inline]
    pub fn is_cpu_reading(&self, cpu: usize) -> bool {
        self.domain.periods.readers.get(cpu).look().is_inside()
    }

    /// Waits until all read sections that may see what the caller has made unreachable are over; may give the slot up
    /// meanwhile, so it is called with interrupts on and no spin lock held.
    ///
    /// # Panics
    /// Inside a read section (I1): it would wait for itself.
    pub fn synchronize(&self) {
        self.check_outside();
        self.domain.synchronize();
    }

    /// Returns a ticket for [`Rcu::is_over`]: of a grace period that begins later, and so waits for all read sections
    /// that may see what the caller has made unreachable.
    ///
    /// ```
    /// use faultless_platform::native::{Machine, Native};
    /// use faultless_sync::Rcu;
    ///
    /// let rcu = Rcu::<Native>::new(1);
    /// Machine::new(1).attach(|| {
    ///     let ticket = rcu.ticket();
    ///     assert!(!rcu.is_over(ticket));
    ///     rcu.synchronize();
    ///     assert!(rcu.is_over(ticket));
    /// });
    /// ```
    pub fn ticket(&self) -> u64 {
        self.domain.periods.numbers().ticket()
    }

    /// Says whether the grace period of a ticket has ended; nobody drives it for that.
    pub fn is_over(&self, ticket: u64) -> bool {
        self.domain.periods.numbers().is_complete(ticket)
    }

    /// Waits until the sections that these CPUs are in now are over, and no longer: who begins one meanwhile sees what
    /// the caller did before. A grace period for few readers, of which no number is kept. May give the slot up, as
    /// [`Rcu::synchronize`], unless it is kept ([`Rcu::keep_slot`]).
    ///
    /// A CPU that the caller does not name must have no section that began before, or none that matters.
    ///
    /// # Panics
    /// Inside a read section (I1).
    pub fn await_sections_of(&self, cpus: impl IntoIterator<Item = usize>) {
        self.check_outside();
        self.domain.periods.await_sections_of(cpus);
    }

    /// Keeps the calling CPU's slot until the guard is dropped: no wait of this domain gives it up meanwhile, nor does
    /// an allocation that waits for grace periods. For a caller who has put something down by the CPU's number. Nests.
    ///
    /// Others lose no more than time: a grace period waits for sections, whose owners have slots of their own (I1), and
    /// for nobody who has given his up.
    ///
    /// ```
    /// use faultless_platform::native::{Machine, Native};
    /// use faultless_sync::{Rcu, SlotKept};
    ///
    /// let rcu = Rcu::<Native>::new(2);
    /// Machine::new(2).attach(|| {
    ///     let kept: SlotKept<'_, Native> = rcu.keep_slot();
    ///     rcu.flush();
    ///     drop(kept);
    /// });
    /// ```
    pub fn keep_slot(&self) -> SlotKept<'_, P> {
        self.domain.periods.readers.here().keep_slot()
    }

    /// Lets `callback` run with `head` after a grace period: by a later [`Rcu::poll`] on this CPU, or by a
    /// [`Rcu::flush`] on any.
    ///
    /// Neither allocates nor runs a callback, so it may be called under spin locks.
    ///
    /// # Safety
    /// * What `head` stands for was made unreachable for readers that begin from now on.
    /// * `head` stays valid, and nobody else touches it, until `callback` gets it.
    /// * `callback` may be called with it on any CPU; it does not sleep, and calls neither `poll`, `flush` nor
    ///   `synchronize`.
    pub unsafe fn defer(&self, head: NonNull<RcuHead<P>>, callback: RcuCallback<P>) {
        // SAFETY: passed on as promised.
        unsafe { self.domain.defer(head, callback) };
    }

    /// Runs those of this CPU's callbacks whose grace period has passed, and helps the current one on; never waits.
    ///
    /// Costs one load while less than a batch has been deferred on this CPU, and a few while another CPU drives: then
    /// most polls pass without a look. Called where no lock is held that a callback takes.
    #[inline]
    pub fn poll(&self) {
        self.domain.poll();
    }

    /// Waits until every callback that was deferred before, on any CPU, has run; runs those that nobody else does.
    ///
    /// May give the slot up. Called with interrupts on, where no lock is held that a callback takes, and not by a
    /// callback.
    ///
    /// # Panics
    /// Inside a read section (I1).
    pub fn flush(&self) {
        self.check_outside();
        self.domain.flush();
    }

    /// Returns how many callbacks wait to run: exact while nobody defers or runs any.
    pub fn nr_deferred(&self) -> u64 {
        self.domain.nr_deferred()
    }

    fn check_outside(&self) {
        assert!(!self.is_reading(), "RCU I1: a read section would wait for its own end");
    }
}
