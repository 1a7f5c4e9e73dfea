//! `faultless reproduce`: published tables, beside a simulation of their machines.

use faultless_machine::info;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use faultless_bench::reproduce::{self, Row, TABLES, Table, kmap};
use faultless_linux::space::{has_interrupt, on_interrupt};
use faultless_machine::host;
use faultless_machine::simulated::{MachineChoice, Spec};
use faultless_results::{MachineInfo, ResultSet};
use indicatif::{ProgressBar, ProgressStyle};

use crate::message::{Color, Failure};
use crate::nearest::unknown;
use crate::output::{OutputArgs, Table as OutputTable, exit_code};

/// How often the bar is drawn anew.
const TICK: Duration = Duration::from_millis(200);

/// The arguments of `reproduce`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless reproduce --list
  faultless reproduce spf-2018-ebizzy
  faultless reproduce kmap-2002
  faultless reproduce spf -r 3 --format json

Each line runs the workload under the design before and the design after on a simulation of the machine that the table was \
measured on, under each seed: the published change, ours (median, and the least and most of the seeds), the ratio of the two \
factors, and whether the sign agrees; less than 1 % counts as no change. The machines' parameters come from the sources that \
`faultless machines NAME` names, never from a table. docs/simulation.md says what differs and why.")]
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
            .chain(maps.iter().map(kmap::Row::fields))
            .collect::<Vec<_>>(),
    };
    args.output.hand_out_table(&set, &table, |out| write(&results, &maps, out), color)?;
    Ok(exit_code(&set, ExitCode::SUCCESS))
}

fn list() -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    TABLES.iter().try_for_each(|table| writeln!(out, "{:<18} {}", table.name, table.about))?;
    writeln!(out, "{:<18} {}", kmap::NAME, kmap::ABOUT)?;
    Ok(ExitCode::SUCCESS)
}

fn run_table(table: &'static Table, args: &ReproduceArgs) -> Result<Vec<Row>, Failure> {
    let bar = progress_bar(table.name, 2 * table.cases.len() as u64 * u64::from(args.runs));
    let jobs = args.jobs.map_or_else(host::cpus, usize::from);
    let seeds = args.seed..args.seed.saturating_add(u64::from(args.runs));
    let machine = |name: &str| Spec::preset(name).expect("the tables name machines");
    let rows = reproduce::run(table, machine, seeds, jobs, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    rows.map_err(|error| Failure::new(format_args!("{}: {error}", table.name)))
}

/// Runs the table of kernel maps.
fn run_kmap(args: &ReproduceArgs) -> Result<Vec<kmap::Row>, Failure> {
    let bar = progress_bar(kmap::NAME, kmap::RUNS as u64 * u64::from(args.runs));
    let jobs = args.jobs.map_or_else(host::cpus, usize::from);
    let seeds = args.seed..args.seed.saturating_add(u64::from(args.runs));
    let machine = Spec::preset(kmap::MACHINE).expect("the table names a machine");
    let rows = kmap::run(&machine, seeds, jobs, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    rows.map_err(|error| Failure::new(format_args!("{}: {error}", kmap::NAME)))
}

/// Returns a bar that is shown on a terminal only, from the first run on: some take seconds.
fn progress_bar(name: &'static str, runs: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:40}] run {pos} of {len}, {elapsed}, {eta} left");
    let bar = ProgressBar::new(runs).with_style(style.unwrap_or(ProgressStyle::default_bar())).with_message(name);
    bar.enable_steady_tick(TICK);
    bar
}

/// Returns the rows as a result set; one that lacks some that were asked for says so.
fn result_set(
    args: &ReproduceArgs,
    tables: &[&Table],
    results: &[(&Table, Vec<Row>)],
    maps: Option<&Vec<kmap::Row>>,
) -> ResultSet {
    let machines = machines(results, maps.is_some_and(|maps| !maps.is_empty()));
    let mut set = ResultSet::new("reproduce", args.seed, machines.first().cloned().unwrap_or_default());
    if let Some(maps) = maps {
        set.checks.insert(kmap::NAME.into(), maps.iter().map(kmap::Row::json).collect());
    }
    for (table, rows) in results {
        set.checks.insert(table.name.into(), rows.iter().map(Row::json).collect());
    }
    let asked = tables.iter().map(|table| table.cases.len()).sum::<usize>() * args.runs as usize;
    let done: usize = results.iter().flat_map(|(_, rows)| rows).map(|row| row.base.len()).sum();
    let lacks_maps = maps.is_some_and(|maps| maps.first().map_or(0, kmap::Row::nr_seeds) < args.runs as usize);
    if done == asked && lacks_maps {
        set.mark_interrupted("some runs of the kernel maps are missing");
    }
    if done < asked {
        set.mark_interrupted(format_args!("interrupted after {done} of {asked} pairs of runs"));
    }
    set
}

/// Writes the tables, and the machines' parameters behind them.
fn write(results: &[(&Table, Vec<Row>)], maps: &[kmap::Row], out: &mut dyn Write) -> io::Result<()> {
    results.iter().try_for_each(|(table, rows)| reproduce::write(table, rows, out))?;
    if !maps.is_empty() {
        kmap::write(maps, out)?;
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
