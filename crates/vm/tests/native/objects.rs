//! Objects that shrink and grow under those who use them: what is cut off is gone for good, and nothing else is.

use crate::world::{RW, Tested, World, is_soon, leave_guest, stand_in_guest};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{PAGE_BYTES, Processor, Threads};
use faultless_sync::Barrier;
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, Backing, FetchError, Guest, Limits, MapRequest, ObjectHandle,
    ObjectSpec, PAGE, PageSource, Placement, Populate, Protection, SpaceRef, VirtAddr, WriteNotice,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
        placement: Placement::Fixed(VirtAddr::new(BASE)),
        len_bytes: BYTES,
        protection: (RW | kind).protection(),
        options: (RW | kind).options(),
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
                    assert_eq!(
                        guest.load(VirtAddr::new(address)).map(|(value, _)| value),
                        Ok(0),
                        "old content behind an extension"
                    );
                    guest.store(VirtAddr::new(address), 7).expect("mapped");
                }
                has_extended.store(true, Ordering::SeqCst);
            }
            _ => {
                assert!(PLACES.into_iter().all(|address| guest.load(VirtAddr::new(address)).is_ok()));
                stand_in_guest(&guest, BASE);
                may_begin.store(true, Ordering::SeqCst);
                is_soon(&has_extended, STOP);
                leave_guest();
            }
        }
        drop(guest);
        Native::leave();
    });
    machine.attach(|| {
        let guest = Guest::new(&space);
        for address in PLACES {
            assert_eq!(
                guest.load(VirtAddr::new(address)).map(|(value, _)| value),
                Ok(7),
                "a store behind an extension is lost"
            );
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
                guest.store(VirtAddr::new(BASE), 5).expect("mapped");
                assert!((1..PAGES).all(|page| guest.load(VirtAddr::new(BASE + page * PAGE)).is_ok()));
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
                    let loaded = guest.load(VirtAddr::new(address)).map(drop);
                    assert_eq!(
                        loaded,
                        Err(AccessError::NoPage { address: VirtAddr::new(address) }),
                        "the child kept a page that was cut off"
                    );
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

for_each_design!(removed_pages_are_zero_to_the_last_one_of_each_area, D, {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(1);
    let world = machine.attach(|| World::<D>::new(&region, 1));
    machine.attach(|| {
        let (space, object) = (world.vm.create_space(Limits::default()).expect("room"), object(&world));
        map(&space, &object, AreaFlags::SHARED);
        // Three areas, of one page, of two, and of one.
        space.mprotect(AddressRange::new(VirtAddr::new(BASE + PAGE), 2 * PAGE), Protection::READ).expect("mapped");
        space.mprotect(AddressRange::new(VirtAddr::new(BASE + PAGE), 2 * PAGE), RW.protection()).expect("mapped");
        space
            .mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), (RW | AreaFlags::EXEC).protection())
            .expect("mapped");
        let guest = Guest::new(&space);
        let bytes = || (0..PAGES).map(|page| guest.load_byte(VirtAddr::new(BASE + page * PAGE + 9)).expect("mapped").0);
        assert!(bytes().eq((0..PAGES).map(|page| 0x40 + page as u8)));
        space.madvise(AddressRange::new(VirtAddr::new(BASE), BYTES), Advice::Remove).expect("shared and writable");
        assert!(bytes().eq([0; PAGES as usize]), "{:?}", bytes().collect::<Vec<_>>());
        drop(guest);
        drop((space, object));
        world.check("afterwards");
    });
    machine.attach(|| drop(world));
});

/// Asks for another attempt as often as it was told.
struct Hesitant(AtomicU64);

impl PageSource for Hesitant {
    fn fetch(&self, _: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        if self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(FetchError::Retry);
        }
        page.fill(0x40 + page_index as u8);
        Ok(())
    }
}

for_each_design!(a_source_that_asks_for_another_attempt_is_asked_again, D, {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(1);
    let world = machine.attach(|| World::<D>::new(&region, 1));
    machine.attach(|| {
        let source: &'static Hesitant = Box::leak(Box::new(Hesitant(AtomicU64::new(0))));
        let spec = ObjectSpec { identity: 1, size_bytes: BYTES, source, write_notice: WriteNotice::None };
        let object = world.vm.create_object(&spec).expect("room for an object");
        let space = world.vm.create_space(Limits::default()).expect("room");
        map(&space, &object, AreaFlags::empty());
        let guest = Guest::new(&space);
        for page in 0..PAGES - 1 {
            source.0.store(3, Ordering::Relaxed);
            let loaded = guest.load_byte(VirtAddr::new(BASE + page * PAGE)).map(|(byte, _)| byte);
            assert_eq!(loaded, Ok(0x40 + page as u8));
            assert_eq!(source.0.load(Ordering::Relaxed), 0, "it was asked until it gave the page");
        }
        source.0.store(3, Ordering::Relaxed);
        let mut words = [0; 1];
        world.vm.read_object(&object, (PAGES - 1) * PAGE, &mut words).expect("the last page");
        assert_eq!((words, source.0.load(Ordering::Relaxed)), ([u64::from_le_bytes([0x40 + PAGES as u8 - 1; 8])], 0));
        drop(guest);
        drop((space, object));
    });
    machine.attach(|| drop(world));
});

for_each_design!(a_visit_of_objects_may_make_and_drop_them, D, {
    World::<D>::run(2, 64 << 20, |world| {
        let sizes = || {
            let mut sizes = Vec::new();
            world.vm.for_each_object(|object| sizes.push(object.size_bytes()));
            sizes.sort_unstable();
            sizes
        };
        let make = |pages: u64| {
            let made = object(world);
            world.vm.truncate(&made, pages * PAGE).expect("a size");
            made
        };
        let mut kept: Vec<_> = (1..=4).map(make).map(Some).collect();
        assert_eq!(sizes(), [PAGE, 2 * PAGE, 3 * PAGE, 4 * PAGE]);
        let (mut nr_visits, mut made) = (0, Vec::new());
        world.vm.for_each_object(|visited| {
            nr_visits += 1;
            // The visited one and the next one go; another one comes, and is not visited.
            let page = (visited.size_bytes() / PAGE) as usize;
            drop(kept[page - 1].take());
            drop(kept[page % 4].take());
            made.push(make(5));
            assert_eq!(visited.size_bytes(), page as u64 * PAGE, "it lives while it is visited");
            world.vm.for_each_object(|_| {});
        });
        assert!((2..=3).contains(&nr_visits), "{nr_visits} of four that go two by two");
        let nr_left = kept.iter().flatten().count();
        assert_eq!(sizes().len(), nr_left + made.len());
        assert!(sizes().iter().filter(|&&size| size == 5 * PAGE).count() == made.len());
        drop((kept, made));
        assert_eq!(sizes(), []);
        world.check("after all objects have gone");
    });
});
