//! The report as CSV: a row for each sample.

use std::io::{self, Write};

use super::{Metric, Report};

/// Writes headings and rows.
pub fn write(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "workload,design,semaphore,cpus,metric,unit,run,sample")?;
    for arm in &report.outcome.arms {
        for metric in Metric::ALL {
            for (run, sample) in metric.samples(arm).unwrap_or_default().into_iter().enumerate() {
                let (name, unit) = (metric.name, metric.unit.name());
                let (workload, design) = (field(report.workload), field(&arm.arm.design));
                let semaphore = field(&arm.arm.semaphore);
                writeln!(out, "{workload},{design},{semaphore},{},{name},{unit},{run},{sample}", arm.arm.cpus)?;
            }
        }
    }
    Ok(())
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fields_that_would_break_a_row_are_quoted() {
        assert_eq!(super::field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(super::field("plain.trace"), "plain.trace");
    }
}
