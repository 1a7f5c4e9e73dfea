//! What calls answer at their edges, and what they leave alone.

use super::with_world;
use crate::drawing::{ORIGIN, at};
use crate::world::{RW, Tested, World, anonymous};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{PAGE_BYTES, Processor};
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, Backing, CallError, Event, FutexKey, Guest, Limits, MapRequest,
    ObjectSpec, PAGE, PageLock, Pattern, PinKind, Placement, Populate, RemapPlacement, RemapRequest, SpaceRef,
    SyncFlags, USER_END, VirtAddr, WriteNotice, ZeroSource, check,
};
use std::ops::ControlFlow;

const READ: AreaFlags = AreaFlags::READ;

for_each_design!(a_new_length_is_neither_nothing_nor_more_than_there_is, D, {
    with_world::<D>(|world| {
        let bad = CallError::Invalid("the new length is 0, or more than there is");
        let remap = |new_len_bytes| {
            let placement = RemapPlacement::MayMove;
            RemapRequest {
                old: AddressRange::new(VirtAddr::new(ORIGIN), PAGE),
                new_len_bytes,
                placement,
                keeps_source: false,
            }
        };
        world
            .scene("w", "1")
            .refuse(|s| s.space.mremap(&remap(0)), bad)
            .refuse(|s| s.space.mremap(&remap(USER_END + 1)), bad)
            .refuse(|s| s.space.mremap(&remap(u64::MAX)), bad)
            .after("w", "1");
    });
});

for_each_design!(msync_looks_behind_a_hole_unless_it_is_to_be_done_later, D, {
    with_world::<D>(|world| {
        let (sync, later, drop) = (SyncFlags::SYNC, SyncFlags::ASYNC, SyncFlags::INVALIDATE);
        let hole = Err(CallError::Unmapped { address: VirtAddr::new(at(1)) });
        let scene = world.scene("w.w", "").call(|s| s.lock(2..3, PageLock::Lock));
        let msync =
            |nr_pages: u64, flags| scene.space.msync(AddressRange::new(VirtAddr::new(ORIGIN), nr_pages * PAGE), flags);
        assert_eq!(msync(1, sync | drop), Ok(()), "nothing is locked");
        assert_eq!(
            scene.space.msync(AddressRange::new(VirtAddr::new(at(2)), PAGE), sync),
            Ok(()),
            "what is locked may be written"
        );
        assert_eq!(
            scene.space.msync(AddressRange::new(VirtAddr::new(at(2)), PAGE), later | drop),
            Err(CallError::Locked { address: VirtAddr::new(at(2)) })
        );
        assert_eq!(msync(2, sync), hole);
        assert_eq!(msync(3, sync), hole, "remembered behind it");
        assert_eq!(msync(3, sync | drop), Err(CallError::Locked { address: VirtAddr::new(at(2)) }), "found behind it");
        assert_eq!(msync(3, later), hole);
    });
});

for_each_design!(guards_take_more_pages_than_are_collected_at_once, D, {
    with_world::<D>(|world| {
        const PAGES: u64 = 400;
        let space = world.space();
        let guest = Guest::new(&space);
        // One table holds them all.
        let start = ORIGIN & !0x1f_ffff;
        space.mmap(&anonymous(Some(start), PAGES * PAGE)).expect("room");
        (0..PAGES).for_each(|page| assert!(guest.store(VirtAddr::new(start + page * PAGE), page).is_ok()));
        space.madvise(AddressRange::new(VirtAddr::new(start), PAGES * PAGE), Advice::GuardInstall).expect("mapped");
        let nr_open = (0..PAGES).filter(|page| guest.load(VirtAddr::new(start + page * PAGE)).is_ok()).count();
        assert_eq!((nr_open, space.resident_pages()), (0, 0));
    });
});

