//! Pins: pages held without a mapping.

use super::with_world;
use crate::drawing::{PATTERN, at};
use crate::world::{RW, Tested};
use faultless_platform::native::Native;
use faultless_vm::{
    AreaFlags, Backing, CallError, MapRequest, PAGE, Pattern, Pin, PinKind, Placement, Populate, VirtAddr,
};

fn word(pin: &Pin<'_, Native>) -> u64 {
    let mut words = [0];
    pin.read(0, &mut words);
    words[0]
}

fn request<'a>(handle: &'a faultless_vm::ReferenceHandle<'a, Native>, flags: AreaFlags) -> MapRequest<'a, Native> {
    MapRequest {
        placement: Placement::Fixed(VirtAddr::new(at(0))),
        len_bytes: 4 * PAGE,
        protection: flags.protection(),
        options: flags.options(),
        backing: Backing::Reference(handle, 0),
        populate: Populate::OnFault,
    }
}

for_each_design!(a_reference_page_is_held_or_copied, D, {
    with_world::<D>(|world| {
        let handle = world.vm.create_repeated(Pattern::Byte(0xaa)).expect("room");
        let page = handle.page();
        let scene = world.scene("", "").call(|s| s.space.mmap(&request(&handle, RW)));
        let read = scene.space.pin(VirtAddr::new(at(0)), PinKind::Read).expect("mapped");
        assert_eq!((read.frame(), word(&read)), (page, PATTERN));
        assert!(!read.write(0, &[1]), "pinned for reading");
        let write = scene.space.pin(VirtAddr::new(at(1) + 100), PinKind::Write).expect("mapped");
        assert!(write.frame() != page && write.write(0, &[7]) && word(&write) == 7);
        let long = scene.space.pin(VirtAddr::new(at(2)), PinKind::LongTermRead).expect("mapped");
        assert!(long.frame() != page && word(&long) == PATTERN);
        let scene = scene.after("pppp", "p7c").counts([1, 4, 4, 0, 2]);
        // Pins outlive the mapping and the handle.
        drop(handle);
        let scene = scene.call(|s| s.munmap(0..4)).after("", "").counts([0; 5]);
        world.vm.flush();
        world.check("pinned");
        assert_eq!([&read, &write, &long].map(word), [PATTERN, 7, PATTERN]);
        // And end on a thread without a CPU.
        std::thread::scope(|scope| scope.spawn(|| drop((read, write, long))).join().expect("no panic"));
        world.vm.flush();
        let mut nr_left = 0;
        world.vm.for_each_pin(|_| nr_left += 1);
        world.vm.for_each_reference(|_| nr_left += 1);
        assert_eq!(nr_left, 0);
        drop(scene);
    });
});

for_each_design!(a_long_term_pin_of_read_only_memory_copies_and_gives_no_right, D, {
    with_world::<D>(|world| {
        let handle = world.vm.create_repeated(Pattern::Byte(0xaa)).expect("room");
        let scene = world.scene("", "").call(|s| s.space.mmap(&request(&handle, AreaFlags::READ)));
        let long = scene.space.pin(VirtAddr::new(at(1)), PinKind::LongTermRead).expect("mapped");
        assert!(long.frame() != handle.page());
        let scene = scene.after("qqqq", ".c");
        assert!(scene.store(1, 1).is_err());
        assert_eq!(
            scene.space.pin(VirtAddr::new(at(1)), PinKind::Write).map(drop),
            Err(CallError::BadBuffer { address: VirtAddr::new(at(1)) })
        );
        // The page may be written later, and is the pinned one while nobody shares it.
        let scene = scene.call(|s| s.protect(0..4, RW));
        scene.put(1, 9);
        assert_eq!(word(&long), 9);
        // What can't be copied on write is pinned as it is.
        let shared = world.scene("", "").call(|s| s.space.mmap(&request(&handle, AreaFlags::READ | AreaFlags::SHARED)));
        assert_eq!(
            shared.space.pin(VirtAddr::new(at(1)), PinKind::LongTermRead).expect("mapped").frame(),
            handle.page()
        );
    });
});

for_each_design!(other_pages_are_counted, D, {
    with_world::<D>(|world| {
        let scene = world.scene("wwrr", "1.zz");
        let read = scene.space.pin(VirtAddr::new(at(0)), PinKind::Read).expect("mapped");
        let zero = scene.space.pin(VirtAddr::new(at(1)), PinKind::Read).expect("mapped");
        assert_eq!((word(&read), word(&zero), zero.frame()), (1, 0, world.vm.zero_page()));
        let long = scene.space.pin(VirtAddr::new(at(2)), PinKind::LongTermRead).expect("mapped");
        assert!(long.frame() != world.vm.zero_page());
        let scene = scene.after("wwrr", "1z0z");
        // Nobody shares the page, so stores still reach it; a guarded or unmapped one can't be pinned.
        scene.put(0, 2);
        assert_eq!(word(&read), 2);
        let scene = scene.call(|s| s.munmap(0..1));
        assert_eq!(word(&read), 2);
        assert_eq!(
            scene.space.pin(VirtAddr::new(at(0)), PinKind::Read).map(drop),
            Err(CallError::BadBuffer { address: VirtAddr::new(at(0)) })
        );
        world.check("pinned");
    });
});
