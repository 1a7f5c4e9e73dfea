//! Workloads on a simulated machine whose page tables, or pages, lie in high memory.
//!
//! # Guarantee
//! * I1 what may lie in high memory is told apart by what a frame holds: leaf tables, tables above them, pages of
//!   files, pages of programs' own. Each look at a table's entries, under its lock or without, is a map and an unmap of
//!   that table, and so is its clearing; each page that is cleared, filled, copied or read by a call is one, of a
//!   copy's source as well. A CPU's own walk needs no address.
//! * I2 maps, their costs and their counts are those of the workload's window: what sets a virtual memory up maps
//!   nothing
//! * I3 schemes that sleep map tables under the design `mmap-sem` alone, because the others do it inside read-side
//!   sections, where nobody may sleep
//! * I4 with a boundary, frames from there on have no address, those below have one, and what may not lie in high
//!   memory is never there (`faultless_phys`). Without one, the frames without an address are those that hold such
//!   things, as secret memory is taken from the kernel's own map when it is handed out.
//! * I5 a task is of a process, whose maps `per-process` keeps: the recorded programs' threads are processes, and so
//!   are the workers of a workload of processes. Whose table a thread maps does not matter, because it maps it into its
//!   own process's range.
//!
//! # Protocol
//! Maps are made before the virtual memory, and end after it: the machine has one interrupt handler, which serves both.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultless_kmap::registry::{SchemeVisitor, with_scheme};
use faultless_kmap::{Costs, KernelMaps, Scheme, Shape, Task};
use faultless_linux::space::has_interrupt;
use faultless_machine::ground::alone;
use faultless_machine::simulated::{Spec, in_parallel, with_rerun};
use faultless_machine::watch::{self, All, Edge, HighMemory, LockTable, LockWatch, Simulated, edge};
use faultless_plan::Pace;
use faultless_platform::watched::{Happening, Sink};
use faultless_platform::{HighZone, Holds, PAGE_BYTES, Processor};
use faultless_sim::{Machine, Sim, isolate};
use faultless_workloads::Spec as Workload;

use crate::measure::compile::{self, Files, Needs};
use crate::measure::{self, Job, Length, MeasureError, Mode, NoSite, Run};

/// Memory of a workload that maps little; a compile has what it needs.
const MEMORY_BYTES: usize = 128 << 20;

/// The design that every scheme runs under.
pub const DESIGN: &str = "mmap-sem";

/// What has no address of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lies {
    /// Leaf tables.
    pub tables: bool,
    /// Tables above the leaves.
    pub upper_tables: bool,
    /// Pages of files.
    pub files: bool,
    /// Programs' own pages.
    pub anonymous: bool,
}

impl Lies {
    /// In the order of [`Holds::ALL`].
    fn may_hold(self) -> [bool; Holds::ALL.len()] {
        [self.tables, self.upper_tables, self.files, self.anonymous]
    }

    fn has_tables(self) -> bool {
        self.tables || self.upper_tables
    }
}

/// High memory, and how it gets addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What lies there.
    pub lies: Lies,
    /// Bytes of normal memory, from the first frame on; those behind have no address. If nothing, what `lies` says has
    /// none, wherever it is.
    pub boundary_bytes: Option<usize>,
    /// The scheme.
    pub scheme: String,
    /// Slots of a pool.
    pub slots: usize,
    /// What the hardware's part costs.
    pub costs: Costs,
}

/// A run to make.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The workload. A compile is one for each CPU, whatever the duration.
    pub workload: Workload,
    /// How long other workloads work.
    pub duration_ns: u64,
    /// Whether workers share an address space; compiles never do.
    pub mode: Mode,
    /// What lies in high memory; nothing if all frames have addresses.
    pub high: Option<Memory>,
    /// CPUs, and workers.
    pub cpus: usize,
    /// Whether compilers compute between their calls and faults as recorded.
    pub pace: Pace,
    /// The locking design.
    pub design: String,
    /// The semaphore beneath it.
    pub semaphore: String,
}

