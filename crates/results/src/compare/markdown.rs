//! A comparison as a Markdown table.

use std::io::{self, Write};

use super::lkp::percentage;
use super::{Comparison, Notable};
use crate::markdown::{escaped, head, row, spread};

/// Writes what is compared, and the table.
pub fn write(comparison: &Comparison, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    for source in &comparison.sources {
        let (set, label) = (&source.set, escaped(&source.label));
        writeln!(out, "* {label}: {} at {}; {}", set.command, set.commit, escaped(&set.machine.to_string()))?;
    }
    writeln!(out)?;
    head(&["testcase", "base", "change", "head", "n", "metric"], out)?;
    comparison.changes().try_for_each(|one| row(&cells(comparison, &one), out))?;
    writeln!(out, "\nMean ± standard deviation; ~ is no difference: p >= 0.05, or fewer than 5 samples a side.")
}

fn cells(comparison: &Comparison, one: &Notable<'_>) -> Vec<String> {
    let (base, figures) = (&one.row.base, &one.change.figures);
    let testcase =
        if comparison.sources.len() > 2 { format!("{} ({})", one.key, one.head) } else { one.key.to_string() };
    vec![
        testcase,
        spread(&base.samples, &one.row.unit),
        percentage(one.change),
        spread(&figures.samples, &one.row.unit),
        format!("{}+{}", base.summary.n, figures.summary.n),
        format!("{}.{}", one.key.workload, one.row.metric),
    ]
}
