//! Where mappings go that may lie anywhere, when threads map side by side: each policy's places, and no page less room
//! for being spread.

use crate::world::{RW, Tested, World, anonymous};
use faultless_platform::Processor;
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_vm::{
    AccessError, AddressRange, CallError, Event, Guest, Limits, MapRequest, PAGE, Placement, PlacementPolicy, SpaceRef,
    USER_END, VirtAddr,
};
use std::sync::{Barrier, Mutex};

const GIB: u64 = 1 << 30;

/// Lets threads that all have a CPU of their own act at once in a space of these limits.
fn on_each_cpu<D: Tested>(nr_cpus: usize, limits: Limits, act: impl Fn(&SpaceRef<'_, Native, D>) + Sync) {
    let (region, machine) = (HostRegion::reserve(64 << 20).expect("the host has room"), Machine::new(nr_cpus));
    let world = machine.attach(|| World::<D>::new(&region, nr_cpus));
    let space = machine.attach(|| world.vm.create_space(limits).expect("room for a space"));
    let (all_came, all_did) = (Barrier::new(nr_cpus), Barrier::new(nr_cpus));
    std::thread::scope(|scope| {
        for _ in 0..nr_cpus {
            scope.spawn(|| {
                machine.attach(|| {
                    all_came.wait();
                    act(&space);
                    all_did.wait();
                });
            });
        }
    });
    machine.attach(|| {
        world.check("at the end");
        drop(space);
    });
    machine.attach(|| drop(world));
}

fn limits(placement: PlacementPolicy) -> Limits {
    Limits { placement, ..Limits::default() }
}

/// Maps 16 pages on one CPU after the other; returns the places in the order of the CPUs.
fn places<D: Tested>(placement: PlacementPolicy) -> Vec<u64> {
    let (turn, found) = (Mutex::new(()), Mutex::new(vec![0; 4]));
    let all_use_it = Barrier::new(4);
    on_each_cpu::<D>(4, limits(placement), |space| {
        let _guest = Guest::new(space);
        all_use_it.wait();
        let _turn = turn.lock().unwrap();
        found.lock().unwrap()[Native::cpu()] = space.mmap(&anonymous(None, 16 * PAGE)).expect("room").get();
    });
    found.into_inner().unwrap()
}

/// Says how far apart the closest two are.
fn least_distance(places: &[u64]) -> u64 {
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).map(|pair| pair[1] - pair[0]).min().expect("two at least")
}

for_each_design!(places_are_those_of_the_policy, D, {
    assert_eq!(least_distance(&places::<D>(PlacementPolicy::Linux)), 16 * PAGE, "side by side");
    let spread = places::<D>(PlacementPolicy::Spread);
    assert!(spread.is_sorted_by(|low, high| low > high), "the first CPU's is the highest: {spread:x?}");
    assert!(least_distance(&spread) > 1 << 40, "{spread:x?}");
    let auto = places::<D>(PlacementPolicy::Auto);
    assert!(auto.contains(&(Limits::default().mmap_base - 16 * PAGE)), "the first mapping is where Linux's is");
    assert!(least_distance(&auto) > 1 << 40, "{auto:x?}");
});

for_each_design!(one_cpu_alone_maps_where_linux_does, D, {
    let spaces = [PlacementPolicy::Auto, PlacementPolicy::Linux].map(|policy| {
        let found = Mutex::new(Vec::new());
        on_each_cpu::<D>(1, limits(policy), |space| {
            for len in [1, 512, 3, 1024, 7] {
                found.lock().unwrap().push(space.mmap(&anonymous(None, len * PAGE)).expect("room"));
            }
        });
        found.into_inner().unwrap()
    });
    assert_eq!(spaces[0], spaces[1]);
});

