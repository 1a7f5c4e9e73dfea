//! Who joins a space as its second user waits for the writer at work, who may rely on there being one user.
//!
//! A CPU that stays in guest state holds a shootdown up, and with it whoever unmaps.

use crate::world::{Tested, World, anonymous, is_soon, leave_guest, stand_in_guest};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Processor, Threads};
use faultless_vm::{AddressRange, Guest, Limits, PAGE, VirtAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const REMOVED: u64 = 0x10_0000_0000;
const TOUCHED: u64 = 0x30_0000_0000;
/// How long the unmapping is held up.
const STOP: Duration = Duration::from_millis(20);

for_each_design!(a_second_user_waits_for_the_writer_at_work, D, {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(3);
    let world = machine.attach(|| World::<D>::new(&region, 3));
    let space = machine.attach(|| world.vm.create_space(Limits::default()).expect("room"));
    let (may_begin, may_join, has_joined) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    Native::run(&machine, 3, &|thread| {
        Native::enter();
        match thread {
            0 => {
                let guest = Guest::new(&space);
                for at in [REMOVED, TOUCHED] {
                    space.mmap(&anonymous(Some(at), PAGE)).expect("room");
                    guest.store(VirtAddr::new(at), 1).expect("mapped");
                }
                stand_in_guest(&guest, TOUCHED);
                may_begin.store(true, Ordering::SeqCst);
                while space.nr_areas() == 2 {
                    std::thread::yield_now();
                }
                // The writer has published its change, and waits for this CPU.
                may_join.store(true, Ordering::SeqCst);
                let joined_in_between = is_soon(&has_joined, STOP);
                let nr_users = space.nr_users();
                leave_guest();
                assert!(!joined_in_between, "a second user came while a writer was at work");
                assert_eq!(nr_users, 1);
                Native::spin_until(|| has_joined.load(Ordering::SeqCst));
            }
            1 => {
                Native::spin_until(|| may_begin.load(Ordering::SeqCst));
                space.munmap(AddressRange::new(VirtAddr::new(REMOVED), PAGE)).expect("valid");
            }
            _ => {
                Native::spin_until(|| may_join.load(Ordering::SeqCst));
                let guest = Guest::new(&space);
                assert!(guest.load(VirtAddr::new(REMOVED)).is_err(), "joined after the unmapping");
                has_joined.store(true, Ordering::SeqCst);
            }
        }
        Native::leave();
    });
    machine.attach(|| world.check("invariants"));
    machine.attach(|| drop(space));
    machine.attach(|| drop(world));
});

for_each_design!(what_another_cpu_looks_at_waits_for_a_grace_period, D, {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(2);
    let world = machine.attach(|| World::<D>::new(&region, 2));
    let space = machine.attach(|| world.vm.create_space(Limits::default()).expect("room"));
    let (is_alone_over, has_looked) = (AtomicBool::new(false), AtomicBool::new(false));
    Native::run(&machine, 2, &|thread| {
        Native::enter();
        if thread == 0 {
            let guest = Guest::new(&space);
            let rcu = world.vm.memory().rcu();
            let come_and_go = || {
                for _ in 0..4 {
                    space.mmap(&anonymous(Some(REMOVED), PAGE)).expect("room");
                    guest.store(VirtAddr::new(REMOVED), 1).expect("mapped");
                    space.munmap(AddressRange::new(VirtAddr::new(REMOVED), PAGE)).expect("valid");
                }
            };
            come_and_go();
            assert_eq!(rcu.nr_deferred(), 0, "nobody else looks");
            is_alone_over.store(true, Ordering::SeqCst);
            Native::spin_until(|| has_looked.load(Ordering::SeqCst));
            come_and_go();
            assert!(rcu.nr_deferred() > 0, "another CPU may look");
        } else {
            Native::spin_until(|| is_alone_over.load(Ordering::SeqCst));
            assert!(space.entry_at(VirtAddr::new(REMOVED)).is_empty());
            has_looked.store(true, Ordering::SeqCst);
        }
        Native::leave();
    });
    machine.attach(|| world.check("invariants"));
    machine.attach(|| drop(space));
    machine.attach(|| drop(world));
});
