//! What a room needs to have plans replayed without importing the room that replays them.
//!
//! # Guarantee
//! `replay` implements [`Replayer`]; `bench`, which counts what replays do and measures compilations, takes one as a
//! value. So neither is compiled anew after a change in the other.

use std::fmt;

use faultless_machine::watch::{Machine, Simulated, Watched};
use faultless_platform::native::{self, Native};
use faultless_platform::{Threads, Usual};
use faultless_sim::Sim;

use super::Plan;

/// The machine of a replay. It says which platform the replay runs on.
pub enum ReplayMachine<'a> {
    /// This machine.
    Native(&'a native::Machine),
    /// This machine, watched.
    Watched(&'a Machine<Native>),
    /// A simulated machine.
    Simulated(&'a Machine<Sim>),
}

/// A platform that plans are replayed on.
pub trait ReplayPlatform: Threads<Embedding = Usual> {
    /// Returns a machine of the platform as one to replay on.
    fn replay_machine(machine: &Self::Machine) -> ReplayMachine<'_>;
}

impl ReplayPlatform for Native {
    fn replay_machine(machine: &Self::Machine) -> ReplayMachine<'_> {
        ReplayMachine::Native(machine)
    }
}

impl ReplayPlatform for Watched<Native> {
    fn replay_machine(machine: &Self::Machine) -> ReplayMachine<'_> {
        ReplayMachine::Watched(machine)
    }
}

impl ReplayPlatform for Simulated {
    fn replay_machine(machine: &Self::Machine) -> ReplayMachine<'_> {
        ReplayMachine::Simulated(machine)
    }
}

/// Under what a plan is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaySettings {
    /// The design's name.
    pub design: String,
    /// The semaphore's name.
    pub semaphore: String,
    /// Physical memory, in bytes.
    pub memory_bytes: usize,
    /// The limits that the recorded program had.
    pub limits: faultless_trace::Limits,
}

/// What came out of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// From the first step's begin to the last one's end.
    pub elapsed_ns: u64,
    /// What waiting for the spaces' semaphores took, of all threads together.
    pub lock_wait_ns: u64,
    /// The instance's counters.
    pub counters: Vec<(&'static str, u64)>,
    /// The largest resident size of a space.
    pub peak_rss_bytes: u64,
    /// Differences from the recording that nothing explains.
    pub mismatches: u64,
    /// The first of them: the event's number, and what is not as recorded.
    pub first_mismatch: Option<(u32, String)>,
}

/// Replays plans, under any design. An error is said in words.
pub trait Replayer: fmt::Debug + Sync {
    /// Replays a plan once, on a machine of so many CPUs; its invariants are checked at the end.
    fn replay(
        &self,
        machine: ReplayMachine<'_>,
        nr_cpus: usize,
        plan: &Plan,
        settings: &ReplaySettings,
    ) -> Result<Replayed, String>;

    /// Replays a plan once on the host's kernel, on so many CPUs.
    fn replay_on_host(&self, plan: &Plan, nr_cpus: usize) -> Result<Replayed, String>;
}
