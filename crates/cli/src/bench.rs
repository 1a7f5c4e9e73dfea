//! `faultless bench`: workloads under one locking design after the other, and on the host's own kernel.
//!
//! # Guarantee
//! Arms that can't go on fail by themselves, and the others are measured. The exit code is 0 if all were measured, 1 if
//! one failed, 2 if the command was not understood, 130 if it was interrupted; what was measured is printed all the
//! same.

use faultless_machine::info;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use faultless_bench::measure::{self, Arm, Length, Mode, Outcome, Pinning, Setup};
use faultless_bench::report::bench::{self, BenchReport};
use faultless_bench::spread::Draws;
use faultless_machine::designs::HOST_DESIGN;
use faultless_machine::designs::{DEFAULT_SEMAPHORE, DESIGNS, SEMAPHORES};
use faultless_machine::host;
use faultless_machine::simulated::MachineChoice;
use faultless_workloads::{DEFAULT_SELECTION, Spec, SpecError, WORKLOADS, Workload};
use indicatif::{ProgressBar, ProgressStyle};

use crate::high::{self, HighArgs};
use crate::kmap::{self, KmapArgs};
use crate::machine::MachineArgs;
use crate::message::{Color, Failure, Tone, say};
use crate::nearest::unknown;
use crate::output::{INTERRUPTED, OutputArgs};
use crate::placement::PlacementArgs;
use crate::replay::distinct;
use crate::rwsem::{self, RwsemArgs};
use crate::{duration, size};

/// The arguments of `bench`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless bench
  faultless bench page_fault1 malloc1 --cpus 1,2
  faultless bench 'ebizzy -mTt 16' 'corten-pf --high' --processes
  faultless bench --filter 'mmap*' --design vma-lock,linux -r 10 -d 500ms
  faultless bench page_fault1 malloc1 --machine skylake-192 --cpus 1,2,4,8,16,32,64,96,192 --design mmap-sem,vma-lock
  faultless bench pagefaults --pattern sequential,random,stride=64K --access read,write --mapping private,shared
  faultless bench refpage --variant anon,memset,refpage,pattern --cpus 1
  faultless bench rwsem --machine xeon-40 --cpus 1,2,3,4,5,10,20,40 --readers 10:1 --section 1us
  faultless bench kmap --scheme all --machine numaq-16 --cpus 1,2,4,8,16
  faultless bench compile --tables high --scheme pool,atomic,local --machine numaq-16 --cpus 16
  faultless bench 'read-byte --shared' --pages high --scheme all --machine numaq-16 --cpus 16
  faultless bench page_fault1 --processes --machine epyc-384 --cpus 8,96,384 --ceiling

Each workload runs under each design in turn, run by run, in an order that --seed draws. The design linux is the host's \
own kernel: the same program in processes made for it, by real system calls. `faultless workloads` says what each \
workload does, `faultless designs` what each design is.

The exit code is 0 if all was measured, 1 if something failed, 2 if the command was not understood, and 130 if it was \
interrupted: what was measured until then is printed.")]
pub struct BenchArgs {
    /// Workloads, each with its flags in one word, as in 'ebizzy -mTt 16'; a selection that takes about a minute unless
    /// named. Flags behind -- belong to the last one. On a simulated machine those that touch all of 128 MiB touch 4
    /// MiB at a time, unless --region says how much.
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,

    /// Flags of the last workload.
    #[arg(last = true, value_name = "FLAGS", allow_hyphen_values = true, hide = true)]
    flags: Vec<String>,

    /// Variants of the workload `refpage`, each with few and with all pages stored to, loaded, and loaded and then
    /// stored to, again in memory that is used anew, and for a recorded PDF renderer's blocks; the host's kernel has
    /// none but the first two. Example: --variant anon,memset,refpage,pattern
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    variant: Vec<String>,

    /// Orders in which the workload `pagefaults` accesses memory: sequential, random, stride=SIZE.
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pattern: Vec<String>,

    /// How the workload `pagefaults` accesses memory: read, write.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    access: Vec<String>,

    /// What the workload `pagefaults` maps: private (anonymous memory), shared (a file).
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    mapping: Vec<String>,

