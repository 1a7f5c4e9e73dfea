//! `faultless check calibration`: does the simulation of this machine agree with it?

use faultless_machine::info;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use faultless_bench::calibrate::check::{CalibrationSetup, HEADINGS, agreement};
use faultless_linux::space::on_interrupt;
use faultless_machine::designs::DESIGNS;
use faultless_machine::host;
use faultless_machine::simulated::HERE;
use faultless_replay::AllDesigns;
use faultless_results::ResultSet;
use faultless_workloads::Spec as Workload;

use crate::choose::distinct;
use crate::message::{Color, Failure, Tone, say};
use crate::output::{OutputArgs, Table, exit_code};
use crate::{duration, machine};

/// The arguments of `check calibration`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless machines calibrate && faultless check calibration
  faultless check calibration --workload page_fault1,brk1 --design mmap-sem -r 15

Each cell, a workload under a design on 1 and 2 CPUs, runs on this machine and on its simulation, with the same sizes. \
The check holds if 90 % of the cells are within 25 % of each other and their geometric mean within 10 %; cells that sleep \
are shown apart: a wake-up in a virtual machine has two speeds. What a line takes from one CPU to the other is measured again \
beside each row of two CPUs (column line): the host of a virtual machine moves its CPUs.

The exit code is 0 if it holds, 1 if it does not.")]
pub struct CalibrationArgs {
    /// The simulated machine. Example: --machine here
    #[arg(long, value_name = "NAME|FILE", default_value = HERE)]
    machine: String,

    /// Workloads; those that `bench` measures by itself unless named. Example: --workload page_fault1,mmap1
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workload: Vec<String>,

    /// Designs; all of them unless named. Example: --design mmap-sem,vma-lock
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(DESIGNS), default_values = DESIGNS, hide_default_value = true)]
    design: Vec<String>,

    /// Runs of each cell on this machine. Example: -r 15
    #[arg(short, long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 7)]
    runs: u32,

    /// How long each run on this machine is. Example: -d 200ms
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse, default_value = "50ms")]
    duration: u64,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the subcommand.
pub fn run(args: &CalibrationArgs, color: Color) -> Result<ExitCode, Failure> {
    let choice = machine::find(&args.machine)?;
    let Some(spec) = choice.simulated() else {
        return Err(Failure::usage("native is this machine itself: compare it with a simulated one, such as here"));
    };
    args.output.prepare()?;
    let most = host::cpus().min(spec.nr_cpus()).min(2);
    let setup = CalibrationSetup {
        machine: spec.clone(),
        workloads: workloads(args)?,
        designs: distinct(&args.design),
        cpus: (1..=most).collect(),
        runs: args.runs as usize,
        duration_ns: args.duration,
        replayer: &AllDesigns,
    };
    on_interrupt();
    let outcome = agreement(&setup, &|what| say(color, Tone::Note, what)).map_err(Failure::new)?;
    let mut set = ResultSet::new("check calibration", 1, info::of(&choice));
    set.checks = outcome.checks();
    let asked = setup.workloads.len() * setup.designs.len() * setup.cpus.len();
    if outcome.cells.len() < asked {
        set.mark_interrupted(format_args!("interrupted after {} of {asked} cells", outcome.cells.len()));
    }
    let table = Table { headings: &HEADINGS, rows: &outcome.fields() };
    args.output.hand_out_table(&set, &table, |out: &mut dyn Write| outcome.write(out), color)?;
    Ok(exit_code(&set, if outcome.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// What is compared unless something is named.
const SELECTION: &[&str] = &["page_fault1", "page_fault2", "malloc1", "mmap1", "tlb_flush2", "ebizzy"];

fn workloads(args: &CalibrationArgs) -> Result<Vec<Workload>, Failure> {
    let names: Vec<&str> = match args.workload.as_slice() {
        [] => SELECTION.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    names.into_iter().map(|name| Workload::parse(name).map_err(Failure::usage)).collect()
}
