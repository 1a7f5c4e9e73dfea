//! `faultless bench`: workloads under one locking design after the other, and on the host's own kernel.
//!
//! # Guarantee
//! Arms that can't go on fail by themselves, and the others are measured. The exit code is 0 if all were measured, 1 if
//! one failed, 2 if the command was not understood, 130 if it was interrupted; what was measured is printed all the
//! same.

use faultless_machine::info;
use std::io::{self, Write};
use std::process::ExitCode;

use faultless_bench::measure::{self, BenchArm, BenchOutcome, BenchSetup, Length, Mode, Pinning};
use faultless_bench::report::bench::{self, BenchReport};
use faultless_machine::designs::HOST_DESIGN;
use faultless_machine::host;
use faultless_machine::simulated::MachineChoice;
use faultless_replay::AllDesigns;
use faultless_workloads::{DEFAULT_SELECTION, Spec, SpecError, WORKLOADS, Workload};
use indicatif::ProgressBar;

use crate::bench_args::{BenchArgs, Pin, draws, progress_bar};
use crate::choose;
use crate::choose::{designs, distinct, known};
use crate::foreign::{self, Alone};
use crate::message::{Color, Failure, Tone, say};
use crate::nearest::unknown;
use crate::output::INTERRUPTED;
use crate::{high, kmap, rwsem};

/// Runs the subcommand.
pub fn run(args: &BenchArgs, color: Color) -> Result<ExitCode, Failure> {
    if args.workloads == [kmap::NAME] {
        return run_alone(args, Alone::Kmap, (kmap::NAME, kmap::ABOUT), kmap::run, color);
    }
    if args.workloads == [rwsem::NAME] {
        return run_alone(args, Alone::Rwsem, (rwsem::NAME, rwsem::ABOUT), rwsem::run, color);
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
        let name = args.spelled();
        return run_alone(args, Alone::High, (&name, high::ABOUT), high::run, color);
    }
    if args.kmap.is_any() {
        return Err(Failure::usage(
            "--scheme, --frames, --hold, --nest, --reuse, --copy, --sleepers and --slots are for the workload kmap, named alone; --scheme and --slots for --tables high, --pages high and their like, too",
        ));
    }
    if args.rwsem.is_any() {
        return Err(Failure::usage(
            "--readers, --section, --threads and --grid are for the workload rwsem, named alone",
        ));
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

/// Measures something by itself, which is no workload of an address space: its name, and what it does.
fn run_alone(
    args: &BenchArgs,
    alone: Alone,
    (name, does): (&str, &str),
    run: fn(&BenchArgs, &MachineChoice, &[usize], Color) -> Result<ExitCode, Failure>,
    color: Color,
) -> Result<ExitCode, Failure> {
    if args.list {
        return Ok(writeln!(io::stdout().lock(), "{name:<18} {does}").map(|()| ExitCode::SUCCESS)?);
    }
    foreign::refuse(args, alone, name)?;
    if args.spread.is_some() && alone == Alone::High {
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
        SpecError::Unknown(name) if [kmap::NAME, rwsem::NAME].contains(&name.as_str()) => Failure::usage(format_args!(
            "{name} is no workload of an address space: it is measured by itself, so name it alone"
        )),
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

fn setup(args: &BenchArgs, machine: MachineChoice, specs: Vec<Spec>) -> Result<BenchSetup, Failure> {
    let is_simulated = machine.simulated().is_some();
    let mut designs = known("design", &args.design, designs())?;
    if is_simulated && args.design.is_empty() {
        designs.retain(|design| design != HOST_DESIGN);
    }
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
    Ok(BenchSetup {
        machine,
        jobs: args.machine.jobs(),
        specs,
        designs,
        semaphores: choose::asked_semaphores(&args.semaphore)?,
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
        placement: args.placement.asked(),
        has_ceiling: args.ceiling,
        draws,
        has_sensitivity: args.sensitivity,
        replayer: &AllDesigns,
    })
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

/// How long a run is by the host's clock, unless told.
const NATIVE_NS: u64 = 200_000_000;

fn warn(setup: &BenchSetup, color: Color) {
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

fn show(bar: &ProgressBar, made: usize, arm: &BenchArm) {
    bar.set_position(made as u64);
    if !bar.is_hidden() {
        bar.set_message(arm.to_string());
    }
}

fn print(args: &BenchArgs, setup: &BenchSetup, outcome: &BenchOutcome, color: Color) -> Result<(), Failure> {
    let machine = info::of(&setup.machine);
    let report = BenchReport { machine: &machine, setup, outcome };
    let human = |out: &mut dyn Write| bench::human::write(&report, out);
    let markdown = |out: &mut dyn Write| bench::markdown::write(&report, out);
    args.output.hand_out(&bench::result_set(&report), human, markdown, color)
}

/// Says on stderr what failed; returns the exit code.
fn complain(outcome: &BenchOutcome, color: Color) -> ExitCode {
    let failed = outcome.arms.iter().filter_map(|arm| arm.error.as_ref().map(|error| (&arm.arm, error)));
    let mut code = ExitCode::SUCCESS;
    for (arm, error) in failed {
        say(color, Tone::Error, &format!("{arm}: {error}"));
        code = ExitCode::FAILURE;
    }
    if outcome.was_interrupted { ExitCode::from(INTERRUPTED) } else { code }
}
