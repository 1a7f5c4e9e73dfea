//! One CPU as `sync` sees it: atomics, interrupts, spinning, parking.
//!
//! # Guarantee
//! Static functions and associated types only: on `Native` they compile down to plain instructions.
//! All of them but `enter`, `leave`, `now` and `unpark` are called by a thread that owns a slot.

use crate::{Atomic, AtomicInteger};
use core::sync::atomic::Ordering;

/// Names a thread that may own a lock; kept in lock words as [`ThreadToken::bits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadToken(usize);

impl ThreadToken {
    /// Nobody.
    pub const NONE: Self = Self(0);

    /// Returns the token that these bits stand for; unknown bits name a thread that never runs.
    #[inline]
    pub const fn from_bits(bits: usize) -> Self {
        Self(bits)
    }

    /// Returns the token as a word; 0 is [`ThreadToken::NONE`].
    #[inline]
    pub const fn bits(self) -> usize {
        self.0
    }
}

/// Something worth a line in a trace; compiled to nothing unless a platform records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A give-up, a lock or another named point, with a value that the name explains.
    Point {
        /// What happened, in the words of the field (`pagefault:spf_vma_changed`).
        name: &'static str,
        /// Usually an address.
        value: u64,
    },
}

/// What a CPU offers to code that runs on it.
pub trait Processor: Sized + 'static {
    /// An atomic `bool`.
    type AtomicBool: Atomic<Value = bool>;
    /// An atomic `u8`.
    type AtomicU8: AtomicInteger<Value = u8>;
    /// An atomic `u16`.
    type AtomicU16: AtomicInteger<Value = u16>;
    /// An atomic `u32`; the width that [`Processor::park`] waits on.
    type AtomicU32: AtomicInteger<Value = u32>;
    /// An atomic `u64`.
    type AtomicU64: AtomicInteger<Value = u64>;
    /// An atomic `usize`.
    type AtomicUsize: AtomicInteger<Value = usize>;
    /// An atomic pointer.
    type AtomicPtr<T>: Atomic<Value = *mut T>;

    /// Orders memory accesses as `core::sync::atomic::fence` does.
    fn fence(order: Ordering);

    /// Returns the number of CPU slots of this machine, 1 to [`MAX_CPUS`](crate::MAX_CPUS).
    fn nr_cpus() -> usize;
    /// Returns the slot that this thread owns.
    fn cpu() -> usize;
    /// Takes a free slot, waiting in line for one.
    fn enter();
    /// Gives the slot up, to the first in line.
    fn leave();

    /// Holds interrupts off on this CPU; nests.
    fn irq_off();
    /// Undoes one [`Processor::irq_off`].
    fn irq_on();

    /// Names the calling thread.
    fn current() -> ThreadToken;
    /// Says whether a thread owns a slot now; a hint for those who spin on a lock that it holds.
    fn is_running(thread: ThreadToken) -> bool;
    /// Says whether another thread waits for a slot: a spinner should give way.
    fn should_yield() -> bool;

    /// Returns the time in ns since some fixed instant.
    fn now() -> u64;

    /// Waits until `condition` holds. The condition reads atomics of this platform only and has no side effects.
    /// Serves shootdowns meanwhile, unless interrupts are off.
    fn spin_until(condition: impl FnMut() -> bool);
    /// As [`Processor::spin_until`], but gives up when [`Processor::now`] reaches `deadline_ns`; says whether the condition held.
    fn spin_until_deadline(deadline_ns: u64, condition: impl FnMut() -> bool) -> bool;

    /// Sleeps while `word` holds `expected`, giving the slot up meanwhile: the contract of a futex.
    ///
    /// The comparison and the falling asleep are one step for those who change the word and then call
    /// [`Processor::unpark`]. May return without reason: call it in a loop. On return the thread owns a slot, maybe another one.
    fn park(word: &Self::AtomicU32, expected: u32);
    /// Wakes up to `threads` of those parked on `word`; returns how many.
    ///
    /// The address is a name: the word may be gone, with the stack of the one who had waited there. Whoever parks on a
    /// word that has come to stand there since wakes early.
    fn unpark(word: *const Self::AtomicU32, threads: usize) -> usize;

    /// Notes an event.
    #[inline]
    fn trace(_event: Event) {}
}
