//! The tables of workloads and designs, as Markdown.

use std::io::{self, Write};

use super::human::{LINEAR, STEPS, notes, nr_samples, rates};
use super::rows::{ceiling, latency, rows};
use super::{BenchReport, refpage};
use faultless_results::markdown::{escaped, head, row};
use faultless_results::screen::uncolored;
use faultless_results::verdict;

/// Writes the report.
pub fn write(report: &BenchReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let setup = report.setup;
    writeln!(out, "{}; {}; seed {}.\n", escaped(&report.machine.to_string()), setup.mode, setup.seed)?;
    let (spread, rate) = rates(report);
    writeln!(out, "Operations in a second, all workers together; {spread}, n {}:\n", nr_samples(report))?;
    write_rows(&rows(report, rate), out)?;
    if setup.has_ceiling {
        writeln!(out, "\n{LINEAR}:\n")?;
        write_rows(&rows(report, |arm| ceiling(report, arm)), out)?;
    }
    writeln!(out, "\n{STEPS}:\n")?;
    write_rows(&rows(report, latency), out)?;
    refpage::sections(report).iter().try_for_each(|section| {
        writeln!(out, "\n{}:\n", escaped(&section.heading))?;
        write_rows(&section.rows, out)
    })?;
    notes(report).iter().try_for_each(|note| writeln!(out, "\n{}", escaped(note)))?;
    let verdict = verdict::lines(&super::result_set(report)).join("\n");
    if verdict.is_empty() { Ok(()) } else { writeln!(out, "\n{}", uncolored(&verdict)) }
}

fn write_rows(rows: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    let Some((headings, rows)) = rows.split_first() else { return Ok(()) };
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    head(&headings, out)?;
    rows.iter().try_for_each(|cells| row(cells, out))
}
