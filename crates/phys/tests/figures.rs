//! What the hit paths cost, counted: times differ from machine to machine, these figures do not.

mod support;

use faultless_phys::{Options, Pfn, Slab};
use faultless_platform::count::{Count, Figures, Machine};
use faultless_platform::native::{self, Native};
use faultless_platform::watched::{self, Happening, Sink, Watched};
use faultless_platform::{Processor, Threads, Tracepoint};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::World;

/// Atomics that checks of debug builds add.
const fn in_debug(atomics: u64) -> u64 {
    if cfg!(debug_assertions) { atomics } else { 0 }
}

/// Lets both CPUs of a machine warm up and then run `act` side by side; returns what a round costs CPU 0 after that.
fn cost(rounds: u64, act: impl Fn() + Sync) -> Figures {
    let (machine, nr_arrived) = (Machine::new(2), AtomicUsize::new(0));
    let meet = |nr: usize| {
        nr_arrived.fetch_add(1, Ordering::Relaxed);
        Count::spin_until(|| nr_arrived.load(Ordering::Relaxed) >= nr);
    };
    Count::run(&machine, 2, &|_| {
        Count::enter();
        meet(2);
        (0..200).for_each(|_| act());
        meet(4);
        // Which lines were whose while memory was dealt out doesn't matter from here on.
        machine.forget();
        meet(6);
        (0..200).for_each(|_| act());
        Count::leave();
    });
    machine.attach(|| {
        assert_eq!(Count::cpu(), 0);
        let before = machine.figures(0);
        (0..rounds).for_each(|_| act());
        average(machine.figures(0) - before, rounds)
    })
}

fn average(spent: Figures, rounds: u64) -> Figures {
    let each = |figure: u64| {
        assert!(figure.is_multiple_of(rounds), "{spent:?} is not the same in each of {rounds} rounds");
        figure / rounds
    };
    Figures {
        atomics: each(spent.atomics),
        read_modify_writes: each(spent.read_modify_writes),
        fences: each(spent.fences),
        shared_writes: each(spent.shared_writes),
        taken_lines: each(spent.taken_lines),
    }
}

#[test]
fn a_frame_taken_and_freed_costs_no_read_modify_write_and_no_shared_write() {
    let world = World::<Count>::new(500, 2, Options::default());
    let figures = cost(1000, || {
        let pfn = world.memory.alloc().expect("plenty");
        world.free_all([pfn]);
    });
    let expected =
        Figures { atomics: 19 + in_debug(2), read_modify_writes: 0, fences: 1, shared_writes: 0, ..Figures::default() };
    assert_eq!(figures, expected);
}

#[test]
fn an_object_taken_and_freed_costs_no_read_modify_write_and_no_shared_write() {
    let world = World::<Count>::new(500, 2, Options::default());
    let slab = Slab::<Count, [u64; 20]>::new(&world.memory);
    let figures = cost(1000, || {
        let object = slab.alloc().expect("plenty");
        // SAFETY: ours, and not used any more.
        unsafe { slab.free(object) };
    });
    let expected = Figures { atomics: 16, read_modify_writes: 0, fences: 1, shared_writes: 0, ..Figures::default() };
    assert_eq!(figures, expected);
}

/// Takes and frees `nr_frames` frames; returns how many read-modify-writes that took.
fn up_and_down(world: &World<Count>, machine: &Machine, nr_frames: usize) -> u64 {
    let before = machine.figures(0).read_modify_writes;
    let frames: Vec<Pfn> = (0..nr_frames).map(|_| world.memory.alloc().expect("plenty")).collect();
    world.free_all(frames);
    machine.figures(0).read_modify_writes - before
}