/// What was counted in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Maps.
    pub maps: u64,
    /// Of these, maps of tables.
    pub table_maps: u64,
    /// Maps that found their frame mapped.
    pub hits: u64,
    /// Flushes of several CPUs' translations.
    pub flushes: u64,
    /// CPUs interrupted for one.
    pub interrupts: u64,
    /// Waits for a slot, asleep.
    pub sleeps: u64,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Made {
    /// The workload's own.
    pub run: Run,
    /// The maps.
    pub counted: Counted,
    /// What locks cost.
    pub locks: LockTable,
}

/// Makes every arm's runs, under the seeds `seeds`; in the order of the arms. An interrupt ends it with what there is.
pub fn run(
    spec: &Spec,
    arms: &[Arm],
    seeds: std::ops::Range<u64>,
    jobs: usize,
    mut ended: impl FnMut(usize),
) -> Result<Vec<Vec<Made>>, MeasureError> {
    let tasks: Vec<(usize, u64)> = seeds.flat_map(|seed| (0..arms.len()).map(move |arm| (arm, seed))).collect();
    let one = |&(arm, seed): &(usize, u64)| match has_interrupt() {
        true => Ok(None),
        false => once(spec, &arms[arm], seed, Vec::new()).map(Some),
    };
    let runs = in_parallel(jobs, &tasks, one, |done, _| ended(done));
    let mut made = vec![Vec::new(); arms.len()];
    for (run, (arm, _)) in runs.into_iter().zip(tasks) {
        made[arm].extend(run?);
    }
    Ok(made)
}

/// Makes one run, and tells `sinks` what happens.
pub fn once(spec: &Spec, arm: &Arm, seed: u64, sinks: Vec<Arc<dyn Sink>>) -> Result<Made, MeasureError> {
    let job = arm.job();
    let all = MEMORY_BYTES / PAGE_BYTES;
    let needs = match arm.workload.workload.is_recorded() {
        true => compile::needs(&job)?,
        false => Needs { frames: all, processes: if arm.mode == Mode::Processes { arm.cpus } else { 1 } },
    };
    let result = isolate(|| {
        let machine = Machine::new(spec, arm.cpus, seed).map_err(MeasureError::TooManyCpus)?;
        let visitor = Visitor { machine, arm, job: &job, needs, sinks };
        match &arm.high {
            None => visitor.without(),
            Some(high) => with_scheme::<Simulated, _>(&high.scheme, visitor)
                .unwrap_or_else(|| Err(MeasureError::Message(format!("there is no scheme {}", high.scheme)))),
        }
    });
    result.unwrap_or_else(|failure| Err(MeasureError::Simulation(with_rerun(failure, seed))))
}

impl Arm {
    fn job(&self) -> Job {
        Job {
            spec: self.workload.clone(),
            design: self.design.clone(),
            semaphore: self.semaphore.clone(),
            cpus: self.cpus,
            mode: self.mode,
            length: Length::Fixed(if self.workload.workload.is_recorded() { 1 } else { self.duration_ns }),
            memory_bytes: (!self.workload.workload.is_recorded()).then_some(MEMORY_BYTES),
        }
    }
}

struct Visitor<'a> {
    machine: Machine,
    arm: &'a Arm,
    job: &'a Job,
    needs: Needs,
    sinks: Vec<Arc<dyn Sink>>,
}

impl Visitor<'_> {
    /// Runs the workload on a machine.
    fn run(arm: &Arm, job: &Job, machine: &watch::Machine<Sim>) -> Result<Run, MeasureError> {
        match arm.workload.workload.is_recorded() {
            true => compile::once_at::<Simulated>(machine, job, (arm.pace, Files::Moved), &has_interrupt),
            false => measure::once::<Simulated>(machine, job, &NoSite, &has_interrupt),
        }
    }

    /// Runs where every frame has an address.
    fn without(mut self) -> Result<Made, MeasureError> {
        let locks = Arc::new(LockWatch::default());
        self.sinks.push(locks.clone());
        let machine = watch::Machine::<Sim>::new(self.machine, Arc::new(All(self.sinks)));
        let run = Self::run(self.arm, self.job, &machine)?;
        Ok(Made { run, counted: Counted::default(), locks: locks.table(self.arm.cpus) })
    }
}

