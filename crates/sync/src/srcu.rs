//! SRCU: read-copy-update whose readers may sleep.
//!
//! # Guarantee
//! As [`Rcu`](crate::Rcu)'s: what was reachable when a [`SrcuGuard`] was made is not freed before it is dropped, if its
//! owner makes it unreachable first and then calls [`Srcu::synchronize`] or [`Srcu::defer`]. The reader may park,
//! allocate and change its CPU in between; a grace period lasts as long as the slowest reader.
//!
//! # Words
//! Two sides, 0 and 1. Each CPU counts, for each side and on a line of its own, the readers that entered and those that
//! left. A reader may enter on one CPU and leave on another, so only sums over all CPUs mean something. `phase` is even
//! or odd: the side on which new readers enter.
//!
//! # Invariants
//! * I1 a CPU's counts are changed by the owner of its slot alone, and only grow (modulo 2^64).
//! * I2 a side is empty if the sum of its gone, read first, equals the sum of its come: a reader that is seen to have
//!   gone is seen to have come, so that nobody's going makes up for another one's coming.
//! * I3 a grace period ends after both sides were seen empty once since its beginning.
//!
//! # Race: a section begins while something is taken away
//! ```text
//! reader                            remover and scanner
//! side = phase                      make it unreachable     (any)
//! come[side] += 1                   fence SeqCst            (ticket; grace period begins)
//! fence SeqCst                      for each side: sum gone (Acquire)
//! look it up, use it, sleep                        sum come; not equal: again
//! gone[side] += 1   (Release)
//! ```
//! One of the two fences comes first. If the reader's does, the scan sees the reader come, waits until it has gone, and
//! then sees all that it did. If the scanner's does, which stands before every scan of the grace period, the reader's
//! lookups see the removal, whether the reader is counted or not. Forbidden: found and freed.
//!
//! A grace period has two phases so that it ends: it waits for the inactive side, which only readers of a stale `phase`
//! still enter, turns `phase`, and waits for the other. Without the turn, readers that follow each other would keep a
//! side from ever looking empty. Model: `tests/models/srcu.rs`.
//!
//! Source: McKenney's SRCU of 2017, on which the speculative page faults of that year stand.

use crate::rcu::domain::{Domain, Driven, Periods, Urgency};
use crate::rcu::numbers::Numbers;
use crate::{PerCpu, RcuCallback, RcuHead, SpinMutex};
use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_platform::{Atomic, CachePadded, GROUP_BITS, Ordering, Processor};

/// One domain of readers that may sleep, and of what is freed after them; see the module.
///
/// A batch of `BATCH` callbacks shares a grace period. Dropping the domain frees nothing that was deferred:
/// [`Srcu::flush`] first.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{RcuHead, Srcu, SrcuGuard};
/// use std::ptr::NonNull;
///
/// unsafe fn free(head: NonNull<RcuHead<Native>>) {
///     // SAFETY: the head was a box's.
///     drop(unsafe { Box::from_raw(head.as_ptr()) });
/// }
///
/// let srcu = Srcu::<Native>::with_batch(1);
/// Machine::new(1).attach(|| {
///     // Readers may sleep, unlike RCU's.
///     let reading: SrcuGuard<'_, Native> = srcu.read();
///     drop(reading);
///     let head = NonNull::from(Box::leak(Box::new(RcuHead::new())));
///     // SAFETY: nobody reaches the head any more, but readers that were there before.
///     unsafe { srcu.defer(head, free) };
///     srcu.poll();
///     srcu.flush();
///     assert_eq!(srcu.nr_deferred(), 0);
/// });
/// ```
pub struct Srcu<P: Processor, const BATCH: usize = 64> {
    domain: Domain<P, Sides<P>, BATCH>,
}

impl<P: Processor> Srcu<P> {
    /// Returns a domain for a machine of `nr_cpus` slots; allocates, so it is for set-up.
    pub fn new(nr_cpus: usize) -> Self {
        Self::with_batch(nr_cpus)
    }
}

