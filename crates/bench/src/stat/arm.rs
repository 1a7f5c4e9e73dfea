//! What is counted, under what, and what came out of a run.

use std::fmt;
use std::io::Write;

use faultless_trace::Trace;
use faultless_vm::PlacementPolicy;
use faultless_workloads::Spec;

use crate::measure::Mode;
use crate::{high, kmap};
use faultless_machine::designs::{placement_beneath, semaphores_beneath};
use faultless_machine::simulated::MachineChoice;
use faultless_machine::watch::LockTable;
use faultless_pass::Replayer;
use faultless_plan::Plan;

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
        load: Box<kmap::KmapLoad>,
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
pub struct StatSetup {
    /// What runs.
    pub subject: Subject,
    /// The machine.
    pub machine: MachineChoice,
    /// Designs by name; [`HOST_DESIGN`](faultless_machine::designs::HOST_DESIGN) is the host's kernel.
    pub designs: Vec<String>,
    /// Semaphores by name; none: each design has its own.
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
    /// Where a workload's address spaces put mappings; where the design does unless said.
    pub placement: Option<PlacementPolicy>,
    /// What of it has no addresses, if anything; of workloads on simulated machines.
    pub high: Option<high::Memory>,
    /// Whether compilers compute as recorded, where memory is high.
    pub pace: faultless_plan::Pace,
    /// Who replays recordings.
    pub replayer: &'static dyn Replayer,
}

/// One way to run the subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatArm {
    /// The design.
    pub design: String,
    /// The semaphore; the host has its own.
    pub semaphore: Option<String>,
    /// CPUs.
    pub cpus: usize,
}

impl fmt::Display for StatArm {
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

/// Where the stream of events goes, if there is one.
pub type Tap = Box<dyn Write + Send>;

impl StatSetup {
    /// Returns the arms, in the order in which they are reported.
    pub fn arms(&self) -> Vec<StatArm> {
        let mut arms = Vec::new();
        for (&cpus, design) in self.cpus.iter().flat_map(|cpus| self.designs.iter().map(move |design| (cpus, design))) {
            let semaphores = match design.as_str() {
                NO_DESIGN => vec![None],
                design => semaphores_beneath(design, &self.semaphores),
            };
            arms.extend(semaphores.into_iter().map(|semaphore| StatArm { design: design.clone(), semaphore, cpus }));
        }
        arms
    }

    /// Returns where a design's address spaces put a workload's mappings.
    pub fn placement_under(&self, design: &str) -> PlacementPolicy {
        placement_beneath(design, self.placement)
    }
}
