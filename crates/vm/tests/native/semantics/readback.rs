//! State that a call leaves behind and nothing else shows: resident size, locks, accessed and dirty bits, what
//! MADV_FREE leaves.

use super::with_world;
use crate::drawing::{Scene, at};
use crate::world::{RW, Tested, anonymous};
use faultless_platform::native::Native;
use faultless_vm::{
    Advice, AreaFlags, CallError, EntryFlags, Event, Guest, LockAll, MapOptions, MapRequest, PAGE, PageLock, PageRange,
    PinKind, Placement, Populate, VirtAddr,
};

const READ: AreaFlags = AreaFlags::READ;
const USED: EntryFlags = EntryFlags::ACCESSED;
const CHANGED: EntryFlags = EntryFlags::ACCESSED.union(EntryFlags::DIRTY);

/// Returns a page's accessed and dirty bits.
fn bits<D: Tested>(scene: &Scene<'_, D>, page: u64) -> EntryFlags {
    scene.space.entry_at(VirtAddr::new(at(page))).flags() & CHANGED
}

for_each_design!(the_resident_size_follows_every_page, D, {
    with_world::<D>(|world| {
        let scene = world
            .scene("wwww.rr", "12z")
            .counts([2, 6, 4, 0, 2])
            .call(|s| s.advise(0..1, Advice::DontNeed))
            .counts([2, 6, 4, 0, 1])
            .call(|s| s.advise(1..2, Advice::GuardInstall))
            .after("wwww.rr", ".!z")
            .counts([2, 6, 4, 0, 0]);
        scene.store(2, 3).expect("a page of zeros is replaced");
        scene.store(3, 4).expect("mapped");
        let scene = scene.counts([2, 6, 4, 0, 2]).call(|s| s.move_to(3..4, 10)).after("www..rr...w", ".!3.......4");
        let child = scene.fork().counts([3, 6, 4, 0, 2]);
        child.store(2, 5).expect("a copy is a page for a page");
        let child = child.counts([3, 6, 4, 0, 2]).call(|s| s.munmap(0..3)).counts([2, 3, 1, 0, 1]);
        child.after(".....rr...w", "..........4");
        let scene = scene.counts([3, 6, 4, 0, 2]).call(|s| s.mmap(2..3, 'w')).counts([3, 6, 4, 0, 1]);
        assert_eq!(scene.space.peak_resident_pages(), 2);
        scene.after("www..rr...w", ".!........4");
    });
});

for_each_design!(the_peak_of_the_resident_size_stays, D, {
    with_world::<D>(|world| {
        let scene = world.scene("w(8)", "12345");
        let peak = |scene: &Scene<'_, D>, expected| assert_eq!(scene.space.peak_resident_pages(), expected);
        let scene = scene.call(|s| s.munmap(0..2));
        peak(&scene, 5);
        scene.store(5, 6).expect("mapped");
        peak(&scene, 5);
        (6..8).for_each(|page| scene.put(page, 7));
        let scene = scene.counts([1, 6, 6, 0, 6]);
        peak(&scene, 6);
        // A peak that nobody asked for while it lasted.
        let child = scene.fork();
        child.mmap(20..24, 'w').expect("room");
        (20..24).for_each(|page| child.put(page, 1));
        let child = child.call(|s| s.advise(20..24, Advice::GuardInstall)).counts([2, 10, 10, 0, 6]);
        peak(&child, 10);
    });
});

for_each_design!(locked_bytes_follow_every_area, D, {
    with_world::<D>(|world| {
        let scene = world
            .scene("w(6)", "1")
            .call(|s| s.lock(1..5, PageLock::Lock))
            .after("wllllw", "10000")
            .counts([3, 6, 6, 4, 5])
            .call(|s| s.munmap(2..3))
            .counts([4, 5, 5, 3, 4])
            .call(|s| s.lock(3..4, PageLock::Unlock))
            .after("wl.wlw", "10.00")
            .counts([5, 5, 5, 2, 4])
            .call(|s| s.protect(4..5, READ))
            .after("wl.wmw", "10.00")
            .counts([5, 5, 4, 2, 4])
            .call(|s| s.move_to(4..5, 9))
            .after("wl.w.w...m", "10.0.....0")
            .counts([5, 5, 4, 2, 4]);
        scene.fork().after("w|w.w.w...r", "10.0.....0").counts([5, 5, 4, 0, 4]);
        scene.call(|s| s.lock(0..1, PageLock::Lock)).after("ll.w.w...m", "10.0.....0").counts([4, 5, 4, 3, 4]);
    });
});

