//! `faultless bench rwsem`: semaphores by themselves, a curve for each.

use std::io::{self, Write};
use std::process::ExitCode;

use faultless_bench::measure::MeasureError;
use faultless_bench::report::bench::over_draws;
use faultless_bench::rwsem::{self, RwsemArm, RwsemLoad, Taken};
use faultless_bench::spread::Draws;
use faultless_linux::space::{has_interrupt, on_interrupt};
use faultless_machine::info;
use faultless_machine::simulated::MachineChoice;
use faultless_results::stats::summarize;
use faultless_results::{Measured, Mode, ResultSet, columns};

use crate::bench_args::{BenchArgs, draws, progress_bar};
use crate::choose;
use crate::curves::{self, Scale};
use crate::message::{Color, Failure};
use crate::output::{Table, exit_code};
use crate::rwsem_grid;

/// The workload's name.
pub const NAME: &str = "rwsem";

/// What it does.
pub const ABOUT: &str = "takes and releases a semaphore";

/// How long a run is on a simulated machine, and on this one, unless told.
const SIMULATED_NS: u64 = 2_000_000;
const NATIVE_NS: u64 = 200_000_000;

/// What was measured under a load: of each semaphore, on each number of CPUs, the runs.
pub struct Measurement<'a> {
    pub load: &'a RwsemLoad,
    pub rows: Vec<(&'a RwsemArm, Vec<Taken>)>,
}

/// Runs the workload.
pub fn run(args: &BenchArgs, machine: &MachineChoice, cpus: &[usize], color: Color) -> Result<ExitCode, Failure> {
    let loads = loads(args, machine)?;
    let semaphores = choose::semaphores(&args.semaphore)?;
    let of = |semaphore: &String| {
        cpus.iter().map(|&cpus| RwsemArm { semaphore: semaphore.clone(), cpus }).collect::<Vec<_>>()
    };
    let arms: Vec<RwsemArm> = semaphores.iter().flat_map(of).collect();
    args.output.prepare()?;
    on_interrupt();
    let draws = draws(args, machine)?;
    let measured = measure(args, machine, draws.as_ref(), &loads, &arms)?;
    let set = result_set(args, machine, draws.as_ref(), &measured);
    let fields: Vec<Vec<String>> =
        measured.iter().flat_map(|of| of.rows.iter().map(|row| fields(of.load, row))).collect();
    let table = Table { headings: &HEADINGS, rows: &fields };
    args.output.hand_out_table(
        &set,
        &table,
        |out| match measured.as_slice() {
            _ if args.rwsem.grid => rwsem_grid::write(&set, draws.as_ref(), &measured, out),
            [one] => {
                write(&set, (one.load, draws.as_ref()), cpus, &one.rows, out)?;
                let Some(draws) = draws.as_ref().filter(|_| args.sensitivity) else { return Ok(()) };
                let rates = one.rows.iter().map(|(arm, runs)| (arm.semaphore.as_str(), arm.cpus, rates(runs)));
                curves::write_sensitivity(draws, rates, out)
            }
            _ => Ok(()),
        },
        color,
    )?;
    Ok(exit_code(&set, ExitCode::SUCCESS))
}

/// Returns the loads that were asked for: those of the grid, or one, whose sections are no longer than a run.
fn loads(args: &BenchArgs, machine: &MachineChoice) -> Result<Vec<RwsemLoad>, Failure> {
    let own = &args.rwsem;
    let usual_ns = if machine.simulated().is_some() { SIMULATED_NS } else { NATIVE_NS };
    let duration_ns = args.duration.unwrap_or(usual_ns);
    if own.grid {
        rwsem_grid::longest_section().check_within("--grid's section of", duration_ns)?;
        return Ok(rwsem_grid::loads(duration_ns));
    }
    let (readers, writers) = own.readers.unwrap_or((1, 1));
    own.section.iter().try_for_each(|section| section.check_within("--section", duration_ns))?;
    let section_ns = own.section.as_ref().map_or(100, |section| section.ns);
    let threads_per_cpu = own.threads.unwrap_or(1).into();
    Ok(vec![RwsemLoad { readers, writers, section_ns, threads_per_cpu, duration_ns }])
}

/// Measures every arm under each load; leaves out what an interrupt has kept from running.
fn measure<'a>(
    args: &BenchArgs,
    machine: &MachineChoice,
    draws: Option<&Draws>,
    loads: &'a [RwsemLoad],
    arms: &'a [RwsemArm],
) -> Result<Vec<Measurement<'a>>, Failure> {
    let nr_runs = args.spread.unwrap_or(args.runs);
    let nr_of_load = arms.len() * nr_runs as usize;
    let bar = progress_bar(loads.len() * nr_of_load);
    let seeds = args.seed..args.seed.saturating_add(nr_runs.into());
    let under = |(place, load): (usize, &'a RwsemLoad)| {
        let show = |done: usize| bar.set_position((place * nr_of_load + done) as u64);
        let runs = rwsem::run(machine, draws, arms, load, seeds.clone(), args.machine.jobs(), show);
        runs.map(|runs| {
            let rows = arms.iter().zip(runs).filter(|(_, runs)| !runs.is_empty()).collect();
            Measurement { load, rows }
        })
    };
    let measured: Result<Vec<_>, MeasureError> = loads.iter().enumerate().map(under).collect();
    bar.finish_and_clear();
    measured.map_err(Failure::new)
}

