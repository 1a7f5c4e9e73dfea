//! Limits: hit exactly, one below, one above. Each comparison in `space::quota` and beside the calls has its test here.

use super::with_world;
use crate::drawing::{ORIGIN, Scene, at};
use crate::world::{RW, Tested};
use faultless_platform::native::Native;
use faultless_vm::{
    AddressRange, Advice, AreaFlags, CallError, Limits, LockAll, PAGE, PageLock, Placement, Privileges, RemapPlacement,
    USER_END, VirtAddr,
};

const READ: AreaFlags = AreaFlags::READ;

fn areas(max_map_count: u64) -> Limits {
    Limits { max_map_count, ..Limits::default() }
}

fn size(pages: u64) -> Limits {
    Limits { address_space_bytes: pages * PAGE, ..Limits::default() }
}

fn data(pages: u64) -> Limits {
    Limits { data_bytes: pages * PAGE, ..Limits::default() }
}

fn locks(pages: u64) -> Limits {
    Limits { lock_bytes: pages * PAGE, ..Limits::default() }
}

fn promises(pages: u64) -> Limits {
    Limits { commit_bytes: pages * PAGE, ..Limits::default() }
}

fn over(limits: Limits) -> CallError {
    CallError::OverLimit { limit_bytes: limits.address_space_bytes.min(limits.data_bytes) }
}

for_each_design!(mmap_exceeds_the_limit_of_areas_by_one_and_no_more, D, {
    with_world::<D>(|world| {
        let full = CallError::TooManyAreas { limit: 3 };
        world
            .limited(areas(3), "r.r.r", "")
            .call(|s| s.mmap(6..7, 'w'))
            .refuse(|s| s.mmap(8..9, 'w'), full)
            .refuse(|s| s.mmap(7..8, 'w'), full)
            .refuse(|s| s.mmap(0..1, 'w'), full)
            .after("r.r.r.w", "")
            .call(|s| s.munmap(0..1))
            .call(|s| s.mmap(7..8, 'w'))
            .after("..r.r.ww", "");
    });
});

for_each_design!(unmapping_the_middle_needs_room_for_an_area, D, {
    with_world::<D>(|world| {
        world.limited(areas(4), "www.w.w", "").call(|s| s.munmap(1..2)).after("w.w.w.w", "");
        world
            .limited(areas(4), "www.w.w.w", "123")
            .refuse(|s| s.munmap(1..2), CallError::TooManyAreas { limit: 4 })
            .after("www.w.w.w", "123")
            .call(|s| s.munmap(0..1))
            .call(|s| s.munmap(2..3))
            .after(".w..w.w.w", ".2");
    });
});

for_each_design!(changing_rights_needs_room_for_the_areas_that_it_cuts, D, {
    with_world::<D>(|world| {
        let full = CallError::TooManyAreas { limit: 4 };
        world.limited(areas(4), "www.w", "").call(|s| s.protect(1..2, READ)).after("wrw.w", "");
        // Room for one of the two cuts: the lower one is made, as on Linux.
        world
            .limited(areas(4), "www.w.w", "")
            .refuse(|s| s.protect(1..2, READ), full)
            .after("w|ww.w.w", "")
            .counts([4, 5, 5, 0, 0]);
        world.limited(areas(4), "www.w.w.w", "").refuse(|s| s.protect(1..2, READ), full).after("www.w.w.w", "");
        world.limited(areas(4), "ww.w.w", "").call(|s| s.protect(0..1, READ)).after("rw.w.w", "");
        world.limited(areas(4), "ww.w.w.w", "").refuse(|s| s.protect(0..1, READ), full).after("ww.w.w.w", "");
        world.limited(areas(4), "ww.w.w.w", "").call(|s| s.protect(0..2, READ)).after("rr.w.w.w", "");
        // What was cut and is joined again needs none.
        world.limited(areas(4), "rw.w.w", "").call(|s| s.protect(0..1, RW)).after("ww.w.w", "");
    });
});