for_each_design!(memory_below_2_gib_is_the_lowest_that_is_free, D, {
    with_world::<D>(|world| {
        const LOW: u64 = 0x4000_0000;
        let space = world.space();
        let map = |placement, nr_pages: u64| space.mmap(&MapRequest { placement, ..anonymous(None, nr_pages * PAGE) });
        let low = |hint, nr_pages| map(Placement::Low2G { hint }, nr_pages);
        assert_eq!(low(VirtAddr::new(0), 2), Ok(VirtAddr::new(LOW)));
        assert_eq!(low(VirtAddr::new(0), 1), Ok(VirtAddr::new(LOW + 2 * PAGE)));
        space.munmap(AddressRange::new(VirtAddr::new(LOW), 2 * PAGE)).expect("valid");
        assert_eq!(low(VirtAddr::new(0), 3), Ok(VirtAddr::new(LOW + 3 * PAGE)), "the hole is too small");
        assert_eq!(low(VirtAddr::new(0), 2), Ok(VirtAddr::new(LOW)), "the hole fits");
        // Hints count where they are free and end below 2 GiB; page 0 asks for none.
        assert_eq!(low(VirtAddr::new(LOW + 20 * PAGE), 1), Ok(VirtAddr::new(LOW + 20 * PAGE)));
        assert_eq!(low(VirtAddr::new(0x1000_0000 + 7), 1), Ok(VirtAddr::new(0x1000_0000)), "rounded down");
        assert_eq!(low(VirtAddr::new(LOW + 20 * PAGE), 1), Ok(VirtAddr::new(LOW + 6 * PAGE)), "taken");
        assert_eq!(low(VirtAddr::new(2 * LOW - PAGE), 1), Ok(VirtAddr::new(2 * LOW - PAGE)), "the last page");
        assert_eq!(low(VirtAddr::new(2 * LOW), 1), Ok(VirtAddr::new(LOW + 7 * PAGE)), "too high");
        assert_eq!(low(VirtAddr::new(PAGE - 1), 1), Ok(VirtAddr::new(LOW + 8 * PAGE)), "no hint");
        // As much as there is, and no more.
        map(Placement::Fixed(VirtAddr::new(LOW)), LOW / PAGE - 1).expect("in place of what is there");
        space.munmap(AddressRange::new(VirtAddr::new(2 * LOW - PAGE), PAGE)).expect("valid");
        let full = CallError::NoRoom { len_bytes: 2 * PAGE };
        assert_eq!(low(VirtAddr::new(0), 2), Err(full));
        assert_eq!(low(VirtAddr::new(0), 1), Ok(VirtAddr::new(2 * LOW - PAGE)));
    });
});

for_each_design!(a_truncation_spares_what_lies_behind_a_mapping, D, {
    with_world::<D>(|world| {
        let (size_bytes, write_notice) = (4 * PAGE, WriteNotice::None);
        let object = world.vm.create_object(&ObjectSpec { identity: 1, size_bytes, source: &ZeroSource, write_notice });
        let object = object.expect("room");
        let space = world.space();
        let guest = Guest::new(&space);
        // Pages 1 and 2 of the object, between private memory.
        for place in [0, 3] {
            space.mmap(&anonymous(Some(at(place)), PAGE)).expect("room");
            guest.store(VirtAddr::new(at(place)), 5 + place).expect("mapped");
        }
        let request = MapRequest {
            placement: Placement::Fixed(VirtAddr::new(at(1))),
            len_bytes: 2 * PAGE,
            protection: (RW | AreaFlags::SHARED).protection(),
            options: (RW | AreaFlags::SHARED).options(),
            backing: Backing::Object(&object, PAGE),
            populate: Populate::Now,
        };
        space.mmap(&request).expect("room");
        world.vm.truncate(&object, 0).expect("shorter");
        assert_eq!(space.resident_pages(), 2);
        assert_eq!([0, 3].map(|place| guest.load(VirtAddr::new(at(place))).expect("mapped").0), [5, 8]);
    });
});

