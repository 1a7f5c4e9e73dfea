//! What a session of workloads found out: as a result set, and as tables for people.

pub mod human;
pub mod markdown;
mod profile;
mod refpage;
mod rows;

use serde_json::{Map, Value, json};

use crate::measure::{self, BenchArmResult, BenchOutcome, BenchSetup, Length, Pages, Run, Settled};
use crate::spread::{Draws, Interval, sensitivity_json};
use faultless_machine::designs::HOST_DESIGN;
use faultless_machine::events;
use faultless_results::Unit;
use faultless_results::screen::uncolored;
use faultless_results::set::{
    ABOUT, CONVERGED, DISTRIBUTION, MachineInfo, Measured, PARAMS, PROFILE, ResultSet, params,
};
use faultless_results::stats::Histogram;
use faultless_results::verdict;
use faultless_vm::PlacementPolicy;
use faultless_workloads::{Settings, Spec};

/// A session with what it was about.
#[derive(Debug)]
pub struct BenchReport<'a> {
    /// The machine.
    pub machine: &'a MachineInfo,
    /// What was asked for.
    pub setup: &'a BenchSetup,
    /// What came out.
    pub outcome: &'a BenchOutcome,
}

/// A figure of a run.
struct Metric {
    name: &'static str,
    unit: Unit,
    of: fn(&Run) -> Option<f64>,
}

const METRICS: &[Metric] = &[
    Metric { name: "ops_per_s", unit: Unit::PerSecond, of: |run| Some(run.ops_per_s) },
    Metric { name: "op_p50_ns", unit: Unit::Ns, of: |run| percentile(run, 500) },
    Metric { name: "op_p99_ns", unit: Unit::Ns, of: |run| percentile(run, 990) },
    Metric { name: "op_p999_ns", unit: Unit::Ns, of: |run| percentile(run, 999) },
    Metric { name: "lock_wait_share", unit: Unit::Share, of: lock_wait_share },
    Metric { name: "peak_rss_bytes", unit: Unit::Bytes, of: |run| run.peak_rss_bytes.map(|bytes| bytes as f64) },
    Metric { name: "run_delay_share", unit: Unit::Share, of: run_delay_share },
];

fn percentile(run: &Run, per_mille: u64) -> Option<f64> {
    run.latency.percentile(per_mille).map(|ns| ns as f64)
}

fn lock_wait_share(run: &Run) -> Option<f64> {
    share(run, run.lock_wait_ns?)
}

fn run_delay_share(run: &Run) -> Option<f64> {
    share(run, run.run_delay_ns?)
}

/// Returns a time's share of all workers' time.
fn share(run: &Run, ns: u64) -> Option<f64> {
    let all_ns = run.elapsed_ns * run.workers as u64;
    (all_ns > 0).then(|| ns as f64 / all_ns as f64)
}

/// Returns the session as a result set.
pub fn result_set(report: &BenchReport<'_>) -> ResultSet {
    let (setup, outcome) = (report.setup, report.outcome);
    let mut set = ResultSet::new("bench", setup.seed, report.machine.clone());
    set.more = object(json!({
        "duration_ns": match setup.length { Length::Fixed(ns) => Some(ns), Length::Settled { .. } => None },
        "at_most_ns": match setup.length { Length::Fixed(_) => None, Length::Settled { at_most_ns } => Some(at_most_ns) },
        "runs": setup.runs,
        "warm_up_runs": setup.warm_ups,
        "region_bytes": setup.specs.iter().map(|spec| spec.settings.region_bytes).collect::<Vec<_>>(),
        "placement": setup.placement.map(PlacementPolicy::name),
        "interrupted": outcome.was_interrupted,
        ABOUT: about(setup),
    }));
    let arms = outcome.arms.iter();
    set.results = arms.flat_map(|arm| METRICS.iter().filter_map(move |metric| measured(report, arm, metric))).collect();
    let failed = outcome.arms.iter().filter_map(|arm| arm.error.as_ref().map(|error| format!("{}: {error}", arm.arm)));
    let disturbed = outcome.arms.iter().flat_map(|arm| &arm.runs).filter(|run| run.is_disturbed()).count();
    let moving = outcome.arms.iter().flat_map(|arm| &arm.runs).filter(|run| !run.has_converged()).count();
    let failed = failed.collect::<Vec<_>>();
    set.checks = object(json!({ "failed": failed, "disturbed_runs": disturbed, "not_converged_runs": moving }));
    let verdict = uncolored(&verdict::lines(&set).join("\n"));
    set.more.insert("verdict".into(), verdict.into());
    set
}

