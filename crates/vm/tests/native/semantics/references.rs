//! Areas of reference pages, and areas of a pattern.

use super::with_world;
use crate::drawing::{PATTERN, Scene, at};
use crate::world::{RW, Tested, World, anonymous};
use faultless_platform::native::Native;
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, Backing, CallError, Event, Guest, Limits, LockAll, MapRequest, PAGE,
    PageLock, Pattern, Placement, Populate, ReferenceHandle, RemapPlacement, SpaceRef, SyncFlags, VirtAddr, check,
};
use std::ops::{ControlFlow, Range};

const READ: AreaFlags = AreaFlags::READ;
const SHARED: AreaFlags = AreaFlags::SHARED;

fn handle<D: Tested>(world: &World<D>) -> ReferenceHandle<'_, Native> {
    world.vm.create_repeated(Pattern::Byte(0xaa)).expect("room")
}

/// Asks for pages of a reference; the offset is that of page 0 of the drawing, so that neighbours continue each other.
fn request<'a>(handle: &'a ReferenceHandle<'a, Native>, pages: Range<u64>, flags: AreaFlags) -> MapRequest<'a, Native> {
    MapRequest {
        placement: Placement::Fixed(VirtAddr::new(at(pages.start))),
        len_bytes: (pages.end - pages.start) * PAGE,
        protection: flags.protection(),
        options: flags.options(),
        backing: Backing::Reference(handle, pages.start * PAGE),
        populate: Populate::OnFault,
    }
}

/// Draws reference areas: `p` to write, `q` to read; and their pages, as [`Scene`] draws them.
fn scene<'vm, D: Tested>(
    world: &'vm World<D>,
    handle: &ReferenceHandle<'_, Native>,
    areas: &str,
    pages: &str,
) -> Scene<'vm, D> {
    scene_under(world, handle, Limits::default(), areas, pages)
}

fn scene_under<'vm, D: Tested>(
    world: &'vm World<D>,
    handle: &ReferenceHandle<'_, Native>,
    limits: Limits,
    areas: &str,
    pages: &str,
) -> Scene<'vm, D> {
    let scene = world.limited(limits, "", "");
    for (page, kind) in (0..).zip(areas.chars()).filter(|(_, kind)| *kind != '.') {
        scene.space.mmap(&request(handle, page..page + 1, RW)).expect("room");
        assert!(kind == 'p' || kind == 'q');
    }
    for (page, held) in (0..).zip(pages.chars()) {
        match held {
            'p' => assert_eq!(scene.load(page), PATTERN),
            'c' => scene.put(page, PATTERN),
            '!' => scene.advise(page..page + 1, Advice::GuardInstall).expect("mapped"),
            _ => held.to_digit(10).into_iter().for_each(|value| scene.put(page, value.into())),
        }
    }
    for (page, _) in (0..).zip(areas.chars()).filter(|(_, kind)| *kind == 'q') {
        scene.protect(page..page + 1, READ).expect("mapped");
    }
    scene.after(areas, pages)
}

for_each_design!(loads_show_the_one_page_and_stores_copy_it, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        let scene = scene(world, &handle, "pppp", "");
        let free = world.vm.memory().nr_free();
        // The table may be made, nothing else.
        (0..4).for_each(|page| assert_eq!(scene.load(page), PATTERN));
        assert!(free - world.vm.memory().nr_free() <= 3, "loads take tables alone");
        let scene = scene.after("pppp", "pppp").counts([1, 4, 4, 0, 0]);
        scene.put(1, 7);
        scene.put(3, 8);
        let scene = scene.after("pppp", "p7p8").counts([1, 4, 4, 0, 2]);
        assert_eq!(
            scene.guest.load(VirtAddr::new(at(1) + 8)).expect("mapped").0,
            PATTERN,
            "the rest of the page is copied"
        );
        // A first store to a page that was never loaded.
        let other = scene.call(|s| s.munmap(0..4)).call(|s| s.space.mmap(&request(&handle, 0..2, RW)));
        other.put(0, 3);
        let other = other.after("pp", "3");
        assert_eq!(other.guest.load(VirtAddr::new(at(0) + 4088)).expect("mapped").0, PATTERN);
    });
});

