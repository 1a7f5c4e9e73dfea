//! A result set as CSV: a row for each sample, whose last field says whether an interrupt left others out.

use std::io::{self, Write};

use crate::set::{Measured, ResultSet};

/// Writes headings and rows.
pub fn write(set: &ResultSet, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "machine,workload,mode,design,semaphore,cpus,workers,metric,unit,run,sample,partial")?;
    let partial = if set.is_interrupted() { "yes" } else { "no" };
    set.results.iter().try_for_each(|result| write_samples(&set.machine.name, result, partial, out))
}

fn write_samples(machine: &str, result: &Measured, partial: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let (cpus, workers) = (result.cpus.to_string(), result.nr_workers().to_string());
    let mode = result.mode.to_string();
    for (run, sample) in result.samples.iter().enumerate() {
        let (run, sample) = (run.to_string(), sample.to_string());
        let semaphore = result.semaphore.as_deref().unwrap_or_default();
        let fields = [machine, &result.workload, &mode, &result.design, semaphore, &cpus, &workers];
        let rest = [result.metric.as_str(), &result.unit, &run, &sample, partial];
        row(fields.into_iter().chain(rest), out)?;
    }
    Ok(())
}

/// Writes a row of fields, quoted where they must be.
pub fn row<'a>(fields: impl Iterator<Item = &'a str>, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let quoted: Vec<String> = fields.map(field).collect();
    writeln!(out, "{}", quoted.join(","))
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_would_break_a_row_are_quoted() {
        let mut out = Vec::new();
        row(["a,\"b\"", "plain.trace", "two\nlines"].into_iter(), &mut out).expect("memory");
        assert_eq!(String::from_utf8(out).expect("text"), "\"a,\"\"b\"\"\",plain.trace,\"two\nlines\"\n");
    }
}
