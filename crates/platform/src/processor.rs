//! One CPU as `sync` sees it: atomics, interrupts, spinning, parking.
//!
//! # Guarantee
//! Static functions and associated types only: on `Native` they compile down to plain instructions.
//! All of them but `enter`, `prefer`, `leave`, `now`, `unpark` and `try_cpu` are called by a thread that owns a slot;
//! on `Native` the locks of `sync` ask nothing else of a thread, bound to a machine or not, so that any can use them.

use crate::{Atomic, AtomicInteger};
use core::panic::Location;
use core::sync::atomic::Ordering;

/// Names a thread that may own a lock; kept in lock words as [`ThreadToken::bits`].
///
/// ```
/// use faultless_platform::ThreadToken;
///
/// // A lock's owner in one word, as a semaphore keeps it.
/// let word = ThreadToken::from_bits(3).bits();
/// assert_eq!(ThreadToken::from_bits(word), ThreadToken::from_bits(3));
/// assert_eq!(ThreadToken::NONE.bits(), 0);
/// ```
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

/// A lock, as those who watch see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockId {
    /// What kind of lock.
    pub name: &'static str,
    /// Where it stands.
    pub address: usize,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holding {
    /// By any number of readers.
    Shared,
    /// By a writer, who keeps readers out.
    Alone,
    /// By the only one who can, of a lock that makes no such difference.
    Plain,
}

/// Something worth a line in a trace; compiled to nothing unless [`Processor::WATCHED`] says that somebody wants it.
///
/// A lock says that it was taken by [`Processor::trace`]; whoever watches takes events apart by kind.
///
/// ```
/// use faultless_platform::{Tracepoint, Holding, LockId};
///
/// fn line(event: Tracepoint) -> String {
///     match event {
///         Tracepoint::LockReleased { lock: LockId { name, .. }, holding: Holding::Alone } => format!("{name}: a writer leaves"),
///         Tracepoint::Named { name, len_bytes, .. } => format!("{name}: {len_bytes} bytes"),
///         _ => String::new(),
///     }
/// }
/// assert_eq!(line(Tracepoint::named("a space's counters", &[0_u64; 4])), "a space's counters: 32 bytes");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tracepoint {
    /// A give-up or another named point, with a value that the name explains.
    Point {
        /// What happened, in the words of the field (`pagefault:spf_vma_changed`).
        name: &'static str,
        /// Usually an address.
        value: u64,
    },
    /// A lock was taken.
    LockTaken {
        /// Which.
        lock: LockId,
        /// How.
        holding: Holding,
        /// The line of code that wanted it.
        site: &'static Location<'static>,
        /// The function that it belongs to, where its caller said so; otherwise empty.
        function: &'static str,
        /// How long it was waited for; nothing if it was free.
        waited_ns: Option<u64>,
    },
    /// A lock was not free, and whoever tried does not wait.
    LockRefused {
        /// Which.
        lock: LockId,
        /// How it was wanted.
        holding: Holding,
        /// The line of code that wanted it.
        site: &'static Location<'static>,
    },
    /// A lock is about to be released, by the thread that took it.
    LockReleased {
        /// Which.
        lock: LockId,
        /// How it was held.
        holding: Holding,
    },
    /// The thread waits for what this names, until [`Tracepoint::WaitEnds`]; waits nest.
    WaitBegins {
        /// A lock's name; empty if reports have none for it.
        name: &'static str,
    },
    /// The wait that began last is over.
    WaitEnds {
        /// How much of it belongs to nothing that is measured.
        aside_ns: u64,
    },
    /// The thread begins with what it is measured by.
    WorkBegins,
    /// It has done that.
    WorkEnds,
    /// Memory has a name from now on, in place of the one that it had.
    Named {
        /// What lies there, for reports.
        name: &'static str,
        /// Where it begins.
        address: usize,
        /// How long it is.
        len_bytes: usize,
    },
}

impl Tracepoint {
    /// Returns the event that gives an object's memory a name.
    pub fn named<T>(name: &'static str, object: &T) -> Self {
        Self::Named { name, address: core::ptr::from_ref(object).addr(), len_bytes: size_of::<T>() }
    }

    /// As [`Tracepoint::named`], of objects that lie in a row.
    /// Called by whoever makes a row of which each CPU has a cell.
    #[inline]
    pub fn named_row<T>(name: &'static str, row: &[T]) -> Self {
        Self::Named { name, address: row.as_ptr().addr(), len_bytes: size_of_val(row) }
    }
}