for_each_design!(one_thread_that_changes_its_cpu_is_not_spread, D, {
    let (region, machine) = (HostRegion::reserve(64 << 20).expect("the host has room"), Machine::new(2));
    let world = machine.attach(|| World::<D>::new(&region, 2));
    let space = machine.attach(|| world.vm.create_space(limits(PlacementPolicy::Auto)).expect("room for a space"));
    let free = world.vm.memory().nr_free();
    let map = || {
        let _guest = Guest::new(&space);
        (Native::cpu(), space.mmap(&anonymous(None, 16 * PAGE)).expect("room").get())
    };
    // While another thread has the first CPU.
    let map_on_the_second = || {
        let (has_come, may_go) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| machine.attach(|| [&has_come, &may_go].map(Barrier::wait)));
            has_come.wait();
            let mapped = machine.attach(map);
            may_go.wait();
            mapped
        })
    };
    let mapped = [machine.attach(map), map_on_the_second(), machine.attach(map), map_on_the_second()];
    assert_eq!([mapped[0].0, mapped[1].0], [0, 1]);
    let places = mapped.map(|(_, place)| place);
    assert_eq!(least_distance(&places), 16 * PAGE, "side by side: {places:x?}");
    assert!(free - world.vm.memory().nr_free() < 16, "no lanes");
    machine.attach(|| drop(space));
    machine.attach(|| drop(world));
});

for_each_design!(what_is_spread_fills_the_room_to_the_last_page, D, {
    // Ranges of 1 GiB for each of four CPUs, and one for nobody, and half of one at both ends; nothing above.
    let (low, base) = (GIB / 2, 6 * GIB + GIB / 2);
    let limits = Limits { lowest_chosen: low, mmap_base: base, ..limits(PlacementPolicy::Spread) };
    let (len, mapped) = (32 << 20, Mutex::new(0));
    on_each_cpu::<D>(4, limits, |space| {
        let above =
            MapRequest { protection: RW.protection(), options: RW.options(), ..anonymous(Some(base), USER_END - base) };
        assert_eq!(space.mmap(&above), Ok(VirtAddr::new(base)));
        // More than a CPU's range.
        let large = space.mmap(&anonymous(None, GIB + GIB / 8));
        *mapped.lock().unwrap() += large.map_or(0, |_| GIB + GIB / 8);
        loop {
            match space.mmap(&anonymous(None, len)) {
                Ok(start) => assert!(start >= VirtAddr::new(low) && start + len <= VirtAddr::new(base), "{start:x}"),
                Err(error) => {
                    assert_eq!(error, CallError::NoRoom { len_bytes: len });
                    break;
                }
            }
            *mapped.lock().unwrap() += len;
        }
        while space.mmap(&anonymous(None, PAGE)).is_ok() {
            *mapped.lock().unwrap() += PAGE;
        }
        // What has a place of its own knows no ranges.
        assert_eq!(
            space.mmap(&MapRequest {
                placement: Placement::FixedNoReplace(VirtAddr::new(low)),
                ..anonymous(None, PAGE)
            }),
            Err(CallError::Exists { address: VirtAddr::new(low) })
        );
    });
    assert_eq!(mapped.into_inner().unwrap(), base - low);
});

for_each_design!(a_shootdown_asks_only_those_who_used_the_range, D, {
    let (places, step) = (Mutex::new([VirtAddr::new(0); 2]), Barrier::new(2));
    on_each_cpu::<D>(2, limits(PlacementPolicy::Spread), |space| {
        let (cpu, guest) = (Native::cpu(), Guest::new(space));
        let own = space.mmap(&anonymous(None, PAGE)).expect("room");
        guest.store(own, 1).expect("mapped");
        places.lock().unwrap()[cpu] = own;
        let nr_asked = || space.instance().events().total(Event::TlbShootdown);
        step.wait();
        if cpu == 0 {
            space.munmap(AddressRange::new(own, PAGE)).expect("valid");
            assert_eq!(nr_asked(), 0, "nobody else was there");
            assert_eq!(guest.load(places.lock().unwrap()[1]).expect("mapped").0, 1);
        }
        step.wait();
        if cpu == 1 {
            assert!(space.is_used_by(0));
            space.munmap(AddressRange::new(own, PAGE)).expect("valid");
            assert_eq!(nr_asked(), 1, "the other one has used it");
        }
        step.wait();
        if cpu == 0 {
            let other = places.lock().unwrap()[1];
            assert!(guest.load(other).is_err_and(|error| matches!(error, AccessError::NotMapped { .. })));
        }
        step.wait();
    });
});
