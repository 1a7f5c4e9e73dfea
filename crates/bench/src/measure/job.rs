//! One run: what to make, what it measured, why it came to no result.

use std::fmt;

use faultless_linux::space::ChildError;
use faultless_pass::Replayer;
use faultless_phys::SetupError;
use faultless_platform::MAX_CPUS;
use faultless_platform::native::ReserveError;
use faultless_sim::{Failure, Profile, TooManyCpus};
use faultless_vm::PlacementPolicy;
use faultless_vm::check::Broken;
use faultless_vm::registry::Unknown;
use faultless_workloads::{Refused, Spec};

use faultless_results::stats::Histogram;
use faultless_results::{Mode, exact_bytes};

use super::course::Settled;

/// How long a run is in a machine's own time that neither goes on until its rates have settled nor was told.
pub const SIMULATED_NS: u64 = 4_000_000;

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many ns, from the start on.
    Fixed(u64),
    /// Until its rates have settled, at most so many ns. Of a whole program, which has no rate before it has ended, the
    /// usual time.
    Settled {
        /// The limit.
        at_most_ns: u64,
    },
}

impl Length {
    /// Returns how long something runs that can't settle.
    pub(crate) fn least_ns(self) -> u64 {
        match self {
            Self::Fixed(ns) => ns,
            Self::Settled { at_most_ns } => at_most_ns.min(SIMULATED_NS),
        }
    }
}

/// One run to make.
#[derive(Clone, Debug)]
pub struct Job {
    /// The workload, with its flags.
    pub spec: Spec,
    /// The design.
    pub design: String,
    /// The semaphore beneath it; the host has its own.
    pub semaphore: String,
    /// CPUs.
    pub cpus: usize,
    /// Whether workers share an address space.
    pub mode: Mode,
    /// How long the workers work.
    pub length: Length,
    /// Physical memory; as much as the workload needs unless said.
    pub memory_bytes: Option<usize>,
    /// Where address spaces put mappings; the host has its own policy.
    pub placement: PlacementPolicy,
    /// Who replays recordings; a workload that is one needs it.
    pub replayer: Option<&'static dyn Replayer>,
}

impl Job {
    /// Returns how many workers the job has.
    pub fn nr_workers(&self) -> usize {
        self.spec.nr_workers(self.cpus)
    }

    /// Returns how many address spaces there are, and how many workers each has.
    pub(super) fn spaces(&self) -> (usize, usize) {
        spaces_of(self.mode, self.nr_workers())
    }
}

