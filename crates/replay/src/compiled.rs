//! Passes on the platforms that most callers want, compiled here once for every design.
//!
//! # Guarantee
//! Whoever calls [`pass_on`], or takes [`AllDesigns`] as a [`Replayer`], compiles no design: [`pass`] is generic, and
//! each crate that calls it would compile all of them again.

use faultless_machine::watch::{Simulated, Watched};
use faultless_plan::Plan;
use faultless_plan::replayer::{ReplayMachine, ReplaySettings, Replayed, Replayer};
use faultless_platform::native::Native;

use super::{Checking, PassResult, ReplayError, Settings, pass, pass_on_host};

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
        settings: &ReplaySettings,
    ) -> Result<Replayed, String> {
        let ReplaySettings { design, semaphore, memory_bytes, limits } = settings.clone();
        let settings = Settings { design, semaphore, memory_bytes, limits, checking: Checking::AtEnd, filling: None };
        said(pass_on(machine, nr_cpus, plan, &settings))
    }

    fn replay_on_host(&self, plan: &Plan, nr_cpus: usize) -> Result<Replayed, String> {
        said(pass_on_host(plan, nr_cpus))
    }
}

fn said(result: Result<PassResult, ReplayError>) -> Result<Replayed, String> {
    let PassResult { elapsed_ns, tally, lock_wait_ns, counters, peak_rss_bytes } =
        result.map_err(|error| error.to_string())?;
    Ok(Replayed {
        elapsed_ns,
        lock_wait_ns,
        counters,
        peak_rss_bytes,
        mismatches: tally.mismatches,
        first_mismatch: tally.first_mismatches.into_iter().next().map(|first| (first.event, first.what)),
    })
}
