//! From what the probes say to a machine file.

use std::fmt;

use faultless_platform::Ordering;
use faultless_platform::native::{HostRegion, Machine as NativeMachine, Native, ReserveError};
use faultless_sim::{Failure, Machine, Sim, Spec, SpecError, TooManyCpus, isolate};
use faultless_workloads::Spec as Workload;

use super::probes::{Bench, Copying};
use crate::experiment::DEFAULT_SEMAPHORE;
use crate::measure::{HostSite, Job, MeasureError, Mode, NoSite, Pinning, SIMULATED_NS, once, once_simulated, shrunk};
use crate::simulated::HERE;
use crate::stats::median;

/// What the cost of instructions is fitted on: these workloads, under `mmap-sem`, on one CPU.
pub const FITTED_ON: &[&str] = &["page_fault1", "mmap1"];

/// Pages that fit no cache, and pages that fit all of them.
const MANY_PAGES: usize = 64 << 10;
const FEW_PAGES: usize = 64;
/// How long the workloads run on this machine, and how often.
const NATIVE_NS: u64 = 100_000_000;
const NATIVE_RUNS: usize = 5;
/// Steps of a search for a number that can't be measured.
const STEPS: usize = 12;

/// Why this machine was not measured.
#[derive(Debug)]
pub enum CalibrateError {
    /// The host gave no room for pages.
    Reserve(ReserveError),
    /// What was measured makes no machine.
    Spec(SpecError),
    /// A simulation failed.
    Simulation(Failure),
    /// A workload failed.
    Measure(MeasureError),
}

