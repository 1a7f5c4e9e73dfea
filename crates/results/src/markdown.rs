//! A result set as a Markdown table: a row for each metric, and its spread.

use std::io::{self, Write};

use crate::set::{Measured, ResultSet};
use crate::stats::summarize;
use crate::unit::Unit;

const HEADINGS: [&str; 8] = ["workload", "mode", "design", "semaphore", "CPUs", "metric", "mean ± deviation", "n"];

/// Writes the machine and the table.
pub fn write(set: &ResultSet, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "{}\n", escaped(&set.machine.to_string()))?;
    head(&HEADINGS, out)?;
    set.results.iter().try_for_each(|result| row(&cells(result), out))
}

/// Returns a result's cells: workload, mode, design, semaphore, CPUs, metric, mean and deviation, samples.
pub fn cells(result: &Measured) -> [String; 8] {
    [
        result.workload.clone(),
        result.mode.to_string(),
        result.design.clone(),
        result.semaphore_name().to_owned(),
        result.cpus.to_string(),
        result.metric.clone(),
        spread(&result.samples, &result.unit),
        result.samples.len().to_string(),
    ]
}

/// Returns a list's mean and standard deviation for people; one sample has no deviation, and none is shown.
pub fn spread(samples: &[f64], unit: &str) -> String {
    let Some(summary) = summarize(samples) else { return "<not counted>".into() };
    let mean = Unit::show_named(unit, summary.mean);
    match summary.deviation {
        Some(deviation) => format!("{mean} ± {}", Unit::show_named(unit, deviation)),
        None => mean,
    }
}

/// Writes the headings of a table.
pub fn head(headings: &[&str], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "| {} |", headings.join(" | "))?;
    writeln!(out, "|{}", " --- |".repeat(headings.len()))
}

/// Writes a row of a table.
pub fn row(cells: &[String], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let cells: Vec<String> = cells.iter().map(|cell| escaped(cell.trim())).collect();
    writeln!(out, "| {} |", cells.join(" | "))
}

/// A `<` would begin a tag, a `|` a cell.
pub fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sample_is_shown_without_a_deviation() {
        assert_eq!(spread(&[2e6], "ns"), "2.00 ms");
        assert_eq!(spread(&[2e6, 2e6], "ns"), "2.00 ms ± 0 ns");
        assert_eq!(spread(&[], "ns"), "<not counted>");
    }
}
