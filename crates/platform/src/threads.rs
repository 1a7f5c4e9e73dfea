//! Threads and machines: what replay, workloads and soak tests need.

use crate::{HighZone, Nodes, Platform};

/// A thread could not be started: the host has no room for another.
/// [`Threads::start`] returns it; a replay of more threads than the host allows ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartError {
    /// The index of the thread that was not started.
    pub thread: usize,
}

impl core::fmt::Display for StartError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            out,
            "thread {} could not be started: the host's limit of threads or memory is reached; raise `ulimit -u` or replay fewer threads",
            self.thread
        )
    }
}

impl core::error::Error for StartError {}

/// A platform that has machines on which threads can be run.
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | benches, soaks, replays | `run` |
/// | a replayed program that starts a thread | `start` |
/// | whoever sets a memory up on a machine | `nodes`, `place`, `high_zone` |
pub trait Threads: Platform {
    /// A machine with a fixed number of CPU slots.
    type Machine: Sync;

    /// Runs `body(0)` to `body(first - 1)` as threads, and whatever they start, until all have ended.
    ///
    /// A thread begins without a slot: it calls [`Processor::enter`](crate::Processor::enter) first.
    ///
    /// # Panics
    /// With the first panic of a thread; the others are woken from their waits by a panic of their own.
    fn run(machine: &Self::Machine, first: usize, body: &(dyn Fn(usize) + Sync));

    /// Returns the machine's NUMA nodes, for those who set a memory up on it: one, unless it was told or its file says
    /// otherwise.
    fn nodes(_machine: &Self::Machine) -> Nodes {
        Nodes::one()
    }

    /// Puts memory into a node's: what lies at these addresses costs what that node's memory does. No effect on the
    /// memory itself, and none on machines whose memory is where the host has put it.
    fn place(_machine: &Self::Machine, _node: usize, _address: *const u8, _len_bytes: usize) {}

    /// Says which of the frames at these addresses have no address of their own; none unless said.
    fn high_zone(_machine: &Self::Machine, _address: *const u8, _len_bytes: usize) -> Option<HighZone> {
        None
    }

    /// Starts `body(thread)` beside the calling thread, which was started by [`Threads::run`].
    fn start(thread: usize) -> Result<(), StartError>;
}
