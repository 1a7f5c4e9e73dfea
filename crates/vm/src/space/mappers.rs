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
        // Relaxed, both: written under the write lock; who searches without it finds a place that may be taken by then.
        let only = self.only.load(Ordering::Relaxed);
        if only != own && only != MANY {
            self.only.store(if only == NOBODY { own } else { MANY }, Ordering::Relaxed);
        }
    }

    pub(super) fn are_many(&self) -> bool {
        // Relaxed: see `note`.
        self.only.load(Ordering::Relaxed) == MANY
    }
}