impl fmt::Display for CalibrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve(error) => write!(f, "{error}"),
            Self::Spec(error) => write!(f, "what was measured makes no machine: {error}; is something else running?"),
            Self::Simulation(failure) => write!(f, "{failure}"),
            Self::Measure(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for CalibrateError {}

impl From<SpecError> for CalibrateError {
    fn from(error: SpecError) -> Self {
        Self::Spec(error)
    }
}

impl From<Failure> for CalibrateError {
    fn from(failure: Failure) -> Self {
        Self::Simulation(failure)
    }
}

/// Measures this machine; `progress` is told what comes next.
pub fn calibrate(progress: &dyn Fn(&str)) -> Result<Spec, CalibrateError> {
    let cpus = crate::host::cpus();
    let base = Spec::preset(HERE).ok_or_else(|| SpecError::BadName { name: HERE.into() })?;
    let mut file = File { spec: base };
    file.set("topology.cores_per_complex", cpus as f64, "the CPUs that this process may use")?;
    progress("accesses of one CPU");
    file.measure_alone()?;
    progress("zeroing and copying pages");
    file.measure_pages()?;
    if cpus > 1 {
        progress("lines that go from one CPU to another");
        file.measure_transfers()?;
        progress("sleeping and waking");
        file.measure_wake()?;
    }
    progress("instructions");
    file.fit_instructions()?;
    Ok(file.spec)
}

const MEASURED: &str = "measured by `machines calibrate`";

/// The machine file as it grows.
struct File {
    spec: Spec,
}

impl File {
    fn set(&mut self, key: &str, value: f64, source: &str) -> Result<(), CalibrateError> {
        let rounded = (value.max(0.0) * 1000.0).round() / 1000.0;
        self.spec = self.spec.clone().with_number(key, rounded, source)?;
        Ok(())
    }

    fn number(&self, wanted: &str) -> f64 {
        let mut value = 0.0;
        self.spec.for_each_number(|key, number| {
            if key == wanted {
                value = number.value;
            }
        });
        value
    }

    fn measure_alone(&mut self) -> Result<(), CalibrateError> {
        let (load, rmw, store_fence, clock) =
            native(1, |bench| (bench.load(), bench.rmw(), bench.store_fence(), bench.clock()));
        self.set("cpu.load_ns", load, MEASURED)?;
        self.set("cpu.store_ns", load, "taken to be that of a load")?;
        self.set("cpu.rmw_ns", rmw, MEASURED)?;
        self.set(
            "cpu.fence_ns",
            store_fence - load,
            "measured by `machines calibrate`: a store and a fence, less a store",
        )?;
        self.set("cpu.clock_ns", clock, MEASURED)
    }

    fn measure_pages(&mut self) -> Result<(), CalibrateError> {
        let region = HostRegion::reserve(MANY_PAGES * 4096).map_err(CalibrateError::Reserve)?;
        let pages = region.base().as_ptr();
        let fill = |count, copying| native(1, |bench| bench.fill(pages, count, copying));
        // The first round lets the host give the memory its pages.
        fill(MANY_PAGES, Copying::Yes);
        for (key, count, copying) in [
            ("memory.zero_cold_ns", MANY_PAGES, Copying::No),
            ("memory.copy_cold_ns", MANY_PAGES, Copying::Yes),
            ("memory.zero_hot_ns", FEW_PAGES, Copying::No),
            ("memory.copy_hot_ns", FEW_PAGES, Copying::Yes),
        ] {
            self.set(key, fill(count, copying), MEASURED)?;
        }
        Ok(())
    }

    fn measure_transfers(&mut self) -> Result<(), CalibrateError> {
        let (read, write) = native(2, |bench| {
            let read = bench.dirty(|line| line.load(Ordering::Relaxed));
            (read, bench.dirty(|line| line.fetch_add(0, Ordering::Relaxed)))
        });
        for (table, ns) in [("read", read), ("write", write)] {
            self.set(&format!("{table}.sibling_ns"), ns, "not used: as complex_ns")?;
            self.set(&format!("{table}.complex_ns"), ns, "measured by `machines calibrate`: a chain of dirty lines")?;
            let farther = self.number(&format!("{table}.socket_ns")).max(ns);
            for key in ["socket_ns", "remote_ns", "far_ns"] {
                let value = self.number(&format!("{table}.{key}")).max(farther);
                self.set(&format!("{table}.{key}"), value, "not used: the machine has no such distance")?;
            }
        }
        let add = native(2, |bench| bench.contended_add());
        self.search("line.hold_share", (0.0, 0.95), add, |bench| bench.contended_add())?;
        let hand_off = native(2, |bench| bench.hand_off());
        self.search("line.notice_ns", (0.0, 500.0), hand_off, |bench| bench.hand_off())
    }

    fn measure_wake(&mut self) -> Result<(), CalibrateError> {
        let (wake, nobody) = native(2, |bench| (bench.wake(), bench.wake_nobody()));
        self.set("scheduler.sleep_ns", nobody, "taken to be that of waking nobody")?;
        self.set("scheduler.wake_ns", nobody, "measured by `machines calibrate`: waking nobody")?;
        self.set("scheduler.context_switch_ns", 0.0, "part of wake_latency_ns")?;
        self.search("scheduler.wake_latency_ns", (0.0, 200_000.0), wake, |bench| bench.wake())
    }

    /// Finds the number with which the simulated probe takes as long as the real one. More of any of them makes it... either way:
    /// the direction is tried first.
    fn search(
        &mut self,
        key: &str,
        range: (f64, f64),
        wanted_ns: f64,
        probe: impl Fn(&Bench<'_, Sim>) -> f64,
    ) -> Result<(), CalibrateError> {
        let (mut low, mut high) = range;
        let at = |file: &Self, value: f64| {
            let spec = file.spec.clone().with_number(key, value, "tried")?;
            Ok::<f64, CalibrateError>(simulated(&spec, 2, &probe)?)
        };
        let grows = at(self, high)? > at(self, low)?;
        for _ in 0..STEPS {
            let middle = (low + high) / 2.0;
            if (at(self, middle)? < wanted_ns) == grows {
                low = middle;
            } else {
                high = middle;
            }
        }
        let source = format!("fitted by `machines calibrate`: the probe takes {wanted_ns:.1} ns here");
        self.set(key, (low + high) / 2.0, &source)
    }

    /// Fits what the instructions between two accesses take, so that the workloads take as long as here on average.
    fn fit_instructions(&mut self) -> Result<(), CalibrateError> {
        let jobs: Vec<Job> = FITTED_ON.iter().map(|name| job(name)).collect();
        let native: Vec<f64> = jobs.iter().map(native_ns).collect::<Result<_, _>>()?;
        let (mut low, mut high) = (0.0, 20.0);
        for _ in 0..STEPS {
            let middle = (low + high) / 2.0;
            let spec = self.spec.clone().with_number("cpu.instructions_ns", middle, "tried")?;
            let excess: f64 = jobs
                .iter()
                .zip(&native)
                .map(|(job, ns)| Ok((simulated_ns(&spec, job)? / ns).ln()))
                .sum::<Result<f64, CalibrateError>>()?;
            if excess < 0.0 { low = middle } else { high = middle }
        }
        let source = format!("fitted by `machines calibrate` on {} under mmap-sem, one CPU", FITTED_ON.join(" and "));
        self.set("cpu.instructions_ns", (low + high) / 2.0, &source)
    }
}

fn job(name: &str) -> Job {
    let workload = Workload::parse(name).expect("FITTED_ON names workloads");
    Job {
        spec: shrunk(workload),
        design: "mmap-sem".into(),
        semaphore: DEFAULT_SEMAPHORE.into(),
        cpus: 1,
        mode: Mode::Threads,
        duration_ns: NATIVE_NS,
        memory_bytes: None,
    }
}

/// Nanoseconds of an operation on this machine.
fn native_ns(job: &Job) -> Result<f64, CalibrateError> {
    let site = HostSite::new(Pinning::IfEnough, 1);
    let run = |_| once::<Native>(&NativeMachine::new(1), job, &site, &|| false).map(|run| 1e9 / run.ops_per_s);
    let samples = (0..NATIVE_RUNS).map(run).collect::<Result<Vec<f64>, _>>().map_err(CalibrateError::Measure)?;
    Ok(median(&samples).unwrap_or(0.0))
}

fn simulated_ns(spec: &Spec, job: &Job) -> Result<f64, CalibrateError> {
    let job = Job { duration_ns: SIMULATED_NS, ..job.clone() };
    let (run, _) = once_simulated(spec, &job, 1, &|| false).map_err(CalibrateError::Measure)?;
    Ok(1e9 / run.ops_per_s)
}

/// Runs a probe on this machine.
fn native<R>(cpus: usize, probe: impl FnOnce(&Bench<'_, Native>) -> R) -> R {
    let site = HostSite::new(Pinning::IfEnough, cpus);
    probe(&Bench { machine: &NativeMachine::new(cpus), site: &site })
}

/// Runs a probe on a simulated machine.
fn simulated<R>(spec: &Spec, cpus: usize, probe: impl FnOnce(&Bench<'_, Sim>) -> R) -> Result<R, Failure> {
    isolate(|| {
        let machine =
            Machine::new(spec, cpus, 1).map_err(|error: TooManyCpus| Failure { message: error.to_string() })?;
        Ok(probe(&Bench { machine: &machine, site: &NoSite }))
    })?
}
