//! A place where threads wait for each other.
//!
//! # Guarantee
//! Nobody passes before all have arrived; what each did before is seen by all after. It can be used again at once.
//!
//! # Race
//! ```text
//! the last to arrive                  who arrived before
//! nr_arrived += 1, AcqRel             nr_arrived += 1, AcqRel
//! nr_arrived = 0                      round as before? park while it is
//! round += 1, Release; unpark all     round changed, Acquire: pass
//! ```
//! Forbidden: sleeping through the change (park's contract); arriving for the next round before `nr_arrived` is 0 (who
//! passes has seen the store through `round`). Model: `tests/models/parking.rs`.

use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};

/// Holds threads back until a fixed number of them has arrived.
///
/// ```
/// use faultless_platform::{Processor, Threads, native::{Machine, Native}};
/// use faultless_sync::{Barrier, PerCpuCounter};
///
/// let (barrier, last) = (Barrier::<Native>::new(3), PerCpuCounter::<Native>::new(1));
/// Native::run(&Machine::new(1), 3, &|_| {
///     Native::enter();
///     if barrier.wait() {
///         last.add(1);
///     }
///     Native::leave();
/// });
/// assert_eq!(last.sum(), 1, "one of them is told");
/// ```
pub struct Barrier<P: Processor> {
    nr_threads: u32,
    nr_arrived: P::AtomicU32,
    /// Counts the rounds; those who arrived sleep on it.
    round: P::AtomicU32,
}

impl<P: Processor> Barrier<P> {
    /// Returns a barrier for `nr_threads` threads; 0 counts as 1.
    pub fn new(nr_threads: u32) -> Self {
        Self { nr_threads: nr_threads.max(1), nr_arrived: P::AtomicU32::new(0), round: P::AtomicU32::new(0) }
    }

    /// Sleeps until all have arrived; true for the last one. Not under a spin lock, and not inside an RCU read section.
    pub fn wait(&self) -> bool {
        // Relaxed: the round can't end before we have arrived.
        let round = self.round.load(Ordering::Relaxed);
        // ORDER: AcqRel makes those who arrive a chain: the last one has seen what all did before.
        if self.nr_arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.nr_threads {
            self.open(round);
            return true;
        }
        // ORDER: Acquire pairs with the Release in `open`.
        while self.round.load(Ordering::Acquire) == round {
            P::park(&self.round, round);
        }
        false
    }

    fn open(&self, round: u32) {
        // Relaxed: seen by those of the next round through `round`.
        self.nr_arrived.store(0, Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire in `wait`.
        self.round.store(round.wrapping_add(1), Ordering::Release);
        P::unpark(&self.round, usize::MAX);
    }
}
