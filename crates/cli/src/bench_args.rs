//! What `bench` is told.

use clap::{Args, ValueEnum};
use faultless_bench::spread::Draws;
use faultless_machine::simulated::MachineChoice;
use indicatif::ProgressBar;

use crate::high_args::HighArgs;
use crate::kmap_args::KmapArgs;
use crate::machine::MachineArgs;
use crate::message::Failure;
use crate::output::OutputArgs;
use crate::placement::PlacementArgs;
use crate::rwsem_args::RwsemArgs;
use crate::{duration, progress, size};

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
  faultless bench rwsem --machine skylake-192 --cpus 192 --grid -r 4 -d 20ms
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
    pub(crate) workloads: Vec<String>,

    /// Flags of the last workload.
    #[arg(last = true, value_name = "FLAGS", allow_hyphen_values = true, hide = true)]
    pub(crate) flags: Vec<String>,

    /// Variants of the workload `refpage`, each with few and with all pages stored to, loaded, and loaded and then
    /// stored to, again in memory that is used anew, and for a recorded PDF renderer's blocks; the host's kernel has
    /// none but the first two. Example: --variant anon,memset,refpage,pattern
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) variant: Vec<String>,

    /// Orders in which the workload `pagefaults` accesses memory: sequential, random, stride=SIZE.
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub(crate) pattern: Vec<String>,

    /// How the workload `pagefaults` accesses memory: read, write.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub(crate) access: Vec<String>,

    /// What the workload `pagefaults` maps: private (anonymous memory), shared (a file).
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub(crate) mapping: Vec<String>,

    /// Designs to compare; all of them and the host's kernel unless named. Example: --design mmap-sem,linux
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) design: Vec<String>,

    /// Semaphores beneath the designs; unless named rwsem-v8, under faultless rwsem-v8+bravo, and for the workload
    /// rwsem all. Example: --semaphore rwsem-2012,rwsem-v8
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
    pub(crate) cpus: Vec<u16>,

    /// Runs of each design before those that count; none on a simulated machine, where every run begins alike. Example:
    /// -w 3
    #[arg(short, long, value_name = "RUNS", default_value_t = 1)]
    pub(crate) warm_up: u32,

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
    pub(crate) at_most: Option<u64>,

    /// On a simulated machine, say beside the curve what is linear: one CPU's rate times cores, times 2 /
    /// sibling_slowdown where both threads of a core run, or what the memory bus lets through of zeroed pages,
    /// whichever is less. Measures one CPU, too.
    #[arg(long)]
    pub(crate) ceiling: bool,

    /// Give each worker an address space of its own, instead of making all of them threads of one.
    #[arg(long)]
    pub(crate) processes: bool,

    /// Keep each worker on one CPU: if there are enough CPUs (auto, unless said), always (--pin alone), or never.
    /// Example: --pin=never
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true, default_value = "auto", default_missing_value = "always")]
    pub(crate) pin: Pin,

    /// Only workloads whose names contain this, or match it if it holds * or ?. Example: --filter 'page_fault?'
    #[arg(long, value_name = "PATTERN")]
    pub(crate) filter: Option<String>,

    /// Only print which workloads would run.
    #[arg(long)]
    pub(crate) list: bool,

    /// Draws the order of the designs in each run; on a simulated machine the first run's seed. Example: --seed 7
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) placement: PlacementArgs,

    /// Physical memory of the virtual memories; as much as each workload needs unless said. Example: --memory 2G
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    pub(crate) memory: Option<usize>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Whether workers stay on one CPU each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pin {
    /// If there are enough CPUs.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl BenchArgs {
    /// Returns the workloads as they were given, with the flags of the last one.
    pub(crate) fn spelled(&self) -> String {
        self.workloads.iter().chain(&self.flags).map(String::as_str).collect::<Vec<_>>().join(" ")
    }
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

/// Returns a bar that is shown on a terminal only.
pub(crate) fn progress_bar(runs: usize) -> ProgressBar {
    let style = progress::style("measuring [{bar:40}] run {pos} of {len}, {eta} left: {msg}");
    ProgressBar::new(runs as u64).with_style(style)
}
