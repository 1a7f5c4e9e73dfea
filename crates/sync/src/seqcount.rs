//! A sequence count: readers write nothing and notice that a writer came between.
//!
//! # Guarantee
//! If [`SeqCount::is_unchanged`] holds for what [`SeqCount::read`] returned, then all that was read between both was
//! there at one instant: no writer was at work, and none has been. The data are atomics, read and written Relaxed.
//!
//! # Word first
//! Even: nobody writes. Odd: a writer is at work. Each end of a write adds 1, modulo 2^BITS; 64 bits wrap after
//! centuries, 4 to 8 bits in tests, so that a reader that sleeps through a whole turn is something one can watch.
//!
//! # Invariants
//! * I1 writers are serialised by their caller, so the writer changes the word by load and store.
//! * I2 an odd count is never unchanged.
//!
//! # Race
//! ```text
//! writer                           reader
//! count = odd          (Relaxed)   a = count            (Acquire)
//! fence Release                    x, y = data          (Relaxed)
//! data = x', y'        (Relaxed)   fence Acquire
//! count = even + 2     (Release)   accept if a is even and count == a
//! ```
//! Forbidden: accepting x' with y. A reader that saw x' or y' synchronises with the writer's fence, so its second look
//! sees the odd count or a later one. A reader that began with the new even count has seen both. Model:
//! `tests/models/seqcount.rs`.

use core::marker::PhantomData;
use faultless_platform::mutant;
use faultless_platform::{Atomic, Ordering, Processor};

/// What a sequence count showed at one moment; [`SeqCount::read`] returns it, [`SeqCount::is_unchanged`] takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a count that is never compared proves nothing"]
pub struct Seq(u64);

impl Seq {
    /// Says whether a writer was at work: nothing read now can be accepted.
    /// [`SeqCount`] has an example; a speculative fault calls it to give up before it reads anything.
    #[inline]
    pub fn is_write_in_progress(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns the count itself.
    /// A design that compares counts of two moments itself calls it.
    #[inline]
    pub fn value(self) -> u64 {
        self.0
    }
}

/// A sequence count of `BITS` bits.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::{Seq, SeqCount, SeqWriteGuard};
///
/// assert!(!SeqCount::<Native>::new().read().is_write_in_progress());
/// let count = SeqCount::<Native>::new_in_write();
/// assert!(count.read().is_write_in_progress(), "nobody accepts what is not there yet");
/// count.end_write();
///
/// let before: Seq = count.read();
/// assert_eq!((before.is_write_in_progress(), before.value() % 2), (false, 0));
/// let change: SeqWriteGuard<'_, Native> = count.write();
/// drop(change);
/// assert!(!count.is_unchanged(before), "read it again");
///
/// count.begin_write();
/// count.end_write();
/// assert!(count.is_unchanged(count.read()));
/// ```
pub struct SeqCount<P: Processor, const BITS: u32 = 64> {
    count: P::AtomicU64,
}

impl<P: Processor, const BITS: u32> SeqCount<P, BITS> {
    const MASK: u64 = {
        assert!(BITS >= 2 && BITS <= 64, "a sequence count has 2 to 64 bits");
        u64::MAX >> (64 - BITS)
    };

    /// Returns a count at 0: nobody writes.
    pub fn new() -> Self {
        Self { count: P::AtomicU64::new(0) }
    }

    /// Returns a count that looks as after [`SeqCount::begin_write`], for data that nobody has reached yet.
    pub fn new_in_write() -> Self {
        Self { count: P::AtomicU64::new(1) }
    }

    /// Begins a write, until the guard is dropped. The caller serialises writers (I1).
    #[inline]
    pub fn write(&self) -> SeqWriteGuard<'_, P, BITS> {
        self.begin_write();
        SeqWriteGuard { count: self, is_thread_bound: PhantomData }
    }

    /// Begins a write that [`SeqCount::end_write`] ends. The caller serialises writers (I1).
    #[inline]
    pub fn begin_write(&self) {
        // Relaxed: the writer's own word.
        debug_assert_eq!(self.count.load(Ordering::Relaxed) & 1, 0, "I1: a write begins inside a write");
        self.step(Ordering::Relaxed);
        // ORDER: pairs with the fence in `is_unchanged`: whoever sees a store of this write sees the odd count.
        P::fence(Ordering::Release);
    }

    /// Ends the write that [`SeqCount::begin_write`] began.
    #[inline]
    pub fn end_write(&self) {
        // ORDER: Release pairs with the Acquire in `read`: whoever begins with this count sees the whole write.
        self.step(Ordering::Release);
    }

    /// Begins a read.
    #[inline]
    pub fn read(&self) -> Seq {
        // ORDER: Acquire pairs with the Release in `end_write`.
        Seq(self.count.load(Ordering::Acquire))
    }

    /// Ends a read: says whether what was read since `seq` was there at one instant.
    #[inline]
    #[must_use = "what was read may be torn"]
    pub fn is_unchanged(&self, seq: Seq) -> bool {
        // ORDER: pairs with the fence in `begin_write`; orders the data's loads before the second look.
        P::fence(Ordering::Acquire);
        // Relaxed: the fence orders it.
        !seq.is_write_in_progress() && self.count.load(Ordering::Relaxed) == seq.0
    }

    fn step(&self, order: Ordering) {
        let mask = mutant!(SequenceWraps, Self::MASK => 3);
        // Relaxed: only a serialised writer changes the count (I1).
        let next = self.count.load(Ordering::Relaxed).wrapping_add(1) & mask;
        // ORDER: the caller's, see there.
        self.count.store(next, order);
    }
}

impl<P: Processor, const BITS: u32> Default for SeqCount<P, BITS> {
    fn default() -> Self {
        Self::new()
    }
}

/// A write at work; ends when dropped.
#[must_use = "the write ends as soon as the guard is dropped"]
pub struct SeqWriteGuard<'a, P: Processor, const BITS: u32 = 64> {
    count: &'a SeqCount<P, BITS>,
    is_thread_bound: PhantomData<*const ()>,
}

impl<P: Processor, const BITS: u32> Drop for SeqWriteGuard<'_, P, BITS> {
    #[inline]
    fn drop(&mut self) {
        self.count.end_write();
    }
}
