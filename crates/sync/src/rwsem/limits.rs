//! How long a wait for a semaphore may last: until an instant, or until somebody interrupts it.
//!
//! # Guarantee
//! A wait that ends by its limits leaves nothing behind: the waiter is out of the line, and whoever could go on for its
//! leaving does. A lock that is granted while its waiter gives up is had, and the wait ends well.
//!
//! # Race: interrupted while about to sleep
//! ```text
//! raise                                  waiter
//! is_raised = true                       lock; sleeper = (&word, value); unlock
//! lock; sleeper's word: value -> another is_raised? then give up
//!    unpark; unlock                      park(&word, value)
//!                                        lock; sleeper = null; unlock
//! ```
//! The lock orders both: the waiter comes first, and then its state is changed; or `raise` does, and then the waiter
//! sees it. The word stays while it is named, because the waiter unnames it under the lock. Model:
//! `an_interrupted_waiter_leaves_the_line` in `tests/models/rwsem.rs`.

use crate::SpinMutex;
use core::ptr;
use faultless_platform::{Atomic, Ordering, Processor};

/// Why a wait ended without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The instant has come until which it was to last.
    TimedOut,
    /// It was interrupted.
    Interrupted,
}

impl core::fmt::Display for Ended {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the lock could not be had in time",
            Self::Interrupted => "the wait for the lock was interrupted",
        })
    }
}

impl core::error::Error for Ended {}

/// How long two looks at an interrupt lie apart, where another thread's sleep stands in the way of being told.
const POLL_NS: u64 = 1_000_000;

/// Something by which one thread ends another's waits: Linux's pending signal.
///
/// It belongs to the thread that waits with it. If several wait with one at the same time, all but the first look once
/// a millisecond.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::Interrupt;
///
/// let stop = Interrupt::<Native>::new();
/// stop.raise();
/// assert!(stop.is_raised(), "who waits now, or later, is woken");
/// stop.clear();
/// assert!(!stop.is_raised());
/// ```
pub struct Interrupt<P: Processor> {
    is_raised: P::AtomicBool,
    sleeper: SpinMutex<P, Sleeper<P>>,
}

/// The word that somebody sleeps on, null if nobody does, and what it holds meanwhile.
struct Sleeper<P: Processor>(*const P::AtomicU32, u32);

/// What is added to a word to rouse who sleeps on it.
pub(super) const ROUSING: u32 = 2;

// SAFETY: the pointer is followed under the lock alone, while its owner waits for the lock to unname it.
unsafe impl<P: Processor> Send for Sleeper<P> {}

impl<P: Processor> Interrupt<P> {
    /// Returns one that is not raised.
    pub fn new() -> Self {
        Self { is_raised: P::AtomicBool::new(false), sleeper: SpinMutex::new(Sleeper(ptr::null(), 0)) }
    }

    /// Ends the wait of whoever waits with it, and all waits that begin before it is cleared.
    pub fn raise(&self) {
        // Relaxed: the lock orders it (module table).
        self.is_raised.store(true, Ordering::Relaxed);
        let sleeper = self.sleeper.lock();
        // SAFETY: named, so its owner still waits, or waits for the lock that we hold.
        let Some(word) = (unsafe { sleeper.0.as_ref() }) else { return };
        let roused = sleeper.1.wrapping_add(ROUSING);
        // Relaxed: nothing is handed over. It fails if the sleeper has been served or roused.
        if word.compare_exchange(sleeper.1, roused, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            P::unpark(word, 1);
        }
    }

    /// Lets waits begin again.
    pub fn clear(&self) {
        // Relaxed: as in `raise`.
        self.is_raised.store(false, Ordering::Relaxed);
    }

    /// Says whether it is raised.
    pub fn is_raised(&self) -> bool {
        // Relaxed: nothing is read on the strength of it.
        self.is_raised.load(Ordering::Relaxed)
    }

    /// Names `word` until the value is dropped; none if somebody else sleeps.
    fn watch<'a>(&'a self, word: &'a P::AtomicU32, expected: u32) -> Option<Watched<'a, P>> {
        let mut sleeper = self.sleeper.lock();
        let is_free = sleeper.0.is_null();
        if is_free {
            *sleeper = Sleeper(word, expected);
        }
        is_free.then(|| Watched(self))
    }
}

impl<P: Processor> Default for Interrupt<P> {
    fn default() -> Self {
        Self::new()
    }
}

struct Watched<'a, P: Processor>(&'a Interrupt<P>);

impl<P: Processor> Drop for Watched<'_, P> {
    fn drop(&mut self) {
        self.0.sleeper.lock().0 = ptr::null();
    }
}

/// How long a wait may last: for ever, unless it says otherwise.
///
/// ```
/// use faultless_platform::{Processor, native::Native};
/// use faultless_sync::{Ended, Interrupt, WaitLimits};
///
/// let stop = Interrupt::<Native>::new();
/// // What a system call waits by: for a second, or until a signal comes.
/// let _limits = WaitLimits::until(Native::now() + 1_000_000_000).or_interrupted_by(&stop);
/// let _long = WaitLimits::<Native>::lasting(60_000_000_000);
/// stop.raise();
/// assert!(stop.is_raised());
/// stop.clear();
/// assert_eq!(Ended::TimedOut.to_string(), "the lock could not be had in time");
/// ```
pub struct WaitLimits<'a, P: Processor> {
    deadline_ns: Option<u64>,
    interrupt: Option<&'a Interrupt<P>>,
}

impl<'a, P: Processor> WaitLimits<'a, P> {
    /// For ever.
    pub const NONE: Self = Self { deadline_ns: None, interrupt: None };

    /// Until [`Processor::now`] reaches `deadline_ns`.
    pub const fn until(deadline_ns: u64) -> Self {
        Self { deadline_ns: Some(deadline_ns), interrupt: None }
    }

    /// For `wait_ns` from now.
    pub fn lasting(wait_ns: u64) -> Self {
        Self::until(P::now().saturating_add(wait_ns))
    }

    /// Until `interrupt` is raised, too.
    #[must_use = "the limits that it is called on stay as they are"]
    pub const fn or_interrupted_by(self, interrupt: &'a Interrupt<P>) -> Self {
        Self { interrupt: Some(interrupt), ..self }
    }

    /// Says why the wait must end now, if it must.
    pub(super) fn ended(&self) -> Option<Ended> {
        if self.interrupt.is_some_and(Interrupt::is_raised) {
            return Some(Ended::Interrupted);
        }
        self.deadline_ns.filter(|&deadline_ns| P::now() >= deadline_ns).map(|_| Ended::TimedOut)
    }

    /// Sleeps while `word` holds `expected`; may wake early. An error: it must not sleep any more.
    pub(super) fn sleep_while(&self, word: &P::AtomicU32, expected: u32) -> Result<(), Ended> {
        let watched = self.interrupt.map(|interrupt| interrupt.watch(word, expected));
        if let Some(ended) = self.ended() {
            return Err(ended);
        }
        let poll_ns = matches!(watched, Some(None)).then(|| P::now().saturating_add(POLL_NS));
        match (self.deadline_ns, poll_ns) {
            (None, None) => P::park(word, expected),
            (limit_ns, poll_ns) => {
                let until_ns = limit_ns.unwrap_or(u64::MAX).min(poll_ns.unwrap_or(u64::MAX));
                P::park_until(word, expected, until_ns);
            }
        }
        Ok(())
    }
}
