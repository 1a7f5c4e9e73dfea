//! Workloads whose page tables, or pages, lie in high memory: `faultless bench compile --tables high`, and the same
//! flags of `stat`.

use std::io::{self, Write};
use std::process::ExitCode;

use faultless_bench::high::{self, Counted, DESIGN, HighArm, Made, Memory};
use faultless_bench::measure::Mode;
use faultless_kmap::Costs;
use faultless_linux::space::{has_interrupt, on_interrupt};
use faultless_machine::designs::DEFAULT_SEMAPHORE;
use faultless_machine::info;
use faultless_machine::simulated::{MachineChoice, Spec};
use faultless_machine::watch::{Figures, LockTable};
use faultless_replay::AllDesigns;
use faultless_results::set::PARAMS;
use faultless_results::stats::{Summary, summarize};
use faultless_results::{Measured, ResultSet, Unit, columns};
use faultless_workloads::{Spec as Workload, SpecError};
use serde_json::json;

use crate::bench_args::{BenchArgs, progress_bar};
use crate::choose;
use crate::choose::{designs, known};
use crate::message::{Color, Failure};
use crate::output::{Table, exit_code};

/// What a workload does that is measured here.
pub const ABOUT: &str = "runs with its tables or pages in high memory";

/// How long a workload that is no compile works, unless told.
const SIMULATED_NS: u64 = 4_000_000;

/// The lock whose figures are shown.
const LOCK: &str = "kmap_lock";

/// Runs a workload under each scheme, and without any.
pub fn run(args: &BenchArgs, machine: &MachineChoice, cpus: &[usize], color: Color) -> Result<ExitCode, Failure> {
    let Some(spec) = machine.simulated() else {
        return Err(Failure::usage(
            "--tables, --pages and their like need a simulated machine, because this one's kernel has maps of its own; add for example --machine numaq-16",
        ));
    };
    let arms = arms(args, cpus)?;
    args.output.prepare()?;
    on_interrupt();
    let runs = made(args, spec, &arms)?;
    let rows: Vec<HighRuns> = arms.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty()).collect();
    let set = result_set(args, machine, &rows);
    let fields: Vec<Vec<String>> = rows.iter().map(fields).collect();
    let table = Table { headings: &HEADINGS, rows: &fields };
    args.output.hand_out_table(&set, &table, |out| write(&set, &rows, out), color)?;
    Ok(exit_code(&set, ExitCode::SUCCESS))
}

