//! How areas are cut, joined, grown and limited.

use super::{BASE, with_world};
use crate::world::{RW, Tested, World, anonymous, lines};
use faultless_platform::native::Native;
use faultless_vm::{
    AccessError, AddressRange, CallError, Event, Guest, Limits, MapOptions, PAGE, Protection, VirtAddr,
};

for_each_design!(unmapping_the_middle_splits_and_loses_the_pages, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 8 * PAGE)).expect("room");
        for page in 0..8 {
            guest.store(VirtAddr::new(BASE + page * PAGE), page + 1).expect("mapped");
        }
        space.munmap(AddressRange::new(VirtAddr::new(BASE + 2 * PAGE), 2 * PAGE)).expect("valid");
        assert_eq!(lines(&space), ["AA..BBBB"]);
        assert_eq!(
            guest.load(VirtAddr::new(BASE + 2 * PAGE)),
            Err(AccessError::NotMapped { address: VirtAddr::new(BASE + 2 * PAGE) })
        );
        assert_eq!(guest.load(VirtAddr::new(BASE + 4 * PAGE)).expect("mapped").0, 5);
        space.mmap(&anonymous(Some(BASE + 2 * PAGE), 2 * PAGE)).expect("room");
        assert_eq!(guest.load(VirtAddr::new(BASE + 2 * PAGE)).expect("mapped").0, 0);
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
                guest.store(VirtAddr::new(start + page * PAGE), page).expect("mapped");
            }
            assert_eq!(space.resident_pages(), nr_pages);
            space.munmap(AddressRange::new(VirtAddr::new(start), nr_pages * PAGE)).expect("valid");
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
        space.mprotect(AddressRange::new(VirtAddr::new(BASE + 2 * PAGE), PAGE), Protection::READ).expect("mapped");
        assert_eq!(lines(&space), ["AABCCC"]);
        space.mprotect(AddressRange::new(VirtAddr::new(BASE + 2 * PAGE), PAGE), RW.protection()).expect("mapped");
        assert_eq!(lines(&space), ["AAAAAA"]);
        let guest = Guest::new(&space);
        space.munmap(AddressRange::new(VirtAddr::new(BASE), 6 * PAGE)).expect("valid");
        space.mmap(&anonymous(Some(BASE), 3 * PAGE)).expect("room");
        space.mmap(&anonymous(Some(BASE + 4 * PAGE), PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE), 1).expect("mapped");
        guest.store(VirtAddr::new(BASE + 4 * PAGE), 1).expect("mapped");
        space.mmap(&anonymous(Some(BASE + 3 * PAGE), PAGE)).expect("room");
        assert_eq!(lines(&space), ["AAAAB"], "both were faulted before they met");
    });
});

for_each_design!(stacks_grow_to_the_gap_and_no_further, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let mut stack = anonymous(Some(BASE), PAGE);
        stack.options |= MapOptions::GROWSDOWN;
        space.mmap(&stack).expect("room");
        space.mmap(&anonymous(Some(BASE - 400 * PAGE), PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE - 100 * PAGE), 1).expect("grows");
        let last = BASE - 399 * PAGE + 256 * PAGE;
        guest.store(VirtAddr::new(last), 1).expect("the gap stays free");
        assert!(guest.store(VirtAddr::new(last - PAGE), 1).is_err());
        assert_eq!(world.vm.events().total(Event::StackGrowth), 2);
    });
});

for_each_design!(the_heap_moves_within_its_room, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.set_heap_start(VirtAddr::new(BASE));
        assert_eq!(space.brk(VirtAddr::new(BASE + 3 * PAGE + 5)), VirtAddr::new(BASE + 3 * PAGE + 5));
        guest.store(VirtAddr::new(BASE + 3 * PAGE), 1).expect("mapped");
        assert_eq!(space.brk(VirtAddr::new(BASE - 1)), VirtAddr::new(BASE + 3 * PAGE + 5));
        assert_eq!(space.brk(VirtAddr::new(BASE + PAGE)), VirtAddr::new(BASE + PAGE));
        assert!(guest.load(VirtAddr::new(BASE + PAGE)).is_err());
        space.mmap(&anonymous(Some(BASE + 4 * PAGE), PAGE)).expect("room");
        assert_eq!(space.brk(VirtAddr::new(BASE + 8 * PAGE)), VirtAddr::new(BASE + PAGE), "blocked by a mapping");
    });
});

for_each_design!(limits_are_errors_with_their_value, D, {
    World::<D>::run(1, 64 << 20, |world| {
        let limits = Limits { max_map_count: 3, ..Limits::default() };
        let space = world.vm.create_space(limits).expect("room");
        space.mmap(&anonymous(Some(BASE), 3 * PAGE)).expect("room");
        space.mprotect(AddressRange::new(VirtAddr::new(BASE + PAGE), PAGE), Protection::READ).expect("three areas");
        let at_limit = space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::empty());
        assert_eq!(at_limit, Ok(()), "a whole area needs no cut");
        assert!(space.mmap(&anonymous(Some(BASE + 5 * PAGE), PAGE)).is_ok(), "as Linux, mmap exceeds the limit by one");
        assert_eq!(space.mmap(&anonymous(Some(BASE + 7 * PAGE), PAGE)), Err(CallError::TooManyAreas { limit: 3 }));
        assert_eq!(space.munmap(AddressRange::new(VirtAddr::new(BASE), 3 * PAGE)), Ok(()));
    });
});
