//! What the calls do, on one thread, under every design.

mod world;

use faultless_platform::native::Native;
use faultless_vm::design::Design;
use faultless_vm::{
    AccessError, Advice, AreaFlags, CallError, Event, Guest, Limits, PAGE, RemapPlacement, RemapRequest, check,
};
use world::{RW, World, anonymous, lines};

const BASE: u64 = 0x1000_0000;

fn with_world<D: Design<Native>>(test: impl FnOnce(&World<D>)) {
    World::<D>::run(2, 64 << 20, |world| {
        test(world);
        check::invariants(&world.vm).expect("invariants");
    });
}

for_each_design!(a_page_faults_once_and_keeps_its_value, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let address = space.mmap(&anonymous(None, 3 * PAGE)).expect("room");
        let taken = guest.store(address, 5).expect("mapped");
        assert_eq!((taken.count, taken.first_was_present), (1, false));
        assert_eq!(guest.load(address).expect("mapped").0, 5);
        assert_eq!(guest.load(address).expect("mapped").1.count, 0);
        assert_eq!(space.resident_pages(), 1);
    });
});

for_each_design!(a_load_then_a_store_of_fresh_memory_are_two_faults, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let address = space.mmap(&anonymous(None, PAGE)).expect("room");
        assert_eq!(guest.load(address).expect("mapped").1.count, 1);
        let taken = guest.store(address, 1).expect("mapped");
        assert_eq!((taken.count, taken.first_was_present), (1, true));
    });
});

for_each_design!(unmapping_the_middle_splits_and_loses_the_pages, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 8 * PAGE)).expect("room");
        for page in 0..8 {
            guest.store(BASE + page * PAGE, page + 1).expect("mapped");
        }
        space.munmap(BASE + 2 * PAGE, 2 * PAGE).expect("valid");
        assert_eq!(lines(&space), ["AA..BBBB"]);
        assert_eq!(guest.load(BASE + 2 * PAGE), Err(AccessError::NotMapped { address: BASE + 2 * PAGE }));
        assert_eq!(guest.load(BASE + 4 * PAGE).expect("mapped").0, 5);
        space.mmap(&anonymous(Some(BASE + 2 * PAGE), 2 * PAGE)).expect("room");
        assert_eq!(guest.load(BASE + 2 * PAGE).expect("mapped").0, 0);
    });
});

for_each_design!(ranges_over_many_tables_are_unmapped_whole, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        for (nr_pages, first) in [(512, 0), (1500, 7), (1025, 511), (64, 448)] {
            let start = (BASE & !0x1f_ffff) + first * PAGE;
            space.mmap(&anonymous(Some(start), nr_pages * PAGE)).expect("room");
            for page in 0..nr_pages {
                guest.store(start + page * PAGE, page).expect("mapped");
            }
            assert_eq!(space.resident_pages(), nr_pages);
            space.munmap(start, nr_pages * PAGE).expect("valid");
            assert_eq!((space.resident_pages(), space.nr_areas()), (0, 0));
        }
        assert!(world.vm.events().total(Event::TablesFreed) >= 4);
    });
});

for_each_design!(neighbours_are_joined_and_split_as_on_linux, D, {
    with_world::<D>(|world| {
        let space = world.space();
        space.mmap(&anonymous(Some(BASE), 4 * PAGE)).expect("room");
        space.mmap(&anonymous(Some(BASE + 4 * PAGE), 2 * PAGE)).expect("room");
        assert_eq!(lines(&space), ["AAAAAA"]);
        space.mprotect(BASE + 2 * PAGE, PAGE, AreaFlags::READ).expect("mapped");
        assert_eq!(lines(&space), ["AABCCC"]);
        space.mprotect(BASE + 2 * PAGE, PAGE, RW).expect("mapped");
        assert_eq!(lines(&space), ["AAAAAA"]);
        let guest = Guest::new(&space);
        space.munmap(BASE, 6 * PAGE).expect("valid");
        space.mmap(&anonymous(Some(BASE), 3 * PAGE)).expect("room");
        space.mmap(&anonymous(Some(BASE + 4 * PAGE), PAGE)).expect("room");
        guest.store(BASE, 1).expect("mapped");
        guest.store(BASE + 4 * PAGE, 1).expect("mapped");
        space.mmap(&anonymous(Some(BASE + 3 * PAGE), PAGE)).expect("room");
        assert_eq!(lines(&space), ["AAAAB"], "both were faulted before they met");
    });
});

