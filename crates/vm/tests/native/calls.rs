//! What the calls do, on one thread, under every design.

use crate::world::{RW, Tested, World, anonymous, lines};
use faultless_platform::native::Native;
use faultless_platform::native::{HostRegion, Machine};
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, Backing, CallError, Event, FetchError, Guest, Limits,
    MAX_OBJECT_BYTES, MapOptions, MapRequest, ObjectHandle, ObjectSpec, PAGE, PageLock, PageRange, PageSource,
    Placement, Populate, Protection, RemapPlacement, RemapRequest, SyncFlags, VirtAddr, WriteNotice, ZeroSource,
};

const BASE: u64 = 0x1000_0000;

fn with_world<D: Tested>(test: impl FnOnce(&World<D>)) {
    World::<D>::run(2, 64 << 20, |world| {
        test(world);
        world.check("invariants");
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

for_each_design!(a_shortage_is_an_error_and_what_waits_for_readers_comes_back, D, {
    World::<D>::run(2, 4 << 20, |world| {
        let space = world.space();
        // Two users, so that faults are tried without the semaphore.
        let (guest, _other) = (Guest::new(&space), Guest::new(&space));
        let far = |round: u64| BASE + round * (1 << 30);
        let touch = |start: u64, nr_pages: u64| {
            space.mmap(&anonymous(Some(start), 2048 * PAGE)).expect("room");
            (0..nr_pages).try_for_each(|page| guest.store(VirtAddr::new(start + page * PAGE), page).map(drop))
        };
        // More than there is.
        let refused = touch(far(0), 2048);
        assert!(matches!(refused, Err(AccessError::OutOfFrames(_))), "{refused:?}");
        space.munmap(AddressRange::new(VirtAddr::new(far(0)), 2048 * PAGE)).expect("valid");
        // Each round leaves tables behind that wait for a grace period, until nothing else is left.
        for round in 1..200 {
            touch(far(round), 400).unwrap_or_else(|error| panic!("round {round}: {error}"));
            space.munmap(AddressRange::new(VirtAddr::new(far(round)), 2048 * PAGE)).expect("valid");
        }
        assert_eq!(world.vm.events().total(Event::Spf) > 0, D::NAME != "mmap-sem");
    });
});

/// Takes every frame that there is, but for so many.
fn hog<'vm, D: Tested>(world: &'vm World<D>, nr_left: u64) -> Guest<'vm, Native, D> {
    let guest = Guest::new(&world.space());
    guest.space().mmap(&anonymous(Some(BASE), 2048 * PAGE)).expect("room");
    let is_refused = (0..2048).any(|page| guest.store(VirtAddr::new(BASE + page * PAGE), 1).is_err());
    assert!(is_refused, "there are more frames than this test takes");
    if nr_left != 0 {
        guest
            .space()
            .madvise(AddressRange::new(VirtAddr::new(BASE), nr_left * PAGE), Advice::DontNeed)
            .expect("mapped");
    }
    guest
}

/// Moves four areas, each with a page table of its own, while there are so many free frames; returns how many moved.
fn move_with_few_frames<D: Tested>(nr_left: u64, keeps_source: bool) -> usize {
    const NR: usize = 4;
    const APART: u64 = 512 * PAGE;
    let (source, target) = (BASE, BASE + (1 << 30));
    let mut nr_moved = 0;
    World::<D>::run(2, 4 << 20, |world| {
        let space = world.space();
        let guest = Guest::new(&space);
        for place in 0..NR as u64 {
            space.mmap(&anonymous(Some(source + place * APART), PAGE)).expect("room");
            guest.store(VirtAddr::new(source + place * APART), place + 1).expect("mapped");
        }
        let move_from = |first: usize| {
            let at = first as u64 * APART;
            let len_bytes = (NR - first - 1) as u64 * APART + PAGE;
            space.mremap(&RemapRequest {
                old: AddressRange::new(VirtAddr::new(source + at), len_bytes),
                new_len_bytes: len_bytes,
                placement: RemapPlacement::Fixed(VirtAddr::new(target + at)),
                keeps_source,
            })
        };
        let hog = hog(world, nr_left);
        let result = move_from(0);
        let is_at = |start: u64, place: usize| {
            let address = start + place as u64 * APART;
            guest.load(VirtAddr::new(address)).map(|(value, _)| value) == Ok(place as u64 + 1)
        };
        nr_moved = (0..NR).take_while(|&place| is_at(target, place)).count();
        assert!((nr_moved..NR).all(|place| is_at(source, place)), "{nr_left} left: an area is in neither place");
        let nr_kept = if keeps_source { nr_moved } else { 0 };
        assert_eq!(space.nr_areas(), (NR + nr_kept) as u64);
        match &result {
            Ok(start) => assert_eq!((start.get(), nr_moved), (target, NR)),
            Err(error) => assert!(matches!(error, CallError::OutOfFrames(_)) && nr_moved < NR, "{error}"),
        }
        world.check("after the move");
        drop(hog);
        if nr_moved < NR {
            move_from(nr_moved).expect("there are frames now");
            assert!((0..NR).all(|place| is_at(target, place)), "what was left went on from there");
        }
        world.check("after the rest");
    });
    nr_moved
}

for_each_design!(a_move_of_several_areas_that_finds_no_frame_has_moved_those_before_whole, D, {
    let moved: Vec<usize> = (0..16).map(|nr_left| move_with_few_frames::<D>(nr_left, true)).collect();
    assert!(moved.iter().any(|nr| (1..4).contains(nr)), "none was stopped half way: {moved:?}");
    assert_eq!((moved.first(), moved.last()), (Some(&0), Some(&4)), "{moved:?}");
});

for_each_design!(a_move_of_several_areas_goes_on_with_the_tables_that_it_gave_up, D, {
    // The first area's target needs three tables; the one that it leaves behind serves the next.
    let moved: Vec<usize> = (0..8).map(|nr_left| move_with_few_frames::<D>(nr_left, false)).collect();
    assert_eq!(moved, [0, 0, 0, 4, 4, 4, 4, 4]);
});

for_each_design!(each_call_that_finds_no_frame_frees_what_waits_and_tries_again, D, {
    const WAITING_PAGES: u64 = 30;
    let far = |call: u64| BASE + (call + 1) * (1 << 30);
    World::<D>::run(2, 4 << 20, |world| {
        let space = world.space();
        let spec = ObjectSpec { size_bytes: 1 << 40, ..file(WriteNotice::None) };
        let object = world.vm.create_object(&spec).expect("room");
        type Call<'a> = (&'static str, &'a dyn Fn(u64) -> Result<(), CallError>);
        let calls: [Call<'_>; 7] = [
            ("MADV_GUARD_INSTALL", &|at| {
                space.madvise(AddressRange::new(VirtAddr::new(at), PAGE), Advice::GuardInstall)
            }),
            ("MADV_POPULATE_WRITE", &|at| {
                space.madvise(AddressRange::new(VirtAddr::new(at), PAGE), Advice::PopulateWrite)
            }),
            ("punch", &|at| world.vm.punch(&object, at..at + PAGE)),
            ("read_object", &|at| world.vm.read_object(&object, at, &mut [0])),
            ("create_object", &|_| world.vm.create_object(&spec).map(drop).map_err(CallError::OutOfFrames)),
            ("create_space", &|_| world.vm.create_space(Limits::default()).map(drop)),
            ("fork", &|_| space.fork().map(drop)),
        ];
        let mut waiting: Vec<Guest<'_, Native, D>> = Vec::new();
        for call in 0..calls.len() as u64 {
            space.mmap(&anonymous(Some(far(call)), PAGE)).expect("room");
            let guest = Guest::new(&world.space());
            guest.space().mmap(&anonymous(Some(BASE), WAITING_PAGES * PAGE)).expect("room");
            (0..WAITING_PAGES).for_each(|page| assert!(guest.store(VirtAddr::new(BASE + page * PAGE), 1).is_ok()));
            waiting.push(guest);
        }
        let hog = hog(world, 0);
        for (number, (name, call)) in calls.into_iter().enumerate() {
            let is_refused = (0..2048).any(|page| hog.store(VirtAddr::new(BASE + page * PAGE), 1).is_err());
            assert!(is_refused, "there are frames left");
            // A thread without a CPU leaves the space to whoever needs its frames.
            let last = waiting.pop();
            std::thread::scope(|scope| drop(scope.spawn(move || drop(last))));
            assert_eq!(call(far(number as u64)), Ok(()), "{name} reports a shortage although frames wait to be freed");
        }
        drop(hog);
        world.check("when there are frames again");
    });
});

for_each_design!(bytes_are_read_and_written_across_pages_and_an_error_says_how_many_were, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 3 * PAGE)).expect("room");
        let bytes: Vec<u8> = (0..2 * PAGE + 10).map(|place| (place % 251) as u8).collect();
        let start = BASE + PAGE - 5;
        assert_eq!(guest.write_bytes(VirtAddr::new(BASE), &[]), Ok(()));
        assert_eq!(space.resident_pages(), 0, "nothing is touched for nothing");
        guest.write_bytes(VirtAddr::new(start - 1), &bytes).expect_err("the last bytes lie behind the area");
        guest.write_bytes(VirtAddr::new(start), &bytes[..2 * PAGE as usize + 5]).expect("mapped");
        let mut read = vec![0xff; bytes.len()];
        guest.read_bytes(VirtAddr::new(start), &mut read[..2 * PAGE as usize + 5]).expect("mapped");
        assert_eq!(read[..2 * PAGE as usize + 5], bytes[..2 * PAGE as usize + 5]);
        assert_eq!(read[2 * PAGE as usize + 5..], [0xff; 5], "nothing behind what was asked for");
        assert_eq!(
            guest.load_byte(VirtAddr::new(start - 1)).expect("mapped").0,
            bytes[0],
            "what came before the error is written"
        );
        let hole = BASE + 3 * PAGE;
        let missing = AccessError::NotMapped { address: VirtAddr::new(hole) };
        assert_eq!(guest.write_bytes(VirtAddr::new(hole - 7), &bytes[..20]), Err((7, missing)));
        read.fill(0xff);
        assert_eq!(guest.read_bytes(VirtAddr::new(hole - 7), &mut read[..20]), Err((7, missing)));
        assert_eq!((&read[..7], &read[7..20]), (&bytes[..7], &[0xff; 13][..]), "so many, and no more");
        space.mprotect(AddressRange::new(VirtAddr::new(BASE + PAGE), PAGE), Protection::READ).expect("mapped");
        let forbidden = AccessError::Forbidden { address: VirtAddr::new(BASE + PAGE) };
        assert_eq!(guest.write_bytes(VirtAddr::new(start), &bytes[..10]), Err((5, forbidden)));
        guest.read_bytes(VirtAddr::new(start), &mut read).expect_err("behind the end");
        let outside = 0x8000_0000_0000 - 3;
        assert!(matches!(
            guest.read_bytes(VirtAddr::new(outside), &mut read[..6]),
            Err((0, AccessError::NotMapped { .. }))
        ));
        let wraps = u64::MAX - 2;
        assert!(matches!(guest.write_bytes(VirtAddr::new(wraps), &bytes[..6]), Err((0, _))));
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

