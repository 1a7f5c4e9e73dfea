//! `faultless reproduce`: published tables, beside a simulation of their machines.

use faultless_machine::info;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use faultless_bench::reproduce::{self, Row, TABLES, Table, kmap};
use faultless_bench::spread::Draws;
use faultless_linux::space::{has_interrupt, on_interrupt};
use faultless_machine::host;
use faultless_machine::simulated::{MachineChoice, Spec};
use faultless_replay::AllDesigns;
use faultless_results::{MachineInfo, ResultSet};
use indicatif::ProgressBar;

use crate::message::{Color, Failure};
use crate::nearest::unknown;
use crate::output::{OutputArgs, Table as OutputTable, exit_code};
use crate::progress;

/// How often the bar is drawn anew.
const TICK: Duration = Duration::from_millis(200);

/// The arguments of `reproduce`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless reproduce --list
  faultless reproduce spf-2018-ebizzy
  faultless reproduce kmap-2002
  faultless reproduce spf -r 3 --format json
  faultless reproduce rwsem-2013 --spread 32 --sensitivity

Each line runs the workload under the design before and the design after on a simulation of the machine that the table was \
measured on, under each seed: the published change, ours (median, and the least and most of the seeds), the ratio of the two \
factors, and whether the sign agrees; less than 1 % counts as no change. The machines' parameters come from the sources that \
`faultless machines NAME` names, never from a table. docs/simulation.md says what differs and why.

With --spread each seed has a machine of its own: every number that was guessed is drawn from its range, which \
`faultless machines NAME` prints with its reason. A line is reproduced if the published change lies between the 5th and the 95th of a \
hundred draws; one of less than 10 %, if that whole interval lies within 10 points of it.")]
pub struct ReproduceArgs {
    /// A table, or the beginning of some tables' names; all of them unless named.
    #[arg(value_name = "TABLE", default_value = "")]
    table: String,

    /// Only list the tables.
    #[arg(long)]
    list: bool,

    /// Seeds of each line. Example: -r 7
    #[arg(short, long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 5)]
    runs: u32,

    /// Draws so many machines from the ranges of what was guessed, a seed each, and prints the median and the interval
    /// that holds 90 % of them. Example: --spread 32
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), conflicts_with = "runs")]
    spread: Option<u32>,

    /// Says which guessed number moves each line most.
    #[arg(long, requires = "spread")]
    sensitivity: bool,

    /// The first seed. Example: --seed 7
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How many simulations run at once; as many as this machine has CPUs unless said. Example: --jobs 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the subcommand.
pub fn run(args: &ReproduceArgs, color: Color) -> Result<ExitCode, Failure> {
    if args.list {
        return list();
    }
    let tables = reproduce::matching(&args.table);
    let has_kmap = kmap::NAME.starts_with(&args.table);
    if tables.is_empty() && !has_kmap {
        let names = TABLES.iter().map(|table| table.name).chain([kmap::NAME]);
        return Err(Failure::usage(unknown("table", &args.table, names)));
    }
    args.output.prepare()?;
    on_interrupt();
    let mut results = Vec::new();
    for &table in &tables {
        let rows = run_table(table, args)?;
        if !rows.is_empty() {
            results.push((table, rows));
        }
        if has_interrupt() {
            break;
        }
    }
    let maps = if has_kmap && !has_interrupt() { run_kmap(args)? } else { Vec::new() };
    let set = result_set(args, &tables, &results, has_kmap.then_some(&maps));
    let table = OutputTable {
        headings: &reproduce::HEADINGS,
        rows: &results
            .iter()
            .flat_map(|(table, rows)| rows.iter().map(|row| row.fields(table)))
            .chain(maps.iter().map(kmap::KmapRow::fields))
            .collect::<Vec<_>>(),
    };
    args.output.hand_out_table(&set, &table, |out| write(&results, &maps, args, out), color)?;
    Ok(exit_code(&set, ExitCode::SUCCESS))
}

fn list() -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    TABLES.iter().try_for_each(|table| writeln!(out, "{:<18} {}", table.name, table.about))?;
    writeln!(out, "{:<18} {}", kmap::NAME, kmap::ABOUT)?;
    Ok(ExitCode::SUCCESS)
}