for_each_design!(advice_that_cuts_asks_to_try_again, D, {
    with_world::<D>(|world| {
        let full = CallError::TooManyAreasNow { limit: 4 };
        world.limited(areas(4), "ww.w.w", "").call(|s| s.advise(0..1, Advice::DontFork)).after("dw.w.w", "");
        world
            .limited(areas(4), "ww.w.w.w", "")
            .refuse(|s| s.advise(0..1, Advice::DontFork), full)
            .after("ww.w.w.w", "");
        let locked = CallError::TooManyAreas { limit: 4 };
        world.limited(areas(4), "ww.w.w.w", "").refuse(|s| s.lock(0..1, PageLock::Lock), locked).after("ww.w.w.w", "");
        world.limited(areas(4), "ww.w.w.w", "").refuse(|s| s.seal(0..1), locked).after("ww.w.w.w", "");
    });
});

for_each_design!(a_move_stays_below_the_limit_of_areas, D, {
    with_world::<D>(|world| {
        let full = CallError::TooManyAreas { limit: 10 };
        // To a place of its own choice: five more must fit.
        world.limited(areas(10), "w.w.w.w", "").call(|s| s.move_to(0..1, 10)).after("..w.w.w...w", "");
        world.limited(areas(10), "w.w.w.w.w", "").refuse(|s| s.move_to(0..1, 10), full).after("w.w.w.w.w", "");
        // To any place, because it can't grow here: three more.
        let grow = |pages| move |s: &Scene<'_, D>| s.remap(0..1, pages, RemapPlacement::MayMove);
        world.limited(areas(10), "wr.r.r.r.r", "1").call(grow(2)).after(".r.r.r.r.r", "").counts([6, 7, 2, 0, 1]);
        world.limited(areas(10), "wr.r.r.r.r.r", "1").refuse(grow(2), full).after("wr.r.r.r.r.r", "1");
    });
});

for_each_design!(the_address_space_ends_where_its_limit_says, D, {
    with_world::<D>(|world| {
        for odd in [0, 1, PAGE - 1] {
            let limits = Limits { address_space_bytes: 10 * PAGE + odd, ..Limits::default() };
            world
                .limited(limits, "r(7)", "")
                .refuse(|s| s.mmap(8..12, 'r'), over(limits))
                .call(|s| s.mmap(8..11, 'r'))
                .refuse(|s| s.mmap(12..13, 'r'), over(limits))
                .after("r(7).rrr", "");
        }
        let full = over(size(10));
        // What a fixed mapping replaces makes room for it.
        world.limited(size(10), "r(7)", "").call(|s| s.mmap(6..10, 'n')).after("r(6)nnnn", "");
        world.limited(size(10), "r(7)", "").refuse(|s| s.mmap(6..11, 'n'), full).after("r(6)|r", "");
        let grow = |nr| move |s: &Scene<'_, D>| s.remap(0..7, nr, RemapPlacement::InPlace);
        world.limited(size(10), "r(7)", "").call(grow(10)).after("r(10)", "");
        world.limited(size(10), "r(7)", "").refuse(grow(11), full).after("r(7)", "");
        world.limited(size(10), "w(5)", "1").call(|s| s.empty_to(0..5, 8)).after("w(5)...w(5)", "........1");
        let apart = |s: &Scene<'_, D>| s.empty_to(0..6, 8);
        world.limited(size(11), "w(6)", "1").refuse(apart, over(size(11))).after("w(6)", "1");
        // A kept source replaces a part of what is there.
        world.limited(size(10), "w(5)...r", "1").refuse(|s| s.empty_to(0..5, 20), full).after("w(5)...r", "1");
        world.limited(size(10), "w(5)...r", "1").call(|s| s.empty_to(0..5, 8)).after("w(5)...w(5)", "........1");
    });
});