for_each_design!(protection_is_enforced_and_an_upgrade_needs_no_fault, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 2 * PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE), 9).expect("mapped");
        space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::READ).expect("mapped");
        assert_eq!(guest.store(VirtAddr::new(BASE), 1), Err(AccessError::Forbidden { address: VirtAddr::new(BASE) }));
        assert_eq!(guest.load(VirtAddr::new(BASE)).expect("readable").0, 9);
        space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::empty()).expect("mapped");
        assert_eq!(guest.load(VirtAddr::new(BASE)), Err(AccessError::Forbidden { address: VirtAddr::new(BASE) }));
        space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), RW.protection()).expect("mapped");
        assert_eq!(guest.store(VirtAddr::new(BASE), 2).expect("writable").count, 0, "the page is ours alone");
        assert_eq!(guest.fetch(VirtAddr::new(BASE)), Err(AccessError::Forbidden { address: VirtAddr::new(BASE) }));
        let hole = BASE + 2 * PAGE;
        assert_eq!(
            space.mprotect(AddressRange::new(VirtAddr::new(BASE), 4 * PAGE), Protection::READ),
            Err(CallError::Unmapped { address: VirtAddr::new(hole) })
        );
        assert_eq!(
            guest.store(VirtAddr::new(BASE), 1),
            Err(AccessError::Forbidden { address: VirtAddr::new(BASE) }),
            "the part before is changed"
        );
    });
});