for_each_design!(arbitrary_content_is_copied, D, {
    with_world::<D>(|world| {
        let content: [u64; 512] = std::array::from_fn(|place| place as u64 * 0x0101);
        let handle = world.vm.create_reference(&content).expect("room");
        let scene = world.scene("", "").call(|s| s.space.mmap(&request(&handle, 0..2, RW)));
        scene.put(1, 9);
        for page in 0..2 {
            let mut words = [0; 512];
            scene.guest.load_words(VirtAddr::new(at(page)), &mut words).expect("mapped");
            assert_eq!(words[1..], content[1..], "page {page}");
            assert_eq!(words[0], page * 9);
        }
    });
});

for_each_design!(every_page_loaded_takes_no_frame, D, {
    with_world::<D>(|world| {
        const NR_PAGES: u64 = 512;
        let handle = handle(world);
        let (here, there) = (world.scene("", ""), world.scene("", ""));
        // Tables are made by a first touch, equally in both.
        let start = at(0).next_multiple_of(512 * PAGE) - at(0);
        let range = start / PAGE..start / PAGE + NR_PAGES;
        here.space.mmap(&request(&handle, range.clone(), RW)).expect("room");
        there.space.mmap(&anonymous(Some(at(range.start)), NR_PAGES * PAGE)).expect("room");
        here.load(range.start);
        there.load(range.start);
        let free = world.vm.memory().nr_free();
        range.clone().for_each(|page| assert_eq!(here.load(page), PATTERN));
        assert_eq!((world.vm.memory().nr_free(), here.space.resident_pages()), (free, 0));
        // Written alike, both are equally resident.
        for page in range.clone().step_by(3) {
            here.put(page, 1);
            there.put(page, 1);
        }
        assert_eq!(here.space.resident_pages(), there.space.resident_pages());
    });
});

for_each_design!(what_a_shared_mapping_may, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        let scene = world.scene("", "");
        assert_eq!(scene.space.mmap(&request(&handle, 0..2, RW | SHARED)), Err(CallError::Denied));
        let scene = scene.call(|s| s.space.mmap(&request(&handle, 0..2, READ | SHARED)));
        assert_eq!(scene.load(1), PATTERN);
        let scene = scene.refuse(|s| s.protect(0..2, RW), CallError::Denied).after("qq", ".p");
        let forbidden = Err(AccessError::Forbidden { address: VirtAddr::new(at(1)) });
        assert_eq!(scene.store(1, 1).map(drop), forbidden);
        // A child reads it, too, and a second mapping may be made of it.
        assert_eq!(scene.fork().load(0), PATTERN);
        let second =
            scene.call(|s| s.remap(0..0, 2, RemapPlacement::Fixed(VirtAddr::new(at(4))))).after("qq..qq", ".p");
        assert_eq!(second.load(5), PATTERN);
        // It has no pages of its own that could be moved about.
        let not_shared = CallError::Invalid("not a shared mapping that may be written");
        let remapped = second.space.remap_file_pages(AddressRange::new(VirtAddr::new(at(0)), PAGE), 1, Populate::Now);
        assert_eq!(remapped, Err(not_shared));
    });
});

