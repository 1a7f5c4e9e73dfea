//! `faultless record`: runs a program and records it, or joins running processes and records these.
//!
//! # Guarantee
//! The exit code is the program's own (128 and the signal if one ended it); 127 if it does not exist, 126 if it may not
//! run, 1 if it could not be recorded. What the program prints is not touched; the summary goes to stderr.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use faultless_linux::{
    Arguments, Beginning, Bounds, ChainTally, Descendants, Joining, Kin, Means, ModeChoice, Options, RecordError,
    Recording, SnapshotMode, StackOptions, Who, attach, record,
};
use faultless_trace::stacks::StackMethod;
use faultless_trace::{HugePages, Missing, Mode, Pace};
use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::duration;
use crate::message::{Color, Failure, Tone, say};
use crate::progress;
use crate::size;

/// The arguments of `record`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless record -- gcc -O2 -c any.c
  faultless record -o sort.trace sort --parallel=2 big.txt
  faultless record -o - make -s | ssh host 'cat > make.trace'
  faultless record -p 1234 --duration 10s -o server.trace
  faultless record -p $(pgrep -d, nginx) --max-size 1G
  faultless record -p 1234 --children --snapshot frozen -- redis-benchmark -q
  faultless record --wait-all -- ./start-daemon
  faultless record --duration 10s -- ./server      # it runs on unrecorded
  faultless record -p 1234 --paused -o peak.trace    # kill -USR1 begins it, kill -USR2 ends it
  faultless record --stacks=dwarf -o calls.trace ./prog && faultless trace top --folded calls.trace | flamegraph.pl > calls.svg
  faultless record -a --duration 5s -o system.trace
  faultless record --cgroup system.slice/nginx.service --duration 10s

Root sees everything. Other users get what kernel.perf_event_paranoid=2 permits: page faults with guessed rights, and \
the mappings; the trace names what is missing.

The trace keeps the command line (--redact leaves the arguments out), the names of threads, the paths of mapped files, \
addresses, calls and times; nothing of what is in memory or in files.

With --stacks the trace also keeps the names of the functions that led to each memory call and to some faults. fp takes the kernel's \
word for it, which follows frame pointers; dwarf finds the callers of code without them, too. For that the top of each stack is copied to the raw \
records, 8 KiB a call, and looked at when the program ends; no more than addresses and names comes into the trace. A stack that finds no \
room is counted, and costs the trace nothing else.

While the program runs, raw records go to a folder beside the output, FILE.PID.raw (in the folder for temporary files if the \
output is a pipe): 64 bytes a fault, 180 a memory call, 50 a switch; a million faults take 61 MiB. The trace, about 4 bytes an \
event, is made of them when the program ends, and they go. If the recorder is killed, or can't write the trace, they stay: \
`faultless trace recover FILE.PID.raw` makes a trace of what came until then.

The recording ends with the program's first process, or with --wait-all when its last descendant has ended; with --duration or --max-size \
when so much time has passed or so much was recorded, and the program runs on unrecorded. Ctrl-C, or SIGINT, SIGTERM, SIGHUP or SIGQUIT to the recorder, \
ends it too: the program gets the signal and a second to end, then runs on unrecorded; the trace holds what came until \
then.

With -p, processes are recorded that run already: what stands in their memory is read while they run, and the trace \
begins there. They are not changed, and get no signal unless --snapshot frozen is to stop them for that. Their threads, and the processes that they make, \
are recorded too. The recording ends when its time is over, when the processes have ended, or with Ctrl-C; the exit \
code is 0 then. -a joins all processes as perf does, --cgroup those of a control group and of the groups \
below it, also those that join it later. With --paused the \
recorder joins them when it gets SIGUSR1, and ends the recording when it gets SIGUSR2. For root, programs in the kernel (BPF) write their \
records; a fault or a memory call then costs them about a quarter of a microsecond more, and a change of threads hardly anything. Elsewhere, \
with --no-bpf and with --stacks, each thread takes seven descriptors on each CPU; where the limit (ulimit -n) has no room for them, and \
with -a and --cgroup, root watches whole CPUs instead, and what other processes do is left out of the trace; the raw records then hold it too.

The exit code is the program's own: 128 and the signal if one ended it, 127 if it does not exist, 126 if it may not \
run; 1 if it could not be recorded.")]
pub struct RecordArgs {
    /// Where the trace goes; an existing file is replaced when the new one is complete. With `-` it goes to standard
    /// output, and what the program prints to standard error; refused where these are one file.
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

    /// Record which functions the program is inside of at each memory call, and at some of its faults: by frame
    /// pointers, or by the unwinding tables of its files from copies of the stack's top, of 8192 bytes if BYTES is not
    /// given. Example: --stacks=dwarf,16384
    #[arg(long, value_name = "fp|dwarf[,BYTES]", value_parser = parse_stacks)]
    stacks: Option<(StackMethod, u32)>,