for_each_design!(a_lock_on_touch_makes_no_page_and_leaves_with_a_fork, D, {
    with_world::<D>(|world| {
        let scene = world.scene("wwww", ".2").call(|s| s.lock(0..3, PageLock::LockOnFault)).after("LLLw", ".2");
        scene.store(2, 3).expect("mapped");
        let child = scene.fork().after("www|w", ".23").counts([2, 4, 4, 0, 2]);
        let unlocked = |s: &Scene<'_, D>| s.advise(0..3, Advice::DontNeed);
        child.call(unlocked).after("www|w", "");
        let locked = CallError::Invalid("the pages are locked");
        let scene = scene.refuse(unlocked, locked).after("LLLw", ".23");
        // Locking in full makes what is missing; locking on touch again only says so.
        let scene = scene.call(|s| s.lock(0..2, PageLock::Lock)).after("llLw", "023").counts([3, 4, 4, 3, 3]);
        scene.call(|s| s.lock(1..2, PageLock::LockOnFault)).after("lLLw", "023").counts([3, 4, 4, 3, 3]);
    });
});

for_each_design!(what_is_locked_in_future_is_not_so_for_children, D, {
    with_world::<D>(|world| {
        let scene = world.scene("w", "").call(|s| s.lock_all(LockAll::FUTURE)).after("w", "");
        let scene = scene.call(|s| s.mmap(2..4, 'w')).after("w.ll", "..00");
        let child = scene.fork();
        child.call(|s| s.mmap(5..6, 'w')).after("w.ww.w", "..00");
        let touched = LockAll::CURRENT | LockAll::FUTURE | LockAll::ON_FAULT;
        let scene = scene.call(|s| s.lock_all(touched)).call(|s| s.mmap(5..6, 'w')).after("L.LL.L", "..00");
        scene.space.munlock_all();
        scene.after("w.ww.w", "..00").call(|s| s.mmap(7..8, 'w')).after("w.ww.w.w", "..00");
    });
});

// As Linux, which tells by what was asked for whether pages are made.
for_each_design!(what_may_be_dropped_is_made_where_all_is_locked_and_stays_unlocked, D, {
    with_world::<D>(|world| {
        let map = |s: &Scene<'_, D>, page| {
            let options = MapOptions::DROPPABLE;
            s.space.mmap(&MapRequest { options, ..anonymous(Some(at(page)), 2 * PAGE) })
        };
        let scene = world.scene("", "").call(|s| map(s, 0)).counts([1, 2, 2, 0, 0]);
        let scene = scene.call(|s| s.lock_all(LockAll::FUTURE)).call(|s| map(s, 4)).counts([2, 4, 4, 0, 2]);
        // Not even the first touch is waited for.
        let touched = LockAll::FUTURE | LockAll::ON_FAULT;
        let scene = scene.call(|s| s.lock_all(touched)).call(|s| map(s, 8)).counts([3, 6, 6, 0, 4]);
        scene.call(|s| s.lock(0..2, PageLock::Lock)).counts([3, 6, 6, 0, 6]);
    });
});

// As Linux, which takes the lock off such an area when it has looked for neighbours to join: none of them is locked.
for_each_design!(what_may_be_dropped_is_joined_with_nothing_while_all_is_locked, D, {
    with_world::<D>(|world| {
        let map = |s: &Scene<'_, D>, page| {
            let options = MapOptions::DROPPABLE;
            s.space.mmap(&MapRequest { options, ..anonymous(Some(at(page)), 2 * PAGE) })
        };
        let scene = world.scene("", "").call(|s| map(s, 0)).call(|s| map(s, 2)).counts([1, 4, 4, 0, 0]);
        let scene = scene.call(|s| s.lock_all(LockAll::FUTURE)).call(|s| map(s, 4)).counts([2, 6, 6, 0, 2]);
        let scene = scene.call(|s| map(s, 6)).counts([3, 8, 8, 0, 4]);
        scene.space.munlock_all();
        scene.call(|s| map(s, 8)).counts([3, 10, 10, 0, 4]);
    });
});

