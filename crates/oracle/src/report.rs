//! The oracle's results: text for people, and JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::judge::{Outcomes, Settings};
use super::rules::Rule;
use faultless_machine::host;

/// Writes the results for people.
pub fn human(settings: &Settings, outcomes: &Outcomes, out: &mut dyn Write) -> io::Result<()> {
    let tally = &outcomes.tally;
    let seconds = outcomes.elapsed.as_secs_f64().max(1e-9);
    let signals: u64 = tally.signals.values().sum();
    let names = |names: Vec<&str>| names.join(", ");
    writeln!(out, "Linux {} against {}", host::machine().kernel, names(settings.designs.clone()))?;
    if let Some(scheme) = settings.high {
        writeln!(out, "memory     has no addresses: each look at it is a map, by {scheme}")?;
    }
    writeln!(out, "users      {}", names(settings.users.iter().map(|user| user.name()).collect()))?;
    writeln!(out, "profiles   {}", names(settings.profiles.iter().map(|profile| profile.name()).collect()))?;
    writeln!(
        out,
        "sequences  {} compared under each design, {:.0} a second, seed {}",
        outcomes.sequences,
        outcomes.sequences as f64 / seconds,
        settings.seed
    )?;
    let share = 100.0 * tally.errors() as f64 / tally.operations.max(1) as f64;
    writeln!(
        out,
        "operations {}, of which {share:.1} % failed or got a signal ({signals} signals)\n",
        tally.operations
    )?;
    writeln!(out, "{:<18} {:>10} {:>6}  outcomes", "call", "operations", "share")?;
    for (call, counts) in &tally.calls {
        let total: u64 = counts.values().sum();
        let share = 100.0 * total as f64 / tally.operations.max(1) as f64;
        writeln!(out, "{call:<18} {total:>10} {share:>5.1}%  {}", listed(counts))?;
    }
    writeln!(out, "\nsignals    {}", listed(&tally.signals))?;
    for (design, events) in &tally.events {
        writeln!(out, "faults     {design}: {}", listed(events))?;
    }
    for rule in Rule::ALL {
        let count = tally.exempted.get(&rule).copied().unwrap_or(0);
        writeln!(out, "exempted   {} {count}: {}", rule.name(), rule.reason())?;
    }
    if outcomes.was_interrupted {
        writeln!(out, "\nPartial: interrupted after {} of {} sequences", outcomes.sequences, settings.sequences)?;
    }
    writeln!(out, "\nDifferences: {}", outcomes.differences)
}

fn listed(counts: &BTreeMap<impl AsRef<str> + Ord, u64>) -> String {
    let mut sorted: Vec<_> = counts.iter().map(|(name, count)| (name.as_ref(), count)).collect();
    sorted.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
    let parts: Vec<_> = sorted.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if parts.is_empty() { "none".into() } else { parts.join(", ") }
}

/// Writes the results as one JSON document, schema `faultless/1`.
pub fn json(settings: &Settings, outcomes: &Outcomes, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(settings, outcomes))?;
    writeln!(out)
}

/// Writes how often each call came to what, as comma-separated values.
pub fn csv(outcomes: &Outcomes, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "call,outcome,count")?;
    rows(outcomes).iter().try_for_each(|(call, outcome, count)| writeln!(out, "{call},{outcome},{count}"))
}

/// Writes the same as a Markdown table.
pub fn markdown(outcomes: &Outcomes, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| call | outcome | count |\n| --- | --- | --- |")?;
    rows(outcomes).iter().try_for_each(|(call, outcome, count)| writeln!(out, "| {call} | {outcome} | {count} |"))
}

fn rows(outcomes: &Outcomes) -> Vec<(&str, &str, u64)> {
    let calls = outcomes.tally.calls.iter();
    let mut rows: Vec<_> = calls
        .flat_map(|(call, counts)| counts.iter().map(move |(outcome, &count)| (call.as_str(), outcome.as_str(), count)))
        .collect();
    rows.push(("all", "sequences", outcomes.sequences));
    rows.push(("all", "differences", outcomes.differences));
    rows.push(("all", "interrupted", outcomes.was_interrupted.into()));
    rows
}

fn document(settings: &Settings, outcomes: &Outcomes) -> Value {
    let machine = host::machine();
    json!({
        "schema": "faultless/1",
        "command": "check oracle",
        "commit": faultless_results::commit(),
        "seed": settings.seed,
        "machine": {
            "name": "native",
            "simulated": false,
            "cpus": machine.cpus,
            "model": machine.model,
            "kernel": machine.kernel,
        },
        "designs": settings.designs,
        "high": settings.high,
        "users": settings.users.iter().map(|user| user.name()).collect::<Vec<_>>(),
        "profiles": settings.profiles.iter().map(|profile| profile.name()).collect::<Vec<_>>(),
        "interrupted": outcomes.was_interrupted,
        "elapsed_ns": outcomes.elapsed.as_nanos() as u64,
        "results": [],
        "checks": checks(outcomes),
    })
}

fn checks(outcomes: &Outcomes) -> Value {
    let tally = &outcomes.tally;
    let exempted =
        Rule::ALL.map(|rule| (rule.name().to_owned(), tally.exempted.get(&rule).copied().unwrap_or(0).into()));
    json!({
        "sequences": outcomes.sequences,
        "operations": tally.operations,
        "differences": outcomes.differences,
        "exempted": exempted.into_iter().collect::<Map<String, Value>>(),
        "calls": tally.calls,
        "signals": tally.signals,
        "advice": tally.advice,
        "events": tally.events,
        "found": outcomes.kept.iter().map(|difference| json!({
            "design": difference.design,
            "number": difference.number,
            "sequence": difference.sequence.to_string(),
            "finding": difference.finding.to_string(),
        })).collect::<Vec<_>>(),
    })
}