    /// With --stacks: of each thread's faults each N-th gets its functions; none for 0.
    #[arg(long, value_name = "N", default_value_t = 101, requires = "stacks")]
    stack_faults: u64,

    /// Keep the program's name only: its arguments do not come into the trace. Example: --redact
    #[arg(long)]
    redact: bool,

    /// Record these running processes instead of starting a program.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', conflicts_with = "thp", group = "joined")]
    pid: Vec<i32>,

    /// Record all running processes, and all that they make. For root. Example: -a --duration 5s
    #[arg(short = 'a', long = "all", conflicts_with = "thp", group = "joined")]
    all: bool,

    /// Record the processes of a control group and of those below it, also those that join it later: a path below
    /// /sys/fs/cgroup, or a whole one.
    /// Example: --cgroup system.slice/nginx.service
    #[arg(long, value_name = "PATH", conflicts_with = "thp", group = "joined")]
    cgroup: Option<PathBuf>,

    /// Record the running processes that descend from these, too.
    #[arg(long, requires = "joined", conflicts_with = "all")]
    children: bool,

    /// Go on until the last descendant has ended, also one that outlives its parent; with -a, the last one of the
    /// program that runs meanwhile. Example: --wait-all -- ./start-daemon
    #[arg(long)]
    wait_all: bool,

    /// Wait for SIGUSR1 before the processes are joined, and end the recording at SIGUSR2. Example: -p 1234 --paused
    #[arg(long, requires = "joined")]
    paused: bool,

    /// Watch them by perf's events alone, also where programs in the kernel (BPF) would cost them less.
    #[arg(long, requires = "joined", conflicts_with = "all")]
    no_bpf: bool,

    /// Read what stands in their memory while they run, or while they stand still.
    #[arg(long, value_enum, requires = "joined", conflicts_with = "all", default_value_t = Look::Live)]
    snapshot: Look,

    /// Record so long at most: 300ms, 10s, 2m. A program that was started runs on then.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    duration: Option<u64>,

    /// Stop when the raw records, of about 72 bytes a fault, have grown to this: 500M, 2G.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_size: Option<usize>,

    /// The program and its arguments; from the program's name on nothing is an option of record. With -p, a program to
    /// run meanwhile, with which the recording ends.
    #[arg(required_unless_present = "joined", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl RecordArgs {
    /// Returns whether running processes are recorded.
    fn is_joined(&self) -> bool {
        self.all || self.cgroup.is_some() || !self.pid.is_empty()
    }

    fn stacks(&self) -> Option<StackOptions> {
        let fault_period = self.stack_faults;
        self.stacks.map(|(method, copied_bytes)| StackOptions { method, copied_bytes, fault_period })
    }

    fn who(&self) -> Who {
        match &self.cgroup {
            _ if self.all => Who::Everyone,
            Some(path) => Who::Cgroup(path.clone()),
            None => Who::Processes(self.pid.clone()),
        }
    }
}

/// What is copied of each stack's top if nothing else is said: as much as perf does.
const COPIED_BYTES: u32 = 8192;

/// The kernel takes no more: a record's size has 16 bits.
const COPIED_BYTES_MOST: u32 = 65_000;

/// Parses `fp`, `dwarf` or `dwarf,BYTES`.
fn parse_stacks(text: &str) -> Result<(StackMethod, u32), String> {
    let bytes = |bytes: &str| match bytes.parse() {
        Ok(bytes) if bytes % 8 == 0 && bytes > 0 && bytes <= COPIED_BYTES_MOST => Ok(bytes),
        _ => Err(format!("'{bytes}' is no multiple of 8 between 8 and {COPIED_BYTES_MOST}")),
    };
    match text.split_once(',') {
        None if text == "fp" => Ok((StackMethod::FramePointers, 0)),
        None if text == "dwarf" => Ok((StackMethod::Dwarf, COPIED_BYTES)),
        Some(("dwarf", copied)) => Ok((StackMethod::Dwarf, bytes(copied)?)),
        _ => Err("fp, dwarf and dwarf,BYTES are understood".into()),
    }
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
    /// Returns the mode for the whole system or for one program; of what others run software events show nothing.
    fn choice(self, of_all: bool) -> ModeChoice {
        match self {
            Watch::Auto if !of_all => ModeChoice::BestPermitted,
            Watch::Auto | Watch::Privileged => ModeChoice::Only(Mode::Privileged),
            Watch::Unprivileged => ModeChoice::Only(Mode::Unprivileged),
        }
    }
}

/// How memory is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Look {
    /// While the processes run.
    Live,
    /// While they stand still, stopped by SIGSTOP; says for how long.
    Frozen,
}