for_each_design!(memory_to_fetch_from_is_loaded_from_unless_there_are_keys, D, {
    with_world::<D>(|world| {
        let (execute, by_key) =
            (AreaFlags::EXEC | AreaFlags::EXECUTE_ONLY, AccessError::ForbiddenByKey { address: VirtAddr::new(BASE) });
        for has_protection_keys in [false, true] {
            let limits = Limits { has_protection_keys, ..Limits::default() };
            let space = world.vm.create_space(limits).expect("room for a space");
            let guest = Guest::new(&space);
            let is_loaded = |guest: &Guest<'_, _, D>| match guest.load(VirtAddr::new(BASE)) {
                Ok((value, _)) => value == 9,
                Err(error) => {
                    assert_eq!(error, by_key);
                    assert_eq!(guest.store(VirtAddr::new(BASE), 1), Err(by_key), "the key comes before the rights");
                    false
                }
            };
            space.mmap(&anonymous(Some(BASE), 2 * PAGE)).expect("room");
            guest.store(VirtAddr::new(BASE), 9).expect("mapped");
            // The TLB knows the page, which was there when the key came.
            space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), execute.protection()).expect("mapped");
            assert_eq!(is_loaded(&guest), !has_protection_keys);
            guest.fetch(VirtAddr::new(BASE)).expect("a key forbids no fetch");
            assert_eq!(
                space.mlock(AddressRange::new(VirtAddr::new(BASE), PAGE), PageLock::Lock).is_ok(),
                !has_protection_keys,
                "its pages can't be had"
            );
            let child = space.fork().expect("room");
            assert_eq!(is_loaded(&Guest::new(&child)), !has_protection_keys);
            drop(child);
            // Other rights beside it drop the key, and so does asking for none.
            for rights in [execute | AreaFlags::READ, AreaFlags::EXEC] {
                space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), rights.protection()).expect("mapped");
                assert!(is_loaded(&guest));
                space.mlock(AddressRange::new(VirtAddr::new(BASE), PAGE), PageLock::Unlock).expect("mapped");
                world.check("after a key was dropped");
                space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), execute.protection()).expect("mapped");
                assert_eq!(is_loaded(&guest), !has_protection_keys);
                world.check("after a key was given");
            }
            let fresh = MapRequest {
                protection: execute.protection(),
                options: execute.options(),
                ..anonymous(Some(BASE), PAGE)
            };
            space.mmap(&fresh).expect("room");
            assert_eq!(guest.load(VirtAddr::new(BASE)).is_ok(), !has_protection_keys);
        }
    });
});

