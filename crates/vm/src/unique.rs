//! Unique numbers, drawn on each CPU without touching another CPU's line.
//!
//! # Guarantee
//! A number is drawn once, and is not 0.
//!
//! # How
//! On a machine of `n` CPUs, CPU `c` draws `c + 1`, `c + 1 + n`, `c + 1 + 2 n` and so on.

use crate::system::System;
use faultless_platform::{Atomic, Ordering};
use faultless_sync::PerCpu;

/// A source of numbers.
pub(crate) struct Unique<P: System> {
    next: PerCpu<P, P::AtomicU64>,
}

impl<P: System> Unique<P> {
    /// Returns a source for a machine of `nr_cpus` CPUs.
    pub(crate) fn new(nr_cpus: usize) -> Self {
        Self { next: PerCpu::new(nr_cpus, |cpu| P::AtomicU64::new(cpu as u64 + 1)) }
    }

    /// Draws a number.
    pub(crate) fn draw(&self) -> u64 {
        let next = self.next.here();
        // Relaxed, and no read-modify-write: the slot has one owner, and handing it over orders the cell.
        let number = next.load(Ordering::Relaxed);
        next.store(number + self.next.nr_cpus() as u64, Ordering::Relaxed);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::Processor;
    use faultless_platform::Threads;
    use faultless_platform::native::{Machine, Native};
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::vec::Vec;

    #[test]
    fn no_number_is_drawn_twice_on_any_cpu() {
        const EACH: usize = 1000;
        let (unique, drawn) = (Unique::<Native>::new(3), Mutex::new(BTreeSet::new()));
        Native::run(&Machine::new(3), 3, &|_| {
            Native::enter();
            let mine: Vec<u64> = (0..EACH).map(|_| unique.draw()).collect();
            drawn.lock().expect("no panic").extend(mine);
            Native::leave();
        });
        let drawn = drawn.into_inner().expect("no panic");
        assert_eq!((drawn.len(), drawn.contains(&0)), (3 * EACH, false));
    }
}
