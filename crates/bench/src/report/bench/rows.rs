//! The tables' cells: a row for each workload and number of CPUs, a column for each design.

use super::BenchReport;
use crate::measure::{self, BenchArm, BenchArmResult, BenchSetup, Pages, Run};
use crate::spread::{Interval, strongest};
use faultless_results::NOT_CONVERGED;
use faultless_results::Unit;
use faultless_results::screen::{Tone, sparkline, toned};
use faultless_results::stats::{Histogram, summarize};

/// A table's rows, headings first.
pub(super) type Rows = Vec<Vec<String>>;

/// Returns the table of one figure.
pub(super) fn rows(report: &BenchReport<'_>, cell: impl Fn(&BenchArmResult) -> String) -> Rows {
    let arms = &report.outcome.arms;
    let mut columns: Vec<String> = Vec::new();
    for name in arms.iter().map(|arm| column(report.setup, &arm.arm)) {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    let mut rows = vec![["workload".into(), "CPUs".into()].into_iter().chain(columns.iter().cloned()).collect()];
    for group in arms.chunk_by(|one, other| key(&one.arm) == key(&other.arm)) {
        let (name, cpus) = key(&group[0].arm);
        let mut row = vec![name.to_owned(), cpus.to_string()];
        let of = |name: &String| group.iter().find(|arm| column(report.setup, &arm.arm) == *name);
        row.extend(columns.iter().map(|name| of(name).map_or("-".into(), &cell)));
        rows.push(row);
    }
    rows
}

/// How many columns of [`rows`] say what a row is about.
pub(super) const NR_NAMES: usize = 2;

/// The fewest numbers of CPUs that make a curve.
const LEAST_CURVE: usize = 3;

/// Returns each design's rates against CPUs as a line of bars, a row for each workload; headings alone where there are
/// too few numbers of CPUs.
pub(super) fn curves(report: &BenchReport<'_>) -> Rows {
    let arms = &report.outcome.arms;
    let mut found: Vec<(&str, String, Vec<f64>)> = Vec::new();
    for arm in arms.iter().filter(|arm| !arm.runs.is_empty()) {
        let (name, design) = (key(&arm.arm).0, column(report.setup, &arm.arm));
        let mut samples: Vec<f64> = arm.runs.iter().map(|run| run.ops_per_s).collect();
        samples.sort_by(f64::total_cmp);
        let rate = median(&samples);
        match found.iter_mut().find(|curve| (curve.0, &curve.1) == (name, &design)) {
            Some(curve) => curve.2.push(rate),
            None => found.push((name, design, vec![rate])),
        }
    }
    let head = vec!["workload".into(), "design".into(), "throughput".into(), "least".into(), "most".into()];
    let row = |(name, design, rates): &(&str, String, Vec<f64>)| {
        let ends =
            [f64::min, f64::max].map(|pick| Unit::PerSecond.show(rates.iter().copied().reduce(pick).unwrap_or(0.0)));
        [(*name).to_owned(), design.clone(), sparkline(rates)].into_iter().chain(ends).collect()
    };
    let curves = found.iter().filter(|curve| curve.2.len() >= LEAST_CURVE).map(row);
    std::iter::once(head).chain(curves).collect()
}

fn key(arm: &BenchArm) -> (&str, usize) {
    (&arm.spec.name, arm.cpus)
}

fn column(setup: &BenchSetup, arm: &BenchArm) -> String {
    match &arm.semaphore {
        Some(semaphore) if setup.semaphores.len() > 1 => format!("{}/{semaphore}", arm.design),
        _ => arm.design.clone(),
    }
}

/// What stands in the cell of an arm without a run.
fn without_runs(arm: &BenchArmResult) -> String {
    if arm.error.is_some() { toned(Tone::Worse, "failed") } else { "<not counted>".into() }
}

/// Operations in a second, with the spread, and a mark if a run was disturbed.
pub(super) fn rate(arm: &BenchArmResult) -> String {
    let samples: Vec<f64> = arm.runs.iter().map(|run| run.ops_per_s).collect();
    let Some(summary) = summarize(&samples) else { return without_runs(arm) };
    let deviation = summary.deviation.filter(|_| summary.mean > 0.0);
    // One run has no spread; the heading says how many there were.
    let spread = deviation.map(|deviation| format!(" ± {:.1} %", deviation / summary.mean * 100.0));
    let mark = if arm.runs.iter().any(Run::is_disturbed) { toned(Tone::Undecided, " !") } else { String::new() };
    format!("{}{}{mark}", Unit::PerSecond.show(summary.mean), spread.unwrap_or_default())
}

/// Operations in a second: the median of the runs, the least and the most.
pub(super) fn range(arm: &BenchArmResult) -> String {
    let mut samples: Vec<f64> = arm.runs.iter().map(|run| run.ops_per_s).collect();
    samples.sort_by(f64::total_cmp);
    let (Some(&least), Some(&most)) = (samples.first(), samples.last()) else { return without_runs(arm) };
    within(arm, median(&samples), [least, most])
}

/// A rate and the ends between which it lies, with a mark if a run has not settled.
fn within(arm: &BenchArmResult, rate: f64, ends: [f64; 2]) -> String {
    let [rate, low, high] = [rate, ends[0], ends[1]].map(|rate| Unit::PerSecond.show(rate));
    let has_converged = arm.runs.iter().all(Run::has_converged);
    let mark = if has_converged { String::new() } else { toned(Tone::Undecided, &format!(" {NOT_CONVERGED}")) };
    format!("{rate} [{low}, {high}]{mark}")
}

/// Operations in a second on drawn machines: the median, and between what 90 % of them lie.
pub(super) fn interval(arm: &BenchArmResult) -> String {
    let samples: Vec<f64> = arm.runs.iter().map(|run| run.ops_per_s).collect();
    let Some(Interval { median, low, high, .. }) = Interval::of(&samples) else { return without_runs(arm) };
    within(arm, median, [low, high])
}

/// The drawn numbers that go with the rate, the strongest first.
pub(super) fn moved_by(report: &BenchReport<'_>, arm: &BenchArmResult) -> String {
    let samples: Vec<f64> = arm.runs.iter().map(|run| run.ops_per_s).collect();
    let draws = report.setup.draws.as_ref().filter(|draws| draws.len() == samples.len());
    draws.map_or_else(|| "-".to_owned(), |draws| strongest(&draws.sensitivity(&samples)))
}

/// The most that the machine can do, what sets it, and the part of it that was reached.
pub(super) fn ceiling(report: &BenchReport<'_>, arm: &BenchArmResult) -> String {
    let Some(ceiling) = measure::ceiling(report.setup, report.outcome, arm) else { return "<not known>".into() };
    let reached = arm.reached(&ceiling).map_or(NOT_CONVERGED.into(), |share| format!("reached {share:.2}"));
    let of = format!("{} ({}), {reached}", Unit::PerSecond.show(ceiling.ops_per_s), ceiling.set_by.name());
    missed(arm).map_or(of.clone(), |share| format!("{of}, {:.0} % missed", share * 100.0))
}

/// The share of pages zeroed or copied that missed the caches; nothing where there were none.
fn missed(arm: &BenchArmResult) -> Option<f64> {
    let sum = |of: fn(Pages) -> u64| arm.runs.iter().filter_map(|run| run.pages).map(of).sum::<u64>() as f64;
    let filled = sum(|pages| pages.filled);
    (filled > 0.0).then(|| sum(|pages| pages.missed) / filled)
}

/// Returns the middle of sorted samples.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

/// The median and the 99th percentile of all runs' timed steps.
pub(super) fn latency(arm: &BenchArmResult) -> String {
    let mut all = Histogram::default();
    arm.runs.iter().for_each(|run| all.add(&run.latency));
    let at = |per_mille| all.percentile(per_mille).map(|ns| Unit::Ns.show(ns as f64));
    match (at(500), at(990)) {
        (Some(middle), Some(high)) => format!("{middle} / {high}"),
        _ => without_runs(arm),
    }
}
