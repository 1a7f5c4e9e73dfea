//! One run on a simulated machine.
//!
//! # Guarantee
//! A run depends on its job, its machine and its seed alone: see `faultless_sim::isolate`.

use faultless_sim::{Figures, Machine, Spec, isolate};
use faultless_workloads::Spec as Workload;

use super::job::{Job, MeasureError, Pages, Run};
use super::site::SimulatedSite;
use super::vm::once;
use faultless_machine::simulated::with_rerun;
use faultless_machine::watch::{self, Simulated};

/// The longest that a run goes on until its rates have settled, unless told.
pub const SETTLED_AT_MOST_NS: u64 = 45_000_000;
/// What a worker maps at once unless told: small enough for each of many to come round more than once.
const REGION_BYTES: u64 = 4 << 20;
/// From so many frames a worker on, a workload touches all of what it maps.
const MANY_PAGES: u64 = 8192;

/// Makes a workload that touches all of its memory smaller, unless its user has said how large it is.
pub fn shrunk(mut workload: Workload) -> Workload {
    if !workload.name.contains("--region") && workload.pages_each() >= MANY_PAGES {
        workload.settings.region_bytes = REGION_BYTES;
    }
    workload
}

/// Runs a job once on `machine`, all chance decided by `seed`; says too what the simulation did.
pub fn once_simulated(
    machine: &Spec,
    job: &Job,
    seed: u64,
    has_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<(Run, Figures), MeasureError> {
    let site = SimulatedSite::new(machine.nr_cpus());
    let result = isolate(|| {
        let machine = Machine::new(machine, job.cpus, seed).map_err(MeasureError::TooManyCpus)?;
        let machine = watch::Machine::unwatched(machine);
        let run = once::<Simulated>(&machine, job, &site, has_stopped)?;
        let figures = machine.inner().figures();
        let pages = Pages { filled: figures.pages_filled, missed: figures.pages_missed, moved: figures.pages_moved };
        let profile = Some(machine.inner().profile());
        Ok((Run { pages: Some(pages), profile, ..run }, figures))
    });
    result.unwrap_or_else(|failure| Err(MeasureError::Simulation(with_rerun(failure, seed))))
}