for_each_design!(more_rights_take_no_translation_away, D, {
    // A CPU that knows the page is asked whenever a translation is taken away.
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(2);
    machine.attach(|| {
        let world = World::<D>::new(&region, 2);
        let scene = world.scene("ww", "12");
        let nr_asked = |call: &dyn Fn()| {
            let know = || {
                machine.attach(|| {
                    assert_eq!(Native::cpu(), 1);
                    scene.guest.load(VirtAddr::new(ORIGIN)).map(|(word, _)| word)
                })
            };
            std::thread::scope(|scope| scope.spawn(know).join()).expect("no panic").expect("mapped");
            let before = world.vm.events().total(Event::TlbShootdown);
            call();
            world.vm.events().total(Event::TlbShootdown) - before
        };
        let protect = |rights| scene.protect(0..2, rights).expect("mapped");
        let execute = READ | AreaFlags::EXEC;
        assert_eq!(nr_asked(&|| protect(READ)), 1);
        assert_eq!(nr_asked(&|| protect(RW)), 0);
        assert_eq!(nr_asked(&|| protect(RW | AreaFlags::EXEC)), 0);
        assert_eq!(nr_asked(&|| protect(execute)), 1);
        assert_eq!(nr_asked(&|| protect(READ)), 1, "the right to fetch");
        assert_eq!(nr_asked(&|| protect(execute)), 0);
    });
});

/// How many frames are left without a CPU, at least.
const LEFT: u64 = 200;

/// Makes things that hold `LEFT` frames, drops them on this thread, which has no CPU, and then touches more pages than
/// there are free frames: the things end for that.
macro_rules! ends_for_who_finds_no_frame {
    ($world:ident, $space:ident, $make:block) => {{
        let region = HostRegion::reserve(8 << 20).expect("the host has room");
        let machine = Machine::new(1);
        let $world = machine.attach(|| World::<D>::new(&region, 1));
        let $space = machine.attach(|| $world.space());
        let held = machine.attach(|| $make);
        let nr_free = machine.attach(|| $world.vm.memory().nr_free() as u64);
        drop(held);
        machine.attach(|| {
            let guest = Guest::new(&$space);
            let nr_wanted = nr_free + LEFT / 2;
            $space.mmap(&anonymous(Some(at(LEFT)), nr_wanted * PAGE)).expect("room");
            let touch =
                |page| assert!(guest.store(VirtAddr::new(at(LEFT + page)), 1).is_ok(), "page {page} of {nr_wanted}");
            (0..nr_wanted).for_each(touch);
        });
        machine.attach(|| drop($space));
        machine.attach(|| drop($world));
    }};
}

for_each_design!(an_object_that_was_left_without_a_cpu_serves_who_finds_no_frame, D, {
    ends_for_who_finds_no_frame!(world, space, {
        let (size_bytes, write_notice) = (LEFT * PAGE, WriteNotice::None);
        let object = world.vm.create_object(&ObjectSpec { identity: 1, size_bytes, source: &ZeroSource, write_notice });
        let object = object.expect("room");
        (0..LEFT).for_each(|page| world.vm.read_object(&object, page * PAGE, &mut [0]).expect("room for all"));
        object
    });
});

for_each_design!(pins_that_were_left_without_a_cpu_serve_who_finds_no_frame, D, {
    ends_for_who_finds_no_frame!(world, space, {
        space.mmap(&anonymous(Some(ORIGIN), LEFT * PAGE)).expect("room");
        let pins: Vec<_> =
            (0..LEFT).map(|page| space.pin(VirtAddr::new(at(page)), PinKind::Write).expect("mapped")).collect();
        space.munmap(AddressRange::new(VirtAddr::new(ORIGIN), LEFT * PAGE)).expect("valid");
        world.vm.flush();
        pins
    });
});

