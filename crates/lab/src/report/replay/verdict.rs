//! One sentence that says what the table means.
//!
//! # Guarantee
//! No difference is claimed without five samples a side, or when a rank test gives it a probability of 5 % or more by
//! chance; whatever makes the result less than it seems is named in the same breath.

use super::Report;
use crate::experiment::ArmResult;
use crate::plan::Pace;
use crate::plan::classes::Class;
use crate::stats::{Interval, LEAST_PAIRS, median_ratio, p_value, within};

/// The fewest samples a side that show a difference.
const LEAST_SAMPLES: usize = 5;

/// What a difference may owe to chance.
const CHANCE: f64 = 0.05;

/// The limit that is said to hold or not, once there are enough pairs to say so.
const NARROW: f64 = 0.02;

/// Of a class's share, what the verdict mentions.
const NOTED_SHARE: f64 = 0.01;

/// Returns the sentence.
pub(super) fn sentence(report: &Report<'_>) -> String {
    let mut parts = comparisons(report);
    parts.extend(checks(report));
    parts.extend(shares(report));
    if report.setup.pace == Pace::None && report.outcome.has_shared_spaces {
        parts.push("contention is an upper bound, blocking not replayed".into());
    }
    format!("Verdict: {}.", parts.join("; "))
}

/// Compares each arm with the first one that has its semaphore and CPUs.
fn comparisons(report: &Report<'_>) -> Vec<String> {
    let arms = &report.outcome.arms;
    let base_of = |arm: &ArmResult| {
        arms.iter().find(|base| {
            // The host's kernel, which has its own semaphore, is compared with whatever comes first.
            let has_same = base.arm.semaphore == arm.arm.semaphore || arm.arm.semaphore.is_empty();
            has_same && base.arm.cpus == arm.arm.cpus
        })
    };
    let pairs =
        arms.iter().filter_map(|head| base_of(head).filter(|base| base.arm != head.arm).map(|base| (base, head)));
    let found: Vec<String> = pairs.map(|(base, head)| compare(report, base, head)).collect();
    if found.is_empty() { vec!["one design alone, nothing to compare".into()] } else { found }
}

fn compare(report: &Report<'_>, base: &ArmResult, head: &ArmResult) -> String {
    let where_ = if report.outcome.arms.len() > 2 {
        format!(" ({}, {} CPUs)", head.arm.semaphore, head.arm.cpus)
    } else {
        String::new()
    };
    let (base_name, head_name) = (&base.arm.design, &head.arm.design);
    if head.passes.len() < LEAST_SAMPLES {
        return format!("{head_name} against {base_name}{where_}: fewer than {LEAST_SAMPLES} runs show no difference");
    }
    let times = |arm: &ArmResult| arm.passes.iter().map(|pass| pass.elapsed_ns as f64).collect::<Vec<f64>>();
    let p = p_value(&times(base), &times(head));
    match median_ratio(&times(base), &times(head), report.setup.seed) {
        None => format!("{head_name} against {base_name}{where_}: the trace takes no time"),
        Some(interval) => format!("{head_name} {}{where_}", said(&interval, p, base_name)),
    }
}

fn said(interval: &Interval, p: f64, base: &str) -> String {
    let Interval { low, middle, high, n } = interval;
    let numbers = format!("{middle:.2} times the time of {base}, 95 % interval {low:.2} to {high:.2}, n {n}");
    let numbers = match within(interval, NARROW) {
        _ if interval.n < LEAST_PAIRS => numbers,
        verdict => format!("{numbers}; within 2 %: {}", verdict.name()),
    };
    match () {
        () if p >= CHANCE => format!("shows no difference: ~ {numbers}"),
        () if *middle < 1.0 => format!("is faster: {numbers}"),
        () => format!("is slower: {numbers}"),
    }
}

fn checks(report: &Report<'_>) -> Vec<String> {
    let checks = &report.outcome.checks;
    let mut parts = Vec::new();
    if checks.mismatches > 0 {
        parts.push(format!("{} mismatches, so the replay is not the recorded program", checks.mismatches));
    }
    if !checks.skipped.is_empty() {
        let kinds: Vec<&str> = checks.skipped.iter().map(|(kind, _)| *kind).collect();
        parts.push(format!("not replayed: {}", kinds.join(", ")));
    }
    if checks.lost > 0 {
        parts.push(format!("{} records are missing from the recording", checks.lost));
    }
    parts
}

fn shares(report: &Report<'_>) -> Vec<String> {
    let checks = &report.outcome.checks;
    let noted = Class::ALL.into_iter().filter(|&class| checks.share(class) > NOTED_SHARE);
    noted
        .map(|class| format!("{} explains {:.1} % of the faults, above 1 %", class.name(), checks.share(class) * 100.0))
        .collect()
}
