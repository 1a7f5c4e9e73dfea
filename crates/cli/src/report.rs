//! `faultless report`: the results that were saved, any of them in another format, and several as one page.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use faultless_results::compare::Source;
use faultless_results::saved::{Saved, Store};
use faultless_results::{ResultSet, csv, json, markdown, trend};

use crate::compare::open_all;
use crate::date::date;
use crate::message::{Color, Failure};
use crate::nearest::nearest;
use crate::output::{print_as, write_page};
use crate::table::{self, Format};

/// The arguments of `report`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless report
  faultless report base
  faultless report head.json --format markdown --out head.md
  faultless report base head.json --html both.html

  faultless report --trend ops_per_s
  faultless report --trend elapsed_ns v1.json v2.json v3.json --format markdown

Without a result it lists those that --save kept. --trend follows one metric over results in the order given, without a \
result over those that --save kept, the oldest first, and says where it changed for good: Pettitt's test on the medians, \
with its probability by 9,999 permutations; eight results are the fewest that can show a change. Results of another \
machine than the first one's are left out and named.")]
pub struct ReportArgs {
    /// The results to print: files, pages, or the names they were saved under. Without one, all that are saved are
    /// listed.
    #[arg(value_name = "RESULT")]
    results: Vec<PathBuf>,

    /// Follows a metric over the results, and says where it changed. Example: --trend ops_per_s
    #[arg(long, value_name = "METRIC", conflicts_with = "html")]
    trend: Option<String>,

    /// How to print. Example: --format csv
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,

    /// Where the output goes, instead of standard output. Example: --out base.csv
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Writes the results as a page with pictures instead: one file that any browser opens without a network.
    /// Example: --html base.html
    #[arg(long, value_name = "FILE", requires = "results")]
    html: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &ReportArgs, color: Color) -> Result<ExitCode, Failure> {
    if let Some(metric) = &args.trend {
        return follow(metric, args);
    }
    if args.results.is_empty() {
        let store = Store::open().map_err(Failure::new)?;
        let saved = store.list().map_err(Failure::new)?;
        print_as(args.format, args.out.as_deref(), |out| write_list(args.format, &store, &saved, out))?;
        return Ok(ExitCode::SUCCESS);
    }
    let sources = open_each(&args.results)?;
    match (&args.html, sources.as_slice()) {
        (Some(path), sources) => write_page(path, || faultless_page::of_sets(sources), color)?,
        (None, [one]) => print_as(args.format, args.out.as_deref(), |out| write(args.format, &one.set, out))?,
        (None, many) if args.format == Format::Human => print_as(args.format, args.out.as_deref(), |out| {
            many.iter().try_for_each(|source| {
                writeln!(out, "{}:", source.label)?;
                write_human(&source.set, out)?;
                writeln!(out)
            })
        })?,
        (None, _) => return Err(Failure::usage("several results fit into one page (--html) or text for people only")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Follows a metric over the results that are named, else over all that are saved, the oldest first.
fn follow(metric: &str, args: &ReportArgs) -> Result<ExitCode, Failure> {
    let sources = if args.results.is_empty() { saved_by_age()? } else { open_each(&args.results)? };
    let found = trend::trend(metric, &sources).map_err(|error| match error.0.as_slice() {
        [] => Failure::new("there are no results to follow: --save NAME keeps one"),
        known => {
            let guess = nearest(metric, known.iter().map(String::as_str));
            let guess = guess.map_or(String::new(), |near| format!("; did you mean {near}?"));
            Failure::usage(format_args!("no result has the metric '{metric}'{guess}; they have {}", known.join(", ")))
        }
    })?;
    print_as(args.format, args.out.as_deref(), |out| match args.format {
        Format::Human => trend::write_human(&found, out),
        Format::Json => trend::write_json(&found, out),
        Format::Markdown => trend::write_markdown(&found, out),
        Format::Csv => {
            trend::fields(&found).iter().try_for_each(|row| table::csv_row(out, row.iter().map(String::as_str)))
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn saved_by_age() -> Result<Vec<Source>, Failure> {
    let mut saved = Store::open().and_then(|store| store.list()).map_err(Failure::new)?;
    saved.sort_by_key(|one| one.since);
    let source = |one: Saved| Some(Source { label: one.name, set: one.set.ok()? });
    Ok(saved.into_iter().filter_map(source).collect())
}

fn open_each(results: &[PathBuf]) -> Result<Vec<Source>, Failure> {
    let opened = results.iter().map(|result| open_all(result)).collect::<Result<Vec<_>, Failure>>()?;
    Ok(opened.into_iter().flatten().collect())
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
    table::write_columns(out, &headings, set.results.iter().map(markdown::cells))
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
