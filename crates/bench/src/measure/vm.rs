//! One run on a virtual memory, under one design, on a machine of any platform.
//!
//! # Protocol
//! ```text
//! each worker:  makes its part of the program | barrier | works in its window | barrier | ends
//! the last at the first barrier reads the counters and sets the start; the last at the second reads them again
//! ```

use std::sync::OnceLock;

use faultless_pass::ReplayPlatform;
use faultless_platform::{Atomic, Nodes, Ordering, Threads, Usual};
use faultless_sync::{Barrier, Side, SpinMutex};
use faultless_vm::check::invariants;
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DesignVisitor, with_design};
use faultless_vm::{Event, Limits, SpaceRef, VirtAddr, Vm};
use faultless_workloads::{Files, PAGE, Program, Refused, Seat, Spec, VmSpace, Worker};

use super::compile;
use super::course::{Course, Settled};
use super::drive::{End, Tally, Window, drive};
use super::host;
use super::job::{Job, Length, MeasureError, Run};
use super::site::Site;
use faultless_machine::host_frames::{HostFrames, alone, warm};
use faultless_machine::watch;
use faultless_results::stats::Histogram;

/// Frames that an instance needs besides what the programs need: its own, and what waits for a grace period.
const FRAMES_BESIDES: u64 = 4096;
/// Frames that each CPU keeps at hand.
const FRAMES_EACH_CPU: u64 = 512;
/// Where the heap begins, and what a C program has of it when it starts.
const HEAP_START: u64 = 0x5555_0000_0000;
const HEAP_BYTES: u64 = 33 * PAGE;
/// From the moment all workers are ready to the start: each of them has to wake first.
const START_NS_EACH: u64 = 20_000;
const START_NS_LEAST: u64 = 50_000;

/// Runs a job once on a machine of the platform `P`, which has `job.cpus` CPUs.
///
/// The run ends early once `has_stopped` says so: with what was done, or with [`MeasureError::Interrupted`] if that is
/// nothing.
pub fn once<P: ReplayPlatform>(
    machine: &P::Machine,
    job: &Job,
    site: &dyn Site,
    has_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Run, MeasureError> {
    if job.spec.workload.name == compile::NAME {
        return compile::once::<P>(machine, job, has_stopped);
    }
    let visitor = JobUnderDesign::<P> { machine, job, site, has_stopped };
    with_design(&job.design, &job.semaphore, visitor).unwrap_or_else(|error| Err(MeasureError::Unknown(error)))
}

struct JobUnderDesign<'a, P: Threads<Embedding = Usual>> {
    machine: &'a P::Machine,
    job: &'a Job,
    site: &'a dyn Site,
    has_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Job {
    /// Returns the frames that the job needs.
    pub(super) fn frames(&self) -> u64 {
        let (nr_spaces, team) = self.spaces();
        let in_each = self.spec.pages_shared() + team as u64 * self.spec.pages_each();
        nr_spaces as u64 * in_each + self.cpus as u64 * FRAMES_EACH_CPU + FRAMES_BESIDES
    }

    /// Returns the bytes of physical memory: frames, and what describes them.
    fn memory_bytes(&self) -> usize {
        let bytes = self.frames() * PAGE;
        self.memory_bytes.unwrap_or(usize::try_from(bytes + bytes / 32).unwrap_or(usize::MAX))
    }

    /// Returns how many bytes are reserved: so many that the node with the most CPUs has memory for all of them, and
    /// at least what the machine has; or as many as the user asked for.
    fn reserved_bytes(&self, nodes: &Nodes, site: &dyn Site) -> usize {
        let bytes = self.memory_bytes();
        if self.memory_bytes.is_some() {
            return bytes;
        }
        let nr_cpus_of = |node: usize| (0..self.cpus).filter(|&cpu| nodes.of_cpu(cpu) == node).count();
        let most = (0..nodes.len()).map(nr_cpus_of).max().unwrap_or(self.cpus);
        let for_all = bytes.saturating_mul(nodes.len() * most) / self.cpus.max(1);
        for_all.max(site.memory_bytes())
    }

    fn refused(&self, cause: Refused) -> MeasureError {
        MeasureError::Refused { cause, memory_bytes: Some(self.memory_bytes()) }
    }
}

impl<P: Threads<Embedding = Usual>> DesignVisitor<P> for JobUnderDesign<'_, P> {
    type Output = Result<Run, MeasureError>;

    fn visit<D: Design<P>>(self, semaphore: GenerationOf<P, D>) -> Self::Output {
        if self.site.has_cold_memory() {
            host::check_room(self.job.memory_bytes() as u64)?;
        }
        let nodes = P::nodes(self.machine);
        let host_frames =
            HostFrames::reserve(self.job.reserved_bytes(&nodes, self.site)).map_err(MeasureError::Reserve)?;
        let memory = host_frames.memory::<P>(self.machine, self.job.cpus).map_err(MeasureError::Setup)?;
        let nr_free = memory.nr_free();
        let vm = alone::<P, _>(self.machine, || {
            if self.site.has_cold_memory() {
                warm(&memory, self.job.frames() as usize);
            }
            Vm::<P, D>::with_semaphore(memory.clone(), semaphore)
        });
        let vm = vm.map_err(|_| self.job.refused(Refused::OutOfFrames))?;
        let result = self.run(&vm);
        alone::<P, _>(self.machine, || drop(vm));
        alone::<P, _>(self.machine, || memory.rcu().flush());
        match nr_free - memory.nr_free() {
            0 => result,
            frames => result.and(Err(MeasureError::Leak { frames: frames as u64 })),
        }
    }
}