for_each_design!(data_ends_where_its_limit_says, D, {
    with_world::<D>(|world| {
        let full = over(data(10));
        world
            .limited(data(10), "w(7).rrrr.kkkk.ssss", "")
            .counts([4, 19, 7, 0, 0])
            .refuse(|s| s.mmap(30..34, 'w'), full)
            .call(|s| s.mmap(30..33, 'w'))
            .refuse(|s| s.mmap(34..35, 'w'), full)
            .call(|s| s.mmap(34..35, 'r'))
            .call(|s| s.mmap(36..37, 's'))
            .refuse(|s| s.protect(34..35, RW), full)
            .counts([7, 24, 10, 0, 0]);
        world.limited(data(10), "w(7).rrr", "").call(|s| s.protect(8..11, RW)).counts([2, 10, 10, 0, 0]);
        world.limited(data(10), "w(7).rrrr", "").refuse(|s| s.protect(8..12, RW), full).after("w(7).rrrr", "");
        world.limited(data(10), "w(7)", "").call(|s| s.remap(0..7, 10, RemapPlacement::InPlace)).after("w(10)", "");
        world
            .limited(data(10), "w(7)", "")
            .refuse(|s| s.remap(0..7, 11, RemapPlacement::InPlace), full)
            .after("w(7)", "");
        // As Linux: whatever a fixed mapping replaces counts as data that goes.
        world.limited(data(10), "w(7).rrrr", "").call(|s| s.mmap(8..12, 'w')).counts([2, 11, 11, 0, 0]);
        // What is data stays so, whatever the limit says.
        let execute = |s: &Scene<'_, D>| s.protect(0..1, RW | AreaFlags::EXEC);
        world.limited(data(10), "w(10)", "").call(execute).counts([2, 10, 10, 0, 0]);
        world.limited(data(10), "w(7).rrrr", "").call(|s| s.mmap(8..12, 'w')).call(execute).counts([3, 11, 11, 0, 0]);
        // A kept source: only what is data makes room.
        world.limited(data(10), "w(5)...w(5)", "1").call(|s| s.empty_to(0..5, 8)).counts([2, 10, 10, 0, 1]);
        world.limited(data(9), "w(5)...wwwwr", "1").refuse(|s| s.empty_to(0..5, 8), over(data(9)));
        world.limited(data(10), "w(5)...wwwwr", "1").call(|s| s.empty_to(0..5, 8)).counts([2, 10, 10, 0, 1]);
    });
});

for_each_design!(the_heap_ends_where_limits_and_neighbours_say, D, {
    with_world::<D>(|world| {
        let heap = |limits: Limits, areas: &str| {
            let scene = world.limited(limits, areas, "");
            scene.space.set_heap_start(VirtAddr::new(ORIGIN));
            scene
        };
        // RLIMIT_DATA to the byte, beside the program's own data.
        let limits = Limits { data_bytes: 10 * PAGE + 7, ..Limits::default() };
        let scene = heap(limits, "");
        scene.space.set_static_data_bytes(8 * PAGE);
        assert_eq!(scene.space.brk(VirtAddr::new(at(2) + 8)), VirtAddr::new(ORIGIN));
        assert_eq!(scene.space.brk(VirtAddr::new(at(2) + 7)), VirtAddr::new(at(2) + 7));
        let child = scene.fork();
        assert_eq!(
            child.space.brk(VirtAddr::new(at(2) + 8)),
            VirtAddr::new(at(2) + 7),
            "a child has its parent's own data"
        );
        assert_eq!(child.space.brk(VirtAddr::new(at(2))), VirtAddr::new(at(2)));
        child.after("ww", "");
        scene.after("www", "");
        // RLIMIT_AS, and what is data elsewhere.
        assert_eq!(heap(size(10), "........r(7)").space.brk(VirtAddr::new(at(4))), VirtAddr::new(ORIGIN));
        assert_eq!(heap(size(10), "........r(7)").space.brk(VirtAddr::new(at(3))), VirtAddr::new(at(3)));
        assert_eq!(heap(data(10), "........w(7)").space.brk(VirtAddr::new(at(4))), VirtAddr::new(ORIGIN));
        assert_eq!(heap(data(10), "........w(7)").space.brk(VirtAddr::new(at(3))), VirtAddr::new(at(3)));
        // One page stays free above it, below a stack its gap and one more.
        assert_eq!(heap(Limits::default(), "....r").space.brk(VirtAddr::new(at(3))), VirtAddr::new(at(3)));
        assert_eq!(heap(Limits::default(), "....r").space.brk(VirtAddr::new(at(3) + 1)), VirtAddr::new(ORIGIN));
        assert_eq!(
            heap(Limits::default(), ".(300)k").space.brk(VirtAddr::new(at(300 - 257))),
            VirtAddr::new(at(300 - 257))
        );
        assert_eq!(
            heap(Limits::default(), ".(300)k").space.brk(VirtAddr::new(at(300 - 257) + 1)),
            VirtAddr::new(ORIGIN)
        );
        // Areas: as mmap, one more than the limit.
        assert_eq!(heap(areas(1), "....r").space.brk(VirtAddr::new(at(1))), VirtAddr::new(at(1)));
        assert_eq!(heap(areas(1), "....r.w").space.brk(VirtAddr::new(at(1))), VirtAddr::new(ORIGIN));
        // A heap does not end below its start, and shrinks to it.
        let scene = heap(Limits::default(), "");
        assert_eq!(
            (scene.space.brk(VirtAddr::new(at(2))), scene.space.brk(VirtAddr::new(ORIGIN - 1))),
            (VirtAddr::new(at(2)), VirtAddr::new(at(2)))
        );
        assert_eq!(scene.space.brk(VirtAddr::new(at(1) + 1)), VirtAddr::new(at(1) + 1));
        let scene = scene.after("ww", "");
        assert_eq!(scene.space.brk(VirtAddr::new(ORIGIN)), VirtAddr::new(ORIGIN));
        scene.after("", "");
    });
});