    /// Designs to compare; all of them and the host's kernel unless named. Example: --design mmap-sem,linux
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) design: Vec<String>,

    /// Semaphores beneath the designs; rwsem-v8 unless named, and for the workload rwsem all. Example: --semaphore
    /// rwsem-2012,rwsem-v8
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) semaphore: Vec<String>,

    #[command(flatten)]
    pub(crate) rwsem: RwsemArgs,

    #[command(flatten)]
    pub(crate) kmap: KmapArgs,

    #[command(flatten)]
    pub(crate) high: HighArgs,

    #[command(flatten)]
    pub(crate) machine: MachineArgs,

    /// How many CPUs work; several numbers are compared one after the other. As many as this machine has unless said;
    /// on a simulated machine the powers of two, and all it has. Example: --cpus 1,2
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    cpus: Vec<u16>,

    /// Runs of each design before those that count; none on a simulated machine, where every run begins alike. Example:
    /// -w 3
    #[arg(short, long, value_name = "RUNS", default_value_t = 1)]
    warm_up: u32,

    /// Runs of each design; on a simulated machine the seeds from --seed on. Example: -r 30
    #[arg(short, long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 5)]
    pub(crate) runs: u32,

    /// On a simulated machine, draw so many machines from the ranges of what was guessed, one for each run, and print
    /// the median and the interval that holds 90 % of them. Example: --spread 32
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), conflicts_with = "runs")]
    pub spread: Option<u32>,

    /// Says which guessed number moves each rate most.
    #[arg(long, requires = "spread")]
    pub(crate) sensitivity: bool,

    /// How long a run works: 200ms unless said. On a simulated machine a run goes on, past a warm-up of a third of its
    /// time, until the rates of the two other thirds agree within 3 %; with this it works so long from its start, and
    /// is not asked whether it has converged. Example: -d 2s
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) duration: Option<u64>,

    /// On a simulated machine, the longest that a run goes on until its rates agree, in the machine's own time: 45ms
    /// unless said. A figure that this ended is marked `not converged`, and no verdict is built on it. Example:
    /// --at-most 100ms
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "duration")]
    at_most: Option<u64>,

    /// On a simulated machine, say beside the curve what is linear: one CPU's rate times cores, times 2 /
    /// sibling_slowdown where both threads of a core run, or what the memory bus lets through of zeroed pages,
    /// whichever is less. Measures one CPU, too.
    #[arg(long)]
    ceiling: bool,

    /// Give each worker an address space of its own, instead of making all of them threads of one.
    #[arg(long)]
    pub(crate) processes: bool,

    /// Keep each worker on one CPU: if there are enough CPUs (auto, unless said), always (--pin alone), or never.
    /// Example: --pin=never
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true, default_value = "auto", default_missing_value = "always")]
    pin: Pin,

    /// Only workloads whose names contain this, or match it if it holds * or ?. Example: --filter 'page_fault?'
    #[arg(long, value_name = "PATTERN")]
    filter: Option<String>,

    /// Only print which workloads would run.
    #[arg(long)]
    list: bool,

    /// Draws the order of the designs in each run; on a simulated machine the first run's seed. Example: --seed 7
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    placement: PlacementArgs,

    /// Physical memory of the virtual memories; as much as each workload needs unless said. Example: --memory 2G
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    memory: Option<usize>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Whether workers stay on one CPU each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pin {
    /// If there are enough CPUs.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Runs the subcommand.
pub fn run(args: &BenchArgs, color: Color) -> Result<ExitCode, Failure> {
    if args.workloads == [kmap::NAME] {
        return run_alone(args, (kmap::NAME, "maps frames that have no address, and unmaps them"), kmap::run, color);
    }
    if args.high.is_any() {
        let [_] = args.workloads.as_slice() else {
            return Err(Failure::usage("--tables, --pages and their like, and --pace, are for one workload: name it"));
        };
        if args.kmap.has_own() || args.rwsem.is_any() {
            return Err(Failure::usage(
                "of the flags of kmap and rwsem, --scheme and --slots alone go with --tables, --pages and their like",
            ));
        }
        return run_alone(args, (&args.spelled(), "runs with its tables or pages in high memory"), high::run, color);
    }
    if args.kmap.is_any() {
        return Err(Failure::usage(
            "--scheme, --frames, --hold, --nest, --reuse, --copy, --sleepers and --slots are for the workload kmap, named alone; --scheme and --slots for --tables high, --pages high and their like, too",
        ));
    }
    if args.workloads == [rwsem::NAME] {
        return run_alone(args, (rwsem::NAME, "takes and releases a semaphore"), rwsem::run, color);
    }
    if args.rwsem.is_any() {
        return Err(Failure::usage("--readers, --section and --threads are for the workload rwsem, named alone"));
    }
    let specs = chosen(args)?;
    if args.list {
        return list(&specs);
    }
    let machine = args.machine.choice()?;
    let setup = setup(args, machine, specs)?;
    args.output.prepare()?;
    warn(&setup, color);
    faultless_linux::space::on_interrupt();
    let bar = progress_bar(setup.arms().len() * (setup.runs + setup.warm_ups));
    let outcome = measure::run(&setup, &|made, arm| show(&bar, made, arm)).map_err(Failure::usage);
    bar.finish_and_clear();
    let outcome = outcome?;
    print(args, &setup, &outcome, color)?;
    Ok(complain(&outcome, color))
}

impl BenchArgs {
    /// Returns the workloads as they were given, with the flags of the last one.
    pub(crate) fn spelled(&self) -> String {
        self.workloads.iter().chain(&self.flags).map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// Measures something by itself, which is no workload of an address space: its name, and what it does.
fn run_alone(
    args: &BenchArgs,
    (name, does): (&str, &str),
    run: fn(&BenchArgs, &MachineChoice, &[usize], Color) -> Result<ExitCode, Failure>,
    color: Color,
) -> Result<ExitCode, Failure> {
    if args.list {
        return Ok(writeln!(io::stdout().lock(), "{name:<18} {does}").map(|()| ExitCode::SUCCESS)?);
    }
    if args.spread.is_some() && ![kmap::NAME, rwsem::NAME].contains(&name) {
        return Err(Failure::usage(format_args!(
            "--spread is for workloads of the virtual memory, {} and {}, not for {name} as it is measured here",
            kmap::NAME,
            rwsem::NAME
        )));
    }
    let machine = args.machine.choice()?;
    let cpus = distinct(&cpus(args, &machine));
    machine.check_cpus(&cpus).map_err(Failure::usage)?;
    run(args, &machine, &cpus, color)
}

/// Returns the workloads to run.
fn chosen(args: &BenchArgs) -> Result<Vec<Spec>, Failure> {
    let mut texts = args.workloads.clone();
    match texts.last_mut() {
        Some(last) => args.flags.iter().for_each(|flag| last.extend([" ", flag.as_str()])),
        None if !args.flags.is_empty() => return Err(Failure::usage("flags behind -- belong to a workload: name it")),
        None => {}
    }
    let texts = with_variants(texts, &args.variant)?;
    let texts = [("--pattern", &args.pattern), ("--access", &args.access), ("--mapping", &args.mapping)]
        .into_iter()
        .try_fold(texts, |texts, (flag, values)| with_each(texts, "pagefaults", flag, values))?;
    let named = texts.iter().map(|text| Spec::parse(text).map_err(|error| misnamed(&error)));
    let mut specs: Vec<Spec> = Vec::new();
    for spec in named {
        let spec = spec?;
        if specs.iter().all(|other| other.name != spec.name) {
            specs.push(spec);
        }
    }
    if specs.is_empty() {
        // A filter chooses among all of them.
        specs = match args.filter {
            Some(_) => WORKLOADS.iter().map(Workload::plain).collect(),
            None => DEFAULT_SELECTION.iter().filter_map(|text| Spec::parse(text).ok()).collect(),
        };
    }
    let Some(filter) = &args.filter else { return Ok(specs) };
    specs.retain(|spec| matches(filter, spec.workload.name));
    match specs.is_empty() {
        true => Err(Failure::usage(unknown("workload that matches", filter, workload_names()))),
        false => Ok(specs),
    }
}

/// What `--variant` measures of each variant, unless the workload's own flags say: pages written first, read, read
/// first and written then, few and all of them; memory used again; and a recorded PDF renderer's blocks.
const TOUCHES: [&str; 10] = [
    " --touch one",
    " --touch half",
    " --touch all",
    " --touch 10% --load",
    " --touch all --load",
    " --touch 10% --update",
    " --touch all --update",
    " --touch one --reuse",
    " --touch all --reuse",
    " --touch renderer",
];

/// Returns those of them that the flags of a workload leave open.
fn touches(text: &str) -> &'static [&'static str] {
    let has = |flags: &[&str]| text.split([' ', '=']).any(|word| flags.contains(&word));
    match (has(&["--touch"]), has(&["--load", "--update", "--reuse", "--region"])) {
        (true, _) => &[""],
        (false, true) => &TOUCHES[..TOUCHES.len() - 1],
        (false, false) => &TOUCHES,
    }
}

/// Returns the texts with every variant in place of the workload `refpage`.
fn with_variants(texts: Vec<String>, variants: &[String]) -> Result<Vec<String>, Failure> {
    let is_refpage = |text: &String| text.split_whitespace().next() == Some("refpage");
    if variants.is_empty() {
        return Ok(texts);
    }
    if !texts.iter().any(is_refpage) {
        return Err(Failure::usage("--variant is for the workload refpage: name it"));
    }
    let all = |text: String| -> Vec<String> {
        if !is_refpage(&text) {
            return vec![text];
        }
        let of = |touch: &&str| variants.iter().map(|variant| format!("{text} --variant {variant}{touch}")).collect();
        touches(&text).iter().flat_map::<Vec<String>, _>(of).collect()
    };
    Ok(texts.into_iter().flat_map(all).collect())
}

/// Returns the texts with every value of a flag in place of a workload.
fn with_each(texts: Vec<String>, workload: &str, flag: &str, values: &[String]) -> Result<Vec<String>, Failure> {
    let is_meant = |text: &String| text.split_whitespace().next() == Some(workload);
    if values.is_empty() {
        return Ok(texts);
    }
    if !texts.iter().any(is_meant) {
        return Err(Failure::usage(format!("{flag} is for the workload {workload}: name it")));
    }
    let all = |text: String| -> Vec<String> {
        match is_meant(&text) {
            true => values.iter().map(|value| format!("{text} {flag} {value}")).collect(),
            false => vec![text],
        }
    };
    Ok(texts.into_iter().flat_map(all).collect())
}

fn workload_names() -> impl Iterator<Item = &'static str> + Clone {
    WORKLOADS.iter().map(|workload| workload.name)
}

fn misnamed(error: &SpecError) -> Failure {
    match error {
        SpecError::Unknown(name) => Failure::usage(unknown("workload", name, workload_names())),
        other => Failure::usage(other),
    }
}

/// Returns whether a name contains the pattern, or matches it if it has a `*` or `?`.
fn matches(pattern: &str, name: &str) -> bool {
    if pattern.contains(['*', '?']) { glob(pattern.as_bytes(), name.as_bytes()) } else { name.contains(pattern) }
}

fn glob(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => glob(rest, name) || name.split_first().is_some_and(|(_, name)| glob(pattern, name)),
        (Some((b'?', rest)), Some((_, name))) => glob(rest, name),
        (Some((letter, rest)), Some((other, name))) => letter == other && glob(rest, name),
        _ => false,
    }
}

