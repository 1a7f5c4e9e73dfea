//! What the hit paths cost, counted: times differ from machine to machine, these figures do not.

mod support;

use faultless_phys::{Options, Pfn, Slab};
use faultless_platform::count::{Count, Figures, Machine};
use faultless_platform::{Processor, Threads};
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
    }
}

#[test]
fn a_frame_taken_and_freed_costs_no_read_modify_write_and_no_shared_write() {
    let world = World::<Count>::new(500, 2, Options::default());
    let figures = cost(1000, || {
        let pfn = world.memory.alloc().expect("plenty");
        world.free_all([pfn]);
    });
    let expected = Figures { atomics: 19 + in_debug(2), read_modify_writes: 0, fences: 1, shared_writes: 0 };
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
    let expected = Figures { atomics: 16, read_modify_writes: 0, fences: 1, shared_writes: 0 };
    assert_eq!(figures, expected);
}

/// Up and down by 1000 frames: what a frame costs when it has to come from the buddy allocator, and to go there.
#[test]
fn the_zones_lock_is_taken_once_a_batch() {
    let world = World::<Count>::new(4000, 2, Options::default());
    let machine = Machine::new(2);
    machine.attach(|| {
        let up_and_down = || {
            let frames: Vec<Pfn> = (0..1000).map(|_| world.memory.alloc().expect("plenty")).collect();
            world.free_all(frames);
        };
        up_and_down();
        let before = machine.figures(0).read_modify_writes;
        up_and_down();
        let spent = machine.figures(0).read_modify_writes - before;
        // Of 1000 frames each way 872 pass the list's 128, 32 at a time: a claim to shed them, of every other batch a swap and a
        // compare-and-swap to give them back, a lock and a compare-and-swap to fetch them, and a swap to take up the second.
        assert!((90..=100).contains(&spent), "{spent} read-modify-writes");
    });
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
