//! What no safe call can break: arguments of any kind, objects of other instances, guards that are forgotten, sources
//! that panic. `docs/soundness.md` has the whole list.

use super::with_world;
use crate::drawing::{ORIGIN, at};
use crate::world::{RW, Tested, World, anonymous};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, Backing, CallError, FetchError, Guest, Limits, MapOptions,
    MapRequest, ObjectSpec, PAGE, PageSource, PinKind, Placement, Populate, Protection, RemapPlacement, SpaceRef,
    USER_END, VirtAddr, WriteNotice, ZeroSource,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = (PAGE / 8) as usize;

for_each_design!(words_that_leave_a_page_go_on_in_the_next_one, D, {
    with_world::<D>(|world| {
        let scene = world.scene("ww.ww", "");
        let last_word = at(1) - 8;
        let taken = scene.guest.store_words(VirtAddr::new(last_word), &[1, 2, 3]).expect("mapped");
        assert_eq!((taken.count, taken.first_was_present), (2, false));
        let mut words = [0; 4];
        scene.guest.load_words(VirtAddr::new(last_word + 3), &mut words[..3]).expect("mapped");
        assert_eq!(words, [1, 2, 3, 0], "the address is rounded down to its word");
        // More than a page of them, up to the hole: what is mapped is stored.
        let many = vec![7; 2 * WORDS + 1];
        assert_eq!(
            scene.guest.store_words(VirtAddr::new(ORIGIN), &many),
            Err(AccessError::NotMapped { address: VirtAddr::new(at(2)) })
        );
        assert_eq!((scene.load(0), scene.load(1)), (7, 7));
        let mut many = vec![0; 2 * WORDS + 1];
        assert_eq!(
            scene.guest.load_words(VirtAddr::new(at(3) - 8), &mut many),
            Err(AccessError::NotMapped { address: VirtAddr::new(at(3) - 8) })
        );
        scene.guest.load_words(VirtAddr::new(ORIGIN), &mut many[..2 * WORDS]).expect("mapped");
        assert_eq!((many[0], many[2 * WORDS - 1], many[2 * WORDS]), (7, 7, 0));
        // Nothing is touched for nothing, and addresses wrap.
        assert_eq!(scene.guest.store_words(VirtAddr::new(at(2)), &[]).map(|taken| taken.count), Ok(0));
        assert!(scene.guest.store_words(VirtAddr::new(u64::MAX - 8), &[1, 2, 3]).is_err());
        scene.after("ww.ww", "77");
    });
});

// Whatever asks for such an address locks nothing on its account: a range of the last page would wrap around.
for_each_design!(nothing_is_mapped_beyond_user_memory, D, {
    with_world::<D>(|world| {
        let scene = world.scene("w", "");
        for address in [USER_END, 0xffff_8000_0000_0000, u64::MAX - PAGE + 1, u64::MAX - 7, u64::MAX].map(VirtAddr::new)
        {
            let missing = Err(AccessError::NotMapped { address });
            assert_eq!(scene.space.futex_key(address).map(|_| ()), missing);
            assert_eq!(scene.guest.load(address).map(|_| ()), missing);
            assert_eq!(scene.guest.store(address, 1).map(|_| ()), missing);
            for kind in [PinKind::Read, PinKind::Write, PinKind::LongTermRead] {
                assert_eq!(scene.space.pin(address, kind).map(|_| ()), Err(CallError::BadBuffer { address }));
            }
        }
        scene.after("w", "");
    });
});

// An area that claimed to be leaving, or to go on beyond a seam, would be waited for, or not be counted.
for_each_design!(what_an_area_notes_for_itself_can_not_be_asked_for, D, {
    with_world::<D>(|world| {
        let scene = world.scene("", "");
        let mapped = |unnamed: u32| {
            let request = MapRequest {
                protection: Protection::from_bits_retain(RW.bits() | unnamed),
                options: MapOptions::from_bits_retain(unnamed),
                ..anonymous(Some(ORIGIN), PAGE)
            };
            scene.space.mmap(&request).expect("room");
            let mut flags = None;
            scene.space.for_each_area(|area| flags = Some(area.flags));
            let nr_areas = scene.space.nr_areas();
            scene.space.munmap(AddressRange::new(VirtAddr::new(ORIGIN), PAGE)).expect("mapped");
            (flags, nr_areas)
        };
        assert_eq!(mapped(!(Protection::all().bits() | MapOptions::all().bits())), mapped(0));
    });
});

