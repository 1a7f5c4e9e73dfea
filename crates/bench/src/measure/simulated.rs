//! One run on a simulated machine.
//!
//! # Guarantee
//! A run depends on its job, its machine and its seed alone: see `faultless_sim::isolate`.
//!
//! # Where processes begin
//! page_fault1 to page_fault3 walk a region from end to end and unmap it. Each process begins at a page of its first
//! region that the seed draws. Processes that begin together stay together: simulated CPUs are alike and a saturated
//! memory bus serves them in turn, so all unmap at the same time and the bus is idle meanwhile.
//! Real processes drift apart. will-it-scale wakes its tasks one after the other and measures after six seconds, some
//! 200 regions of 128 MiB later; two processes that began together on two CPUs were half a region apart after 77
//! (docs/log/2026-11-26-processes-in-step.md). Threads of one space begin together: its locks set who goes when.

use faultless_results::Mode;
use faultless_sim::{Figures, Machine, Spec, isolate};
use faultless_workloads::{Begins, Spec as Workload};

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

/// Returns where workers of a simulated machine begin.
pub(crate) fn begins(mode: Mode, seed: u64) -> Begins {
    match mode {
        Mode::Threads => Begins::AtTheStart,
        Mode::Processes => Begins::Anywhere { seed },
    }
}

/// Runs a job once on `machine`, all chance decided by `seed`; says too what the simulation did.
pub fn once_simulated(
    machine: &Spec,
    job: &Job,
    seed: u64,
    has_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<(Run, Figures), MeasureError> {
    let site = SimulatedSite::new(machine.nr_cpus());
    let mut job = job.clone();
    job.spec.settings.begins = begins(job.mode, seed);
    let result = isolate(|| {
        let machine = Machine::new(machine, job.cpus, seed).map_err(MeasureError::TooManyCpus)?;
        let machine = watch::Machine::unwatched(machine);
        let run = once::<Simulated>(&machine, &job, &site, has_stopped)?;
        let figures = machine.inner().figures();
        let pages = Pages { filled: figures.pages_filled, missed: figures.pages_missed, moved: figures.pages_moved };
        let profile = Some(machine.inner().profile());
        Ok((Run { pages: Some(pages), profile, ..run }, figures))
    });
    result.unwrap_or_else(|failure| Err(MeasureError::Simulation(with_rerun(failure, seed))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Length, PlacementPolicy};
    use faultless_workloads::PAGE;

    /// A quarter of a socket of `epyc-384`, with a quarter of its memory bus.
    const NR_CPUS: usize = 24;

    fn machine() -> Spec {
        let text = include_str!("../../../sim/machines/epyc-384.toml");
        let whole = "bandwidth_gb_per_s = { value = 460,";
        assert!(text.contains(whole), "the socket's bandwidth has changed");
        Spec::parse(&text.replace(whole, "bandwidth_gb_per_s = { value = 115,")).expect("a machine")
    }

    /// Processes that share nothing do not wait for each other either: where their pages saturate the memory bus, it is
    /// never idle for long.
    #[test]
    fn processes_that_share_nothing_keep_a_saturated_memory_bus_busy() {
        let (machine, length) = (machine(), Length::Settled { at_most_ns: 9_000_000 });
        let job = |cpus| Job {
            spec: shrunk(Workload::parse("page_fault1").expect("a workload")),
            design: "mmap-sem".into(),
            semaphore: "rwsem-v8".into(),
            cpus,
            mode: Mode::Processes,
            length,
            memory_bytes: None,
            placement: PlacementPolicy::Linux,
            replayer: None,
        };
        let run = |cpus| once_simulated(&machine, &job(cpus), 1, &|| false).expect("a run").0;
        let (alone, all) = (run(1), run(NR_CPUS));
        let moved_each = alone.pages.expect("simulated").moved as f64 / alone.ops as f64;
        let bus = machine.pages_moved_per_s(NR_CPUS) / moved_each;
        assert!(alone.ops_per_s * NR_CPUS as f64 > bus * 1.1, "the bus is not saturated");
        let reached = all.ops_per_s / bus;
        assert!(reached >= 0.95, "{reached:.2} of {} GB/s", bus * moved_each * PAGE as f64 / 1e9);
    }
}
