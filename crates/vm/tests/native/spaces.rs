//! Spaces that come and go while others go along the list of them, and references that are dropped anywhere.

use crate::world::{RW, Tested, World, anonymous};
use faultless_phys::Kind;
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{CpuSet, Platform, Processor, Threads};
use faultless_sync::Barrier;
use faultless_vm::{
    AddressRange, AreaFlags, Backing, Guest, Limits, MapRequest, ObjectSpec, PAGE, Placement, Populate, SpaceRef,
    VirtAddr, WriteNotice, ZeroSource,
};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BASE: u64 = 0x10_0000_0000;
const AREAS: u64 = 40;

/// Maps many areas with a page each, so that copying and ending them takes a while.
fn furnish<D: Tested>(space: &SpaceRef<'_, Native, D>) {
    let guest = Guest::new(space);
    for place in 0..AREAS {
        let address = BASE + place * 2 * PAGE;
        space.mmap(&anonymous(Some(address), PAGE)).expect("room");
        guest.store(VirtAddr::new(address), 1).expect("mapped");
    }
}

fn has_lost_no_frame<D: Tested>(world: &World<D>) {
    world.vm.flush();
    world.check("invariants at the end");
    let audit = world.vm.memory().audit();
    let nr_lost = audit.nr_of(Kind::Anonymous) + audit.nr_of(Kind::Table) + audit.nr_of(Kind::Object);
    assert_eq!(nr_lost, 0, "frames were lost: {audit}");
}

for_each_design!(visitors_see_whole_spaces_while_others_fork_and_end_them, D, {
    const VISITS: u64 = 600;
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(3);
    let world = machine.attach(|| World::<D>::new(&region, 3));
    let space = machine.attach(|| world.vm.create_space(Limits::default()).expect("room"));
    machine.attach(|| furnish(&space));
    let (is_over, nr_visited) = (AtomicBool::new(false), AtomicU64::new(0));
    Native::run(&machine, 3, &|thread| {
        Native::enter();
        match thread {
            0 => {
                while nr_visited.load(Ordering::SeqCst) < VISITS {
                    drop(space.fork().expect("room for a child"));
                }
                is_over.store(true, Ordering::SeqCst);
            }
            _ => {
                while !is_over.load(Ordering::SeqCst) {
                    world.vm.for_each_space(|space| {
                        let mut nr_areas = 0;
                        space.for_each_area(|_| nr_areas += 1);
                        assert_eq!(nr_areas, AREAS, "a space that is not whole is listed");
                        nr_visited.fetch_add(1, Ordering::SeqCst);
                    });
                }
            }
        }
        Native::leave();
    });
    machine.attach(|| {
        drop(space);
        has_lost_no_frame(&world);
    });
    machine.attach(|| drop(world));
});

for_each_design!(a_visit_may_make_and_drop_spaces, D, {
    World::<D>::run(2, 64 << 20, |world| {
        let (first, second) = (world.space(), world.space());
        let mut kept = Some(second);
        let mut seen = Vec::new();
        let mut made = Vec::new();
        world.vm.for_each_space(|space| {
            seen.push(space.id());
            drop(kept.take());
            if made.len() < 2 {
                made.push(world.space());
            }
        });
        let expected: Vec<_> = [first.id()].into_iter().chain(made.iter().map(|space| space.id())).collect();
        assert_eq!(seen, expected, "the second was dropped before its turn, and those that were made come last");
    });
});

