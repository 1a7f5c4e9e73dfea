//! Mappings of memory objects: whom a store reaches, what is refused, what lies behind the end.

use super::{BASE, file, mapping, with_world};
use crate::world::{RW, Tested, World, lines};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, CallError, Guest, MAX_OBJECT_BYTES, ObjectSpec, PAGE, PageRange,
    Protection, RemapPlacement, RemapRequest, SyncFlags, VirtAddr, WriteNotice, ZeroSource,
};

for_each_design!(the_longest_object_has_a_place_for_each_page, D, {
    /// First page that four levels of tables don't span.
    const FAR: u64 = 1 << 36;
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let spec = ObjectSpec { identity: 9, size_bytes: 0, source: &ZeroSource, write_notice: WriteNotice::None };
        let object = world.vm.create_object(&spec).expect("room");
        assert!(world.vm.truncate(&object, MAX_OBJECT_BYTES + 1).is_err());
        world.vm.truncate(&object, MAX_OBJECT_BYTES).expect("as long as Linux's longest");
        let last = MAX_OBJECT_BYTES / PAGE - 4;
        for (place, first) in [FAR - 2, last].into_iter().enumerate() {
            let at = BASE + place as u64 * 0x100_0000;
            space.mmap(&mapping(&object, at, first, RW | AreaFlags::SHARED)).expect("room");
            space.mmap(&mapping(&object, at + 0x10_0000, first, AreaFlags::READ)).expect("room");
            for page in 0..4 {
                let number = 10 * place as u64 + page;
                guest.store(VirtAddr::new(at + page * PAGE), number).expect("writable");
                assert_eq!(guest.load(VirtAddr::new(at + 0x10_0000 + page * PAGE)).expect("mapped").0, number);
            }
        }
        world.check("pages on both sides");
        world.vm.truncate(&object, FAR * PAGE).expect("shorter");
        assert_eq!(guest.load(VirtAddr::new(BASE + PAGE)).expect("in the object").0, 1);
        let behind = BASE + 2 * PAGE;
        assert_eq!(guest.load(VirtAddr::new(behind)), Err(AccessError::NoPage { address: VirtAddr::new(behind) }));
        world.vm.truncate(&object, MAX_OBJECT_BYTES).expect("longer");
        assert_eq!(guest.load(VirtAddr::new(behind)).expect("in the object again").0, 0);
        assert_eq!(guest.load(VirtAddr::new(BASE + 0x100_0000)).expect("in the object again").0, 0);
    });
});

for_each_design!(nothing_pages_a_files_own_pages_out, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let object = world.vm.create_object(&file(WriteNotice::None)).expect("room");
        space.mmap(&mapping(&object, BASE, 0, RW)).expect("room");
        assert_eq!(guest.load_byte(VirtAddr::new(BASE)).expect("mapped").0, 3);
        let range = AddressRange::new(VirtAddr::new(BASE), PAGE);
        assert!(space.madvise(range, Advice::Free).is_err(), "it is for anonymous memory");
        space.madvise(range, Advice::PageOut).expect("mapped");
        assert_eq!(space.resident_pages(), 1, "nobody gave the page up");
        world.check("a file's page that was to go out");
    });
});

for_each_design!(private_stores_stay_private_and_shared_ones_reach_the_object, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let object = world.vm.create_object(&file(WriteNotice::Fault)).expect("room");
        let (private, shared, third) = (BASE, BASE + 0x100_0000, BASE + 0x200_0000);
        space.mmap(&mapping(&object, private, 0, RW)).expect("room");
        space.mmap(&mapping(&object, shared, 0, RW | AreaFlags::SHARED)).expect("room");
        space.mmap(&mapping(&object, third, 0, AreaFlags::READ)).expect("room");
        assert_eq!(guest.load_byte(VirtAddr::new(private + PAGE)).expect("mapped").0, 4);
        let taken = guest.store_byte(VirtAddr::new(private + PAGE), 40).expect("writable");
        assert_eq!((taken.count, taken.first_was_present), (1, true));
        assert_eq!(guest.store_byte(VirtAddr::new(private + 2 * PAGE), 50).expect("writable").count, 1);
        assert_eq!(guest.load_byte(VirtAddr::new(third + PAGE)).expect("mapped").0, 4);
        assert_eq!(guest.load_byte(VirtAddr::new(third + 2 * PAGE)).expect("mapped").0, 5);
        assert_eq!(guest.load_byte(VirtAddr::new(shared)).expect("mapped").0, 3);
        let taken = guest.store_byte(VirtAddr::new(shared), 30).expect("writable");
        assert_eq!((taken.count, taken.first_was_present), (1, true), "the file wants to know of the first store");
        assert_eq!(guest.load_byte(VirtAddr::new(third)).expect("mapped").0, 30);
        assert_eq!(guest.load_byte(VirtAddr::new(private)).expect("mapped").0, 30, "not written privately yet");
        assert!(guest.store_byte(VirtAddr::new(third), 1).is_err());
        world.check("invariants");
    });
});