for_each_design!(reference_pages_that_were_left_without_a_cpu_serve_who_finds_no_frame, D, {
    ends_for_who_finds_no_frame!(world, space, {
        let repeated = |value: u64| world.vm.create_repeated(Pattern::Byte(value as u8)).expect("room");
        (0..LEFT).map(repeated).collect::<Vec<_>>()
    });
});

for_each_design!(the_checker_knows_a_reference_page_that_was_written, D, {
    World::<D>::run(1, 64 << 20, |world| {
        let handle = world.vm.create_repeated(Pattern::Byte(0x5a)).expect("room");
        let whole = world.vm.create_reference(&std::array::from_fn(|place| place as u64)).expect("room");
        let mut frames = Vec::new();
        world.vm.for_each_reference(|reference| {
            assert!(reference.is_intact(world.vm.memory()));
            frames.push(world.vm.memory().frame(reference.page()));
        });
        assert_eq!(frames.len(), 2);
        for frame in frames {
            // SAFETY: nobody maps the page; a byte of it is changed and put back.
            let is_found = unsafe {
                let byte = frame.add(PAGE_BYTES - 1);
                byte.write(byte.read() ^ 1);
                let found = check::invariants(&world.vm);
                byte.write(byte.read() ^ 1);
                found.is_err()
            };
            assert!(is_found);
        }
        world.check("after all is as it was");
        drop((handle, whole));
    });
});

for_each_design!(nothing_becomes_a_huge_page, D, {
    with_world::<D>(|world| {
        let none = CallError::Invalid("there are no huge pages");
        world
            .scene("w.r", "1")
            .refuse(|s| s.advise(0..1, Advice::Collapse), none)
            .refuse(|s| s.advise(2..3, Advice::Collapse), none)
            .after("w.r", "1");
    });
});

for_each_design!(advice_is_taken_across_holes_and_the_first_hole_is_the_answer, D, {
    with_world::<D>(|world| {
        let unmapped = |page| CallError::Unmapped { address: VirtAddr::new(at(page)) };
        for (areas, marked, hole) in [("w.w", "d.d", 1), ("ww", "dd", 2), (".ww", ".dd", 0), ("..w", "..d", 0)] {
            let scene = world.scene(areas, "");
            let scene = scene.refuse(|s| s.advise(0..3, Advice::DontFork), unmapped(hole)).after(marked, "");
            scene.refuse(|s| s.advise(0..3, Advice::DontNeed), unmapped(hole)).after(marked, "");
        }
        world.scene("ww.w", "12.3").call(|s| s.advise(0..2, Advice::DontFork)).after("dd.w", "12.3");
        world.scene("ww.w", "12.3").refuse(|s| s.advise(1..4, Advice::DontNeed), unmapped(2)).after("ww.w", "1");
        world.scene("w.w", "1.2").refuse(|s| s.advise(1..2, Advice::DontFork), unmapped(1)).after("w.w", "1.2");
    });
});

for_each_design!(a_refused_access_makes_no_page_but_for_a_fetch_of_what_may_be_read, D, {
    with_world::<D>(|world| {
        let scene = world.scene("rwn.x", "");
        let place = |page| VirtAddr::new(at(page));
        let forbidden = |page| Err(AccessError::Forbidden { address: place(page) });
        assert_eq!(scene.store(0, 1).map(drop), forbidden(0));
        assert_eq!(scene.store(4, 1).map(drop), forbidden(4));
        assert_eq!(scene.guest.load(place(2)).map(drop), forbidden(2));
        assert_eq!(scene.guest.fetch(place(2)).map(drop), forbidden(2));
        let scene = scene.after("rwn.x", "");
        // As on x86, which finds out when the page is there.
        assert_eq!(scene.guest.fetch(place(0)).map(drop), forbidden(0));
        let scene = scene.after("rwn.x", "z");
        scene.put(1, 1);
        assert_eq!(scene.guest.fetch(place(1)).map(drop), forbidden(1));
        assert!(scene.guest.fetch(place(4)).is_ok());
        scene.after("rwn.x", "z1..z");
    });
});