/// Runs `test` with an instance of another machine beside the world's; the machine makes and ends what is its own.
fn with_foreign<D: Tested>(test: impl FnOnce(&World<D>, &Machine)) {
    let region = HostRegion::reserve(32 << 20).expect("the host has room");
    let machine = Machine::new(1);
    let other = on(&machine, || World::<D>::new(&region, 1));
    test(&other, &machine);
    on(&machine, || drop(other));
}

fn on<R: Send>(machine: &Machine, act: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(|| machine.attach(act)).join().expect("no panic"))
}

for_each_design!(objects_of_another_instance_are_refused, D, {
    with_world::<D>(|world| {
        with_foreign::<D>(|other, machine| {
            let spec =
                ObjectSpec { identity: 1, size_bytes: 4 * PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
            let foreign = on(machine, || other.vm.create_object(&spec).expect("room"));
            let refused = CallError::Invalid("the object belongs to another instance");
            assert_eq!(world.vm.truncate(&foreign, PAGE), Err(refused));
            assert_eq!(world.vm.punch(&foreign, 0..PAGE), Err(refused));
            assert_eq!(world.vm.read_object(&foreign, 0, &mut [0]), Err(refused));
            assert_eq!(foreign.size_bytes(), 4 * PAGE, "nothing was done to it");
            let scene = world.scene("", "");
            let request = MapRequest {
                backing: Backing::Object(&foreign, 0),
                protection: (RW | AreaFlags::SHARED).protection(),
                options: (RW | AreaFlags::SHARED).options(),
                ..anonymous(Some(ORIGIN), PAGE)
            };
            assert_eq!(scene.space.mmap(&request), Err(refused));
            on(machine, || drop(foreign));
            scene.after("", "");
        });
    });
});

for_each_design!(a_caller_gets_no_marks_that_only_the_library_gives, D, {
    with_world::<D>(|world| {
        let scene = world.scene("", "");
        let shared = MapRequest {
            protection: (RW | AreaFlags::SHARED).protection(),
            options: (RW | AreaFlags::SHARED).options(),
            ..anonymous(Some(ORIGIN), PAGE)
        };
        assert_eq!(scene.space.mmap(&shared), Err(CallError::Invalid("a shared mapping needs an object")));
        let marked = RW | AreaFlags::INHERITED | AreaFlags::MAYBE_GUARD;
        scene
            .space
            .mmap(&MapRequest {
                protection: marked.protection(),
                options: marked.options(),
                ..anonymous(Some(ORIGIN), PAGE)
            })
            .expect("room");
        scene.space.for_each_area(|area| assert_eq!(area.flags & AreaFlags::IGNORED_BY_JOINS, AreaFlags::empty()));
        scene.after("w", "");
    });
});

/// Panics when it is asked for the first time.
struct Startling(AtomicU64);

impl PageSource for Startling {
    fn fetch(&self, _: u64, _: u64, page: &mut [u8; 4096]) -> Result<(), FetchError> {
        assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 0, "as the test wants it");
        page.fill(7);
        Ok(())
    }
}

for_each_design!(a_source_that_panics_costs_no_frame_and_holds_no_lock, D, {
    with_world::<D>(|world| {
        let source = Box::leak(Box::new(Startling(AtomicU64::new(0))));
        let spec = ObjectSpec { identity: 1, size_bytes: PAGE, source, write_notice: WriteNotice::None };
        let object = world.vm.create_object(&spec).expect("room");
        let scene = world.scene("", "");
        let backing = Backing::Object(&object, 0);
        scene.space.mmap(&MapRequest { backing, ..anonymous(Some(ORIGIN), PAGE) }).expect("room");
        let startled = catch_unwind(AssertUnwindSafe(|| scene.guest.load_byte(VirtAddr::new(ORIGIN))));
        assert!(startled.is_err(), "the panic comes through");
        world.check("after the panic");
        assert_eq!(scene.guest.load_byte(VirtAddr::new(ORIGIN)).expect("the second time").0, 7);
        scene.space.munmap(AddressRange::new(VirtAddr::new(ORIGIN), PAGE)).expect("no lock was left");
    });
});