// As Linux, for which such a page is present.
for_each_design!(pages_without_rights_are_given_up_too, D, {
    with_world::<D>(|world| {
        let scene = world.scene("ww", "12").call(|s| s.protect(0..2, AreaFlags::empty()));
        let scene = scene.call(|s| s.advise(0..1, Advice::Free)).call(|s| s.advise(0..2, Advice::PageOut));
        assert_eq!(scene.space.resident_pages(), 1);
        scene.call(|s| s.protect(0..2, RW)).after("ww", ".2");
    });
});

// As Linux 6.18: dirty or not, whatever the rights; what is pinned stays, and the page of zeros is nobody's.
for_each_design!(paging_out_drops_what_may_be_dropped, D, {
    with_world::<D>(|world| {
        let options = MapOptions::DROPPABLE;
        let request = MapRequest { options, ..anonymous(Some(at(0)), 4 * PAGE) };
        let scene = world.scene("", "").call(|s| s.space.mmap(&request)).counts([1, 4, 4, 0, 0]);
        (0..3).for_each(|page| scene.put(page, page + 1));
        assert_eq!(scene.load(3), 0);
        let pin = scene.space.pin(VirtAddr::new(at(1)), PinKind::Write).expect("mapped");
        let scene = scene.call(|s| s.protect(2..3, READ)).call(|s| s.advise(0..4, Advice::PageOut));
        assert_eq!([0, 1, 2, 3].map(|page| scene.load(page)), [0, 2, 0, 0]);
        drop(pin);
        let scene = scene.call(|s| s.advise(0..4, Advice::PageOut));
        assert_eq!((scene.load(1), scene.space.resident_pages()), (0, 0));
        // Memory that is not given up stays.
        world.scene("w", "1").call(|s| s.advise(0..1, Advice::PageOut)).after("w", "1");
    });
});

for_each_design!(locking_makes_the_pages_that_rights_allow, D, {
    with_world::<D>(|world| {
        let unmapped = |page| CallError::Unmapped { address: VirtAddr::new(at(page)) };
        world.scene("wrs", "").call(|s| s.lock(0..3, PageLock::Lock)).counts([3, 3, 1, 3, 2]);
        // Across a hole what is before it is locked, and has no pages yet.
        world.scene("ww.w", "").refuse(|s| s.lock(0..4, PageLock::Lock), unmapped(2)).after("ll.w", "");
        // Where nothing may be done no page can be had.
        world.scene("wnw", "").refuse(|s| s.lock(0..3, PageLock::Lock), unmapped(0)).counts([3, 3, 2, 3, 1]);
        // A locked area that becomes writable gets its pages at once.
        let scene = world.scene("rr", "").call(|s| s.lock(0..2, PageLock::Lock)).after("mm", "zz");
        scene.call(|s| s.protect(0..1, RW)).after("lm", "0z");
    });
});

for_each_design!(accesses_set_their_bits_and_calls_keep_them, D, {
    with_world::<D>(|world| {
        let scene = world.scene("w(6)", "12");
        assert_eq!((bits(&scene, 0), bits(&scene, 2)), (CHANGED, EntryFlags::empty()));
        scene.load(2);
        assert_eq!(bits(&scene, 2), USED, "the page of zeros");
        let clean = |scene: &Scene<'_, D>| {
            scene.advise(0..1, Advice::Free).expect("mapped");
            assert_eq!(bits(scene, 0), EntryFlags::empty(), "given up");
        };
        clean(&scene);
        scene.load(0);
        assert_eq!(bits(&scene, 0), USED, "the walk sets it anew: the TLB was flushed");
        scene.store(0, 3).expect("mapped");
        assert_eq!(bits(&scene, 0), CHANGED);
        // Rights, moves and forks keep them.
        let scene = scene.call(|s| s.protect(0..2, READ)).call(|s| s.protect(0..1, RW));
        assert_eq!((bits(&scene, 0), bits(&scene, 1)), (CHANGED, CHANGED));
        let scene = scene.call(|s| s.move_to(0..1, 10));
        assert_eq!((bits(&scene, 0), bits(&scene, 10)), (EntryFlags::empty(), CHANGED));
        let child = scene.fork();
        assert_eq!((bits(&scene, 10), bits(&child, 10)), (CHANGED, CHANGED));
        // In place, and as a copy.
        drop(child);
        scene.advise(10..11, Advice::Free).expect("mapped");
        scene.store(10, 4).expect("mapped");
        assert_eq!(bits(&scene, 10), CHANGED);
        let child = scene.fork();
        scene.advise(10..11, Advice::Free).expect("mapped");
        scene.store(10, 5).expect("mapped");
        assert_eq!((bits(&scene, 10), child.load(10)), (CHANGED, 4));
    });
});

