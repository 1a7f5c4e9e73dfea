//! Counting what happens in a workload or a replayed trace, as `perf stat` does for a program.
//!
//! # Guarantee
//! * I1 a count is exact: of the virtual memory's events in the run's window, or the host kernel's own count
//! * I2 what a design, a platform or a kernel does not count is `None`, never 0
//! * I3 a run is watched only if locks or a stream were asked for; then its times include what watching takes
//!
//! # Rooms
//! `vm` runs on the virtual memory, `host` on the host's kernel, which counts in `sources`; this file does it in turn.

mod host;
mod sources;
mod vm;

use std::fmt;
use std::io::Write;

use faultless_linux::space::has_interrupt;
use faultless_trace::Trace;
use faultless_vm::PlacementPolicy;
use faultless_workloads::Spec;

use crate::measure::Mode;
use crate::{high, kmap};
use faultless_machine::designs::HOST_DESIGN;
use faultless_machine::simulated::MachineChoice;
use faultless_machine::watch::LockTable;
use faultless_plan::Plan;
use faultless_results::stats::Random;

/// What runs.
pub enum Subject {
    /// A workload, for so long, with its workers in that mode.
    Workload {
        /// Which, with its flags.
        spec: Box<Spec>,
        /// For how long.
        duration_ns: u64,
        /// Whether workers share an address space.
        mode: Mode,
    },
    /// Kernel maps by themselves.
    KernelMaps {
        /// The name, with flags.
        name: String,
        /// The scheme.
        scheme: String,
        /// What each thread does.
        load: Box<kmap::Load>,
    },
    /// A recorded program.
    Trace {
        /// Its name.
        name: String,
        /// The recording.
        trace: Box<Trace>,
        /// What its threads do.
        plan: Box<Plan>,
    },
}

impl Subject {
    /// Returns the name in results.
    pub fn name(&self) -> &str {
        match self {
            Self::Workload { spec, .. } => &spec.name,
            Self::KernelMaps { name, .. } | Self::Trace { name, .. } => name,
        }
    }

    /// Returns how the workers share memory.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Workload { spec, .. } if spec.workload.is_recorded() => Mode::Processes,
            Self::Workload { mode, .. } => *mode,
            Self::KernelMaps { load, .. } if load.processes => Mode::Processes,
            Self::KernelMaps { .. } => Mode::Threads,
            Self::Trace { plan, .. } if plan.has_shared_spaces => Mode::Threads,
            Self::Trace { .. } => Mode::Processes,
        }
    }

    /// Returns how many workers run on so many CPUs, if it is not one for each.
    pub fn workers(&self, cpus: usize) -> Option<usize> {
        match self {
            Self::Workload { spec, .. } => Some(spec.nr_workers(cpus)).filter(|workers| *workers != cpus),
            Self::KernelMaps { .. } | Self::Trace { .. } => None,
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subject({})", self.name())
    }
}

/// What stands for the design where there is no address space.
pub const NO_DESIGN: &str = "-";

/// Whether locks are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locks {
    /// They are.
    Watched,
    /// They are not.
    #[default]
    Unwatched,
}

/// What to count, and under what.
#[derive(Debug)]
pub struct Setup {
    /// What runs.
    pub subject: Subject,
    /// The machine.
    pub machine: MachineChoice,
    /// Designs by name; [`HOST_DESIGN`] is the host's kernel.
    pub designs: Vec<String>,
    /// Semaphores by name.
    pub semaphores: Vec<String>,
    /// CPUs; one arm for each number.
    pub cpus: Vec<usize>,
    /// Events, by names of [`faultless_machine::events::names`].
    pub events: Vec<&'static str>,
    /// Runs of each arm.
    pub runs: usize,
    /// Draws the order of the arms; on a simulated machine the first run's seed.
    pub seed: u64,
    /// Whether locks are watched.
    pub locks: Locks,
    /// Physical memory; as much as the subject needs unless said.
    pub memory_bytes: Option<usize>,
    /// Where a workload's address spaces put mappings.
    pub placement: PlacementPolicy,
    /// What of it has no addresses, if anything; of workloads on simulated machines.
    pub high: Option<high::Memory>,
    /// Whether compilers compute as recorded, where memory is high.
    pub pace: faultless_plan::Pace,
}

