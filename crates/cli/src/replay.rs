//! `faultless replay`: a recorded trace under one locking design after the other, checked event by event.
//!
//! # Guarantee
//! The exit code is 0 only if every event was replayed and came out as recorded. A trace that can't be used fails
//! before anything runs.

use faultless_machine::info;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use faultless_linux::space::on_interrupt;
use faultless_machine::designs::DESIGNS;
use faultless_machine::designs::HOST_DESIGN;
use faultless_machine::host;
use faultless_outline::{OUTLINE, outline};
use faultless_plan::processes;
use faultless_plan::{Losses, Pace};
use faultless_replay::Checking;
use faultless_replay::experiment::{self, ReplayOutcome, ReplaySetup};
use faultless_replay::patterned::{DEFAULT_THRESHOLD_BYTES, Patterned};
use faultless_replay::{report, report::Report};
use faultless_trace::{EventKind, Missing, ReadError, Trace};
use indicatif::ProgressBar;

use crate::choose::{self, distinct};
use crate::machine::MachineArgs;
use crate::message::{Color, Failure, Tone, say};
use crate::output::{INTERRUPTED, OutputArgs};
use crate::progress;
use crate::size;

/// The arguments of `replay`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless replay faultless.trace
  faultless replay --design mmap-sem,spf-v11 --semaphore rwsem-2012,rwsem-v8 --cpus 2 -r 10 java.trace
  faultless replay --pace recorded --format json --out java.json java.trace
  faultless replay --process cc1 make.trace
  faultless replay --pattern 0xAA,128K --design vma-lock renderer.trace
  faultless replay --process 1234 server.trace

Each recorded thread is a thread; at most as many run at once as --cpus says, and one that waits for another gives its \
place up. The designs are replayed in turn, run by run, in an order that --seed draws.

Every recorded fault is one access, and must fault as it was recorded; what the recording itself cannot explain is \
counted by class, and what nothing explains is a mismatch, printed with the event's number.

The exit code is 0 if all came out as recorded, 1 if something did not, was not replayed, or failed, or if the trace holds no \
fault, 2 if the command was not understood, and 130 if it was interrupted: what was replayed until then is printed.

docs/judging.md says how a replay is judged: what is checked of each fault (strict), what may differ (the classes), what is taken \
from the recording (imposed), what a pass is, and what the verdict compares.")]
pub struct ReplayArgs {
    /// The trace.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Designs to compare; all of ours unless named. The design linux is the host's kernel, which makes the recorded
    /// calls and accesses for real. Example: --design mmap-sem,linux
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(crate::replay::designs()), default_values = DESIGNS, hide_default_value = true)]
    design: Vec<String>,

    /// Semaphores beneath the designs. Example: --semaphore rwsem-2012,rwsem-v8
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    semaphore: Vec<String>,

    #[command(flatten)]
    machine: MachineArgs,

    /// How many threads run at once at most; several numbers are compared one after the other. As many as this machine
    /// has CPUs unless said. Example: --cpus 1,2
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    cpus: Vec<u16>,

    /// Runs of each design. Example: -r 30
    #[arg(short, long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 5)]
    runs: u32,

    /// Draws the order of the designs in each run, and the resampling of the statistics. Example: --seed 7
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Whether the computing between events, and who woke whom, is replayed. Example: --pace recorded
    #[arg(long, value_enum, default_value_t = PaceChoice::None)]
    pace: PaceChoice,

    /// Physical memory, which comes in pieces of 2M; as much as the trace can need unless said. Example: --memory 2G
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    memory: Option<usize>,

    /// Replay these processes alone: a number, or the name of a thread of theirs. What they are copies of is replayed
    /// up to the fork. Example: --process cc1
    #[arg(long, value_name = "PID|NAME")]
    process: Option<String>,

    /// Replay a trace that lost records; its result is then not the recorded program's. Example: --allow-lost
    #[arg(long)]
    allow_lost: bool,

    /// Replay the program four times under each design: as recorded, and as if its allocator asked for memory that
    /// starts as this byte, for mappings from a threshold on (64K unless said): by stores (+memset), by a reference
    /// page (+refpage), and by a pattern without a page (+pattern). The design linux is replayed as recorded alone.
    /// Example: --pattern 0xAA,128K
    #[arg(long, value_name = "BYTE[,THRESHOLD]", value_parser = pattern)]
    pattern: Option<Patterned>,

    /// Check every invariant after every event: slow, and one thread at a time. Example: --check
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Whether the pace is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PaceChoice {
    /// Computing as recorded on-CPU time, and wakes.
    Recorded,
    /// Neither: an upper bound on contention.
    None,
}

/// Reads a byte, and a size behind a comma.
fn pattern(text: &str) -> Result<Patterned, String> {
    let (byte, threshold) = text.split_once(',').map_or((text, None), |(byte, threshold)| (byte, Some(threshold)));
    let digits = byte.strip_prefix("0x").or_else(|| byte.strip_prefix("0X"));
    let read = digits.map_or_else(|| byte.parse(), |digits| u8::from_str_radix(digits, 16));
    let byte = read.map_err(|_| format!("'{byte}' is no byte such as 0xAA"))?;
    let threshold = threshold.map(size::parse).transpose()?;
    let threshold_bytes = threshold.map_or(DEFAULT_THRESHOLD_BYTES, |bytes| bytes as u64);
    Ok(Patterned { byte, threshold_bytes })
}

/// Returns the names of all designs.
fn designs() -> Vec<&'static str> {
    DESIGNS.iter().copied().chain([HOST_DESIGN]).collect()
}