impl<P: Processor, const BATCH: usize> Srcu<P, BATCH> {
    /// As [`Srcu::new`], with batches of another size.
    pub fn with_batch(nr_cpus: usize) -> Self {
        Self { domain: Domain::new(nr_cpus, Sides::new(nr_cpus)) }
    }

    /// Begins a read section, until the guard is dropped; nests.
    #[inline]
    pub fn read(&self) -> SrcuGuard<'_, P> {
        self.domain.periods.enter()
    }

    /// Waits until all read sections that may see what the caller has made unreachable are over; may give the slot up
    /// meanwhile. Called with interrupts on, no spin lock held, and outside this domain's read sections: inside it
    /// would wait for ever.
    pub fn synchronize(&self) {
        self.domain.synchronize();
    }

    /// Lets `callback` run with `head` after a grace period: by a later [`Srcu::poll`] on this CPU, or by a
    /// [`Srcu::flush`] on any.
    ///
    /// Neither allocates nor runs a callback, so it may be called under spin locks.
    ///
    /// # Safety
    /// As for [`Rcu::defer`](crate::Rcu::defer).
    pub unsafe fn defer(&self, head: NonNull<RcuHead<P>>, callback: RcuCallback<P>) {
        // SAFETY: passed on as promised.
        unsafe { self.domain.defer(head, callback) };
    }

    /// Runs those of this CPU's callbacks whose grace period has passed, and helps the current one on; never waits.
    #[inline]
    pub fn poll(&self) {
        self.domain.poll();
    }

    /// Waits until every callback that was deferred before, on any CPU, has run. Called as [`Srcu::synchronize`] is,
    /// where no lock is held that a callback takes, and not by a callback.
    pub fn flush(&self) {
        self.domain.flush();
    }

    /// Returns how many callbacks wait to run: exact while nobody defers or runs any.
    pub fn nr_deferred(&self) -> u64 {
        self.domain.nr_deferred()
    }
}

/// A CPU's counts of one side.
struct SideCounts<P: Processor> {
    come: P::AtomicU64,
    gone: P::AtomicU64,
}

/// The readers' counts, and the grace periods that wait for them.
struct Sides<P: Processor> {
    /// Every reader reads it, so it stands on a line that else nobody writes.
    phase: CachePadded<P::AtomicU64>,
    cpus: PerCpu<P, [SideCounts<P>; 2]>,
    numbers: Numbers<P>,
    scan: CachePadded<SpinMutex<P, Stage>>,
}

/// What the grace period at work waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The inactive side: only readers of a stale phase still enter.
    IdleSide,
    /// The side on which readers came before the phase was turned.
    UsedSide,
}

/// Who keeps a grace period from ending.
enum SrcuProgress {
    Complete,
    Blocked { side: usize },
    Busy,
}

impl<P: Processor> Sides<P> {
    fn new(nr_cpus: usize) -> Self {
        let side = || SideCounts { come: P::AtomicU64::new(0), gone: P::AtomicU64::new(0) };
        Self {
            phase: CachePadded::new(P::AtomicU64::new(0)),
            cpus: PerCpu::new(nr_cpus, |_| [side(), side()]),
            numbers: Numbers::new(nr_cpus, GROUP_BITS),
            scan: CachePadded::new(SpinMutex::new(Stage::IdleSide)),
        }
    }

    fn used_side(&self) -> usize {
        // Relaxed: either side will do, the scanner waits for both (I3).
        self.phase.load(Ordering::Relaxed) as usize % 2
    }

