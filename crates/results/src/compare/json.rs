//! A comparison as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Change, Comparison, Figures, Notable};
use crate::SCHEMA;

/// Writes one document.
pub fn write(comparison: &Comparison, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(comparison))?;
    writeln!(out)
}

fn document(comparison: &Comparison) -> Value {
    let sources = comparison.sources.iter().map(|source| {
        let set = &source.set;
        json!({ "label": source.label, "command": set.command, "commit": set.commit, "seed": set.seed, "machine": set.machine })
    });
    let about = comparison.about.iter().map(|(dimension, values)| (dimension.to_string(), json!(values)));
    let alone =
        comparison.sources.iter().zip(&comparison.alone).map(|(source, keys)| (source.label.clone(), json!(keys)));
    json!({
        "schema": SCHEMA,
        "command": "compare",
        "sources": sources.collect::<Vec<_>>(),
        "about": about.collect::<serde_json::Map<_, _>>(),
        "comparisons": comparison.changes().map(|one| compared(&one)).collect::<Vec<_>>(),
        "not_compared": alone.collect::<serde_json::Map<_, _>>(),
    })
}

fn compared(one: &Notable<'_>) -> Value {
    let (key, row) = (one.key, one.row);
    json!({
        "workload": key.workload, "mode": key.mode, "design": key.design, "semaphore": key.semaphore, "cpus": key.cpus,
        "workers": key.workers, "metric": row.metric, "unit": row.unit, "better": row.direction.name(),
        "head": one.head, "base_figures": figures(&row.base), "head_figures": figures(&one.change.figures),
        "change": change(one.change), "p": one.change.p, "finding": one.change.finding.name(),
    })
}

/// Returns the difference as a share of the base; null where it is infinite.
fn change(change: &Change) -> Value {
    if change.share.is_finite() { json!(change.share) } else { Value::Null }
}

fn figures(figures: &Figures) -> Value {
    let summary = &figures.summary;
    json!({ "mean": summary.mean, "deviation": summary.deviation, "n": summary.n, "samples": figures.samples })
}
