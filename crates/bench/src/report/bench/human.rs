//! The tables of workloads and designs, for people.
//!
//! # Guarantee
//! Each rate is a mean with its relative standard deviation; one with a disturbed run is marked, an arm without a run
//! says so. The last lines say who wins, by how much, how sure that is, and why.

use faultless_machine::designs::{DEFAULT_SEMAPHORE, HOST_DESIGN, placement_beneath, semaphore_of};
use faultless_machine::info;
use std::io::{self, Write};

use super::BenchReport;
use super::rows::{NR_NAMES, ceiling, curves, interval, latency, moved_by, range, rate, rows};
use crate::measure::{AGREEMENT, BenchArmResult, BenchSetup, Length, Mode, PlacementPolicy, Run};
use faultless_results::stats::summarize;
use faultless_results::{NOT_CONVERGED, columns, verdict};
use faultless_results::{Unit, grouped};
use faultless_vm::Limits;
use faultless_workloads::{Settings, Spec, Touch};

/// What the table of ceilings shows.
pub(super) const LINEAR: &str = "linear: one CPU's rate on all cores with their threads, or what the memory bus lets through; what sets it; pages that missed the caches";

/// What the table of latencies shows.
pub(super) const STEPS: &str = "time of a timed step: median / 99th percentile of all runs (the mean time of an operation, workers over rate, counts every long wait and may lie far above the median)";

/// Writes the report.
pub fn write(report: &BenchReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    write_head(report, out)?;
    let (spread, rate) = rates(report);
    let n = nr_samples(report);
    writeln!(out, "operations in a second, all workers together; {spread}, n {n}")?;
    columns::write_designs(&rows(report, rate), NR_NAMES, out)?;
    let curves = curves(report);
    if curves.len() > 1 {
        writeln!(out, "\nthe same against CPUs: the medians, each line from its least to its most")?;
        columns::write_named(&curves, 1, out)?;
    }
    if report.setup.has_ceiling {
        writeln!(out, "\n{LINEAR}")?;
        columns::write_designs(&rows(report, |arm| ceiling(report, arm)), NR_NAMES, out)?;
    }
    if report.setup.has_sensitivity {
        writeln!(out, "\nwhich guessed number goes with each rate (rank correlation over the draws)")?;
        columns::write_designs(&rows(report, |arm| moved_by(report, arm)), NR_NAMES, out)?;
    }
    writeln!(out, "\n{STEPS}")?;
    columns::write_designs(&rows(report, latency), NR_NAMES, out)?;
    super::refpage::write(report, out)?;
    notes(report).iter().try_for_each(|note| writeln!(out, "\n{note}"))?;
    let verdict = verdict::lines(&super::result_set(report));
    if !verdict.is_empty() {
        writeln!(out, "\n{}", verdict.join("\n"))?;
    }
    info::write_parameters(report.machine, out)
}

/// Returns what a rate's cell holds, and the cell: chance is the machine's own where time is virtual, so all of it is
/// shown.
pub(super) fn rates(report: &BenchReport<'_>) -> (&'static str, fn(&BenchArmResult) -> String) {
    match report.machine.simulated {
        true if report.setup.draws.is_some() => ("median [5 %, 95 %] of the machines drawn", interval),
        true => ("median [least, most] of the seeds", range),
        false => ("mean ± standard deviation of the runs (the verdict compares medians)", rate),
    }
}

fn write_head(report: &BenchReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let setup = report.setup;
    writeln!(out, "machine   {}", report.machine)?;
    let mode = match setup.mode {
        Mode::Threads => "threads of one address space",
        Mode::Processes => "processes, an address space each",
    };
    writeln!(out, "workers   {mode}")?;
    write_beneath(setup, out)?;
    write_limits(setup, out)?;
    let duration = length(setup.length);
    let (runs, warm_ups, seed) = (setup.runs, setup.warm_ups, setup.seed);
    if report.machine.simulated {
        let last = seed.wrapping_add(runs as u64).wrapping_sub(1);
        let machines = if setup.draws.is_some() { ", each on a machine of its own draw" } else { "" };
        writeln!(out, "runs      {runs} of each, {duration} of virtual time; seeds {seed} to {last}{machines}")?;
        let sizes = sizes(&setup.specs);
        return if sizes.is_empty() { writeln!(out) } else { writeln!(out, "sizes     {}\n", sizes.join(", ")) };
    }
    writeln!(out, "runs      {runs} of each, {duration}, in turn, after {warm_ups} to warm up; seed {seed}\n")
}

