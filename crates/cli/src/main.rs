//! The command `faultless`.
//!
//! # Guarantee
//! Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 not understood, 3 a regression;
//! `record` passes on the recorded program's own.

#![forbid(unsafe_code)]

mod bench;
mod bench_args;
mod check;
mod choose;
mod compare;
mod curves;
mod date;
mod duration;
mod fit;
mod foreign;
mod high;
mod high_args;
mod install;
mod kmap;
mod kmap_args;
mod lists;
mod machine;
mod machines;
mod message;
mod nearest;
mod output;
mod placement;
mod progress;
mod record;
mod replay;
mod report;
mod reproduce;
mod rwsem;
mod rwsem_args;
mod rwsem_grid;
mod size;
mod stat;
mod table;
mod trace_cmd;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use faultless_machine::simulated::LineAllocator;

use crate::message::{Color, Failure};

/// Results of simulations don't depend on where the host puts things.
#[global_allocator]
static ALLOCATOR: LineAllocator = LineAllocator;

/// Records what a program does to its memory map, and replays it under other locking designs.
#[derive(Parser)]
#[command(name = "faultless", version, arg_required_else_help = true, subcommand_required = true)]
struct Cli {
    /// When to use colour; otherwise NO_COLOR and the terminal decide.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    color: Color,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sets published tables beside a simulation of their machines.
    Reproduce(reproduce::ReproduceArgs),
    /// Puts what is promised to the test.
    Check(check::CheckArgs),
    /// Runs a program and records what it does to its memory.
    Record(record::RecordArgs),
    /// Measures workloads under locking designs and on the host's own kernel.
    Bench(Box<bench_args::BenchArgs>),
    /// Replays a recorded trace under locking designs and compares them.
    Replay(replay::ReplayArgs),
    /// Counts what happens in a workload or a trace, as perf stat does.
    Stat(stat::StatArgs),
    /// Lists the simulated machines, and shows their parameters.
    Machines(machines::MachinesArgs),
    /// Compares results with each other.
    Compare(compare::CompareArgs),
    /// Lists saved results, and prints them.
    Report(report::ReportArgs),
    /// Lists the workloads.
    Workloads(lists::ListArgs),
    /// Lists the locking designs.
    Designs(lists::ListArgs),
    /// Shows what is in a recorded trace.
    Trace(trace_cmd::TraceArgs),
    /// Prints what a shell needs to complete the command's words.
    Completions(install::CompletionsArgs),
    /// Prints the manual page, or writes those of all subcommands.
    Man(install::ManArgs),
}

fn main() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    fit::look(cli.color);
    let result = match cli.command {
        Command::Reproduce(args) => reproduce::run(&args, cli.color),
        Command::Check(args) => check::run(&args, cli.color),
        Command::Record(args) => record::run(&args, cli.color),
        Command::Bench(args) => bench::run(&args, cli.color),
        Command::Replay(args) => replay::run(&args, cli.color),
        Command::Stat(args) => stat::run(&args, cli.color),
        Command::Machines(args) => machines::run(&args, cli.color),
        Command::Compare(args) => compare::run(&args, cli.color),
        Command::Report(args) => report::run(&args, cli.color),
        Command::Workloads(args) => lists::workloads(&args),
        Command::Designs(args) => lists::designs(&args),
        Command::Trace(args) => trace_cmd::run(&args),
        Command::Completions(args) => install::completions(&args, command()),
        Command::Man(args) => install::man(&args, command()),
    };
    result.unwrap_or_else(|failure: Failure| failure.report(cli.color))
}

/// Returns what is understood.
fn command() -> clap::Command {
    taking_negatives(Cli::command())
}

/// Lets each option take a negative number, so that it is refused as that option's value and not as an option.
fn taking_negatives(command: clap::Command) -> clap::Command {
    let taking = |arg: clap::Arg| {
        let takes = !arg.is_positional() && arg.get_action().takes_values();
        if takes { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(taking).mut_subcommands(taking_negatives)
}

/// Prints help, the version or what was not understood; help that nobody gets to read is a failure.
fn explain(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(failed) if !error.use_stderr() => Failure::from(failed).report(Color::Auto),
        _ => ExitCode::from(error.exit_code() as u8),
    }
}
