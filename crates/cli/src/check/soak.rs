//! `faultless check soak`: threads that use one instance at random, for as long as asked.
//!
//! # Guarantee
//! The exit code is 0 if every answer was right, every invariant held and no frame was lost, 1 if not, 2 if the command
//! was not understood. A run that crashes or hangs is a finding, not the end of the command.

use faultless_machine::info;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use faultless_linux::space::on_interrupt;
use faultless_machine::designs::DESIGNS;
use faultless_results::ResultSet;
use faultless_soak::Shortages;
use faultless_trials::soak::{self, SoakOutcome, SoakRow, SoakSetup, shortages_name};
use serde_json::{Value, json};

use super::found::write_found;
use crate::choose::{self, known};
use crate::message::{Color, Failure, Tone, say};
use crate::output::{OutputArgs, Table, exit_code};
use crate::table::write_columns;
use crate::{duration, size};

/// The arguments of `check soak`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless check soak
  faultless check soak --duration 1h --design vma-lock --shortages injected
  faultless check soak --design spf-v11 --seed 7 --threads 8 --cpus 2

Threads fault, map, unmap, protect, move, advise, fork, truncate, punch and read at random on one instance. Each knows what \
its own pages must hold, so every answer is judged; after each round, while all stand still, every invariant is checked, and at \
the end that no frame was lost. With --shortages injected, allocations fail now and then: a call that finds no frame \
must have changed nothing that its documentation does not name. Each run is a process of its own. The seed fixes the choices of each \
thread, not the interleaving: a line that is printed makes the same choices, and may have to run longer.

The exit code is 0 if nothing was found, 1 if something was, and 2 if the command was not understood.")]
pub struct SoakArgs {
    /// Designs; all of them unless named. Example: --design spf-v11,vma-lock
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    design: Vec<String>,

    /// The semaphore beneath them. Example: --semaphore rwsem-2012
    #[arg(long, value_name = "NAME", default_value = "rwsem-v8")]
    semaphore: String,

    /// How long each design runs. Example: --duration 1h
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    duration: u64,

    /// Draws what each thread does. Example: --seed 7
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Whether allocations fail now and then; both, half of the time each, unless said. Example: --shortages injected
    #[arg(long, value_enum, default_value_t = ShortagesChoice::Both)]
    shortages: ShortagesChoice,

    /// Threads. Example: --threads 8
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), default_value_t = 4)]
    threads: u16,

    /// CPU slots of the instance; fewer than threads, so that they take turns. Example: --cpus 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), default_value_t = 3)]
    cpus: u16,

    /// Memory of the instance. Example: --memory 64M
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory, default_value = "256M")]
    memory: usize,

    /// Run the first design in this process and print its report, as a debugger wants it.
    #[arg(long)]
    in_process: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Whether allocations fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShortagesChoice {
    /// Frames run out only if memory does.
    None,
    /// Now and then an allocation fails.
    Injected,
    /// One, then the other.
    Both,
}

impl ShortagesChoice {
    fn kinds(self) -> Vec<Shortages> {
        match self {
            Self::None => vec![Shortages::None],
            Self::Injected => vec![Shortages::Injected],
            Self::Both => vec![Shortages::None, Shortages::Injected],
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &SoakArgs, color: Color) -> Result<ExitCode, Failure> {
    let setup = args.setup()?;
    on_interrupt();
    if args.in_process {
        let report = setup.run_here().map_err(|error| Failure::usage(format_args!("{error:?}")))?;
        writeln!(io::stdout(), "{report}")?;
        return Ok(ExitCode::SUCCESS);
    }
    args.output.prepare()?;
    let outcome = soak::run(&setup, &|what| say(color, Tone::Note, what)).map_err(Failure::new)?;
    let set = result_set(&setup, &outcome);
    let rows: Vec<Vec<String>> = outcome.rows.iter().map(row).collect();
    let human = |out: &mut dyn Write| write_human(&setup, &outcome, &rows, out);
    args.output.hand_out_table(&set, &Table { headings: &HEADINGS, rows: &rows }, human, color)?;
    Ok(exit_code(&set, if outcome.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

impl SoakArgs {
    fn setup(&self) -> Result<SoakSetup, Failure> {
        let shortages = self.shortages.kinds();
        Ok(SoakSetup {
            designs: known("design", &self.design, DESIGNS.to_vec())?,
            semaphore: choose::semaphore(&self.semaphore)?,
            duration: Duration::from_nanos(self.duration) / shortages.len() as u32,
            shortages,
            seed: self.seed,
            nr_threads: self.threads.into(),
            nr_cpus: self.cpus.into(),
            memory_bytes: self.memory,
        })
    }
}

const HEADINGS: [&str; 9] =
    ["design", "shortages", "rounds", "operations", "failed calls", "faults", "copies", "shootdowns", "outcome"];

fn row(row: &SoakRow) -> Vec<String> {
    let figure = |pointer: &str| {
        let value = row.report.as_ref().and_then(|report| report.pointer(pointer)).and_then(Value::as_u64);
        value.map_or(String::new(), |value| value.to_string())
    };
    let outcome = if row.report.is_some() { "right" } else { "FOUND or interrupted" };
    let mut fields = vec![row.design.clone(), shortages_name(row.shortages).to_owned()];
    let figures =
        ["/rounds", "/operations", "/shortages", "/events/faults", "/events/cow", "/events/tlb_shootdown"].map(figure);
    fields.extend(figures);
    fields.push(outcome.to_owned());
    fields
}

fn result_set(setup: &SoakSetup, outcome: &SoakOutcome) -> ResultSet {
    let mut set = ResultSet::new("check soak", setup.seed, info::native());
    let runs: Vec<Value> = outcome
        .rows
        .iter()
        .map(|row| json!({ "design": row.design, "shortages": shortages_name(row.shortages), "report": row.report }))
        .collect();
    set.checks.insert(
        "soak".into(),
        json!({
            "semaphore": setup.semaphore,
            "duration_ns": setup.duration.as_nanos() as u64,
            "threads": setup.nr_threads,
            "cpus": setup.nr_cpus,
            "runs": runs,
            "findings": outcome.found,
        }),
    );
    if outcome.was_interrupted {
        let asked = setup.designs.len() * setup.shortages.len();
        set.mark_interrupted(format_args!("interrupted in run {} of {asked}", outcome.rows.len()));
    }
    set
}

fn write_human(setup: &SoakSetup, outcome: &SoakOutcome, rows: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    let SoakSetup { seed, semaphore, nr_threads, nr_cpus, .. } = setup;
    writeln!(out, "Soak: {nr_threads} threads on {nr_cpus} CPUs over {semaphore}, seed {seed}\n")?;
    write_columns(out, &HEADINGS, rows)?;
    writeln!(out)?;
    write_found(&outcome.found, out)
}
