//! mremap: what is moved, what is kept, and what a failed move leaves.

use super::{BASE, with_world};
use crate::world::{Tested, World, anonymous, lines};
use faultless_platform::native::Native;
use faultless_vm::{AccessError, AddressRange, CallError, Guest, Limits, PAGE, RemapPlacement, RemapRequest, VirtAddr};

for_each_design!(remapping_moves_pages_and_leaves_nothing, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 4 * PAGE)).expect("room");
        for page in 0..4 {
            guest.store(VirtAddr::new(BASE + page * PAGE), page + 1).expect("mapped");
        }
        let target = BASE + 0x4000_0000;
        let request = |old_start, old_len_bytes, new_len_bytes, placement| RemapRequest {
            old: AddressRange::new(VirtAddr::new(old_start), old_len_bytes),
            new_len_bytes,
            placement,
            keeps_source: false,
        };
        let moved = request(BASE + PAGE, 2 * PAGE, 3 * PAGE, RemapPlacement::Fixed(VirtAddr::new(target)));
        assert_eq!(space.mremap(&moved), Ok(VirtAddr::new(target)));
        assert_eq!(guest.load(VirtAddr::new(target)).expect("moved").0, 2);
        assert_eq!(guest.load(VirtAddr::new(target + 2 * PAGE)).expect("grown").0, 0);
        assert_eq!(
            guest.load(VirtAddr::new(BASE + PAGE)),
            Err(AccessError::NotMapped { address: VirtAddr::new(BASE + PAGE) })
        );
        assert_eq!(guest.load(VirtAddr::new(BASE + 3 * PAGE)).expect("stays").0, 4);
        let shrunk = request(target, 3 * PAGE, PAGE, RemapPlacement::InPlace);
        assert_eq!(space.mremap(&shrunk), Ok(VirtAddr::new(target)));
        let grown = request(target, PAGE, 6 * PAGE, RemapPlacement::InPlace);
        assert_eq!(space.mremap(&grown), Ok(VirtAddr::new(target)));
        let blocked = request(BASE, PAGE, 10 * PAGE, RemapPlacement::InPlace);
        assert!(space.mremap(&blocked).is_err());
    });
});

for_each_design!(a_failed_move_keeps_the_target_and_no_tables, D, {
    use faultless_phys::Failing;
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let target = BASE + 0x8000_0000;
        space.mmap(&anonymous(Some(BASE), 3 * PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE + PAGE), 5).expect("mapped");
        space.mmap(&anonymous(Some(target), PAGE)).expect("room");
        guest.store(VirtAddr::new(target), 77).expect("mapped");
        for nth in 1..100 {
            world.vm.memory().set_failing(Failing::Once(nth));
            let moved = space.mremap(&RemapRequest {
                old: AddressRange::new(VirtAddr::new(BASE + PAGE), PAGE),
                new_len_bytes: PAGE,
                placement: RemapPlacement::Fixed(VirtAddr::new(target)),
                keeps_source: false,
            });
            world.vm.memory().set_failing(Failing::Never);
            world.check("invariants");
            if moved.is_ok() {
                assert!(nth > 1);
                assert_eq!(guest.load(VirtAddr::new(target)).expect("moved").0, 5);
                return;
            }
            assert_eq!(guest.load(VirtAddr::new(target)).expect("the target is untouched").0, 77);
        }
        panic!("mremap never succeeded");
    });
});

for_each_design!(a_move_at_the_area_limit_changes_nothing, D, {
    World::<D>::run(1, 64 << 20, |world| {
        let space = world.vm.create_space(Limits { max_map_count: 2, ..Limits::default() }).expect("room");
        space.mmap(&anonymous(Some(BASE), 3 * PAGE)).expect("room");
        let request = RemapRequest {
            old: AddressRange::new(VirtAddr::new(BASE + PAGE), PAGE),
            new_len_bytes: PAGE,
            placement: RemapPlacement::Fixed(VirtAddr::new(BASE + 16 * PAGE)),
            keeps_source: false,
        };
        assert_eq!(space.mremap(&request), Err(CallError::TooManyAreas { limit: 2 }));
        assert_eq!(lines(&space), ["AAA"]);
        world.check("invariants");
    });
});

for_each_design!(a_kept_source_is_empty_and_an_old_length_of_0_needs_a_shared_mapping, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let target = BASE + 0x100_0000;
        space.mmap(&anonymous(Some(BASE), 2 * PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE), 6).expect("mapped");
        let mut request = RemapRequest {
            old: AddressRange::new(VirtAddr::new(BASE), 2 * PAGE),
            new_len_bytes: 2 * PAGE,
            placement: RemapPlacement::MoveTo(VirtAddr::new(target)),
            keeps_source: true,
        };
        assert_eq!(space.mremap(&request), Ok(VirtAddr::new(target)));
        assert_eq!(
            (guest.load(VirtAddr::new(BASE)).expect("mapped").0, guest.load(VirtAddr::new(target)).expect("mapped").0),
            (0, 6)
        );
        request = RemapRequest { old: AddressRange { len_bytes: 0, ..request.old }, keeps_source: false, ..request };
        assert!(space.mremap(&request).is_err());
        assert!(space.mremap(&RemapRequest { placement: RemapPlacement::InPlace, ..request }).is_err());
    });
});
