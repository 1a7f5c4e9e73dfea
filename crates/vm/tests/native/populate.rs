//! Pages that one thread asks for ahead, while others touch them.

use crate::world::{Tested, World, anonymous};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Processor, Threads};
use faultless_sync::Barrier;
use faultless_vm::{AddressRange, Advice, Guest, Limits, PAGE, VirtAddr};
use std::sync::atomic::{AtomicU64, Ordering};

const BASE: u64 = 0x10_0000_0000;
const PAGES: u64 = 512;

for_each_design!(populating_for_stores_leaves_no_page_that_a_load_made_first, D, {
    const ROUNDS: usize = 60;
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(2);
    let world = machine.attach(|| World::<D>::new(&region, 2));
    let space = machine.attach(|| world.vm.create_space(Limits::default()).expect("room"));
    let barrier = Barrier::<Native>::new(2);
    let (populated, nr_faults) = (AtomicU64::new(0), AtomicU64::new(0));
    Native::run(&machine, 2, &|thread| {
        Native::enter();
        let guest = Guest::new(&space);
        for _ in 0..ROUNDS {
            if thread == 0 {
                space.mmap(&anonymous(Some(BASE), PAGES * PAGE)).expect("room");
                // The first store gives the area its root, so that the others need not share the semaphore.
                guest.store(VirtAddr::new(BASE), 1).expect("mapped");
                populated.store(1, Ordering::SeqCst);
            }
            barrier.wait();
            if thread == 0 {
                // A few pages at a time, so that the loads keep pace.
                for page in (1..PAGES - 1).step_by(2) {
                    populated.store(page, Ordering::SeqCst);
                    space
                        .madvise(AddressRange::new(VirtAddr::new(BASE + page * PAGE), 2 * PAGE), Advice::PopulateWrite)
                        .expect("mapped");
                    for address in [page, page + 1].map(|page| BASE + page * PAGE) {
                        let taken = guest.store(VirtAddr::new(address), 1).expect("mapped");
                        nr_faults.fetch_add(u64::from(taken.count), Ordering::SeqCst);
                    }
                }
                populated.store(PAGES, Ordering::SeqCst);
            } else {
                loop {
                    match populated.load(Ordering::SeqCst) {
                        PAGES => break,
                        page => [page, page + 1]
                            .map(|page| guest.load(VirtAddr::new(BASE + page * PAGE)).expect("mapped").0),
                    };
                }
            }
            barrier.wait();
        }
        Native::leave();
    });
    assert_eq!(nr_faults.load(Ordering::SeqCst), 0, "stores that faulted although their pages were asked for");
    machine.attach(|| {
        drop(space);
        world.check("invariants");
    });
    machine.attach(|| drop(world));
});