for_each_design!(protection_is_enforced_and_an_upgrade_needs_no_fault, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 2 * PAGE)).expect("room");
        guest.store(BASE, 9).expect("mapped");
        space.mprotect(BASE, PAGE, AreaFlags::READ).expect("mapped");
        assert_eq!(guest.store(BASE, 1), Err(AccessError::Forbidden { address: BASE }));
        assert_eq!(guest.load(BASE).expect("readable").0, 9);
        space.mprotect(BASE, PAGE, AreaFlags::empty()).expect("mapped");
        assert_eq!(guest.load(BASE), Err(AccessError::Forbidden { address: BASE }));
        space.mprotect(BASE, PAGE, RW).expect("mapped");
        assert_eq!(guest.store(BASE, 2).expect("writable").count, 0, "the page is ours alone");
        assert_eq!(guest.fetch(BASE), Err(AccessError::Forbidden { address: BASE }));
        let hole = BASE + 2 * PAGE;
        assert_eq!(space.mprotect(BASE, 4 * PAGE, AreaFlags::READ), Err(CallError::Unmapped { address: hole }));
        assert_eq!(guest.store(BASE, 1), Err(AccessError::Forbidden { address: BASE }), "the part before is changed");
    });
});

for_each_design!(fork_copies_on_write_in_both_directions, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 4 * PAGE)).expect("room");
        guest.store(BASE, 1).expect("mapped");
        guest.store(BASE + PAGE, 2).expect("mapped");
        let child = space.fork().expect("room");
        let in_child = Guest::new(&child);
        let taken = guest.store(BASE, 10).expect("mapped");
        assert_eq!((taken.count, taken.first_was_present), (1, true));
        assert_eq!(in_child.load(BASE).expect("mapped").0, 1);
        in_child.store(BASE + PAGE, 20).expect("mapped");
        assert_eq!(guest.load(BASE + PAGE).expect("mapped").0, 2);
        let copies = world.vm.events().total(Event::Cow);
        in_child.store(BASE, 11).expect("mapped");
        assert_eq!(world.vm.events().total(Event::Cow), copies, "the last holder writes in place");
        assert_eq!(child.nr_areas(), space.nr_areas());
        check::invariants(&world.vm).expect("invariants with two spaces");
    });
});

for_each_design!(remapping_moves_pages_and_leaves_nothing, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 4 * PAGE)).expect("room");
        for page in 0..4 {
            guest.store(BASE + page * PAGE, page + 1).expect("mapped");
        }
        let target = BASE + 0x4000_0000;
        let request = |old_start, old_len_bytes, new_len_bytes, placement| RemapRequest {
            old_start,
            old_len_bytes,
            new_len_bytes,
            placement,
            keeps_source: false,
        };
        let moved = request(BASE + PAGE, 2 * PAGE, 3 * PAGE, RemapPlacement::Fixed(target));
        assert_eq!(space.mremap(&moved), Ok(target));
        assert_eq!(guest.load(target).expect("moved").0, 2);
        assert_eq!(guest.load(target + 2 * PAGE).expect("grown").0, 0);
        assert_eq!(guest.load(BASE + PAGE), Err(AccessError::NotMapped { address: BASE + PAGE }));
        assert_eq!(guest.load(BASE + 3 * PAGE).expect("stays").0, 4);
        let shrunk = request(target, 3 * PAGE, PAGE, RemapPlacement::InPlace);
        assert_eq!(space.mremap(&shrunk), Ok(target));
        let grown = request(target, PAGE, 6 * PAGE, RemapPlacement::InPlace);
        assert_eq!(space.mremap(&grown), Ok(target));
        let blocked = request(BASE, PAGE, 10 * PAGE, RemapPlacement::InPlace);
        assert!(space.mremap(&blocked).is_err());
    });
});

