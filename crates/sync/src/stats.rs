//! What a lock cost: how often it was taken, waited for and held, kept per CPU.
//!
//! # Guarantee
//! A semaphore without statistics pays nothing for them. One with statistics reads the clock in its slow paths alone;
//! inside a [`Timed`](crate::Timed) it reads it at each acquisition and release too. Figures are exact once those who
//! use the lock are still.
//!
//! One `LockStats` serves any number of locks: all address spaces of a run, say, whose waiting is one number.

use crate::{CounterCell, PerCpu, SpinMutex};
use faultless_platform::Processor;

/// Which side of a reader-writer lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Shares the lock.
    Read,
    /// Has it alone.
    Write,
}

/// Figures of one side of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockFigures {
    /// Acquisitions that had to wait, by spinning or asleep.
    pub nr_contended: u64,
    /// Time from the begin of those acquisitions to their end, in all.
    pub wait_ns: u64,
    /// The longest of them.
    pub longest_wait_ns: u64,
    /// All acquisitions; counted by [`Timed`](crate::Timed) alone.
    pub nr_acquired: u64,
    /// Time from acquisition to release, in all; that of holders who still hold up to now. Counted by
    /// [`Timed`](crate::Timed) alone.
    pub held_ns: u64,
}

struct Cell<P: Processor> {
    nr_contended: CounterCell<P>,
    wait_ns: CounterCell<P>,
    longest_wait_ns: CounterCell<P>,
    nr_acquired: CounterCell<P>,
    nr_released: CounterCell<P>,
    /// Times of release less times of acquisition: the sum over all CPUs means something once all are released.
    held_ns: CounterCell<P>,
}

impl<P: Processor> Cell<P> {
    fn new() -> Self {
        Self {
            nr_contended: CounterCell::new(),
            wait_ns: CounterCell::new(),
            longest_wait_ns: CounterCell::new(),
            nr_acquired: CounterCell::new(),
            nr_released: CounterCell::new(),
            held_ns: CounterCell::new(),
        }
    }

    /// Adds the cell's figures to `sum`; current holders count as holding until `now_ns`.
    fn add_to(&self, sum: LockFigures, now_ns: u64) -> LockFigures {
        let nr_holding = self.nr_acquired.get().wrapping_sub(self.nr_released.get());
        let held_ns = self.held_ns.get().wrapping_add(nr_holding.wrapping_mul(now_ns));
        LockFigures {
            nr_contended: sum.nr_contended.wrapping_add(self.nr_contended.get()),
            wait_ns: sum.wait_ns.wrapping_add(self.wait_ns.get()),
            longest_wait_ns: sum.longest_wait_ns.max(self.longest_wait_ns.get()),
            nr_acquired: sum.nr_acquired.wrapping_add(self.nr_acquired.get()),
            held_ns: sum.held_ns.wrapping_add(held_ns),
        }
    }
}

/// Where locks note what they cost.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{LockFigures, LockStats, Parts, RwSemaphore, Rwsem, Side, Timed};
/// use std::sync::Arc;
///
/// let stats = Arc::new(LockStats::<Native>::new(1));
/// let parts = Parts { stats: Some(Arc::clone(&stats)), readers: None };
/// let lock = Timed::<Native, Rwsem<Native>>::with_parts(Default::default(), parts);
/// Machine::new(1).attach(|| {
///     drop(lock.write());
///     // What a lock of another family notes about itself.
///     stats.note_wait(Side::Read, 250);
///     stats.note_acquired(Side::Read);
///     stats.note_released(Side::Read);
/// });
/// let figures: LockFigures = stats.figures(Side::Read);
/// assert_eq!((figures.nr_contended, figures.wait_ns, figures.nr_acquired), (1, 250, 1));
/// ```
pub struct LockStats<P: Processor> {
    cells: PerCpu<P, [Cell<P>; 2]>,
    /// For threads without a slot, which have no cells of their own.
    outside: SpinMutex<P, [Cell<P>; 2]>,
}

impl<P: Processor> LockStats<P> {
    /// Returns statistics for a machine of `nr_cpus` slots; allocates, so it is for set-up.
    pub fn new(nr_cpus: usize) -> Self {
        let pair = || [Cell::new(), Cell::new()];
        Self { cells: PerCpu::new(nr_cpus, |_| pair()), outside: SpinMutex::new(pair()) }
    }

    /// Shows `note` the cell of the CPU that the thread owns, or that of all threads which own none.
    #[inline]
    fn with_cell(&self, side: Side, note: impl FnOnce(&Cell<P>)) {
        match P::try_cpu() {
            Some(_) => note(&self.cells.here()[side as usize]),
            None => note(&self.outside.lock()[side as usize]),
        }
    }

    /// Notes an acquisition that waited, on the CPU where the wait ended.
    pub fn note_wait(&self, side: Side, wait_ns: u64) {
        self.with_cell(side, |cell| {
            cell.nr_contended.add(1);
            cell.wait_ns.add(wait_ns);
            cell.longest_wait_ns.raise(wait_ns);
        });
    }

    /// Notes an acquisition, of which the release is noted too.
    pub fn note_acquired(&self, side: Side) {
        self.with_cell(side, |cell| {
            cell.nr_acquired.add(1);
            cell.held_ns.sub(P::now());
        });
    }

    /// Notes the release of what [`LockStats::note_acquired`] noted, maybe on another CPU.
    pub fn note_released(&self, side: Side) {
        self.with_cell(side, |cell| {
            cell.nr_released.add(1);
            cell.held_ns.add(P::now());
        });
    }

    /// Returns the figures of one side, over all CPUs.
    pub fn figures(&self, side: Side) -> LockFigures {
        let now_ns = P::now();
        let outside = self.outside.lock()[side as usize].add_to(LockFigures::default(), now_ns);
        self.cells.iter().fold(outside, |sum, cell| cell[side as usize].add_to(sum, now_ns))
    }
}
