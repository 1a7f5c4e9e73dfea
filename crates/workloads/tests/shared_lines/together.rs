//! Two threads of one process: how often an operation writes to a line that another CPU uses, under each design.
//!
//! Two workers in one address space, on two counting CPUs, make their steps in turn, so that the counts depend on the
//! code's path and on nothing else but which of the two goes on first from a barrier of the workload's own.
//! `docs/counting.md` holds the table, and the test compares every cell with it.
//! Print it: `cargo test --release -p faultless-workloads --test shared_lines together -- --nocapture`.

use std::sync::{Barrier, Mutex};
use std::time::Duration;

use faultless_phys::{Memory, Options};
use faultless_platform::count::{Count, Figures, Machine};
use faultless_platform::native::HostRegion;
use faultless_platform::{Processor, Threads};
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DESIGNS, DesignVisitor, with_design};
use faultless_vm::{Limits, VirtAddr, Vm};
use faultless_workloads::{Files, Seat, Spec, VmSpace, WORKLOADS, Worker};

use crate::{HEAP, documented};

const MEMORY_BYTES: usize = 1 << 30;
/// Steps of each worker before anything counts: half of them before who uses which line is forgotten, half after.
const WARM_STEPS: usize = 64;
/// Steps of each worker that count: three regions of [`REGION`], and with all others fewer than CortenMM's round of
/// 512.
const STEPS: usize = 384;
/// The same for workloads of long steps.
const LONG_STEPS: usize = 24;
/// Pages enough for the calls at a region's ends to count little: 1 in 128.
const REGION: &str = "--region 512K";

/// How far a cell may be from the document's: chance moves it by less, one shared write more on a fault's path by more.
const TOLERANCE: f64 = 0.1;
/// The same for CortenMM's, which wait for each other: who makes a round's mappings depends on who arrives last.
const CORTEN_TOLERANCE: f64 = 0.3;
/// The same for cells of almost nothing.
const LEAST_TOLERANCE: f64 = 0.3;

/// How often a row is counted that is not the document's. On a busy host one run in ten of brk1 has an area's line pass
/// from CPU to CPU twice more, with the grace period in which it was freed; what the code changed, it changed in every
/// run.
const TRIES: usize = 4;

/// Returns how a workload is run.
fn spec(name: &str) -> Spec {
    let flags = match name {
        "page_fault1" | "page_fault2" | "page_fault3" | "tlb_flush1" | "tlb_flush3" => REGION,
        "ebizzy" => "-mTt 2 -n 4",
        // Its stores are the program's own, and hide all else.
        "mmap_touch" => "--untouched",
        _ => "",
    };
    Spec::parse(&format!("{name} {flags}")).expect("a workload")
}

fn steps(spec: &Spec) -> usize {
    if spec.workload.steps_per_timing == 1 { LONG_STEPS } else { STEPS }
}

/// Counts a workload under the design that it is shown.
struct Counted<'a>(&'a Spec);

impl DesignVisitor<Count> for Counted<'_> {
    /// What both CPUs did, and how many operations that was.
    type Output = (Figures, u64);

    fn visit<D: Design<Count>>(self, semaphore: GenerationOf<Count, D>) -> (Figures, u64) {
        let region = HostRegion::reserve(MEMORY_BYTES).expect("the host has room");
        let machine = Machine::new(2);
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::<Count>::new(region.base(), region.len_bytes(), 2, Options::default()) };
        let memory = memory.expect("large enough");
        let vm = machine.attach(|| Vm::<Count, D>::with_semaphore(memory, semaphore).expect("a zero page"));
        let files = Files::new(&vm, 2);
        let (program, space) = machine.attach(|| {
            let space = vm.create_space(Limits::default()).expect("room");
            space.set_heap_start(VirtAddr::new(HEAP));
            let program = self.0.prepare::<Count>(&VmSpace::new(&space, &files), 2).expect("room");
            (program, space)
        });
        let pair = Pair { machine: &machine, turns: Barrier::new(2), counted: Mutex::default(), steps: steps(self.0) };
        Count::run(&machine, 2, &|thread| {
            Count::enter();
            pair.turns.wait();
            let view = VmSpace::new(&space, &files);
            let seat = Seat { worker: thread, team: 2, global: thread };
            pair.work(thread, program.worker(seat, &view).expect("room").as_mut());
            drop(view);
            Count::leave();
        });
        drop(program);
        machine.attach(|| drop((space, files)));
        machine.attach(|| drop(vm));
        pair.counted.into_inner().expect("no panic")
    }
}

