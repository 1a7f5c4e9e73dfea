//! Workers that work in step: rounds with a turn between them.
//!
//! # Guarantee
//! Nobody begins a round before all have ended the last one and one of them has prepared it. All begin at one instant,
//! which leaves time to wake them: who is woken last does not keep the others waiting at the round's end. A round is
//! over when the last one arrives, not when that one has woken the others. A worker that has finished still comes to
//! the turns until all have, so nobody waits for it in vain.
//!
//! # Protocol
//! ```text
//! each worker                     the last to arrive
//! barrier                         prepares the round; notes whether all have finished, and when the round begins
//! barrier
//! waits for that instant
//! ```

use crate::space::Refused;
use faultless_platform::{Atomic, AtomicInteger, Ordering, Threads, Tracepoint};
use faultless_sync::{Barrier, SpinMutex};

/// Returns in what time a team is awake: with one thread waking the others, each of which takes some microseconds.
const fn wake_ns(team: usize) -> u64 {
    if team < 2 { 0 } else { 50_000 + 5_000 * team as u64 }
}

/// The turns of a team.
pub(crate) struct Rounds<P: Threads> {
    barrier: Barrier<P>,
    team: usize,
    nr_finished: P::AtomicUsize,
    is_over: P::AtomicBool,
    /// When the round begins.
    begins_ns: P::AtomicU64,
    /// How long the turn takes, from the last one's arrival on.
    turn_ns: P::AtomicU64,
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
            begins_ns: P::AtomicU64::new(0),
            turn_ns: P::AtomicU64::new(0),
            refused: SpinMutex::default(),
        }
    }

    /// Waits for all; the last one prepares the next round. All get its failure, or how long it was until the round
    /// began, in ns: waiting for those who have not ended the last round yet is part of that round.
    pub(crate) fn turn(&self, prepare: impl FnOnce() -> Result<(), Refused>) -> Result<u64, Refused> {
        P::trace(Tracepoint::WaitBegins { name: "round" });
        let turned = self.turn_together(prepare);
        P::trace(Tracepoint::WaitEnds { aside_ns: turned.unwrap_or(0) });
        turned
    }

    fn turn_together(&self, prepare: impl FnOnce() -> Result<(), Refused>) -> Result<u64, Refused> {
        let arrived_ns = P::now();
        if self.barrier.wait() {
            *self.refused.lock() = prepare().err();
            let begins_ns = P::now() + wake_ns(self.team);
            // Relaxed, all: the barriers order them.
            self.begins_ns.store(begins_ns, Ordering::Relaxed);
            self.turn_ns.store(begins_ns - arrived_ns, Ordering::Relaxed);
            let all_have = self.nr_finished.load(Ordering::Relaxed) == self.team;
            self.is_over.store(all_have, Ordering::Relaxed);
        }
        self.barrier.wait();
        if let Some(cause) = *self.refused.lock() {
            return Err(cause);
        }
        // Relaxed, both: see above.
        P::spin_until_deadline(self.begins_ns.load(Ordering::Relaxed), || false);
        Ok(self.turn_ns.load(Ordering::Relaxed))
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