impl<P: Threads<Embedding = Usual>> JobUnderDesign<'_, P> {
    fn run<D: Design<P>>(&self, vm: &Vm<P, D>) -> Result<Run, MeasureError> {
        let files = Files::new(vm, self.job.nr_workers());
        let teams = alone::<P, _>(self.machine, || self.teams(vm, &files)).map_err(|cause| self.job.refused(cause))?;
        let field = Field::new(vm, &files, &teams, self);
        P::run(self.machine, self.job.nr_workers(), &|worker| field.work(worker));
        let run = alone::<P, _>(self.machine, || field.conclude());
        let checked = alone::<P, _>(self.machine, || {
            // SAFETY: every worker has ended.
            #[allow(unsafe_code, reason = "the checker looks at everything")]
            let checked = unsafe { invariants(vm) }.map_err(MeasureError::Broken);
            drop(teams);
            drop(files);
            checked
        });
        checked.and(run)
    }

    /// Makes the address spaces, and the program in each.
    fn teams<'vm, D: Design<P>>(
        &self,
        vm: &'vm Vm<P, D>,
        files: &Files<'vm, P, D>,
    ) -> Result<Vec<Team<'vm, '_, P, D>>, Refused> {
        let (nr_spaces, team) = self.job.spaces();
        let max_map_count = most_areas(&self.job.spec, team).unwrap_or(Limits::default().max_map_count);
        let make = |_| {
            let space = vm
                .create_space(Limits { placement: self.job.placement, max_map_count, ..Limits::default() })
                .map_err(|_| Refused::OutOfFrames)?;
            space.set_heap_start(VirtAddr::new(HEAP_START));
            space.brk(VirtAddr::new(HEAP_START + HEAP_BYTES));
            let program = self.job.spec.prepare(&VmSpace::new(&space, files), team)?;
            Ok(Team { program, space })
        };
        (0..nr_spaces).map(make).collect()
    }
}

/// Returns how many areas a space may have whose threads need more than Linux allows unless told otherwise
/// (vm.max_map_count), as whoever runs such a program on Linux would set it.
pub(super) fn most_areas(spec: &Spec, team: usize) -> Option<u64> {
    let usual = Limits::default().max_map_count;
    let needed = spec.areas_each() * team as u64;
    (needed > usual).then_some(usual + needed)
}