for_each_design!(what_mmap_refuses, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        let scene = world.scene("", "");
        let asks = |flags, offset, len_bytes| {
            let asked =
                MapRequest { backing: Backing::Reference(&handle, offset), len_bytes, ..request(&handle, 0..1, flags) };
            scene.space.mmap(&asked).map(drop)
        };
        let grows = CallError::Invalid("only private anonymous memory grows downwards");
        assert_eq!(asks(RW | AreaFlags::GROWSDOWN, 0, PAGE), Err(grows));
        let aligned = CallError::Invalid("the offset is not a multiple of the page size");
        assert_eq!(asks(RW, 1, PAGE), Err(aligned));
        assert_eq!(asks(RW, (1 << 63) - PAGE, 2 * PAGE), Err(CallError::OffsetOverflow));
        assert_eq!(asks(RW, (1 << 63) - 3 * PAGE, PAGE), Ok(()));
        let pattern = |flags: AreaFlags| MapRequest {
            protection: flags.protection(),
            options: flags.options(),
            backing: Backing::Pattern(Pattern::Byte(1)),
            ..anonymous(None, PAGE)
        };
        assert_eq!(scene.space.mmap(&pattern(RW | AreaFlags::GROWSDOWN)), Err(grows));
        let shared = CallError::Invalid("a shared mapping needs an object");
        assert_eq!(scene.space.mmap(&pattern(RW | SHARED)), Err(shared));
        // Of another instance, on a machine and so a thread of its own.
        let ask_elsewhere = || {
            World::<D>::run(1, 8 << 20, |other| {
                let foreign = CallError::Invalid("the reference page belongs to another instance");
                assert_eq!(other.space().mmap(&request(&handle, 0..1, RW)), Err(foreign));
            });
        };
        std::thread::scope(|scope| scope.spawn(ask_elsewhere).join().expect("no panic"));
    });
});

for_each_design!(dropped_pages_come_back_as_the_pattern, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        let cases = [(Advice::DontNeed, "p!p1", 0..4, ".!"), (Advice::DontNeedLocked, "p1c2", 1..3, "p..2")];
        for (advice, pages, range, after) in cases {
            let scene = scene(world, &handle, "pppp", pages).call(|s| s.advise(range, advice)).after("pppp", after);
            assert_eq!(scene.load(2), PATTERN);
            scene.put(2, 5);
            assert_eq!(scene.guest.load(VirtAddr::new(at(2) + 8)).expect("mapped").0, PATTERN);
        }
        // What MADV_FREE gave up is there until memory is asked for back; then it is the pattern again.
        let freed = scene(world, &handle, "pppp", "p12p").call(|s| s.advise(0..4, Advice::Free));
        freed.put(1, 3);
        let freed = freed.after("pppp", "p32p").call(|s| s.advise(0..4, Advice::PageOut)).after("pppp", "p3.p");
        assert_eq!(freed.load(2), PATTERN);
        // Guards and back.
        let guarded = scene(world, &handle, "pppp", "p!1")
            .refuse(|s| s.lock(1..2, PageLock::Lock), CallError::Unmapped { address: VirtAddr::new(at(1)) });
        assert_eq!(
            guarded.guest.load(VirtAddr::new(at(1))).map(drop),
            Err(AccessError::NotMapped { address: VirtAddr::new(at(1)) })
        );
        guarded.space.madvise(AddressRange::new(VirtAddr::new(at(1)), PAGE), Advice::GuardRemove).expect("mapped");
        assert_eq!(guarded.load(1), PATTERN);
        // A sealed one that nobody may write drops what it has, as a file's area does; one of a pattern does not, as
        // anonymous memory.
        let sealed = scene(world, &handle, "qq", "12").also(|s| s.seal(0..2).expect("mapped"));
        let sealed = sealed.call(|s| s.advise(0..1, Advice::DontNeed)).call(|s| s.advise(1..2, Advice::GuardInstall));
        assert_eq!(sealed.load(0), PATTERN);
        let pattern = MapRequest {
            protection: READ.protection(),
            options: READ.options(),
            backing: Backing::Pattern(Pattern::Byte(1)),
            ..anonymous(Some(at(0)), PAGE)
        };
        let kept = world.scene("", "").call(|s| s.space.mmap(&pattern)).also(|s| s.seal(0..1).expect("mapped"));
        assert_eq!(kept.advise(0..1, Advice::DontNeed), Err(CallError::Sealed { address: VirtAddr::new(at(0)) }));
    });
});