// As Linux, whose `follow_page_pte` makes a page dirty that is asked for to be written.
for_each_design!(a_page_given_up_and_made_for_stores_stays, D, {
    with_world::<D>(|world| {
        let scene = world.scene("w(4)", "1234").call(|s| s.advise(0..4, Advice::Free));
        let scene = scene.call(|s| s.lock(0..1, PageLock::Lock)).call(|s| s.lock(0..1, PageLock::Unlock));
        let scene =
            scene.call(|s| s.advise(1..2, Advice::PopulateWrite)).call(|s| s.advise(2..3, Advice::PopulateRead));
        scene.call(|s| s.advise(0..4, Advice::PageOut)).after("w(4)", "12..");
    });
});

for_each_design!(a_page_given_up_stays_until_it_is_dropped_or_stored_to, D, {
    with_world::<D>(|world| {
        let scene = world
            .scene("w(5)", "1234")
            .call(|s| s.advise(0..3, Advice::Free))
            .after("w(5)", "1234")
            .counts([1, 5, 5, 0, 4]);
        assert_eq!(scene.load(1), 2, "it can be read meanwhile");
        scene.store(2, 5).expect("mapped");
        let out = |s: &Scene<'_, D>| s.advise(0..5, Advice::PageOut);
        let scene = scene.call(out).after("w(5)", "..54").counts([1, 5, 5, 0, 2]);
        assert_eq!((scene.load(0), scene.load(1), scene.load(2)), (0, 0, 5));
        // Cold pages are no pages given up, and neither are those of a child that stored.
        let scene = scene.call(|s| s.advise(0..5, Advice::Cold)).call(out).after("w(5)", "zz54");
        let child = scene.fork();
        let scene = scene.call(|s| s.advise(2..3, Advice::Free)).call(out).after("w(5)", "zz54");
        child.store(2, 6).expect("a copy of its own");
        child.after("w(5)", "zz64");
        // Now nobody else has the parent's.
        scene.call(out).after("w(5)", "zz.4");
    });
});

for_each_design!(giving_up_is_for_private_pages_that_are_not_locked, D, {
    with_world::<D>(|world| {
        let locked = CallError::Invalid("the pages are locked");
        let private = CallError::Invalid("MADV_FREE is for private anonymous memory");
        let free = |s: &Scene<'_, D>| s.advise(0..2, Advice::Free);
        let out = |s: &Scene<'_, D>| s.advise(0..2, Advice::PageOut);
        world.scene("ll", "12").refuse(free, locked).refuse(out, locked).after("ll", "12");
        world.scene("ss", "12").refuse(free, private).call(out).after("ss", "12");
        // Up to the area that refuses.
        world.scene("wl", "12").refuse(free, locked).refuse(out, locked).after("wl", ".2");
        // Rights do not matter: what was given up goes.
        world.scene("rr", "12").call(free).call(out).after("rr", "");
        let unmapped = CallError::Unmapped { address: VirtAddr::new(at(1)) };
        world
            .scene("w.w", "1.3")
            .refuse(|s| s.advise(0..3, Advice::Free), unmapped)
            .call(|s| {
                s.advise(0..1, Advice::PageOut)?;
                s.advise(2..3, Advice::PageOut)
            })
            .after("w.w", "");
    });
});

for_each_design!(populating_makes_what_is_missing, D, {
    with_world::<D>(|world| {
        let invalid = CallError::Invalid("the area's rights forbid the access");
        world
            .scene("wwwr", ".2z")
            .call(|s| s.advise(0..4, Advice::PopulateRead))
            .after("wwwr", "z2zz")
            .refuse(|s| s.advise(0..4, Advice::PopulateWrite), invalid)
            .after("wwwr", "020z")
            .counts([2, 4, 3, 0, 3]);
        let hole = CallError::Unmapped { address: VirtAddr::new(at(1)) };
        world.scene("w.w", "").refuse(|s| s.advise(0..3, Advice::PopulateWrite), hole).after("w.w", "0");
        let scene = world.scene("", "");
        let request = faultless_vm::MapRequest {
            placement: Placement::Fixed(VirtAddr::new(at(0))),
            len_bytes: 3 * PAGE,
            protection: READ.protection(),
            options: READ.options(),
            backing: faultless_vm::Backing::Anonymous,
            populate: Populate::Now,
        };
        scene.call(|s| s.space.mmap(&request)).after("rrr", "zzz").counts([1, 3, 0, 0, 0]);
    });
});

