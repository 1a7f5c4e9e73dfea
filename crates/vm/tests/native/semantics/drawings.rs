//! The calls, drawn: what they do to areas and to pages.

use super::with_world;
use crate::drawing::{Scene, at};
use crate::world::{RW, Tested};
use faultless_platform::native::Native;
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, CallError, Limits, LinuxVersion, PAGE, Placement, RemapPlacement,
    VirtAddr,
};

const NONE: AreaFlags = AreaFlags::empty();
const READ: AreaFlags = AreaFlags::READ;
const EXECUTE: AreaFlags = AreaFlags::READ.union(AreaFlags::EXEC);

fn sealed(page: u64) -> CallError {
    CallError::Sealed { address: VirtAddr::new(at(page)) }
}

fn unmapped(page: u64) -> CallError {
    CallError::Unmapped { address: VirtAddr::new(at(page)) }
}

fn bad_source(page: u64) -> CallError {
    CallError::BadSource { address: VirtAddr::new(at(page)) }
}

for_each_design!(unmapping, D, {
    with_world::<D>(|world| {
        let cases = [
            ("wwww", "1234", 0..4, "", ""),
            ("wwww", "1234", 0..1, ".www", ".234"),
            ("wwww", "1234", 3..4, "www", "123"),
            ("wwww", "1234", 1..3, "w..w", "1..4"),
            ("wwrrxx", "12zz", 1..5, "w....x", "1"),
            (".ww.rr", ".12.z", 0..6, "", ""),
            (".ww.rr", ".12.z", 3..5, ".ww..r", ".12"),
            ("ww..rr", "12..zz", 2..4, "ww..rr", "12..zz"),
            ("ssss", "1234", 1..2, "s.ss", "1.34"),
            ("k(4)", "1234", 0..2, "..kk", "..34"),
        ];
        for (areas, pages, range, areas_after, pages_after) in cases.into_iter().filter(|case| world.draws(&[case.0])) {
            world.scene(areas, pages).call(|s| s.munmap(range)).after(areas_after, pages_after);
        }
    });
});

for_each_design!(mapping_over_and_beside_others, D, {
    with_world::<D>(|world| {
        let cases = [
            ("", "", 0..2, 'w', "ww", ""),
            ("ww", "12", 2..4, 'w', "wwww", "12"),
            ("..ww", "..12", 0..2, 'w', "wwww", "..12"),
            ("ww.ww", "1", 2..3, 'w', "w(5)", "1"),
            ("ww.ww", "1..2", 2..3, 'w', "www|ww", "1..2"),
            ("ww.ww", "12.34", 2..3, 'r', "wwrww", "12.34"),
            ("wwww", "1234", 1..3, 'w', "wwww", "1..4"),
            ("wwww", "1234", 1..3, 'r', "wrrw", "1..4"),
            ("wwrr", "12zz", 1..3, 'x', "wxxr", "1..z"),
            ("wwww", "", 0..4, 'N', "NNNN", ""),
            ("ww", "1", 2..4, 'N', "wwNN", "1"),
            ("ww", "1", 2..4, 's', "wwss", "1"),
            ("ss", "1", 2..4, 's', "ss|ss", "1"),
            ("kk", "1", 2..4, 'w', "kkww", "1"),
        ];
        for (areas, pages, range, kind, areas_after, pages_after) in cases {
            if !world.draws(&[areas, areas_after]) {
                continue;
            }
            world.scene(areas, pages).call(|s| s.mmap(range, kind)).after(areas_after, pages_after);
        }
    });
});

