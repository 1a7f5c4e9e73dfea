//! `faultless check all`: every judge in turn, for as long as asked.
//!
//! # Guarantee
//! The exit code is 0 if nothing was found, 1 if something was, 2 if the command was not understood. What is found is
//! in the folder of --keep as soon as it is found.

use faultless_machine::info;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use faultless_linux::space::on_interrupt;
use faultless_machine::designs::DESIGNS;
use faultless_results::ResultSet;
use faultless_trials::all::{self, AllOutcome, AllSetup, Judge, JudgeRow, verdict};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::found::write_found;
use crate::choose::known;
use crate::date::today_in_digits;
use crate::duration;
use crate::message::{Color, Failure};
use crate::output::{OutputArgs, Table, exit_code};
use crate::progress;
use crate::table::write_columns;

/// The arguments of `check all`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless check all
  faultless check all --duration 30m --keep found
  faultless check all --duration 8h --seed 20261123 --design vma-lock

Oracle, schedules, soak and fuzz take turns of at most a minute, each with a seed of its own, until the time is over. What \
is found goes to standard output and, with --keep, to DIR/found.sh: a comment that says what was seen, and the command that \
shows it again. The run ends with one paragraph: what a user of the library may believe, and on what evidence.

The exit code is 0 if nothing was found, 1 if something was, and 2 if the command was not understood.")]
pub struct AllArgs {
    /// How long all judges run together. Example: --duration 30m
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse, default_value = "2m")]
    duration: u64,

    /// A folder in which findings are kept; made if it is not there, added to if it is. Example: --keep found
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// Draws the seeds of the batches; today's date unless said. Example: --seed 20261123
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Designs; all of them unless named. Example: --design spf-v11,vma-lock
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    design: Vec<String>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the subcommand.
pub fn run(args: &AllArgs, color: Color) -> Result<ExitCode, Failure> {
    let setup = AllSetup {
        designs: known("design", &args.design, DESIGNS.to_vec())?,
        duration: Duration::from_nanos(args.duration),
        seed: args.seed.unwrap_or_else(today_in_digits),
        keep: args.keep.clone(),
    };
    args.output.prepare()?;
    on_interrupt();
    let bar = progress_bar(setup.duration);
    let told = |what: &str, elapsed: Duration| {
        bar.set_message(what.to_owned());
        bar.set_position(elapsed.as_secs());
    };
    let outcome = all::run(&setup, &told).map_err(Failure::new)?;
    bar.finish_and_clear();
    let set = result_set(&setup, &outcome);
    let rows: Vec<Vec<String>> = outcome.rows.iter().map(|row| fields(row, &outcome)).collect();
    let human = |out: &mut dyn Write| write_human(&setup, &outcome, &rows, out);
    args.output.hand_out_table(&set, &Table { headings: &HEADINGS, rows: &rows }, human, color)?;
    Ok(exit_code(&set, if outcome.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Returns a bar that is shown on a terminal only.
fn progress_bar(duration: Duration) -> ProgressBar {
    let style = progress::style("checking [{bar:40}] {pos} of {len} s: {msg}");
    ProgressBar::new(duration.as_secs()).with_style(style)
}

const HEADINGS: [&str; 6] = ["judge", "batches", "tried", "unit", "seconds", "found"];

fn nr_found(judge: Judge, outcome: &AllOutcome) -> usize {
    outcome.found.iter().filter(|found| found.judge == judge.name()).count()
}

fn fields(row: &JudgeRow, outcome: &AllOutcome) -> Vec<String> {
    vec![
        row.judge.name().into(),
        row.batches.to_string(),
        row.units.to_string(),
        row.judge.unit().into(),
        format!("{:.1}", row.elapsed.as_secs_f64()),
        nr_found(row.judge, outcome).to_string(),
    ]
}

fn result_set(setup: &AllSetup, outcome: &AllOutcome) -> ResultSet {
    let mut set = ResultSet::new("check all", setup.seed, info::native());
    let judge = |row: &JudgeRow| {
        json!({
            "judge": row.judge.name(),
            "batches": row.batches,
            "tried": row.units,
            "unit": row.judge.unit(),
            "elapsed_ns": row.elapsed.as_nanos() as u64,
            "found": nr_found(row.judge, outcome),
        })
    };
    let judges: Vec<Value> = outcome.rows.iter().map(judge).collect();
    let check = json!({
        "designs": setup.designs,
        "duration_ns": setup.duration.as_nanos() as u64,
        "judges": judges,
        "findings": outcome.found,
        "verdict": verdict(setup, outcome),
    });
    set.checks.insert("all".into(), check);
    if outcome.was_interrupted {
        set.mark_interrupted("interrupted before its time was over");
    }
    set
}

fn write_human(setup: &AllSetup, outcome: &AllOutcome, rows: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "All judges in turn, seed {}\n", setup.seed)?;
    write_columns(out, &HEADINGS, rows)?;
    writeln!(out)?;
    write_found(&outcome.found, out)?;
    writeln!(out, "\n{}", verdict(setup, outcome))
}