impl SchemeVisitor<Simulated> for Visitor<'_> {
    type Output = Result<Made, MeasureError>;

    fn visit<S: Scheme<Simulated>>(mut self) -> Self::Output {
        let Some(high) = &self.arm.high else { return self.without() };
        if S::MAY_SLEEP && high.lies.has_tables() && self.arm.design != DESIGN {
            let why = format!("{} may sleep: it runs under the design {DESIGN} alone", S::NAME);
            return Err(MeasureError::Message(why));
        }
        let shape = Shape {
            nr_cpus: self.arm.cpus,
            nr_frames: self.needs.frames,
            nr_slots: high.slots,
            nr_processes: self.needs.processes,
            costs: high.costs,
        };
        let (locks, under) = (Arc::new(LockWatch::default()), Arc::new(Under::<S>::new(high, self.needs.processes)));
        self.sinks.extend([locks.clone() as Arc<dyn Sink>, under.clone() as Arc<dyn Sink>]);
        let machine = watch::Machine::<Sim>::new(self.machine, Arc::new(All(self.sinks)));
        let machine = machine.with_high_memory(under.clone());
        alone::<Simulated, _>(&machine, || under.begin(&shape));
        let run = Self::run(self.arm, self.job, &machine);
        let counted = under.counted();
        alone::<Simulated, _>(&machine, || under.end());
        Ok(Made { run: run?, counted, locks: locks.table(self.arm.cpus) })
    }
}

std::thread_local! {
    /// The tasks of the machine that runs on this thread of the host.
    static TASKS: RefCell<HashMap<usize, Rc<Task>>> = RefCell::default();
}

/// Maps in a box, whose address the interrupt handler has.
type Kept<S> = Box<KernelMaps<Simulated, S>>;

/// High memory under a scheme.
struct Under<S: Scheme<Simulated>> {
    lies: Lies,
    boundary_bytes: Option<usize>,
    nr_processes: usize,
    /// The first address in high memory; 0 if what lies there is told by what it holds alone.
    begin: AtomicUsize,
    maps: Mutex<Option<Arc<Kept<S>>>>,
    /// Numbers of frames, by address: in the order in which they are first mapped.
    numbers: Mutex<HashMap<usize, u32>>,
    /// Whether the window is open (I2).
    is_open: AtomicBool,
    table_maps: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Scheme<Simulated>> Under<S> {
    fn new(high: &Memory, nr_processes: usize) -> Self {
        Self {
            lies: high.lies,
            boundary_bytes: high.boundary_bytes,
            nr_processes,
            begin: AtomicUsize::new(0),
            maps: Mutex::default(),
            numbers: Mutex::default(),
            is_open: AtomicBool::new(false),
            table_maps: AtomicU64::new(0),
        }
    }

    /// Makes the maps, on the machine.
    fn begin(&self, shape: &Shape) {
        TASKS.with_borrow_mut(HashMap::clear);
        *lock(&self.maps) = Some(Arc::new(KernelMaps::new(shape)));
    }

    /// Ends them, on the machine.
    fn end(&self) {
        let maps = lock(&self.maps).take();
        drop(maps);
    }

    fn counted(&self) -> Counted {
        let Some(maps) = lock(&self.maps).clone() else { return Counted::default() };
        let counters = maps.counters();
        Counted {
            maps: counters.maps.sum(),
            // Relaxed: nobody works any more.
            table_maps: self.table_maps.load(Ordering::Relaxed),
            hits: counters.hits.sum(),
            flushes: maps.windows().nr_flushes(),
            interrupts: maps.windows().nr_interrupts(),
            sleeps: counters.sleeps.sum(),
        }
    }

    /// Runs `act` on the maps, with the calling thread's task and the frame's number, while the window is open.
    fn act(&self, frame: *const u8, act: impl FnOnce(&KernelMaps<Simulated, S>, &Task, u32)) {
        // Relaxed: a simulated machine's threads are one of the host's.
        if !self.is_open.load(Ordering::Relaxed) {
            return;
        }
        let Some(maps) = lock(&self.maps).clone() else { return };
        let task = TASKS.with_borrow_mut(|tasks| {
            // Each thread that comes is the next process, where they are processes.
            let process = if self.nr_processes == 1 { 0 } else { tasks.len() };
            let new = || Rc::new(Task::new(process, Simulated::cpu()));
            tasks.entry(Simulated::current().bits()).or_insert_with(new).clone()
        });
        let number = {
            let mut numbers = lock(&self.numbers);
            let next = numbers.len() as u32;
            *numbers.entry(frame.addr()).or_insert(next)
        };
        act(&maps, &task, number);
    }

    fn hold(&self, frame: *const u8) {
        self.act(frame, |maps, task, number| maps.hold(task, number));
    }

    fn release(&self, frame: *const u8) {
        if std::thread::panicking() {
            // The run has failed already, maybe in the middle of a map.
            return;
        }
        self.act(frame, |maps, task, number| maps.release(task, number));
    }
}

impl<S: Scheme<Simulated>> Drop for Under<S> {
    /// Leaves what a failed run has not ended: it can end on its machine alone, which is gone.
    fn drop(&mut self) {
        std::mem::forget(lock(&self.maps).take());
    }
}

impl<S: Scheme<Simulated>> Under<S> {
    fn is_high(&self, frame: *const u8, holds: Holds) -> bool {
        // Relaxed: written before the first frame is taken.
        self.lies.may_hold()[holds as usize] && frame.addr() >= self.begin.load(Ordering::Relaxed)
    }
}

impl<S: Scheme<Simulated>> HighMemory for Under<S> {
    fn map(&self, frame: *const u8, holds: Holds) {
        if self.is_high(frame, holds) {
            self.hold(frame);
            let is_table = matches!(holds, Holds::Table | Holds::UpperTable);
            let nr_maps = u64::from(is_table && self.is_open.load(Ordering::Relaxed));
            // Relaxed, twice: as in `act`; a count.
            self.table_maps.fetch_add(nr_maps, Ordering::Relaxed);
        }
    }

