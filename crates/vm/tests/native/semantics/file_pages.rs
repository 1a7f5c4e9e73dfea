//! remap_file_pages: a range of a shared mapping shows another part of its object.

use super::with_world;
use crate::drawing::{Scene, at};
use crate::world::Tested;
use faultless_platform::native::Native;
use faultless_vm::{AddressRange, AreaFlags, CallError, PAGE, Populate, VirtAddr};
use std::ops::Range;

const NOT_SHARED: CallError = CallError::Invalid("not a shared mapping that may be written");
const NOT_ALIKE: CallError = CallError::Invalid("the range is not of one kind of mapping");
const EMPTY: CallError = CallError::Invalid("the range is empty or overflows");

fn show<D: Tested>(
    pages: Range<u64>,
    from: u64,
    populate: Populate,
) -> impl Fn(&Scene<'_, D>) -> Result<(), CallError> {
    let range = AddressRange::new(VirtAddr::new(at(pages.start)), (pages.end - pages.start) * PAGE);
    move |s| s.space.remap_file_pages(range, from, populate)
}

for_each_design!(a_page_shows_what_the_object_has_elsewhere, D, {
    with_world::<D>(|world| {
        let scene = world.scene("ssss", "1234").call(show(0..1, 2, Populate::Now)).after("s|sss", "3234");
        // Pages that are not made at once come with the first access.
        let scene = scene.call(show(1..3, 0, Populate::OnFault)).after("s|ss|s", "3..4");
        assert_eq!([0, 1, 2, 3].map(|page| scene.load(page)), [3, 1, 2, 4]);
        scene.put(0, 7);
        // Ranges of several areas of one kind; and neighbours join again.
        let scene = scene.call(show(0..4, 0, Populate::Now)).after("ssss", "1274");
        scene.call(show(1..4, 1, Populate::Now)).after("ssss", "1274");
    });
});

for_each_design!(only_shared_mappings_of_one_kind_show_another_part, D, {
    with_world::<D>(|world| {
        let now = Populate::Now;
        world.scene("w.s", "").refuse(show(0..1, 0, now), NOT_SHARED).refuse(show(1..2, 0, now), NOT_SHARED);
        let scene = world.scene("ss.ss", "12.34");
        let scene = scene.refuse(show(0..3, 0, now), NOT_ALIKE).refuse(show(0..4, 0, now), NOT_ALIKE);
        let scene = scene.call(|s| s.protect(1..2, AreaFlags::READ)).refuse(show(0..2, 0, now), NOT_ALIKE);
        scene.call(show(1..2, 0, now)).after("s|s.ss", "11.34");
        // Another object.
        let scene = world.scene("s", "1").call(|s| s.mmap(1..2, 's')).refuse(show(0..2, 0, now), NOT_ALIKE);
        scene.after("s|s", "1");
    });
});

for_each_design!(ranges_are_rounded_down_and_end_where_offsets_do, D, {
    with_world::<D>(|world| {
        let remap = |start, len_bytes, from| {
            let range = AddressRange::new(VirtAddr::new(start), len_bytes);
            move |s: &Scene<'_, D>| s.space.remap_file_pages(range, from, Populate::Now)
        };
        let last = i64::MAX as u64 / PAGE;
        world
            .scene("ssss", "1234")
            .refuse(remap(at(0), 0, 0), EMPTY)
            .refuse(remap(at(0), PAGE - 1, 0), EMPTY)
            .refuse(remap(at(0), u64::MAX, 0), EMPTY)
            .refuse(remap(at(0), PAGE, u64::MAX), EMPTY)
            .refuse(remap(at(0), PAGE, last), CallError::OffsetOverflow)
            .refuse(remap(at(0), 2 * PAGE, last - 1), CallError::OffsetOverflow)
            .after("ssss", "1234")
            .call(remap(at(1) + 7, 2 * PAGE - 1, 3))
            .after("s|s|ss", "1434")
            .call(remap(at(0), PAGE, last - 1))
            .after("s|s|ss", ".434");
    });
});