fn list(specs: &[Spec]) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    for spec in specs {
        writeln!(out, "{:<18} {}", spec.name, spec.workload.about)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn setup(args: &BenchArgs, machine: MachineChoice, specs: Vec<Spec>) -> Result<Setup, Failure> {
    let is_simulated = machine.simulated().is_some();
    let mut designs = known("design", &args.design, designs())?;
    if is_simulated && args.design.is_empty() {
        designs.retain(|design| design != HOST_DESIGN);
    }
    let semaphores = match args.semaphore.as_slice() {
        [] => vec![DEFAULT_SEMAPHORE.to_owned()],
        asked => known("semaphore", asked, SEMAPHORES.to_vec())?,
    };
    let cpus = cpus(args, &machine);
    let alone = (args.ceiling && !cpus.contains(&1)).then_some(1);
    let cpus: Vec<usize> = alone.into_iter().chain(cpus).collect();
    if !is_simulated && (args.ceiling || args.at_most.is_some()) {
        let flag = if args.ceiling { "--ceiling" } else { "--at-most" };
        return Err(Failure::usage(format_args!("{flag} is for simulated machines: name one with --machine")));
    }
    let draws = draws(args, &machine)?;
    machine.check_cpus(&cpus).map_err(Failure::usage)?;
    let specs = if is_simulated { specs.into_iter().map(measure::shrunk).collect() } else { specs };
    Ok(Setup {
        machine,
        jobs: args.machine.jobs(),
        specs,
        designs,
        semaphores,
        cpus: distinct(&cpus),
        mode: if args.processes { Mode::Processes } else { Mode::Threads },
        runs: args.spread.unwrap_or(args.runs) as usize,
        warm_ups: if is_simulated { 0 } else { args.warm_up as usize },
        length: length(args, is_simulated),
        seed: args.seed,
        pinning: match args.pin {
            Pin::Auto => Pinning::IfEnough,
            Pin::Always => Pinning::Always,
            Pin::Never => Pinning::Never,
        },
        memory_bytes: args.memory,
        placement: args.placement.chosen(),
        has_ceiling: args.ceiling,
        draws,
        has_sensitivity: args.sensitivity,
    })
}

/// Returns the machines of `--spread`.
pub(crate) fn draws(args: &BenchArgs, machine: &MachineChoice) -> Result<Option<Draws>, Failure> {
    let Some(nr_draws) = args.spread else { return Ok(None) };
    let Some(spec) = machine.simulated() else {
        let told = "--spread is for simulated machines, whose numbers were guessed in part: name one with --machine";
        return Err(Failure::usage(told));
    };
    if spec.drawn_keys().is_empty() {
        let told = format_args!("--spread: no number of the machine {} has a range", spec.name());
        return Err(Failure::usage(told));
    }
    Ok(Some(Draws::new(spec, nr_draws as usize, args.seed)))
}

fn cpus(args: &BenchArgs, machine: &MachineChoice) -> Vec<usize> {
    match args.cpus.as_slice() {
        [] => machine.default_cpus(),
        cpus => cpus.iter().map(|&cpus| cpus.into()).collect(),
    }
}

/// Returns how long a run is: as long as was asked for.
fn length(args: &BenchArgs, is_simulated: bool) -> Length {
    match args.duration {
        Some(ns) => Length::Fixed(ns),
        None if is_simulated => Length::Settled { at_most_ns: args.at_most.unwrap_or(measure::SETTLED_AT_MOST_NS) },
        None => Length::Fixed(NATIVE_NS),
    }
}

/// Returns the names of all designs.
pub fn designs() -> Vec<&'static str> {
    DESIGNS.iter().copied().chain([HOST_DESIGN]).collect()
}