for_each_design!(locking_and_populating_copy_what_may_be_written, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        scene(world, &handle, "pp", "")
            .call(|s| s.lock(0..2, PageLock::Lock))
            .after("pp", "cc")
            .counts([1, 2, 2, 2, 2]);
        scene(world, &handle, "qq", "")
            .call(|s| s.lock(0..2, PageLock::Lock))
            .after("qq", "pp")
            .counts([1, 2, 0, 2, 0]);
        scene(world, &handle, "pp", "p").call(|s| s.lock(0..2, PageLock::LockOnFault)).after("pp", "p");
        scene(world, &handle, "pp", "p").call(|s| s.lock_all(LockAll::CURRENT)).after("pp", "cc");
        scene(world, &handle, "pp", "").call(|s| s.advise(0..2, Advice::PopulateRead)).after("pp", "pp");
        scene(world, &handle, "pp", "p").call(|s| s.advise(0..2, Advice::PopulateWrite)).after("pp", "cc");
        let now = |flags| MapRequest { populate: Populate::Now, ..request(&handle, 0..2, flags) };
        world.scene("", "").call(|s| s.space.mmap(&now(RW))).after("pp", "cc");
        world.scene("", "").call(|s| s.space.mmap(&now(READ))).after("qq", "pp");
        world.scene("", "").call(|s| s.space.mmap(&now(READ | SHARED))).after("qq", "pp");
    });
});

for_each_design!(what_a_file_is_asked_for_and_a_reference_page_answers, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        let wiped = CallError::Invalid("only private anonymous memory can be wiped on fork");
        scene(world, &handle, "pp", "1").refuse(|s| s.advise(0..2, Advice::WipeOnFork), wiped).after("pp", "1");
        let remove = |s: &Scene<'_, D>| s.advise(0..2, Advice::Remove);
        scene(world, &handle, "pp", "1p").refuse(remove, CallError::Denied).after("pp", "1p");
        let shared = world.scene("", "").call(|s| s.space.mmap(&request(&handle, 0..2, READ | SHARED)));
        shared.refuse(remove, CallError::Denied);
        let locked = CallError::Invalid("the pages are locked");
        scene(world, &handle, "pp", "1p")
            .also(|s| s.lock(0..2, PageLock::Lock).expect("mapped"))
            .refuse(remove, locked);
        // Nothing is in memory but what was touched, and there is nothing to write back.
        let scene = scene(world, &handle, "pppp", "1p.!");
        let mut seen = Vec::new();
        let mut tell = |is_in_memory| {
            seen.push(is_in_memory);
            ControlFlow::Continue(())
        };
        scene.space.mincore(AddressRange::new(VirtAddr::new(at(0)), 4 * PAGE), &mut tell).expect("mapped");
        assert_eq!(seen, [true, true, false, false]);
        assert_eq!(scene.space.msync(AddressRange::new(VirtAddr::new(at(0)), 4 * PAGE), SyncFlags::SYNC), Ok(()));
    });
});

for_each_design!(the_list_names_the_file, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        let scene = scene(world, &handle, ".pp", "");
        let list = scene.space.list().to_string();
        assert!(list.contains("rw-p 00001000 00:00 0"), "{list}");
        assert_eq!(list.lines().next().and_then(|line| line.find("anon_inode:[refpage]")), Some(73), "{list}");
    });
});

