//! Translations are gone when the call that takes them away returns: a program that runs on another CPU is the witness.
//!
//! # Race table
//! ```text
//! CPU A (program)                      CPU B (changes the map)
//! joins the space's CPUs               clears or weakens the entry
//! guest: state, fence, drain           fence, reads the space's CPUs, fills their inboxes
//! looks up or walks, accesses          fence; waits for those in guest; returns
//! leaves guest
//! ```
//! If A's access comes after B's return, A has drained, or it walks to the new entry.

use crate::world::{RW, Tested, World, anonymous, is_soon};
use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native, holds_irq_off};
use faultless_platform::watched::{self, Happening, Sink, Watched};
use faultless_platform::{Platform, Processor, Threads};
use faultless_sync::Rwsem;
use faultless_vm::design::VmaLock;
use faultless_vm::{
    AccessError, AddressRange, Advice, Backing, Event, Guest, Limits, MapRequest, PAGE, Placement, Populate,
    Protection, VirtAddr, Vm, check,
};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BASE: u64 = 0x10_0000_0000;

/// What B is about: even while the page may be accessed, odd from the return that took it away to the next gift.
struct Stage {
    phase: AtomicU64,
    is_over: AtomicBool,
}

/// Runs `take` and `give` in turn on one CPU, while another accesses the page: after `take` has returned and before
/// `give` begins, no access may succeed.
fn witness<D: Tested>(
    access: impl Fn(&Guest<'_, Native, D>) -> bool + Sync,
    take: impl Fn(&World<D>, &faultless_vm::SpaceRef<'_, Native, D>) + Sync,
    give: impl Fn(&World<D>, &faultless_vm::SpaceRef<'_, Native, D>) + Sync,
) {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(2);
    let world = machine.attach(|| World::<D>::new(&region, 2));
    let space = machine.attach(|| world.vm.create_space(Limits::default()).expect("room"));
    let stage = Stage { phase: AtomicU64::new(1), is_over: AtomicBool::new(false) };
    let hits = AtomicU64::new(0);
    Native::run(&machine, 2, &|thread| {
        Native::enter();
        if thread == 0 {
            let end = Native::now() + 700_000_000;
            // On a busy machine the witness hardly runs: go on until it has, within reason.
            let last_end = end + 30_000_000_000;
            let nr_shot_down = || world.vm.events().total(Event::TlbShootdown);
            let is_enough = || hits.load(Ordering::SeqCst) >= 50 && nr_shot_down() >= 10;
            let goes_on = || Native::now() < end || (!is_enough() && Native::now() < last_end);
            for round in (0_u64..).take_while(|_| goes_on()) {
                stage.phase.store(round * 2 + 2, Ordering::SeqCst);
                give(&world, &space);
                let seen = hits.load(Ordering::SeqCst);
                let patience = Native::now() + 200_000;
                Native::spin_until_deadline(patience, || hits.load(Ordering::SeqCst) != seen);
                take(&world, &space);
                stage.phase.store(round * 2 + 3, Ordering::SeqCst);
                let patience = Native::now() + 1_000;
                Native::spin_until_deadline(patience, || false);
            }
            stage.is_over.store(true, Ordering::SeqCst);
        } else {
            let guest = Guest::new(&space);
            while !stage.is_over.load(Ordering::SeqCst) {
                let before = stage.phase.load(Ordering::SeqCst);
                if access(&guest) {
                    let after = stage.phase.load(Ordering::SeqCst);
                    assert!(
                        before.is_multiple_of(2) || before != after,
                        "an access succeeded after the call had returned"
                    );
                    hits.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        Native::leave();
    });
    machine.attach(|| world.check("invariants"));
    assert!(hits.load(Ordering::SeqCst) >= 50, "the witness hardly ran");
    assert!(world.vm.events().total(Event::TlbShootdown) >= 10, "nothing was shot down");
    machine.attach(|| drop(space));
    machine.attach(|| drop(world));
}

for_each_design!(no_store_succeeds_after_mprotect_returns, D, {
    witness::<D>(
        |guest| guest.store(VirtAddr::new(BASE), 1).is_ok(),
        |_, space| space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::READ).expect("mapped"),
        |_, space| match space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), RW.protection()) {
            Ok(()) => {}
            Err(_) => assert_eq!(space.mmap(&anonymous(Some(BASE), PAGE)), Ok(VirtAddr::new(BASE))),
        },
    );
});

for_each_design!(no_load_succeeds_after_munmap_returns, D, {
    witness::<D>(
        |guest| match guest.load(VirtAddr::new(BASE)) {
            Ok(_) => true,
            Err(AccessError::NotMapped { .. }) => false,
            Err(other) => panic!("{other}"),
        },
        |_, space| space.munmap(AddressRange::new(VirtAddr::new(BASE), PAGE)).expect("valid"),
        |_, space| assert_eq!(space.mmap(&anonymous(Some(BASE), PAGE)), Ok(VirtAddr::new(BASE))),
    );
});

for_each_design!(no_old_value_is_read_after_dontneed_returns, D, {
    witness::<D>(
        |guest| guest.load(VirtAddr::new(BASE)).is_ok_and(|(value, _)| value == 7),
        |_, space| space.madvise(AddressRange::new(VirtAddr::new(BASE), PAGE), Advice::DontNeed).expect("mapped"),
        |_, space| {
            if space.nr_areas() == 0 {
                space.mmap(&anonymous(Some(BASE), PAGE)).expect("room");
            }
            Guest::new(space).store(VirtAddr::new(BASE), 7).expect("mapped");
        },
    );
});

for_each_design!(a_copy_on_write_is_seen_by_all_threads_at_once, D, {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(2);
    let world = machine.attach(|| World::<D>::new(&region, 2));
    let space = machine.attach(|| world.vm.create_space(Limits::default()).expect("room"));
    let (asked, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    const ROUNDS: u64 = 300;
    Native::run(&machine, 2, &|thread| {
        Native::enter();
        let guest = Guest::new(&space);
        for round in 1..=ROUNDS {
            if thread == 0 {
                if round == 1 {
                    space.mmap(&anonymous(Some(BASE), PAGE)).expect("room");
                    guest.store(VirtAddr::new(BASE), 0).expect("mapped");
                }
                // The child keeps the page shared, so that the store below must copy it.
                let child = space.fork().expect("room");
                asked.store(2 * round - 1, Ordering::SeqCst);
                Native::spin_until(|| answered.load(Ordering::SeqCst) == 2 * round - 1);
                guest.store(VirtAddr::new(BASE), round).expect("mapped");
                asked.store(2 * round, Ordering::SeqCst);
                Native::spin_until(|| answered.load(Ordering::SeqCst) == 2 * round);
                drop(child);
            } else {
                Native::spin_until(|| asked.load(Ordering::SeqCst) == 2 * round - 1);
                assert_eq!(guest.load(VirtAddr::new(BASE)).expect("mapped").0, round - 1, "now in this CPU's TLB");
                answered.store(2 * round - 1, Ordering::SeqCst);
                Native::spin_until(|| asked.load(Ordering::SeqCst) == 2 * round);
                assert_eq!(guest.load(VirtAddr::new(BASE)).expect("mapped").0, round, "a stale translation");
                answered.store(2 * round, Ordering::SeqCst);
            }
        }
        Native::leave();
    });
    machine.attach(|| world.check("invariants"));
    machine.attach(|| drop(space));
    machine.attach(|| drop(world));
});

/// Runs two threads that meet in one space: the first gets the world, the second leaves or sleeps as it is told.
fn beside<D: Tested>(
    first: impl Fn(&World<D>, &faultless_vm::SpaceRef<'_, Native, D>) + Sync,
    second: impl Fn(&Guest<'_, Native, D>) + Sync,
    after: impl Fn() + Sync,
) {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(2);
    let world = machine.attach(|| World::<D>::new(&region, 2));
    let space = machine.attach(|| world.vm.create_space(Limits::default()).expect("room"));
    Native::run(&machine, 2, &|thread| {
        Native::enter();
        if thread == 0 {
            first(&world, &space);
        } else {
            let guest = Guest::new(&space);
            second(&guest);
            drop(guest);
            after();
        }
        Native::leave();
    });
    machine.attach(|| world.check("invariants"));
    machine.attach(|| drop(space));
    machine.attach(|| drop(world));
}

/// Maps, stores and unmaps so often; returns how many shootdowns that took.
fn shootdowns<D: Tested>(world: &World<D>, guest: &Guest<'_, Native, D>, rounds: u64) -> u64 {
    let before = world.vm.events().total(Event::TlbShootdown);
    for round in 1..=rounds {
        let at = BASE + round * 16 * PAGE;
        guest.space().mmap(&anonymous(Some(at), PAGE)).expect("room");
        guest.store(VirtAddr::new(at), round).expect("mapped");
        guest.space().munmap(AddressRange::new(VirtAddr::new(at), PAGE)).expect("valid");
    }
    world.vm.events().total(Event::TlbShootdown) - before
}

fn store_when_mapped<D: Tested>(guest: &Guest<'_, Native, D>) {
    while guest.store(VirtAddr::new(BASE), 1).is_err() {
        std::thread::yield_now();
    }
}

for_each_design!(a_cpu_whose_program_sleeps_is_asked_once, D, {
    let (sleeper, may_wake) = (AtomicU64::new(0), faultless_sync::Completion::<Native>::new());
    beside::<D>(
        |world, space| {
            let guest = Guest::new(space);
            space.mmap(&anonymous(Some(BASE), PAGE)).expect("room");
            Native::spin_until(|| sleeper.load(Ordering::SeqCst) != 0);
            let cpu = sleeper.load(Ordering::SeqCst) as usize - 1;
            Native::spin_until(|| Native::is_idle(cpu));
            assert_eq!(shootdowns(world, &guest, 20), 1, "the sleeper's CPU is asked again and again");
            assert!(!space.is_used_by(cpu));
            space.munmap(AddressRange::new(VirtAddr::new(BASE), PAGE)).expect("valid");
            may_wake.set();
        },
        |guest| {
            store_when_mapped(guest);
            sleeper.store(Native::cpu() as u64 + 1, Ordering::SeqCst);
            may_wake.wait();
            assert!(guest.load(VirtAddr::new(BASE)).is_err(), "what was unmapped meanwhile is still known");
        },
        || (),
    );
});

// Its other translations would be lost, and it would have to join again.
for_each_design!(a_cpu_whose_program_is_in_the_kernel_stays_one_of_the_spaces, D, {
    let (stage, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    beside::<D>(
        |world, space| {
            let guest = Guest::new(space);
            space.mmap(&anonymous(Some(BASE), PAGE)).expect("room");
            Native::spin_until(|| stage.load(Ordering::SeqCst) != 0);
            assert_eq!(shootdowns(world, &guest, 20), 20);
            assert!(space.is_used_by(stage.load(Ordering::SeqCst) as usize - 1));
            is_over.store(true, Ordering::SeqCst);
        },
        |guest| {
            store_when_mapped(guest);
            stage.store(Native::cpu() as u64 + 1, Ordering::SeqCst);
            assert!(is_soon(&is_over, Duration::from_secs(60)));
        },
        || (),
    );
});

for_each_design!(a_cpu_whose_program_has_left_the_space_is_not_asked, D, {
    let stage = AtomicU64::new(0);
    beside::<D>(
        |world, space| {
            let guest = Guest::new(space);
            space.mmap(&anonymous(Some(BASE), PAGE)).expect("room");
            Native::spin_until(|| stage.load(Ordering::SeqCst) == 1);
            assert_eq!(shootdowns(world, &guest, 20), 0, "the CPU of a thread that left is still asked");
            stage.store(2, Ordering::SeqCst);
        },
        store_when_mapped,
        || {
            stage.store(1, Ordering::SeqCst);
            Native::spin_until(|| stage.load(Ordering::SeqCst) == 2);
        },
    );
});

for_each_design!(a_cpu_that_is_given_up_and_taken_again_has_no_old_translation, D, {
    witness::<D>(
        |guest| {
            let is_mapped = guest.load(VirtAddr::new(BASE)).is_ok();
            Native::leave();
            std::thread::yield_now();
            Native::enter();
            is_mapped && guest.load(VirtAddr::new(BASE)).is_ok()
        },
        |_, space| space.munmap(AddressRange::new(VirtAddr::new(BASE), PAGE)).expect("valid"),
        |_, space| assert_eq!(space.mmap(&anonymous(Some(BASE), PAGE)), Ok(VirtAddr::new(BASE))),
    );
});

/// Is told of locks: the lines that lock inboxes, and those that do so with interrupts on.
#[derive(Default)]
struct InboxLines {
    nr_locked: AtomicU64,
    all: Mutex<BTreeSet<u32>>,
    interruptible: Mutex<BTreeSet<u32>>,
}

impl Sink for InboxLines {
    fn note(&self, happening: &Happening) {
        let faultless_platform::Tracepoint::LockTaken { lock, site, .. } = happening.event else { return };
        if lock.name == "tlb_inbox" {
            self.nr_locked.fetch_add(1, Ordering::SeqCst);
            self.all.lock().expect("no panic").insert(site.line());
            if !holds_irq_off() {
                self.interruptible.lock().expect("no panic").insert(site.line());
            }
        }
    }
}

type Told = Watched<Native>;
type ToldVm = Vm<Told, VmaLock<Rwsem<Told>>>;

/// Runs `act` on a CPU of its own.
fn told<R: Send>(machine: &watched::Machine<Native>, act: impl FnOnce() -> R + Send) -> R {
    let (act, result) = (Mutex::new(Some(act)), Mutex::new(None));
    Told::run(machine, 1, &|_| {
        Told::enter();
        let act = act.lock().expect("no panic").take().expect("one thread runs it");
        *result.lock().expect("no panic") = Some(act());
        Told::leave();
    });
    result.into_inner().expect("no panic").expect("it ran")
}

/// A handler that comes while its CPU's owner has an inbox locked would wait for it for good (I4 of `shootdown`).
#[test]
fn inboxes_are_locked_with_interrupts_off() {
    let region = HostRegion::reserve(16 << 20).expect("the host has room");
    let lines = Arc::new(InboxLines::default());
    let machine = watched::Machine::new(Machine::new(3), Arc::clone(&lines) as Arc<dyn Sink>);
    let vm: Pin<Box<ToldVm>> = told(&machine, || {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 3, Options::default()) };
        Vm::new(memory.expect("large enough")).expect("a frame for the zero page")
    });
    let space = told(&machine, || vm.create_space(Limits::default()).expect("room"));
    let map = || {
        let request = MapRequest {
            placement: Placement::Fixed(VirtAddr::new(BASE)),
            len_bytes: PAGE,
            protection: RW.protection(),
            options: RW.options(),
            backing: Backing::Anonymous,
            populate: Populate::Now,
        };
        space.mmap(&request).expect("room");
    };
    let (stage, is_inside) = (AtomicU64::new(0), AtomicBool::new(false));
    let nr_entered = AtomicU64::new(0);
    Told::run(&machine, 3, &|thread| {
        Told::enter();
        // One that came late would take the CPU that another leaves, and with it the request that nobody picks up.
        nr_entered.fetch_add(1, Ordering::SeqCst);
        Told::spin_until(|| nr_entered.load(Ordering::SeqCst) == 3);
        let guest = Guest::new(&space);
        let reach = |wanted| Told::spin_until(|| stage.load(Ordering::SeqCst) >= wanted);
        match thread {
            // Changes the map, twice: with a CPU idle, and with one in guest.
            0 => {
                map();
                stage.store(1, Ordering::SeqCst);
                reach(3);
                space.munmap(AddressRange::new(VirtAddr::new(BASE), PAGE)).expect("mapped");
                map();
                stage.store(4, Ordering::SeqCst);
                Told::spin_until(|| is_inside.load(Ordering::SeqCst));
                space.munmap(AddressRange::new(VirtAddr::new(BASE), PAGE)).expect("mapped");
                stage.store(5, Ordering::SeqCst);
            }
            // Leaves its CPU with translations, and comes back.
            1 => {
                reach(1);
                guest.load(VirtAddr::new(BASE)).expect("mapped");
                Told::leave();
                stage.store(3, Ordering::SeqCst);
                while stage.load(Ordering::SeqCst) < 5 {
                    std::thread::yield_now();
                }
                Told::enter();
                assert!(guest.load(VirtAddr::new(BASE)).is_err());
            }
            // Stays in guest for a while, asked to forget what it knows.
            _ => {
                reach(4);
                loop {
                    guest.load(VirtAddr::new(BASE)).expect("mapped");
                    // SAFETY: what waits is drained by the load of the next round, before it uses a translation.
                    if !unsafe { Told::guest_enter() } {
                        break;
                    }
                    // SAFETY: nothing was translated.
                    unsafe { Told::guest_exit() };
                }
                let before = lines.nr_locked.load(Ordering::SeqCst);
                is_inside.store(true, Ordering::SeqCst);
                // Until whoever asks has looked again and again whether we have drained.
                let end = Instant::now() + Duration::from_secs(30);
                while lines.nr_locked.load(Ordering::SeqCst) < before + 50 && Instant::now() < end {
                    std::thread::yield_now();
                }
                // SAFETY: nothing was translated.
                unsafe { Told::guest_exit() };
            }
        }
        drop(guest);
        Told::leave();
    });
    told(&machine, || {
        drop(space);
        // SAFETY: the other threads have ended.
        unsafe { check::invariants(&vm) }.expect("invariants");
    });
    told(&machine, || drop(vm));
    assert_eq!(lines.all.lock().expect("no panic").len(), 5, "not all lines that lock inboxes were run");
    assert_eq!(*lines.interruptible.lock().expect("no panic"), BTreeSet::new(), "lines of shootdown.rs");
}
