//! `faultless check`: what is promised, put to the test.

mod calibration;
mod oracle;

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
}

/// Runs the subcommand.
pub fn run(args: &CheckArgs, color: Color) -> Result<ExitCode, Failure> {
    match &args.check {
        Check::Oracle(args) => oracle::run(args, color),
        Check::Calibration(args) => calibration::run(args, color),
    }
}
