//! The machines that plans are replayed on.

use faultless_machine::watch::{Machine, Simulated, Watched};
use faultless_platform::native::{self, Native};
use faultless_platform::{Threads, Usual};
use faultless_sim::Sim;

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