for_each_design!(changing_rights_cuts_and_joins, D, {
    with_world::<D>(|world| {
        let cases = [
            ("wwww", "1.z", 0..4, READ, "rrrr", "1.z"),
            ("wwww", "12", 1..3, READ, "wrrw", "12"),
            ("wrrw", "1", 1..3, RW, "wwww", "1"),
            ("wrrw", "1", 1..2, RW, "wwrw", "1"),
            ("wrrw", "1", 2..3, RW, "wrww", "1"),
            // Pages that were writable once stay accounted for, and others are not, which keeps the areas apart.
            ("wwrr", "12", 1..3, EXECUTE, "wx|xr", "12"),
            ("wwrr", "12", 0..4, EXECUTE, "xx|xx", "12"),
            ("wwww", "1234", 0..4, NONE, "nnnn", "1234"),
            ("kkkk", "12", 2..4, READ, "kk|kk", "12"),
            ("ssss", "12", 0..2, READ, "ss|ss", "12"),
            ("llll", "1234", 1..2, READ, "lmll", "1234"),
            ("wwww", "12", 1..1, READ, "wwww", "12"),
        ];
        for (areas, pages, range, rights, areas_after, pages_after) in cases {
            if !world.draws(&[areas, areas_after]) {
                continue;
            }
            world.scene(areas, pages).call(|s| s.protect(range, rights)).after(areas_after, pages_after);
        }
        // Across a hole the part before it is changed.
        world.scene("ww.w", "1").refuse(|s| s.protect(0..4, READ), unmapped(2)).after("rr.w", "1");
        world.scene("w", "1").refuse(|s| s.protect(1..2, READ), unmapped(1)).after("w", "1");
    });
});

for_each_design!(no_translation_outlives_the_right_to_it, D, {
    with_world::<D>(|world| {
        let forbidden = |page| Err(AccessError::Forbidden { address: VirtAddr::new(at(page)) });
        let scene = world.scene("wwww", "1234");
        // The TLB knows all pages as ones to write.
        (0..4).for_each(|page| scene.put(page, page + 5));
        let scene = scene.call(|s| s.protect(0..1, READ)).call(|s| s.protect(1..2, NONE)).after("rnww", "5678");
        assert_eq!(scene.store(0, 1).map(drop), forbidden(0));
        assert_eq!(scene.guest.load(VirtAddr::new(at(1))).map(drop), forbidden(1));
        let scene = scene.call(|s| s.protect(2..3, EXECUTE));
        scene.guest.fetch(VirtAddr::new(at(2))).expect("may be executed");
        let scene = scene.call(|s| s.protect(2..3, READ));
        assert_eq!(scene.guest.fetch(VirtAddr::new(at(2))).map(drop), forbidden(2));
        // And more rights come without a fault.
        let scene = scene.call(|s| s.protect(0..1, RW)).call(|s| s.protect(2..3, RW));
        assert_eq!(scene.store(0, 1).map(|taken| taken.count), Ok(0));
        assert_eq!(scene.store(2, 3).map(|taken| taken.count), Ok(0));
    });
});

for_each_design!(growing_and_shrinking_in_place, D, {
    with_world::<D>(|world| {
        let cases = [
            ("ww", "12", 0..2, 4, "wwww", "12"),
            ("wwww", "1234", 0..4, 2, "ww", "12"),
            ("wwww", "1234", 0..2, 2, "wwww", "1234"),
            ("wwww", "1234", 1..3, 1, "ww.w", "12.4"),
            ("wwrr", "12zz", 0..4, 1, "w", "1"),
            ("www", "123", 1..3, 4, "w(5)", "123"),
            ("ss", "12", 0..2, 1, "s", "1"),
            ("ll", "12", 0..2, 4, "llll", "1200"),
            // What is not locked, behind the grown part, is not touched.
            ("ll.w", "12", 0..2, 3, "lllw", "120."),
            ("rr", "zz", 0..2, 3, "rrr", "zz"),
        ];
        for (areas, pages, range, to, areas_after, pages_after) in cases {
            world
                .scene(areas, pages)
                .call(|s| s.remap(range, to, RemapPlacement::InPlace))
                .after(areas_after, pages_after);
        }
        let beyond = |range: std::ops::Range<u64>| move |s: &Scene<'_, D>| s.remap(range, 6, RemapPlacement::InPlace);
        world.scene("ww.w", "").refuse(beyond(2..3), bad_source(2)).after("ww.w", "");
        world.scene("wwrr", "").refuse(beyond(0..4), bad_source(0)).after("wwrr", "");
    });
});