fn made(args: &BenchArgs, spec: &Spec, arms: &[HighArm]) -> Result<Vec<Vec<Made>>, Failure> {
    let bar = progress_bar(arms.len() * args.runs as usize);
    let seeds = args.seed..args.seed.saturating_add(args.runs.into());
    let runs = high::run(spec, arms, seeds, args.machine.jobs(), |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    runs.map_err(Failure::new)
}

/// Returns what is run: on each number of CPUs without high memory, and under each scheme.
fn arms(args: &BenchArgs, cpus: &[usize]) -> Result<Vec<HighArm>, Failure> {
    let workload = workload(&args.spelled())?;
    let asked = if args.design.is_empty() { vec![DESIGN.to_owned()] } else { args.design.clone() };
    let designs = known("design", &asked, designs())?;
    let semaphores = match args.semaphore.as_slice() {
        [] => vec![DEFAULT_SEMAPHORE.to_owned()],
        asked => choose::semaphores(asked)?,
    };
    let ([design], [semaphore]) = (designs.as_slice(), semaphores.as_slice()) else {
        return Err(Failure::usage(
            "--tables, --pages and their like compare schemes, under one design and one semaphore",
        ));
    };
    let memories = args.high.memories(&args.kmap)?;
    let highs: Vec<Option<Memory>> = std::iter::once(None).chain(memories.into_iter().map(Some)).collect();
    let arm = |cpus: usize, high: &Option<Memory>| HighArm {
        workload: workload.clone(),
        duration_ns: args.duration.unwrap_or(SIMULATED_NS),
        mode: if args.processes { Mode::Processes } else { Mode::Threads },
        high: high.clone(),
        cpus,
        pace: args.high.pace(),
        start: high::Start::Together,
        sources: high::Sources::Large,
        design: design.clone(),
        semaphore: semaphore.clone(),
        replayer: &AllDesigns,
    };
    Ok(cpus.iter().flat_map(|&cpus| highs.iter().map(move |high| arm(cpus, high))).collect())
}

fn workload(text: &str) -> Result<Workload, Failure> {
    Workload::parse(text).map_err(|error: SpecError| Failure::usage(error))
}

type HighRuns<'a> = (&'a HighArm, &'a Vec<Made>);

const HEADINGS: [&str; 14] = [
    "scheme",
    "cpus",
    "ops_per_s",
    "deviation",
    "maps_per_op",
    "table_maps_per_op",
    "hits_per_map",
    "flushes_per_1000",
    "interrupts_per_1000",
    "sleeps_per_1000",
    "lock_utilisation",
    "lock_hold_ns",
    "lock_wait_ns",
    "lock_contention",
];

fn scheme(arm: &HighArm) -> &str {
    arm.high.as_ref().map_or("no high memory", |high| &high.scheme)
}

fn rates(runs: &[Made]) -> Vec<f64> {
    runs.iter().map(|made| made.run.ops_per_s).collect()
}

fn sum(runs: &[Made], of: impl Fn(&Counted) -> u64) -> u64 {
    runs.iter().map(|made| of(&made.counted)).sum()
}

/// Returns how many of something there were for each map.
fn share(runs: &[Made], of: impl Fn(&Counted) -> u64) -> f64 {
    sum(runs, of) as f64 / sum(runs, |counted| counted.maps).max(1) as f64
}

fn per_op(runs: &[Made], of: impl Fn(&Counted) -> u64) -> f64 {
    sum(runs, of) as f64 / runs.iter().map(|made| made.run.ops).sum::<u64>().max(1) as f64
}

/// Returns a figure of the lock in each run; nothing where nobody took it.
fn lock(runs: &[Made], of: impl Fn(&LockTable, &Figures) -> f64) -> Option<Summary> {
    let one = |made: &Made| {
        let row = made.locks.locks.iter().find(|row| row.name == LOCK)?;
        Some(of(&made.locks, &row.figures))
    };
    summarize(&runs.iter().map(one).collect::<Option<Vec<f64>>>()?)
}

fn fields(&(arm, runs): &HighRuns) -> Vec<String> {
    let rate = summarize(&rates(runs));
    let number = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.3}"));
    let thousandth = |count: fn(&Counted) -> u64| format!("{:.3}", 1000.0 * share(runs, count));
    let lock = |of: fn(&LockTable, &Figures) -> f64| number(lock(runs, of).map(|summary| summary.mean));
    vec![
        scheme(arm).to_owned(),
        arm.cpus.to_string(),
        number(rate.as_ref().map(|rate| rate.mean)),
        number(rate.as_ref().and_then(|rate| rate.deviation)),
        format!("{:.1}", per_op(runs, |counted| counted.maps)),
        format!("{:.1}", per_op(runs, |counted| counted.table_maps)),
        format!("{:.3}", share(runs, |counted| counted.hits)),
        thousandth(|counted| counted.flushes),
        thousandth(|counted| counted.interrupts),
        thousandth(|counted| counted.sleeps),
        lock(LockTable::utilisation),
        lock(|_, figures| figures.mean_hold_ns()),
        lock(|_, figures| figures.mean_wait_ns()),
        lock(|_, figures| figures.contention()),
    ]
}

/// Writes a line for each scheme, one block for each number of CPUs.
fn write(set: &ResultSet, rows: &[HighRuns], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "machine   {}", set.machine)?;
    if let Some((arm, _)) = rows.first() {
        writeln!(out, "workload  {}, design {} over {}", arm.workload.name, arm.design, arm.semaphore)?;
    }
    if let Some(Memory { lies, slots, boundary_bytes, .. }) = rows.iter().find_map(|(arm, _)| arm.high.as_ref()) {
        let zone = |is_high: bool| if is_high { "high" } else { "normal" };
        let [tables, upper, files, anonymous] = [lies.tables, lies.upper_tables, lies.files, lies.anonymous].map(zone);
        writeln!(
            out,
            "memory    tables {tables}, those above the leaves {upper}, pages of files {files}, anonymous {anonymous}; pools of {slots} slots"
        )?;
        if let Some(bytes) = boundary_bytes {
            writeln!(out, "boundary  behind {bytes} bytes of normal memory")?;
        }
    }
    for (place, (arm, _)) in rows.iter().enumerate() {
        if place == 0 || rows[place - 1].0.cpus != arm.cpus {
            let block: Vec<&HighRuns> = rows.iter().filter(|(other, _)| other.cpus == arm.cpus).collect();
            writeln!(out)?;
            write_block(arm.cpus, &block, out)?;
        }
    }
    writeln!(out, "\nutil, hold, wait, con: of {LOCK}, as lockmeter has them; wait is of those who waited")
}