/// One way to run the subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The design.
    pub design: String,
    /// The semaphore; the host has its own.
    pub semaphore: Option<String>,
    /// CPUs.
    pub cpus: usize,
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.design.as_str() {
            NO_DESIGN => write!(f, "no design")?,
            design => write!(f, "{design}")?,
        }
        self.semaphore.iter().try_for_each(|semaphore| write!(f, " over {semaphore}"))?;
        write!(f, " on {} {}", self.cpus, if self.cpus == 1 { "CPU" } else { "CPUs" })
    }
}

/// What was counted in a run.
#[derive(Clone, Debug, Default)]
pub struct RunCounts {
    /// How long the run was.
    pub elapsed_ns: u64,
    /// Operations of a workload.
    pub ops: Option<u64>,
    /// Operations of a workload in a second, as `bench` counts them: what it puts aside between rounds is left out.
    pub ops_per_s: Option<f64>,
    /// Page faults, whether chosen or not; nothing where nobody counts.
    pub faults: Option<u64>,
    /// The chosen events, in order; nothing where nobody counts (I2).
    pub counts: Vec<Option<u64>>,
    /// All counters, in the form of `/proc/vmstat`.
    pub vmstat: Vec<(String, u64)>,
    /// What locks cost, if they were watched.
    pub locks: Option<LockTable>,
}

/// An arm's runs, in order.
#[derive(Debug)]
pub struct ArmResult {
    /// Which arm.
    pub arm: Arm,
    /// What came out, run by run.
    pub runs: Vec<RunCounts>,
    /// Why the arm has fewer runs than asked for.
    pub error: Option<String>,
}

/// What came out of all arms.
#[derive(Debug)]
pub struct Outcome {
    /// Arm by arm, in the order in which they were asked for.
    pub arms: Vec<ArmResult>,
    /// Whether somebody ended it early.
    pub was_interrupted: bool,
}

/// Where the stream of events goes, if there is one.
pub type Tap = Box<dyn Write + Send>;

impl Setup {
    /// Returns the arms, in the order in which they are reported.
    pub fn arms(&self) -> Vec<Arm> {
        let mut arms = Vec::new();
        for (&cpus, design) in self.cpus.iter().flat_map(|cpus| self.designs.iter().map(move |design| (cpus, design))) {
            let semaphores: Vec<Option<String>> = match design.as_str() {
                HOST_DESIGN | NO_DESIGN => vec![None],
                _ => self.semaphores.iter().cloned().map(Some).collect(),
            };
            arms.extend(semaphores.into_iter().map(|semaphore| Arm { design: design.clone(), semaphore, cpus }));
        }
        arms
    }

    /// Runs an arm once.
    fn once(&self, arm: &Arm, number: usize, tap: Option<Tap>) -> Result<RunCounts, String> {
        match (arm.design == HOST_DESIGN, self.machine.simulated()) {
            (true, Some(spec)) => Err(format!("the host's kernel can't run on {}, which is simulated", spec.name())),
            (true, None) => host::once(self, arm),
            (false, _) => vm::once(self, arm, self.seed.wrapping_add(number as u64), tap),
        }
    }
}

/// Runs every arm in turn, in an order that the seed draws anew for each run; `tap` opens the stream of a run's events,
/// if one is wanted.
pub fn run(setup: &Setup, tap: &dyn Fn(&Arm, usize) -> Option<Tap>, progress: &dyn Fn(usize)) -> Outcome {
    let arms = setup.arms().into_iter();
    let mut results: Vec<ArmResult> = arms.map(|arm| ArmResult { arm, runs: Vec::new(), error: None }).collect();
    let mut random = Random::new(setup.seed);
    let mut made = 0;
    for number in 0..setup.runs {
        let mut order: Vec<usize> = (0..results.len()).collect();
        random.shuffle(&mut order);
        for place in order {
            let result = &mut results[place];
            if result.error.is_none() && !has_interrupt() {
                match setup.once(&result.arm, number, tap(&result.arm, number)) {
                    Ok(counts) => result.runs.push(counts),
                    Err(_) if has_interrupt() => {}
                    Err(error) => result.error = Some(error),
                }
            }
            made += 1;
            progress(made);
        }
    }
    Outcome { arms: results, was_interrupted: has_interrupt() }
}