const HEADINGS: [&str; 10] = [
    "semaphore",
    "cpus",
    "ops_per_s",
    "deviation",
    "write_wait_p999_ns",
    "runs",
    "readers",
    "writers",
    "section_ns",
    "threads_per_cpu",
];

pub fn rates(runs: &[Taken]) -> Vec<f64> {
    runs.iter().map(|run| run.ops_per_s).collect()
}

pub fn p999s(runs: &[Taken]) -> Vec<f64> {
    runs.iter().filter_map(Taken::write_p999_ns).collect()
}

fn fields(load: &RwsemLoad, (arm, runs): &(&RwsemArm, Vec<Taken>)) -> Vec<String> {
    let (rate, p999) = (summarize(&rates(runs)), summarize(&p999s(runs)));
    let number = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.0}"));
    vec![
        arm.semaphore.clone(),
        arm.cpus.to_string(),
        number(rate.as_ref().map(|rate| rate.mean)),
        number(rate.as_ref().and_then(|rate| rate.deviation)),
        number(p999.map(|p999| p999.mean)),
        runs.len().to_string(),
        load.readers.to_string(),
        load.writers.to_string(),
        load.section_ns.to_string(),
        load.threads_per_cpu.to_string(),
    ]
}

/// Writes a curve for each semaphore: sections in a second, and beneath them what a writer waits at most in 999 of 1000
/// cases.
fn write(
    set: &ResultSet,
    (load, draws): (&RwsemLoad, Option<&Draws>),
    cpus: &[usize],
    rows: &[(&RwsemArm, Vec<Taken>)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let RwsemLoad { readers, writers, section_ns, threads_per_cpu, .. } = load;
    writeln!(out, "machine   {}", set.machine)?;
    writeln!(
        out,
        "load      readers to writers {readers}:{writers}, sections of {section_ns} ns, {threads_per_cpu} threads a CPU"
    )?;
    curves::write_draws(draws, out)?;
    writeln!(out)?;
    let mut names: Vec<&String> = rows.iter().map(|(arm, _)| &arm.semaphore).collect();
    names.dedup();
    let runs_of = |semaphore: &str, cpus: usize| {
        rows.iter().find(|(arm, _)| arm.semaphore == semaphore && arm.cpus == cpus).map(|(_, runs)| runs.as_slice())
    };
    let rate = |semaphore: &str, cpus: usize| {
        let shown = if draws.is_some() { curves::of_draws } else { curves::of_seeds };
        shown(&rates(runs_of(semaphore, cpus)?), Scale { unit: 1e6, places: 2 })
    };
    let wait = |semaphore: &str, cpus: usize| {
        let waits = p999s(runs_of(semaphore, cpus)?);
        match draws {
            Some(_) => curves::of_draws(&waits, Scale { unit: 1e3, places: 2 }),
            None => summarize(&waits).map(|of| format!("{:.1}", of.mean / 1e3)),
        }
    };
    columns::write(&curves::table("M sections/s", &names, cpus, rate), out)?;
    writeln!(out)?;
    columns::write(&curves::table("writer's p99.9 wait, us", &names, cpus, wait), out)
}

fn result_set(
    args: &BenchArgs,
    machine: &MachineChoice,
    draws: Option<&Draws>,
    measured: &[Measurement<'_>],
) -> ResultSet {
    let mut set = ResultSet::new("bench", args.seed, info::of(machine));
    set.more.insert("duration_ns".into(), measured.first().map_or(0, |of| of.load.duration_ns).into());
    for Measurement { load, rows } in measured {
        for (arm, runs) in rows {
            let of = (*arm, runs.as_slice());
            set.results.push(result(draws, load, of, ("ops_per_s", "1/s"), rates(runs)));
            let waits = p999s(runs);
            if !waits.is_empty() {
                set.results.push(result(draws, load, of, ("write_wait_p999", "ns"), waits));
            }
        }
    }
    if has_interrupt() {
        set.mark_interrupted("some runs are missing");
    }
    set
}

fn result(
    draws: Option<&Draws>,
    load: &RwsemLoad,
    (arm, runs): (&RwsemArm, &[Taken]),
    (metric, unit): (&str, &str),
    samples: Vec<f64>,
) -> Measured {
    let threads = match load.threads_per_cpu {
        1 => String::new(),
        threads => format!(" --threads {threads}"),
    };
    Measured {
        workload: format!("rwsem --readers {}:{} --section {}ns{threads}", load.readers, load.writers, load.section_ns),
        mode: Mode::Threads,
        design: "-".into(),
        semaphore: Some(arm.semaphore.clone()),
        cpus: arm.cpus,
        workers: Some(arm.cpus * load.threads_per_cpu),
        metric: metric.into(),
        unit: unit.into(),
        more: draws.map_or_else(serde_json::Map::new, |draws| over_draws(draws, &samples)),
        samples,
        counters: [
            ("reads", runs.iter().map(|run| run.read_waits.total()).sum()),
            ("writes", runs.iter().map(|run| run.write_waits.total()).sum()),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into(),
    }
}