/// Writes how many areas spaces may have, where a workload needs more than is usual.
fn write_limits(setup: &BenchSetup, out: &mut dyn Write) -> io::Result<()> {
    let raised = |spec| setup.cpus.iter().filter_map(move |&cpus| setup.max_map_count(spec, cpus));
    let is_host = |design: &String| design == HOST_DESIGN;
    let Some(areas) = setup.specs.iter().flat_map(raised).max().filter(|_| !setup.designs.iter().all(is_host)) else {
        return Ok(());
    };
    let [areas, usual] = [areas, Limits::default().max_map_count].map(grouped);
    let kernel = if setup.designs.iter().any(is_host) { "; not the host's" } else { "" };
    writeln!(out, "limits    max_map_count up to {areas}, where workloads need more than Linux's {usual}{kernel}")
}

/// Writes what is beneath the designs, where that is not what is beneath most of them.
fn write_beneath(setup: &BenchSetup, out: &mut dyn Write) -> io::Result<()> {
    if let Some(placement) = setup.placement.filter(|&placement| placement != PlacementPolicy::Linux) {
        writeln!(out, "placement {placement}")?;
    }
    for design in setup.designs.iter().filter(|design| *design != HOST_DESIGN) {
        let own = setup.semaphores.is_empty().then(|| semaphore_of(design));
        let semaphore =
            own.filter(|&semaphore| semaphore != DEFAULT_SEMAPHORE).map(|semaphore| format!("over {semaphore}"));
        let own = setup.placement.is_none().then(|| placement_beneath(design, None));
        let placement = own.filter(|&placement| placement != PlacementPolicy::Linux);
        let parts: Vec<_> =
            semaphore.into_iter().chain(placement.map(|placement| format!("placement {placement}"))).collect();
        if !parts.is_empty() {
            writeln!(out, "beneath   {design}: {}", parts.join(", "))?;
        }
    }
    Ok(())
}

/// Returns how long runs are.
fn length(length: Length) -> String {
    let show = |ns: u64| Unit::Ns.show(ns as f64);
    match length {
        Length::Fixed(ns) => format!("{} long", show(ns)),
        Length::Settled { at_most_ns } => {
            let percent = AGREEMENT * 100.0;
            format!("until two halves behind a warm-up agree within {percent} %, at most {}", show(at_most_ns))
        }
    }
}

/// Returns the workloads' memory where it is not what was published; of variants of one workload that map alike, once.
fn sizes(specs: &[Spec]) -> Vec<String> {
    let is_told = |spec: &&Spec| {
        let is_recorded = spec.workload.name == "refpage" && spec.settings.refpage.touch == Touch::Renderer;
        spec.settings.region_bytes != Settings::default().region_bytes && !is_recorded
    };
    let size = |spec: &Spec| Unit::Bytes.show(spec.settings.region_bytes as f64);
    let mut told: Vec<String> = Vec::new();
    for spec in specs.iter().filter(is_told) {
        let alike = specs.iter().filter(|other| other.workload.name == spec.workload.name);
        let is_one = alike.filter(is_told).all(|other| size(other) == size(spec));
        let name = if is_one { spec.workload.name } else { &spec.name };
        let line = format!("{name} maps {} at a time", size(spec));
        if !told.contains(&line) {
            told.push(line);
        }
    }
    told
}

/// Returns how many samples each arm has: fewer than asked for if some failed, or somebody ended it early.
pub(super) fn nr_samples(report: &BenchReport<'_>) -> String {
    let counts = report.outcome.arms.iter().map(|arm| arm.runs.len()).filter(|&runs| runs > 0);
    match (counts.clone().min(), counts.max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (_, most) => most.unwrap_or(0).to_string(),
    }
}

/// Returns what makes the result less than it seems.
pub(super) fn notes(report: &BenchReport<'_>) -> Vec<String> {
    let runs = report.outcome.arms.iter().flat_map(|arm| &arm.runs);
    let shares = runs.filter(|run| run.is_disturbed()).filter_map(super::run_delay_share);
    let disturbed = summarize(&shares.collect::<Vec<f64>>()).map(|summary| {
        let share = Unit::Share.show(summary.mean);
        format!(
            "! {} runs were disturbed: their workers waited for a CPU {share} of their time on average (run_delay_ns)",
            summary.n
        )
    });
    let interrupted = report.outcome.was_interrupted.then(|| {
        let made = report.outcome.arms.iter().map(|arm| arm.runs.len()).sum::<usize>();
        format!("interrupted: this is what {made} runs measured until then")
    });
    let is_short = |run: &&Run| run.ops < 100;
    let few = report.outcome.arms.iter().flat_map(|arm| &arm.runs).filter(is_short).count();
    let few = (few > 0).then(|| format!("{few} runs had fewer than 100 operations: a longer --duration tells more"));
    let moving = report.outcome.arms.iter().flat_map(|arm| &arm.runs).filter(|run| !run.has_converged()).count();
    let moving = (moving > 0).then(|| {
        let percent = AGREEMENT * 100.0;
        format!(
            "{NOT_CONVERGED}: the halves of {moving} runs still differed by more than {percent} % when their time was over; \
             judge nothing by them: a longer --at-most tells more"
        )
    });
    [disturbed, interrupted, few, moving].into_iter().flatten().collect()
}
