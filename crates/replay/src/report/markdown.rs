//! The report as a Markdown table.

use std::io::{self, Write};

use super::human::{SHOWN, rows, runs_done};
use super::{Report, verdict};
use faultless_plan::Pace;
use faultless_results::markdown::{escaped, head, row};
use faultless_results::screen::uncolored;

/// Writes the table, and what stands around it as text.
pub fn write(report: &Report<'_>, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let set = super::result_set(report);
    let (workload, place) = (escaped(report.workload), escaped(&report.machine.to_string()));
    let (runs, _) = runs_done(&report.outcome.arms);
    writeln!(out, "`{workload}` on {place}; {SHOWN}, n {runs}.")?;
    if report.setup.pace == Pace::None {
        writeln!(out, "Upper bound on contention: blocking not replayed.")?;
    }
    writeln!(out)?;
    let rows = rows(report, &set);
    if let Some((headings, rest)) = rows.split_first() {
        head(&headings.iter().map(String::as_str).collect::<Vec<_>>(), out)?;
        rest.iter().try_for_each(|cells| row(cells, out))?;
    }
    writeln!(out, "\n{}", uncolored(&verdict::text(&set)))
}
