//! `faultless bench kmap`: schemes of kernel maps by themselves, a curve for each.

use std::io::{self, Write};
use std::process::ExitCode;

use faultless_bench::kmap::{self, KmapArm, KmapLoad, Mapping};
use faultless_bench::report::bench::over_draws;
use faultless_bench::spread::Draws;
use faultless_kmap::Costs;
use faultless_linux::space::{has_interrupt, on_interrupt};
use faultless_machine::info;
use faultless_machine::simulated::MachineChoice;
use faultless_results::set::PARAMS;
use faultless_results::stats::{median, summarize};
use faultless_results::{Measured, Mode, ResultSet, columns};
use serde_json::json;

use crate::bench_args::{BenchArgs, draws, progress_bar};
use crate::curves::{self, Scale};
use crate::message::{Color, Failure};
use crate::output::{Table, exit_code};

/// The workload's name.
pub const NAME: &str = "kmap";

/// What it does.
pub const ABOUT: &str = "maps frames that have no address, and unmaps them";

/// Why it needs a machine.
pub const NEEDS_MACHINE: &str =
    "kmap needs a simulated machine, because this one's kernel has maps of its own; add for example --machine numaq-16";

/// Runs the workload.
pub fn run(args: &BenchArgs, machine: &MachineChoice, cpus: &[usize], color: Color) -> Result<ExitCode, Failure> {
    let Some(spec) = machine.simulated() else {
        return Err(Failure::usage(NEEDS_MACHINE));
    };
    let load = args.kmap.load(args.processes, args.duration)?;
    let of = |scheme: &String| cpus.iter().map(|&cpus| KmapArm { scheme: scheme.clone(), cpus }).collect::<Vec<_>>();
    let arms: Vec<KmapArm> = args.kmap.schemes()?.iter().flat_map(of).collect();
    let draws = draws(args, machine)?;
    args.output.prepare()?;
    on_interrupt();
    let nr_runs = args.spread.unwrap_or(args.runs);
    let bar = progress_bar(arms.len() * nr_runs as usize);
    let seeds = args.seed..args.seed.saturating_add(nr_runs.into());
    let ended = |done: usize| bar.set_position(done as u64);
    let runs = kmap::run(spec, draws.as_ref(), &arms, &load, seeds, args.machine.jobs(), ended);
    bar.finish_and_clear();
    let runs = runs.map_err(Failure::new)?;
    let rows: Vec<KmapRuns> = arms.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty()).collect();
    let set = result_set(args, machine, &load, &rows, draws.as_ref());
    let fields: Vec<Vec<String>> = rows.iter().map(fields).collect();
    let table = Table { headings: &HEADINGS, rows: &fields };
    let curves = Curves { rows: &rows, cpus, draws: draws.as_ref() };
    args.output.hand_out_table(
        &set,
        &table,
        |out| {
            write_load(&set, &load, out)?;
            curves::write_draws(curves.draws, out)?;
            curves.write(&|cpus| spec.linear_factor(cpus), out)?;
            let Some(draws) = curves.draws.filter(|_| args.sensitivity) else { return Ok(()) };
            let rates = rows.iter().map(|&(arm, runs)| (arm.scheme.as_str(), arm.cpus, rates(runs)));
            curves::write_sensitivity(draws, rates, out)
        },
        color,
    )?;
    Ok(exit_code(&set, ExitCode::SUCCESS))
}

type KmapRuns<'a> = (&'a KmapArm, &'a Vec<Mapping>);

const HEADINGS: [&str; 8] = [
    "scheme",
    "cpus",
    "ops_per_s",
    "deviation",
    "hits_per_map",
    "flushes_per_1000",
    "interrupts_per_1000",
    "sleeps_per_1000",
];

fn rates(runs: &[Mapping]) -> Vec<f64> {
    runs.iter().map(|run| run.ops_per_s).collect()
}

/// Returns how many of something there were for each map.
fn share(runs: &[Mapping], count: impl Fn(&Mapping) -> u64) -> f64 {
    let (counted, maps) = runs.iter().fold((0, 0), |(counted, maps), run| (counted + count(run), maps + run.maps));
    counted as f64 / maps.max(1) as f64
}

fn fields(&(arm, runs): &KmapRuns) -> Vec<String> {
    let rate = summarize(&rates(runs));
    let number = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.0}"));
    let thousandth = |count: fn(&Mapping) -> u64| format!("{:.3}", 1000.0 * share(runs, count));
    vec![
        arm.scheme.clone(),
        arm.cpus.to_string(),
        number(rate.as_ref().map(|rate| rate.mean)),
        number(rate.as_ref().and_then(|rate| rate.deviation)),
        format!("{:.3}", share(runs, |run| run.hits)),
        thousandth(|run| run.flushes),
        thousandth(|run| run.interrupts),
        thousandth(|run| run.sleeps),
    ]
}

/// Writes what was measured.
fn write_load(set: &ResultSet, load: &KmapLoad, out: &mut dyn Write) -> io::Result<()> {
    let KmapLoad { frames, hold_ns, nest, reuse_percent, slots, processes, copies, sleepers, sleep_ns, .. } = load;
    writeln!(out, "machine   {}", set.machine)?;
    writeln!(
        out,
        "load      {frames} frames, {nest} held at a time for {hold_ns} ns, {reuse_percent} % the same again; pools of {slots} slots; {}",
        if *processes { "processes" } else { "threads of one process" }
    )?;
    if *copies {
        writeln!(out, "copies    the first frame of each round is copied into the second")?;
    }
    if *sleepers > 0 {
        writeln!(
            out,
            "sleepers  {sleepers} threads more hold {nest} maps each while they sleep for {sleep_ns} ns, and none for as long"
        )?;
    }
    Ok(())
}

