//! `faultless trace`: what is in a recorded trace.
//!
//! # Guarantee
//! Nothing is shown that the trace does not hold; of a damaged trace all that precedes the damage is shown, and the exit
//! code is 1.

mod dump;
mod fields;
mod info;
mod recover;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use faultless_trace::{ReadError, Reader};

use crate::message::Failure;
use crate::table::Format;

/// The arguments of `trace`.
#[derive(Args)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand)]
enum TraceCommand {
    /// Tells how a trace was recorded, what it lacks, and how much of what it holds.
    #[command(after_help = "Example:\n  faultless trace info faultless.trace")]
    Info(FileArgs),
    /// Prints one line for each event.
    #[command(after_help = "Examples:
  faultless trace dump faultless.trace | less
  faultless trace dump --format csv faultless.trace > events.csv

With --format json each line is a JSON object. Of a damaged trace, what precedes the damage is printed before the error.")]
    Dump(FileArgs),
    /// Makes a trace of the raw records that a killed recorder left.
    Recover(recover::RecoverArgs),
}

#[derive(Args)]
struct FileArgs {
    /// The trace.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

/// A trace that is read event by event.
type FileReader = Reader<BufReader<File>>;

/// Runs the subcommand.
pub fn run(args: &TraceArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        TraceCommand::Info(args) => info::run(&args.file, args.format)?,
        TraceCommand::Dump(args) => dump::run(&args.file, args.format)?,
        TraceCommand::Recover(args) => recover::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn open(path: &Path) -> Result<FileReader, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error.into()))?;
    Reader::new(BufReader::new(file)).map_err(|error| unreadable(path, &error))
}

/// Returns the failure that names the file and what is wrong with it.
fn unreadable(path: &Path, error: &ReadError) -> Failure {
    Failure::new(format_args!("{}: {error}", path.display()))
}
