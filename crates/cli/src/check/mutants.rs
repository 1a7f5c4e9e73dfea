//! `faultless check mutants`: known bugs put back, and the schedules that each survives.
//!
//! # Guarantee
//! The exit code is 0 if every mutant was found under every seed and the code without mutants survived all, otherwise
//! 1; 2 if the command was not understood, or the program was built without mutants.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use faultless_linux::space::on_interrupt;
use faultless_schedules::explore::ExploreError;
use faultless_schedules::mutants::{self, Step};
use faultless_schedules::report;
use indicatif::ProgressBar;

use super::explored::ExploreArgs;
use crate::message::{Color, Failure, Tone, say};
use crate::output::{OutputArgs, Table, exit_code};
use crate::progress;

/// The arguments of `check mutants`.
#[derive(Args)]
#[command(after_help = "Examples:
  cargo run --release --features mutants -- check mutants
  cargo run --release --features mutants -- check mutants --seeds 5 --design vma-lock

A table with a row for each known bug of docs/schedules.md: the schedules that it survived before the first that \
failed, as median and worst of all seeds, or what keeps it out. The code without mutants meets the same schedules, and \
must survive them all, which takes two thirds of the time. 20 seeds take some 13 minutes of one CPU; a --jobs of 2 halves \
that. Orderings that only a weaker memory order shows stand behind, with the model test that finds each.

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
    let bar = progress_bar(mutants::nr_steps(args.seeds));
    let told = |step: Step<'_>| match step {
        Step::Begun(bug) => bar.set_message(bug.name),
        Step::Seed => bar.inc(1),
        Step::Ended(row) if bar.is_hidden() => say(color, Tone::Note, &report::mutant_line(row)),
        Step::Ended(_) => {}
    };
    on_interrupt();
    let table = mutants::table(&setup, args.seeds, &told).map_err(Failure::new)?;
    bar.finish_and_clear();
    let set = report::mutants_set(&setup, &table);
    let rows = report::mutant_rows(&table);
    let human = |out: &mut dyn Write| report::write_mutants(&setup, &table, out);
    args.output.hand_out_table(&set, &Table { headings: &report::MUTANT_HEADINGS, rows: &rows }, human, color)?;
    Ok(exit_code(&set, if table.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Returns a bar that is shown on a terminal only; elsewhere each row is told as it is done.
fn progress_bar(steps: u64) -> ProgressBar {
    let style = progress::style("[{bar:40}] {pos} of {len} (bug, seed), {elapsed}: {msg}");
    ProgressBar::new(steps).with_style(style)
}