for_each_design!(only_areas_of_one_page_and_continuing_offsets_join, D, {
    with_world::<D>(|world| {
        let (one, other) = (handle(world), handle(world));
        let clone = one.clone();
        let at_offset = |handle, page, nr_pages, offset| MapRequest {
            backing: Backing::Reference(handle, offset * PAGE),
            ..request(handle, page..page + nr_pages, RW)
        };
        let scene = || scene(world, &one, "pp", "");
        scene().call(|s| s.space.mmap(&at_offset(&one, 2, 2, 2))).after("pppp", "");
        scene().call(|s| s.space.mmap(&at_offset(&one, 2, 2, 0))).after("pp|pp", "");
        scene().call(|s| s.space.mmap(&at_offset(&other, 2, 2, 2))).after("pp|pp", "");
        scene().call(|s| s.space.mmap(&at_offset(&clone, 2, 2, 2))).after("pppp", "");
        scene().call(|s| s.mmap(2..4, 'w')).after("ppww", "");
        // Two neighbours of different pages stay apart when they could have been one, and each has its own page.
        let both = scene().call(|s| s.space.mmap(&at_offset(&other, 2, 2, 2)));
        assert_eq!((both.load(1), both.load(2)), (PATTERN, PATTERN));
        both.call(|s| s.protect(0..4, READ)).call(|s| s.protect(0..4, RW)).after("pp|pp", ".pp");
        // Patterns join where anonymous memory does.
        let pattern = |page, byte| MapRequest {
            backing: Backing::Pattern(Pattern::Byte(byte)),
            ..request(&one, page..page + 2, RW)
        };
        let patterns = || world.scene("", "").call(|s| s.space.mmap(&pattern(0, 1)));
        patterns().call(|s| s.space.mmap(&pattern(2, 1))).after("wwww", "");
        patterns().call(|s| s.space.mmap(&pattern(2, 2))).after("ww|ww", "");
        patterns().call(|s| s.mmap(2..4, 'w')).after("ww|ww", "");
    });
});

for_each_design!(parts_are_unmapped_moved_and_protected, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        scene(world, &handle, "pppp", "1p3p").call(|s| s.munmap(1..3)).after("p..p", "1..p");
        scene(world, &handle, "pppp", "1p3p").call(|s| s.munmap(0..4)).after("", "").counts([0; 5]);
        let scene = || scene(world, &handle, "pppp", "1p.p");
        let read = scene().call(|s| s.protect(1..3, READ)).after("pqqp", "1p.p");
        assert_eq!(read.store(1, 1).map(drop), Err(AccessError::Forbidden { address: VirtAddr::new(at(1)) }));
        assert_eq!((read.load(1), read.load(2)), (PATTERN, PATTERN));
        read.call(|s| s.protect(1..3, RW)).after("pppp", "1ppp");
        scene().call(|s| s.protect(0..4, AreaFlags::empty())).call(|s| s.protect(0..4, RW)).after("pppp", "1p.p");
        // As a file's memory, a part without rights stays accounted for: it joins one that was stored to.
        let parted = self::scene(world, &handle, "pppp", "").call(|s| s.protect(1..4, AreaFlags::empty()));
        parted.put(0, 5);
        parted.call(|s| s.protect(0..1, AreaFlags::empty())).after("qqqq", "5");
        let moved = scene().call(|s| s.move_to(0..4, 6)).after("......pppp", "......1p.p");
        assert_eq!(moved.load(8), PATTERN);
        moved.put(7, 4);
        moved.after("......pppp", "......14pp");
        // The source that stays is untouched memory of the same page.
        let kept = scene().call(|s| s.empty_to(0..4, 6)).after("pppp..pppp", "......1p.p");
        (0..4).for_each(|page| assert_eq!(kept.load(page), PATTERN));
        // It grows with more of the pattern, and keeps the file's offset: back in its place it is one area again.
        let grown = scene().call(|s| s.remap(0..4, 6, RemapPlacement::InPlace)).after("p(6)", "1p.p");
        assert_eq!(grown.load(5), PATTERN);
        scene().call(|s| s.move_to(1..3, 8)).call(|s| s.move_to(8..10, 1)).after("pppp", "1p.p");
        // Mapped over.
        let over = scene().call(|s| s.mmap(1..3, 'w')).after("pwwp", "1..p");
        assert_eq!(over.load(1), 0);
    });
});

