//! A pass is one replay of a plan: on which machine, under what, what came out, and who makes it.
//!
//! # Guarantee
//! Whoever wants plans replayed imports this crate and takes a [`Replayer`]; `replay` implements it. So neither is
//! compiled anew after a change in the other.
//!
//! # Rooms
//! [`ReplayMachine`] says on what; [`Settings`] under what, and [`ReplayError`] why there is no result; [`Tally`] what
//! threads counted; [`patterned`] what mappings start as, if not as zeros.

#![deny(unsafe_code)]

mod machine;
pub mod patterned;
mod settings;
mod tally;

use std::fmt;

use faultless_plan::Plan;

pub use machine::{ReplayMachine, ReplayPlatform};
pub use settings::{Checking, ReplayError, Settings};
pub use tally::{Mismatch, Tally};

/// What came out of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassResult {
    /// From the first step's begin to the last one's end.
    pub elapsed_ns: u64,
    /// What the threads counted and measured.
    pub tally: Tally,
    /// What waiting for the spaces' semaphores took, of all threads together.
    pub lock_wait_ns: u64,
    /// The instance's counters.
    pub counters: Vec<(&'static str, u64)>,
    /// The largest resident size of a space.
    pub peak_rss_bytes: u64,
}

/// Replays plans, under any design.
pub trait Replayer: fmt::Debug + Sync {
    /// Replays a plan once, on a machine of `nr_cpus` CPUs.
    fn replay(
        &self,
        machine: ReplayMachine<'_>,
        nr_cpus: usize,
        plan: &Plan,
        settings: &Settings,
    ) -> Result<PassResult, ReplayError>;

    /// Replays a plan once on the host's kernel, on `nr_cpus` CPUs.
    fn replay_on_host(&self, plan: &Plan, nr_cpus: usize) -> Result<PassResult, ReplayError>;
}
