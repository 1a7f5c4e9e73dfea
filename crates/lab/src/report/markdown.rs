//! The report as a Markdown table.

use std::io::{self, Write};

use super::human::rows;
use super::{Report, verdict};
use crate::plan::Pace;

/// Writes the table, and what stands around it as text.
pub fn write(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    let (machine, runs) = (report.machine, report.setup.runs);
    writeln!(
        out,
        "`{}` on {} CPUs, {}, Linux {}; mean ± standard deviation, n {runs}.",
        escaped(report.workload),
        machine.cpus,
        machine.model,
        machine.kernel
    )?;
    if report.setup.pace == Pace::None {
        writeln!(out, "Upper bound on contention: blocking not replayed.")?;
    }
    writeln!(out)?;
    for (place, row) in rows(report).iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|cell| escaped(cell.trim())).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
        if place == 0 {
            writeln!(out, "|{}", " --- |".repeat(row.len()))?;
        }
    }
    writeln!(out, "\n{}", verdict::sentence(report))
}

/// A `<` would begin a tag, a `|` a cell.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}