for_each_design!(children_show_the_same_page, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        let parent = scene(world, &handle, "pppp", "1p.!");
        let child = parent.fork().after("pppp", "1p.!");
        assert_eq!((child.load(0), child.load(1), child.load(2)), (1, PATTERN, PATTERN));
        child.put(1, 5);
        child.put(0, 6);
        let child = child.after("pppp", "65p!");
        let parent = parent.after("pppp", "1p.!");
        // The page outlives the handle, and the parent.
        drop((handle, parent));
        let grandchild = child.call(|s| s.munmap(0..2)).fork();
        assert_eq!(grandchild.load(2), PATTERN);
        // Nothing of it was touched: faults find the page by the area.
        let handle = self::handle(world);
        let fresh = scene(world, &handle, "pp", "pp").fork().after("pp", "");
        assert_eq!(fresh.load(1), PATTERN);
        // By our extension, a child may find the pattern.
        let limits = Limits { reference_extensions: true, ..Limits::default() };
        let wiped = scene_under(world, &handle, limits, "pp", "1p").call(|s| s.advise(0..2, Advice::WipeOnFork)).fork();
        assert_eq!(wiped.space.resident_pages(), 0);
        assert_eq!((wiped.load(0), wiped.load(1)), (PATTERN, PATTERN));
    });
});

for_each_design!(the_page_goes_with_the_last_that_refers_to_it, D, {
    with_world::<D>(|world| {
        let nr_references = || {
            let mut nr = 0;
            world.vm.for_each_reference(|_| nr += 1);
            nr
        };
        let one = handle(world);
        let scene = scene(world, &one, "pp", "1p");
        drop(one);
        assert_eq!((nr_references(), scene.load(1)), (1, PATTERN));
        let scene = scene.call(|s| s.munmap(0..1));
        assert_eq!(nr_references(), 1);
        drop(scene.call(|s| s.munmap(1..2)).after("", ""));
        world.vm.flush();
        assert_eq!(nr_references(), 0);
        // A handle that is dropped on a thread without a CPU.
        let two = handle(world);
        std::thread::scope(|scope| scope.spawn(move || drop(two)).join().expect("no panic"));
        world.vm.flush();
        assert_eq!(nr_references(), 0);
    });
});

for_each_design!(faults_are_speculative_where_those_of_plain_memory_are, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        let scene = scene(world, &handle, "pppp", "1");
        let _second = Guest::new(&scene.space);
        let events = world.vm.events();
        let before = [Event::Spf, Event::SpfVmaNotsup].map(|event| events.total(event));
        scene.load(1);
        scene.put(1, 2);
        scene.put(2, 3);
        let after = [Event::Spf, Event::SpfVmaNotsup].map(|event| events.total(event));
        let nr_speculative = if D::NAME == "mmap-sem" { 0 } else { 3 };
        assert_eq!([after[0] - before[0], after[1] - before[1]], [nr_speculative, 0]);
    });
});

/// Attempts, and why they were given up.
const ATTEMPTS: [Event; 8] = [
    Event::Spf,
    Event::SpfFailed,
    Event::SpfVmaChanged,
    Event::SpfVmaNoanon,
    Event::SpfVmaAccess,
    Event::SpfPmdChanged,
    Event::SpfPteLock,
    Event::SpfVmaNotsup,
];

for_each_design!(faults_give_up_where_those_of_plain_memory_do_and_nowhere_else, D, {
    with_world::<D>(|world| {
        let handle = handle(world);
        let counts = || ATTEMPTS.map(|event| world.vm.events().total(event));
        let since = |before: [u64; 8]| std::array::from_fn::<u64, 8, _>(|place| counts()[place] - before[place]);
        // Two page tables' worth, none of which is there; and what follows once they are.
        let run = |backing| {
            let scene = world.scene("", "");
            let _second = Guest::new(&scene.space);
            scene.space.mmap(&MapRequest { backing, ..anonymous(Some(at(0)), 600 * PAGE) }).expect("room");
            let before = counts();
            [0, 599].into_iter().for_each(|page| assert!(scene.load(page) < u64::MAX));
            let (tables, before) = (since(before), counts());
            [1, 0, 2].into_iter().for_each(|page| scene.put(page, 1));
            scene.protect(4..6, READ).expect("mapped");
            [4, 5].into_iter().for_each(|page| assert!(scene.load(page) < u64::MAX));
            scene.store(4, 1).map(drop).expect_err("read-only");
            scene.protect(4..6, RW).expect("mapped");
            [4, 597].into_iter().for_each(|page| scene.put(page, 1));
            scene.load(598);
            (tables, since(before))
        };
        let (tables, plain) = run(Backing::Anonymous);
        assert_eq!(run(Backing::Reference(&handle, 0)), (tables, plain));
        let notsup = ATTEMPTS.len() - 1;
        assert_eq!(plain[notsup], 0, "once there are tables");
        let (pattern_tables, pattern) = run(Backing::Pattern(Pattern::Byte(1)));
        assert!(pattern_tables[notsup] <= tables[notsup] && pattern[notsup] == 0);
    });
});

