//! From what the probes say to a machine file.

use std::fmt;

use faultless_platform::native::{HostRegion, Machine as NativeMachine, Native, ReserveError};
use faultless_platform::{Ordering, PAGE_BYTES};
use faultless_sim::{Failure, Machine, Sim, Spec, SpecError, TooManyCpus, isolate};
use faultless_workloads::Spec as Workload;

use super::probes::{Bench, Copying};
use crate::measure::{
    HostSite, Job, Length, MeasureError, Mode, NoSite, Pinning, PlacementPolicy, once, once_simulated, shrunk,
};
use faultless_machine::designs::DEFAULT_SEMAPHORE;
use faultless_machine::simulated::HERE;
use faultless_results::stats::median;

/// What the cost of instructions is fitted on, under `mmap-sem`, on one CPU: the instructions before an access on
/// faults that fill no page, those that fill a line of plain memory on calls that map a file. `bench` measures neither
/// by itself.
pub const FITTED_ON: [(&str, &str); 2] = [("cpu.instructions_ns", "page_fault3"), ("cpu.fill_line_ns", "mmap2")];
/// The fits depend on each other: so many rounds.
const ROUNDS: usize = 2;

/// Pages that fit no cache, and pages that fit all of them.
const MANY_PAGES: usize = 64 << 10;
const FEW_PAGES: usize = 64;
/// Of the cache that a complex shares, what is filled to see what its pages take: guests of other machines use it too.
const SHARE_OF_CACHE: usize = 4;
/// How long the workloads run on this machine, and how often.
const NATIVE_NS: u64 = 100_000_000;
const NATIVE_RUNS: usize = 5;
/// How long the workloads run in the simulation: what is touched for the first time hardly counts then, as here.
const FITTED_NS: u64 = 10_000_000;
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
    let cpus = faultless_machine::host::cpus();
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
        progress("memory under two CPUs");
        file.measure_bandwidth()?;
        progress("sleeping and waking");
        file.measure_wake()?;
    }
    progress("instructions");
    file.fit_instructions()?;
    Ok(file.spec)
}

/// From this factor on, the CPUs are not as far from each other as they were.
const MOVED: f64 = 1.2;

/// Returns how many ns a dirty line takes from one CPU to the other here and now.
pub(super) fn distance_ns() -> f64 {
    native(2, |bench| bench.dirty(|line| line.load(Ordering::Relaxed)))
}

/// Says whether two distances are those of one placement of the CPUs.
pub(super) fn is_same_distance(one_ns: f64, other_ns: f64) -> bool {
    one_ns.max(other_ns) <= one_ns.min(other_ns) * MOVED
}