    fn unmap(&self, frame: *const u8, holds: Holds) {
        if self.is_high(frame, holds) {
            self.release(frame);
        }
    }

    fn zone(&self, address: *const u8, len_bytes: usize) -> Option<HighZone> {
        let begin = address.addr() + self.boundary_bytes?.min(len_bytes);
        // Relaxed: no frame was taken yet.
        self.begin.store(begin, Ordering::Relaxed);
        Some(HighZone { begin, may_hold: self.lies.may_hold() })
    }
}

impl<S: Scheme<Simulated>> Sink for Under<S> {
    fn note(&self, happening: &Happening) {
        if let Some(edge) = edge(&happening.event) {
            // Relaxed: nobody works at an edge.
            self.is_open.store(edge == Edge::Begin, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(scheme: Option<&str>, lies: Lies, cpus: usize) -> Arm {
        let high = |scheme: &str| Memory {
            lies,
            boundary_bytes: None,
            scheme: scheme.into(),
            slots: 16,
            costs: Costs::default(),
        };
        Arm {
            workload: Workload::parse("compile").expect("a workload"),
            duration_ns: 1_000_000,
            mode: Mode::Threads,
            high: scheme.map(high),
            cpus,
            pace: Pace::None,
            design: DESIGN.into(),
            semaphore: faultless_machine::designs::DEFAULT_SEMAPHORE.into(),
        }
    }

    const NOTHING: Lies = Lies { tables: false, upper_tables: false, files: false, anonymous: false };
    const TABLES: Lies = Lies { tables: true, ..NOTHING };

    fn made(arm: &Arm, seed: u64) -> Made {
        once(&Spec::preset("numaq-16").expect("a preset"), arm, seed, Vec::new()).expect("it compiles")
    }

    #[test]
    fn every_scheme_maps_the_same_tables_and_costs_time() {
        let plain = made(&arm(None, Lies::default(), 1), 1);
        assert_eq!(plain.counted, Counted::default());
        let alone = made(&arm(Some("atomic"), TABLES, 1), 1);
        let (plain_ns, alone_ns) = (plain.run.elapsed_ns, alone.run.elapsed_ns);
        assert!(
            alone_ns > plain_ns + 100 * alone.counted.maps,
            "each map takes 150 ns at least: {plain_ns} {alone_ns}"
        );
        let faults = |made: &Made| made.run.counters.iter().find(|(name, _)| *name == "faults").expect("counted").1;
        for &scheme in faultless_kmap::registry::SCHEMES {
            let made = made(&arm(Some(scheme), TABLES, 2), 1);
            let Counted { maps, table_maps, flushes, interrupts, .. } = made.counted;
            assert!(
                maps == table_maps && maps > faults(&made),
                "{scheme}: {:?}, {} faults",
                made.counted,
                faults(&made)
            );
            let is_own = ["atomic", "percpu-pinned", "local"].contains(&scheme);
            assert_eq!(flushes == 0, is_own || scheme == "pool-invlpg", "{scheme}: {:?}", made.counted);
            if scheme == "per-process" {
                assert!(
                    interrupts <= flushes,
                    "only a process that changed its CPU is anywhere else: {:?}",
                    made.counted
                );
            } else {
                assert_eq!(interrupts == 0, is_own, "{scheme}: {:?}", made.counted);
            }
            let lock = if scheme == "per-process" { "process_kmap_lock" } else { "kmap_lock" };
            let callers = made.locks.locks.iter().find(|row| row.name == lock).map(|row| &row.callers);
            let names = callers.map(|callers| callers.iter().map(|(name, _)| &**name).collect::<Vec<_>>());
            match is_own {
                true => assert_eq!(names, None, "{scheme}"),
                false => {
                    let mut names = names.expect("the lock is taken");
                    names.sort_unstable();
                    assert_eq!(names, ["kmap_high", "kunmap_high"], "{scheme}");
                }
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_and_pages_are_maps_of_their_own() {
        let both = arm(Some("pool"), Lies { anonymous: true, ..TABLES }, 2);
        let (first, again) = (made(&both, 3), made(&both, 3));
        assert_eq!((first.run.elapsed_ns, first.counted), (again.run.elapsed_ns, again.counted));
        let Counted { maps, table_maps, .. } = first.counted;
        assert!(table_maps > 0 && maps > table_maps, "{:?}", first.counted);
    }

    #[test]
    fn upper_tables_and_file_pages_are_maps_of_their_own() {
        let counted = |lies| made(&arm(Some("local"), lies, 1), 1).counted;
        let leaves = counted(TABLES);
        let all = counted(Lies { upper_tables: true, ..TABLES });
        assert!(all.table_maps > 2 * leaves.table_maps, "three tables above each leaf: {leaves:?} {all:?}");
        let files = counted(Lies { files: true, ..NOTHING });
        // 345 by calls; the others are cleared for what is mapped.
        assert!(files.table_maps == 0 && (345..2000).contains(&files.maps), "{files:?}");
    }

    #[test]
    fn with_a_boundary_only_frames_behind_it_are_mapped() {
        let counted = |boundary_bytes| {
            let mut arm = arm(Some("local"), TABLES, 1);
            arm.high = arm.high.map(|high| Memory { boundary_bytes: Some(boundary_bytes), ..high });
            made(&arm, 1).counted
        };
        let without = made(&arm(Some("local"), TABLES, 1), 1).counted;
        // Nothing lies behind the last frame.
        assert_eq!(counted(usize::MAX), Counted::default());
        let most = counted(128 << 20);
        assert_eq!(most.table_maps, without.table_maps, "there is room for all tables in high memory");
    }

    #[test]
    fn each_read_of_a_page_in_high_memory_is_a_map() {
        let reading = |scheme: &str, text: &str| {
            let arm = arm(Some(scheme), Lies { files: true, ..NOTHING }, 4);
            made(&Arm { workload: Workload::parse(text).expect("a workload"), ..arm }, 1)
        };
        for text in ["read-byte --own", "read-byte --shared"] {
            let (pool, local) = (reading("pool", text), reading("local", text));
            for made in [&pool, &local] {
                let (maps, ops) = (made.counted.maps, made.run.ops);
                assert!(maps >= ops && maps < ops + ops / 10 + 100, "{text}: {maps} maps, {ops} reads");
            }
            assert!(3 * local.run.ops > 4 * pool.run.ops, "{text}: {} {}", local.run.ops, pool.run.ops);
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        let said = |arm: &Arm| once(&Spec::preset("numaq-16").expect("a preset"), arm, 1, Vec::new()).map(drop);
        let sleeper = Arm { design: "vma-lock".into(), ..arm(Some("pool"), TABLES, 1) };
        assert!(matches!(said(&sleeper), Err(MeasureError::Message(why)) if why.contains("may sleep")));
    }
}
