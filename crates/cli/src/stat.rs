//! `faultless stat`: what happens in a workload or a trace, counted as `perf stat` counts it.
//!
//! # Guarantee
//! What is not counted is said to be so. The exit code is 0 if everything ran, 1 if something failed, 2 if the command
//! was not understood, 130 if it was interrupted; what was counted is printed all the same.

use faultless_machine::info;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use faultless_bench::high::{self, Memory};
use faultless_bench::measure::{self, Mode, PlacementPolicy};
use faultless_bench::report::stat::{Parts, StatReport, human, markdown, result_set};
use faultless_bench::stat::{self, Locks, NO_DESIGN, StatArm, StatOutcome, StatSetup, Subject, Tap};
use faultless_linux::space::on_interrupt;
use faultless_machine::designs::DEFAULT_DESIGN;
use faultless_machine::designs::HOST_DESIGN;
use faultless_machine::events;
use faultless_machine::host;
use faultless_machine::simulated::MachineChoice;
use faultless_plan as plan;
use faultless_plan::{Losses, Options, Pace};
use faultless_replay::AllDesigns;
use faultless_trace::Trace;
use faultless_workloads::{Spec, SpecError, WORKLOADS};
use indicatif::ProgressBar;

use crate::choose;
use crate::choose::distinct;
use crate::choose::{designs, known};
use crate::high_args::HighArgs;
use crate::kmap;
use crate::kmap_args::KmapArgs;
use crate::message::{Color, Failure, Tone, say};
use crate::nearest::unknown;
use crate::output::{INTERRUPTED, OutputArgs};
use crate::placement::PlacementArgs;
use crate::table::Format;
use crate::{duration, machine, progress, size};

/// The arguments of `stat`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless stat -e faults,spf,'pagefault:*' malloc1 --design spf-v11 --cpus 2
  faultless stat -e faults,spf -r 5 --design spf-v11,linux -- ebizzy -mTt 16
  faultless stat --locks examples/mapper.trace --design mmap-sem
  faultless stat --vmstat page_fault1 --design vma-lock
  faultless stat --locks kmap --scheme pool --machine numaq-16
  faultless stat --locks compile --tables high --scheme pool --slots 128 --machine numaq-16 --design mmap-sem
  faultless stat --trace -e 'pagefault:*' malloc1 --design spf-v11 -d 10ms

Events are counted while the workload works: its setting up and its end are left out. On the design linux, the host's own \
kernel, they are the kernel's counts where it has any: page faults and the like by perf, of the processes of the run from \
their beginning to their end, and /proc/vmstat's counters, which are the whole system's; what nobody counts is \
<not supported>.

--locks and --trace watch the run, which takes time: the run's times and rates are then not those of an unwatched one.")]
pub struct StatArgs {
    /// The workload with its flags, or a recorded trace. Flags of a workload stand behind `--`, or with it in one word.
    #[arg(value_name = "WORKLOAD|FILE", required = true)]
    subject: Vec<String>,

    /// Events to count, by name or pattern. Example: -e faults,spf,'pagefault:*'
    #[arg(short, long, value_name = "EVENTS", default_value = events::DEFAULT, hide_default_value = true)]
    event: Vec<String>,

    /// Designs to count under, one block for each; vma-lock unless named, and mmap-sem with --tables, --pages and their
    /// like. Example: --design spf-v11,linux
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    design: Vec<String>,

    /// Semaphores beneath the designs. Example: --semaphore rwsem-2012
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    semaphore: Vec<String>,

    /// The machine to run on: native, a simulated one of `faultless machines`, or a machine file.
    /// Example: --machine skylake-192
    #[arg(long, value_name = "NAME|FILE", default_value = "native")]
    machine: String,

    /// How many CPUs work; as many as this machine has unless said. Example: --cpus 2
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    cpus: Vec<u16>,

    /// Runs, of which the mean and the spread are printed. Example: -r 5
    #[arg(short, long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 1)]
    runs: u32,

