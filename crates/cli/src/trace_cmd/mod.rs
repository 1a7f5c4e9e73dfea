//! `faultless trace`: what is in a recorded trace.
//!
//! # Guarantee
//! Nothing is shown that the trace does not hold; of a damaged trace all that precedes the damage is shown, and the
//! exit code is 1.

mod dump;
mod fields;
mod info;
mod open;
mod ps;
mod recover;
mod sites;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

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
    /// Lists the processes of a trace: number, command, threads, memory calls, faults.
    #[command(after_help = "Examples:
  faultless trace ps make.trace
  faultless trace ps --format json make.trace

A process is called what its first thread was called last. `faultless replay --process` takes a number or a name of this list. In \
JSON the processes have the keys pid, command, threads, calls and faults.")]
    Ps(FileArgs),
    /// Tells which memory of which process the calls and faults are about.
    #[command(after_help = "Examples:
  faultless trace top server.trace | head
  faultless trace top --folded server.trace | flamegraph.pl > server.svg
  faultless trace top --format json server.trace

A row is one kind of memory of one process: heap, stack, anonymous, a private mapping of a file, shared memory or files, special (the \
kernel's own pages), or unknown. Bytes are those that the calls named, a range that is named twice counting twice; kernel_ns is the time \
on a CPU inside the calls, if the trace has a pace. A fault has no end in a trace, so its time is not known. The most worked on comes \
first. In JSON the rows have the keys pid, command, area, file, site, calls, faults, bytes and kernel_ns.

Of a trace that was recorded with --stacks a row is of one call site, too: the innermost function outside of the C library. The calls that \
have no stack, and the faults, of which only some have, are in rows without a site.

With --folded each line is a stack for a flame graph: process, kind, file, then the call or `fault`, and how often. Of a trace with stacks it is \
process, functions from the outermost on, then the call or `fault` with the kind; a fault with a stack counts for all of which it is the only one \
(--stack-faults), and the others are left out.")]
    Top(TopArgs),
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

#[derive(Args)]
struct TopArgs {
    #[command(flatten)]
    file: FileArgs,

    /// Print stacks for a flame graph.
    #[arg(long, conflicts_with = "format")]
    folded: bool,
}

/// Runs the subcommand.
pub fn run(args: &TraceArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        TraceCommand::Info(args) => info::run(&args.file, args.format)?,
        TraceCommand::Dump(args) => dump::run(&args.file, args.format)?,
        TraceCommand::Ps(args) => ps::run(&args.file, args.format)?,
        TraceCommand::Top(args) if args.folded => top::run_folded(&args.file.file)?,
        TraceCommand::Top(args) => top::run(&args.file.file, args.file.format)?,
        TraceCommand::Recover(args) => recover::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
