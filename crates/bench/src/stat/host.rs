//! A counted run on the host's kernel.
//!
//! # Guarantee
//! perf events count the processes that the run is made of, from their making to their end, as `perf stat` counts a
//! program. `/proc/vmstat` counts the whole system: what else runs meanwhile is in it.

use std::collections::BTreeMap;

use faultless_linux::counters::{Counter, Software, vmstat};

use super::arm::{RunCounts, StatArm, StatSetup, Subject};
use super::sources::{HostSource, host_source};
use super::vm::job;
use crate::measure::{self, Pinning};

/// What was open while the run went on.
struct Open {
    counters: Vec<(Software, Option<Counter>)>,
    vmstat: BTreeMap<String, u64>,
}

/// Counters of the system that only go up: what a run adds to them means something.
const GROWING: [&str; 6] = ["pg", "vma_lock_", "nr_tlb_", "thp_", "speculative_", "compact_"];

/// Runs an arm once.
pub(super) fn once(setup: &StatSetup, arm: &StatArm) -> Result<RunCounts, String> {
    let open = Open::new(&setup.events);
    let ran = run(setup, arm)?;
    let (counts, vmstat) = open.close(&setup.events);
    let faults = setup.events.iter().position(|name| *name == "faults").and_then(|place| counts[place]);
    Ok(RunCounts { faults, counts, vmstat, ..ran })
}

/// Runs the subject; returns how long it took, and how many operations a workload made, and nothing else yet.
fn run(setup: &StatSetup, arm: &StatArm) -> Result<RunCounts, String> {
    match &setup.subject {
        Subject::Workload { spec, duration_ns, mode } => {
            let job = job(setup, arm, spec, *duration_ns, *mode);
            let run = measure::once_on_host(&job, Pinning::IfEnough).map_err(|error| error.to_string())?;
            let (ops, ops_per_s) = (Some(run.ops), Some(run.ops_per_s));
            Ok(RunCounts { elapsed_ns: run.elapsed_ns, ops, ops_per_s, ..RunCounts::default() })
        }
        Subject::KernelMaps { .. } => Err("the host's kernel has maps of its own".into()),
        Subject::Trace { plan, .. } => {
            let pass = setup.replayer.replay_on_host(plan, arm.cpus).map_err(|error| error.to_string())?;
            Ok(RunCounts { elapsed_ns: pass.elapsed_ns, ..RunCounts::default() })
        }
    }
}

impl Open {
    fn new(events: &[&str]) -> Self {
        let wanted = events.iter().filter_map(|name| match host_source(name) {
            HostSource::Perf(software) => Some(software),
            HostSource::Vmstat(_) | HostSource::Nowhere => None,
        });
        let counters = wanted.map(|software| (software, Counter::open(software).ok())).collect();
        Self { counters, vmstat: vmstat().unwrap_or_default() }
    }

    fn close(self, events: &[&str]) -> (Vec<Option<u64>>, Vec<(String, u64)>) {
        let read = |counter: &Option<Counter>| counter.as_ref().and_then(|counter| counter.read().ok());
        let perf: Vec<(Software, Option<u64>)> =
            self.counters.iter().map(|(software, counter)| (*software, read(counter))).collect();
        let grown = grown(&self.vmstat, &vmstat().unwrap_or_default());
        let of_perf =
            |wanted: Software| perf.iter().find(|(software, _)| *software == wanted).and_then(|(_, count)| *count);
        let of_vmstat = |names: &[&str]| names.iter().map(|name| grown.get(*name).copied()).sum::<Option<u64>>();
        let count = |name: &&str| match host_source(name) {
            HostSource::Perf(software) => of_perf(software),
            HostSource::Vmstat(names) => of_vmstat(names),
            HostSource::Nowhere => None,
        };
        let counts = events.iter().map(count).collect();
        let is_growing = |name: &str| GROWING.iter().any(|prefix| name.starts_with(prefix));
        let vmstat = grown.into_iter().filter(|(name, _)| is_growing(name)).collect();
        (counts, vmstat)
    }
}

/// Returns what was added to each counter.
fn grown(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let difference = |(name, after): (&String, &u64)| Some((name.clone(), after.saturating_sub(*before.get(name)?)));
    after.iter().filter_map(difference).collect()
}
