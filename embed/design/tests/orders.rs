//! Calls and faults side by side, in every order with one switch, and in random ones.
//!
//! # Guarantee
//! CPU 0 makes calls. After each of its steps in turn (an access of the platform's), the other CPUs do all that they
//! do, as far as nothing makes them wait, and then CPU 0 goes on. Each run is judged by what every CPU found in the
//! range that is its own, and by the checker.

use faultless_embed_design::ByEntry;
use faultless_explore::{Arena, Explore, Machine, Policy, Switch};
use faultless_phys::{Memory, Options};
use faultless_platform::Processor;
use faultless_sync::{Generation, Rwsem};
use faultless_vm::design::{Design, EntryChange, MapLock, Promises, Tally};
use faultless_vm::{
    Access, AccessError, AddressRange, AreaFlags, Backing, Guest, Limits, MapRequest, Mode, PAGE, PageRange, Placement,
    Populate, Protection, Reason, Resolution, SpaceRef, VirtAddr, Vm, check,
};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

type D = ByEntry<Rwsem<Explore>>;
type Played<'a> = dyn Fn(usize, &Guest<'static, Explore, D>) + Sync + 'a;

const NR_CPUS: usize = 3;
const BASE: u64 = 0x1000_0000;
const RW: AreaFlags = AreaFlags::READ.union(AreaFlags::WRITE);
/// What a leaf table spans.
const SPAN: u64 = 512 * PAGE;

/// A machine, and the instance on it.
struct Ground {
    machine: Machine,
    vm: Option<Pin<Box<Vm<Explore, D>>>>,
}

impl Ground {
    fn new() -> Self {
        let machine = Machine::with_arena(NR_CPUS, Arena::new(8 << 20).expect("the host has room"));
        let arena = machine.arena().expect("just given");
        // Lists of two frames: what one CPU frees, another finds at once.
        let options = Options { poison: true, list_high: 2, list_batch: 1, ..Options::default() };
        // SAFETY: the arena is zero, ours alone, and outlives the instance.
        let memory = unsafe { Memory::<Explore>::new(arena.base(), arena.len_bytes(), NR_CPUS, options) };
        let memory = memory.expect("room");
        let vm = machine.alone(|| Vm::with_semaphore(memory, Generation::RWSEM_V8)).expect("room");
        Self { machine, vm: Some(vm) }
    }

    /// Plays one schedule in a new space; returns the steps of CPU 0, and how many calls were inside at once.
    fn play(&self, policy: Policy, place: &str, play: &Played<'_>) -> (u64, usize) {
        let vm = self.vm.as_deref().expect("there until the end");
        // SAFETY: guests go before the ground does, at the end of this function.
        let vm: &'static Vm<Explore, D> = unsafe { &*core::ptr::from_ref(vm) };
        let guests = self.machine.alone(|| {
            let space = vm.create_space(Limits::default()).expect("room");
            (0..NR_CPUS).map(|_| Guest::new(&space)).collect::<Vec<_>>()
        });
        let run = self.machine.explore(NR_CPUS, policy, &|cpu| {
            Explore::enter();
            play(cpu, &guests[cpu]);
            Explore::leave();
        });
        if let Err(failure) = run.outcome {
            // They stand where the run stopped.
            core::mem::forget(guests);
            panic!("{place}: {}", failure.message);
        }
        let most = self.machine.alone(|| {
            let most = Promises::of(guests[0].space()).lock().most_at_once();
            // SAFETY: no other thread runs.
            unsafe { check::invariants(vm) }.unwrap_or_else(|broken| panic!("{place}: {broken}"));
            drop(guests);
            vm.flush();
            most
        });
        (run.steps[0], most)
    }

    /// Plays once for each step of CPU 0 and each CPU that may come in there; returns the most that were inside.
    fn in_every_order(&self, play: &Played<'_>) -> usize {
        let mut most = 0;
        for other in 1..NR_CPUS {
            let mut step = 1;
            loop {
                let switches = vec![Switch { from: 0, step, to: other }];
                let place = format!("CPU {other} after step {step} of CPU 0");
                let (nr_steps, inside) = self.play(Policy::Replay { first: 0, switches }, &place, play);
                most = most.max(inside);
                step += 1;
                if step > nr_steps {
                    break;
                }
            }
        }
        most
    }