for_each_design!(a_file_hears_of_the_first_store_whatever_became_of_the_rights_before, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let object = world.vm.create_object(&file(WriteNotice::Fault)).expect("room");
        space.mmap(&mapping(&object, BASE, 0, RW | AreaFlags::SHARED)).expect("room");
        let toggle = || {
            space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::READ).expect("mapped");
            space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), RW.protection()).expect("mapped");
        };
        assert_eq!(guest.load_byte(VirtAddr::new(BASE)).expect("mapped").0, 3);
        toggle();
        let taken = guest.store_byte(VirtAddr::new(BASE), 30).expect("writable");
        assert_eq!((taken.count, taken.first_was_present), (1, true), "the page was clean");
        toggle();
        assert_eq!(
            guest.store_byte(VirtAddr::new(BASE), 31).expect("writable").count,
            0,
            "the file knows that it is dirty"
        );
    });
});

for_each_design!(a_file_hears_of_the_first_store_after_its_pages_were_written_back, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        for (notice, expected) in [(WriteNotice::Fault, 1), (WriteNotice::None, 0)] {
            let object = world.vm.create_object(&file(notice)).expect("room");
            let private = BASE + 16 * PAGE;
            space.mmap(&mapping(&object, BASE, 0, RW | AreaFlags::SHARED)).expect("room");
            space.mmap(&mapping(&object, private, 0, RW)).expect("room");
            let store = |page: u64| guest.store_byte(VirtAddr::new(page), 30).expect("writable").count;
            let sync = |first: u64, nr_pages: u64, flags| {
                space.msync(AddressRange::new(VirtAddr::new(BASE + first * PAGE), nr_pages * PAGE), flags)
            };
            assert_eq!([store(BASE), store(BASE + PAGE), store(private)], [1; 3]);
            let begun = PageRange::new(VirtAddr::new(BASE), 32 * PAGE).expect("in user memory");
            sync(0, 1, SyncFlags::ASYNC).expect("mapped");
            assert_eq!(store(BASE), 0, "it is only begun");
            sync(0, 1, SyncFlags::SYNC).expect("mapped");
            let taken = guest.store_byte(VirtAddr::new(BASE), 31).expect("writable");
            assert_eq!((taken.count, taken.first_was_present || taken.count == 0), (expected, true));
            assert_eq!([store(BASE), store(BASE + PAGE)], [0; 2], "told again; not written back");
            // Up to the hole behind the mapping, and no page of it is private.
            sync(0, 16, SyncFlags::SYNC).expect_err("the mapping is shorter");
            assert_eq!(store(BASE + PAGE), expected);
            space.msync(AddressRange::new(VirtAddr::new(private), PAGE), SyncFlags::SYNC).expect("mapped");
            assert_eq!(store(private), 0);
            sync(0, 1, SyncFlags::SYNC).expect("mapped");
            let mut written = Vec::new();
            space.collect_written(begun, &mut |page| written.push(page.get()));
            assert_eq!(written, [BASE, BASE + PAGE, private], "written back or not, each was stored to");
            space.munmap(AddressRange::new(VirtAddr::new(BASE), 32 * PAGE)).expect("aligned");
            world.check("invariants");
        }
    });
});

