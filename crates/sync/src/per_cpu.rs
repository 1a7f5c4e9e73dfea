//! One cell for each CPU slot.
//!
//! # Guarantee
//! Cells share no cache line. A slot has one owner at a time, and the next owner sees what the last one wrote (the
//! platform's I1), so an owner may change its own cell by plain loads and stores of relaxed atomics.

use alloc::boxed::Box;
use core::marker::PhantomData;
use faultless_platform::{CachePadded, Processor, Tracepoint};

/// One padded cell for each CPU slot of a machine.
///
/// A reference from [`PerCpu::here`] names the slot that the thread owned at that moment; a thread that parks may wake
/// on another.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::PerCpu;
/// use std::cell::Cell;
///
/// let turns = PerCpu::<Native, Cell<u32>>::new(4, |_cpu| Cell::new(0));
/// Machine::new(4).attach(|| turns.here().set(7));
/// assert_eq!((turns.nr_cpus(), turns.get(0).get()), (4, 7));
/// assert_eq!(turns.iter().map(Cell::get).sum::<u32>(), 7);
/// ```
pub struct PerCpu<P, T> {
    cells: Box<[CachePadded<T>]>,
    processor: PhantomData<fn() -> P>,
}

impl<P: Processor, T> PerCpu<P, T> {
    /// Returns cells for slots 0 to `nr_cpus` - 1; allocates, so it is for set-up.
    pub fn new(nr_cpus: usize, mut cell: impl FnMut(usize) -> T) -> Self {
        Self { cells: (0..nr_cpus).map(|cpu| CachePadded::new(cell(cpu))).collect(), processor: PhantomData }
    }

    /// Tells observers what lies there.
    /// Called by owners of cells that other CPUs read, when an instance is made.
    pub fn tell(&self, name: &'static str) {
        if P::WATCHED {
            P::trace(Tracepoint::named_row(name, &self.cells));
        }
    }

    /// Returns the number of cells.
    pub fn nr_cpus(&self) -> usize {
        self.cells.len()
    }

    /// Returns the cell of a slot.
    ///
    /// # Panics
    /// If the cells were made for fewer slots.
    #[inline]
    pub fn get(&self, cpu: usize) -> &T {
        &self.cells[cpu]
    }

    /// Returns the cell of the slot that the calling thread owns.
    ///
    /// # Panics
    /// If the cells were made for a smaller machine than the one the thread runs on.
    #[inline]
    pub fn here(&self) -> &T {
        &self.cells[P::cpu()]
    }

    /// Visits the cells by slot, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.cells.iter().map(|cell| &**cell)
    }
}