for_each_design!(only_private_memory_lacks_a_root_at_its_first_store, D, {
    with_world::<D>(|world| {
        let scene = world.scene("s.ww", "");
        // Faults of a space that two threads use go without its lock, if the design lets them.
        let _second = Guest::new(&scene.space);
        let nr_missed = || world.vm.events().total(Event::SpfVmaNoanon);
        scene.put(0, 1);
        assert_eq!(nr_missed(), 0, "shared memory has its object");
        scene.put(2, 2);
        let missed = nr_missed();
        assert_eq!(missed, u64::from(D::NAME != "mmap-sem" && !D::ROOTS_FREELY));
        scene.put(3, 3);
        assert_eq!(nr_missed(), missed, "the area has a root now");
        scene.after("s.ww", "1.23");
    });
});

// Three areas that a cut leaves, one that changes as a whole, and one that two become again.
for_each_design!(areas_whose_rights_have_changed_get_their_roots_as_others_do, D, {
    with_world::<D>(|world| {
        let nr_missed = || world.vm.events().total(Event::SpfVmaNoanon);
        let scene = world.scene("wwwww.ww.ww", "");
        let _second = Guest::new(&scene.space);
        for (pages, rights) in [(2..3, READ), (6..8, READ), (6..8, RW), (9..10, READ), (9..10, RW)] {
            scene.protect(pages, rights).expect("mapped");
        }
        for (value, page) in (1..).zip([0, 4, 7, 10]) {
            scene.put(page, value);
        }
        let gives_none = D::NAME != "mmap-sem" && !D::ROOTS_FREELY;
        assert_eq!(nr_missed() != 0, gives_none, "{} first stores under the lock", nr_missed());
        scene.after("wwrww.ww.ww", "1...2..3..4");
    });
});

for_each_design!(a_range_that_wraps_is_no_source_of_a_move, D, {
    with_world::<D>(|world| {
        let remap = |old_len_bytes, new_len_bytes| RemapRequest {
            old: AddressRange::new(VirtAddr::new(ORIGIN), old_len_bytes),
            new_len_bytes,
            placement: RemapPlacement::Fixed(VirtAddr::new(at(100))),
            keeps_source: false,
        };
        let scene = world.limited(Limits::default(), "ww", "12");
        // So long that it leaves user memory, though the new one does not.
        for old_len_bytes in [USER_END, USER_END - ORIGIN + PAGE, u64::MAX - ORIGIN - PAGE] {
            let answer = scene.space.mremap(&remap(old_len_bytes, PAGE));
            assert!(matches!(answer, Err(CallError::Invalid(_))), "{old_len_bytes:#x}: {answer:?}");
        }
        scene.after("ww", "12");
    });
});

for_each_design!(advice_given_twice_is_advice_given_once, D, {
    with_world::<D>(|world| {
        let pairs = [
            (Advice::Random, AreaFlags::RANDOM, Advice::Normal),
            (Advice::Sequential, AreaFlags::SEQUENTIAL, Advice::Normal),
            (Advice::DontFork, AreaFlags::DONTFORK, Advice::DoFork),
            (Advice::WipeOnFork, AreaFlags::WIPEONFORK, Advice::KeepOnFork),
            (Advice::DontDump, AreaFlags::NO_DUMP, Advice::DoDump),
            (Advice::Mergeable, AreaFlags::MERGEABLE, Advice::Unmergeable),
        ];
        let scene = world.scene("ww", "12");
        let flags = || {
            let mut of_areas = Vec::new();
            scene.space.for_each_area(|area| of_areas.push(area.flags));
            of_areas
        };
        let advise = |advice| scene.advise(0..1, advice).expect("mapped");
        let plain = flags()[0];
        for (does, flag, undoes) in pairs {
            (0..2).for_each(|_| advise(does));
            assert_eq!(flags(), [plain | flag, plain], "{does:?}");
            (0..2).for_each(|_| advise(undoes));
            assert_eq!(flags(), [plain], "{undoes:?}");
        }
        // Two that exclude each other.
        for (does, has) in [(Advice::HugePage, AreaFlags::HUGE), (Advice::NoHugePage, AreaFlags::NO_HUGE)] {
            (0..2).for_each(|_| advise(does));
            assert_eq!(flags(), [plain | has, plain], "{does:?}");
        }
        for (does, has) in [(Advice::Random, AreaFlags::RANDOM), (Advice::Sequential, AreaFlags::SEQUENTIAL)] {
            advise(does);
            assert_eq!(flags(), [plain | AreaFlags::NO_HUGE | has, plain], "{does:?}");
        }
        scene.space.munmap(AddressRange::new(VirtAddr::new(ORIGIN), 2 * PAGE)).expect("valid");
    });
});

