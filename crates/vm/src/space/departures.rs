//! How many unmappings are under way without a space's lock, and what is waited for to see them end.

use crate::system::System;
use faultless_platform::{Atomic, CachePadded, Ordering};

/// The unmappings of a space that are under way without its lock; see `departure`.
pub(crate) struct Departures<P: System, S> {
    nr_leaving: P::AtomicU32,
    /// Shared by each; who waits for them takes it alone.
    pub(super) departing: CachePadded<S>,
}

impl<P: System, S> Departures<P, S> {
    pub(super) fn new(departing: S) -> Self {
        Self { nr_leaving: P::AtomicU32::new(0), departing: CachePadded::new(departing) }
    }

    /// Says whether an area leaves; under the space's lock.
    #[inline]
    pub(super) fn are_under_way(&self) -> bool {
        // Relaxed: changed under the lock for changing, of which the caller has a share at least.
        self.nr_leaving.load(Ordering::Relaxed) != 0
    }

    /// Notes that an area leaves from now on; under the space's lock for changing.
    pub(super) fn begin(&self) {
        // Relaxed: as above.
        self.nr_leaving.store(self.nr_leaving.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Notes that an area has left; under the space's lock for changing.
    pub(super) fn end(&self) {
        // Relaxed: as above.
        self.nr_leaving.store(self.nr_leaving.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }
}