/// Up and down by 1000 frames: what a frame costs when it has to come from the zone, and to go there.
#[test]
fn the_zone_is_met_once_for_each_chain() {
    let world = World::<Count>::new(4000, 2, Options::default());
    let machine = Machine::new(2);
    machine.attach(|| {
        for _ in 0..5 {
            up_and_down(&world, &machine, 1000);
        }
        let spent = up_and_down(&world, &machine, 1000);
        // Of 1000 frames each way 872 pass the list's 128, 32 at a time: a claim to shed them, a swap each time that
        // there is a chain already, and a swap to take them up again. In the small memory a chain has about 128: for
        // each, a compare-and-swap to give it back, and a lock and a compare-and-swap to fetch it.
        assert!((70..=95).contains(&spent), "{spent} read-modify-writes");
    });
}

/// Nobody pays for many at once: the allocation that fills the list up makes two accesses for each frame that it moves,
/// and few besides.
#[test]
fn the_allocation_that_fills_a_list_up_is_no_spike() {
    let world = World::<Count>::new(4000, 1, Options::default());
    let machine = Machine::new(1);
    machine.attach(|| {
        for _ in 0..5 {
            up_and_down(&world, &machine, 1000);
        }
        let nr_atomics = || machine.figures(0).atomics;
        let mut frames = Vec::new();
        let costs: Vec<u64> = (0..1000)
            .map(|_| {
                let before = nr_atomics();
                frames.push(world.memory.alloc().expect("plenty"));
                nr_atomics() - before
            })
            .collect();
        world.free_all(frames);
        let most = costs.iter().copied().max().unwrap_or_default();
        let mean = costs.iter().sum::<u64>() as f64 / costs.len() as f64;
        assert!((62..=110).contains(&most), "{most} atomics in one allocation");
        assert!(mean <= 13.0, "{mean} atomics in an allocation");
    });
}

const MIB_128: usize = 128 << 8;

/// Counts how often zones' locks are taken.
#[derive(Default)]
struct ZoneLocks(AtomicUsize);

impl Sink for ZoneLocks {
    fn note(&self, happening: &Happening) {
        if matches!(happening.event, Tracepoint::LockTaken { lock, .. } if lock.name == "zone") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// In a memory of 4 GiB a CPU may keep 4 MiB, and 128 MiB pass it in pieces of almost that.
#[test]
fn a_large_loop_meets_the_zones_lock_less_than_once_in_500_frames() {
    type Platform = Watched<Native>;
    let (world, locks) = (World::<Platform>::new(1 << 20, 1, Options::default()), Arc::new(ZoneLocks::default()));
    let machine = watched::Machine::<Native>::new(native::Machine::new(1), locks.clone());
    let up_and_down = || {
        let frames: Vec<Pfn> = (0..MIB_128).map(|_| world.memory.alloc().expect("plenty")).collect();
        world.free_all(frames);
    };
    Platform::run(&machine, 1, &|_| {
        Platform::enter();
        (0..3).for_each(|_| up_and_down());
        let before = locks.0.load(Ordering::Relaxed);
        up_and_down();
        let nr_taken = locks.0.load(Ordering::Relaxed) - before;
        assert!(nr_taken != 0, "nobody counts");
        assert!(nr_taken * 500 < MIB_128, "the lock is taken {nr_taken} times");
        Platform::leave();
    });
    assert_eq!(world.memory.nr_free(), 1 << 20);
}

#[test]
fn references_cost_one_read_modify_write_each_way_and_none_if_uncounted() {
    let world = World::<Count>::new(10, 2, Options::default());
    let (counted, uncounted) =
        Machine::new(1).attach(|| (world.memory.alloc().expect("plenty"), world.memory.alloc().expect("plenty")));
    world.owned(uncounted).stop_counting();
    let pair = |pfn: Pfn| {
        let page = world.owned(pfn);
        cost(100, || assert!(page.try_get() && !page.put()))
    };
    assert_eq!((pair(counted).read_modify_writes, pair(uncounted).read_modify_writes), (2, 0));
    assert_eq!(pair(uncounted).shared_writes, 0);
}