for_each_design!(a_move_may_end_where_user_memory_ends, D, {
    with_world::<D>(|world| {
        const LAST: u64 = USER_END - 2 * PAGE;
        let moved_to = |start| RemapRequest {
            old: AddressRange::new(VirtAddr::new(ORIGIN), 2 * PAGE),
            new_len_bytes: 2 * PAGE,
            placement: RemapPlacement::Fixed(start),
            keeps_source: false,
        };
        let outside = CallError::Invalid("the new range leaves user memory");
        let scene = world.scene("ww", "12");
        for start in [LAST + PAGE, USER_END, USER_END + PAGE, u64::MAX - PAGE + 1] {
            assert_eq!(scene.space.mremap(&moved_to(VirtAddr::new(start))), Err(outside), "{start:#x}");
        }
        assert_eq!(scene.space.mremap(&moved_to(VirtAddr::new(LAST))), Ok(VirtAddr::new(LAST)));
        assert_eq!([0, 1].map(|page| scene.guest.load(VirtAddr::new(LAST + page * PAGE)).expect("mapped").0), [1, 2]);
    });
});

for_each_design!(mincore_tells_of_what_the_object_has_in_memory, D, {
    with_world::<D>(|world| {
        let (size_bytes, write_notice) = (3 * PAGE, WriteNotice::None);
        let object = world.vm.create_object(&ObjectSpec { identity: 1, size_bytes, source: &ZeroSource, write_notice });
        let object = object.expect("room");
        let (maker, asker) = (world.space(), world.space());
        for space in [&maker, &asker] {
            let request = MapRequest {
                protection: (RW | AreaFlags::SHARED).protection(),
                options: (RW | AreaFlags::SHARED).options(),
                backing: Backing::Object(&object, 0),
                // A page behind the end, too.
                ..anonymous(Some(ORIGIN), 4 * PAGE)
            };
            space.mmap(&request).expect("room");
        }
        Guest::new(&maker).store(VirtAddr::new(at(1)), 5).expect("mapped");
        let told = |most: usize| {
            let mut told = Vec::new();
            let mut tell = |is_in_memory| {
                told.push(is_in_memory);
                if told.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            asker.mincore(AddressRange::new(VirtAddr::new(ORIGIN), 4 * PAGE), &mut tell).expect("mapped");
            told
        };
        assert_eq!(told(usize::MAX), [false, true, false, false]);
        assert_eq!(told(2), [false, true]);
    });
});

for_each_design!(neighbours_that_differ_in_rights_have_one_root_and_join_later, D, {
    with_world::<D>(|world| {
        for stores in [[0, 1], [1, 0]] {
            let scene = world.scene("w", "");
            let request = MapRequest {
                protection: (RW | AreaFlags::EXEC).protection(),
                options: (RW | AreaFlags::EXEC).options(),
                ..anonymous(Some(at(1)), PAGE)
            };
            scene.space.mmap(&request).expect("room");
            assert_eq!(scene.space.nr_areas(), 2);
            for page in stores {
                scene.guest.store(VirtAddr::new(at(page)), page + 1).expect("mapped");
            }
            scene.protect(1..2, RW).expect("mapped");
            scene.after("ww", "12").counts([1, 2, 2, 0, 2]);
        }
    });
});

for_each_design!(a_word_has_one_name_wherever_its_object_is_mapped, D, {
    with_world::<D>(|world| {
        let (size_bytes, write_notice) = (4 * PAGE, WriteNotice::None);
        let object = world.vm.create_object(&ObjectSpec { identity: 1, size_bytes, source: &ZeroSource, write_notice });
        let object = object.expect("room");
        let [one, other] = [world.space(), world.space()];
        let map = |space: &SpaceRef<'_, Native, D>, to, flags: AreaFlags, page_offset| {
            let backing = Backing::Object(&object, page_offset * PAGE);
            space
                .mmap(&MapRequest {
                    protection: flags.protection(),
                    options: flags.options(),
                    backing,
                    ..anonymous(Some(at(to)), 2 * PAGE)
                })
                .expect("room");
        };
        map(&one, 0, RW | AreaFlags::SHARED, 0);
        map(&one, 2, RW, 0);
        map(&other, 5, RW | AreaFlags::SHARED, 1);
        let shared = one.futex_key(VirtAddr::new(at(1) + 8)).expect("mapped");
        assert!(matches!(shared, FutexKey::Shared { page: 1, offset: 8, .. }), "{shared:?}");
        assert_eq!(other.futex_key(VirtAddr::new(at(5) + 8)), Ok(shared));
        assert_ne!(other.futex_key(VirtAddr::new(at(6) + 8)), Ok(shared));
        let private = one.futex_key(VirtAddr::new(at(2) + 4)).expect("mapped");
        assert_eq!(private, FutexKey::Private { space: one.id(), address: VirtAddr::new(at(2) + 4) });
        assert_eq!(one.futex_key(VirtAddr::new(at(9))), Err(AccessError::NotMapped { address: VirtAddr::new(at(9)) }));
    });
});

