//! `faultless bench rwsem`: semaphores by themselves, a curve for each.

use std::io::{self, Write};
use std::process::ExitCode;

use faultless_bench::report::bench::over_draws;
use faultless_bench::rwsem::{self, RwsemArm, RwsemLoad, Taken};
use faultless_bench::spread::Draws;
use faultless_linux::space::{has_interrupt, on_interrupt};
use faultless_machine::designs::SEMAPHORES;
use faultless_machine::info;
use faultless_machine::simulated::MachineChoice;
use faultless_results::stats::summarize;
use faultless_results::{Measured, Mode, ResultSet, columns};

use crate::bench_args::{BenchArgs, draws, progress_bar};
use crate::choose::known;
use crate::curves::{self, Scale};
use crate::message::{Color, Failure};
use crate::output::{Table, exit_code};

/// The workload's name.
pub const NAME: &str = "rwsem";

/// How long a run is on a simulated machine, and on this one, unless told.
const SIMULATED_NS: u64 = 2_000_000;
const NATIVE_NS: u64 = 200_000_000;

/// Runs the workload.
pub fn run(args: &BenchArgs, machine: &MachineChoice, cpus: &[usize], color: Color) -> Result<ExitCode, Failure> {
    let is_simulated = machine.simulated().is_some();
    let own = &args.rwsem;
    let (readers, writers) = own.readers.unwrap_or((1, 1));
    let load = RwsemLoad {
        readers,
        writers,
        section_ns: own.section.unwrap_or(100),
        threads_per_cpu: own.threads.unwrap_or(1).into(),
        duration_ns: args.duration.unwrap_or(if is_simulated { SIMULATED_NS } else { NATIVE_NS }),
    };
    let semaphores = known("semaphore", &args.semaphore, SEMAPHORES.to_vec())?;
    let of = |semaphore: &String| {
        cpus.iter().map(|&cpus| RwsemArm { semaphore: semaphore.clone(), cpus }).collect::<Vec<_>>()
    };
    let arms: Vec<RwsemArm> = semaphores.iter().flat_map(of).collect();
    args.output.prepare()?;
    on_interrupt();
    let draws = draws(args, machine)?;
    let nr_runs = args.spread.unwrap_or(args.runs);
    let bar = progress_bar(arms.len() * nr_runs as usize);
    let seeds = args.seed..args.seed.saturating_add(nr_runs.into());
    let runs = rwsem::run(machine, draws.as_ref(), &arms, &load, seeds, args.machine.jobs(), |done| {
        bar.set_position(done as u64)
    });
    bar.finish_and_clear();
    let runs = runs.map_err(Failure::new)?;
    let rows: Vec<(&RwsemArm, &Vec<Taken>)> = arms.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty()).collect();
    let set = result_set(args, machine, (&load, draws.as_ref()), &rows);
    let fields: Vec<Vec<String>> = rows.iter().map(fields).collect();
    let table = Table { headings: &HEADINGS, rows: &fields };
    args.output.hand_out_table(
        &set,
        &table,
        |out| {
            write(&set, (&load, draws.as_ref()), cpus, &rows, out)?;
            let Some(draws) = draws.as_ref().filter(|_| args.sensitivity) else { return Ok(()) };
            let rates = rows.iter().map(|&(arm, runs)| (arm.semaphore.as_str(), arm.cpus, rates(runs)));
            curves::write_sensitivity(draws, rates, out)
        },
        color,
    )?;
    Ok(exit_code(&set, ExitCode::SUCCESS))
}

const HEADINGS: [&str; 6] = ["semaphore", "cpus", "ops_per_s", "deviation", "write_wait_p999_ns", "runs"];

fn rates(runs: &[Taken]) -> Vec<f64> {
    runs.iter().map(|run| run.ops_per_s).collect()
}

fn p999s(runs: &[Taken]) -> Vec<f64> {
    runs.iter().filter_map(Taken::write_p999_ns).collect()
}

fn fields(&(arm, runs): &(&RwsemArm, &Vec<Taken>)) -> Vec<String> {
    let (rate, p999) = (summarize(&rates(runs)), summarize(&p999s(runs)));
    let number = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.0}"));
    vec![
        arm.semaphore.clone(),
        arm.cpus.to_string(),
        number(rate.as_ref().map(|rate| rate.mean)),
        number(rate.as_ref().and_then(|rate| rate.deviation)),
        number(p999.map(|p999| p999.mean)),
        runs.len().to_string(),
    ]
}

/// Writes a curve for each semaphore: sections in a second, and beneath them what a writer waits at most in 999 of 1000
/// cases.
fn write(
    set: &ResultSet,
    (load, draws): (&RwsemLoad, Option<&Draws>),
    cpus: &[usize],
    rows: &[(&RwsemArm, &Vec<Taken>)],
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
    (load, draws): (&RwsemLoad, Option<&Draws>),
    rows: &[(&RwsemArm, &Vec<Taken>)],
) -> ResultSet {
    let mut set = ResultSet::new("bench", args.seed, info::of(machine));
    set.more.insert("duration_ns".into(), load.duration_ns.into());
    let workload = format!("rwsem --readers {}:{} --section {}ns", load.readers, load.writers, load.section_ns);
    let measured = |arm: &RwsemArm, runs: &[Taken], metric: &str, unit: &str, samples: Vec<f64>| Measured {
        workload: workload.clone(),
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
    };
    for &(arm, runs) in rows {
        set.results.push(measured(arm, runs, "ops_per_s", "1/s", rates(runs)));
        let waits = p999s(runs);
        if !waits.is_empty() {
            set.results.push(measured(arm, runs, "write_wait_p999", "ns", waits));
        }
    }
    if has_interrupt() {
        set.mark_interrupted("some runs are missing");
    }
    set
}
