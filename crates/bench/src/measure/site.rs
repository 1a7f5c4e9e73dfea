//! What a run's threads do with the machine that carries them: where they run, and what kept them from running.

use faultless_linux::space::{Affinity, RunDelay};

/// The machine beneath a run's threads. What it says unless it knows better is true where time is virtual.
pub trait Site: Sync {
    /// Readies the calling thread, worker `worker` of `nr_workers`.
    fn settle(&self, _worker: usize, _nr_workers: usize) {}
    /// Begins to count what the calling thread waits for a CPU.
    fn begin(&self) -> Option<RunDelay> {
        None
    }
    /// Returns whether frames are to be touched beforehand, because touching host memory first takes the host's time.
    fn has_cold_memory(&self) -> bool {
        false
    }
    /// Returns the bytes of memory that the machine has at least, whatever the workload needs.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// No real machine: time is virtual, or nobody asks.
#[derive(Clone, Copy, Debug)]
pub struct NoSite;

impl Site for NoSite {}

/// Bytes of memory for each CPU that a simulated machine has. How much a CPU may keep of free frames follows from all
/// memory (docs/scaling.md): in one that is as small as the workload it would be far less than on a real machine.
/// Servers have more; but here each 4 MiB that nobody touches still take a page of the host's for their metadata.
const SIMULATED_BYTES_EACH_CPU: usize = 64 << 20;

/// A simulated machine, all of whose memory is there however few of its CPUs are used.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedSite {
    nr_cpus: usize,
}

impl SimulatedSite {
    /// Returns the site of a machine of that many CPUs, used or not.
    pub fn new(nr_cpus: usize) -> Self {
        Self { nr_cpus }
    }
}

impl Site for SimulatedSite {
    fn memory_bytes(&self) -> usize {
        self.nr_cpus * SIMULATED_BYTES_EACH_CPU
    }
}

/// Whether workers stay on one CPU each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// If there are enough CPUs.
    #[default]
    IfEnough,
    /// Always: with too few CPUs several workers share one.
    Always,
    /// Never: the kernel's scheduler chooses among as many CPUs as the run has.
    Never,
}

/// The host.
#[derive(Clone, Debug)]
pub struct HostSite {
    affinity: Option<Affinity>,
    pinning: Pinning,
    cpus: usize,
}

impl HostSite {
    /// Returns the host for a run on so many of its CPUs.
    pub fn new(pinning: Pinning, cpus: usize) -> Self {
        Self { affinity: Affinity::of_this_thread().ok(), pinning, cpus }
    }
}

impl Site for HostSite {
    fn settle(&self, worker: usize, nr_workers: usize) {
        let Some(affinity) = &self.affinity else { return };
        let is_pinned = match self.pinning {
            Pinning::IfEnough => nr_workers <= affinity.nr_cpus().min(self.cpus),
            Pinning::Always => true,
            Pinning::Never => false,
        };
        // What the kernel refuses is no worse than not asking; the run delay tells.
        let _ = if is_pinned { affinity.pin(worker % self.cpus) } else { affinity.keep_to(self.cpus) };
    }

    fn begin(&self) -> Option<RunDelay> {
        RunDelay::begin()
    }

    fn has_cold_memory(&self) -> bool {
        true
    }
}