for_each_design!(rights_change_from_the_beginning_of_a_stack, D, {
    with_world::<D>(|world| {
        let unmapped = |page| CallError::Unmapped { address: VirtAddr::new(at(page)) };
        let none = CallError::Invalid("the area does not grow downwards");
        let scene = world.scene("....kkkk.w", "....1234.5");
        let protect =
            |page, rights| scene.space.mprotect_stack(AddressRange::new(VirtAddr::new(at(page)), PAGE), rights);
        assert_eq!(protect(9, READ.protection()), Err(none));
        assert_eq!(protect(1, READ.protection()), Err(unmapped(1)));
        assert_eq!(protect(6, READ.protection()), Ok(()));
        let may_store = |page| scene.guest.store(VirtAddr::new(at(page)), 7).is_ok();
        assert_eq!([4, 5, 6, 7].map(may_store), [false, false, false, true]);
    });
});

#[test]
fn a_refused_access_says_why_and_where() {
    let address = 0x1230;
    let said = [
        AccessError::NotMapped { address: VirtAddr::new(address) },
        AccessError::Forbidden { address: VirtAddr::new(address) },
        AccessError::ForbiddenByKey { address: VirtAddr::new(address) },
        AccessError::NoPage { address: VirtAddr::new(address) },
        AccessError::NotCanonical { address: VirtAddr::new(address) },
    ]
    .map(|error| error.to_string());
    let words = ["SIGSEGV (MAPERR) at", "SIGSEGV (ACCERR) at", "SIGSEGV (PKUERR) at", "SIGBUS (ADRERR) at"];
    assert!(said.iter().zip(words).all(|(said, words)| *said == format!("{words} 0x1230")), "{said:?}");
    assert_eq!(said[4], "SIGSEGV (SI_KERNEL) for 0x1230");
    assert!(AccessError::TooManyReferences.to_string().contains("as often as its frame can count"));
}
