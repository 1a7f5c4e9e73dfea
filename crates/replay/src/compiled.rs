//! Passes on the platforms that most callers want, compiled here once for every design.
//!
//! # Guarantee
//! Whoever calls [`pass_on`], or takes [`AllDesigns`] as a [`Replayer`], compiles no design: [`pass`] is generic, and
//! each crate that calls it would compile all of them again.

use faultless_machine::watch::{Simulated, Watched};
use faultless_pass::{PassResult, ReplayError, ReplayMachine, Replayer, Settings};
use faultless_plan::Plan;
use faultless_platform::native::Native;

use super::{pass, pass_on_host};

/// Replays a plan once, on any machine; as [`pass`].
pub(super) fn pass_on(
    machine: ReplayMachine<'_>,
    nr_cpus: usize,
    plan: &Plan,
    settings: &Settings,
) -> Result<PassResult, ReplayError> {
    match machine {
        ReplayMachine::Native(machine) => pass::<Native>(machine, nr_cpus, plan, settings),
        ReplayMachine::Watched(machine) => pass::<Watched<Native>>(machine, nr_cpus, plan, settings),
        ReplayMachine::Simulated(machine) => pass::<Simulated>(machine, nr_cpus, plan, settings),
    }
}

/// Replays plans under every design of the registry.
#[derive(Clone, Copy, Debug)]
pub struct AllDesigns;

impl Replayer for AllDesigns {
    fn replay(
        &self,
        machine: ReplayMachine<'_>,
        nr_cpus: usize,
        plan: &Plan,
        settings: &Settings,
    ) -> Result<PassResult, ReplayError> {
        pass_on(machine, nr_cpus, plan, settings)
    }

    fn replay_on_host(&self, plan: &Plan, nr_cpus: usize) -> Result<PassResult, ReplayError> {
        pass_on_host(plan, nr_cpus)
    }
}