/// An address space and the program in it.
struct Team<'vm, 's, P: Threads<Embedding = Usual>, D: Design<P>> {
    program: Box<dyn Program<P> + 's>,
    space: SpaceRef<'vm, P, D>,
}

/// What the workers of a run share.
struct Field<'a, 'vm, P: Threads<Embedding = Usual>, D: Design<P>> {
    vm: &'vm Vm<P, D>,
    files: &'a Files<'vm, P, D>,
    teams: &'a [Team<'vm, 'a, P, D>],
    visitor: &'a JobUnderDesign<'a, P>,
    barrier: Barrier<P>,
    start_ns: P::AtomicU64,
    /// Made by the first worker that comes to its window; the host's, not the platform's.
    course: OnceLock<Course>,
    has_failed: P::AtomicBool,
    before: SpinMutex<P, Figures>,
    after: SpinMutex<P, Figures>,
    tallies: SpinMutex<P, Vec<Tally>>,
}

/// Counters at one instant.
#[derive(Clone, Debug, Default)]
struct Figures {
    events: Vec<u64>,
    lock_wait_ns: u64,
}

impl<'a, 'vm, P: Threads<Embedding = Usual>, D: Design<P>> Field<'a, 'vm, P, D> {
    fn new(
        vm: &'vm Vm<P, D>,
        files: &'a Files<'vm, P, D>,
        teams: &'a [Team<'vm, 'a, P, D>],
        visitor: &'a JobUnderDesign<'a, P>,
    ) -> Self {
        let nr_workers = visitor.job.nr_workers();
        Self {
            vm,
            files,
            teams,
            visitor,
            barrier: Barrier::new(nr_workers as u32),
            start_ns: P::AtomicU64::new(0),
            course: OnceLock::new(),
            has_failed: P::AtomicBool::new(false),
            before: SpinMutex::default(),
            after: SpinMutex::default(),
            tallies: SpinMutex::new(Vec::with_capacity(nr_workers)),
        }
    }

    /// A worker's whole life.
    fn work(&self, global: usize) {
        self.visitor.site.settle(global, self.visitor.job.nr_workers());
        P::enter();
        let (_, nr_mates) = self.visitor.job.spaces();
        let team = &self.teams[global / nr_mates];
        let seat = Seat { worker: global % nr_mates, team: nr_mates, global };
        let view = VmSpace::new(&team.space, self.files);
        let tally = match team.program.worker(seat, &view) {
            Ok(mut worker) => self.measure(Some(worker.as_mut())),
            Err(cause) => {
                self.fail();
                self.measure(None);
                Tally::failed(cause)
            }
        };
        self.tallies.lock().push(tally);
        P::leave();
    }

    /// Works between the two barriers; who has no worker passes them all the same.
    fn measure(&self, worker: Option<&mut dyn Worker>) -> Tally {
        self.in_step(|| {
            *self.before.lock() = self.figures();
            watch::begin::<P>();
            let nr_workers = self.visitor.job.nr_workers() as u64;
            let until_start_ns = if self.is_crowded() { 0 } else { START_NS_LEAST + START_NS_EACH * nr_workers };
            // Relaxed: the barrier publishes it.
            self.start_ns.store(P::now() + until_start_ns, Ordering::Relaxed);
        });
        let delay = self.visitor.site.begin();
        let mut tally = Tally::default();
        if let Some(worker) = worker {
            let has_stopped = || self.has_failed() || (self.visitor.has_stopped)();
            tally = drive::<P>(worker, &self.window(&has_stopped));
            if tally.refused.is_some() {
                self.fail();
            }
            worker.finish();
        }
        tally.run_delay_ns = delay.and_then(|delay| delay.since_begin_ns());
        self.in_step(|| {
            watch::end::<P>();
            *self.after.lock() = self.figures();
        });
        tally
    }

