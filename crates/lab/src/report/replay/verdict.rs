//! One sentence that says what the table means.
//!
//! # Guarantee
//! No difference is claimed without five samples a side, when the interval that is printed beside it includes 1, or when a
//! rank test gives it a probability of 5 % or more by chance; whatever makes the result less than it seems is named in the
//! same breath.

use super::Report;
use crate::experiment::ArmResult;
use crate::measure::HOST_DESIGN;
use crate::plan::Pace;
use crate::plan::classes::Class;
use crate::replay::Checking;
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
    // Checked after each operation, the virtual memory is slow; the host's kernel is not checked.
    let is_unlike = |one: &ArmResult, other: &ArmResult| {
        let is_host = |arm: &ArmResult| arm.arm.design == HOST_DESIGN;
        report.setup.checking == Checking::EachStep && is_host(one) != is_host(other)
    };
    let pairs =
        arms.iter().filter_map(|head| base_of(head).filter(|base| base.arm != head.arm).map(|base| (base, head)));
    let pairs = pairs.filter(|(base, head)| !is_unlike(base, head));
    let found: Vec<String> = pairs.map(|(base, head)| compare(report, base, head)).collect();
    match arms.len() {
        _ if !found.is_empty() => found,
        0 | 1 => vec!["one design alone, nothing to compare".into()],
        _ => vec!["checked after each operation, so not compared with the host's kernel, which is not".into()],
    }
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
    let word = direction(interval, p);
    let numbers = format!("{middle:.2} times the time of {base}, 95 % interval {low:.2} to {high:.2}, n {n}");
    let numbers = match within(interval, NARROW) {
        _ if interval.n < LEAST_PAIRS => numbers,
        verdict => format!("{numbers}; within 2 %: {}", verdict.name()),
    };
    format!("{word} {numbers}")
}

/// Returns what the interval says of the second side: the pairs and the ranks must both tell the sides apart.
fn direction(interval: &Interval, p: f64) -> &'static str {
    match () {
        () if p < CHANCE && interval.high < 1.0 => "is faster:",
        () if p < CHANCE && interval.low > 1.0 => "is slower:",
        () => "shows no difference: ~",
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
    if checks.faults_recorded == 0 {
        parts.push("the trace holds no fault, so nothing was checked".into());
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
        .map(|class| {
            let (name, percent) = (class.name(), checks.share(class) * 100.0);
            format!("{name} explains {percent:.1} % of the faults, above 1 %: {}", class.advice())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: f64, high: f64) -> Interval {
        Interval { low, middle: f64::midpoint(low, high), high, n: 9 }
    }

    #[test]
    fn an_interval_that_includes_1_shows_no_difference_whatever_the_ranks_say() {
        for (low, high) in [(0.99, 1.2), (0.8, 1.01), (1.0, 1.3), (0.7, 1.0)] {
            assert_eq!(direction(&interval(low, high), 0.001), "shows no difference: ~");
        }
    }

    #[test]
    fn an_interval_beside_1_says_on_which_side_unless_the_ranks_may_be_chance() {
        assert_eq!(direction(&interval(1.01, 1.2), 0.04), "is slower:");
        assert_eq!(direction(&interval(0.8, 0.99), 0.04), "is faster:");
        assert_eq!(direction(&interval(1.01, 1.2), 0.05), "shows no difference: ~");
    }

    #[test]
    fn the_sentence_names_the_direction_and_the_interval() {
        let said = said(&interval(1.1, 1.3), 0.01, "mmap-sem");
        assert_eq!(said, "is slower: 1.20 times the time of mmap-sem, 95 % interval 1.10 to 1.30, n 9");
    }
}