    /// How long a workload works, 1s unless said, on a simulated machine 4ms of its own time; a trace takes as long as
    /// it takes. Example: -d 200ms
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse)]
    duration: Option<u64>,

    /// Give each worker of a workload an address space of its own.
    #[arg(long)]
    processes: bool,

    /// Print all counters in the form of /proc/vmstat, of all runs together; of the events only those asked for by -e.
    #[arg(long)]
    vmstat: bool,

    /// Print what each lock and each caller costs, as lockmeter did: how long it is held and waited for, and how often.
    #[arg(long)]
    locks: bool,

    /// Print the chosen events as they happen, with time and address: before the result, or on standard error if the
    /// result goes to standard output in another format than human.
    #[arg(long)]
    trace: bool,

    /// Draws the order of the designs in each run. Example: --seed 7
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    placement: PlacementArgs,

    /// Physical memory; as much as is needed unless said. Example: --memory 2G
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    memory: Option<usize>,

    #[command(flatten)]
    kmap: KmapArgs,

    #[command(flatten)]
    high: HighArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// How long a workload works by the host's clock, unless told.
const NATIVE_NS: u64 = 1_000_000_000;

/// Runs the subcommand.
pub fn run(args: &StatArgs, color: Color) -> Result<ExitCode, Failure> {
    let setups = setups(args)?;
    args.output.prepare()?;
    setups.first().into_iter().for_each(|setup| warn(args, setup, color));
    on_interrupt();
    let nr_runs = |setup: &StatSetup| setup.arms().len() * setup.runs;
    let bar = progress_bar(setups.iter().map(nr_runs).sum());
    let tap = |arm: &StatArm, run: usize| tap(args, arm, run);
    let mut before = 0;
    let outcomes: Vec<StatOutcome> = setups
        .iter()
        .map(|setup| {
            let outcome = stat::run(setup, &tap, &|made| bar.set_position((before + made) as u64));
            before += nr_runs(setup);
            outcome
        })
        .collect();
    bar.finish_and_clear();
    print(args, &setups, &outcomes, color)?;
    Ok(complain(&outcomes, color))
}

/// Returns what to run, one after the other: a subject once for each scheme of kernel maps, if it has any.
fn setups(args: &StatArgs) -> Result<Vec<StatSetup>, Failure> {
    let machine = machine::find(&args.machine)?;
    let subjects = subjects(args, &machine)?;
    subjects.into_iter().map(|(subject, high)| setup(args, machine.clone(), subject, high)).collect()
}

fn setup(
    args: &StatArgs,
    machine: MachineChoice,
    subject: Subject,
    high: Option<Memory>,
) -> Result<StatSetup, Failure> {
    let chosen = events::choose(&args.event.join(","));
    let events = chosen.map_err(|wrong| Failure::usage(unknown("event", &wrong, events::known())))?;
    let cpus = match args.cpus.as_slice() {
        [] => vec![machine.simulated().map_or_else(host::cpus, |spec| spec.nr_cpus())],
        cpus => cpus.iter().map(|&cpus| cpus.into()).collect(),
    };
    machine.check_cpus(&cpus).map_err(Failure::usage)?;
    let is_maps = matches!(subject, Subject::KernelMaps { .. });
    if args.placement.asked().is_some_and(|policy| policy != PlacementPolicy::Linux)
        && !matches!(subject, Subject::Workload { .. })
    {
        return Err(Failure::usage(
            "--placement is for workloads: a trace says where everything lies, and kernel maps have no choice",
        ));
    }
    let designs = match args.design.as_slice() {
        _ if is_maps => vec![NO_DESIGN.to_owned()],
        // As `bench` has it: schemes whose maps sleep run under that one alone.
        [] if args.high.is_any() => vec![high::DESIGN.to_owned()],
        [] => vec![DEFAULT_DESIGN.to_owned()],
        asked => known("design", asked, designs())?,
    };
    measure::check_designs(&machine, &designs).map_err(Failure::usage)?;
    let has_choice = args.event.iter().any(|event| event != events::DEFAULT);
    let events = if is_maps && !has_choice { Vec::new() } else { events };
    Ok(StatSetup {
        designs,
        semaphores: choose::asked_semaphores(&args.semaphore)?,
        cpus: distinct(&cpus),
        events,
        runs: args.runs as usize,
        seed: args.seed,
        locks: if args.locks { Locks::Watched } else { Locks::Unwatched },
        memory_bytes: args.memory,
        placement: args.placement.asked(),
        high,
        pace: args.high.pace(),
        replayer: &AllDesigns,
        subject,
        machine,
    })
}

