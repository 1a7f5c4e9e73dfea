//! The generations of the semaphore: which of the 2013 series' patches each has.
//!
//! # Guarantee
//! A [`Generation`] is a small value that each semaphore keeps beside its word: one body of code runs as any of them, and
//! two semaphores of different generations are of one type. Asking costs a plain load of a line that the lock's user has.
//!
//! Source: the series "rwsem performance optimizations", version 8, October 2013, nine patches. Its second and third only tidy
//! the source, five to seven are the MCS queue that the eighth needs. Stealing is older than the series: it is the
//! base that the series was measured on. What its prose leaves open is written here as reconstructed: a writer spins while
//! a running writer owns the lock or while nobody does, and goes to sleep when readers own it; a sleeper is overtaken at most
//! [`Generation::patience`] times in a row, where the original knows no bound.

use super::word::MAX_PATIENCE;
use core::ops::BitOr;

/// A set of the series' patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches(u8);

impl Patches {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Patch 1: `try_write` looks at the word before it writes it.
    pub const LOOK_BEFORE_TRY: Self = Self(1);
    /// Patch 4: a waker looks for a writer before it counts a reader in.
    pub const LOOK_BEFORE_GRANT: Self = Self(2);
    /// Patches 5 to 8: a writer spins, in an MCS queue, while the owner runs.
    pub const OPTIMISTIC_SPIN: Self = Self(4);
    /// Patch 9: a release leaves the waking to a spinner when the queue's lock is busy.
    pub const SPINNER_SPARES_WAKE: Self = Self(8);
    /// All of them.
    pub const ALL: Self = Self(15);

    /// Says whether all of `others` are among them.
    #[inline]
    pub const fn contain(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitOr for Patches {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// What tells one generation from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    patience: u8,
    patches: Patches,
}

impl Generation {
    /// The semaphore of 2012: a queue in order of arrival, in which everyone sleeps.
    pub const RWSEM_2012: Self = Self::new(0, Patches::NONE);
    /// The semaphore of October 2013 with all nine patches.
    pub const RWSEM_V8: Self = Self::new(Self::MAX_PATIENCE, Patches::ALL);
    /// The largest patience: the word counts no further.
    pub const MAX_PATIENCE: u8 = MAX_PATIENCE;

    /// Returns a generation of one's own. A patience above [`Generation::MAX_PATIENCE`] is taken for that.
    pub const fn new(patience: u8, patches: Patches) -> Self {
        let patience = if patience > MAX_PATIENCE { MAX_PATIENCE } else { patience };
        Self { patience, patches }
    }

    /// Returns how often in a row a writer may take the lock before those in line; 0: never, and a writer in line is
    /// handed the lock.
    #[inline]
    pub const fn patience(self) -> u32 {
        self.patience as u32
    }

    /// Says whether it has all of these patches.
    #[inline]
    pub const fn has(self, patches: Patches) -> bool {
        self.patches.contain(patches)
    }
}

/// The one that Linux had when the designs met.
impl Default for Generation {
    fn default() -> Self {
        Self::RWSEM_V8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_has_what_it_was_made_of() {
        let both = Patches::LOOK_BEFORE_TRY | Patches::OPTIMISTIC_SPIN;
        let own = Generation::new(200, both);
        assert_eq!(own.patience(), 63);
        assert!(own.has(both) && own.has(Patches::OPTIMISTIC_SPIN) && own.has(Patches::NONE));
        assert!(!own.has(Patches::LOOK_BEFORE_GRANT) && !own.has(Patches::ALL));
        let all = Patches::LOOK_BEFORE_GRANT | Patches::SPINNER_SPARES_WAKE | both;
        assert!(all == Patches::ALL && Generation::RWSEM_V8.has(all) && !Generation::RWSEM_2012.has(both));
    }
}