for_each_design!(guests_and_references_may_be_forgotten, D, {
    with_world::<D>(|world| {
        let scene = world.scene("w", "1");
        std::mem::forget(Guest::new(&scene.space));
        std::mem::forget(scene.space.clone());
        assert_eq!(scene.space.nr_users(), 2);
        scene.guest.store(VirtAddr::new(ORIGIN), 2).expect("mapped");
        scene.call(|scene| scene.munmap(0..1)).after("", "");
        let leaked: SpaceRef<'_, Native, D> = world.space();
        leaked.mmap(&anonymous(Some(ORIGIN), PAGE)).expect("room");
        Guest::new(&leaked).store(VirtAddr::new(ORIGIN), 1).expect("mapped");
        std::mem::forget(leaked);
    });
});

fn startle<T>() -> T {
    panic!("as the test wants it")
}

for_each_design!(callbacks_that_panic_leave_no_lock_behind, D, {
    with_world::<D>(|world| {
        let scene = world.scene("w.r", "1");
        let space = &scene.space;
        assert!(catch_unwind(AssertUnwindSafe(|| space.for_each_area(|_| startle()))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| world.vm.for_each_space(|_| startle()))).is_err());
        let told = catch_unwind(AssertUnwindSafe(|| {
            space.mincore(AddressRange::new(VirtAddr::new(ORIGIN), PAGE), &mut |_| startle())
        }));
        assert!(told.is_err());
        // All of the locks that these held are taken once more.
        let child = scene.fork();
        child.call(|child| child.munmap(0..3)).after("", "");
        scene.call(|scene| scene.advise(0..1, Advice::DontNeed)).after("w.r", "");
    });
});

for_each_design!(calls_take_any_addresses_and_lengths, D, {
    const ODD: [u64; 14] = [
        0,
        1,
        PAGE - 1,
        PAGE,
        ORIGIN - PAGE,
        ORIGIN,
        ORIGIN + 1,
        ORIGIN + 2 * PAGE,
        0x7fff_ffff_e000,
        0x7fff_ffff_f000,
        0x8000_0000_0000,
        1 << 63,
        u64::MAX - PAGE + 1,
        u64::MAX,
    ];
    with_world::<D>(|world| {
        let small = Limits { max_map_count: 64, ..Limits::default() };
        let scene = world.limited(small, "ww.r(4)", "12");
        let space = &scene.space;
        for (start, len) in ODD.iter().flat_map(|&start| ODD.iter().map(move |&len| (start, len))) {
            for placement in [Placement::Hint(VirtAddr::new(start)), Placement::FixedNoReplace(VirtAddr::new(start))] {
                let request = MapRequest { placement, len_bytes: len, ..anonymous(None, PAGE) };
                let made = space.mmap(&MapRequest { populate: Populate::OnFault, ..request });
                if let Ok(made) = made {
                    space.munmap(AddressRange::new(made, len)).expect("just mapped");
                }
            }
            let _ = space.mprotect(AddressRange::new(VirtAddr::new(start), len), (AreaFlags::all()).protection());
            let _ = space.mprotect_stack(AddressRange::new(VirtAddr::new(start), len), RW.protection());
            let _ = space.remap_file_pages(AddressRange::new(VirtAddr::new(start), len), start, Populate::Now);
            for advice in [Advice::Free, Advice::PageOut, Advice::GuardRemove, Advice::Mergeable, Advice::Remove] {
                let _ = space.madvise(AddressRange::new(VirtAddr::new(start), len), advice);
            }
            for placement in [
                RemapPlacement::Hint(VirtAddr::new(start)),
                RemapPlacement::MoveTo(VirtAddr::new(start)),
                RemapPlacement::InPlace,
            ] {
                for old_start in [ORIGIN, start] {
                    let _ = space.mremap(&faultless_vm::RemapRequest {
                        old: AddressRange::new(VirtAddr::new(old_start), PAGE),
                        new_len_bytes: len,
                        placement,
                        keeps_source: len == PAGE,
                    });
                }
            }
            let _ =
                space.mincore(AddressRange::new(VirtAddr::new(start), len), &mut |_| std::ops::ControlFlow::Break(()));
            let _ = (space.search(len), space.search_unlocked(len), space.entry_at(VirtAddr::new(start)));
            let _ = (
                scene.guest.load(VirtAddr::new(start)),
                scene.guest.store_byte(VirtAddr::new(start), 1),
                scene.guest.fetch(VirtAddr::new(start)),
            );
            space.brk(VirtAddr::new(start));
        }
        world.check("after all of them");
    });
});
