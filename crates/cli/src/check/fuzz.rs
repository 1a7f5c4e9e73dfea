//! `faultless check fuzz`: bad and random inputs for whatever reads or runs them.
//!
//! # Guarantee
//! The exit code is 0 if no input showed anything, 1 if one did, 2 if the command was not understood. An input that
//! crashes or hangs what it is given to is a finding, not the end of the command.

use faultless_machine::info;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use faultless_linux::space::on_interrupt;
use faultless_results::ResultSet;
use faultless_trials::fuzz::{self, FuzzOutcome, FuzzSetup, Target};
use serde_json::{Value, json};

use super::found::write_found;
use crate::choose::known;
use crate::duration;
use crate::message::{Color, Failure, Tone, say};
use crate::output::{OutputArgs, Table, exit_code};
use crate::table::write_columns;

/// The arguments of `check fuzz`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless check fuzz
  faultless check fuzz --target traces,results --duration 1h
  faultless check fuzz --target traces --seed 1 --from 12345 --inputs 1

Targets:
  sequences  memory calls made of random bytes or of damaged sequences, on the kernel and on the library: no difference
  api        any arguments to the library's public functions, from several threads: no panic, no broken invariant
  traces     damaged traces whose checksums are right: read, planned and replayed without a panic, a broken invariant or a leak
  machines   damaged machine files: refused, or written and read back equal
  results    damaged result files: refused, or read, written in every format and compared

Each target runs in a process of its own, which hangs if one input takes a minute; one that reads files may have 3 GiB of \
address space. An input is made from --seed and its number. A fuzzer that is guided by coverage has the same targets: fuzz/README.md.

The exit code is 0 if nothing was found, 1 if something was, and 2 if the command was not understood.")]
pub struct FuzzArgs {
    /// What to fuzz; all of it unless named. Example: --target traces,machines
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    target: Vec<String>,

    /// How long each target runs. Example: --duration 1h
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    duration: u64,

    /// Draws the inputs. Example: --seed 7
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The number of the first input. Example: --from 12345
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,

    /// How many inputs of each target; as many as there is time for unless said. Example: --inputs 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    inputs: Option<u64>,

    /// Run the first target in this process, as a debugger wants it.
    #[arg(long)]
    in_process: bool,

    /// A file that is told the number of each input before it is tried.
    #[arg(long, value_name = "FILE", requires = "in_process", hide = true)]
    progress: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the subcommand.
pub fn run(args: &FuzzArgs, color: Color) -> Result<ExitCode, Failure> {
    let setup = args.setup()?;
    on_interrupt();
    if args.in_process {
        let report = setup.run_here(args.progress.as_deref()).map_err(Failure::new)?;
        writeln!(io::stdout(), "{report}")?;
        return Ok(ExitCode::SUCCESS);
    }
    args.output.prepare()?;
    let outcome = fuzz::run(&setup, &|what| say(color, Tone::Note, what)).map_err(Failure::new)?;
    let set = result_set(&setup, &outcome);
    let rows: Vec<Vec<String>> = outcome.rows.iter().map(|row| fields(row, &outcome)).collect();
    let human = |out: &mut dyn Write| {
        writeln!(out, "Fuzz, seed {}\n", setup.seed)?;
        write_columns(out, &HEADINGS, &rows)?;
        writeln!(out)?;
        write_found(&outcome.found, out)
    };
    args.output.hand_out_table(&set, &Table { headings: &HEADINGS, rows: &rows }, human, color)?;
    Ok(exit_code(&set, if outcome.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

impl FuzzArgs {
    fn setup(&self) -> Result<FuzzSetup, Failure> {
        let names = known("target", &self.target, Target::ALL.map(Target::name).to_vec())?;
        let target = |name: &String| Target::ALL.into_iter().find(|target| target.name() == name);
        Ok(FuzzSetup {
            targets: names.iter().filter_map(target).collect(),
            seed: self.seed,
            from: self.from,
            inputs: self.inputs,
            duration: Duration::from_nanos(self.duration),
        })
    }
}

const HEADINGS: [&str; 3] = ["target", "inputs", "found"];

fn fields(row: &fuzz::TargetRow, outcome: &FuzzOutcome) -> Vec<String> {
    let found = outcome.found.iter().filter(|found| found.subject == row.target.name()).count();
    vec![row.target.name().into(), row.inputs.to_string(), found.to_string()]
}

fn result_set(setup: &FuzzSetup, outcome: &FuzzOutcome) -> ResultSet {
    let mut set = ResultSet::new("check fuzz", setup.seed, info::native());
    let runs: Vec<Value> =
        outcome.rows.iter().map(|row| json!({ "target": row.target.name(), "inputs": row.inputs })).collect();
    let check = json!({
        "duration_ns": setup.duration.as_nanos() as u64,
        "from": setup.from,
        "runs": runs,
        "findings": outcome.found,
    });
    set.checks.insert("fuzz".into(), check);
    if outcome.was_interrupted {
        set.mark_interrupted(format_args!("interrupted in target {} of {}", outcome.rows.len(), setup.targets.len()));
    }
    set
}