fn write_block(cpus: usize, block: &[&HighRuns], out: &mut dyn Write) -> io::Result<()> {
    let head = [
        &format!("{cpus} CPUs"),
        "ops/s",
        "of none",
        "maps/op",
        "tables",
        "hits",
        "flushes/1000",
        "interrupts/1000",
        "sleeps/1000",
        "util",
        "hold",
        "wait",
        "con",
    ]
    .map(str::to_owned);
    let plain = block.iter().find(|(arm, _)| arm.high.is_none()).and_then(|(_, runs)| summarize(&rates(runs)));
    let line = |&&(arm, runs): &&HighRuns| {
        let rate = summarize(&rates(runs));
        let ratio = rate.as_ref().zip(plain.as_ref()).map(|(rate, plain)| rate.mean / plain.mean);
        let percent = |of: Option<Summary>| of.map_or_else(dash, |summary| format!("{:.1} %", 100.0 * summary.mean));
        let time = |of: Option<Summary>| of.map_or_else(dash, |summary| Unit::Ns.show(summary.mean));
        let of_maps = |text: String| if arm.high.is_some() { text } else { dash() };
        vec![
            scheme(arm).to_owned(),
            rate.map_or_else(dash, |rate| shown(&rate)),
            ratio.map_or_else(dash, |ratio| format!("{ratio:.3}")),
            of_maps(format!("{:.0}", per_op(runs, |counted| counted.maps))),
            of_maps(format!("{:.0}", per_op(runs, |counted| counted.table_maps))),
            of_maps(format!("{:.1} %", 100.0 * share(runs, |counted| counted.hits))),
            of_maps(format!("{:.2}", 1000.0 * share(runs, |counted| counted.flushes))),
            of_maps(format!("{:.1}", 1000.0 * share(runs, |counted| counted.interrupts))),
            of_maps(format!("{:.1}", 1000.0 * share(runs, |counted| counted.sleeps))),
            percent(lock(runs, LockTable::utilisation)),
            time(lock(runs, |_, figures| figures.mean_hold_ns())),
            time(lock(runs, |_, figures| figures.mean_wait_ns())),
            percent(lock(runs, |_, figures| figures.contention())),
        ]
    };
    let lines: Vec<Vec<String>> = std::iter::once(head.to_vec()).chain(block.iter().map(line)).collect();
    columns::write(&lines, out)
}

fn dash() -> String {
    "-".to_owned()
}

fn shown(rate: &Summary) -> String {
    let spread = rate.deviation.map_or_else(String::new, |deviation| format!(" ± {deviation:.1}"));
    format!("{:.1}{spread}", rate.mean)
}

fn result_set(args: &BenchArgs, machine: &MachineChoice, rows: &[HighRuns]) -> ResultSet {
    let mut set = ResultSet::new("bench", args.seed, info::of(machine));
    let Costs { walk_ns, flush_ns, flush_slot_ns } = Costs::default();
    set.more.insert("costs_ns".into(), json!({"walk": walk_ns, "flush": flush_ns, "flush_slot": flush_slot_ns}));
    for &(arm, runs) in rows {
        let more = arm.high.as_ref().map_or_else(String::new, |high| {
            format!("{} --scheme {}{}", args.high.typed(), high.scheme, args.kmap.typed())
        });
        let params = arm.high.as_ref().map(Memory::params);
        let mut counters = std::collections::BTreeMap::from(
            [
                ("maps", sum(runs, |counted| counted.maps)),
                ("table_maps", sum(runs, |counted| counted.table_maps)),
                ("hits", sum(runs, |counted| counted.hits)),
                ("flushes", sum(runs, |counted| counted.flushes)),
                ("interrupts", sum(runs, |counted| counted.interrupts)),
                ("sleeps", sum(runs, |counted| counted.sleeps)),
            ]
            .map(|(name, count)| (name.to_owned(), count)),
        );
        for (name, count) in runs.iter().flat_map(|made| &made.run.counters) {
            *counters.entry((*name).to_owned()).or_default() += count;
        }
        set.results.push(Measured {
            workload: format!("{}{more}", arm.workload.name),
            mode: if arm.workload.workload.is_recorded() { Mode::Processes } else { arm.mode },
            design: arm.design.clone(),
            semaphore: Some(arm.semaphore.clone()),
            cpus: arm.cpus,
            workers: Some(arm.cpus),
            metric: "ops_per_s".into(),
            unit: "1/s".into(),
            samples: rates(runs),
            counters: counters.into_iter().collect(),
            more: params.map(|params| (PARAMS.to_owned(), params.into())).into_iter().collect(),
        });
    }
    if has_interrupt() {
        set.mark_interrupted("some runs are missing");
    }
    set
}
