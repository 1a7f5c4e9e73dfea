//! Objects that shrink and grow under those who use them: what is cut off is gone for good, and nothing else is.

use crate::world::{RW, Tested, World, is_soon, stand_in_guest};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{PAGE_BYTES, Platform, Processor, Threads};
use faultless_sync::Barrier;
use faultless_vm::{
    AccessError, AreaFlags, Backing, FetchError, Guest, Limits, MapRequest, ObjectHandle, ObjectSpec, PAGE, PageSource,
    Placement, Populate, SpaceRef, WriteNotice,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BASE: u64 = 0x10_0000_0000;
const PAGES: u64 = 4;
const BYTES: u64 = PAGES * PAGE;

/// Content that is zero nowhere.
struct Pattern;

impl PageSource for Pattern {
    fn fetch(&self, _: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        page.fill(0x40 + page_index as u8);
        Ok(())
    }
}

fn object<D: Tested>(world: &World<D>) -> ObjectHandle<'_, Native> {
    let spec = ObjectSpec { identity: 1, size_bytes: BYTES, source: &Pattern, write_notice: WriteNotice::None };
    world.vm.create_object(&spec).expect("room for an object")
}

/// Maps all of an object at [`BASE`].
fn map<D: Tested>(space: &SpaceRef<'_, Native, D>, object: &ObjectHandle<'_, Native>, kind: AreaFlags) {
    let request = MapRequest {
        placement: Placement::Fixed(BASE),
        len_bytes: BYTES,
        flags: RW | kind,
        backing: Backing::Object(object, 0),
        populate: Populate::OnFault,
    };
    space.mmap(&request).expect("room for a mapping");
}

/// Reads the first word of each page into memory, as far as the object reaches.
fn read_all<D: Tested>(world: &World<D>, object: &ObjectHandle<'_, Native>) {
    for page in 0..PAGES {
        // Behind the end there is nothing to read.
        let _ = world.vm.read_object(object, page * PAGE, &mut [0]);
    }
}

for_each_design!(truncations_and_holes_of_one_object_use_nothing_that_is_freed, D, {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(3);
    let world = machine.attach(|| World::<D>::new(&region, 3));
    let object = machine.attach(|| object(&world));
    Native::run(&machine, 3, &|thread| {
        Native::enter();
        let end = Native::now() + 250_000_000;
        for round in (thread as u64..).take_while(|_| Native::now() < end) {
            match round % 3 {
                0 => world.vm.truncate(&object, PAGE + 8 * (round % 500)).expect("shorter"),
                1 => world.vm.punch(&object, PAGE..3 * PAGE).expect("whole pages"),
                _ => world.vm.truncate(&object, BYTES - 1).expect("longer"),
            }
            read_all(&world, &object);
        }
        Native::leave();
    });
    machine.attach(|| {
        world.check("invariants");
        drop(object);
    });
    machine.attach(|| drop(world));
});

// A CPU that stays in guest state holds the truncation up, half way.
for_each_design!(an_extension_beside_a_truncation_shows_zeros_and_keeps_what_is_stored, D, {
    const STOP: Duration = Duration::from_millis(20);
    const PLACES: [u64; 2] = [BASE + 8, BASE + 2 * PAGE];
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(3);
    let world = machine.attach(|| World::<D>::new(&region, 3));
    let (space, object) = machine.attach(|| (world.vm.create_space(Limits::default()).expect("room"), object(&world)));
    machine.attach(|| {
        map(&space, &object, AreaFlags::SHARED);
        read_all(&world, &object);
    });
    let (may_begin, has_extended) = (AtomicBool::new(false), AtomicBool::new(false));
    Native::run(&machine, 3, &|thread| {
        Native::enter();
        let guest = Guest::new(&space);
        match thread {
            0 => {
                Native::spin_until(|| may_begin.load(Ordering::SeqCst));
                world.vm.truncate(&object, 8).expect("shorter");
            }
            1 => {
                Native::spin_until(|| object.size_bytes() == 8);
                world.vm.truncate(&object, BYTES).expect("longer");
                for address in PLACES {
                    assert_eq!(guest.load(address).map(|(value, _)| value), Ok(0), "old content behind an extension");
                    guest.store(address, 7).expect("mapped");
                }
                has_extended.store(true, Ordering::SeqCst);
            }
            _ => {
                assert!(PLACES.into_iter().all(|address| guest.load(address).is_ok()));
                stand_in_guest(&guest, BASE);
                may_begin.store(true, Ordering::SeqCst);
                is_soon(&has_extended, STOP);
                Native::guest_exit();
            }
        }
        drop(guest);
        Native::leave();
    });
    machine.attach(|| {
        let guest = Guest::new(&space);
        for address in PLACES {
            assert_eq!(guest.load(address).map(|(value, _)| value), Ok(7), "a store behind an extension is lost");
        }
    });
    machine.attach(|| {
        drop((space, object));
        world.check("invariants");
    });
    machine.attach(|| drop(world));
});

for_each_design!(a_fork_beside_a_truncation_leaves_no_page_in_the_child, D, {
    const ROUNDS: usize = 60;
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(2);
    let world = machine.attach(|| World::<D>::new(&region, 2));
    let (space, object) = machine.attach(|| (world.vm.create_space(Limits::default()).expect("room"), object(&world)));
    let barrier = Barrier::<Native>::new(2);
    Native::run(&machine, 2, &|thread| {
        Native::enter();
        for _ in 0..ROUNDS {
            if thread == 0 {
                world.vm.truncate(&object, BYTES).expect("longer");
                map(&space, &object, AreaFlags::empty());
                let guest = Guest::new(&space);
                // One private copy, so that fork copies entries; the others are the object's own pages.
                guest.store(BASE, 5).expect("mapped");
                assert!((1..PAGES).all(|page| guest.load(BASE + page * PAGE).is_ok()));
            }
            barrier.wait();
            if thread == 0 {
                world.vm.truncate(&object, 0).expect("shorter");
                barrier.wait();
            } else {
                let child = space.fork().expect("room for a child");
                barrier.wait();
                let guest = Guest::new(&child);
                for address in (0..PAGES).map(|page| BASE + page * PAGE) {
                    let loaded = guest.load(address).map(drop);
                    assert_eq!(loaded, Err(AccessError::NoPage { address }), "the child kept a page that was cut off");
                }
            }
            barrier.wait();
        }
        Native::leave();
    });
    machine.attach(|| {
        drop((space, object));
        world.check("invariants");
    });
    machine.attach(|| drop(world));
});