/// What is printed as curves.
struct Curves<'a> {
    rows: &'a [KmapRuns<'a>],
    cpus: &'a [usize],
    draws: Option<&'a Draws>,
}

impl Curves<'_> {
    fn runs_of(&self, scheme: &str, cpus: usize) -> Option<&[Mapping]> {
        self.rows.iter().find(|(arm, _)| arm.scheme == scheme && arm.cpus == cpus).map(|(_, runs)| runs.as_slice())
    }

    /// Writes a curve for each scheme, and beneath them what happened on the most CPUs.
    fn write(&self, linear_factor: &dyn Fn(usize) -> f64, out: &mut dyn Write) -> io::Result<()> {
        let mut names: Vec<&String> = self.rows.iter().map(|(arm, _)| &arm.scheme).collect();
        names.dedup();
        let rate = |scheme: &str, cpus: usize| {
            let shown = if self.draws.is_some() { curves::of_draws } else { curves::of_seeds };
            shown(&rates(self.runs_of(scheme, cpus)?), Scale { unit: 1e6, places: 3 })
        };
        writeln!(out)?;
        columns::write(&curves::table("M maps/s", &names, self.cpus, rate), out)?;
        let Some(&most) = self.cpus.iter().max() else { return Ok(()) };
        let titles = ["hits", "flushes", "interrupts", "sleeps", "of linear"].map(String::from);
        let titles = std::iter::once(format!("of 1000 maps, {most} CPUs")).chain(titles).collect();
        let counted = names.iter().map(|scheme| self.counted(scheme, most, linear_factor(most)));
        writeln!(out)?;
        columns::write(&std::iter::once(titles).chain(counted).collect::<Vec<_>>(), out)
    }

    /// Returns what happened under a scheme on so many CPUs.
    fn counted(&self, scheme: &str, cpus: usize, linear_factor: f64) -> Vec<String> {
        let runs = self.runs_of(scheme, cpus).unwrap_or_default();
        let of = |count: fn(&Mapping) -> u64| format!("{:.1}", 1000.0 * share(runs, count));
        let linear = self.runs_of(scheme, 1).and_then(|alone| of_linear(runs, alone, linear_factor));
        vec![
            scheme.to_owned(),
            of(|run| run.hits),
            of(|run| run.flushes),
            of(|run| run.interrupts),
            of(|run| run.sleeps),
            linear.map_or_else(|| "-".to_owned(), |share| format!("{share:.3}")),
        ]
    }
}

/// Returns the part that was reached of what is linear: one CPU's rate, times what so many CPUs can do at most.
fn of_linear(runs: &[Mapping], alone: &[Mapping], factor: f64) -> Option<f64> {
    Some(median(&rates(runs))? / (median(&rates(alone))? * factor))
}

fn result_set(
    args: &BenchArgs,
    machine: &MachineChoice,
    load: &KmapLoad,
    rows: &[KmapRuns],
    draws: Option<&Draws>,
) -> ResultSet {
    let mut set = ResultSet::new("bench", args.seed, info::of(machine));
    set.more.insert("duration_ns".into(), load.duration_ns.into());
    let Costs { walk_ns, flush_ns, flush_slot_ns } = load.costs;
    set.more.insert("costs_ns".into(), json!({"walk": walk_ns, "flush": flush_ns, "flush_slot": flush_slot_ns}));
    for &(arm, runs) in rows {
        let alone = rows.iter().find(|(other, _)| other.scheme == arm.scheme && other.cpus == 1);
        let factor = machine.simulated().map(|spec| spec.linear_factor(arm.cpus));
        let reached = alone.zip(factor).and_then(|((_, alone), factor)| of_linear(runs, alone, factor));
        let mut measured = measured(args, load, arm, runs);
        measured.more.extend(reached.map(|share| ("of_linear".to_owned(), share.into())));
        if let Some(draws) = draws {
            measured.more.extend(over_draws(draws, &measured.samples));
            measured.more.extend(median(&measured.samples).map(|median| ("median".to_owned(), median.into())));
        }
        set.results.push(measured);
    }
    if has_interrupt() {
        set.mark_interrupted("some runs are missing");
    }
    set
}

fn measured(args: &BenchArgs, load: &KmapLoad, arm: &KmapArm, runs: &[Mapping]) -> Measured {
    let sum = |count: fn(&Mapping) -> u64| runs.iter().map(count).sum();
    Measured {
        workload: format!("{NAME} --scheme {}{}", arm.scheme, args.kmap.typed()),
        mode: if load.processes { Mode::Processes } else { Mode::Threads },
        design: "-".into(),
        semaphore: None,
        cpus: arm.cpus,
        workers: Some(arm.cpus),
        metric: "ops_per_s".into(),
        unit: "1/s".into(),
        samples: rates(runs),
        counters: [
            ("maps", sum(|run| run.maps)),
            ("hits", sum(|run| run.hits)),
            ("flushes", sum(|run| run.flushes)),
            ("interrupts", sum(|run| run.interrupts)),
            ("sleeps", sum(|run| run.sleeps)),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into(),
        more: [(PARAMS.to_owned(), load.params(&arm.scheme).into())].into_iter().collect(),
    }
}
