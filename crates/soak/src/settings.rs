//! What a run is told, and what it says.

use std::time::Duration;

/// Whether allocations are made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortages {
    /// Frames run out only if memory does.
    None,
    /// Now and then the n-th allocation from now fails, whoever makes it.
    Injected,
}

/// What a run is like.
#[derive(Clone)]
pub struct Settings<'a> {
    /// Draws each thread's choices.
    pub seed: u64,
    /// How long new rounds begin; the last one is finished.
    pub duration: Duration,
    /// Threads.
    pub nr_threads: usize,
    /// CPU slots; fewer than threads, so that threads take turns.
    pub nr_cpus: usize,
    /// Memory of the instance.
    pub memory_bytes: usize,
    /// Whether allocations fail.
    pub shortages: Shortages,
    /// Asked after each round: whether to end before the time is over.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Self {
            seed: 1,
            duration: Duration::from_secs(2),
            nr_threads: 4,
            nr_cpus: 3,
            memory_bytes: 256 << 20,
            shortages: Shortages::None,
            is_stopped: &|| false,
        }
    }
}

/// What a run did; everything that it saw was right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Rounds, each ended by a check of every invariant.
    pub rounds: u64,
    /// Operations of all threads.
    pub operations: u64,
    /// Operations that failed for want of a frame.
    pub shortages: u64,
    /// What happened, by the event's name.
    pub events: Vec<(&'static str, u64)>,
}