for_each_design!(locked_pages_are_made_once_they_may_be_written_and_their_neighbours_are_not, D, {
    with_world::<D>(|world| {
        for nr in [1, 8, 9, 20] {
            let holding = |page: &str| page.repeat(nr).trim_end_matches('.').to_owned();
            world
                .scene(&"mr".repeat(nr), &holding("z."))
                .call(|s| s.protect(0..2 * nr as u64, RW))
                .after(&"lw".repeat(nr), &holding("0."));
        }
    });
});

for_each_design!(moving, D, {
    with_world::<D>(|world| {
        let cases = [
            ("ww", "12", 0..2, 4, "....ww", "....12"),
            ("wwww", "1234", 1..3, 6, "w..w..ww", "1..4..23"),
            ("ww.rrr", "12", 0..2, 3, "...wwr", "...12"),
            // What was never written takes the offset of its new place, and joins there.
            ("ww..w", "", 0..2, 5, "....www", ""),
            ("ww....ww", "12....34", 0..2, 5, ".....ww|w", ".....124"),
            ("wwrr", "12zz", 0..4, 6, "......wwrr", "......12zz"),
            ("ww.rr", "12.zz", 0..5, 8, "........ww.rr", "........12.zz"),
            ("ss", "12", 0..2, 3, "...ss", "...12"),
            ("ll", "12", 0..2, 3, "...ll", "...12"),
            ("wwww", "!2!4", 0..4, 5, ".....wwww", ".....!2!4"),
        ];
        for (areas, pages, range, to, areas_after, pages_after) in cases {
            world.scene(areas, pages).call(|s| s.move_to(range, to)).after(areas_after, pages_after);
        }
        // A kept source stays, and is empty.
        let kept = [
            ("ww", "12", 0..2, 4, "ww..ww", "....12"),
            ("wwww", "1234", 1..3, 6, "wwww..ww", "1..4..23"),
            ("wwww", "!234", 0..2, 6, "wwww..ww", "..34..!2"),
            ("wwrr", "12zz", 0..4, 6, "wwrr..wwrr", "......12zz"),
        ];
        for (areas, pages, range, to, areas_after, pages_after) in kept {
            world.scene(areas, pages).call(|s| s.empty_to(range, to)).after(areas_after, pages_after);
        }
        // Back where it was, it is one area with its neighbours again.
        world.scene("wwww", "1234").call(|s| s.move_to(1..3, 6)).call(|s| s.move_to(6..8, 1)).after("wwww", "1234");
    });
});

