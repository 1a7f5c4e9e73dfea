//! Map calls of several threads at once, each about its own part of a space or all about the same: nothing is lost, no
//! limit is passed, no table is left over.

use crate::world::{Tested, World, anonymous};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Processor, Threads};
use faultless_vm::{AddressRange, CallError, Guest, Limits, PAGE, Protection, SpaceRef, VirtAddr};
use std::sync::atomic::{AtomicU64, Ordering};

const NR_THREADS: usize = 3;
const ROUNDS: u64 = 300;
/// Where the parts begin; the first table's worth of memory behind it belongs to all.
const START: u64 = 0x10_0000_0000;

/// Runs `act` on each of several threads in one space, with the thread's number, and then checks all invariants.
fn with_threads<D: Tested>(
    limits: Limits,
    act: impl Fn(&SpaceRef<'_, Native, D>, &Guest<'_, Native, D>, u64) + Sync,
    at_last: impl Fn(&SpaceRef<'_, Native, D>),
) {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(NR_THREADS);
    let world = machine.attach(|| World::<D>::new(&region, NR_THREADS));
    let space = machine.attach(|| world.vm.create_space(limits).expect("room"));
    Native::run(&machine, NR_THREADS, &|thread| {
        Native::enter();
        let guest = Guest::new(&space);
        act(&space, &guest, thread as u64);
        drop(guest);
        Native::leave();
    });
    machine.attach(|| {
        world.check("invariants");
        at_last(&space);
    });
    machine.attach(|| drop(space));
    machine.attach(|| drop(world));
}

fn range(start: u64, nr_pages: u64) -> AddressRange {
    AddressRange::new(VirtAddr::new(start), nr_pages * PAGE)
}

// The threads' pages lie in one table, with a page between, and no area is left when all have unmapped: whoever is last
// takes the tables away, which the check of the invariants sees.
for_each_design!(neighbours_in_a_table_leave_none_when_they_have_gone, D, {
    with_threads::<D>(
        Limits::default(),
        |space, guest, thread| {
            for round in 0..ROUNDS {
                let at = START + thread * 3 * PAGE;
                space.mmap(&anonymous(Some(at), 2 * PAGE)).expect("room");
                guest.store(VirtAddr::new(at), round).expect("mapped");
                if round % 2 == 0 {
                    space.mprotect(range(at, 1), Protection::READ).expect("mapped");
                }
                assert_eq!(guest.load(VirtAddr::new(at)).expect("mapped").0, round);
                space.munmap(range(at, 2)).expect("mapped");
                assert!(guest.load(VirtAddr::new(at)).is_err(), "thread {thread}, round {round}");
            }
        },
        |space| assert_eq!((space.nr_areas(), space.mapped_bytes(), space.resident_pages()), (0, 0, 0)),
    );
});

// Areas that touch are joined and cut by all.
for_each_design!(neighbours_that_touch_lose_nothing, D, {
    with_threads::<D>(
        Limits::default(),
        |space, guest, thread| {
            for round in 0..ROUNDS {
                let at = START + thread * PAGE;
                space.mmap(&anonymous(Some(at), PAGE)).expect("room");
                guest.store(VirtAddr::new(at), round * 4 + thread).expect("mapped");
                assert_eq!(guest.load(VirtAddr::new(at)).expect("mapped").0, round * 4 + thread);
                if round + 1 < ROUNDS {
                    space.munmap(range(at, 1)).expect("mapped");
                }
            }
        },
        |space| assert_eq!((space.mapped_bytes(), space.resident_pages()), (3 * PAGE, 3)),
    );
});

// Each gets addresses of its own, although all search at once.
for_each_design!(no_hole_is_given_out_twice, D, {
    with_threads::<D>(
        Limits::default(),
        |space, guest, thread| {
            for round in 0..ROUNDS {
                let nr_pages = 1 + (round + thread) % 3;
                let at = space.mmap(&anonymous(None, nr_pages * PAGE)).expect("room");
                for page in 0..nr_pages {
                    let (place, value) = (at + page * PAGE, round << 8 | page << 4 | thread);
                    assert_eq!(guest.load(place).expect("mapped").0, 0, "it is somebody's");
                    guest.store(place, value).expect("mapped");
                    assert_eq!(guest.load(place).expect("mapped").0, value);
                }
                space.munmap(AddressRange::new(at, nr_pages * PAGE)).expect("mapped");
            }
        },
        |space| assert_eq!((space.nr_areas(), space.resident_pages()), (0, 0)),
    );
});

/// Maps pages that are not joined, until that is refused; returns how many there were.
fn fill<D: Tested>(space: &SpaceRef<'_, Native, D>, thread: u64, refused: impl Fn(&CallError) -> bool) -> u64 {
    for nr in 0.. {
        let at = START + (thread * 4096 + 2 * nr) * PAGE;
        match space.mmap(&anonymous(Some(at), PAGE)) {
            Ok(_) => {}
            Err(error) => {
                assert!(refused(&error), "{error}");
                return nr;
            }
        }
    }
    0
}

// Limits are kept exactly, whoever reaches them; and what was given back can be had again.
for_each_design!(limits_are_reached_and_never_passed, D, {
    for added in 0..3 {
        let limits = Limits { max_map_count: 40 + added, ..Limits::default() };
        let nr = AtomicU64::new(0);
        with_threads::<D>(
            limits,
            |space, _, thread| {
                let own = fill(space, thread, |error| matches!(error, CallError::TooManyAreas { .. }));
                nr.fetch_add(own, Ordering::SeqCst);
            },
            // As Linux, one more than the limit.
            |space| assert_eq!((space.nr_areas(), nr.load(Ordering::SeqCst)), (41 + added, 41 + added)),
        );
        let limits = Limits { address_space_bytes: (40 + added) * PAGE, ..Limits::default() };
        with_threads::<D>(
            limits,
            |space, _, thread| {
                fill(space, thread, |error| matches!(error, CallError::OverLimit { .. }));
                // What goes makes room for as much, and no more.
                for nr in 0..ROUNDS {
                    let at = START + (thread * 4096 + 2 * (nr % 4)) * PAGE;
                    space.munmap(range(at, 1)).expect("valid");
                    assert!(space.mapped_bytes() <= (40 + added) * PAGE);
                    // Another thread may have taken the room.
                    let _ = space.mmap(&anonymous(Some(at), PAGE));
                }
                fill(space, thread + 8, |error| matches!(error, CallError::OverLimit { .. }));
            },
            |space| assert_eq!((space.mapped_bytes(), space.nr_areas()), ((40 + added) * PAGE, 40 + added)),
        );
    }
});
