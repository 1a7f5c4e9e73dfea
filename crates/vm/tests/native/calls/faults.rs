//! What an access finds: how often it faults, what it may do, and how bytes are copied across pages.

use super::{BASE, with_world};
use crate::world::{RW, Tested, anonymous};
use faultless_platform::native::Native;
use faultless_vm::{
    Access, AccessError, AddressRange, AreaFlags, CallError, Event, Guest, Limits, MapRequest, Mode, PAGE, PageLock,
    Protection, Resolution, VirtAddr,
};

for_each_design!(a_page_faults_once_and_keeps_its_value, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let address = space.mmap(&anonymous(None, 3 * PAGE)).expect("room");
        let taken = guest.store(address, 5).expect("mapped");
        assert_eq!((taken.count, taken.first_was_present), (1, false));
        assert_eq!(guest.load(address).expect("mapped").0, 5);
        assert_eq!(guest.load(address).expect("mapped").1.count, 0);
        assert_eq!(space.resident_pages(), 1);
    });
});

for_each_design!(a_load_then_a_store_of_fresh_memory_are_two_faults, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let address = space.mmap(&anonymous(None, PAGE)).expect("room");
        assert_eq!(guest.load(address).expect("mapped").1.count, 1);
        let taken = guest.store(address, 1).expect("mapped");
        assert_eq!((taken.count, taken.first_was_present), (1, true));
    });
});

for_each_design!(one_user_does_not_speculate_and_two_do, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        let total = |event| world.vm.events().total(event);
        space.mmap(&anonymous(Some(BASE), 8 * PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE), 1).expect("mapped");
        // Whoever faults tries an area first; its first store needs a reverse-map root, which `faultless` gives.
        let (alone, gives) = (u64::from(D::NAME == "vma-lock"), u64::from(D::ROOTS_FREELY));
        assert_eq!((total(Event::Spf), total(Event::SpfFailed)), (gives, alone));
        let _second = Guest::new(&space);
        guest.store(VirtAddr::new(BASE + PAGE), 1).expect("mapped");
        let speculates = u64::from(D::NAME != "mmap-sem");
        assert_eq!((total(Event::Spf), total(Event::SpfFailed)), (speculates + gives, alone));
        assert!(guest.store(VirtAddr::new(BASE + 0x100_0000), 1).is_err());
        space.mmap(&anonymous(Some(BASE + 0x200_0000), PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE + 0x200_0000), 1).expect("mapped");
        assert_eq!(total(Event::SpfVmaChanged), speculates, "no area there");
        assert_eq!(total(Event::SpfVmaNoanon), speculates + alone - gives, "the first write of an area");
        assert_eq!(total(Event::SpfFailed), 2 * speculates + alone - gives);
    });
});

// Writers that see no second user look out for no fault without the semaphore.
for_each_design!(without_a_user_the_designs_that_speculate_do_not, D, {
    with_world::<D>(|world| {
        let space = world.space();
        space.mmap(&anonymous(Some(BASE), PAGE)).expect("room");
        let handled = space.handle_fault(VirtAddr::new(BASE), Access::Write, Mode::User);
        assert_eq!(handled, Resolution::Resolved);
        let nr_tried = world.vm.events().total(Event::Spf) + world.vm.events().total(Event::SpfFailed);
        let looks_by_itself = D::NAME == "vma-lock" || D::ROOTS_FREELY;
        assert_eq!(nr_tried, u64::from(looks_by_itself));
    });
});

for_each_design!(protection_is_enforced_and_an_upgrade_needs_no_fault, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 2 * PAGE)).expect("room");
        guest.store(VirtAddr::new(BASE), 9).expect("mapped");
        space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::READ).expect("mapped");
        assert_eq!(guest.store(VirtAddr::new(BASE), 1), Err(AccessError::Forbidden { address: VirtAddr::new(BASE) }));
        assert_eq!(guest.load(VirtAddr::new(BASE)).expect("readable").0, 9);
        space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::empty()).expect("mapped");
        assert_eq!(guest.load(VirtAddr::new(BASE)), Err(AccessError::Forbidden { address: VirtAddr::new(BASE) }));
        space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), RW.protection()).expect("mapped");
        assert_eq!(guest.store(VirtAddr::new(BASE), 2).expect("writable").count, 0, "the page is ours alone");
        assert_eq!(guest.fetch(VirtAddr::new(BASE)), Err(AccessError::Forbidden { address: VirtAddr::new(BASE) }));
        let hole = BASE + 2 * PAGE;
        assert_eq!(
            space.mprotect(AddressRange::new(VirtAddr::new(BASE), 4 * PAGE), Protection::READ),
            Err(CallError::Unmapped { address: VirtAddr::new(hole) })
        );
        assert_eq!(
            guest.store(VirtAddr::new(BASE), 1),
            Err(AccessError::Forbidden { address: VirtAddr::new(BASE) }),
            "the part before is changed"
        );
    });
});

