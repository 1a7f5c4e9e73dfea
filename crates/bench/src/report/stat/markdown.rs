//! Counts as a Markdown table: a row for each event, a column for each arm.

use std::io::{self, Write};

use super::{StatReport, spread};
use faultless_results::Unit;
use faultless_results::markdown::{escaped, head, row};
use faultless_results::stats::Summary;

/// Writes what ran, and the table.
pub fn write(report: &StatReport<'_>, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let name = escaped(report.setup.subject.name());
    writeln!(out, "`{name}` on {}; mean ± standard deviation.\n", escaped(&report.machine.to_string()))?;
    let arms = &report.outcome.arms;
    let headings: Vec<String> = std::iter::once("event".to_owned())
        .chain(arms.iter().map(|arm| format!("{}, n {}", arm.arm, arm.runs.len())))
        .collect();
    head(&headings.iter().map(String::as_str).collect::<Vec<_>>(), out)?;
    for (place, event) in report.setup.events.iter().enumerate() {
        let cells = arms.iter().map(|arm| cell(arm.runs.iter().map(|run| run.counts[place]), Unit::Count));
        row(&std::iter::once((*event).to_owned()).chain(cells).collect::<Vec<_>>(), out)?;
    }
    if arms.iter().flat_map(|arm| &arm.runs).any(|run| run.ops.is_some()) {
        let ops = arms.iter().map(|arm| cell(arm.runs.iter().map(|run| run.ops), Unit::Count));
        row(&std::iter::once("ops".to_owned()).chain(ops).collect::<Vec<_>>(), out)?;
    }
    let times = arms.iter().map(|arm| cell(arm.runs.iter().map(|run| Some(run.elapsed_ns)), Unit::Ns));
    row(&std::iter::once("time".to_owned()).chain(times).collect::<Vec<_>>(), out)
}

fn cell(counts: impl Iterator<Item = Option<u64>>, unit: Unit) -> String {
    match spread(counts) {
        None => "<not supported>".into(),
        Some(Summary { mean, deviation: Some(deviation), .. }) => {
            format!("{} ± {}", unit.show(mean), unit.show(deviation))
        }
        Some(summary) => unit.show(summary.mean),
    }
}
