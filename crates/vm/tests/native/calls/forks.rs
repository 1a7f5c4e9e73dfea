//! Whose a page is after a fork.

use super::{BASE, mapping, with_world};
use crate::world::{RW, Tested, anonymous};
use faultless_platform::native::Native;
use faultless_vm::{
    AddressRange, AreaFlags, Event, Guest, ObjectSpec, PAGE, Protection, VirtAddr, WriteNotice, ZeroSource,
};

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