for_each_design!(a_stack_grows_to_its_limits_and_not_a_page_further, D, {
    with_world::<D>(|world| {
        let stack = |limits: Limits, lowest: u64, drawn: &str| {
            let scene = world.limited(limits, drawn, "");
            let refused = scene.store(lowest - 1, 1).is_err();
            assert!(refused, "{drawn}: it grows to page {}", lowest - 1);
            scene.store(lowest, 1).unwrap_or_else(|error| panic!("{drawn}: {error}"));
            assert!(scene.store(lowest - 1, 1).is_err(), "{drawn}: it grows further");
            world.check("after a stack grew");
        };
        for (bytes, pages) in [(4 * PAGE, 4), (4 * PAGE + 1, 4), (4 * PAGE - 1, 3)] {
            let limits = Limits { stack_bytes: bytes, ..Limits::default() };
            stack(limits, 300 - (pages - 1), ".(300)k");
            stack(limits, 300 - (pages - 2), ".(300)kk");
        }
        let unlimited = Limits { stack_bytes: u64::MAX, ..Limits::default() };
        // The gap to what lies below; none to what nobody can reach, and to another stack.
        stack(unlimited, 1 + 256, "w.(299)k");
        stack(unlimited, 1, "n.(299)k");
        let scene = world.limited(unlimited, "k.(1000)k", "");
        scene.store(1, 1).expect("two stacks may meet");
        stack(Limits { lowest_chosen: at(7), ..unlimited }, 7, ".(300)k");
        stack(Limits { address_space_bytes: 4 * PAGE, ..unlimited }, 297, ".(300)k");
        let scene = world.limited(Limits { commit_bytes: 4 * PAGE, ..unlimited }, ".(300)k", "");
        assert!(scene.store(295, 1).is_err(), "five pages at once");
        scene.store(296, 1).expect("four pages at once");
        // Data does not hold it up.
        stack(Limits { data_bytes: PAGE, stack_bytes: 4 * PAGE, ..Limits::default() }, 297, ".(300)k");
        // A locked one grows as far as may be locked.
        let scene = world.limited(locks(4), ".(300)k", "").call(|s| s.lock(300..301, PageLock::Lock));
        assert!(scene.store(296, 1).is_err());
        scene.store(297, 1).expect("four pages");
        assert_eq!(scene.space.locked_bytes(), 4 * PAGE);
    });
});

