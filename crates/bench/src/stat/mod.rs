//! Counting what happens in a workload or a replayed trace, as `perf stat` does for a program.
//!
//! # Guarantee
//! * I1 a count is exact: of the virtual memory's events in the run's window, or the host kernel's own count
//! * I2 what a design, a platform or a kernel does not count is `None`, never 0
//! * I3 a run is watched only if locks or a stream were asked for; then its times include what watching takes
//!
//! # Rooms
//! `vm` runs on the virtual memory, `host` on the host's kernel, which counts in `sources`; this file does it in turn.

mod arm;
mod host;
mod sources;
mod vm;

pub use arm::{Locks, NO_DESIGN, RunCounts, StatArm, StatSetup, Subject, Tap};

use faultless_linux::space::has_interrupt;
use faultless_machine::designs::HOST_DESIGN;
use faultless_machine::session::in_turns;

/// An arm's runs, in order.
#[derive(Debug)]
pub struct StatArmResult {
    /// Which arm.
    pub arm: StatArm,
    /// What came out, run by run.
    pub runs: Vec<RunCounts>,
    /// Why the arm has fewer runs than asked for.
    pub error: Option<String>,
}

/// What came out of all arms.
#[derive(Debug)]
pub struct StatOutcome {
    /// Arm by arm, in the order in which they were asked for.
    pub arms: Vec<StatArmResult>,
    /// Whether somebody ended it early.
    pub was_interrupted: bool,
}

impl StatSetup {
    /// Runs an arm once.
    fn once(&self, arm: &StatArm, number: usize, tap: Option<Tap>) -> Result<RunCounts, String> {
        match (arm.design == HOST_DESIGN, self.machine.simulated()) {
            (true, Some(spec)) => Err(format!("the host's kernel can't run on {}, which is simulated", spec.name())),
            (true, None) => host::once(self, arm),
            (false, _) => vm::once(self, arm, self.seed.wrapping_add(number as u64), tap),
        }
    }
}

/// Runs every arm in turn, in an order that the seed draws anew for each run; `tap` opens the stream of a run's events,
/// if one is wanted.
pub fn run(setup: &StatSetup, tap: &dyn Fn(&StatArm, usize) -> Option<Tap>, progress: &dyn Fn(usize)) -> StatOutcome {
    let arms = setup.arms().into_iter();
    let mut results: Vec<StatArmResult> =
        arms.map(|arm| StatArmResult { arm, runs: Vec::new(), error: None }).collect();
    for (made, (number, arm)) in in_turns(setup.runs, results.len(), setup.seed).enumerate() {
        let result = &mut results[arm];
        if result.error.is_none() && !has_interrupt() {
            match setup.once(&result.arm, number, tap(&result.arm, number)) {
                Ok(counts) => result.runs.push(counts),
                Err(_) if has_interrupt() => {}
                Err(error) => result.error = Some(error),
            }
        }
        progress(made + 1);
    }
    StatOutcome { arms: results, was_interrupted: has_interrupt() }
}
