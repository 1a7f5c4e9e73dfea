//! A long munmap shares the semaphore half way, and is one step all the same: both are seen while it is held up.
//!
//! A CPU that stays in guest state holds a shootdown up, and with it whoever unmaps. This one lets it go on bit by bit.

use crate::world::{Tested, World, anonymous, is_soon, leave_guest, stand_in_guest};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Processor, Threads};
use faultless_sync::Side;
use faultless_vm::design::MapLock;
use faultless_vm::{AccessError, AddressRange, Advice, Guest, Limits, PAGE, SpaceRef, VirtAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What is unmapped: page tables of more pages than are shot down at a time, and of more than twice as many.
const REMOVED: u64 = 0x10_0000_0000;
const REMOVED_PAGES: u64 = 44 * 512;
const LAST: u64 = REMOVED + (REMOVED_PAGES - 1) * PAGE;
/// What stays, and nobody has touched: the first store to it reads the semaphore under every design.
const UNTOUCHED: u64 = 0x20_0000_0000;
/// What stays, and is in the tables.
const TOUCHED: u64 = 0x30_0000_0000;
/// What is mapped meanwhile, under a design that lets it.
const MAPPED: u64 = 0x40_0000_0000;
/// How long the unmapping is held up each time.
const STOP: Duration = Duration::from_millis(20);

/// Says whether the last page is still there. The caller is in guest state.
fn is_under_way<D: Tested>(space: &SpaceRef<'_, Native, D>) -> bool {
    !space.entry_at(VirtAddr::new(LAST)).is_empty()
}

/// Says whether calls about other addresses go on beside a long unmapping.
const fn lets_calls_elsewhere<D: Tested>() -> bool {
    D::REMOVES_APART || <D::Lock as MapLock<Native>>::DIVIDES
}

for_each_design!(a_fault_elsewhere_goes_on_and_one_inside_waits_for_the_end, D, {
    let region = HostRegion::reserve(160 << 20).expect("the host has room");
    let machine = Machine::new(3);
    let world = machine.attach(|| World::<D>::new(&region, 3));
    let space = machine.attach(|| {
        let space = world.vm.create_space(Limits::default()).expect("room");
        let guest = Guest::new(&space);
        for (at, len_bytes) in [(REMOVED, REMOVED_PAGES * PAGE), (UNTOUCHED, PAGE), (TOUCHED, PAGE)] {
            space.mmap(&anonymous(Some(at), len_bytes)).expect("room");
        }
        for page in 0..REMOVED_PAGES {
            guest.store(VirtAddr::new(REMOVED + page * PAGE), 1).expect("mapped");
        }
        guest.store(VirtAddr::new(TOUCHED), 1).expect("mapped");
        drop(guest);
        space
    });
    let (may_begin, has_stored, has_failed) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let (stored_in_time, has_mapped, mapped_in_time) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    Native::run(&machine, 3, &|thread| {
        Native::enter();
        let guest = Guest::new(&space);
        match thread {
            0 => {
                Native::spin_until(|| may_begin.load(Ordering::SeqCst));
                space.munmap(AddressRange::new(VirtAddr::new(REMOVED), REMOVED_PAGES * PAGE)).expect("valid");
            }
            1 => {
                Native::spin_until(|| space.entry_at(VirtAddr::new(REMOVED)).is_empty());
                guest.store(VirtAddr::new(UNTOUCHED), 1).expect("mapped");
                has_stored.store(true, Ordering::SeqCst);
                if lets_calls_elsewhere::<D>() {
                    space.mmap(&anonymous(Some(MAPPED), PAGE)).expect("room");
                    has_mapped.store(true, Ordering::SeqCst);
                }
                assert_eq!(
                    guest.load(VirtAddr::new(REMOVED)).map(drop),
                    Err(AccessError::NotMapped { address: VirtAddr::new(REMOVED) })
                );
                has_failed.store(true, Ordering::SeqCst);
            }
            _ => {
                let mut goes_on = true;
                while goes_on {
                    stand_in_guest(&guest, TOUCHED);
                    may_begin.store(true, Ordering::SeqCst);
                    if is_soon(&has_stored, STOP) && is_under_way(&space) {
                        stored_in_time.store(true, Ordering::SeqCst);
                        if lets_calls_elsewhere::<D>() && is_soon(&has_mapped, STOP) && is_under_way(&space) {
                            mapped_in_time.store(true, Ordering::SeqCst);
                        }
                        let failed_early = is_soon(&has_failed, STOP) && is_under_way(&space);
                        assert!(!failed_early, "an access failed before all that was unmapped was gone");
                    }
                    goes_on = is_under_way(&space);
                    leave_guest();
                }
            }
        }
        drop(guest);
        Native::leave();
    });
    assert!(stored_in_time.load(Ordering::SeqCst), "a fault elsewhere had to wait for all of the munmap");
    let is_as_promised = mapped_in_time.load(Ordering::SeqCst) || !lets_calls_elsewhere::<D>();
    assert!(is_as_promised, "a call elsewhere had to wait for all of the munmap");
    machine.attach(|| world.check("invariants"));
    machine.attach(|| drop(space));
    machine.attach(|| drop(world));
});

// Where no frame is left, frames are freed a few at a time, and the next few begin behind them; so once at the first
// page of a table, whichever number that is.
for_each_design!(what_is_freed_in_parts_ends_where_it_should, D, {
    /// More pages than are freed at a time.
    const MOST: u64 = 300;
    World::<D>::run(1, 4 << 20, |world| {
        let space = world.space();
        let guest = Guest::new(&space);
        // The first page of a table.
        let table = REMOVED + 512 * PAGE;
        let store = |page: u64| guest.store(VirtAddr::new(page), 7);
        for (at, nr_pages) in [(table - MOST * PAGE, MOST + 512), (UNTOUCHED, 4096)] {
            space.mmap(&anonymous(Some(at), nr_pages * PAGE)).expect("room");
        }
        let last = table + 511 * PAGE;
        store(last).expect("room");
        let pages = |nr_before: u64| (0..=nr_before).map(move |page| table - page * PAGE);
        for page in pages(MOST) {
            store(page).expect("room");
        }
        let nr_filled = (0..4096).take_while(|page| store(UNTOUCHED + page * PAGE).is_ok()).count();
        assert!(nr_filled < 4096, "there are frames left");
        for nr_before in 1..=MOST {
            let part = AddressRange::new(VirtAddr::new(table - nr_before * PAGE), (nr_before + 1) * PAGE);
            space.madvise(part, Advice::DontNeed).expect("mapped");
            assert_eq!(guest.load(VirtAddr::new(last)).expect("mapped").0, 7, "after {nr_before} pages and one");
            for page in pages(nr_before) {
                store(page).expect("those that came free");
            }
        }
        drop(guest);
        world.check("invariants");
    });
});

for_each_design!(who_waits_for_a_space_is_counted_by_its_instance, D, {
    // There nobody waits for who is elsewhere.
    if <D::Lock as MapLock<Native>>::DIVIDES {
        return;
    }
    let region = HostRegion::reserve(16 << 20).expect("the host has room");
    let machine = Machine::new(3);
    let world = machine.attach(|| World::<D>::new(&region, 3));
    let waits = || world.vm.lock_stats().figures(Side::Write);
    // In most rounds the second thread comes while the first is held up; never say never.
    for _ in 0..100 {
        if waits().nr_contended > 0 {
            break;
        }
        machine.attach(|| hold_up_a_writer(&world, &machine));
    }
    let waits = machine.attach(waits);
    assert!(waits.nr_contended > 0 && waits.wait_ns >= waits.longest_wait_ns && waits.longest_wait_ns > 0, "{waits:?}");
    machine.attach(|| drop(world));
});

/// Lets one thread unmap a page, which a second holds up from guest state, and a third map one meanwhile.
fn hold_up_a_writer<D: Tested>(world: &World<D>, machine: &Machine) {
    let space = world.space();
    for at in [REMOVED, TOUCHED] {
        space.mmap(&anonymous(Some(at), PAGE)).expect("room");
    }
    let guest = Guest::new(&space);
    for at in [REMOVED, TOUCHED] {
        guest.store(VirtAddr::new(at), 1).expect("mapped");
    }
    stand_in_guest(&guest, TOUCHED);
    let comes = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope
            .spawn(|| machine.attach(|| space.munmap(AddressRange::new(VirtAddr::new(REMOVED), PAGE)).expect("valid")));
        scope.spawn(|| {
            machine.attach(|| {
                Native::spin_until(|| space.nr_areas() == 1);
                comes.store(true, Ordering::SeqCst);
                space.mmap(&anonymous(Some(UNTOUCHED), PAGE)).expect("room");
            });
        });
        is_soon(&comes, 100 * STOP);
        is_soon(&AtomicBool::new(false), STOP / 4);
        leave_guest();
    });
}
