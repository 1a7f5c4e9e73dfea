//! `faultless report`: the results that were saved, and any of them in another format.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use faultless_results::markdown::spread;
use faultless_results::saved::{Saved, Store};
use faultless_results::{ResultSet, csv, json, markdown};

use crate::compare::open;
use crate::date::date;
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
    let headings = ["workload", "mode", "design", "semaphore", "CPUs", "metric", "", "n"];
    let row = |result: &faultless_results::Measured| {
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
    table::write_columns(out, &headings, set.results.iter().map(row))
}

const HEADINGS: [&str; 6] = ["name", "saved", "command", "commit", "machine", "holds"];

fn write_list(format: Format, store: &Store, saved: &[Saved], out: &mut dyn Write) -> io::Result<()> {
    let rows = saved.iter().map(row);
    match format {
        Format::Human if saved.is_empty() => writeln!(out, "no results are saved in {}", store.folder().display()),
        Format::Human => table::write_columns(out, &HEADINGS, rows),
        Format::Json => {
            let list: Vec<_> =
                rows.map(|row| HEADINGS.into_iter().zip(row).collect::<std::collections::BTreeMap<_, _>>()).collect();
            serde_json::to_writer_pretty(&mut *out, &list)?;
            writeln!(out)
        }
        Format::Csv => table::write_csv(out, &HEADINGS, rows),
        Format::Markdown => table::write_markdown(out, &HEADINGS, rows),
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
