//! `faultless check schedules`: interleavings of small programs.
//!
//! # Guarantee
//! The exit code is 0 if no schedule failed, 1 if one did, 2 if the command, or the schedule to replay, was not
//! understood.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use faultless_linux::space::on_interrupt;
use faultless_schedules::explore::{self, CellOutcome, ExploreError, ExploreSetup, Shortened};
use faultless_schedules::line::{self, Line};
use faultless_schedules::mutants::Mutant;
use faultless_schedules::report;
use faultless_schedules::search::Failed;

use super::explored::{ExploreArgs, progress_bar};
use crate::message::{Color, Failure};
use crate::nearest::unknown;
use crate::output::{OutputArgs, Table, exit_code, print};
use crate::table::Format;

/// The arguments of `check schedules`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless check schedules --seed 1 --runs 10000
  faultless check schedules --design vma-lock --world fork --runs 100000
  cargo run --release --features mutants -- check schedules --mutant put-before-flush
  faultless check schedules --replay schedule-1:spf-v11:rwsem-v8:zap:-:W+s0+l1_d0-1:1:0@15-1,1@33-0

Each schedule runs a small program of two or three threads on three CPUs, on an instance of its own; a thread may be \
stopped before and after every access to shared memory. Where and for whom is drawn at random or by priorities \
(probabilistic concurrency testing). After each operation that ends while no other is under way every invariant is \
checked, and at the end the answers must be those of some order of the operations. docs/schedules.md says what that \
shows, and what it does not.

The exit code is 0 if nothing failed, 1 if a schedule failed, and 2 if the command was not understood.")]
pub struct SchedulesArgs {
    #[command(flatten)]
    explore: ExploreArgs,

    /// Run this one schedule, as a failure printed it.
    #[arg(long, value_name = "LINE", value_parser = line::parse)]
    replay: Option<Line>,

    /// Put a known bug back, as `check mutants` does; needs a program built with the feature mutants. Example: --mutant
    /// put-before-flush
    #[arg(long, value_name = "NAME", conflicts_with = "replay")]
    mutant: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the subcommand.
pub fn run(args: &SchedulesArgs, color: Color) -> Result<ExitCode, Failure> {
    match &args.replay {
        Some(line) => replay(args, line, color),
        None => search(args, color),
    }
}

fn search(args: &SchedulesArgs, color: Color) -> Result<ExitCode, Failure> {
    let setup = ExploreSetup { mutant: mutant(args)?, ..args.explore.setup()? };
    args.output.prepare()?;
    on_interrupt();
    let bar = progress_bar(setup.runs * setup.designs.len() as u64);
    let cells = explore::explore(&setup, &|done| bar.inc(done)).map_err(Failure::new)?;
    bar.finish_and_clear();
    let failures = cells.iter().filter_map(|cell| cell.failed.as_ref());
    let first = failures.min_by_key(|(number, _)| *number);
    let first = first.map(|(_, failed)| explore::shortened(&setup, failed)).transpose().map_err(Failure::new)?;
    hand_out(args, &setup, &cells, first.as_ref(), color)
}

fn mutant(args: &SchedulesArgs) -> Result<Option<Mutant>, Failure> {
    let names = Mutant::ALL.map(Mutant::name);
    match args.mutant.as_deref() {
        None => Ok(None),
        Some(name) if !names.contains(&name) => Err(Failure::usage(unknown("mutant", name, names.into_iter()))),
        Some(_) if !cfg!(feature = "mutants") => Err(Failure::usage(ExploreError::NoMutants)),
        Some(name) => explore::mutant_named(name).map(Some).map_err(Failure::usage),
    }
}

fn hand_out(
    args: &SchedulesArgs,
    setup: &ExploreSetup,
    cells: &[CellOutcome],
    first: Option<&Shortened>,
    color: Color,
) -> Result<ExitCode, Failure> {
    const HEADINGS: [&str; 6] = ["design", "world", "schedules", "failed", "what", "line"];
    let rows: Vec<Vec<String>> = cells.iter().map(row).collect();
    let set = report::schedules_set(setup, cells, first);
    let human = |out: &mut dyn Write| report::write_schedules(setup, cells, first, out);
    args.output.hand_out_table(&set, &Table { headings: &HEADINGS, rows: &rows }, human, color)?;
    Ok(exit_code(&set, if first.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }))
}

fn row(cell: &CellOutcome) -> Vec<String> {
    let failed = cell.failed.as_ref();
    let number = failed.map_or(String::new(), |(number, _)| number.to_string());
    let what = failed.map_or(String::new(), |(_, failed)| failed.failure.to_string());
    let line = failed.map_or(String::new(), |(_, failed)| failed.line.to_string());
    vec![cell.design.clone(), cell.world.name.into(), cell.runs.to_string(), number, what, line]
}

fn replay(args: &SchedulesArgs, line: &Line, color: Color) -> Result<ExitCode, Failure> {
    let failed = explore::replay_line(line).map_err(|error| Failure::Failed(error.to_string(), 2))?;
    let cell = CellOutcome {
        design: line.design.clone(),
        world: line.world,
        runs: 1,
        failed: failed.clone().map(|failed| (0, failed)),
    };
    let setup = ExploreSetup {
        designs: vec![line.design.clone()],
        semaphores: vec![line.semaphore.clone()],
        worlds: vec![line.world],
        ..args.explore.setup()?
    };
    let human = |failed: Option<&Failed>| print(args.output.out.as_deref(), |out| report::write_replay(failed, out));
    match args.output.format {
        Format::Human => human(failed.as_ref())?,
        _ => drop(hand_out(args, &setup, &[cell], None, color)?),
    }
    Ok(if failed.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