/// Returns how many address spaces so many workers have, and how many workers each.
pub(super) const fn spaces_of(mode: Mode, nr_workers: usize) -> (usize, usize) {
    match mode {
        Mode::Threads => (1, nr_workers),
        Mode::Processes => (nr_workers, 1),
    }
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Run {
    /// From the first worker's begin to the last one's end.
    pub elapsed_ns: u64,
    /// Operations of all workers.
    pub ops: u64,
    /// How many workers there were.
    pub workers: usize,
    /// How many CPUs they could run on at once.
    pub cpus: usize,
    /// Operations in a second of the window, without what was put aside.
    pub ops_per_s: f64,
    /// How long a step took; of the steps of short ones some are timed.
    pub latency: Histogram,
    /// What was counted in the windows.
    pub counters: Vec<(&'static str, u64)>,
    /// What workers waited for the address-space locks; unknown on the host.
    pub lock_wait_ns: Option<u64>,
    /// The largest resident sizes of the address spaces, added up; unknown on the host.
    pub peak_rss_bytes: Option<u64>,
    /// What workers waited for a CPU; unknown where nobody tells.
    pub run_delay_ns: Option<u64>,
    /// What came of it, if it was to go on until its rates have settled; then operations, latencies and counters are of
    /// its warm-up too.
    pub settled: Option<Settled>,
    /// What became of pages that were zeroed or copied; unknown but on a simulated machine.
    pub pages: Option<Pages>,
    /// Where the workers' time went; unknown but on a simulated machine.
    pub profile: Option<Profile>,
}

/// Pages that a run and its preparations zeroed or copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// All of them.
    pub filled: u64,
    /// Those that missed the caches.
    pub missed: u64,
    /// Pages that went through the memory buses for that; of a copy its source, too.
    pub moved: u64,
}

/// Of the workers' time, what waiting for a CPU may take before a run counts as disturbed.
const DISTURBED_SHARE: f64 = 0.02;

impl Run {
    /// Returns whether the rate may be judged: it was asked for as it is, or the run's halves agree.
    pub fn has_converged(&self) -> bool {
        self.settled.is_none_or(|settled| settled.has_converged)
    }

    /// Returns whether the workers were kept waiting for CPUs so long that the result is less than it seems: longer
    /// than those must wait who are more than the CPUs.
    pub fn is_disturbed(&self) -> bool {
        let workers = self.workers as f64;
        let must_wait = (workers - self.cpus as f64).max(0.0) / workers.max(1.0);
        let busy_ns = self.elapsed_ns as f64 * workers;
        self.run_delay_ns.is_some_and(|delay_ns| delay_ns as f64 > busy_ns * (must_wait + DISTURBED_SHARE))
    }
}

/// Why a run came to no result.
#[derive(Debug)]
pub enum MeasureError {
    /// The design or the semaphore has a name that nobody knows.
    Unknown(Unknown),
    /// The host gave no room for the physical memory.
    Reserve(ReserveError),
    /// The physical memory can't be set up.
    Setup(SetupError),
    /// A worker could not go on.
    Refused {
        /// Why.
        cause: Refused,
        /// The physical memory; nothing on the host.
        memory_bytes: Option<usize>,
    },
    /// An invariant of the instance does not hold at the end.
    Broken(Broken),
    /// Frames were left over when all spaces and files had gone.
    Leak {
        /// How many.
        frames: u64,
    },
    /// The host's measuring process failed.
    Child(ChildError),
    /// The host's measuring process said something that is no result.
    Message(String),
    /// The simulated machine has not so many CPUs.
    TooManyCpus(TooManyCpus),
    /// The host has less free memory than the run would touch.
    HostMemory {
        /// What it would touch.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// So many threads in one process can't be measured.
    TooManyThreads(usize),
    /// A panic or a deadlock on the simulated machine.
    Simulation(Failure),
    /// The run was interrupted.
    Interrupted,
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "{name}"),
            Self::Reserve(error) => write!(f, "{error}"),
            Self::Setup(error) => write!(f, "{error}"),
            Self::Refused { cause: Refused::OutOfFrames, memory_bytes: Some(bytes) } => {
                let bytes = exact_bytes(*bytes as u64);
                write!(f, "out of frames: {bytes} are too few; give it more with --memory")
            }
            Self::Refused { cause, .. } => write!(f, "{cause}"),
            Self::Broken(broken) => write!(f, "at the end {broken}"),
            Self::Leak { frames } => write!(f, "{frames} frames were not given back at the end"),
            Self::Child(error) => write!(f, "{error}"),
            Self::Message(what) => write!(f, "the measuring process gave no result: {what}"),
            Self::TooManyCpus(error) => write!(f, "{error}"),
            Self::HostMemory { needed_bytes, available_bytes } => {
                let (needed, available) = (needed_bytes >> 20, available_bytes >> 20);
                write!(
                    f,
                    "it needs {needed} MiB, and this machine has {available} MiB left: make it smaller (of a virtual memory, \
                     --memory says how much it gets)"
                )
            }
            Self::TooManyThreads(threads) => {
                write!(f, "{threads} threads: of one process at most {MAX_CPUS} are measured")
            }
            Self::Simulation(failure) => write!(f, "{failure}"),
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}

impl std::error::Error for MeasureError {}