    #[inline]
    fn enter(&self) -> SrcuGuard<'_, P> {
        let side = self.used_side();
        // Relaxed: the fence orders it.
        bump::<P>(&self.cpus.here()[side].come, Ordering::Relaxed);
        // ORDER: pairs with the fence in `Numbers::begin`; forbids found and freed (module table).
        P::fence(Ordering::SeqCst);
        SrcuGuard { sides: self, side, is_thread_bound: PhantomData }
    }

    #[inline]
    fn leave(&self, side: usize) {
        // ORDER: Release pairs with the Acquire in `is_empty`: the section is over, and that it came is seen too (I2).
        bump::<P>(&self.cpus.here()[side].gone, Ordering::Release);
    }

    /// Says whether all who came on a side, before this call or during it, have gone (I2).
    fn is_empty(&self, side: usize) -> bool {
        // ORDER: Acquire pairs with the Release in `leave`, and comes before the sum below (I2).
        let gone = self.sum(|cpu| cpu[side].gone.load(Ordering::Acquire));
        // Relaxed: a reader that is missed began after the fence in `Numbers::begin` and finds nothing (module table).
        gone == self.sum(|cpu| cpu[side].come.load(Ordering::Relaxed))
    }

    fn sum(&self, count: impl Fn(&[SideCounts<P>; 2]) -> u64) -> u64 {
        self.cpus.iter().fold(0, |sum, cpu| sum.wrapping_add(count(cpu)))
    }

    fn advance(&self, ticket: u64) -> SrcuProgress {
        while !self.numbers.is_complete(ticket) {
            // A look leaves the one at work its line; a try would take it.
            if self.scan.is_locked() {
                return SrcuProgress::Busy;
            }
            let Some(mut stage) = self.scan.try_lock() else { return SrcuProgress::Busy };
            if !self.numbers.is_at_work() {
                self.numbers.begin();
                *stage = Stage::IdleSide;
            }
            if let Err(side) = self.go_on(&mut stage) {
                return SrcuProgress::Blocked { side };
            }
            self.numbers.end();
        }
        SrcuProgress::Complete
    }

    /// Takes the grace period at work through its stages; says which side is in the way.
    fn go_on(&self, stage: &mut Stage) -> Result<(), usize> {
        if *stage == Stage::IdleSide {
            let idle = 1 - self.used_side();
            if !self.is_empty(idle) {
                return Err(idle);
            }
            // Relaxed: on which side a reader enters matters for the end of waits alone.
            bump::<P>(&self.phase, Ordering::Relaxed);
            *stage = Stage::UsedSide;
        }
        let used_before = 1 - self.used_side();
        if self.is_empty(used_before) { Ok(()) } else { Err(used_before) }
    }
}

/// Adds 1 to a word that one thread at a time writes.
#[inline]
fn bump<P: Processor>(word: &P::AtomicU64, order: Ordering) {
    // Relaxed: only the caller writes it. ORDER: the caller's.
    word.store(word.load(Ordering::Relaxed).wrapping_add(1), order);
}

impl<P: Processor> Periods<P> for Sides<P> {
    fn numbers(&self) -> &Numbers<P> {
        &self.numbers
    }

    fn drive(&self, ticket: u64, _urgency: Urgency) -> Driven {
        match self.advance(ticket) {
            SrcuProgress::Complete => Driven::Complete,
            SrcuProgress::Blocked { .. } => Driven::Blocked,
            SrcuProgress::Busy => Driven::Busy,
        }
    }

    fn drive_until(&self, ticket: u64, deadline_ns: u64) -> bool {
        match self.advance(ticket) {
            SrcuProgress::Complete => return true,
            SrcuProgress::Blocked { side } => {
                P::spin_until_deadline(deadline_ns, || self.is_empty(side));
            }
            SrcuProgress::Busy => {
                P::spin_until_deadline(deadline_ns, || !self.scan.is_locked());
            }
        }
        false
    }
}

/// A read section; ends when dropped, on whichever CPU its thread runs then.
#[must_use = "the read section ends as soon as the guard is dropped"]
pub struct SrcuGuard<'a, P: Processor> {
    sides: &'a Sides<P>,
    side: usize,
    is_thread_bound: PhantomData<*const ()>,
}

impl<P: Processor> Drop for SrcuGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.sides.leave(self.side);
    }
}