for_each_design!(faults_are_counted_as_what_they_were, D, {
    with_world::<D>(|world| {
        let total = |event| world.vm.events().total(event);
        let scene = world.scene("ww", "1");
        let before = (total(Event::Faults), total(Event::Cow), total(Event::Reuse), total(Event::Signals));
        let child = scene.fork();
        scene.store(0, 2).expect("a copy");
        child.store(0, 3).expect("the last holder's own");
        assert!(Guest::new(&scene.space).fetch(VirtAddr::new(at(0))).is_err(), "forbidden");
        assert!(scene.guest.load(VirtAddr::new(at(9))).is_err(), "a hole");
        let after = (total(Event::Faults), total(Event::Cow), total(Event::Reuse), total(Event::Signals));
        assert_eq!(after, (before.0 + 4, before.1 + 1, before.2 + 1, before.3 + 2));
    });
});

/// Returns the pages that were stored to since the last look.
fn written<D: Tested>(scene: &Scene<'_, D>) -> Vec<u64> {
    let mut pages = Vec::new();
    let all = PageRange::between(VirtAddr::new(at(0)), VirtAddr::new(at(40))).expect("a range");
    scene.space.collect_written(all, &mut |address| pages.push((address.get() - at(0)) / PAGE));
    pages
}

for_each_design!(every_store_since_the_last_look_is_reported, D, {
    with_world::<D>(|world| {
        let scene = world.scene("wwww.rr", "12z");
        assert_eq!(written(&scene), [0, 1]);
        assert_eq!(written(&scene), []);
        scene.store(1, 3).expect("mapped");
        scene.store(2, 4).expect("a page of zeros is replaced");
        assert_eq!(written(&scene), [1, 2]);
        assert_eq!(scene.load(0), 1);
        assert_eq!(written(&scene), [], "a load is no store");
        // Map calls that take the right to write, or move the page, forget nothing.
        scene.store(0, 5).expect("mapped");
        let scene = scene.call(|s| s.protect(0..1, READ));
        assert_eq!(written(&scene), [0]);
        let scene = scene.call(|s| s.protect(0..1, READ | AreaFlags::WRITE));
        assert_eq!(scene.store(0, 5).map(|taken| taken.count), Ok(0), "its own page is writable at once");
        assert_eq!(written(&scene), [0], "a store without a fault");
        scene.store(1, 6).expect("mapped");
        let scene = scene.call(|s| s.move_to(1..2, 20));
        assert_eq!(written(&scene), [20]);
        scene.store(2, 7).expect("mapped");
        let child = scene.fork();
        assert_eq!((written(&scene), written(&child)), (vec![2], vec![2]), "of both, since neither looked");
        child.store(2, 8).expect("a copy");
        assert_eq!((written(&scene), written(&child)), (vec![], vec![2]));
        scene.store(2, 9).expect("its own again");
        assert_eq!((written(&scene), written(&child)), (vec![2], vec![]));
    });
});

// Whoever gives a page up lets it be dropped, and not the store be forgotten: until it is dropped, loads find it.
for_each_design!(a_store_to_a_page_that_was_given_up_since_is_reported, D, {
    with_world::<D>(|world| {
        let scene = world.scene("www", "12");
        assert_eq!(written(&scene), [0, 1]);
        scene.store(1, 3).expect("mapped");
        let scene = scene.call(|s| s.advise(0..3, Advice::Free));
        assert_eq!((written(&scene), scene.load(1)), (vec![1], 3));
        assert_eq!(written(&scene), []);
        scene.store(0, 4).expect("mapped");
        let scene = scene.call(|s| s.advise(0..3, Advice::PageOut)).after("www", "4");
        assert_eq!(written(&scene), [0], "reported is not stored to");
    });
});