/// Measures anew what lines take that go from one CPU to another: the host of a virtual machine moves its CPUs.
pub(super) fn with_transfers(spec: &Spec) -> Result<Spec, CalibrateError> {
    let mut file = File { spec: spec.clone() };
    file.measure_transfers()?;
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
        self.spec.number(wanted).unwrap_or(0.0)
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
        let region = HostRegion::reserve(MANY_PAGES * PAGE_BYTES).map_err(CalibrateError::Reserve)?;
        let pages = region.base().as_ptr();
        let fill = |count, copying| native(1, |bench| bench.fill(pages, count, copying));
        // The first round lets the host give the memory its pages.
        fill(MANY_PAGES, Copying::Yes);
        let warm_pages = self.set_caches()?;
        for (key, count, copying) in [
            ("memory.zero_cold_ns", MANY_PAGES, Copying::No),
            ("memory.copy_cold_ns", MANY_PAGES, Copying::Yes),
            ("memory.zero_warm_ns", warm_pages, Copying::No),
            ("memory.copy_warm_ns", warm_pages, Copying::Yes),
            ("memory.zero_hot_ns", FEW_PAGES, Copying::No),
            ("memory.copy_hot_ns", FEW_PAGES, Copying::Yes),
        ] {
            self.set(key, fill(count, copying), MEASURED)?;
        }
        Ok(())
    }

    /// Notes how large the caches are, as the host says; returns how many pages are warm without being hot.
    fn set_caches(&mut self) -> Result<usize, CalibrateError> {
        let source = "/sys/devices/system/cpu/cpu0/cache";
        let (own, shared) = (faultless_machine::host::cache_kib(2), faultless_machine::host::cache_kib(3));
        if let Some(kib) = own {
            self.set("memory.cache_kib_per_core", kib as f64, source)?;
        }
        // Without a shared cache no page is ever warm.
        self.set("memory.cache_kib_per_complex", shared.unwrap_or(0) as f64, source)?;
        Ok(shared.map_or(MANY_PAGES, |kib| kib * 1024 / PAGE_BYTES / SHARE_OF_CACHE))
    }

    /// Two CPUs that fill cold pages at once have as much of the memory's bandwidth as they get.
    fn measure_bandwidth(&mut self) -> Result<(), CalibrateError> {
        let region = HostRegion::reserve(MANY_PAGES * PAGE_BYTES).map_err(CalibrateError::Reserve)?;
        let pages = region.base().as_ptr();
        let ns = native(2, |bench| bench.fill_both(pages, MANY_PAGES));
        let gb_per_s = 2.0 * PAGE_BYTES as f64 / ns;
        self.set("memory.bandwidth_gb_per_s", gb_per_s, "measured by `machines calibrate`: two CPUs zero cold pages")
    }

    fn measure_transfers(&mut self) -> Result<(), CalibrateError> {
        let (read, write) = native(2, |bench| {
            let read = bench.dirty(|line| line.load(Ordering::Relaxed));
            (read, bench.dirty(|line| line.fetch_add(0, Ordering::Relaxed)))
        });
        self.set_distance("read", read)?;
        self.set_distance("write", write)?;
        let add = native(2, |bench| bench.contended_add());
        self.search("line.hold_share", (0.0, 0.95), add, |bench| bench.contended_add())?;
        let hand_off = native(2, |bench| bench.hand_off());
        self.search("line.notice_ns", (0.0, 500.0), hand_off, |bench| bench.hand_off())
    }

    /// Notes what a line takes from one CPU to the other, from far to near: nothing near may cost more than what is
    /// farther away.
    fn set_distance(&mut self, table: &str, ns: f64) -> Result<(), CalibrateError> {
        for key in ["far_ns", "remote_ns", "socket_ns"] {
            let key = format!("{table}.{key}");
            self.set(&key, self.number(&key).max(ns), "not used: the machine has no such distance")?;
        }
        // The nearer one first if both come nearer, and last if both go farther.
        let sibling = self.number(&format!("{table}.sibling_ns")).min(ns);
        self.set(&format!("{table}.sibling_ns"), sibling, "not used: as complex_ns")?;
        self.set(&format!("{table}.complex_ns"), ns, "measured by `machines calibrate`: a chain of dirty lines")?;
        self.set(&format!("{table}.sibling_ns"), ns, "not used: as complex_ns")
    }

    fn measure_wake(&mut self) -> Result<(), CalibrateError> {
        let (wake, nobody) = native(2, |bench| (bench.wake(), bench.wake_nobody()));
        self.set("scheduler.sleep_ns", nobody, "taken to be that of waking nobody")?;
        self.set("scheduler.wake_ns", nobody, "measured by `machines calibrate`: waking nobody")?;
        self.set("scheduler.context_switch_ns", 0.0, "part of wake_latency_ns")?;
        self.search("scheduler.wake_latency_ns", (0.0, 200_000.0), wake, |bench| bench.wake())
    }

    /// Finds the number with which the simulated probe takes as long as the real one. More of any of them makes it...
    /// either way: the direction is tried first.
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

    /// Fits what instructions take, each kind on the workload that shows it.
    fn fit_instructions(&mut self) -> Result<(), CalibrateError> {
        let jobs = FITTED_ON.map(|(key, name)| (key, name, job(name)));
        let mut wanted = Vec::new();
        for (_, _, job) in &jobs {
            wanted.push(native_ns(job)?);
        }
        for _ in 0..ROUNDS {
            for ((key, name, job), ns) in jobs.iter().zip(&wanted) {
                let value = self.fit(key, job, *ns)?;
                let source =
                    format!("fitted by `machines calibrate` on {name} under mmap-sem, one CPU: {ns:.1} ns here");
                self.set(key, value, &source)?;
            }
        }
        Ok(())
    }

    /// Returns the value with which an operation takes so long.
    fn fit(&self, key: &str, job: &Job, wanted_ns: f64) -> Result<f64, CalibrateError> {
        let (mut low, mut high) = (0.0, wanted_ns.min(1000.0));
        for _ in 0..STEPS {
            let middle = (low + high) / 2.0;
            let spec = self.spec.clone().with_number(key, middle, "tried")?;
            if simulated_ns(&spec, job)? < wanted_ns { low = middle } else { high = middle }
        }
        Ok((low + high) / 2.0)
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
        length: Length::Fixed(NATIVE_NS),
        memory_bytes: None,
        placement: PlacementPolicy::Linux,
        replayer: None,
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
    let job = Job { length: Length::Fixed(FITTED_NS), ..job.clone() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_may_be_measured_anew_whatever_it_was() {
        let mut file = File { spec: Spec::preset(HERE).expect("a preset") };
        for ns in [125.0, 3.0, 800.0, 27.0] {
            file.set_distance("read", ns).expect("any distance makes a machine");
            assert_eq!((file.number("read.sibling_ns"), file.number("read.complex_ns")), (ns, ns));
            assert!(file.number("read.far_ns") >= ns);
        }
    }

    #[test]
    fn cpus_that_were_moved_are_noticed() {
        assert!(is_same_distance(27.0, 30.0) && is_same_distance(30.0, 27.0));
        assert!(!is_same_distance(27.0, 125.0) && !is_same_distance(125.0, 27.0));
    }
}