for_each_design!(moves_that_are_refused_change_nothing, D, {
    with_world::<D>(|world| {
        let overlap = CallError::Invalid("old and new range overlap");
        let to = |range: std::ops::Range<u64>, nr, placement| move |s: &Scene<'_, D>| s.remap(range, nr, placement);
        for (target, nr) in [(1, 4), (0, 4), (1, 2), (2, 2), (3, 1)] {
            let fixed = to(0..4, nr, RemapPlacement::Fixed(VirtAddr::new(at(target))));
            world.scene("wwww", "1234").refuse(fixed, overlap).after("wwww", "1234");
        }
        world.scene(".ww", ".12").call(|s| s.move_to(1..3, 3)).after("...ww", "...12");
        world.scene("..ww", "..12").call(|s| s.move_to(2..4, 0)).after("ww", "12");
        // Sealed, at either end. Of several areas those before it have moved.
        world.scene("ww..S", "12..3").refuse(|s| s.move_to(0..2, 4), sealed(4)).after("ww..S", "12..3");
        world.scene("SS", "12").refuse(|s| s.move_to(0..2, 4), sealed(0)).after("SS", "12");
        world.scene("wwSS", "1234").refuse(|s| s.move_to(0..4, 8), sealed(2)).after("..SS....ww", "..34....12");
        // Several areas at once need Linux 6.17.
        let limits = Limits { version: LinuxVersion { major: 6, minor: 16 }, ..Limits::default() };
        world.limited(limits, "wwrr", "12").refuse(|s| s.move_to(0..4, 8), bad_source(0)).after("wwrr", "12");
        world.limited(limits, "wwrr", "12").call(|s| s.move_to(0..2, 8)).after("..rr....ww", "........12");
        world.scene("ww.w", "").refuse(|s| s.move_to(2..4, 8), bad_source(2)).after("ww.w", "");
        let private = CallError::Invalid("old length 0 is for shared mappings");
        world.scene("ww", "1").refuse(to(0..0, 2, RemapPlacement::MayMove), private).after("ww", "1");
    });
});

for_each_design!(a_recorded_move_goes_where_nothing_is, D, {
    with_world::<D>(|world| {
        let to = |range: std::ops::Range<u64>, nr, page| {
            move |s: &Scene<'_, D>| s.remap(range, nr, RemapPlacement::MoveTo(VirtAddr::new(at(page))))
        };
        let exists = |page| CallError::Exists { address: VirtAddr::new(at(page)) };
        world.scene("ww", "12").call(to(0..2, 2, 4)).after("....ww", "....12");
        world.scene("ww", "12").call(to(0..2, 3, 2)).after("..www", "..12");
        world.scene("www", "123").call(to(0..3, 1, 4)).after("....w", "....1");
        // Neither what is sealed there nor anything else is replaced, and nothing of the source is lost on itself.
        world.scene("ww..S", "12..3").refuse(to(0..2, 2, 4), exists(4)).after("ww..S", "12..3");
        world.scene("ww.r", "12.z").refuse(to(0..2, 2, 2), exists(3)).after("ww.r", "12.z");
        for (nr, page) in [(4, 2), (4, 0), (2, 1), (5, 3)] {
            world.scene("wwww", "1234").refuse(to(0..4, nr, page), exists(page)).after("wwww", "1234");
        }
        // One area, as on Linux.
        world.scene("wwrr", "12").refuse(to(0..4, 4, 8), bad_source(0)).after("wwrr", "12");
        world.scene("wwSS", "1234").refuse(to(0..4, 4, 8), bad_source(0)).after("wwSS", "1234");
        world.scene("SS", "12").refuse(to(0..2, 2, 8), sealed(0)).after("SS", "12");
    });
});

for_each_design!(a_hint_without_a_kept_source_is_ignored, D, {
    with_world::<D>(|world| {
        // As Linux, which reads the new address with MREMAP_FIXED and MREMAP_DONTUNMAP only.
        let hint = |nr| move |s: &Scene<'_, D>| s.remap(0..4, nr, RemapPlacement::Hint(VirtAddr::new(at(40))));
        world.scene("wwww", "1234").call(hint(4)).after("wwww", "1234");
        world.scene("wwww", "1234").call(hint(6)).after("w(6)", "1234");
        world.scene("wwww", "1234").call(hint(2)).after("ww", "12");
        // Several areas stay where they are, and a seal is kept.
        world.scene("wwrr", "12zz").call(hint(4)).after("wwrr", "12zz");
        world.scene("wwRR", "12").call(hint(4)).after("wwRR", "12");
        world.scene("wwRR", "12").refuse(hint(6), bad_source(0)).after("wwRR", "12");
        world.scene("wwRR", "12").refuse(hint(1), sealed(2)).after("w|wRR", "12");
        // With one it is where the source goes, if there is room.
        let kept = |page| {
            move |s: &Scene<'_, D>| {
                s.space.mremap(&faultless_vm::RemapRequest {
                    old: AddressRange::new(VirtAddr::new(at(0)), 2 * PAGE),
                    new_len_bytes: 2 * PAGE,
                    placement: RemapPlacement::Hint(VirtAddr::new(at(page))),
                    keeps_source: true,
                })
            }
        };
        world.scene("ww", "12").call(kept(4)).after("ww..ww", "....12");
        world.scene("ww...r", "12").call(kept(4)).after("ww...r", "");
        let overlap = CallError::Invalid("old and new range overlap");
        world.scene("ww", "12").refuse(kept(1), overlap).refuse(kept(0), overlap).after("ww", "12");
    });
});

