//! Room: gaps that fit exactly, at all lengths, and what stays free below stacks.

use super::with_world;
use crate::drawing::{ORIGIN, Scene, at};
use crate::world::{Tested, World};
use faultless_platform::native::Native;
use faultless_vm::design::Map;
use faultless_vm::{CallError, Limits, PAGE, Placement, RemapPlacement, USER_END, VirtAddr};

/// Pages of half a huge page's worth and more: what a search is tested with.
const LENGTHS: [u64; 14] = [1, 2, 3, 7, 8, 15, 16, 31, 64, 255, 256, 257, 511, 513];
/// Pages of a huge page.
const HUGE: u64 = 512;

/// Where searches look first: pages 0 to `pages`.
fn room(pages: u64) -> Limits {
    Limits { lowest_chosen: at(0), mmap_base: at(pages), ..Limits::default() }
}

fn found<D: Tested>(scene: &Scene<'_, D>, nr_pages: u64) -> Option<u64> {
    let place = scene.space.search(nr_pages * PAGE)?.start().get();
    // What does not fit below the base goes above it.
    (place < scene.space.limits().mmap_base).then(|| (place - ORIGIN) / PAGE)
}

for_each_design!(the_highest_gap_that_is_long_enough_is_taken, D, {
    with_world::<D>(|world| {
        for len in LENGTHS {
            // Gaps of `len` and `len - 1` pages, and of none.
            let drawn = format!("r{}r{}rx", gap(len), gap(len - 1));
            let scene = world.limited(room(2 * len + 3), &drawn, "");
            assert_eq!(found(&scene, len), Some(1), "{len}: fits exactly");
            let unlocked = scene.space.search_unlocked(len * PAGE);
            assert!(D::Map::PROMISES || unlocked == Some(VirtAddr::new(at(1))), "{len}: {unlocked:?} without the lock");
            assert_eq!(found(&scene, len + 1), None, "{len}: a page too long");
            let lower = (len > 1).then_some(len + 2);
            assert_eq!(found(&scene, len - 1).filter(|_| len > 1), lower, "{len}: the higher one does");
            // Below the first area, and above the last.
            let scene = world.limited(room(2 * len + 1), &format!(".{}r", gap(len)), "");
            assert_eq!(found(&scene, len + 1), Some(0), "{len}: below the first area");
            assert_eq!(
                found(&scene, len - 1).filter(|_| len > 1),
                (len > 1).then_some(len + 2),
                "{len}: above the last"
            );
            assert_eq!(found(&scene, len + 2), None);
        }
    });
});

fn gap(len: u64) -> String {
    if len == 0 { String::new() } else { format!(".({len})") }
}

// As the kernel's, which then searches from below (`arch_get_unmapped_area_topdown`).
for_each_design!(what_fits_nowhere_below_the_base_goes_above_it_as_low_as_it_can, D, {
    with_world::<D>(|world| {
        let place = |scene: &Scene<'_, D>, nr_pages: u64| {
            scene.space.search(nr_pages * PAGE).map(|range| (range.start().get() - ORIGIN) / PAGE)
        };
        let scene = world.limited(room(3), "rrr.r..r...r", "");
        assert_eq!([1, 2, 3, 4].map(|nr_pages| place(&scene, nr_pages)), [Some(3), Some(5), Some(8), Some(12)]);
        let stack = 3 + 256 + 2;
        let scene = world.limited(room(3), &format!("rrr{}k", gap(256 + 2)), "");
        assert_eq!([1, 2, 3].map(|nr_pages| place(&scene, nr_pages)), [Some(3), Some(3), Some(stack + 1)]);
        let end = USER_END - at(stack + 1);
        assert_eq!(place(&scene, end / PAGE), Some(stack + 1), "up to the end of user memory");
        assert_eq!(place(&scene, end / PAGE + 1), None);
    });
});

for_each_design!(many_areas_leave_their_gaps_to_who_fits, D, {
    with_world::<D>(|world| {
        // Gaps of 1, 2, 3 ... pages, ascending, over an index of three levels.
        let pages = (1..=300_u64).map(|len| len + 1).sum();
        let scene = world.limited(Limits { max_map_count: 1000, ..room(pages) }, "", "");
        let mut place = 0;
        for len in 1..=300 {
            place += len;
            scene.mmap(place..place + 1, 'r').expect("room");
            place += 1;
        }
        // From the highest downwards: each is taken when those above are too short, or taken.
        let mut end = pages - 1;
        for len in (1..=300).rev() {
            assert_eq!(found(&scene, len), Some(end - len), "{len}");
            scene.mmap(end - len..end, 'n').expect("room");
            assert_eq!(found(&scene, len), None, "{len}: taken");
            end = end.saturating_sub(len + 1);
        }
    });
});

