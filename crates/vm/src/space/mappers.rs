//! Whether no CPU, one, or several have called mmap in a space.

use crate::system::System;
use faultless_platform::{Atomic, Ordering};

/// Which CPUs have mapped in a space.
pub(crate) struct Mappers<P: System> {
    /// One more than the number of the only one; [`MANY`] of more.
    only: P::AtomicU64,
}

const NOBODY: u64 = 0;
const MANY: u64 = u64::MAX;

impl<P: System> Mappers<P> {
    pub(super) fn new() -> Self {
        Self { only: P::AtomicU64::new(NOBODY) }
    }

    pub(super) fn note(&self, cpu: usize) {
        let own = cpu as u64 + 1;
        // Relaxed, all: who searches by it finds a place that is looked at again under the lock.
        let only = self.only.load(Ordering::Relaxed);
        if only == own || only == MANY {
            return;
        }
        let wanted = if only == NOBODY { own } else { MANY };
        if self.only.compare_exchange(only, wanted, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            // Another one came meanwhile.
            self.only.store(MANY, Ordering::Relaxed);
        }
    }

    pub(super) fn are_many(&self) -> bool {
        // Relaxed: see `note`.
        self.only.load(Ordering::Relaxed) == MANY
    }
}