for_each_design!(a_page_of_one_word_is_filled_and_one_that_was_written_is_found, D, {
    with_world::<D>(|world| {
        let content: [u64; 512] = std::array::from_fn(|place| place as u64);
        let (uniform, arbitrary) = (handle(world), world.vm.create_reference(&content).expect("room"));
        for (handle, untouched) in [(&uniform, PATTERN), (&arbitrary, 99)] {
            let scene = world.scene("", "").call(|s| s.space.mmap(&request(handle, 0..2, RW)));
            scene.load(0);
            // SAFETY: the page is the handle's, and nobody else runs.
            let word = unsafe { world.vm.memory().frame(handle.page()).cast::<u64>().add(7) };
            // SAFETY: as above; this is what must never happen.
            let held = unsafe { word.replace(99) };
            assert!(!handle.is_intact(world.vm.memory()));
            // SAFETY: nobody else runs.
            let broken = unsafe { check::invariants(&world.vm) }.expect_err("the page was written");
            assert_eq!(broken.invariant, 3, "{broken}");
            assert!(broken.to_string().contains("does not hold what it was made with"), "{broken}");
            // What is filled does not look at the page, neither after a load nor without one.
            for page in 0..2 {
                scene.guest.store(VirtAddr::new(at(page)), 5).expect("mapped");
                assert_eq!(
                    scene.guest.load(VirtAddr::new(at(page) + 7 * 8)).expect("mapped").0,
                    untouched,
                    "page {page}"
                );
            }
            // SAFETY: as above.
            unsafe { word.write(held) };
            world.check("the page is what it was");
        }
    });
});

/// A content page at page 0, which holds its words' numbers.
fn content<'vm, D: Tested>(world: &'vm World<D>) -> Scene<'vm, D> {
    let scene = world.scene("ww.r", "");
    let words: Vec<u64> = (0..512).collect();
    scene.guest.store_words(VirtAddr::new(at(0)), &words).expect("mapped");
    scene
}

fn words_of<D: Tested>(space: &SpaceRef<'_, Native, D>, handle: &ReferenceHandle<'_, Native>) -> Vec<u64> {
    space.mmap(&request(handle, 100..101, READ)).expect("room");
    let mut words = vec![0; 512];
    Guest::new(space).load_words(VirtAddr::new(at(100)), &mut words).expect("mapped");
    words
}

for_each_design!(the_call_as_posted, D, {
    with_world::<D>(|world| {
        let scene = content(world);
        let handle = scene.space.refpage_create(at(0), 0).expect("a page to read");
        // It is a copy, taken now.
        scene.put(0, 77);
        assert_eq!(words_of(&scene.space, &handle), (0..512).collect::<Vec<u64>>());
        let refused = |content, flags| scene.space.refpage_create(content, flags).map(drop);
        assert_eq!(refused(at(0), 1), Err(CallError::Invalid("flags are 0")));
        let bad = |address| Err(CallError::BadBuffer { address });
        assert_eq!(refused(at(0) + 8, 0), bad(VirtAddr::new(at(0) + 8)));
        assert_eq!(refused(at(2), 0), bad(VirtAddr::new(at(2))));
        assert_eq!(refused(u64::MAX - 4095, 0), bad(VirtAddr::new(u64::MAX - 4095)));
        // Untouched memory is zeros, and a reference page can be made of another one.
        assert_eq!(words_of(&scene.space, &scene.space.refpage_create(at(3), 0).expect("zeros")), [0; 512]);
        let copy = scene.space.refpage_create(at(100), 0).expect("mapped");
        assert_eq!(words_of(&scene.space, &copy), [0; 512]);
    });
});