for_each_design!(anywhere_hints_and_fixed_places_know_the_gap_below_a_stack, D, {
    with_world::<D>(|world| {
        for len in LENGTHS {
            // A stack behind 256 pages and `len`: so many fit before it.
            let drawn = format!("r{}k", gap(256 + len));
            let stack = 1 + 256 + len;
            let scene = || world.limited(room(stack + 1), &drawn, "");
            assert_eq!(found(&scene(), len), Some(1));
            assert_eq!(found(&scene(), len + 1), None);
            let hint = |page, nr| move |s: &Scene<'_, D>| s.mmap_at(Placement::Hint(VirtAddr::new(at(page))), nr, 'n');
            assert_eq!(hint(1, len)(&scene()), Ok(at(1)));
            assert_ne!(hint(1, len + 1)(&scene()), Ok(at(1)));
            assert_ne!(hint(2, len)(&scene()), Ok(at(2)));
            // Who names the place may come as near as he likes.
            scene().call(|s| s.mmap_at(Placement::FixedNoReplace(VirtAddr::new(at(stack - 1))), 1, 'n'));
        }
        // Between two areas that are no stacks no gap is kept.
        let scene = world.limited(room(6), "r...rr", "");
        assert_eq!(scene.mmap_at(Placement::Hint(VirtAddr::new(at(1))), 3, 'w'), Ok(at(1)));
        // A hint is taken where it fits, although the search would take the upper gap.
        for len in 1..=3 {
            let scene = world.limited(room(10), "r...r...rr", "");
            assert_eq!(
                scene.mmap_at(Placement::Hint(VirtAddr::new(at(4 - len))), len, 'w'),
                Ok(at(4 - len)),
                "{len}: up to the next"
            );
        }
        let scene = world.limited(room(10), "r...r...rr", "");
        assert_eq!(
            scene.mmap_at(Placement::Hint(VirtAddr::new(at(2))), 3, 'w'),
            Ok(at(5)),
            "a page too long for its place"
        );
        // A hint in page 0 is none, others are rounded down to their page.
        let scene = world.limited(room(6), "r...rr", "");
        assert_eq!(scene.mmap_at(Placement::Hint(VirtAddr::new(PAGE - 1)), 1, 'w'), Ok(at(3)));
        assert_eq!(scene.mmap_at(Placement::Hint(VirtAddr::new(at(1) + 5)), 1, 'w'), Ok(at(1)));
    });
});

for_each_design!(a_place_to_keep_free_is_refused_if_a_page_of_it_is_taken, D, {
    with_world::<D>(|world| {
        let place =
            |page, nr| move |s: &Scene<'_, D>| s.mmap_at(Placement::FixedNoReplace(VirtAddr::new(at(page))), nr, 'n');
        world
            .scene("ww...rr", "")
            .refuse(place(1, 2), CallError::Exists { address: VirtAddr::new(at(1)) })
            .refuse(place(2, 4), CallError::Exists { address: VirtAddr::new(at(5)) })
            .refuse(place(0, 9), CallError::Exists { address: VirtAddr::new(at(0)) })
            .after("ww...rr", "")
            .call(place(2, 3))
            .after("wwnnnrr", "");
    });
});

/// Returns where a mapping of so many pages lands, with this room for it between two areas.
fn landing<D: Tested>(world: &World<D>, first: u64, nr_pages: u64, kind: char) -> Option<u64> {
    let scene = world.limited(room(first + 3 * HUGE), &format!("{}r", gap(first + 3 * HUGE - 1)), "");
    scene
        .call(|s| s.mmap_at(Placement::Fixed(VirtAddr::new(at(first))), 1, 'r'))
        .also(|s| {
            s.mmap_at(Placement::Anywhere, nr_pages, kind).expect("room");
        })
        .place_of(kind)
}

for_each_design!(what_could_be_huge_pages_begins_where_one_could, D, {
    with_world::<D>(|world| {
        // Whole huge pages' worth of private memory is aligned, with as much again for padding; nothing else is.
        let end = |first| first + 3 * HUGE - 1;
        for first in [10, HUGE - 1] {
            assert_eq!(landing(world, first, HUGE, 'w'), Some((end(first) - 2 * HUGE) / HUGE * HUGE + HUGE));
            assert_eq!(landing(world, first, HUGE, 's'), Some(end(first) - HUGE), "what is shared is not");
            assert_eq!(landing(world, first, HUGE - 1, 'w'), Some(end(first) - HUGE + 1));
            assert_eq!(landing(world, first, HUGE + 1, 'w'), Some(end(first) - HUGE - 1));
        }
        // Without room for the padding it goes where it fits.
        let scene = world.limited(room(2 * HUGE), &format!("r{}r", gap(2 * HUGE - 2)), "");
        let above = (USER_END - at(2 * HUGE)) / PAGE;
        let scene = scene.call(|s| s.mmap(1..HUGE - 1, 'n')).call(|s| s.mmap(2 * HUGE..2 * HUGE + above, 'n'));
        assert_eq!(scene.mmap_at(Placement::Anywhere, HUGE, 'w'), Ok(at(HUGE - 1)));
    });
});

for_each_design!(a_mapping_grows_up_to_its_neighbour, D, {
    with_world::<D>(|world| {
        let grow = |to| move |s: &Scene<'_, D>| s.remap(0..2, to, RemapPlacement::InPlace);
        let no_room = |nr: u64| CallError::NoRoom { len_bytes: nr * PAGE };
        world
            .scene("ww...r", "12")
            .refuse(grow(6), no_room(6))
            .after("ww...r", "12")
            .call(grow(5))
            .after("w(5)r", "12")
            .counts([2, 6, 5, 0, 2]);
        // No gap is kept below a stack that it meets.
        world.scene("ww...k", "1").call(grow(5)).after("w(5)k", "1");
        // Only the end of an area grows, and into what is like it.
        world.scene("www", "").refuse(grow(4), no_room(4)).after("www", "");
        world.scene("ww.w", "1").call(grow(3)).after("wwww", "1").counts([1, 4, 4, 0, 1]);
        world.scene("ww.r", "1").refuse(grow(4), no_room(4)).call(grow(3)).after("wwwr", "1");
    });
});