// As Linux 6.18 on ext4: what was written back is clean in every mapping of the file.
for_each_design!(a_page_that_was_written_back_is_so_at_each_of_its_places_and_after_other_rights, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let object = world.vm.create_object(&file(WriteNotice::Fault)).expect("room");
        let other = BASE + 16 * PAGE;
        for at in [BASE, other] {
            space.mmap(&mapping(&object, at, 0, RW | AreaFlags::SHARED)).expect("room");
        }
        let store = |page: u64| guest.store_byte(VirtAddr::new(page), 30).expect("writable").count;
        let first = |at| AddressRange::new(VirtAddr::new(at), PAGE);
        let sync = || space.msync(first(BASE), SyncFlags::SYNC).expect("mapped");
        let toggle = || {
            space.mprotect(first(BASE), Protection::READ).expect("mapped");
            space.mprotect(first(BASE), Protection::READ | Protection::WRITE).expect("mapped");
        };
        assert_eq!([BASE, other, BASE + PAGE, other + PAGE].map(store), [1; 4]);
        toggle();
        assert_eq!(store(BASE), 0, "the file knows of the stores");
        sync();
        assert_eq!([BASE, other, BASE + PAGE, other + PAGE].map(store), [1, 1, 0, 0]);
        sync();
        toggle();
        assert_eq!(store(BASE), 1, "the file was written since");
        toggle();
        assert_eq!(store(BASE), 0, "the file knows again");
        sync();
        // Where it is now.
        let request = RemapRequest {
            old: first(BASE),
            new_len_bytes: PAGE,
            placement: RemapPlacement::Fixed(VirtAddr::new(BASE + 32 * PAGE)),
            keeps_source: false,
        };
        let moved = space.mremap(&request).expect("room");
        assert_eq!(store(moved.get()), 1);
    });
});

for_each_design!(behind_a_files_end_its_last_page_is_zero, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        for missing in [1, 5, PAGE - 1] {
            let spec = ObjectSpec { size_bytes: 2 * PAGE - missing, ..file(WriteNotice::None) };
            let object = world.vm.create_object(&spec).expect("room");
            space.mmap(&mapping(&object, BASE, 0, AreaFlags::READ)).expect("room");
            let end = BASE + 2 * PAGE - missing;
            let byte = |address| guest.load_byte(address).expect("mapped").0;
            assert_eq!(
                (byte(VirtAddr::new(end - 1)), byte(VirtAddr::new(end)), byte(VirtAddr::new(BASE + 2 * PAGE - 1))),
                (4, 0, 0),
                "{missing} bytes short"
            );
        }
    });
});

for_each_design!(what_an_object_cannot_give_is_a_bus_error, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let object = world.vm.create_object(&file(WriteNotice::Fault)).expect("room");
        space.mmap(&mapping(&object, BASE, 8, AreaFlags::READ)).expect("room");
        assert!(guest.load(VirtAddr::new(BASE)).is_ok());
        for page in [1, 2] {
            let address = BASE + page * PAGE;
            assert_eq!(
                guest.load(VirtAddr::new(address)),
                Err(AccessError::NoPage { address: VirtAddr::new(address) }),
                "failed, and behind the end"
            );
        }
    });
});

for_each_design!(mappings_of_one_object_join_only_where_its_pages_follow, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let object = world.vm.create_object(&file(WriteNotice::None)).expect("room");
        space.mmap(&mapping(&object, BASE, 0, AreaFlags::READ)).expect("room");
        space.mmap(&mapping(&object, BASE + 4 * PAGE, 5, AreaFlags::READ)).expect("room");
        assert_eq!(lines(&space), ["AAAABBBB"]);
        space.mmap(&mapping(&object, BASE + 4 * PAGE, 4, AreaFlags::READ)).expect("room");
        assert_eq!(lines(&space), ["AAAAAAAA"]);
    });
});

for_each_design!(mappings_that_linux_refuses_are_refused, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let object = world.vm.create_object(&file(WriteNotice::None)).expect("room");
        let read_only = RW | AreaFlags::SHARED | AreaFlags::DENY_WRITE;
        assert_eq!(space.mmap(&mapping(&object, BASE, 0, read_only)), Err(CallError::Denied));
        let grows = AreaFlags::READ | AreaFlags::GROWSDOWN;
        assert!(matches!(space.mmap(&mapping(&object, BASE, 0, grows)), Err(CallError::Invalid(_))));
        let region = HostRegion::reserve(64 << 20).expect("the host has room");
        let machine = Machine::new(1);
        let other = std::thread::scope(|scope| {
            let made = scope.spawn(|| machine.attach(|| World::<D>::new(&region, 1)));
            made.join().expect("a second instance on a machine of its own")
        });
        let foreign = std::thread::scope(|scope| {
            let made =
                scope.spawn(|| machine.attach(|| other.vm.create_object(&file(WriteNotice::None)).expect("room")));
            made.join().expect("an object of it")
        });
        assert!(matches!(space.mmap(&mapping(&foreign, BASE, 0, RW)), Err(CallError::Invalid(_))));
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| machine.attach(|| drop(foreign)));
            ended.join().expect("the object ends on its own machine");
        });
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| machine.attach(|| drop(other)));
            ended.join().expect("and so does the instance");
        });
    });
});