/// Runs the subcommand.
pub fn run(args: &ReplayArgs, color: Color) -> Result<ExitCode, Failure> {
    args.output.prepare()?;
    let name = args.file.display();
    let mut trace = read(&args.file).map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
    if let Some(who) = &args.process {
        trace = processes::only(trace, who).map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
    }
    if let Some(why) = emptiness(&trace) {
        return Err(Failure::new(format_args!("{name}: {why}")));
    }
    let setup = setup(args)?;
    on_interrupt();
    let bar = progress_bar(setup.arms().len() * setup.runs);
    let result = experiment::run(&trace, &setup, &|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let outcome = result.map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
    print(args, &trace, &setup, &outcome, color)?;
    complain(args, &outcome, color);
    if outcome.was_interrupted {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(if outcome.checks.are_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads the trace; on a terminal a bar shows how much of the file is decoded.
fn read(path: &Path) -> Result<Trace, ReadError> {
    let file = File::open(path)?;
    let style = progress::style("decoding [{bar:40}] {bytes} of {total_bytes}, {eta} left");
    let bar = ProgressBar::new(file.metadata()?.len()).with_style(style);
    let trace = Trace::read(BufReader::new(bar.wrap_read(file)));
    bar.finish_and_clear();
    trace
}

/// Returns why there is nothing to replay: without a fault nothing is checked, and 0 mismatches would mean nothing.
fn emptiness(trace: &Trace) -> Option<String> {
    if trace.events.iter().any(|event| matches!(event.kind, EventKind::Fault(_))) {
        return None;
    }
    let why = match &trace.header {
        header if header.missing.contains(&Missing::ElevatedPrograms) => Missing::ElevatedPrograms.meaning(),
        header if header.missing.contains(&Missing::LastMoments) => Missing::LastMoments.meaning(),
        header if header.is_interrupted => "the recording was interrupted before the program's first fault",
        _ => "the recording saw none; `faultless trace info` says how it was recorded",
    };
    Some(format!("the trace holds no page fault, so there is nothing to replay and nothing to check: {why}"))
}

fn setup(args: &ReplayArgs) -> Result<ReplaySetup, Failure> {
    let machine = args.machine.choice()?;
    let cpus = match args.cpus.as_slice() {
        [] => machine.simulated().map_or_else(|| vec![host::cpus()], |spec| vec![spec.nr_cpus()]),
        cpus => cpus.iter().map(|&cpus| cpus.into()).collect(),
    };
    machine.check_cpus(&cpus).map_err(Failure::usage)?;
    if args.pattern.is_some() && args.design.iter().all(|design| design == HOST_DESIGN) {
        let told = format!("--pattern needs a design of ours: {HOST_DESIGN} has no memory that starts as a byte");
        return Err(Failure::usage(told));
    }
    Ok(ReplaySetup {
        machine,
        jobs: args.machine.jobs(),
        designs: distinct(&args.design),
        semaphores: choose::asked_semaphores(&args.semaphore)?,
        cpus: distinct(&cpus),
        runs: args.runs as usize,
        seed: args.seed,
        pace: if args.pace == PaceChoice::Recorded { Pace::Recorded } else { Pace::None },
        losses: if args.allow_lost { Losses::Allowed } else { Losses::Refused },
        memory_bytes: args.memory,
        checking: if args.check { Checking::EachStep } else { Checking::AtEnd },
        pattern: args.pattern,
    })
}

/// Returns a bar that is shown on a terminal only.
fn progress_bar(passes: usize) -> ProgressBar {
    let style = progress::style("replaying [{bar:40}] pass {pos} of {len}, {eta} left");
    ProgressBar::new(passes as u64).with_style(style)
}

fn print(
    args: &ReplayArgs,
    trace: &Trace,
    setup: &ReplaySetup,
    outcome: &ReplayOutcome,
    color: Color,
) -> Result<(), Failure> {
    let machine = info::of(&setup.machine);
    let mut name = args.file.file_name().map_or(args.file.display().to_string(), |name| name.to_string_lossy().into());
    if let Some(who) = &args.process {
        name.push_str(&format!(", process {who}"));
    }
    let report = Report { workload: &name, header: &trace.header, machine: &machine, setup, outcome };
    let human = |out: &mut dyn Write| report::human::write(&report, out);
    let markdown = |out: &mut dyn Write| report::markdown::write(&report, out);
    let mut set = report::result_set(&report);
    if args.output.html.is_some() {
        set.more.insert(OUTLINE.into(), outline(trace));
    }
    args.output.hand_out(&set, human, markdown, color)
}

/// Says on stderr what did not come out as recorded.
fn complain(args: &ReplayArgs, outcome: &ReplayOutcome, color: Color) {
    const SHOWN: usize = 10;
    let checks = &outcome.checks;
    for (arm, mismatch) in checks.first_mismatches.iter().take(SHOWN) {
        say(color, Tone::Error, &format!("event {}: {} (under {arm})", mismatch.event, mismatch.what));
    }
    if checks.mismatches > 0 {
        let file = args.file.display();
        let total = format!(
            "mismatches: {} in all, passes: {}; `faultless trace dump {file}` shows the events",
            checks.mismatches, checks.passes
        );
        say(color, Tone::Error, &total);
    }
    for (kind, count) in &checks.skipped {
        say(color, Tone::Error, &format!("not replayed: {kind}, {count} times, passes: {}", checks.passes));
    }
    if checks.lost > 0 {
        say(
            color,
            Tone::Warning,
            &format!("the recording lost {} records: this is not what the program did", checks.lost),
        );
    }
}
