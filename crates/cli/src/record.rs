//! `faultless record`: runs a program and records it.
//!
//! # Guarantee
//! The exit code is the program's own (128 and the signal if one ended it); 127 if it does not exist, 126 if it may not
//! run, 1 if it could not be recorded. What the program prints is not touched; the summary goes to stderr.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use faultless_linux::{Arguments, ModeChoice, Options, Recording, record};
use faultless_trace::{HugePages, Missing, Mode, Pace};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::message::{Color, Failure, Tone, say};
use crate::size;

/// The arguments of `record`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless record -- gcc -O2 -c any.c
  faultless record -o sort.trace sort --parallel=2 big.txt
  faultless record -o - make -s | ssh host 'cat > make.trace'

Root sees everything. Other users get what kernel.perf_event_paranoid=2 permits: page faults with guessed rights, and \
the mappings; the trace names what is missing.

The trace keeps the command line (--redact leaves the arguments out), the names of threads, the paths of mapped files, \
addresses, calls and times; nothing of what is in memory or in files.

While the program runs, raw records go to a folder beside the output, FILE.PID.raw (in the folder for temporary files if the \
output is a pipe): 64 bytes a fault, 180 a memory call, 50 a switch; a million faults take 61 MiB. The trace, about 4 bytes an \
event, is made of them when the program ends, and they go. If the recorder is killed, or can't write the trace, they stay: \
`faultless trace recover FILE.PID.raw` makes a trace of what came until then.

The recording ends with the program's first process. Ctrl-C, or SIGINT, SIGTERM, SIGHUP or SIGQUIT to the recorder, \
ends it too: the program gets the signal and a second to end, then runs on unrecorded; the trace holds what came until \
then.

The exit code is the program's own: 128 and the signal if one ended it, 127 if it does not exist, 126 if it may not \
run; 1 if it could not be recorded.")]
pub struct RecordArgs {
    /// Where the trace goes; an existing file is replaced when the new one is complete. With `-` it goes to standard output, and
    /// what the program prints to standard error; refused where these are one file.
    #[arg(short, long, value_name = "FILE", default_value = "faultless.trace")]
    output: PathBuf,

    /// Leave huge pages as the system has them, instead of switching them off for the program.
    #[arg(long)]
    thp: bool,

    /// Store no CPU times, switches and wakes; the trace then cannot be replayed at the recorded pace.
    #[arg(long)]
    no_pace: bool,

    /// What to watch with: tracepoints (root), software events, or the best that is permitted.
    #[arg(long, value_enum, default_value_t = Watch::Auto)]
    mode: Watch,

    /// Memory for records that wait to be written, for each CPU: a power of two.
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = size::parse_ring)]
    buffer: usize,

    /// Keep the program's name only: its arguments do not come into the trace. Example: --redact
    #[arg(long)]
    redact: bool,

    /// The program and its arguments; from the program's name on nothing is an option of record.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What to watch with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Watch {
    /// The best that is permitted.
    Auto,
    /// Tracepoints.
    Privileged,
    /// Software events.
    Unprivileged,
}

impl Watch {
    fn choice(self) -> ModeChoice {
        match self {
            Watch::Auto => ModeChoice::BestPermitted,
            Watch::Privileged => ModeChoice::Only(Mode::Privileged),
            Watch::Unprivileged => ModeChoice::Only(Mode::Unprivileged),
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &RecordArgs, color: Color) -> Result<ExitCode, Failure> {
    let options = Options {
        output: args.output.clone(),
        huge_pages: if args.thp { HugePages::AsSystem } else { HugePages::Off },
        pace: if args.no_pace { Pace::Absent } else { Pace::Stored },
        ring_bytes: args.buffer,
        mode: args.mode.choice(),
        arguments: if args.redact { Arguments::LeftOut } else { Arguments::Kept },
    };
    let bar = progress_bar();
    let result = record(&options, &args.command, &|thousandths| show(&bar, thousandths));
    bar.finish_and_clear();
    let recording = result.map_err(|error| Failure::Failed(error.to_string(), error.exit_code()))?;
    summarize(&args.output, &recording);
    warn(args, &recording, color);
    Ok(ExitCode::from(recording.exit_code()))
}

/// Returns a bar that is shown only on a terminal, and only once there is work to show.
pub fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::hidden());
    bar.set_style(
        ProgressStyle::with_template("writing the trace [{bar:40}] {percent} %")
            .unwrap_or(ProgressStyle::default_bar()),
    );
    bar
}

/// Shows how much of the work is done.
pub fn show(bar: &ProgressBar, thousandths: u64) {
    if bar.position() == 0 {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    bar.set_position(thousandths);
}

/// Says what came into the trace.
pub fn summarize(output: &Path, recording: &Recording) {
    let (tally, header) = (&recording.tally, &recording.header);
    let name = if output.as_os_str() == "-" { "standard output".into() } else { output.display().to_string() };
    eprintln!("recorded {name}: {} events", tally.events);
    eprintln!("  faults    {} by the program, {} by the kernel for it", tally.user_faults, tally.kernel_faults);
    let calls: Vec<_> = tally.calls.iter().map(|(name, count)| format!("{name} {count}")).collect();
    eprintln!("  calls     {}{}", tally.calls.values().sum::<u64>(), listed(&calls));
    eprintln!("  mappings  {}", tally.mappings);
    eprintln!("  tasks     {} made, {} programs begun, {} ended", tally.clones, tally.execs, tally.exits);
    if header.pace == Pace::Stored {
        eprintln!("  pace      {} switches, {} wakes", tally.switches, tally.wakes);
    }
    let each = recording.bytes as f64 / tally.events.max(1) as f64;
    eprintln!("  lost      {}", header.lost);
    eprintln!("  size      {}, {each:.2} bytes an event", size::human(recording.bytes));
}

fn listed(words: &[String]) -> String {
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// Says in what the trace is less than it could be.
fn warn(args: &RecordArgs, recording: &Recording, color: Color) {
    let header = &recording.header;
    let mut warnings = Vec::new();
    if header.lost > 0 {
        let larger = size::human(2 * args.buffer as u64);
        warnings.push(format!(
            "{} records were lost, and the trace says so: it replays only with --allow-lost; record again with a \
             --buffer of {larger} or more",
            header.lost
        ));
    }
    if header.missing.contains(&Missing::ElevatedPrograms) {
        warnings.push(Missing::ElevatedPrograms.meaning().into());
    }
    let lacks: Vec<_> = header.missing.iter().filter(|missing| missing.is_of_sources()).collect();
    if !lacks.is_empty() {
        let names: Vec<_> = lacks.iter().map(|missing| missing.name()).collect();
        let why = recording.refusal.iter().map(|refusal| format!(" (watching tracepoints: {refusal}; run as root)"));
        warnings.push(format!("the trace lacks {}{}", names.join(", "), why.collect::<String>()));
    }
    if recording.still_running > 0 {
        warnings.push(format!("{} threads still ran when the recording ended", recording.still_running));
    }
    if let Some(signal) = recording.interrupted_by {
        warnings.push(format!("interrupted by signal {signal}: the trace holds what came until then"));
    }
    warnings.iter().for_each(|warning| say(color, Tone::Warning, warning));
}