/// What a CPU offers to code that runs on it.
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | whoever starts threads | `prefer`, `enter`, `leave`: around all that a thread does with the library; locks that sleep and `Vm`'s teardown too |
/// | everything kept for each CPU | `cpu`, `nr_cpus`; `try_cpu` where a thread without a slot may come by, as statistics of locks |
/// | [`IrqOffGuard`](crate::IrqOffGuard), and so the spin locks of allocators and TLB inboxes | `irq_off`, `irq_on` |
/// | spin locks, grace periods, shootdowns | `spin_until`, `spin_until_deadline`, `fence` |
/// | semaphores, per-area locks, events, barriers | `park`, `park_until`, `unpark` |
/// | semaphores that spin on their owner, queues of spinners | `current`, `is_running`, `is_known`, `should_yield` |
/// | queues of spinners that prefer their own node's | `node` |
/// | semaphores with deadlines, reports | `now` |
/// | what is compiled in where `WATCHED` holds: lock statistics, named memory, give-ups of faults | `trace`, `watch_clock` |
pub trait Processor: Sized + 'static {
    /// Whether somebody wants events. Code that does more than name one asks first, so that it is compiled to nothing.
    const WATCHED: bool = false;

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
    // ORDER: the caller's; it names the pair.
    fn fence(order: Ordering);
    /// As a sequentially consistent [`Processor::fence`], of a thread whose last access that the fence must order was a
    /// read-modify-write, of any ordering: where the processor's are fences themselves it costs nothing.
    ///
    /// Linux's `smp_mb__after_atomic` (its `Documentation/atomic_t.txt`).
    ///
    /// ```
    /// use faultless_platform::native::Native;
    /// use faultless_platform::{Atomic, Ordering, Processor};
    ///
    /// let (mine, theirs) = (<Native as Processor>::AtomicU32::from(0), <Native as Processor>::AtomicU32::from(0));
    /// mine.swap(1, Ordering::Relaxed);
    /// // Of two threads that do this, each with the other's word, one at least finds a 1.
    /// Native::fence_after_rmw();
    /// theirs.load(Ordering::Relaxed);
    /// ```
    #[inline(always)]
    #[track_caller]
    fn fence_after_rmw() {
        // ORDER: the caller's; it names the pair.
        Self::fence(Ordering::SeqCst);
    }

    /// Returns the number of CPU slots of this machine, 1 to [`MAX_CPUS`](crate::MAX_CPUS).
    fn nr_cpus() -> usize;
    /// Returns the slot that this thread owns.
    fn cpu() -> usize;
    /// Returns the slot that this thread owns, if it owns one.
    fn try_cpu() -> Option<usize> {
        Some(Self::cpu())
    }
    /// Takes a free slot, waiting in line for one.
    fn enter();
    /// Says which slot the calling thread, which owns none, would rather have next. A hint: it may get another one.
    fn prefer(_cpu: usize) {}
    /// Gives the slot up, to the first in line.
    fn leave();
    /// Returns the NUMA node of the CPU that the thread runs on: CPUs of one node are near to each other. A hint; 0 for
    /// all unless the platform knows better.
    fn node() -> usize {
        0
    }

    /// Holds interrupts off on this CPU; nests.
    fn irq_off();
    /// Undoes one [`Processor::irq_off`].
    fn irq_on();

    /// Names the calling thread.
    fn current() -> ThreadToken;
    /// Says whether a thread owns a slot now; a hint for those who spin on a lock that it holds.
    fn is_running(thread: ThreadToken) -> bool;
    /// Says whether [`Processor::is_running`] knows of that thread. If not it says yes, and a spinner believes it for a
    /// short time.
    fn is_known(_thread: ThreadToken) -> bool {
        true
    }
    /// Says whether another thread waits for a slot: a spinner should give way.
    fn should_yield() -> bool;

    /// Returns the time in ns since some fixed instant.
    fn now() -> u64;
    /// Returns the same time for those who watch; on a machine of our own making, looking at it takes none.
    fn watch_clock() -> u64 {
        Self::now()
    }

    /// Waits until `condition` holds. The condition reads atomics of this platform only and has no side effects.
    /// Serves shootdowns meanwhile, unless interrupts are off.
    fn spin_until(condition: impl FnMut() -> bool);
    /// As [`Processor::spin_until`], but gives up when [`Processor::now`] reaches `deadline_ns`; says whether the
    /// condition held.
    fn spin_until_deadline(deadline_ns: u64, condition: impl FnMut() -> bool) -> bool;

    /// Sleeps while `word` holds `expected`, giving the slot up meanwhile: the contract of a futex.
    ///
    /// The comparison and the falling asleep are one step for those who change the word and then call
    /// [`Processor::unpark`]. May return without reason: call it in a loop. On return the thread owns a slot, maybe
    /// another one.
    fn park(word: &Self::AtomicU32, expected: u32);
    /// As [`Processor::park`], but until `deadline_ns` at the latest. A platform that says nothing else waits awake.
    fn park_until(word: &Self::AtomicU32, expected: u32, deadline_ns: u64) {
        // Relaxed: callers read the word again with their own ordering.
        Self::spin_until_deadline(deadline_ns, || word.load(Ordering::Relaxed) != expected);
    }
    /// Wakes up to `threads` of those parked on `word`; returns how many.
    ///
    /// The address is a name: the word may be gone, with the stack of the one who had waited there. Whoever parks on a
    /// word that has come to stand there since wakes early.
    fn unpark(word: *const Self::AtomicU32, threads: usize) -> usize;

    /// Notes an event.
    #[inline]
    fn trace(_event: Tracepoint) {}
}