for_each_design!(so_many_pages_are_locked_and_no_more, D, {
    with_world::<D>(|world| {
        let over = CallError::OverLockLimit { limit_bytes: 5 * PAGE };
        let over_now = CallError::OverLockLimitNow { limit_bytes: 5 * PAGE };
        let lock = |to| move |s: &Scene<'_, D>| s.lock(0..to, PageLock::Lock);
        world.limited(locks(5), "w(8)", "").call(lock(5)).after("l(5)www", "00000");
        world.limited(locks(5), "w(8)", "").refuse(lock(6), over).after("w(8)", "");
        // What is locked already does not count twice.
        world.limited(locks(5), "w(8)", "").call(lock(3)).call(lock(5)).after("l(5)www", "00000");
        world.limited(locks(5), "w(8)", "").call(lock(3)).refuse(lock(6), over).after("lllw(5)", "000");
        world
            .limited(locks(5), "w(8)", "")
            .call(lock(3))
            .refuse(|s| s.lock(3..6, PageLock::LockOnFault), over)
            .call(|s| s.lock(3..5, PageLock::LockOnFault))
            .after("lllLLwww", "000")
            .call(|s| s.lock(0..8, PageLock::Unlock))
            .after("w(8)", "000");
        // mmap, mremap and brk say "try again", or nothing.
        world.limited(locks(5), "", "").call(|s| s.mmap(0..5, 'l')).refuse(|s| s.mmap(6..7, 'l'), over_now);
        world.limited(locks(5), "", "").refuse(|s| s.mmap(0..6, 'l'), over_now).after("", "");
        let grow = |to| move |s: &Scene<'_, D>| s.remap(0..3, to, RemapPlacement::InPlace);
        world.limited(locks(5), "lll", "000").call(grow(5)).after("l(5)", "00000").counts([1, 5, 5, 5, 5]);
        world.limited(locks(5), "lll", "000").refuse(grow(6), over_now).after("lll", "000");
        let future = |s: &Scene<'_, D>| s.lock_all(LockAll::FUTURE);
        for (to, end) in [(5, 5), (6, 0)] {
            let scene = world.limited(locks(5), "", "").call(future);
            scene.space.set_heap_start(VirtAddr::new(ORIGIN));
            assert_eq!(scene.space.brk(VirtAddr::new(at(to))), VirtAddr::new(at(end)));
        }
        // All that is mapped, also what can't be locked.
        let current = |s: &Scene<'_, D>| s.lock_all(LockAll::CURRENT);
        world.limited(locks(5), "ww.nnn", "").call(current).refuse(|s| s.lock(6..7, PageLock::Lock), over);
        world.limited(locks(5), "ww.nnnn", "").refuse(current, over).after("ww.nnnn", "");
    });
});

for_each_design!(who_may_lock_nothing_and_who_may_lock_all, D, {
    with_world::<D>(|world| {
        let nothing = locks(0);
        world
            .limited(nothing, "w", "")
            .refuse(|s| s.lock(0..1, PageLock::Lock), CallError::MayNotLock)
            .refuse(|s| s.mmap(1..2, 'l'), CallError::MayNotLock)
            .refuse(|s| s.lock_all(LockAll::CURRENT), CallError::MayNotLock)
            .call(|s| s.lock(0..1, PageLock::Unlock))
            .after("w", "");
        let less_than_a_page = Limits { lock_bytes: PAGE - 1, ..nothing };
        let over = CallError::OverLockLimit { limit_bytes: PAGE - 1 };
        world.limited(less_than_a_page, "w", "").refuse(|s| s.lock(0..1, PageLock::Lock), over).after("w", "");
        let all = Limits { privileges: Privileges::UNLIMITED_LOCKS, ..nothing };
        world
            .limited(all, "ww", "")
            .call(|s| s.lock(0..1, PageLock::Lock))
            .call(|s| s.mmap(2..3, 'l'))
            .after("lwl", "0.0");
    });
});

for_each_design!(an_emptied_source_goes_on_counting_as_locked, D, {
    with_world::<D>(|world| {
        let over = CallError::OverLockLimit { limit_bytes: 5 * PAGE };
        world
            .limited(locks(5), "ll.w", "12")
            .call(|s| s.empty_to(0..2, 6))
            .after("ww.w..ll", "......12")
            .counts([3, 5, 5, 2, 2])
            .call(|s| s.lock(3..4, PageLock::Lock))
            .refuse(|s| s.lock(0..1, PageLock::Lock), over)
            .after("ww.l..ll", "...0..12");
    });
});