for_each_design!(fork_copies_on_write_in_both_directions, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 4 * PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE), 1).expect("mapped");
        guest.store(VirtAddr::new(BASE + PAGE), 2).expect("mapped");
        let child = space.fork().expect("room");
        let in_child = Guest::new(&child);
        let taken = guest.store(VirtAddr::new(BASE), 10).expect("mapped");
        assert_eq!((taken.count, taken.first_was_present), (1, true));
        assert_eq!(in_child.load(VirtAddr::new(BASE)).expect("mapped").0, 1);
        in_child.store(VirtAddr::new(BASE + PAGE), 20).expect("mapped");
        assert_eq!(guest.load(VirtAddr::new(BASE + PAGE)).expect("mapped").0, 2);
        let copies = world.vm.events().total(Event::Cow);
        in_child.store(VirtAddr::new(BASE), 11).expect("mapped");
        assert_eq!(world.vm.events().total(Event::Cow), copies, "the last holder writes in place");
        assert_eq!(child.nr_areas(), space.nr_areas());
        world.check("invariants with two spaces");
    });
});

for_each_design!(remapping_moves_pages_and_leaves_nothing, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 4 * PAGE)).expect("room");
        for page in 0..4 {
            guest.store(VirtAddr::new(BASE + page * PAGE), page + 1).expect("mapped");
        }
        let target = BASE + 0x4000_0000;
        let request = |old_start, old_len_bytes, new_len_bytes, placement| RemapRequest {
            old: AddressRange::new(VirtAddr::new(old_start), old_len_bytes),
            new_len_bytes,
            placement,
            keeps_source: false,
        };
        let moved = request(BASE + PAGE, 2 * PAGE, 3 * PAGE, RemapPlacement::Fixed(VirtAddr::new(target)));
        assert_eq!(space.mremap(&moved), Ok(VirtAddr::new(target)));
        assert_eq!(guest.load(VirtAddr::new(target)).expect("moved").0, 2);
        assert_eq!(guest.load(VirtAddr::new(target + 2 * PAGE)).expect("grown").0, 0);
        assert_eq!(
            guest.load(VirtAddr::new(BASE + PAGE)),
            Err(AccessError::NotMapped { address: VirtAddr::new(BASE + PAGE) })
        );
        assert_eq!(guest.load(VirtAddr::new(BASE + 3 * PAGE)).expect("stays").0, 4);
        let shrunk = request(target, 3 * PAGE, PAGE, RemapPlacement::InPlace);
        assert_eq!(space.mremap(&shrunk), Ok(VirtAddr::new(target)));
        let grown = request(target, PAGE, 6 * PAGE, RemapPlacement::InPlace);
        assert_eq!(space.mremap(&grown), Ok(VirtAddr::new(target)));
        let blocked = request(BASE, PAGE, 10 * PAGE, RemapPlacement::InPlace);
        assert!(space.mremap(&blocked).is_err());
    });
});