for_each_design!(seals, D, {
    with_world::<D>(|world| {
        world.scene("wwww", "12").call(|s| s.seal(1..3)).after("wSSw", "12");
        world.scene("wSSw", "").call(|s| s.seal(1..4)).after("wSSS", "");
        world.scene("wrw", "").call(|s| s.seal(0..3)).after("SRS", "");
        world.scene("ww.w", "").refuse(|s| s.seal(0..4), unmapped(2)).after("ww.w", "");
        world.scene("ww", "").call(|s| s.seal(0..0)).after("ww", "");
        let all = |page, drawn: &str, after: &str, range: std::ops::Range<u64>| {
            let unmap = |s: &Scene<'_, D>| s.munmap(range.clone());
            world.scene(drawn, "12").refuse(unmap, sealed(page)).after(after, "12");
            let map = |s: &Scene<'_, D>| s.mmap(range.clone(), 'n');
            world.scene(drawn, "12").refuse(map, sealed(page)).after(after, "12");
        };
        all(0, "SS", "SS", 0..2);
        all(0, "SS", "SS", 1..2);
        // As on Linux, what lies before is cut where the range begins, and otherwise whole.
        all(2, "wwSS", "w|wSS", 1..3);
        all(2, "wwSS", "wwSS", 0..4);
        world.scene("SS", "12").refuse(|s| s.protect(0..2, READ), sealed(0)).after("SS", "12");
        world.scene("wwSS", "12").refuse(|s| s.protect(0..4, READ), sealed(2)).after("rrSS", "12");
        // A heap of which a part is sealed does not shrink; what is sealed and can't be stored to keeps its pages.
        for advice in [Advice::DontNeed, Advice::Free, Advice::DontFork, Advice::WipeOnFork, Advice::GuardInstall] {
            world.scene("RR", "12").refuse(|s| s.advise(0..2, advice), sealed(0)).after("RR", "12");
        }
        world.scene("SS", "12").call(|s| s.advise(0..2, Advice::DontNeed)).after("SS", "");
        world.scene("RR", "12").call(|s| s.advise(0..2, Advice::PageOut)).after("RR", "12");
        // Locks, other advice and growth in place: only the last is refused.
        let grow = |s: &Scene<'_, D>| s.remap(0..2, 3, RemapPlacement::InPlace);
        world.scene("SS", "12").call(|s| s.advise(0..2, Advice::DontDump)).refuse(grow, sealed(0)).after("SS", "12");
        // A child's are sealed, too.
        let child = world.scene("SS", "12").fork();
        child.refuse(|s| s.munmap(0..2), sealed(0)).after("SS", "12");
    });
});