for_each_design!(dontneed_gives_zeros_and_reports_holes, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 2 * PAGE)).expect("room");
        guest.store(BASE, 1).expect("mapped");
        assert_eq!(space.madvise(BASE, PAGE, Advice::DontNeed), Ok(()));
        assert_eq!(guest.load(BASE).expect("mapped").0, 0);
        assert!(space.madvise(BASE, 3 * PAGE, Advice::DontNeed).is_err());
        assert_eq!(space.madvise(BASE, PAGE, Advice::Free), Ok(()));
    });
});

for_each_design!(stacks_grow_to_the_gap_and_no_further, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let mut stack = anonymous(Some(BASE), PAGE);
        stack.flags |= AreaFlags::GROWSDOWN;
        space.mmap(&stack).expect("room");
        space.mmap(&anonymous(Some(BASE - 400 * PAGE), PAGE)).expect("room");
        guest.store(BASE - 100 * PAGE, 1).expect("grows");
        let last = BASE - 399 * PAGE + 256 * PAGE;
        guest.store(last, 1).expect("the gap stays free");
        assert!(guest.store(last - PAGE, 1).is_err());
        assert_eq!(world.vm.events().total(Event::StackGrowth), 2);
    });
});

for_each_design!(the_heap_moves_within_its_room, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.set_heap_start(BASE);
        assert_eq!(space.brk(BASE + 3 * PAGE + 5), BASE + 3 * PAGE + 5);
        guest.store(BASE + 3 * PAGE, 1).expect("mapped");
        assert_eq!(space.brk(BASE - 1), BASE + 3 * PAGE + 5);
        assert_eq!(space.brk(BASE + PAGE), BASE + PAGE);
        assert!(guest.load(BASE + PAGE).is_err());
        space.mmap(&anonymous(Some(BASE + 4 * PAGE), PAGE)).expect("room");
        assert_eq!(space.brk(BASE + 8 * PAGE), BASE + PAGE, "blocked by a mapping");
    });
});

for_each_design!(running_out_of_frames_changes_nothing, D, {
    use faultless_phys::Failing;
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        for part in 0..40 {
            space.mmap(&anonymous(Some(BASE + part * 8 * PAGE), 6 * PAGE)).expect("room");
            guest.store(BASE + part * 8 * PAGE + 2 * PAGE, part).expect("mapped");
        }
        let before = lines(&space);
        let target = BASE + 0x8000_0000;
        for nth in 0..200 {
            world.vm.memory().set_failing(Failing::Once(nth));
            let moved = space.mremap(&RemapRequest {
                old_start: BASE + PAGE,
                old_len_bytes: 3 * PAGE,
                new_len_bytes: 3 * PAGE,
                placement: RemapPlacement::Fixed(target),
                keeps_source: false,
            });
            let was_hit = world.vm.memory().failing() == Failing::Never;
            world.vm.memory().set_failing(Failing::Never);
            check::invariants(&world.vm).expect("invariants");
            if moved.is_ok() {
                assert!(!was_hit && nth > 0, "allocation {nth}");
                assert_eq!(guest.load(target + PAGE).expect("moved").0, 0);
                return;
            }
            assert_eq!(lines(&space), before, "allocation {nth} failed");
            assert_eq!(guest.load(BASE + 2 * PAGE).expect("still there").0, 0);
        }
        panic!("mremap never succeeded");
    });
});

for_each_design!(limits_are_errors_with_their_value, D, {
    World::<D>::run(1, 64 << 20, |world| {
        let limits = Limits { max_map_count: 3, ..Limits::default() };
        let space = world.vm.create_space(limits).expect("room");
        space.mmap(&anonymous(Some(BASE), 3 * PAGE)).expect("room");
        space.mprotect(BASE + PAGE, PAGE, AreaFlags::READ).expect("three areas");
        assert_eq!(space.mmap(&anonymous(Some(BASE + 5 * PAGE), PAGE)), Err(CallError::TooManyAreas { limit: 3 }));
        assert_eq!(space.munmap(BASE, 3 * PAGE), Ok(()));
    });
});
