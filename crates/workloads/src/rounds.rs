//! Workers that work in step: rounds with a turn between them.
//!
//! # Guarantee
//! Nobody begins a round before all have ended the last one and one of them has prepared it. A worker that has finished
//! still comes to the turns until all have, so nobody waits for it in vain.
//!
//! # Protocol
//! ```text
//! each worker                     the last to arrive
//! barrier                         prepares the round; notes whether all have finished
//! barrier
//! ```

use crate::space::Refused;
use faultless_platform::{Atomic, AtomicInteger, Ordering, Threads};
use faultless_sync::{Barrier, SpinMutex};

/// The turns of a team.
pub(crate) struct Rounds<P: Threads> {
    barrier: Barrier<P>,
    team: usize,
    nr_finished: P::AtomicUsize,
    is_over: P::AtomicBool,
    prepared_ns: P::AtomicU64,
    refused: SpinMutex<P, Option<Refused>>,
}

impl<P: Threads> Rounds<P> {
    /// Returns the turns of so many workers.
    pub(crate) fn new(team: usize) -> Self {
        Self {
            barrier: Barrier::new(team as u32),
            team,
            nr_finished: P::AtomicUsize::new(0),
            is_over: P::AtomicBool::new(false),
            prepared_ns: P::AtomicU64::new(0),
            refused: SpinMutex::default(),
        }
    }

    /// Waits for all; the last one prepares the next round. All get its failure, or how long that took, in ns: waiting
    /// for those who have not ended the round yet is part of the round.
    pub(crate) fn turn(&self, prepare: impl FnOnce() -> Result<(), Refused>) -> Result<u64, Refused> {
        if self.barrier.wait() {
            let began_ns = P::now();
            *self.refused.lock() = prepare().err();
            // Relaxed: the barrier publishes it.
            self.prepared_ns.store(P::now() - began_ns, Ordering::Relaxed);
            // Relaxed, both: the barriers order them.
            let all_have = self.nr_finished.load(Ordering::Relaxed) == self.team;
            self.is_over.store(all_have, Ordering::Relaxed);
        }
        self.barrier.wait();
        // Relaxed: see above.
        self.refused.lock().map_or(Ok(self.prepared_ns.load(Ordering::Relaxed)), Err)
    }

    /// Ends a worker's part; `prepare` is for the rounds that others still make.
    pub(crate) fn finish(&self, mut prepare: impl FnMut() -> Result<(), Refused>) {
        // Relaxed: see `turn`.
        self.nr_finished.fetch_add(1, Ordering::Relaxed);
        // Relaxed: see `turn`.
        while !self.is_over.load(Ordering::Relaxed) {
            // A failure reaches those who still work.
            let _ = self.turn(&mut prepare);
        }
    }
}