for_each_design!(guards, D, {
    with_world::<D>(|world| {
        let install = |range: std::ops::Range<u64>| move |s: &Scene<'_, D>| s.advise(range, Advice::GuardInstall);
        let scene = world.scene("wwww", "1234").call(install(1..3)).after("wwww", "1!!4").counts([1, 4, 4, 0, 2]);
        assert_eq!(scene.store(1, 1).map(drop), Err(AccessError::NotMapped { address: VirtAddr::new(at(1)) }));
        assert_eq!(
            scene.guest.load(VirtAddr::new(at(2))).map(drop),
            Err(AccessError::NotMapped { address: VirtAddr::new(at(2)) })
        );
        let scene = scene.call(|s| s.advise(0..4, Advice::DontNeed)).after("wwww", ".!!");
        let scene = scene.call(|s| s.protect(0..2, READ)).after("rrww", ".!!");
        scene.fork().after("rrww", ".!!");
        let scene = scene.call(|s| s.advise(0..2, Advice::GuardRemove)).after("rrww", "..!");
        let scene = scene.call(|s| s.mmap(2..3, 'w')).after("rrww", "");
        scene.call(install(0..4)).after("rrww", "!!!!").call(|s| s.munmap(1..3)).after("r..w", "!..!");
        // What is wiped for a child takes its guards along; what is shared keeps them.
        world.scene("oo", "!2").fork().after("oo", "");
        world.scene("oo", "!2").after("oo", "!2");
        world.scene("dw", "!!").fork().after(".w", ".!");
        world.scene("ss", "12").call(install(1..2)).fork().after("ss", ".!");
        // An area that joins one without guards brings its own.
        let joined = world.scene("rrww", "").call(install(2..4)).call(|s| s.protect(0..2, RW)).after("wwww", "..!!");
        joined.fork().after("wwww", "..!!");
        // So do both where both have some.
        let parted = world.scene("wwww", "").call(install(0..4)).call(|s| s.protect(0..2, READ)).after("rrww", "!!!!");
        let joined = parted.call(|s| s.protect(0..2, RW)).after("wwww", "!!!!");
        joined.fork().after("wwww", "!!!!");
        // Guards give a root: of memory that is accounted for and memory that is not, one each.
        let both = world.scene("rrww", "").call(install(0..4)).call(|s| s.protect(0..2, RW)).after("ww|ww", "!!!!");
        both.fork().after("ww|ww", "!!!!");
        // Guards are no pages to lock, and locked pages are not guarded.
        let locked = CallError::Invalid("the pages are locked");
        world.scene("ll", "12").refuse(install(0..1), locked).after("ll", "12");
        // Over two page tables and a hole between areas.
        let unmapped = CallError::Unmapped { address: VirtAddr::new(at(511)) };
        world
            .scene(".(509)ww.ww", ".(509)12.34")
            .refuse(install(509..514), unmapped)
            .after(".(509)ww.ww", ".(509)!!.!!");
    });
});

for_each_design!(forks, D, {
    with_world::<D>(|world| {
        let cases = [
            ("ww.rr", "12.zz", "ww.rr", "12"),
            ("wdw", "123", "w.w", "1.3"),
            ("wow", "123", "wow", "1.3"),
            ("lm", "10", "wr", "10"),
            ("LL", "1", "ww", "1"),
            ("SR", "12", "SR", "12"),
            ("kk", "12", "kk", "12"),
            ("ss", "12", "ss", ""),
        ];
        for (areas, pages, areas_in_child, pages_in_child) in cases {
            let scene = world.scene(areas, pages);
            let child = scene.fork().after(areas_in_child, pages_in_child);
            let grandchild = child.fork();
            drop(child);
            grandchild.after(areas_in_child, pages_in_child);
            scene.after(areas, pages);
        }
        // What a child inherits joins nothing new; what nobody has stored to does.
        let child = world.scene("ww", "1").fork();
        child.call(|s| s.mmap(2..3, 'w')).after("ww|w", "1");
        world.scene("ww", "").fork().call(|s| s.mmap(2..3, 'w')).after("www", "");
        let shared = world.scene("ss", "12");
        let child = shared.fork();
        assert_eq!((child.load(0), child.load(1)), (1, 2));
        child.store(0, 7).expect("mapped");
        assert_eq!(shared.load(0), 7);
    });
});

