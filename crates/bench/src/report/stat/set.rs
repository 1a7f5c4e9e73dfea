//! Counts as a result set: a metric for each event, and one for each figure of each lock.

use serde_json::{Map, Value, json};

use super::StatReport;
use super::human::sums;
use super::locks::{lines, tables};
use crate::stat::{RunCounts, StatArmResult, StatSetup, Subject};
use faultless_machine::watch::{Figures, LockTable};
use faultless_results::set::{PARAMS, params};
use faultless_results::{Measured, ResultSet, Unit};
use faultless_vm::PlacementPolicy;

/// A figure of a lock.
type LockMetric = (&'static str, Unit, fn(&LockTable, &Figures) -> f64);

const LOCK_METRICS: [LockMetric; 8] = [
    ("utilisation", Unit::Share, LockTable::utilisation),
    ("contention", Unit::Share, |_, figures| figures.contention()),
    ("hold_mean_ns", Unit::Ns, |_, figures| figures.mean_hold_ns()),
    ("hold_max_ns", Unit::Ns, |_, figures| figures.longest_hold_ns as f64),
    ("wait_mean_ns", Unit::Ns, |_, figures| figures.mean_wait_ns()),
    ("wait_max_ns", Unit::Ns, |_, figures| figures.longest_wait_ns as f64),
    ("cpu_share", Unit::Share, LockTable::cpu_share),
    ("total", Unit::Count, |_, figures| figures.attempts() as f64),
];

/// Returns the counts of what ran, one after the other, as one result set; nothing if nothing ran.
pub fn result_set(reports: &[StatReport<'_>]) -> Option<ResultSet> {
    let mut sets = reports.iter().map(result_set_of);
    let mut all = sets.next()?;
    for set in sets {
        all.results.extend(set.results);
        join(&mut all.more, set.more);
        join(&mut all.checks, set.checks);
    }
    Some(all)
}

/// Adds lists to lists; of what is no list, what says yes counts, else the first.
fn join(all: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (all.get_mut(&name), value) {
            (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
            (Some(known), value) if value == true => *known = value,
            (Some(_), _) => {}
            (None, value) => drop(all.insert(name, value)),
        }
    }
}

fn result_set_of(report: &StatReport<'_>) -> ResultSet {
    let mut set = ResultSet::new("stat", report.setup.seed, report.machine.clone());
    set.results = report.outcome.arms.iter().flat_map(|arm| results(report, arm)).collect();
    set.more.insert("interrupted".into(), report.outcome.was_interrupted.into());
    set.more.insert("watched".into(), report.is_watched.into());
    if let Subject::Workload { duration_ns, .. } = report.setup.subject {
        set.more.insert("duration_ns".into(), duration_ns.into());
    }
    if let Subject::KernelMaps { load, .. } = &report.setup.subject {
        set.more.insert("duration_ns".into(), load.duration_ns.into());
    }
    let with_locks = report.outcome.arms.iter().filter(|arm| !tables(arm).is_empty());
    let locks: Vec<Value> = with_locks.map(|arm| lock_list(report, arm)).collect();
    if !locks.is_empty() {
        set.more.insert("locks".into(), locks.into());
    }
    let arms = report.outcome.arms.iter();
    let missing: Vec<Value> = arms.clone().flat_map(|arm| not_supported(report, arm)).collect();
    let failed: Vec<String> =
        arms.filter_map(|arm| arm.error.as_ref().map(|error| format!("{}: {error}", arm.arm))).collect();
    set.checks = Map::from_iter([("not_supported".to_owned(), missing.into()), ("failed".to_owned(), failed.into())]);
    set
}

fn results(report: &StatReport<'_>, arm: &StatArmResult) -> Vec<Measured> {
    let mut found = pace(report, arm);
    for (place, event) in report.setup.events.iter().enumerate() {
        let counts = arm.runs.iter().map(|run| run.counts[place].map(|count| count as f64));
        found.push(measured(report, arm, event, Unit::Count, counts.collect()));
    }
    let mut found: Vec<Measured> = found.into_iter().flatten().collect();
    found.extend(lock_results(report, arm));
    found
}

/// Returns how fast the subject was, and what its counts are the counts of: how long it ran, and what a workload did.
fn pace(report: &StatReport<'_>, arm: &StatArmResult) -> Vec<Option<Measured>> {
    let of_each = |name: &str, unit: Unit, of: &dyn Fn(&RunCounts) -> Option<f64>| {
        measured(report, arm, name, unit, arm.runs.iter().map(of).collect())
    };
    vec![
        of_each("ops_per_s", Unit::PerSecond, &|run| run.ops_per_s),
        of_each("ops", Unit::Count, &|run| Some(run.ops? as f64)),
        of_each("elapsed_ns", Unit::Ns, &|run| Some(run.elapsed_ns as f64)),
    ]
}

/// Returns a metric that every run has.
fn measured(
    report: &StatReport<'_>,
    arm: &StatArmResult,
    metric: &str,
    unit: Unit,
    samples: Option<Vec<f64>>,
) -> Option<Measured> {
    let samples = samples.filter(|samples| !samples.is_empty())?;
    let subject = &report.setup.subject;
    Some(Measured {
        workload: subject.name().into(),
        mode: subject.mode(),
        design: arm.arm.design.clone(),
        semaphore: arm.arm.semaphore.clone(),
        cpus: arm.arm.cpus,
        workers: subject.workers(arm.arm.cpus),
        metric: metric.into(),
        unit: unit.name().into(),
        samples,
        counters: sums(arm).into_iter().collect(),
        more: flags(report.setup, &arm.arm.design).into_iter().map(|flags| (PARAMS.to_owned(), flags.into())).collect(),
    })
}

/// Returns the flags that say what runs, if there are any.
fn flags(setup: &StatSetup, design: &str) -> Option<Map<String, Value>> {
    let mut flags = match (&setup.subject, &setup.high) {
        (Subject::KernelMaps { scheme, load, .. }, _) => load.params(scheme),
        (_, Some(high)) => high.params(),
        (Subject::Workload { spec, .. }, None) => params(&spec.name),
        (Subject::Trace { .. }, None) => Map::new(),
    };
    let placement = setup.placement_under(design);
    if placement != PlacementPolicy::Linux && matches!(setup.subject, Subject::Workload { .. }) {
        flags.insert("placement".into(), placement.name().into());
    }
    Some(flags).filter(|flags| !flags.is_empty())
}

fn lock_results(report: &StatReport<'_>, arm: &StatArmResult) -> Vec<Measured> {
    let tables = tables(arm);
    let mut found = Vec::new();
    for line in lines(&tables).iter().filter(|line| line.caller.is_none()) {
        let lock = line.lock.replace(" (", ".").replace(')', "");
        for (name, unit, of) in LOCK_METRICS {
            let samples = line.runs.iter().map(|(figures, run)| Some(of(tables[*run], figures)));
            found.extend(measured(report, arm, &format!("locks.{lock}.{name}"), unit, samples.collect()));
        }
    }
    found
}

/// Returns all that lockmeter's table has, callers too, over all runs.
fn lock_list(report: &StatReport<'_>, arm: &StatArmResult) -> Value {
    let tables = tables(arm);
    let elapsed_ns = tables.iter().map(|table| table.elapsed_ns).sum();
    let total = LockTable { elapsed_ns, cpus: arm.arm.cpus, locks: Vec::new() };
    let shown = lines(&tables).into_iter().map(|line| {
        let mut value = json!({ "lock": line.lock, "caller": line.caller });
        let figures = LOCK_METRICS.iter().map(|(name, _, of)| (*name, json!(of(&total, &line.figures))));
        let counts = [("nowait", line.figures.taken - line.figures.waited), ("waited", line.figures.waited)];
        let counts = counts.into_iter().chain([("rejected", line.figures.refused)]);
        figures.for_each(|(name, figure)| value[name] = figure);
        counts.for_each(|(name, count)| value[name] = count.into());
        value
    });
    json!({
        "workload": report.setup.subject.name(), "design": arm.arm.design, "semaphore": arm.arm.semaphore,
        "cpus": arm.arm.cpus, "elapsed_ns": elapsed_ns, "locks": shown.collect::<Vec<_>>(),
    })
}

fn not_supported(report: &StatReport<'_>, arm: &StatArmResult) -> Vec<Value> {
    let events = report.setup.events.iter().enumerate();
    let missing = events.filter(|(place, _)| arm.runs.iter().any(|run| run.counts[*place].is_none()));
    missing.map(|(_, event)| json!({ "design": arm.arm.design, "cpus": arm.arm.cpus, "event": event })).collect()
}