/// Returns the memory without addresses that the flags ask for, one for each scheme; one that has all if they don't.
fn memories(args: &StatArgs, machine: &MachineChoice, is_workload: bool) -> Result<Vec<Option<Memory>>, Failure> {
    if !args.high.is_any() {
        return match args.kmap.is_any() {
            true => Err(Failure::usage(
                "--scheme and its like are for the workload kmap, and for --tables, --pages and their like",
            )),
            false => Ok(vec![None]),
        };
    }
    if !is_workload || machine.simulated().is_none() || args.kmap.has_own() {
        return Err(Failure::usage(
            "--tables, --pages and their like, and --pace, are for a workload on a simulated machine; of the flags of kmap, --scheme and --slots alone go with them",
        ));
    }
    let memories = args.high.memories(&args.kmap)?;
    Ok(if memories.is_empty() { vec![None] } else { memories.into_iter().map(Some).collect() })
}

/// Understands the workload kmap: one for each scheme.
fn kernel_maps(args: &StatArgs, machine: &MachineChoice) -> Result<Vec<Subject>, Failure> {
    if machine.simulated().is_none() {
        return Err(Failure::usage(kmap::NEEDS_MACHINE));
    }
    if args.high.is_any() {
        return Err(Failure::usage(
            "--tables, --pages and their like, and --pace, are for a workload on a simulated machine, not for kmap",
        ));
    }
    if !args.design.is_empty() || !args.semaphore.is_empty() {
        return Err(Failure::usage("--design and --semaphore are not for kmap: kernel maps stand by themselves"));
    }
    let load = args.kmap.load(args.processes, args.duration)?;
    let of = |scheme: String| {
        let name = format!("{} --scheme {scheme}{}", kmap::NAME, args.kmap.typed());
        Subject::KernelMaps { name, scheme, load: Box::new(load) }
    };
    Ok(args.kmap.schemes()?.into_iter().map(of).collect())
}

/// Understands what is to run, and what of its memory has no addresses.
fn subjects(args: &StatArgs, machine: &MachineChoice) -> Result<Vec<(Subject, Option<Memory>)>, Failure> {
    if args.subject == [kmap::NAME] {
        return Ok(kernel_maps(args, machine)?.into_iter().map(|subject| (subject, None)).collect());
    }
    let only = subject(args, machine)?;
    let memories = memories(args, machine, matches!(only, Subject::Workload { .. }))?;
    if let [None] = memories.as_slice() {
        return Ok(vec![(only, None)]);
    }
    memories.into_iter().map(|high| Ok((subject_in(args, machine, high.as_ref())?, high))).collect()
}

/// As [`subject`], which says in its name what has no addresses.
fn subject_in(args: &StatArgs, machine: &MachineChoice, high: Option<&Memory>) -> Result<Subject, Failure> {
    let mut subject = subject(args, machine)?;
    if let (Subject::Workload { spec, .. }, Some(high)) = (&mut subject, high) {
        spec.name += &format!("{} --scheme {}{}", args.high.typed(), high.scheme, args.kmap.typed());
    }
    Ok(subject)
}

/// Understands what is to run: a workload if there is one of that name, otherwise a file.
fn subject(args: &StatArgs, machine: &MachineChoice) -> Result<Subject, Failure> {
    let text = args.subject.join(" ");
    let wrong = match Spec::parse(&text) {
        Ok(spec) => {
            let mode = if args.processes { Mode::Processes } else { Mode::Threads };
            let (spec, usual_ns) = match machine {
                MachineChoice::Native => (spec, NATIVE_NS),
                MachineChoice::Simulated(_) => (measure::shrunk(spec), measure::SIMULATED_NS),
            };
            let duration_ns = args.duration.unwrap_or(usual_ns);
            return Ok(Subject::Workload { spec: Box::new(spec), duration_ns, mode });
        }
        Err(wrong) => wrong,
    };
    let path = PathBuf::from(&text);
    match wrong {
        SpecError::Unknown(_) if path.exists() || text.contains('/') || text.ends_with(".trace") => open(&path),
        SpecError::Unknown(name) => {
            let names = WORKLOADS.iter().map(|workload| workload.name);
            Err(Failure::usage(format!("{}; and there is no file of that name", unknown("workload", &name, names))))
        }
        other => Err(Failure::usage(other)),
    }
}

