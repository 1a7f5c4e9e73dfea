//! `faultless check`: what is promised, put to the test.

mod all;
mod calibration;
mod fuzz;
mod mutants;
mod oracle;
mod schedules;
mod soak;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use faultless_machine::designs::{DESIGNS, SEMAPHORES};
use faultless_schedules::explore::Setup;
use faultless_schedules::worlds::{WORLDS, World};
use faultless_trials::Found;
use indicatif::{ProgressBar, ProgressStyle};

use crate::message::{Color, Failure};
use crate::nearest::unknown;
use crate::replay::distinct;

/// The arguments of `check`.
#[derive(Args)]
pub struct CheckArgs {
    #[command(subcommand)]
    check: Check,
}

#[derive(Subcommand)]
enum Check {
    /// Runs random sequences of memory calls on the real kernel and on the library, and compares them.
    Oracle(oracle::OracleArgs),
    /// Compares this machine with its simulation, workload by workload.
    Calibration(calibration::CalibrationArgs),
    /// Explores interleavings of small programs, and judges every answer.
    Schedules(schedules::SchedulesArgs),
    /// Lets threads use one instance at random, with every answer judged, for as long as asked.
    Soak(soak::SoakArgs),
    /// Gives bad and random inputs to whatever reads or runs them.
    Fuzz(fuzz::FuzzArgs),
    /// Runs oracle, schedules, soak and fuzz in turn, and says what a user of the library may believe.
    All(all::AllArgs),
    /// Puts known bugs back one at a time, and counts the schedules that each survives.
    Mutants(mutants::MutantsArgs),
}

/// Runs the subcommand.
pub fn run(args: &CheckArgs, color: Color) -> Result<ExitCode, Failure> {
    match &args.check {
        Check::Oracle(args) => oracle::run(args, color),
        Check::Calibration(args) => calibration::run(args, color),
        Check::Schedules(args) => schedules::run(args, color),
        Check::Soak(args) => soak::run(args, color),
        Check::Fuzz(args) => fuzz::run(args, color),
        Check::All(args) => all::run(args, color),
        Check::Mutants(args) => mutants::run(args, color),
    }
}

/// What both checks of schedules are told.
#[derive(Args)]
struct ExploreArgs {
    /// Names the sequence of schedules: the same seed gives the same ones, on any machine. Example: --seed 7
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How many schedules of each design, all worlds together. Example: --runs 100000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 10_000)]
    runs: u64,

    /// Designs to explore; all of them unless named. Example: --design spf-v11,vma-lock
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    design: Vec<String>,

    /// Semaphores beneath them, one for each program; all of them unless named. Example: --semaphore rwsem-v8
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    semaphore: Vec<String>,

    /// Worlds to explore; all of them unless named. Example: --world fork,zap
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    world: Vec<String>,

    /// How many CPUs of this machine explore; makes no difference to the result. All of them unless said. Example:
    /// --jobs 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
}

impl ExploreArgs {
    fn setup(&self) -> Result<Setup, Failure> {
        let worlds: Vec<&str> = WORLDS.iter().map(|world| world.name).collect();
        let worlds = chosen("world", &self.world, &worlds)?;
        Ok(Setup {
            designs: chosen("design", &self.design, DESIGNS)?,
            semaphores: chosen("semaphore", &self.semaphore, SEMAPHORES)?,
            worlds: worlds.iter().filter_map(|name| World::named(name)).collect(),
            seed: self.seed,
            runs: self.runs,
            mutant: None,
            jobs: self.jobs.map_or_else(faultless_machine::host::cpus, usize::from),
        })
    }
}

/// Returns the names that were given, or all; one that nobody knows is an error of usage.
fn chosen(kind: &str, given: &[String], known: &[&str]) -> Result<Vec<String>, Failure> {
    if given.is_empty() {
        return Ok(known.iter().map(|&name| name.to_owned()).collect());
    }
    match given.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(Failure::usage(unknown(kind, name, known.iter().copied()))),
        None => Ok(distinct(given)),
    }
}

/// Writes what must not be, each with the line that shows it again, or that nothing was found.
fn write_found(found: &[Found], out: &mut dyn Write) -> io::Result<()> {
    if found.is_empty() {
        return writeln!(out, "Nothing was found.");
    }
    writeln!(out, "Found {}:", found.len())?;
    found.iter().try_for_each(|found| {
        writeln!(out, "  {} of {}: {}\n    {}", found.judge, found.subject, found.what, found.line)
    })
}

/// Returns a bar that is shown on a terminal only.
fn progress_bar(schedules: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("exploring [{bar:40}] {pos} of {len} schedules, {eta} left");
    ProgressBar::new(schedules).with_style(style.unwrap_or(ProgressStyle::default_bar()))
}