/// Returns the names that were asked for, or all; each of them must be known.
pub fn known(kind: &str, asked: &[String], names: Vec<&'static str>) -> Result<Vec<String>, Failure> {
    if asked.is_empty() {
        return Ok(names.into_iter().map(Into::into).collect());
    }
    match asked.iter().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(Failure::usage(unknown(kind, name, names.into_iter()))),
        None => Ok(distinct(asked)),
    }
}

/// How long a run is by the host's clock, unless told.
const NATIVE_NS: u64 = 200_000_000;

fn warn(setup: &Setup, color: Color) {
    if setup.machine.simulated().is_some() {
        return;
    }
    let there_are = host::cpus();
    let too_many: Vec<String> = setup.cpus.iter().filter(|&&cpus| cpus > there_are).map(usize::to_string).collect();
    if !too_many.is_empty() {
        let asked = too_many.join(", ");
        say(
            color,
            Tone::Warning,
            &format!(
                "{asked} CPUs were asked for, and there are {there_are}: workers will wait for them, as the result's run_delay_ns says"
            ),
        );
    }
}

/// Returns a bar that is shown on a terminal only.
pub(crate) fn progress_bar(runs: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("measuring [{bar:40}] run {pos} of {len}, {eta} left: {msg}");
    ProgressBar::new(runs as u64).with_style(style.unwrap_or(ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, made: usize, arm: &Arm) {
    bar.set_position(made as u64);
    if !bar.is_hidden() {
        bar.set_message(arm.to_string());
    }
}

fn print(args: &BenchArgs, setup: &Setup, outcome: &Outcome, color: Color) -> Result<(), Failure> {
    let machine = info::of(&setup.machine);
    let report = BenchReport { machine: &machine, setup, outcome };
    let human = |out: &mut dyn Write| bench::human::write(&report, out);
    let markdown = |out: &mut dyn Write| bench::markdown::write(&report, out);
    args.output.hand_out(&bench::result_set(&report), human, markdown, color)
}

/// Says on stderr what failed; returns the exit code.
fn complain(outcome: &Outcome, color: Color) -> ExitCode {
    let failed = outcome.arms.iter().filter_map(|arm| arm.error.as_ref().map(|error| (&arm.arm, error)));
    let mut code = ExitCode::SUCCESS;
    for (arm, error) in failed {
        say(color, Tone::Error, &format!("{arm}: {error}"));
        code = ExitCode::FAILURE;
    }
    if outcome.was_interrupted { ExitCode::from(INTERRUPTED) } else { code }
}
