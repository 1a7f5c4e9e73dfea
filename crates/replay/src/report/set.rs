//! A replay as a result set.

use crate::patterned::split;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Metric, Report};
use crate::PassResult;
use crate::experiment::{Checks, ReplayArmResult};
use faultless_machine::events;
use faultless_plan::Pace;
use faultless_plan::classes::Class;
use faultless_plan::memory_calls::Reason;
use faultless_results::screen::uncolored;
use faultless_results::set::{DISTRIBUTION, UNCOMPARED};
use faultless_results::stats::Histogram;
use faultless_results::{Measured, Mode, ResultSet};

/// Returns the replay's results, with the trace and what was checked.
pub fn result_set(report: &Report<'_>) -> ResultSet {
    let mut set = ResultSet::new("replay", report.setup.seed, report.machine.clone());
    set.more.insert("trace".into(), trace(report));
    set.more.insert(super::verdict::CAVEATS.into(), super::verdict::caveats(report).into());
    set.more.insert(UNCOMPARED.into(), super::verdict::uncompared(report).into());
    set.results = results(report);
    if report.outcome.was_interrupted {
        let done = report.outcome.checks.passes;
        set.mark_interrupted(format_args!(
            "interrupted after {done} of {} passes",
            report.setup.runs * report.outcome.arms.len()
        ));
    }
    set.checks = checks(&report.outcome.checks);
    let verdict = uncolored(&super::verdict::text(&set));
    set.more.insert("verdict".into(), verdict.into());
    set
}

fn trace(report: &Report<'_>) -> Value {
    let header = report.header;
    json!({
        "command": header.command,
        "recorded_on": { "cpus": header.machine.cpus, "model": header.machine.model, "kernel": header.machine.kernel },
        "missing": header.missing.iter().map(|missing| missing.name()).collect::<Vec<_>>(),
        "pace": if report.setup.pace == Pace::None { "none" } else { "recorded" },
        "memory_bytes": report.outcome.memory_bytes,
        "map_calls": report.outcome.totals.calls,
        "faults_outside": report.outcome.totals.outside,
        "faults_forbidden": report.outcome.totals.forbidden,
        "waits": report.outcome.totals.waits,
    })
}

fn results(report: &Report<'_>) -> Vec<Measured> {
    let arms = report.outcome.arms.iter();
    arms.flat_map(|arm| Metric::ALL.iter().filter_map(move |metric| result(report, arm, metric))).collect()
}

fn result(report: &Report<'_>, arm: &ReplayArmResult, metric: &Metric) -> Option<Measured> {
    let samples = metric.samples(arm)?;
    Some(Measured {
        workload: report.workload.into(),
        mode: if report.outcome.has_shared_spaces { Mode::Threads } else { Mode::Processes },
        design: arm.arm.design.clone(),
        semaphore: Some(arm.arm.semaphore.clone()).filter(|semaphore| !semaphore.is_empty()),
        cpus: arm.arm.cpus,
        workers: None,
        metric: metric.name.into(),
        unit: metric.unit.name().into(),
        samples,
        counters: counters(arm),
        more: match metric.name {
            "fault_p50_ns" => distribution(arm, |pass| &pass.tally.fault_ns),
            "call_p50_ns" => distribution(arm, |pass| &pass.tally.call_ns),
            _ => Map::new(),
        },
    })
}

/// Returns how long something took in all passes: pairs of nanoseconds and how many.
fn distribution(arm: &ReplayArmResult, times: fn(&PassResult) -> &Histogram) -> Map<String, Value> {
    let mut all = Histogram::default();
    arm.passes.iter().for_each(|pass| all.add(times(pass)));
    [(DISTRIBUTION.to_owned(), all.pairs().map(|(ns, count)| json!([ns, count])).collect())].into_iter().collect()
}

/// Returns the counters of all passes together.
fn counters(arm: &ReplayArmResult) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let counted = arm.passes.iter().flat_map(|pass| &pass.counters);
    for &(name, count) in counted.filter(|(name, _)| events::is_counted(split(&arm.arm.design).0, name)) {
        *sums.entry(name.to_owned()).or_insert(0) += count;
    }
    sums
}

fn checks(checks: &Checks) -> Map<String, Value> {
    let classified = Class::ALL.map(|class| (class.name().to_owned(), checks.classified[class as usize].into()));
    let imposed = Reason::ALL.map(|reason| {
        let count = checks.imposed.iter().find(|(name, _)| *name == reason.name()).map_or(0, |&(_, count)| count);
        (reason.name().to_owned(), Value::from(count))
    });
    let skipped = checks.skipped.iter().map(|&(kind, count)| (kind.to_owned(), count.into()));
    let figures = [
        ("events", Value::from(checks.events)),
        ("faults_recorded", checks.faults_recorded.into()),
        ("faults_replayed", checks.faults_replayed.into()),
        ("strict", checks.strict.into()),
        ("mismatches", checks.mismatches.into()),
        ("classified", classified.into_iter().collect::<Map<_, _>>().into()),
        ("imposed", imposed.into_iter().collect::<Map<_, _>>().into()),
        ("skipped", skipped.collect::<Map<_, Value>>().into()),
        ("applied", checks.applied.into()),
        ("faults_applied", checks.faults_applied.into()),
        ("faults_compared_share", checks.compared_share().into()),
        ("lost", checks.lost.into()),
    ];
    figures.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}