/// Two workers that take turns.
struct Pair<'a> {
    machine: &'a Machine,
    /// std's barrier: who waits there keeps its slot, and nothing is counted.
    turns: Barrier,
    counted: Mutex<(Figures, u64)>,
    steps: usize,
}

impl Pair<'_> {
    fn work(&self, thread: usize, worker: &mut dyn Worker) {
        // At its first step a worker may wait for the other one, which comes a little later.
        std::thread::sleep(Duration::from_millis(10 * thread as u64));
        worker.step().expect("room");
        self.in_turn(thread, worker, WARM_STEPS / 2);
        self.first_alone(thread, || self.machine.forget());
        self.in_turn(thread, worker, WARM_STEPS / 2);
        self.first_alone(thread, || self.counted.lock().expect("no panic").0 = self.machine.total());
        let ops = self.in_turn(thread, worker, self.steps);
        self.counted.lock().expect("no panic").1 += ops;
        self.first_alone(thread, || {
            let mut counted = self.counted.lock().expect("no panic");
            counted.0 = self.machine.total() - counted.0;
        });
        worker.finish();
    }

    /// Makes steps, the other worker one after each of them; returns the operations.
    fn in_turn(&self, thread: usize, worker: &mut dyn Worker, nr_steps: usize) -> u64 {
        let mut ops = 0;
        for turn in 0..2 * nr_steps {
            if turn % 2 == thread {
                ops += worker.step().expect("room").ops;
            }
            self.turns.wait();
        }
        ops
    }

    fn first_alone(&self, thread: usize, act: impl FnOnce()) {
        self.turns.wait();
        if thread == 0 {
            act();
        }
        self.turns.wait();
    }
}

/// Returns a workload's row: the shared writes of an operation under each design.
fn row(name: &str) -> Vec<f64> {
    let spec = spec(name);
    let cell = |design: &&str| {
        let (figures, ops) = with_design(design, "rwsem-v8", Counted(&spec)).expect("registered");
        figures.shared_writes as f64 / ops as f64
    };
    DESIGNS.iter().map(cell).collect()
}

fn is_close(name: &str, counted: f64, documented: f64) -> bool {
    let tolerance = if name.starts_with("corten") { CORTEN_TOLERANCE } else { TOLERANCE };
    (counted - documented).abs() <= (documented * tolerance).max(LEAST_TOLERANCE)
}

#[test]
fn writes_to_shared_lines_are_those_of_the_documents_table() {
    println!("| workload | {} |", DESIGNS.join(" | "));
    let mut wrong = Vec::new();
    for workload in WORKLOADS.iter().filter(|workload| !workload.is_recorded()) {
        let name = spec(workload.name).name;
        let documented = documented(include_str!("../../../../docs/counting.md"), &name);
        let mut tries = (0..TRIES).map(|_| {
            let row = row(workload.name);
            let cells: String = row.iter().map(|cell| format!(" {cell:.1} |")).collect();
            println!("| `{name}` |{cells}");
            let is_right = documented.len() == row.len()
                && row.iter().zip(&documented).all(|(&new, &old)| is_close(&name, new, old));
            if is_right { Ok(()) } else { Err(format!("`{name}`:{cells} the document has {documented:?}")) }
        });
        let first = tries.next().expect("at least one");
        if let Err(cells) = first
            && tries.all(|next| next.is_err())
        {
            wrong.push(cells);
        }
    }
    assert!(wrong.is_empty(), "docs/counting.md is wrong about\n{}", wrong.join("\n"));
}