    /// Waits for all workers; the last one acts before anybody goes on.
    fn in_step(&self, act: impl FnOnce()) {
        if self.barrier.wait() {
            act();
        }
        self.barrier.wait();
    }

    /// Says whether workers wait for a CPU: who waits by spinning then keeps the others from theirs.
    fn is_crowded(&self) -> bool {
        self.visitor.job.nr_workers() > self.visitor.job.cpus
    }

    fn window<'w>(&'w self, has_stopped: &'w dyn Fn() -> bool) -> Window<'w> {
        let job = self.visitor.job;
        // Relaxed: see `measure`.
        let start_ns = self.start_ns.load(Ordering::Relaxed);
        let end = match job.length {
            Length::Fixed(ns) => End::At(start_ns + ns),
            Length::Settled { at_most_ns } => End::Settled(self.course.get_or_init(|| {
                Course::new(start_ns, at_most_ns, job.nr_workers(), job.spec.workload.ops_per_round(&job.spec.settings))
            })),
        };
        Window { start_ns, end, steps_per_timing: job.spec.workload.steps_per_timing, has_stopped }
    }

    fn fail(&self) {
        // Relaxed: nothing is read on the strength of the flag.
        self.has_failed.store(true, Ordering::Relaxed);
    }

    fn has_failed(&self) -> bool {
        // Relaxed: see `fail`.
        self.has_failed.load(Ordering::Relaxed)
    }

    fn figures(&self) -> Figures {
        let stats = self.vm.lock_stats();
        Figures {
            events: Event::ALL.iter().map(|&event| self.vm.events().total(event)).collect(),
            lock_wait_ns: stats.figures(Side::Read).wait_ns + stats.figures(Side::Write).wait_ns,
        }
    }

    fn conclude(&self) -> Result<Run, MeasureError> {
        let mut run =
            sum_up(&self.tallies.lock(), self.visitor.job).map_err(|cause| self.visitor.job.refused(cause))?;
        if run.ops == 0 && (self.visitor.has_stopped)() {
            return Err(MeasureError::Interrupted);
        }
        self.course.get().into_iter().for_each(|course| run.settle(course));
        let (before, after) = (self.before.lock().clone(), self.after.lock().clone());
        let aside = self.files.happened_aside();
        let counts = after.events.iter().zip(&before.events).zip(&aside);
        let counts = counts.map(|((after, before), aside)| after - before - aside);
        run.counters = Event::ALL.iter().map(|event| event.name()).zip(counts).collect();
        run.lock_wait_ns = Some(after.lock_wait_ns - before.lock_wait_ns);
        let peak = |team: &Team<'_, '_, P, D>| team.space.peak_resident_pages() * PAGE;
        run.peak_rss_bytes = Some(self.teams.iter().map(peak).sum());
        Ok(run)
    }
}