fn run_table(table: &'static Table, args: &ReproduceArgs) -> Result<Vec<Row>, Failure> {
    let nr_seeds = nr_seeds(args);
    let bar = progress_bar(table.name, reproduce::nr_runs(table) as u64 * u64::from(nr_seeds));
    let jobs = args.jobs.map_or_else(host::cpus, usize::from);
    let seeds = args.seed..args.seed.saturating_add(u64::from(nr_seeds));
    let draws = draws(table, args);
    let machine = |name: &str, seed: u64| match draws.get(name) {
        Some(draws) => draws.machine((seed - args.seed) as usize),
        None => preset(name),
    };
    let rows = reproduce::run(table, &AllDesigns, machine, seeds, jobs, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let mut rows = rows.map_err(|error| Failure::new(format_args!("{}: {error}", table.name)))?;
    for row in &mut rows {
        if let Some(draws) = draws.get(row.case.machine) {
            row.judge_by(draws);
        }
    }
    Ok(rows)
}

/// Returns how many seeds each line has.
fn nr_seeds(args: &ReproduceArgs) -> u32 {
    args.spread.unwrap_or(args.runs)
}

fn preset(name: &str) -> Spec {
    Spec::preset(name).expect("the tables name machines")
}

/// Returns the drawn machines of a table's lines, if any are asked for.
fn draws(table: &Table, args: &ReproduceArgs) -> BTreeMap<&'static str, Draws> {
    let Some(nr_draws) = args.spread else { return BTreeMap::new() };
    let of = |name| (name, Draws::new(&preset(name), nr_draws as usize, args.seed));
    table.cases.iter().map(|case| case.machine).collect::<BTreeSet<_>>().into_iter().map(of).collect()
}

/// Runs the table of kernel maps.
fn run_kmap(args: &ReproduceArgs) -> Result<Vec<kmap::KmapRow>, Failure> {
    let nr_seeds = nr_seeds(args);
    let bar = progress_bar(kmap::NAME, kmap::RUNS as u64 * u64::from(nr_seeds));
    let jobs = args.jobs.map_or_else(host::cpus, usize::from);
    let seeds = args.seed..args.seed.saturating_add(u64::from(nr_seeds));
    let ended = |done| bar.set_position(done as u64);
    let machine = preset(kmap::MACHINE);
    let rows = match args.spread {
        Some(nr_draws) => {
            let draws = Draws::new(&machine, nr_draws as usize, args.seed);
            kmap::run_drawn(&draws, &AllDesigns, seeds, jobs, ended)
        }
        None => kmap::run(&machine, &AllDesigns, seeds, jobs, ended),
    };
    bar.finish_and_clear();
    rows.map_err(|error| Failure::new(format_args!("{}: {error}", kmap::NAME)))
}

/// Returns a bar that is shown on a terminal only, from the first run on: some take seconds.
fn progress_bar(name: &'static str, runs: u64) -> ProgressBar {
    let style = progress::style("{msg} [{bar:40}] run {pos} of {len}, {elapsed}, {eta} left");
    let bar = ProgressBar::new(runs).with_style(style).with_message(name);
    bar.enable_steady_tick(TICK);
    bar
}

/// Returns the rows as a result set; one that lacks some that were asked for says so.
fn result_set(
    args: &ReproduceArgs,
    tables: &[&Table],
    results: &[(&Table, Vec<Row>)],
    maps: Option<&Vec<kmap::KmapRow>>,
) -> ResultSet {
    let machines = machines(results, maps.is_some_and(|maps| !maps.is_empty()));
    let mut set = ResultSet::new("reproduce", args.seed, machines.first().cloned().unwrap_or_default());
    if let Some(maps) = maps {
        set.checks.insert(kmap::NAME.into(), maps.iter().map(kmap::KmapRow::json).collect());
    }
    for (table, rows) in results {
        set.checks.insert(table.name.into(), rows.iter().map(Row::json).collect());
    }
    let asked = tables.iter().map(|table| table.cases.len()).sum::<usize>() * nr_seeds(args) as usize;
    let done: usize = results.iter().flat_map(|(_, rows)| rows).map(|row| row.base.len()).sum();
    let lacks_maps = maps.is_some_and(|maps| maps.first().map_or(0, kmap::KmapRow::nr_seeds) < nr_seeds(args) as usize);
    if done == asked && lacks_maps {
        set.mark_interrupted("some runs of the kernel maps are missing");
    }
    if done < asked {
        set.mark_interrupted(format_args!("interrupted after {done} of {asked} pairs of runs"));
    }
    set
}

/// Writes the tables, and the machines' parameters behind them.
fn write(
    results: &[(&Table, Vec<Row>)],
    maps: &[kmap::KmapRow],
    args: &ReproduceArgs,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (table, rows) in results {
        reproduce::write(table, rows, out)?;
        if args.sensitivity {
            reproduce::write_sensitivity(rows, out)?;
        }
    }
    if !maps.is_empty() {
        kmap::write(maps, args.sensitivity, out)?;
    }
    machines(results, !maps.is_empty()).iter().try_for_each(|machine| {
        writeln!(out, "{machine}")?;
        info::write_parameters(machine, out)
    })
}

/// Returns the simulated machines, each once.
fn machines(results: &[(&Table, Vec<Row>)], has_maps: bool) -> Vec<MachineInfo> {
    let mut names: Vec<&str> = results.iter().flat_map(|(_, rows)| rows).map(|row| row.case.machine).collect();
    names.extend(has_maps.then_some(kmap::MACHINE));
    names.dedup();
    let specs = names.into_iter().filter_map(Spec::preset);
    let mut machines: Vec<MachineInfo> =
        specs.map(|spec| info::of(&MachineChoice::Simulated(Box::new(spec)))).collect();
    machines.sort_by(|one, other| one.name.cmp(&other.name));
    machines.dedup_by(|one, other| one.name == other.name);
    machines
}
