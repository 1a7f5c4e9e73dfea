//! The rounds of a run: threads that work, then stand still while everything is checked.

use crate::crowd::COUNTERS;
use crate::file::File;
use crate::known::anonymous;
use crate::settings::{Report, Settings};
use crate::worker::{Shared, Worker};
use crate::world::World;
use faultless_phys::Failing;
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Processor, Threads};
use faultless_sync::Barrier;
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::{Event, Limits, PAGE, PlacementPolicy};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const OPS_PER_ROUND: u64 = 400;

/// Events that say what a run reached.
const EVENTS: [Event; 6] =
    [Event::Faults, Event::Spf, Event::SpfFailed, Event::Cow, Event::TlbShootdown, Event::TablesFreed];

/// Runs rounds until the time is over.
///
/// # Panics
/// With what was seen, if an answer is wrong, an invariant is broken, or a frame is lost; or if the host has no room.
pub fn run<D: Design<Native>>(semaphore: GenerationOf<Native, D>, settings: &Settings<'_>) -> Report {
    let region = HostRegion::reserve(settings.memory_bytes).expect("the host has room");
    let machine = Machine::new(settings.nr_cpus);
    machine.attach(|| {
        let world = World::<D>::new(&region, settings.nr_cpus, semaphore);
        let report = rounds(&machine, &world, settings);
        let events = EVENTS.iter().map(|&event| (event.name(), world.vm.events().total(event))).collect();
        Report { events, ..report }
    })
}

fn rounds<D: Design<Native>>(machine: &Machine, world: &World<D>, settings: &Settings<'_>) -> Report {
    let counters: Vec<AtomicU64> = (0..settings.nr_threads).map(|_| AtomicU64::new(0)).collect();
    let space = world.vm.create_space(limits(settings)).expect("room for a space");
    space.mmap(&anonymous(COUNTERS, settings.nr_threads as u64 * PAGE)).expect("room");
    let file = RwLock::new(File::new(&world.vm, &space));
    let shared = Shared { world, space: &space, file: &file, counters: &counters };
    let report = work(machine, &shared, settings);
    drop((space, file));
    world.check_frames();
    report
}

/// Returns the limits of a run's space. That of an odd seed has a range for each CPU; one's bound lies in what all
/// threads map, others between the kinds of memory. In every other pair of seeds forks share all tables that they can.
fn limits(settings: &Settings<'_>) -> Limits {
    const RANGE_BITS: u32 = 36;
    let nr_ranges = settings.nr_cpus as u64 + 2;
    let plain = match settings.seed / 2 % 2 {
        0 => Limits { shared_table_bytes: 0, ..Limits::default() },
        _ => Limits::default(),
    };
    match settings.seed % 2 {
        0 => plain,
        _ => Limits { placement: PlacementPolicy::Spread, mmap_base: nr_ranges << RANGE_BITS, ..plain },
    }
}

/// What the threads of a run count together.
#[derive(Default)]
struct Counts {
    rounds: AtomicU64,
    operations: AtomicU64,
    shortages: AtomicU64,
}

fn work<D: Design<Native>>(machine: &Machine, shared: &Shared<'_, '_, D>, settings: &Settings<'_>) -> Report {
    let end = Instant::now() + settings.duration;
    let barrier = Barrier::<Native>::new(settings.nr_threads as u32);
    let (is_over, counts) = (AtomicBool::new(false), Counts::default());
    run_threads(machine, settings.nr_threads, &|thread| {
        Native::enter();
        let mut worker = Worker::new(thread, shared, settings);
        // SeqCst, Relaxed: the barrier orders the flag; the counts are read when all threads have ended.
        while !is_over.load(Ordering::SeqCst) {
            (0..OPS_PER_ROUND).for_each(|_| worker.step());
            counts.operations.fetch_add(OPS_PER_ROUND, Ordering::Relaxed);
            if barrier.wait() {
                end_round(shared);
                counts.rounds.fetch_add(1, Ordering::Relaxed);
                is_over.store(Instant::now() >= end || (settings.is_stopped)(), Ordering::SeqCst);
            }
            barrier.wait();
            worker.words = Default::default();
        }
        counts.shortages.fetch_add(worker.patience.nr_short, Ordering::Relaxed);
    });
    Report {
        rounds: counts.rounds.into_inner(),
        operations: counts.operations.into_inner(),
        shortages: counts.shortages.into_inner(),
        events: Vec::new(),
    }
}

/// Runs threads while the caller, who owns a slot, gives it up; it has one again if a thread panicked, too.
fn run_threads(machine: &Machine, nr_threads: usize, body: &(dyn Fn(usize) + Sync)) {
    Native::leave();
    let result = catch_unwind(AssertUnwindSafe(|| Native::run(machine, nr_threads, body)));
    Native::enter();
    result.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Checks everything while the threads wait, and makes the next round's object.
fn end_round<D: Design<Native>>(shared: &Shared<'_, '_, D>) {
    shared.world.vm.memory().set_failing(Failing::Never);
    shared.world.check("invariants at the end of a round");
    *shared.file.write().expect("no panic") = File::new(&shared.world.vm, shared.space);
}