/// Adds up what the workers did; the first refusal if there is one.
pub(super) fn sum_up(tallies: &[Tally], job: &Job) -> Result<Run, Refused> {
    if let Some(cause) = tallies.iter().find_map(|tally| tally.refused) {
        return Err(cause);
    }
    let mut latency = Histogram::default();
    tallies.iter().for_each(|tally| latency.add(&tally.latency));
    let began_ns = tallies.iter().map(|tally| tally.began_ns).min().unwrap_or(0);
    let ended_ns = tallies.iter().map(|tally| tally.ended_ns).max().unwrap_or(0);
    let elapsed_ns = ended_ns - began_ns;
    let sum = |of: &dyn Fn(&Tally) -> f64| tallies.iter().map(of).sum::<f64>();
    let ops = tallies.iter().map(|tally| tally.ops).sum();
    let in_window = sum(&|tally| tally.ops_in_window);
    // Workers that go in step put the same time aside, all at once; of those that don't, each puts its own aside.
    let (counted_ops, counted_ns, aside_ns) = match tallies.iter().any(|tally| tally.was_cut) || in_window == 0.0 {
        false => (in_window, job.length.least_ns(), sum(&|tally| tally.aside_in_window_ns)),
        // Somebody ended the window, or nobody came to a CPU in it; or rates settled, and the course knows better.
        true => (ops as f64, elapsed_ns, sum(&|tally| tally.aside_ns as f64)),
    };
    let counted_ns = counted_ns as f64 - aside_ns / tallies.len().max(1) as f64;
    Ok(Run {
        elapsed_ns,
        ops,
        workers: tallies.len(),
        cpus: job.cpus,
        ops_per_s: if counted_ns > 0.0 { counted_ops * 1e9 / counted_ns } else { 0.0 },
        latency,
        counters: Vec::new(),
        lock_wait_ns: None,
        peak_rss_bytes: None,
        run_delay_ns: tallies.iter().map(|tally| tally.run_delay_ns).sum(),
        settled: None,
        pages: None,
        profile: None,
    })
}

impl Run {
    /// Takes the rate of the part that has settled. A run that was cut short keeps its rate, which has not.
    fn settle(&mut self, course: &Course) {
        let settled = course.settled().unwrap_or(Settled::cut_short(self.elapsed_ns, self.ops_per_s));
        self.ops_per_s = settled.ops_per_s;
        self.settled = Some(settled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Mode;
    use faultless_workloads::Spec;

    fn job(cpus: usize) -> Job {
        let spec = Spec::parse("mmap1").expect("a workload");
        let (design, semaphore) = ("mmap-sem".into(), "rwsem-v8".into());
        Job {
            spec,
            design,
            semaphore,
            cpus,
            mode: Mode::Threads,
            length: Length::Fixed(1000),
            memory_bytes: None,
            placement: crate::measure::PlacementPolicy::Linux,
            replayer: None,
        }
    }

    fn tally(ops_in_window: f64, aside_in_window_ns: f64) -> Tally {
        Tally { ops: 100, ops_in_window, aside_in_window_ns, ended_ns: 1000, ..Tally::default() }
    }

    #[test]
    fn a_rate_is_what_all_did_in_the_window_that_all_share() {
        let rate = |tallies: &[Tally]| sum_up(tallies, &job(2)).expect("nobody refused").ops_per_s;
        assert_eq!(rate(&[tally(100.0, 0.0), tally(100.0, 0.0)]), 200.0 * 1e9 / 1000.0);
        assert_eq!(rate(&[tally(100.0, 0.0), tally(0.0, 0.0)]), 100.0 * 1e9 / 1000.0, "one came too late");
        assert_eq!(rate(&[tally(100.0, 500.0), tally(100.0, 500.0)]), 200.0 * 1e9 / 500.0, "half of it put aside");
        assert_eq!(
            rate(&[Tally { began_ns: 3000, ended_ns: 5000, ..tally(0.0, 0.0) }]),
            100.0 * 1e9 / 2000.0,
            "all came too late"
        );
        let cut = Tally { was_cut: true, ended_ns: 400, ..tally(100.0, 0.0) };
        assert_eq!(rate(&[cut]), 100.0 * 1e9 / 400.0, "as far as it came");
    }

    #[test]
    fn workers_that_are_more_than_the_cpus_must_wait_and_that_disturbs_nobody() {
        let run = |cpus: usize, run_delay_ns: u64| {
            let waited = Tally { run_delay_ns: Some(run_delay_ns / 2), ..tally(100.0, 0.0) };
            sum_up(&[waited.clone(), waited], &job(cpus)).expect("nobody refused")
        };
        assert!(run(2, 100).is_disturbed() && !run(2, 30).is_disturbed());
        assert!(run(1, 1100).is_disturbed() && !run(1, 1000).is_disturbed());
    }
}