for_each_design!(dontneed_gives_zeros_and_reports_holes, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 2 * PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE), 1).expect("mapped");
        assert_eq!(space.madvise(AddressRange::new(VirtAddr::new(BASE), PAGE), Advice::DontNeed), Ok(()));
        assert_eq!(guest.load(VirtAddr::new(BASE)).expect("mapped").0, 0);
        assert!(space.madvise(AddressRange::new(VirtAddr::new(BASE), 3 * PAGE), Advice::DontNeed).is_err());
        assert_eq!(space.madvise(AddressRange::new(VirtAddr::new(BASE), PAGE), Advice::Free), Ok(()));
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

for_each_design!(running_out_of_frames_changes_nothing, D, {
    use faultless_phys::Failing;
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        for part in 0..40 {
            space.mmap(&anonymous(Some(BASE + part * 8 * PAGE), 6 * PAGE)).expect("room");
            guest.store(VirtAddr::new(BASE + part * 8 * PAGE + 2 * PAGE), part).expect("mapped");
        }
        let before = lines(&space);
        let target = BASE + 0x8000_0000;
        for nth in 0..200 {
            world.vm.memory().set_failing(Failing::Once(nth));
            let moved = space.mremap(&RemapRequest {
                old: AddressRange::new(VirtAddr::new(BASE + PAGE), 3 * PAGE),
                new_len_bytes: 3 * PAGE,
                placement: RemapPlacement::Fixed(VirtAddr::new(target)),
                keeps_source: false,
            });
            let was_hit = world.vm.memory().failing() == Failing::Never;
            world.vm.memory().set_failing(Failing::Never);
            world.check("invariants");
            if moved.is_ok() {
                assert!(!was_hit && nth > 0, "allocation {nth}");
                assert_eq!(guest.load(VirtAddr::new(target + PAGE)).expect("moved").0, 0);
                return;
            }
            assert_eq!(lines(&space), before, "allocation {nth} failed");
            assert_eq!(guest.load(VirtAddr::new(BASE + 2 * PAGE)).expect("still there").0, 0);
        }
        panic!("mremap never succeeded");
    });
});