for_each_design!(a_visitor_meets_what_is_made_on_any_cpu, D, {
    // Three lists.
    const CPUS: usize = 20;
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(CPUS);
    let world = machine.attach(|| World::<D>::new(&region, CPUS));
    let made = Mutex::new(Vec::new());
    let together = Barrier::<Native>::new(CPUS as u32);
    Native::run(&machine, CPUS, &|_| {
        Native::enter();
        let space = world.vm.create_space(Limits::default()).expect("room");
        let child = space.fork().expect("room");
        made.lock().expect("no panic").extend([space, child]);
        together.wait();
        Native::leave();
    });
    machine.attach(|| {
        let mut made = made.into_inner().expect("no panic");
        let ids = |spaces: &[SpaceRef<'_, Native, D>]| spaces.iter().map(|space| space.id()).collect::<BTreeSet<_>>();
        let met = || {
            let mut met = Vec::new();
            world.vm.for_each_space(|space| met.push(space.id()));
            assert_eq!(met.len(), met.iter().collect::<BTreeSet<_>>().len(), "one was met twice");
            met.into_iter().collect::<BTreeSet<_>>()
        };
        assert_eq!((met(), made.len()), (ids(&made), 2 * CPUS));
        // One of each three leaves, from the middles and the ends of the lists.
        let mut stays = [false, true, true].into_iter().cycle();
        made.retain(|_| stays.next() == Some(true));
        assert_eq!(met(), ids(&made));
        // What a visit makes, on a CPU whose list the visitor may have left behind, is met as well.
        let mut late: Vec<SpaceRef<'_, Native, D>> = Vec::new();
        let mut nr_met = 0;
        world.vm.for_each_space(|_| {
            nr_met += 1;
            // In the last list, of which there are three: this thread's CPU has the first.
            if nr_met == made.len() {
                late.push(world.vm.create_space(Limits::default()).expect("room"));
            }
        });
        assert_eq!(nr_met, made.len() + 1);
        drop((made, late));
        assert!(met().is_empty());
        has_lost_no_frame(&world);
    });
    machine.attach(|| drop(world));
});

for_each_design!(the_last_of_three_ends_a_space, D, {
    const ROUNDS: usize = 100;
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(3);
    let world = machine.attach(|| World::<D>::new(&region, 3));
    let barrier = Barrier::<Native>::new(3);
    let given: Mutex<Vec<SpaceRef<'_, Native, D>>> = Mutex::new(Vec::new());
    Native::run(&machine, 3, &|thread| {
        Native::enter();
        for _ in 0..ROUNDS {
            if thread == 0 {
                let space = world.space();
                space.mmap(&anonymous(Some(BASE), PAGE)).expect("room");
                Guest::new(&space).store(VirtAddr::new(BASE), 1).expect("mapped");
                given.lock().expect("no panic").extend([space.clone(), space.clone(), space]);
            }
            barrier.wait();
            let own = given.lock().expect("no panic").pop().expect("one for each");
            if thread == 2 {
                // The visitor's reference may be the last.
                world.vm.for_each_space(|space| space.for_each_area(|area| assert_eq!(area.range.start().get(), BASE)));
            }
            drop(own);
            barrier.wait();
        }
        Native::leave();
    });
    machine.attach(|| has_lost_no_frame(&world));
    drop(given);
    machine.attach(|| drop(world));
});

for_each_design!(references_are_dropped_on_threads_without_a_cpu, D, {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(1);
    let world = machine.attach(|| World::<D>::new(&region, 1));
    let make = || {
        machine.attach(|| {
            let space = world.space();
            furnish(&space);
            let spec =
                ObjectSpec { identity: 1, size_bytes: PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
            let object = world.vm.create_object(&spec).expect("room");
            world.vm.read_object(&object, 0, &mut [0]).expect("zeros");
            let request = MapRequest {
                placement: Placement::Fixed(VirtAddr::new(BASE - PAGE)),
                len_bytes: PAGE,
                protection: (RW | AreaFlags::SHARED).protection(),
                options: (RW | AreaFlags::SHARED).options(),
                backing: Backing::Object(&object, 0),
                populate: Populate::Now,
            };
            space.mmap(&request).expect("room");
            let lonely = world.vm.create_object(&spec).expect("room");
            world.vm.read_object(&lonely, 0, &mut [0]).expect("zeros");
            (Guest::new(&space), space, object, lonely)
        })
    };
    let mut nr_listed = 0;
    drop(make());
    machine.attach(|| {
        world.vm.for_each_space(|_| nr_listed += 1);
        assert_eq!(nr_listed, 0, "a space without a reference is visited");
        world.check("while a space and an object wait to be ended");
        has_lost_no_frame(&world);
    });
    // One of many spaces ends them on the way, so that they don't pile up.
    let nr_free = machine.attach(|| world.vm.memory().nr_free());
    for _ in 0..50 {
        drop(make());
    }
    let nr_waiting = machine.attach(|| {
        drop(world.space());
        world.vm.flush();
        nr_free - world.vm.memory().nr_free()
    });
    assert!(nr_waiting < 40, "{nr_waiting} frames wait although spaces were made since");
    // What waits at the end is ended with the instance.
    drop(make());
    let memory = world.vm.memory().clone();
    machine.attach(|| drop(world));
    machine.attach(|| memory.rcu().flush());
    assert_eq!(memory.audit().nr_of(Kind::Anonymous) + memory.audit().nr_of(Kind::Table), 0, "frames were lost");
});

for_each_design!(an_instance_is_dropped_on_a_thread_without_a_cpu, D, {
    let machine = Machine::new(2);
    // The second would find the first one's handler, or threads that wait would run it.
    for _ in 0..2 {
        let region = HostRegion::reserve(64 << 20).expect("the host has room");
        let world = machine.attach(|| World::<D>::new(&region, 2));
        machine.attach(|| {
            let space = world.space();
            furnish(&space);
            space.munmap(AddressRange::new(VirtAddr::new(BASE), AREAS * PAGE)).expect("room");
        });
        // Left to whoever has a CPU next, which nobody has.
        let space = machine.attach(|| world.space());
        machine.attach(|| furnish(&space));
        drop(space);
        std::thread::scope(|scope| scope.spawn(|| drop(world)).join()).expect("no CPU is needed");
        Native::run(&machine, 2, &|_| {
            Native::enter();
            let mut all = CpuSet::new();
            (0..2).for_each(|cpu| all.insert(cpu));
            Native::shoot_down(&all, |_| true);
            Native::spin_until_deadline(Native::now() + 1_000_000, || false);
            Native::leave();
        });
    }
});