for_each_design!(no_single_promise_exceeds_what_there_is, D, {
    with_world::<D>(|world| {
        let over = CallError::OverCommit { limit_bytes: 10 * PAGE };
        let fresh = || world.limited(promises(10), "", "");
        fresh().refuse(|s| s.mmap(0..11, 'w'), over).call(|s| s.mmap(0..10, 'w')).call(|s| s.mmap(20..30, 'w'));
        fresh().call(|s| s.mmap(0..11, 'N')).call(|s| s.mmap(20..31, 'r')).after("N(11).(9)r(11)", "");
        fresh().refuse(|s| s.mmap(0..11, 's'), over).call(|s| s.mmap(0..10, 's')).after("s(10)", "");
        // What is promised to what a fixed mapping replaces counts for it, and nothing else of that.
        let replaced = |kind: &str, to| {
            world.limited(promises(10), kind, "").call(|s| s.mmap(0..to, 'w')).after(&format!("w({to})"), "");
        };
        replaced("ww", 12);
        world.limited(promises(10), "ww", "").refuse(|s| s.mmap(0..13, 'w'), over).after("ww", "");
        replaced("rr", 10);
        world.limited(promises(10), "rr", "").refuse(|s| s.mmap(0..11, 'w'), over).after("rr", "");
        world.limited(promises(10), "wr", "").refuse(|s| s.mmap(0..12, 'w'), over).call(|s| s.mmap(0..11, 'w'));
        // Rights, growth and fork ask each for its own part.
        world.limited(promises(10), "r(11)", "").refuse(|s| s.protect(0..11, RW), over).call(|s| s.protect(0..10, RW));
        let grow = |to| move |s: &Scene<'_, D>| s.remap(0..5, to, RemapPlacement::InPlace);
        world.limited(promises(10), "w(5)", "").refuse(grow(16), over).after("w(5)", "");
        let scene = world.limited(promises(10), "w(5)", "").call(grow(15)).after("w(15)", "");
        assert_eq!(scene.space.fork().err(), Some(over));
        let scene = scene.call(|s| s.munmap(10..15)).after("w(10)", "");
        scene.fork().after("w(10)", "");
        let move_and_grow =
            |to| move |s: &Scene<'_, D>| s.remap(0..5, to, RemapPlacement::MoveTo(VirtAddr::new(at(50))));
        world.limited(promises(10), "w(5)r", "").refuse(move_and_grow(16), over).call(move_and_grow(15));
    });
});

for_each_design!(addresses_end_where_limits_say, D, {
    with_world::<D>(|world| {
        let limits = Limits { mmap_min_addr: at(2), lowest_chosen: at(4), ..Limits::default() };
        let low = CallError::TooLow { lowest: at(2) };
        let hint = |page, nr| move |s: &Scene<'_, D>| s.mmap_at(Placement::Hint(VirtAddr::new(at(page))), nr, 'w');
        world
            .limited(limits, "", "")
            .refuse(|s| s.mmap(1..2, 'w'), low)
            .refuse(|s| s.mmap_at(Placement::FixedNoReplace(VirtAddr::new(at(1))), 1, 'w'), low)
            .call(|s| s.mmap(2..3, 'r'))
            .call(hint(3, 2))
            .after("..r.ww", "")
            .refuse(|s| s.move_to(4..5, 1), low)
            .call(|s| s.move_to(4..5, 3))
            .after("..rw.w", "");
        let privileged = Limits { privileges: Privileges::LOW_ADDRESSES, ..limits };
        world.limited(privileged, "", "").call(|s| s.mmap(1..2, 'w')).after(".w", "");
        // The upper end.
        let scene = world.scene("", "");
        let at_end = |len: u64| Placement::Fixed(VirtAddr::new(USER_END - len * PAGE));
        assert_eq!(scene.mmap_at(at_end(1), 2, 'w'), Err(CallError::NoRoom { len_bytes: 2 * PAGE }));
        assert_eq!(scene.mmap_at(at_end(2), 2, 'w'), Ok(USER_END - 2 * PAGE));
        assert_eq!(
            scene.space.munmap(AddressRange::new(VirtAddr::new(USER_END - PAGE), PAGE + 1)),
            Err(CallError::Invalid("the range leaves user memory"))
        );
        assert_eq!(scene.space.munmap(AddressRange::new(VirtAddr::new(USER_END - PAGE), PAGE)), Ok(()));
        let all = Limits { lowest_chosen: 0x1_0000, mmap_base: USER_END, ..Limits::default() };
        let scene = world.limited(all, "", "");
        let most = USER_END - 0x1_0000;
        assert_eq!(scene.space.search(most).map(|range| range.start()), Some(VirtAddr::new(0x1_0000)));
        assert_eq!(scene.space.search(most + 1), None);
    });
});
