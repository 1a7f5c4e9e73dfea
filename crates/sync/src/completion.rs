//! A gate that opens: threads sleep until somebody sets it.
//!
//! # Word first
//! `word`: 0 unset; 1 set; 2 unset, and somebody may sleep on it.
//! ```text
//! setter                         waiter
//! swap(1), Release               1? then done; 0 -> 2
//! it was 2? unpark all           park while 2; look again, Acquire
//! ```
//! Forbidden: the setter sees 0 and the waiter sleeps. The exchange 0 -> 2 comes before the swap, which then returns 2,
//! or after it, and then it fails. Model: `tests/models/parking.rs`.

use faultless_platform::{Atomic, Ordering, Processor};

const UNSET: u32 = 0;
const SET: u32 = 1;
const AWAITED: u32 = 2;

/// Something that happens once, until [`Completion::reset`]; threads sleep until it does.
///
/// ```
/// use faultless_platform::{Processor, Threads, native::{Machine, Native}};
/// use faultless_sync::Completion;
///
/// let is_ready = Completion::<Native>::new();
/// Native::run(&Machine::new(1), 2, &|thread| {
///     Native::enter();
///     if thread == 0 { is_ready.wait() } else { is_ready.set() }
///     Native::leave();
/// });
/// assert!(is_ready.is_set());
/// is_ready.reset();
/// assert!(!is_ready.is_set());
/// ```
pub struct Completion<P: Processor> {
    word: P::AtomicU32,
}

impl<P: Processor> Completion<P> {
    /// Returns a completion that has not happened.
    pub fn new() -> Self {
        Self { word: P::AtomicU32::new(UNSET) }
    }

    /// Says that it has happened; wakes all who wait. What came before is seen by those who wait.
    pub fn set(&self) {
        // ORDER: Release pairs with the Acquire in `is_set`.
        if self.word.swap(SET, Ordering::Release) == AWAITED {
            P::unpark(&self.word, usize::MAX);
        }
    }

    /// Says whether it has happened.
    #[inline]
    pub fn is_set(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `set`.
        self.word.load(Ordering::Acquire) == SET
    }

    /// Makes it unset again; the caller knows that nobody waits.
    pub fn reset(&self) {
        // Relaxed: nothing is handed over.
        self.word.store(UNSET, Ordering::Relaxed);
    }

    /// Sleeps until it has happened. Not under a spin lock, and not inside an RCU read section.
    pub fn wait(&self) {
        while !self.is_set() {
            // Relaxed: a failure means set or awaited, and the loop looks again.
            let _ = self.word.compare_exchange(UNSET, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
            P::park(&self.word, AWAITED);
        }
    }
}

impl<P: Processor> Default for Completion<P> {
    fn default() -> Self {
        Self::new()
    }
}
