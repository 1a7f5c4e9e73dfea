//! `faultless check mutants`: known bugs put back, and the schedules that each survives.
//!
//! # Guarantee
//! The exit code is 0 if every mutant was found under every seed and the code without mutants survived all, otherwise 1;
//! 2 if the command was not understood, or the program was built without mutants.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use faultless_lab::schedules::explore::{ExploreError, Setup};
use faultless_lab::schedules::mutants::{self, KNOWN_BUGS, Table};
use faultless_lab::schedules::report;

use super::{ExploreArgs, progress_bar};
use crate::message::{Color, Failure};
use crate::output::{OutputArgs, print};
use crate::table::{Format, csv_row, markdown_head, markdown_row};

/// The arguments of `check mutants`.
#[derive(Args)]
#[command(after_help = "Examples:
  cargo run --release --features mutants -- check mutants
  cargo run --release --features mutants -- check mutants --seeds 5 --design vma-lock

A table with a row for each known bug of docs/schedules.md: the schedules that it survived before the first that \
failed, as median and worst of all seeds, or what keeps it out. The code without mutants meets the same schedules, and \
must survive them all. Takes a few minutes.

The exit code is 0 if every bug was found under every seed, 1 if one was not or the code itself failed, and 2 if the \
command was not understood or the program was built without the feature mutants.")]
pub struct MutantsArgs {
    #[command(flatten)]
    explore: ExploreArgs,

    /// How many seeds, from --seed on. Example: --seeds 5
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000), default_value_t = 20)]
    seeds: u64,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the subcommand.
pub fn run(args: &MutantsArgs, color: Color) -> Result<ExitCode, Failure> {
    let setup = args.explore.setup()?;
    if !cfg!(feature = "mutants") {
        return Err(Failure::Failed(ExploreError::NoMutants.to_string(), 2));
    }
    args.output.prepare()?;
    // At most: a mutant that is found ends early.
    let bar = progress_bar(setup.runs * setup.designs.len() as u64 * args.seeds * (KNOWN_BUGS.len() as u64 + 1));
    let table = mutants::table(&setup, args.seeds, &|done| bar.inc(done)).map_err(Failure::new)?;
    bar.finish_and_clear();
    hand_out(args, &setup, &table, color)?;
    Ok(if table.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn hand_out(args: &MutantsArgs, setup: &Setup, table: &Table, color: Color) -> Result<(), Failure> {
    let rows = report::mutant_rows(table);
    let set = report::mutants_set(setup, table);
    if args.output.format == Format::Csv {
        print(args.output.out.as_deref(), |out| {
            csv_row(out, report::MUTANT_HEADINGS)?;
            rows.iter().try_for_each(|row| csv_row(out, row.iter().map(String::as_str)))
        })?;
        return args.output.keep(&set, color);
    }
    let markdown = |out: &mut dyn Write| {
        markdown_head(out, &report::MUTANT_HEADINGS)?;
        rows.iter().try_for_each(|row| markdown_row(out, row.iter().map(String::as_str)))
    };
    let human = |out: &mut dyn Write| report::write_mutants(setup, table, out);
    args.output.hand_out(&set, human, markdown, color)
}