fn open(path: &Path) -> Result<Subject, Failure> {
    let name = path.display();
    let trace = Trace::open(path).map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
    let options = Options { pace: Pace::None, losses: Losses::Refused };
    let plan = plan::plan(&trace, options).map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
    let name = path.file_name().map_or(name.to_string(), |name| name.to_string_lossy().into());
    Ok(Subject::Trace { name, trace: Box::new(trace), plan: Box::new(plan) })
}

/// Opens the stream of a run, if there is to be one.
fn tap(args: &StatArgs, arm: &StatArm, run: usize) -> Option<Tap> {
    if !args.trace {
        return None;
    }
    let is_free = args.output.format == Format::Human || args.output.out.is_some();
    let mut tap: Tap = if is_free { Box::new(io::BufWriter::new(io::stdout())) } else { Box::new(io::stderr()) };
    // A reader that has gone away is noticed by the stream itself.
    let _ = writeln!(tap, "# run {} under {arm}", run + 1);
    Some(tap)
}

fn warn(args: &StatArgs, setup: &StatSetup, color: Color) {
    let there_are = host::cpus();
    let is_native = setup.machine.simulated().is_none();
    if let Some(many) = setup.cpus.iter().find(|&&cpus| is_native && cpus > there_are) {
        let what = format!("{many} CPUs were asked for, and there are {there_are}: workers will wait for them");
        say(color, Tone::Warning, &what);
    }
    if matches!(setup.subject, Subject::Trace { .. }) && (args.duration.is_some() || args.processes) {
        say(
            color,
            Tone::Warning,
            "a trace takes as long as it takes, in its own processes: -d and --processes are for workloads",
        );
    }
    let on_host = setup.designs.iter().any(|design| design == HOST_DESIGN);
    if on_host && (setup.locks == Locks::Watched || args.trace) {
        let what = "the host's kernel is not watched: --locks and --trace show the virtual memory";
        say(color, Tone::Warning, what);
    }
}

/// Returns a bar that is shown on a terminal only.
fn progress_bar(runs: usize) -> ProgressBar {
    let style = progress::style("counting [{bar:40}] run {pos} of {len}, {eta} left");
    ProgressBar::new(runs as u64).with_style(style)
}

fn print(args: &StatArgs, setups: &[StatSetup], outcomes: &[StatOutcome], color: Color) -> Result<(), Failure> {
    let Some(first) = setups.first() else { return Ok(()) };
    let machine = info::of(&first.machine);
    let has_choice = args.event.iter().any(|event| event != events::DEFAULT);
    let is_watched = args.locks || args.trace;
    let mut reports = Vec::new();
    for (setup, outcome) in setups.iter().zip(outcomes) {
        let has_pace = !matches!(setup.subject, Subject::KernelMaps { .. }) || !args.locks;
        let has_events = has_pace && (has_choice || !args.vmstat);
        let parts = Parts { has_events, folds_zeros: !has_choice, has_vmstat: args.vmstat };
        reports.push(StatReport { machine: &machine, setup, outcome, is_watched, parts });
    }
    let human = |out: &mut dyn Write| {
        reports.iter().try_for_each(|report| human::write(report, out))?;
        info::write_parameters(&machine, out)
    };
    let markdown = |out: &mut dyn Write| {
        for (place, report) in reports.iter().enumerate() {
            if place > 0 {
                writeln!(out)?;
            }
            markdown::write(report, out)?;
        }
        Ok(())
    };
    let Some(set) = result_set(&reports) else { return Ok(()) };
    args.output.hand_out(&set, human, markdown, color)
}

/// Says on stderr what failed; returns the exit code.
fn complain(outcomes: &[StatOutcome], color: Color) -> ExitCode {
    let arms = || outcomes.iter().flat_map(|outcome| &outcome.arms);
    let failed = arms().filter_map(|arm| arm.error.as_ref().map(|error| (&arm.arm, error)));
    let mut code = ExitCode::SUCCESS;
    for (arm, error) in failed {
        say(color, Tone::Error, &format!("under {arm}: {error}"));
        code = ExitCode::FAILURE;
    }
    if outcomes.iter().any(|outcome| outcome.was_interrupted) {
        for arm in arms().filter(|arm| arm.runs.is_empty()) {
            say(color, Tone::Note, &format!("under {}: interrupted before it began", arm.arm));
        }
        return ExitCode::from(INTERRUPTED);
    }
    code
}