for_each_design!(the_call_of_version_5, D, {
    with_world::<D>(|world| {
        let scene = content(world);
        scene.guest.store(VirtAddr::new(at(1)), 0x8877_6655_4433_2211).expect("mapped");
        let made = |content: u64, size| {
            let handle = scene.space.refpage_create_sized(content, size, 0).expect("bytes to read");
            words_of(&scene.space, &handle)
        };
        assert_eq!(made(at(1) + 2, 1), [0x3333_3333_3333_3333; 512]);
        assert_eq!(made(at(1) + 2, 2), [0x4433_4433_4433_4433; 512]);
        assert_eq!(made(at(1) + 4, 4), [0x8877_6655_8877_6655; 512]);
        assert_eq!(made(at(1), 8), [0x8877_6655_4433_2211; 512]);
        assert_eq!(made(at(0) + 32, 32)[..8], [4, 5, 6, 7, 4, 5, 6, 7]);
        assert_eq!(made(at(0) + 2048, 2048)[255..257], [511, 256]);
        assert_eq!(made(at(0), 4096), (0..512).collect::<Vec<u64>>());
        let refused = |content, size, flags| scene.space.refpage_create_sized(content, size, flags).map(drop);
        let shape = "the size is a power of two up to a page's, and the address a multiple of it";
        assert_eq!(refused(at(0), 8, 1), Err(CallError::Invalid("flags are 0")));
        for (content, size) in [(at(0), 0), (at(0), 3), (at(0), 8192), (at(0) + 4, 8), (at(0) + 8, 4096)] {
            assert_eq!(refused(content, size, 0), Err(CallError::Invalid(shape)));
        }
        assert_eq!(refused(at(2) + 8, 8, 0), Err(CallError::BadBuffer { address: VirtAddr::new(at(2)) }));
    });
});

for_each_design!(a_pattern_has_no_page_before_the_first_touch, D, {
    with_world::<D>(|world| {
        let pattern = |pattern, flags: AreaFlags| MapRequest {
            protection: flags.protection(),
            options: flags.options(),
            backing: Backing::Pattern(pattern),
            ..anonymous(Some(at(0)), 4 * PAGE)
        };
        for kind in [Pattern::Byte(0xaa), Pattern::Half(0xaaaa), Pattern::Word(0xaaaa_aaaa), Pattern::Double(PATTERN)] {
            let scene = world.scene("", "").call(|s| s.space.mmap(&pattern(kind, RW)));
            assert_eq!(scene.load(0), PATTERN);
            scene.put(1, 5);
            assert_eq!(scene.guest.load(VirtAddr::new(at(1) + 8)).expect("mapped").0, PATTERN);
            // A load makes a page as a store does, and the store that follows takes no fault.
            assert_eq!(scene.store(0, 4).map(|taken| taken.count), Ok(0));
            let scene = scene.after("wwww", "45").counts([1, 4, 4, 0, 2]);
            let child = scene.fork();
            assert_eq!((child.load(0), child.load(2)), (4, PATTERN));
            let scene = scene.call(|s| s.advise(0..2, Advice::DontNeed)).after("wwww", "");
            assert_eq!(scene.load(1), PATTERN);
            // As anonymous memory, and unlike a file.
            let wiped = scene.call(|s| s.advise(0..4, Advice::WipeOnFork)).fork();
            assert_eq!(wiped.load(1), PATTERN);
        }
        // Read-only memory has a page of its own, too, and no store reaches it.
        let scene = world.scene("", "").call(|s| s.space.mmap(&pattern(Pattern::Byte(0xaa), READ)));
        assert_eq!(scene.load(3), PATTERN);
        let scene = scene.after("rrrr", "...c");
        assert_eq!(scene.store(3, 1).map(drop), Err(AccessError::Forbidden { address: VirtAddr::new(at(3)) }));
        let scene = scene.call(|s| s.protect(0..4, RW));
        scene.put(3, 1);
        scene.after("wwww", "...1");
    });
});