    /// Plays so many random schedules.
    fn in_random_orders(&self, nr_runs: u64, play: &Played<'_>) {
        for seed in 0..nr_runs {
            self.play(Policy::Random { seed, period: 1 + seed % 40 }, &format!("seed {seed}"), play);
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let vm = self.vm.take();
        if !std::thread::panicking() {
            self.machine.alone(|| drop(vm));
        } else {
            core::mem::forget(vm);
        }
    }
}

fn map(space: &SpaceRef<'_, Explore, D>, start: u64, nr_pages: u64, rights: AreaFlags) {
    let request = MapRequest {
        placement: Placement::Fixed(VirtAddr::new(start)),
        len_bytes: nr_pages * PAGE,
        protection: rights.protection(),
        options: rights.options(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    };
    space.mmap(&request).expect("room");
}

/// Maps, stores, loads, protects and unmaps pages that nobody else has; each answer is the only one that is right.
fn own_pages(guest: &Guest<'_, Explore, D>, start: u64) {
    let space = guest.space();
    map(space, start, 2, RW);
    assert_eq!(guest.load(VirtAddr::new(start)).map(|loaded| loaded.0), Ok(0));
    guest.store(VirtAddr::new(start + PAGE), start).expect("mapped");
    space.mprotect(AddressRange::new(VirtAddr::new(start + PAGE), PAGE), Protection::READ).expect("mapped");
    assert_eq!(guest.load(VirtAddr::new(start + PAGE)).map(|loaded| loaded.0), Ok(start));
    let forbidden = AccessError::Forbidden { address: VirtAddr::new(start + PAGE) };
    assert_eq!(guest.store(VirtAddr::new(start + PAGE), 1).map(drop), Err(forbidden));
    space.munmap(AddressRange::new(VirtAddr::new(start), 2 * PAGE)).expect("valid");
    assert_eq!(
        guest.load(VirtAddr::new(start)).map(drop),
        Err(AccessError::NotMapped { address: VirtAddr::new(start) })
    );
}

/// Ranges in one table, apart by a page and more: calls on them are disjoint.
fn own_start(cpu: usize) -> u64 {
    BASE + cpu as u64 * 8 * PAGE
}

#[test]
fn calls_on_disjoint_ranges_are_inside_at_once() {
    let most = Ground::new().in_every_order(&|cpu, guest| own_pages(guest, own_start(cpu)));
    assert!(most >= 2, "{most} calls were inside at once");
}

#[test]
fn calls_on_disjoint_ranges_do_not_disturb_each_other() {
    Ground::new().in_random_orders(150, &|cpu, guest| own_pages(guest, own_start(cpu)));
}

/// Tables come and go while others walk to them: each CPU's pages are the last of their table, or not.
#[test]
fn calls_on_neighbours_are_one_after_the_other() {
    let ground = Ground::new();
    let play: &Played<'_> = &|cpu, guest| own_pages(guest, BASE + cpu as u64 * 2 * PAGE);
    ground.in_every_order(play);
    ground.in_random_orders(150, play);
}

/// One CPU unmaps and maps what the others store to and load from: each access sees the memory before or after.
#[test]
fn an_access_beside_a_call_sees_what_was_or_what_will_be() {
    let ground = Ground::new();
    let play: &Played<'_> = &|cpu, guest| {
        let space = guest.space();
        if cpu == 0 {
            map(space, BASE, 1, RW);
            space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::READ).expect("mapped");
            map(space, BASE, 1, RW);
            space.munmap(AddressRange::new(VirtAddr::new(BASE), PAGE)).expect("valid");
            return;
        }
        for round in 0..3 {
            let value = round * 2 + cpu as u64;
            match guest.store(VirtAddr::new(BASE), value) {
                Ok(_) | Err(AccessError::NotMapped { .. } | AccessError::Forbidden { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            match guest.load(VirtAddr::new(BASE)) {
                Ok((0..=6, _)) | Err(AccessError::NotMapped { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    ground.in_every_order(play);
    ground.in_random_orders(150, play);
}

/// Searches find the same room; only one gets it.
#[test]
fn two_that_search_get_two_places() {
    let ground = Ground::new();
    let places = Mutex::new(Vec::new());
    let play: &Played<'_> = &|cpu, guest| {
        let request = MapRequest {
            placement: Placement::Anywhere,
            len_bytes: PAGE,
            protection: RW.protection(),
            options: RW.options(),
            backing: Backing::Anonymous,
            populate: Populate::OnFault,
        };
        let place = guest.space().mmap(&request).expect("room");
        guest.store(place, cpu as u64).expect("mapped");
        assert_eq!(guest.load(place).map(|loaded| loaded.0), Ok(cpu as u64));
        places.lock().expect("one thread runs").push(place);
    };
    for seed in 0..150 {
        places.lock().expect("nobody runs").clear();
        ground.play(Policy::Random { seed, period: 1 + seed % 40 }, &format!("seed {seed}"), play);
        let mut found = places.lock().expect("nobody runs").clone();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), NR_CPUS, "seed {seed}: two got one place");
    }
}

/// Maps, protects and unmaps across a border between two tables, or beside it: all have one table in common.
#[test]
fn calls_across_tables_end_and_do_not_disturb_each_other() {
    let ground = Ground::new();
    let play: &Played<'_> = &|cpu, guest| {
        let start = [BASE - PAGE, BASE + 4 * PAGE, BASE + SPAN - PAGE][cpu];
        own_pages(guest, start);
        map(guest.space(), start, 2, RW);
        guest.space().mprotect(AddressRange::new(VirtAddr::new(start), 2 * PAGE), Protection::READ).expect("mapped");
        for page in [start, start + PAGE] {
            let forbidden = AccessError::Forbidden { address: VirtAddr::new(page) };
            assert_eq!(guest.store(VirtAddr::new(page), 1).map(drop), Err(forbidden));
        }
        own_pages(guest, start);
    };
    ground.in_every_order(play);
    ground.in_random_orders(150, play);
}

/// What an access to one page says about when it was made, in a range that is mapped, protected and unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Mapped,
    Protected,
    /// Before it was mapped, or after it was unmapped.
    Nothing,
}

fn store_sees(guest: &Guest<'_, Explore, D>, page: u64) -> Seen {
    match guest.store(VirtAddr::new(page), 1) {
        Ok(_) => Seen::Mapped,
        Err(AccessError::Forbidden { .. }) => Seen::Protected,
        Err(AccessError::NotMapped { .. }) => Seen::Nothing,
        Err(error) => panic!("{error}"),
    }
}

/// The pages lie in two tables, and nobody has touched them: each store is a fault.
#[test]
fn no_fault_sees_a_call_half_way() {
    let play: &Played<'_> = &|cpu, guest| {
        let both = AddressRange::new(VirtAddr::new(BASE - PAGE), 2 * PAGE);
        if cpu == 0 {
            map(guest.space(), BASE - PAGE, 2, RW);
            guest.space().mprotect(both, Protection::READ).expect("mapped");
            guest.space().munmap(both).expect("valid");
            return;
        }
        // CPU 2 looks at the upper one first.
        let [first, then] = if cpu == 1 { [BASE - PAGE, BASE] } else { [BASE, BASE - PAGE] };
        let (first, then) = (store_sees(guest, first), store_sees(guest, then));
        assert!(first == Seen::Nothing || then >= first, "CPU {cpu}: {first:?}, then {then:?}");
    };
    let ground = Ground::new();
    ground.in_every_order(play);
    ground.in_random_orders(300, play);
}

/// Pages whose rights CPU 0 changes by one cursor, in two tables, and one in a table beside them.
struct HalfWay {
    before: AreaFlags,
    after: AreaFlags,
    /// What CPU 1 tries meanwhile.
    access: Access,
    /// Pages whose entries were decided about.
    nr_decided: AtomicU64,
    /// Faults that began half way, in the range and beside it.
    nr_waited: AtomicU64,
    nr_beside: AtomicU64,
}

impl HalfWay {
    const NR_PAGES: u64 = 4;
    const START: u64 = BASE - 2 * PAGE;
    const BESIDE: u64 = BASE + SPAN;

    fn new(before: AreaFlags, after: AreaFlags, access: Access) -> Self {
        let [nr_decided, nr_waited, nr_beside] = Default::default();
        Self { before, after, access, nr_decided, nr_waited, nr_beside }
    }

    fn play(&self, cpu: usize, guest: &Guest<'static, Explore, D>) {
        match cpu {
            0 => self.change(guest),
            1 => [BASE + PAGE, BASE - 2 * PAGE].iter().for_each(|&page| self.fault_in_range(guest, page)),
            _ => self.fault_beside(guest),
        }
    }

    fn change(&self, guest: &Guest<'static, Explore, D>) {
        self.nr_decided.store(0, Ordering::Relaxed);
        map(guest.space(), Self::BESIDE, 1, RW);
        map(guest.space(), Self::START, Self::NR_PAGES, self.before);
        let view = Promises::of(guest.space());
        let range = PageRange::new(VirtAddr::new(Self::START), Self::NR_PAGES * PAGE).expect("user memory");
        let _held = view.lock().write(range.addresses());
        let (mut before, mut after) = (Tally::default(), Tally::default());
        before.add(range, self.before.protection());
        after.add(range, self.after.protection());
        view.recount(before.sizes(), after.sizes(), u64::MAX).expect("no limit");
        view.cursor(range).change(|page, _| {
            let number = (page - range.start()) / PAGE + 1;
            self.nr_decided.fetch_max(number, Ordering::Relaxed);
            EntryChange::Protect(self.after.protection())
        });
    }

    /// Returns how far the change is, if it is half way.
    fn half_way(&self) -> Option<u64> {
        Some(self.nr_decided.load(Ordering::Relaxed)).filter(|nr| (1..Self::NR_PAGES).contains(nr))
    }

    /// One that begins half way is answered when all is done, by what is then allowed.
    fn fault_in_range(&self, guest: &Guest<'static, Explore, D>, page: u64) {
        let began = self.half_way();
        let answer = loop {
            match guest.space().handle_fault(VirtAddr::new(page), self.access, Mode::User) {
                Resolution::Retry => {}
                answer => break answer,
            }
        };
        if began.is_some() {
            self.nr_waited.fetch_add(1, Ordering::Relaxed);
            assert_eq!(self.half_way(), None, "{page:x} is answered half way");
            let right = match self.access {
                Access::Read => AreaFlags::READ,
                Access::Write => AreaFlags::WRITE,
                Access::Fetch => AreaFlags::EXEC,
            };
            assert_eq!(answer == Resolution::Killed(Reason::AccErr), !self.after.contains(right), "{answer:?}");
        }
    }

    /// One in another table waits for nothing.
    fn fault_beside(&self, guest: &Guest<'static, Explore, D>) {
        let began = self.half_way();
        let answer = guest.space().handle_fault(VirtAddr::new(Self::BESIDE), Access::Write, Mode::User);
        if began.is_some() {
            assert_eq!(answer, Resolution::Resolved);
            self.nr_beside.fetch_add(u64::from(self.half_way() == began), Ordering::Relaxed);
        }
    }
}

#[test]
fn a_fault_in_any_table_of_a_range_waits_for_the_whole_change_and_one_beside_it_goes_on() {
    let rwx = RW | AreaFlags::EXEC;
    let cases = [
        (RW, AreaFlags::READ, Access::Write),
        (AreaFlags::READ, RW, Access::Write),
        // A fetch that is refused makes the page.
        (RW, rwx, Access::Fetch),
        (rwx, RW, Access::Fetch),
        (AreaFlags::empty(), RW, Access::Read),
    ];
    let ground = Ground::new();
    for (before, after, access) in cases {
        let half_way = HalfWay::new(before, after, access);
        ground.in_every_order(&|cpu, guest| half_way.play(cpu, guest));
        let [nr_waited, nr_beside] = [&half_way.nr_waited, &half_way.nr_beside].map(|nr| nr.load(Ordering::Relaxed));
        assert!(nr_waited > 0 && nr_beside > 0, "{access:?}: {nr_waited} waited, {nr_beside} went on");
    }
}

#[test]
fn the_design_has_a_name_of_its_own() {
    assert!(!faultless_vm::registry::DESIGNS.contains(&<D as Design<Explore>>::NAME));
}