for_each_design!(memory_to_fetch_from_is_loaded_from_unless_there_are_keys, D, {
    with_world::<D>(|world| {
        let (execute, by_key) =
            (AreaFlags::EXEC | AreaFlags::EXECUTE_ONLY, AccessError::ForbiddenByKey { address: VirtAddr::new(BASE) });
        for has_protection_keys in [false, true] {
            let limits = Limits { has_protection_keys, ..Limits::default() };
            let space = world.vm.create_space(limits).expect("room for a space");
            let guest = Guest::new(&space);
            let is_loaded = |guest: &Guest<'_, _, D>| match guest.load(VirtAddr::new(BASE)) {
                Ok((value, _)) => value == 9,
                Err(error) => {
                    assert_eq!(error, by_key);
                    assert_eq!(guest.store(VirtAddr::new(BASE), 1), Err(by_key), "the key comes before the rights");
                    false
                }
            };
            space.mmap(&anonymous(Some(BASE), 2 * PAGE)).expect("room");
            guest.store(VirtAddr::new(BASE), 9).expect("mapped");
            // The TLB knows the page, which was there when the key came.
            space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), execute.protection()).expect("mapped");
            assert_eq!(is_loaded(&guest), !has_protection_keys);
            guest.fetch(VirtAddr::new(BASE)).expect("a key forbids no fetch");
            assert_eq!(
                space.mlock(AddressRange::new(VirtAddr::new(BASE), PAGE), PageLock::Lock).is_ok(),
                !has_protection_keys,
                "its pages can't be had"
            );
            let child = space.fork().expect("room");
            assert_eq!(is_loaded(&Guest::new(&child)), !has_protection_keys);
            drop(child);
            // Other rights beside it drop the key, and so does asking for none.
            for rights in [execute | AreaFlags::READ, AreaFlags::EXEC] {
                space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), rights.protection()).expect("mapped");
                assert!(is_loaded(&guest));
                space.mlock(AddressRange::new(VirtAddr::new(BASE), PAGE), PageLock::Unlock).expect("mapped");
                world.check("after a key was dropped");
                space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), execute.protection()).expect("mapped");
                assert_eq!(is_loaded(&guest), !has_protection_keys);
                world.check("after a key was given");
            }
            let fresh = MapRequest {
                protection: execute.protection(),
                options: execute.options(),
                ..anonymous(Some(BASE), PAGE)
            };
            space.mmap(&fresh).expect("room");
            assert_eq!(guest.load(VirtAddr::new(BASE)).is_ok(), !has_protection_keys);
        }
    });
});

for_each_design!(bytes_are_read_and_written_across_pages_and_an_error_says_how_many_were, D, {
    with_world::<D>(|world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), 3 * PAGE)).expect("room");
        let bytes: Vec<u8> = (0..2 * PAGE + 10).map(|place| (place % 251) as u8).collect();
        let start = BASE + PAGE - 5;
        assert_eq!(guest.write_bytes(VirtAddr::new(BASE), &[]), Ok(()));
        assert_eq!(space.resident_pages(), 0, "nothing is touched for nothing");
        guest.write_bytes(VirtAddr::new(start - 1), &bytes).expect_err("the last bytes lie behind the area");
        guest.write_bytes(VirtAddr::new(start), &bytes[..2 * PAGE as usize + 5]).expect("mapped");
        let mut read = vec![0xff; bytes.len()];
        guest.read_bytes(VirtAddr::new(start), &mut read[..2 * PAGE as usize + 5]).expect("mapped");
        assert_eq!(read[..2 * PAGE as usize + 5], bytes[..2 * PAGE as usize + 5]);
        assert_eq!(read[2 * PAGE as usize + 5..], [0xff; 5], "nothing behind what was asked for");
        assert_eq!(
            guest.load_byte(VirtAddr::new(start - 1)).expect("mapped").0,
            bytes[0],
            "what came before the error is written"
        );
        let hole = BASE + 3 * PAGE;
        let missing = AccessError::NotMapped { address: VirtAddr::new(hole) };
        assert_eq!(guest.write_bytes(VirtAddr::new(hole - 7), &bytes[..20]), Err((7, missing)));
        read.fill(0xff);
        assert_eq!(guest.read_bytes(VirtAddr::new(hole - 7), &mut read[..20]), Err((7, missing)));
        assert_eq!((&read[..7], &read[7..20]), (&bytes[..7], &[0xff; 13][..]), "so many, and no more");
        space.mprotect(AddressRange::new(VirtAddr::new(BASE + PAGE), PAGE), Protection::READ).expect("mapped");
        let forbidden = AccessError::Forbidden { address: VirtAddr::new(BASE + PAGE) };
        assert_eq!(guest.write_bytes(VirtAddr::new(start), &bytes[..10]), Err((5, forbidden)));
        guest.read_bytes(VirtAddr::new(start), &mut read).expect_err("behind the end");
        let outside = 0x8000_0000_0000 - 3;
        assert!(matches!(
            guest.read_bytes(VirtAddr::new(outside), &mut read[..6]),
            Err((0, AccessError::NotMapped { .. }))
        ));
        let wraps = u64::MAX - 2;
        assert!(matches!(guest.write_bytes(VirtAddr::new(wraps), &bytes[..6]), Err((0, _))));
    });
});
