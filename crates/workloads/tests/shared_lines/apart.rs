//! Two processes: how often an operation writes to a line that the other process's CPU accessed last.
//!
//! Each has a space of its own, on a CPU of its own, and they make their steps in turn. *Neighbours* are CPUs 0 and 1,
//! which share a group's depots and lists; *strangers* are CPUs 0 and 8, of two groups. What they write in common is
//! the allocator's and the grace periods' alone. `docs/scaling.md` holds the table and names the lines; the test
//! compares every cell with it, in writes per 1,000 operations.

use std::sync::{Barrier, Mutex};

use faultless_linux::space::Affinity;
use faultless_phys::{Memory, Options};
use faultless_platform::count::{Count, Figures, Machine};
use faultless_platform::native::HostRegion;
use faultless_platform::{Processor, Threads};
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DESIGNS, DesignVisitor, with_design};
use faultless_vm::{Limits, VirtAddr, Vm};
use faultless_workloads::{Files, Seat, Spec, VmSpace, Worker};

use crate::{HEAP, documented};

/// Room for a CPU to keep the frames of a few regions: 1/1024 of memory is 16 MiB.
const MEMORY_BYTES: usize = 16 << 30;
/// Workloads, and how many steps each worker makes before anything counts, and then.
const ROWS: [(&str, usize); 8] = [
    ("page_fault1", 4096),
    ("page_fault2", 4096),
    ("page_fault3", 4096),
    ("malloc1", 4096),
    ("mmap1", 4096),
    ("brk1", 4096),
    ("tlb_flush1", 4096),
    ("fork", 256),
];
/// The CPU of the second process.
const NEIGHBOUR: usize = 1;
const STRANGER: usize = 8;
/// How far a cell may be from the document's, in writes per 1,000 operations: a count may end in the middle of a batch.
const TOLERANCE: f64 = 0.5;
/// Writes per 1,000 operations that no cell reaches: what is apart does not meet.
const LIMIT: f64 = 1.0;

struct Counted<'a> {
    spec: &'a Spec,
    steps: usize,
    other_cpu: usize,
}

impl DesignVisitor<Count> for Counted<'_> {
    /// Writes to taken lines per 1,000 operations.
    type Output = f64;

    fn visit<D: Design<Count>>(self, semaphore: GenerationOf<Count, D>) -> f64 {
        let nr_cpus = self.other_cpu + 1;
        let region = HostRegion::reserve(MEMORY_BYTES).expect("the host has room");
        let machine = Machine::new(nr_cpus);
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::<Count>::new(region.base(), region.len_bytes(), nr_cpus, Options::default()) };
        let memory = memory.expect("large enough");
        let vm = machine.attach(|| Vm::<Count, D>::with_semaphore(memory, semaphore).expect("a zero page"));
        let files = Files::new(&vm, 2);
        let pair = Pair { machine: &machine, turns: Barrier::new(2), counted: Mutex::default(), steps: self.steps };
        let seats = Barrier::new(nr_cpus);
        Count::run(&machine, nr_cpus, &|thread| {
            if takes_seat(thread, nr_cpus, &seats) {
                let space = vm.create_space(Limits::default()).expect("room");
                space.set_heap_start(VirtAddr::new(HEAP));
                let view = VmSpace::new(&space, &files);
                let program = self.spec.prepare::<Count>(&view, 1).expect("room");
                let process = usize::from(thread != 0);
                let seat = Seat { worker: 0, team: 1, global: process };
                pair.work(process, program.worker(seat, &view).expect("room").as_mut());
                drop((program, view, space));
                Count::leave();
            }
        });
        drop(files);
        machine.attach(|| drop(vm));
        let (figures, ops) = pair.counted.into_inner().expect("no panic");
        1000.0 * figures.taken_lines as f64 / ops as f64
    }
}

/// Puts each thread onto the CPU of its own number, which slots' order of entering decides; then those leave that don't
/// work. Returns whether the caller works.
fn takes_seat(thread: usize, nr_threads: usize, seats: &Barrier) -> bool {
    for turn in 0..nr_threads {
        if turn == thread {
            Count::enter();
        }
        seats.wait();
    }
    assert_eq!(Count::cpu(), thread);
    let works = thread == 0 || thread == nr_threads - 1;
    if !works {
        Count::leave();
    }
    seats.wait();
    works
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
    fn work(&self, process: usize, worker: &mut dyn Worker) {
        self.in_turn(process, worker);
        self.first_alone(process, || self.counted.lock().expect("no panic").0 = self.machine.total());
        let ops = self.in_turn(process, worker);
        self.counted.lock().expect("no panic").1 += ops;
        self.first_alone(process, || {
            let mut counted = self.counted.lock().expect("no panic");
            counted.0 = self.machine.total() - counted.0;
        });
        worker.finish();
    }

    /// Makes steps, the other worker one after each of them; returns the operations.
    fn in_turn(&self, process: usize, worker: &mut dyn Worker) -> u64 {
        let mut ops = 0;
        for turn in 0..2 * self.steps {
            if turn % 2 == process {
                ops += worker.step().expect("room").ops;
            }
            self.turns.wait();
        }
        ops
    }

    fn first_alone(&self, process: usize, act: impl FnOnce()) {
        self.turns.wait();
        if process == 0 {
            act();
        }
        self.turns.wait();
    }
}

/// Returns a workload's row: under each design the writes of neighbours, then those of strangers.
fn row(name: &str, steps: usize) -> Vec<f64> {
    let spec = Spec::parse(name).expect("a workload");
    let cell = |design: &str, other_cpu| {
        let counted = Counted { spec: &spec, steps, other_cpu };
        with_design(design, "rwsem-v8", counted).expect("registered")
    };
    DESIGNS.iter().flat_map(|design| [cell(design, NEIGHBOUR), cell(design, STRANGER)]).collect()
}

fn is_close(counted: f64, documented: f64) -> bool {
    (counted - documented).abs() <= TOLERANCE && counted < LIMIT
}

/// Keeps the threads that the caller makes on one CPU of the host. They take turns, and one that waits for its turn
/// on another CPU is woken by an interrupt, which takes longer than what is counted.
fn stay_on_one_cpu() {
    Affinity::of_this_thread().and_then(|cpus| cpus.keep_to(1)).expect("a CPU that the process may use");
}

#[test]
fn processes_write_to_each_others_lines_as_the_document_says() {
    stay_on_one_cpu();
    let mut wrong = Vec::new();
    for (workload, steps) in ROWS {
        let documented = documented(include_str!("../../../../docs/scaling.md"), workload);
        let row = row(workload, steps);
        let cells: String = row.iter().map(|cell| format!(" {cell:.1} |")).collect();
        println!("| `{workload}` |{cells}");
        if documented.len() != row.len() || !row.iter().zip(&documented).all(|(&new, &old)| is_close(new, old)) {
            wrong.push(format!("`{workload}`:{cells} the document has {documented:?}"));
        }
    }
    assert!(wrong.is_empty(), "docs/scaling.md is wrong about\n{}", wrong.join("\n"));
}