for_each_design!(a_failed_move_keeps_the_target_and_no_tables, D, {
    use faultless_phys::Failing;
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let target = BASE + 0x8000_0000;
        space.mmap(&anonymous(Some(BASE), 3 * PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE + PAGE), 5).expect("mapped");
        space.mmap(&anonymous(Some(target), PAGE)).expect("room");
        guest.store(VirtAddr::new(target), 77).expect("mapped");
        for nth in 1..100 {
            world.vm.memory().set_failing(Failing::Once(nth));
            let moved = space.mremap(&RemapRequest {
                old: AddressRange::new(VirtAddr::new(BASE + PAGE), PAGE),
                new_len_bytes: PAGE,
                placement: RemapPlacement::Fixed(VirtAddr::new(target)),
                keeps_source: false,
            });
            world.vm.memory().set_failing(Failing::Never);
            world.check("invariants");
            if moved.is_ok() {
                assert!(nth > 1);
                assert_eq!(guest.load(VirtAddr::new(target)).expect("moved").0, 5);
                return;
            }
            assert_eq!(guest.load(VirtAddr::new(target)).expect("the target is untouched").0, 77);
        }
        panic!("mremap never succeeded");
    });
});

for_each_design!(a_move_at_the_area_limit_changes_nothing, D, {
    World::<D>::run(1, 64 << 20, |world| {
        let space = world.vm.create_space(Limits { max_map_count: 2, ..Limits::default() }).expect("room");
        space.mmap(&anonymous(Some(BASE), 3 * PAGE)).expect("room");
        let request = RemapRequest {
            old: AddressRange::new(VirtAddr::new(BASE + PAGE), PAGE),
            new_len_bytes: PAGE,
            placement: RemapPlacement::Fixed(VirtAddr::new(BASE + 16 * PAGE)),
            keeps_source: false,
        };
        assert_eq!(space.mremap(&request), Err(CallError::TooManyAreas { limit: 2 }));
        assert_eq!(lines(&space), ["AAA"]);
        world.check("invariants");
    });
});

for_each_design!(a_kept_source_is_empty_and_an_old_length_of_0_needs_a_shared_mapping, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let target = BASE + 0x100_0000;
        space.mmap(&anonymous(Some(BASE), 2 * PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE), 6).expect("mapped");
        let mut request = RemapRequest {
            old: AddressRange::new(VirtAddr::new(BASE), 2 * PAGE),
            new_len_bytes: 2 * PAGE,
            placement: RemapPlacement::MoveTo(VirtAddr::new(target)),
            keeps_source: true,
        };
        assert_eq!(space.mremap(&request), Ok(VirtAddr::new(target)));
        assert_eq!(
            (guest.load(VirtAddr::new(BASE)).expect("mapped").0, guest.load(VirtAddr::new(target)).expect("mapped").0),
            (0, 6)
        );
        request = RemapRequest { old: AddressRange { len_bytes: 0, ..request.old }, keeps_source: false, ..request };
        assert!(space.mremap(&request).is_err());
        assert!(space.mremap(&RemapRequest { placement: RemapPlacement::InPlace, ..request }).is_err());
    });
});

for_each_design!(after_a_fork_an_upgrade_does_not_make_shared_pages_writable, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE), 1).expect("mapped");
        let child = space.fork().expect("room");
        let in_child = Guest::new(&child);
        space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::READ).expect("mapped");
        space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), RW.protection()).expect("mapped");
        let copies = world.vm.events().total(Event::Cow);
        guest.store(VirtAddr::new(BASE), 2).expect("writable");
        assert_eq!(world.vm.events().total(Event::Cow), copies + 1);
        assert_eq!(in_child.load(VirtAddr::new(BASE)).expect("mapped").0, 1);
    });
});

