//! The report as JSON, schema `faultless/1`.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::{Metric, Report, commit};
use crate::experiment::{ArmResult, Checks};
use crate::plan::Pace;
use crate::plan::classes::Class;
use crate::plan::deeds::Reason;

/// Writes the report as one document.
pub fn write(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(report))?;
    writeln!(out)
}

/// Returns the document.
pub fn document(report: &Report<'_>) -> Value {
    let machine = report.machine;
    json!({
        "schema": "faultless/1",
        "command": "replay",
        "commit": commit(),
        "seed": report.setup.seed,
        "machine": {
            "name": "native",
            "simulated": false,
            "cpus": machine.cpus,
            "model": machine.model,
            "kernel": machine.kernel,
        },
        "trace": trace(report),
        "results": results(report),
        "checks": checks(&report.outcome.checks),
    })
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

fn results(report: &Report<'_>) -> Vec<Value> {
    let arms = report.outcome.arms.iter();
    arms.flat_map(|arm| Metric::ALL.iter().filter_map(move |metric| result(report, arm, metric))).collect()
}

fn result(report: &Report<'_>, arm: &ArmResult, metric: &Metric) -> Option<Value> {
    let samples = metric.samples(arm)?;
    Some(json!({
        "workload": report.workload,
        "mode": if report.outcome.has_shared_spaces { "threads" } else { "processes" },
        "design": arm.arm.design,
        "semaphore": arm.arm.semaphore,
        "cpus": arm.arm.cpus,
        "metric": metric.name,
        "unit": metric.unit.name(),
        "samples": samples,
        "counters": counters(arm),
    }))
}

/// Returns the counters of all passes together.
fn counters(arm: &ArmResult) -> Value {
    let mut sums = Map::new();
    for pass in &arm.passes {
        for &(name, count) in &pass.counters {
            let before = sums.get(name).and_then(Value::as_u64).unwrap_or(0);
            sums.insert(name.into(), (before + count).into());
        }
    }
    Value::Object(sums)
}

fn checks(checks: &Checks) -> Value {
    let classified = Class::ALL.map(|class| (class.name().to_owned(), checks.classified[class as usize].into()));
    let imposed = Reason::ALL.map(|reason| {
        let count = checks.imposed.iter().find(|(name, _)| *name == reason.name()).map_or(0, |&(_, count)| count);
        (reason.name().to_owned(), Value::from(count))
    });
    let skipped = checks.skipped.iter().map(|&(kind, count)| (kind.to_owned(), count.into()));
    json!({
        "events": checks.events,
        "faults_recorded": checks.faults_recorded,
        "faults_replayed": checks.faults_replayed,
        "strict": checks.strict,
        "mismatches": checks.mismatches,
        "classified": classified.into_iter().collect::<Map<_, _>>(),
        "imposed": imposed.into_iter().collect::<Map<_, _>>(),
        "skipped": skipped.collect::<Map<_, Value>>(),
        "lost": checks.lost,
    })
}
