//! `faultless check`: what is promised, put to the test.

mod all;
mod calibration;
mod explored;
mod found;
mod fuzz;
mod mutants;
mod oracle;
mod schedules;
mod soak;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::message::{Color, Failure};

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