for_each_design!(a_child_gets_what_advice_leaves_it, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 4 * PAGE)).expect("room");
        (0..4).for_each(|page| assert!(guest.store(VirtAddr::new(BASE + page * PAGE), page + 1).is_ok()));
        space.madvise(AddressRange::new(VirtAddr::new(BASE), PAGE), Advice::DontFork).expect("mapped");
        space.madvise(AddressRange::new(VirtAddr::new(BASE + PAGE), PAGE), Advice::WipeOnFork).expect("mapped");
        assert_eq!(lines(&space), ["ABCC"]);
        let child = space.fork().expect("room");
        let in_child = Guest::new(&child);
        assert!(in_child.load(VirtAddr::new(BASE)).is_err());
        assert_eq!(in_child.load(VirtAddr::new(BASE + PAGE)).expect("wiped").0, 0);
        assert_eq!(in_child.load(VirtAddr::new(BASE + 2 * PAGE)).expect("inherited").0, 3);
        assert_eq!(guest.load(VirtAddr::new(BASE + PAGE)).expect("the parent's stays").0, 2);
        child.mmap(&anonymous(Some(BASE + 4 * PAGE), PAGE)).expect("room");
        space.mmap(&anonymous(Some(BASE + 4 * PAGE), PAGE)).expect("room");
        assert_eq!(lines(&space), ["ABCCC"]);
        assert_eq!(lines(&child), ["ABBC"], "an inherited area joins nothing fresh");
    });
});

for_each_design!(pages_are_made_at_once_when_asked_for, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let request = faultless_vm::MapRequest { populate: Populate::Now, ..anonymous(Some(BASE), 5 * PAGE) };
        space.mmap(&request).expect("room");
        assert_eq!(space.resident_pages(), 5);
        space.mmap(&anonymous(Some(BASE + 8 * PAGE), 2 * PAGE)).expect("room");
        space.mlock(AddressRange::new(VirtAddr::new(BASE + 8 * PAGE), 2 * PAGE), PageLock::Lock).expect("mapped");
        assert_eq!(space.resident_pages(), 7);
        assert!(
            space.madvise(AddressRange::new(VirtAddr::new(BASE + 8 * PAGE), PAGE), Advice::DontNeed).is_err(),
            "the pages are locked"
        );
        space
            .madvise(AddressRange::new(VirtAddr::new(BASE + 8 * PAGE), PAGE), Advice::DontNeedLocked)
            .expect("locked pages too");
        assert_eq!(space.resident_pages(), 6);
        space.mlock(AddressRange::new(VirtAddr::new(BASE + 8 * PAGE), 2 * PAGE), PageLock::Unlock).expect("mapped");
        assert_eq!(space.madvise(AddressRange::new(VirtAddr::new(BASE + 8 * PAGE), PAGE), Advice::DontNeed), Ok(()));
        assert_eq!(space.mlock(AddressRange::new(VirtAddr::new(BASE), 0), PageLock::Lock), Ok(()));
    });
});

/// Gives each byte the page's number plus the identity.
struct Numbered;

impl PageSource for Numbered {
    fn fetch(&self, identity: u64, page_index: u64, page: &mut [u8; 4096]) -> Result<(), FetchError> {
        if page_index == 9 {
            return Err(FetchError::Failed);
        }
        page.fill((identity + page_index) as u8);
        Ok(())
    }
}

fn file(write_notice: WriteNotice) -> ObjectSpec {
    ObjectSpec { identity: 3, size_bytes: 10 * PAGE - 5, source: &Numbered, write_notice }
}

fn mapping<'a>(object: &'a ObjectHandle<'a, Native>, at: u64, offset: u64, flags: AreaFlags) -> MapRequest<'a, Native> {
    let backing = Backing::Object(object, offset * PAGE);
    let (placement, len_bytes) = (Placement::Fixed(VirtAddr::new(at)), 4 * PAGE);
    MapRequest {
        placement,
        len_bytes,
        protection: flags.protection(),
        options: flags.options(),
        backing,
        populate: Populate::OnFault,
    }
}

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

