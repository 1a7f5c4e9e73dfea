//! `faultless report`: the results that were saved, and any of them in another format.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use faultless_lab::report::markdown::spread;
use faultless_lab::report::saved::{Saved, Store};
use faultless_lab::report::{ResultSet, columns, csv, json, markdown};

use crate::compare::open;
use crate::message::Failure;
use crate::output::print;
use crate::table::{self, Format};

/// The arguments of `report`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless report
  faultless report base
  faultless report head.json --format markdown --out head.md

Without a result it lists those that --save kept.")]
pub struct ReportArgs {
    /// The result to print: a file, or the name it was saved under. Without it, all that are saved are listed.
    #[arg(value_name = "RESULT")]
    result: Option<PathBuf>,

    /// How to print. Example: --format csv
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,

    /// Where the output goes, instead of standard output. Example: --out base.csv
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    match &args.result {
        Some(result) => {
            let set = open(result)?.set;
            print(args.out.as_deref(), |out| write(args.format, &set, out))?;
        }
        None => {
            let store = Store::open().map_err(Failure::new)?;
            let saved = store.list().map_err(Failure::new)?;
            print(args.out.as_deref(), |out| write_list(args.format, &store, &saved, out))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(format: Format, set: &ResultSet, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Human => write_human(set, out),
        Format::Json => json::write(set, out),
        Format::Csv => csv::write(set, out),
        Format::Markdown => markdown::write(set, out),
    }
}

fn write_human(set: &ResultSet, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{} at {}, seed {}; {}; mean ± standard deviation\n",
        set.command, set.commit, set.seed, set.machine
    )?;
    let headings = ["workload", "mode", "design", "semaphore", "CPUs", "metric", "", "n"].map(str::to_owned).to_vec();
    let row = |result: &faultless_lab::report::Measured| {
        vec![
            result.workload.clone(),
            result.mode.to_string(),
            result.design.clone(),
            result.semaphore_name().to_owned(),
            result.cpus.to_string(),
            result.metric.clone(),
            spread(&result.samples, &result.unit),
            result.samples.len().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(headings).chain(set.results.iter().map(row)).collect();
    columns::write(&rows, out)
}

const HEADINGS: [&str; 6] = ["name", "saved", "command", "commit", "machine", "holds"];

fn write_list(format: Format, store: &Store, saved: &[Saved], out: &mut dyn Write) -> io::Result<()> {
    let rows = saved.iter().map(row);
    match format {
        Format::Human if saved.is_empty() => writeln!(out, "no results are saved in {}", store.folder().display()),
        Format::Human => {
            let headings = HEADINGS.map(str::to_owned).to_vec();
            let rows: Vec<Vec<String>> = std::iter::once(headings).chain(rows.map(|row| row.to_vec())).collect();
            columns::write(&rows, out)
        }
        Format::Json => {
            let list: Vec<_> =
                rows.map(|row| HEADINGS.into_iter().zip(row).collect::<std::collections::BTreeMap<_, _>>()).collect();
            serde_json::to_writer_pretty(&mut *out, &list)?;
            writeln!(out)
        }
        Format::Csv => {
            table::csv_row(out, HEADINGS)?;
            rows.into_iter().try_for_each(|row| table::csv_row(out, row.iter().map(String::as_str)))
        }
        Format::Markdown => {
            table::markdown_head(out, &HEADINGS)?;
            rows.into_iter().try_for_each(|row| table::markdown_row(out, row.iter().map(String::as_str)))
        }
    }
}

fn row(saved: &Saved) -> [String; 6] {
    let since = saved.since.map_or("?".to_owned(), date);
    match &saved.set {
        Err(error) => [saved.name.clone(), since, "?".into(), "?".into(), "?".into(), error.to_string()],
        Ok(set) => {
            [saved.name.clone(), since, set.command.clone(), set.commit.clone(), set.machine.name.clone(), holds(set)]
        }
    }
}

fn holds(set: &ResultSet) -> String {
    let mut workloads: Vec<&str> = set.results.iter().map(|result| result.workload.as_str()).collect();
    workloads.dedup();
    format!("{} figures: {}", set.results.len(), workloads.join(" "))
}

/// Returns a moment in UTC, as `2026-01-31 09:05`.
fn date(time: SystemTime) -> String {
    let minutes = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60);
    let (year, month, day) = civil(minutes / 1440);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

/// Returns the date of a day counted from the first of 1970, counting years from March so that leap days come last.
fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (month, day) = (if month < 10 { month + 3 } else { month - 9 }, of_year - (153 * month + 2) / 5 + 1);
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        let known = [(0, (1970, 1, 1)), (59, (1970, 3, 1)), (11_016, (2000, 2, 29)), (20_777, (2026, 11, 20))];
        known.iter().for_each(|&(day, date)| assert_eq!(civil(day), date));
    }
}
