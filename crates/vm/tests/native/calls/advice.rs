//! What advice does to pages, now and at the next fork.

use super::{BASE, with_world};
use crate::world::{Tested, anonymous, lines};
use faultless_platform::native::Native;
use faultless_vm::{AddressRange, Advice, Guest, MapRequest, PAGE, PageLock, Populate, VirtAddr};

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
        let request = MapRequest { populate: Populate::Now, ..anonymous(Some(BASE), 5 * PAGE) };
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