for_each_design!(shared_memory_stays_shared_after_a_fork, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let spec =
            ObjectSpec { identity: 0, size_bytes: 4 * PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
        let object = world.vm.create_object(&spec).expect("room");
        space.mmap(&mapping(&object, BASE, 0, RW | AreaFlags::SHARED)).expect("room");
        drop(object);
        assert_eq!(guest.load(VirtAddr::new(BASE)).expect("mapped").1.count, 1);
        assert_eq!(guest.store(VirtAddr::new(BASE), 8).expect("mapped").count, 0, "nobody wants to notice the store");
        let child = space.fork().expect("room");
        let in_child = Guest::new(&child);
        assert_eq!(in_child.load(VirtAddr::new(BASE)).expect("mapped").0, 8);
        in_child.store(VirtAddr::new(BASE), 9).expect("mapped");
        assert_eq!(guest.load(VirtAddr::new(BASE)).expect("mapped").0, 9);
        space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::READ).expect("mapped");
        space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), RW.protection()).expect("mapped");
        assert_eq!(
            guest.store(VirtAddr::new(BASE), 1).expect("mapped").count,
            0,
            "as on Linux, an upgrade is complete at once"
        );
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

for_each_design!(one_user_does_not_speculate_and_two_do, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let total = |event| world.vm.events().total(event);
        space.mmap(&anonymous(Some(BASE), 8 * PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE), 1).expect("mapped");
        // Whoever faults tries an area first; its first store needs a reverse-map root, which `faultless` gives.
        let (alone, gives) = (u64::from(D::NAME == "vma-lock"), u64::from(D::ROOTS_FREELY));
        assert_eq!((total(Event::Spf), total(Event::SpfFailed)), (gives, alone));
        let _second = Guest::new(&space);
        guest.store(VirtAddr::new(BASE + PAGE), 1).expect("mapped");
        let speculates = u64::from(D::NAME != "mmap-sem");
        assert_eq!((total(Event::Spf), total(Event::SpfFailed)), (speculates + gives, alone));
        assert!(guest.store(VirtAddr::new(BASE + 0x100_0000), 1).is_err());
        space.mmap(&anonymous(Some(BASE + 0x200_0000), PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE + 0x200_0000), 1).expect("mapped");
        assert_eq!(total(Event::SpfVmaChanged), speculates, "no area there");
        assert_eq!(total(Event::SpfVmaNoanon), speculates + alone - gives, "the first write of an area");
        assert_eq!(total(Event::SpfFailed), 2 * speculates + alone - gives);
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

for_each_design!(frames_of_a_file_that_is_gone_are_had_when_there_are_no_others, D, {
    World::<D>::run(1, 16 << 20, |world| {
        let half = world.vm.memory().nr_free() as u64 / 2;
        let space = world.space();
        let guest = Guest::new(&space);
        // A second user, so that faults speculate.
        let _second = Guest::new(&space);
        let spec =
            ObjectSpec { identity: 1, size_bytes: half * PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
        for _ in 0..3 {
            let file = world.vm.create_object(&spec).expect("room");
            let shared = MapRequest {
                protection: (RW | AreaFlags::SHARED).protection(),
                options: (RW | AreaFlags::SHARED).options(),
                backing: Backing::Object(&file, 0),
                ..anonymous(None, half * PAGE)
            };
            let base = space.mmap(&shared).expect("room");
            for page in 0..half {
                guest.store(base + page * PAGE, 1).expect("mapped");
            }
            drop(file);
            space.munmap(AddressRange::new(base, half * PAGE)).expect("valid");
        }
        let base = space.mmap(&anonymous(None, (half + half / 2) * PAGE)).expect("room");
        for page in 0..half + half / 2 {
            guest.store(base + page * PAGE, 1).expect("frames are free");
        }
        drop(guest);
        world.check("invariants");
    });
});
