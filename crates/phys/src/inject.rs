//! Allocations that fail because a test asked for it.
//!
//! # Guarantee
//! While nobody asks, an allocation pays one load of a line that nobody writes. Every single allocation counts, those
//! served from a CPU's own list too.
//!
//! # Word first
//! 0: never. Otherwise the low 63 bits count the allocations up to and including the one that fails; the top bit says
//! that all later ones fail too.

use faultless_platform::{Atomic, Ordering, Platform};

/// Which allocations fail on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// None.
    Never,
    /// The n-th from now, counted from 1, and no other.
    Once(u64),
    /// The n-th from now, counted from 1, and all that follow.
    From(u64),
}

const STAYS: u64 = 1 << 63;

/// The word that says how many allocations are still to succeed.
pub(crate) struct Injector<P: Platform>(P::AtomicU64);

impl<P: Platform> Injector<P> {
    pub(crate) fn new() -> Self {
        Self(P::AtomicU64::new(0))
    }

    pub(crate) fn set(&self, failing: Failing) {
        let word = match failing {
            Failing::Never => 0,
            Failing::Once(nth) => nth.clamp(1, STAYS - 1),
            Failing::From(nth) => nth.clamp(1, STAYS - 1) | STAYS,
        };
        // Relaxed: a test that sets it for other threads synchronises with them itself.
        self.0.store(word, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Failing {
        match self.0.load(Ordering::Relaxed) {
            0 => Failing::Never,
            word if word & STAYS == 0 => Failing::Once(word),
            word => Failing::From(word & !STAYS),
        }
    }

    /// Counts one allocation; says whether it must fail.
    #[inline(always)]
    pub(crate) fn strikes(&self) -> bool {
        // Relaxed: nothing is read on the strength of the word.
        self.0.load(Ordering::Relaxed) != 0 && self.count_down()
    }

    #[cold]
    fn count_down(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word != 0 {
            let is_due = word & !STAYS == 1;
            let next = if !is_due { word - 1 } else { word & STAYS | (word >> 63) };
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return is_due,
                Err(now) => word = now,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::native::Native;

    fn strikes_of(failing: Failing) -> [bool; 5] {
        let injector = Injector::<Native>::new();
        injector.set(failing);
        core::array::from_fn(|_| injector.strikes())
    }

    #[test]
    fn the_nth_fails_once_or_from_then_on() {
        assert_eq!(strikes_of(Failing::Never), [false; 5]);
        assert_eq!(strikes_of(Failing::Once(1)), [true, false, false, false, false]);
        assert_eq!(strikes_of(Failing::Once(3)), [false, false, true, false, false]);
        assert_eq!(strikes_of(Failing::From(3)), [false, false, true, true, true]);
        assert_eq!(strikes_of(Failing::From(0)), [true; 5]);
    }

    #[test]
    fn what_is_left_can_be_read() {
        let injector = Injector::<Native>::new();
        injector.set(Failing::Once(3));
        assert!(!injector.strikes());
        assert_eq!(injector.get(), Failing::Once(2));
        assert!(!injector.strikes() && injector.strikes());
        assert_eq!(injector.get(), Failing::Never);
        injector.set(Failing::From(1));
        assert!(injector.strikes());
        assert_eq!(injector.get(), Failing::From(1));
    }
}