/// Returns what each workload does, and what an operation of it is.
fn about(setup: &BenchSetup) -> Map<String, Value> {
    let told = |spec: &Spec| {
        let (does, operation, region_bytes) =
            (spec.workload.about, spec.workload.operation, spec.settings.region_bytes);
        let other_bytes = (region_bytes != Settings::default().region_bytes).then_some(region_bytes);
        (spec.name.clone(), json!({ "does": does, "operation": operation, "region_bytes": other_bytes }))
    };
    setup.specs.iter().map(told).collect()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn measured(report: &BenchReport<'_>, result: &BenchArmResult, metric: &Metric) -> Option<Measured> {
    let samples: Vec<f64> = result.runs.iter().filter_map(metric.of).collect();
    let first = result.runs.first().filter(|_| !samples.is_empty())?;
    let mut more = circumstances(report, result);
    if metric.name == "op_p50_ns" {
        more.extend([distribution(result)]);
    }
    if metric.name == "ops_per_s" {
        more.extend(profile::json(&result.runs).map(|profile| (PROFILE.to_owned(), profile)));
    }
    if let Some(draws) = &report.setup.draws {
        more.extend(over_draws(draws, &samples));
    }
    Some(Measured {
        workload: result.arm.spec.name.clone(),
        mode: result.arm.mode(report.setup.mode),
        design: result.arm.design.clone(),
        semaphore: result.arm.semaphore.clone(),
        cpus: result.arm.cpus,
        workers: (first.workers != result.arm.cpus).then_some(first.workers),
        metric: metric.name.into(),
        unit: metric.unit.name().into(),
        samples,
        counters: counters(result),
        more,
    })
}

/// Returns where most of the drawn machines lie, and which drawn number goes with the figure.
pub fn over_draws(draws: &Draws, samples: &[f64]) -> Map<String, Value> {
    let interval = Interval::of(samples).map(|interval| interval.json());
    // Of fewer samples than draws nobody knows which are lacking.
    let moved_by = if samples.len() == draws.len() { draws.sensitivity(samples) } else { Vec::new() };
    object(json!({ "interval": interval, "sensitivity": sensitivity_json(&moved_by) }))
}

/// Returns how long the timed steps of all runs took: pairs of nanoseconds and how many.
fn distribution(result: &BenchArmResult) -> (String, Value) {
    let mut all = Histogram::default();
    result.runs.iter().for_each(|run| all.add(&run.latency));
    (DISTRIBUTION.to_owned(), all.pairs().map(|(ns, count)| json!([ns, count])).collect())
}

/// Returns what was counted in all runs together.
fn counters(result: &BenchArmResult) -> std::collections::BTreeMap<String, u64> {
    let mut sums = std::collections::BTreeMap::new();
    let counted = result.runs.iter().flat_map(|run| &run.counters);
    for (name, count) in counted.filter(|(name, _)| events::is_counted(&result.arm.design, name)) {
        *sums.entry((*name).to_owned()).or_insert(0) += count;
    }
    sums
}

/// Returns what tells runs apart that were disturbed or have not settled, and what the machine could do at most.
fn circumstances(report: &BenchReport<'_>, result: &BenchArmResult) -> Map<String, Value> {
    let runs = result.runs.iter();
    let mut params = params(&result.arm.spec.name);
    let placement = report.setup.placement_under(&result.arm.design);
    if placement != PlacementPolicy::Linux {
        params.insert("placement".into(), placement.name().into());
    }
    let raised = report.setup.max_map_count(&result.arm.spec, result.arm.cpus);
    if let Some(areas) = raised.filter(|_| result.arm.design != HOST_DESIGN) {
        params.insert("max_map_count".into(), areas.into());
    }
    let mut all = object(json!({
        "run_delay_ns": runs.clone().map(|run| run.run_delay_ns).collect::<Vec<_>>(),
        "disturbed": runs.clone().map(Run::is_disturbed).collect::<Vec<_>>(),
        "ops": runs.clone().map(|run| run.ops).collect::<Vec<_>>(),
    }));
    if !params.is_empty() {
        all.insert(PARAMS.into(), params.into());
    }
    if runs.clone().any(|run| run.settled.is_some()) {
        all.insert(CONVERGED.into(), runs.clone().map(Run::has_converged).collect());
        let settled = |of: fn(&Settled) -> u64| -> Value {
            runs.clone().map(|run| run.settled.as_ref().map(of)).collect::<Vec<_>>().into()
        };
        all.insert("warm_up_ns".into(), settled(|run| run.warm_up_ns));
        all.insert("window_ns".into(), settled(|run| run.window_ns));
    }
    if runs.clone().any(|run| run.pages.is_some()) {
        let each = |pages: Pages| json!({ "filled": pages.filled, "missed": pages.missed, "moved": pages.moved });
        all.insert("pages".into(), runs.clone().map(|run| run.pages.map(each)).collect());
    }
    if let Some(ceiling) = measure::ceiling(report.setup, report.outcome, result) {
        let reached = result.reached(&ceiling);
        let linear = json!({ "ops_per_s": ceiling.ops_per_s, "set_by": ceiling.set_by.name(), "reached": reached });
        all.insert("linear".into(), linear);
    }
    all
}
