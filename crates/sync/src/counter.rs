//! Counters that each CPU keeps for itself.
//!
//! # Guarantee
//! Counting costs a load and a store of the CPU's own line, no read-modify-write. A sum is exact as soon as those who
//! count are still; while they count it is one that they passed through, give or take what they do meanwhile.
//!
//! # Invariant
//! I1 a cell is changed by one CPU at a time: the owner of its slot, or whoever holds the lock that guards it.

use crate::PerCpu;
use faultless_platform::{Atomic, Ordering, Processor};

/// A counter that one CPU at a time changes and everybody may read; wraps around.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::CounterCell;
///
/// // One writer, any number of readers: plain stores suffice.
/// let cell = CounterCell::<Native>::new();
/// cell.add(5);
/// cell.sub(2);
/// cell.raise(10);
/// assert_eq!(cell.get(), 10);
/// ```
#[repr(transparent)]
pub struct CounterCell<P: Processor>(P::AtomicU64);

impl<P: Processor> CounterCell<P> {
    /// Returns a counter at 0.
    pub fn new() -> Self {
        Self(P::AtomicU64::new(0))
    }

    /// Adds; two CPUs that add at the same time may lose one of both (I1).
    #[inline]
    pub fn add(&self, amount: u64) {
        // Relaxed: only the owner writes, and readers want the number alone.
        self.0.store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    /// Subtracts; may go below 0, which only the sum of all cells makes good again.
    #[inline]
    pub fn sub(&self, amount: u64) {
        self.add(amount.wrapping_neg());
    }

    /// Raises the value to `amount` if it is smaller.
    #[inline]
    pub fn raise(&self, amount: u64) {
        if self.get() < amount {
            // Relaxed: as in `add`.
            self.0.store(amount, Ordering::Relaxed);
        }
    }

    /// Reads the value.
    #[inline]
    pub fn get(&self) -> u64 {
        // Relaxed: the number alone.
        self.0.load(Ordering::Relaxed)
    }
}

impl<P: Processor> Default for CounterCell<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// A counter with a cell for each CPU.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::PerCpuCounter;
///
/// let pages = PerCpuCounter::<Native>::new(2);
/// Machine::new(2).attach(|| {
///     pages.add(3);
///     pages.sub(1);
/// });
/// assert_eq!(pages.sum(), 2);
/// ```
pub struct PerCpuCounter<P: Processor> {
    cells: PerCpu<P, CounterCell<P>>,
}

impl<P: Processor> PerCpuCounter<P> {
    /// Returns a counter at 0 for a machine of `nr_cpus` slots.
    pub fn new(nr_cpus: usize) -> Self {
        Self { cells: PerCpu::new(nr_cpus, |_| CounterCell::new()) }
    }

    /// Adds, on the calling CPU's cell.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.cells.here().add(amount);
    }

    /// Subtracts, on the calling CPU's cell; another CPU may have added what is taken away.
    #[inline]
    pub fn sub(&self, amount: u64) {
        self.cells.here().sub(amount);
    }

    /// Returns the sum of all cells; 0 where a reading amid changes would be negative.
    pub fn sum(&self) -> u64 {
        let sum = self.cells.iter().fold(0_u64, |sum, cell| sum.wrapping_add(cell.get()));
        u64::try_from(sum.cast_signed()).unwrap_or(0)
    }
}