for_each_design!(advice_that_marks, D, {
    with_world::<D>(|world| {
        let mark = |range: std::ops::Range<u64>, advice| move |s: &Scene<'_, D>| s.advise(range, advice);
        world
            .scene("wwww", "1")
            .call(mark(1..3, Advice::DontFork))
            .after("wddw", "1")
            .call(mark(1..3, Advice::DoFork))
            .after("wwww", "1");
        world
            .scene("wwww", "1")
            .call(mark(0..2, Advice::WipeOnFork))
            .after("ooww", "1")
            .call(mark(0..2, Advice::KeepOnFork))
            .after("wwww", "1");
        let anonymous = CallError::Invalid("only private anonymous memory can be wiped on fork");
        world.scene("ws", "").refuse(mark(0..2, Advice::WipeOnFork), anonymous).after("os", "");
        // What is mapped behind a hole is marked as well.
        world.scene("w.w", "").refuse(mark(0..3, Advice::DontFork), unmapped(1)).after("d.d", "");
        let undo = [
            (Advice::Random, Advice::Normal),
            (Advice::Sequential, Advice::Normal),
            (Advice::DontDump, Advice::DoDump),
            (Advice::Mergeable, Advice::Unmergeable),
        ];
        for (advice, back) in undo {
            world
                .scene("wwww", "12")
                .call(mark(1..3, advice))
                .after("w|ww|w", "12")
                .call(mark(1..3, back))
                .after("wwww", "12");
        }
        // Huge pages wanted and not wanted exclude each other, and neither is what an area begins with.
        world
            .scene("www", "")
            .call(mark(0..1, Advice::HugePage))
            .call(mark(1..2, Advice::NoHugePage))
            .after("w|w|w", "")
            .call(mark(0..2, Advice::HugePage))
            .after("ww|w", "")
            .call(mark(0..3, Advice::NoHugePage))
            .after("www", "");
    });
});

for_each_design!(stacks_grow_when_touched_and_keep_their_kind, D, {
    with_world::<D>(|world| {
        let scene = world.scene(".(300)kk", "");
        scene.store(298, 1).expect("grows");
        let scene = scene.after(".(298)kkkk", ".(298)1").counts([1, 4, 0, 0, 1]);
        scene.load(297);
        let scene = scene.after(".(297)k(5)", ".(297)z1");
        // Cut, both parts grow on their own: the upper one into the hole as far as the gap allows.
        let scene = scene.call(|s| s.munmap(299..300)).after(".(297)kk.kk", ".(297)z1");
        scene.store(299, 2).expect("no gap between stacks");
        let scene = scene.after(".(297)kk|kkk", ".(297)z12");
        let protected = scene.call(|s| s.protect(297..298, READ));
        let refused = protected.store(296, 1);
        assert_eq!(
            refused.map(drop),
            Err(AccessError::Forbidden { address: VirtAddr::new(at(296)) }),
            "it grows, and is not to write"
        );
        let stack = world.scene(".(600)k.k", "");
        assert_eq!(stack.mmap_at(Placement::Fixed(VirtAddr::new(at(599))), 1, 'w'), Ok(at(599)));
        assert_eq!(
            stack.store(598, 1).map(drop),
            Err(AccessError::NotMapped { address: VirtAddr::new(at(598)) }),
            "no stack is above"
        );
    });
});

// As Linux: the root of what a fork copied is its alone, so that a neighbour's first page gets another one.
for_each_design!(an_area_that_a_fork_gave_its_root_lends_it_to_nobody, D, {
    with_world::<D>(|world| {
        let child = world.scene("ww", "1").fork();
        let child = child.call(|s| s.mmap(2..4, 'w')).after("ww|ww", "1");
        child.put(2, 5);
        let child = child.call(|s| s.protect(2..4, AreaFlags::READ)).after("wwrr", "1.5");
        child.call(|s| s.protect(2..4, AreaFlags::READ | AreaFlags::WRITE)).after("ww|ww", "1.5");
    });
});