impl Look {
    fn mode(self) -> SnapshotMode {
        match self {
            Look::Live => SnapshotMode::Live,
            Look::Frozen => SnapshotMode::Frozen,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &RecordArgs, color: Color) -> Result<ExitCode, Failure> {
    if args.all && args.wait_all && args.command.is_empty() {
        return Err(Failure::usage("-a with --wait-all needs a program to wait for: -a --wait-all -- CMD"));
    }
    let options = Options {
        output: args.output.clone(),
        huge_pages: if args.thp { HugePages::AsSystem } else { HugePages::Off },
        pace: if args.no_pace { Pace::Absent } else { Pace::Stored },
        ring_bytes: args.buffer,
        mode: args.mode.choice(args.all),
        descendants: if args.wait_all { Descendants::Awaited } else { Descendants::Left },
        bounds: Bounds {
            duration: args.duration.map(Duration::from_nanos),
            raw_bytes: args.max_size.map(|bytes| bytes as u64),
        },
        stacks: args.stacks(),
        arguments: if args.redact { Arguments::LeftOut } else { Arguments::Kept },
    };
    let bar = progress_bar();
    let result = run_or_join(args, &options, &|thousandths| show(&bar, thousandths));
    bar.finish_and_clear();
    let recording = result.map_err(|error| Failure::Failed(error.to_string(), error.exit_code()))?;
    summarize(&args.output, &recording);
    warn(args, &recording, color);
    let code = if args.is_joined() { recording.exit_code_joined() } else { recording.exit_code() };
    Ok(ExitCode::from(code))
}

fn run_or_join(args: &RecordArgs, options: &Options, progress: &dyn Fn(u64)) -> Result<Recording, RecordError> {
    if !args.is_joined() {
        return record(options, &args.command, progress);
    }
    let joining = Joining {
        who: args.who(),
        beginning: if args.paused { Beginning::OnSignal(say_paused) } else { Beginning::AtOnce },
        means: if args.no_bpf { Means::Events } else { Means::Best },
        kin: if args.children { Kin::Running } else { Kin::Later },
        snapshot: args.snapshot.mode(),
        command: args.command.clone(),
    };
    attach(options, &joining, progress)
}

fn say_paused() {
    let pid = std::process::id();
    eprintln!("paused: kill -USR1 {pid} begins the recording, kill -USR2 {pid} ends it");
}

/// Returns a bar that is shown only on a terminal, and only once there is work to show.
pub fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::hidden());
    bar.set_style(progress::style("writing the trace [{bar:40}] {percent} %"));
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
    eprintln!("recorded {name}: {}", counted(tally.events, "event"));
    eprintln!("  faults    {} by the program, {} by the kernel for it", tally.user_faults, tally.kernel_faults);
    let calls: Vec<_> = tally.calls.iter().map(|(name, count)| format!("{name} {count}")).collect();
    eprintln!("  calls     {}{}", tally.calls.values().sum::<u64>(), listed(&calls));
    eprintln!("  mappings  {}", tally.mappings);
    eprintln!("  tasks     {} made, {} begun, {} ended", tally.clones, counted(tally.execs, "program"), tally.exits);
    if header.pace == Pace::Stored {
        eprintln!("  pace      {} switches, {} wakes", tally.switches, tally.wakes);
    }
    if let Some(frozen) = recording.frozen {
        eprintln!("  stood     {:.1} ms, while what was in memory was read", frozen.as_secs_f64() * 1e3);
    }
    if let Some(ChainTally { events, cut, lost }) = recording.chains {
        eprintln!("  stacks    {events}, {cut} without their outermost callers; {lost} found no room");
    }
    let each = recording.bytes as f64 / tally.events.max(1) as f64;
    eprintln!("  lost      {}", header.lost);
    eprintln!("  size      {}, {each:.2} bytes an event", size::human(recording.bytes));
}

/// Returns a count with its noun, whose plural ends in s.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn listed(words: &[String]) -> String {
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// Says in what the trace is less than it could be.
fn warn(args: &RecordArgs, recording: &Recording, color: Color) {
    let header = &recording.header;
    let mut warnings = Vec::new();
    if header.lost > 0 {
        let larger = size::written(2 * args.buffer as u64);
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
    if recording.tally.events == 0 && !args.pid.is_empty() && !args.children {
        warnings
            .push("nothing happened in these processes: their running descendants are recorded with --children".into());
    }
    if recording.still_running > 0 && !args.is_joined() {
        let threads = counted(recording.still_running as u64, "thread");
        warnings.push(format!("{threads} still ran when the recording ended"));
    }
    if let Some(signal) = recording.interrupted_by {
        warnings.push(format!("interrupted by signal {signal}: the trace holds what came until then"));
    }
    if !recording.newcomers.is_empty() {
        let pids: Vec<_> = recording.newcomers.iter().map(u32::to_string).collect();
        warnings.push(format!(
            "moved into the control group while it was recorded, and not in the trace: {}",
            pids.join(", ")
        ));
    }
    warnings.iter().for_each(|warning| say(color, Tone::Warning, warning));
}
