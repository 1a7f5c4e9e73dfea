//! Where credits lie, and when they come back: what the answers of calls don't show (those: `tests/native/credits.rs`).

use super::OUT;
use crate::design::Faultless;
use crate::error::CallError;
use crate::instance::Vm;
use crate::limits::{Limits, PlacementPolicy, Privileges};
use crate::space::quantity::{NR_QUANTITIES, Quantity};
use crate::space::ranges::Additions;
use crate::space::{Backing, MapRequest, Placement, Populate, SpaceRef};
use crate::{AddressRange, AreaFlags, Guest, PAGE, VirtAddr, check};
use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Ordering, Processor};
use faultless_sync::{Generation, Rwsem};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::string::ToString;
use std::sync::{Barrier, Mutex};

type Tested = Faultless<Rwsem<Native>>;
type TestedSpace<'a> = SpaceRef<'a, Native, Tested>;
/// What a CPU does in its turn.
type Act<'a> = &'a (dyn Fn(&TestedSpace<'_>) + Sync);
const NR_CPUS: usize = 4;
const START: u64 = 0x10_0000_0000;

/// Lets one CPU after the other act in a space of these limits, by their numbers; all have a guest in it.
fn in_turn(limits: Limits, turns: &[(usize, Act<'_>)]) {
    let (region, machine) = (HostRegion::reserve(16 << 20).expect("the host has room"), Machine::new(NR_CPUS));
    machine.attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), NR_CPUS, Options::default()) };
        let vm = Vm::<Native, Tested>::with_semaphore(memory.expect("large enough"), Generation::RWSEM_V8);
        let vm = vm.expect("a frame for the zero page");
        let space = vm.create_space(limits).expect("room");
        let step = Barrier::new(NR_CPUS);
        // Who fails lets the others come to their end.
        let failed = Mutex::new(None);
        let act_in_turn = |space: &TestedSpace<'_>| {
            let guest = Guest::new(space);
            step.wait();
            for (cpu, act) in turns {
                if *cpu == Native::cpu()
                    && let Err(failure) = catch_unwind(AssertUnwindSafe(|| act(space)))
                {
                    failed.lock().expect("nobody panics with it").get_or_insert(failure);
                }
                step.wait();
            }
            drop(guest);
        };
        std::thread::scope(|scope| {
            for _ in 1..NR_CPUS {
                scope.spawn(|| machine.attach(|| act_in_turn(&space)));
            }
            act_in_turn(&space);
        });
        if let Some(failure) = failed.into_inner().expect("nobody panics with it") {
            resume_unwind(failure);
        }
        // SAFETY: no other thread is left.
        unsafe { check::invariants(&vm) }.expect("invariants");
        drop(space);
    });
}

fn spread() -> Limits {
    Limits { placement: PlacementPolicy::Spread, ..Limits::default() }
}

fn at(cpu: u64, nr: u64) -> u64 {
    START + (cpu * 4096 + 2 * nr) * PAGE
}

fn map(space: &TestedSpace<'_>, at: u64, nr_pages: u64, flags: AreaFlags) {
    map_as(space, at, nr_pages, AreaFlags::READ | AreaFlags::WRITE | flags);
}

fn map_as(space: &TestedSpace<'_>, at: u64, nr_pages: u64, flags: AreaFlags) {
    space.mmap(&request(at, nr_pages, flags)).expect("room");
}

fn request(at: u64, nr_pages: u64, flags: AreaFlags) -> MapRequest<'static, Native> {
    MapRequest {
        placement: Placement::Fixed(VirtAddr::new(at)),
        len_bytes: nr_pages * PAGE,
        protection: flags.protection(),
        options: flags.options(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}

fn unmap(space: &TestedSpace<'_>, at: u64, nr_pages: u64) {
    space.munmap(AddressRange::new(VirtAddr::new(at), nr_pages * PAGE)).expect("valid");
}

/// Returns what all CPUs hold.
fn out(space: &TestedSpace<'_>, quantity: Quantity) -> u64 {
    let row = space.row().expect("mappings are spread");
    row.credit(quantity).out()
}

fn charged(space: &TestedSpace<'_>) -> [u64; NR_QUANTITIES] {
    Quantity::ALL.map(|quantity| space.charged(quantity).load(Ordering::Relaxed))
}

fn sums(space: &TestedSpace<'_>) -> [u64; NR_QUANTITIES] {
    [space.nr_areas(), space.mapped_bytes(), space.data_bytes(), space.locked_bytes()]
}

#[test]
fn what_a_cpu_maps_and_unmaps_again_writes_no_line_of_others() {
    let own = |space: &TestedSpace<'_>| {
        let cpu = Native::cpu() as u64;
        let run = || {
            map(space, at(cpu, 0), 3, AreaFlags::empty());
            unmap(space, at(cpu, 0) + PAGE, 1);
            unmap(space, at(cpu, 0), 3);
        };
        run();
        let before = charged(space);
        for _ in 0..100 {
            run();
            map(space, at(cpu, 0), 2, AreaFlags::empty());
            assert_eq!(charged(space), before, "a draw, or something given back");
            assert_eq!(sums(space), [1, 2 * PAGE, 2 * PAGE, 0]);
            unmap(space, at(cpu, 0), 2);
        }
        assert_eq!(sums(space), [0; 4]);
    };
    in_turn(spread(), &[(0, &own), (2, &own), (3, &own)]);
}

#[test]
fn credits_are_held_by_those_who_mapped_and_come_back_before_a_no() {
    let most = 100;
    let limits = Limits { address_space_bytes: most * PAGE, ..spread() };
    let strand = |space: &TestedSpace<'_>| {
        let cpu = Native::cpu() as u64;
        map(space, at(cpu, 0), 8, AreaFlags::empty());
        unmap(space, at(cpu, 0), 8);
    };
    let fill = |space: &TestedSpace<'_>| {
        assert!(out(space, Quantity::Bytes) > 3 * PAGE, "nothing is stranded: the test shows nothing");
        // More than is left beside what the others hold.
        map(space, at(0, 0), most - 1, AreaFlags::empty());
        assert_eq!(out(space, Quantity::Bytes), 0, "recalled");
        assert_eq!(charged(space), sums(space));
    };
    let last = |space: &TestedSpace<'_>| {
        map(space, at(1, 0), 1, AreaFlags::empty());
        assert_eq!((space.mapped_bytes(), out(space, Quantity::Bytes)), (most * PAGE, 0), "nobody keeps the last room");
    };
    in_turn(limits, &[(1, &strand), (2, &strand), (3, &strand), (0, &fill), (1, &last)]);
}

#[test]
fn parts_are_given_out_again_after_a_recall() {
    let limits = Limits { data_bytes: 100 * PAGE, ..spread() };
    let is_out = |space: &TestedSpace<'_>| space.row().expect("mappings are spread").are_out();
    // What was claimed for a call that did less stays in the purse.
    let strand = |space: &TestedSpace<'_>| {
        map(space, at(1, 0), 1, AreaFlags::empty());
        let range = AddressRange::new(VirtAddr::new(at(1, 0)), 90 * PAGE);
        let both = crate::Protection::READ | crate::Protection::WRITE;
        assert!(space.mprotect(range, both).is_err(), "most of it is a hole");
        assert!(out(space, Quantity::DataBytes) >= 90 * PAGE);
    };
    // Could become data, and so is refused a part; but no limit that a check looks at is near.
    let read_only = |space: &TestedSpace<'_>| {
        map_as(space, at(0, 0), 20, AreaFlags::READ);
        assert!(!is_out(space) && out(space, Quantity::DataBytes) == 0, "recalled");
        map_as(space, at(0, 100), 20, AreaFlags::READ);
        assert!(is_out(space), "had a part");
        assert_eq!(sums(space), [3, 41 * PAGE, PAGE, 0]);
    };
    in_turn(limits, &[(1, &strand), (0, &read_only)]);
}

#[test]
fn locked_memory_is_mapped_with_a_part_and_lost_locks_lower_its_limit() {
    let limits = Limits { lock_bytes: 20 * PAGE, ..spread() };
    let lock = |space: &TestedSpace<'_>| {
        map(space, at(1, 0), 4, AreaFlags::LOCKED);
        assert!(out(space, Quantity::LockedBytes) > 0, "a claim was drawn");
        assert_eq!(space.locked_bytes(), 4 * PAGE);
        assert_eq!(space.most(Quantity::LockedBytes), 20 * PAGE);
    };
    let move_away = |space: &TestedSpace<'_>| {
        let old = AddressRange::new(VirtAddr::new(at(1, 0)), 4 * PAGE);
        let placement = crate::RemapPlacement::MayMove;
        let request = crate::RemapRequest { old, new_len_bytes: 4 * PAGE, placement, keeps_source: true };
        space.mremap(&request).expect("room");
        assert_eq!(space.most(Quantity::LockedBytes), 16 * PAGE);
        assert_eq!(space.locked_bytes(), 4 * PAGE, "the target's");
    };
    in_turn(limits, &[(1, &lock), (2, &move_away)]);
    // Now more is charged than the lowered limit allows: a purse serves no claim any more, until that is over.
    let lock_more = |space: &TestedSpace<'_>| map(space, at(1, 0), 12, AreaFlags::LOCKED);
    let may_be_over = |space: &TestedSpace<'_>| {
        let row = space.row().expect("mappings are spread");
        let others = [Quantity::Areas, Quantity::Bytes, Quantity::DataBytes];
        assert!(others.iter().all(|&other| !row.may_be_over(other)));
        row.may_be_over(Quantity::LockedBytes)
    };
    let move_more = |space: &TestedSpace<'_>| {
        assert!(!may_be_over(space));
        let old = AddressRange::new(VirtAddr::new(at(1, 0)), 12 * PAGE);
        let placement = crate::RemapPlacement::MayMove;
        let request = crate::RemapRequest { old, new_len_bytes: 12 * PAGE, placement, keeps_source: true };
        let target = space.mremap(&request).expect("room");
        assert!(may_be_over(space), "12 pages are locked, of 8");
        space.mlock(AddressRange::new(target, 12 * PAGE), crate::PageLock::Unlock).expect("mapped");
        assert!(!may_be_over(space));
    };
    in_turn(limits, &[(1, &lock_more), (2, &move_more)]);
    let free = Limits { privileges: Privileges::UNLIMITED_LOCKS, ..limits };
    let lock_all = |space: &TestedSpace<'_>| map(space, at(1, 0), 40, AreaFlags::LOCKED);
    in_turn(free, &[(1, &lock_all)]);
}

#[test]
fn a_purse_serves_no_claim_while_more_is_charged_than_the_limit_allows() {
    const LIMIT: u64 = 1 << 30;
    let claim = |space: &TestedSpace<'_>| {
        map(space, at(1, 0), 1, AreaFlags::empty());
        let row = space.row().expect("mappings are spread");
        let added = Additions { areas: 1, bytes: PAGE, locked_bytes: 0 };
        let is_granted = || space.claim_credits(&row, &added);
        assert!(is_granted());
        let charged = &row.charged[Quantity::Bytes as usize];
        let before = charged.load(Ordering::Relaxed);
        // As who has everything may leave it.
        charged.store(LIMIT + PAGE, Ordering::Relaxed);
        space.note_over();
        assert!(row.may_be_over(Quantity::Bytes) && row.purses.of(1).has_all(added.by_quantity()));
        assert!(!is_granted(), "though the purse has as much");
        charged.store(before, Ordering::Relaxed);
        space.note_over();
        assert!(is_granted());
    };
    in_turn(Limits { address_space_bytes: LIMIT, ..spread() }, &[(1, &claim)]);
}

#[test]
fn the_checker_sees_credits_that_a_recall_would_miss() {
    let hide = |space: &TestedSpace<'_>| {
        map(space, at(1, 0), 1, AreaFlags::empty());
        let row = space.row().expect("mappings are spread");
        assert_eq!(space.stray_credits(), 0);
        row.state.store(0, Ordering::Relaxed);
        // SAFETY: the other threads wait.
        let broken = unsafe { check::invariants(space.instance()) }.expect_err("hidden");
        assert!(broken.to_string().contains("while no credits are out"), "{broken}");
        row.state.store(OUT, Ordering::Relaxed);
    };
    in_turn(spread(), &[(1, &hide)]);
}

#[test]
fn what_was_mapped_before_lanes_came_is_charged_with_them() {
    let limits = Limits { placement: PlacementPolicy::Auto, max_map_count: 8, ..Limits::default() };
    let (region, machine) = (HostRegion::reserve(16 << 20).expect("the host has room"), Machine::new(2));
    machine.attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 2, Options::default()) };
        let vm = Vm::<Native, Tested>::with_semaphore(memory.expect("large enough"), Generation::RWSEM_V8);
        let vm = vm.expect("a frame for the zero page");
        let space = vm.create_space(limits).expect("room");
        let guest = Guest::new(&space);
        (0..5).for_each(|nr| map(&space, at(0, nr), 1, AreaFlags::empty()));
        assert!(!space.has_credits());
        let second = || {
            let _guest = Guest::new(&space);
            assert!(space.has_credits(), "lanes have come");
            assert_eq!(sums(&space), [5, 5 * PAGE, 5 * PAGE, 0]);
            (5..9).for_each(|nr| map(&space, at(0, nr), 1, AreaFlags::empty()));
            let refused = space.mmap(&request(at(0, 9), 1, AreaFlags::READ));
            assert_eq!(refused, Err(CallError::TooManyAreas { limit: 8 }), "Linux lets mmap exceed it by one");
            unmap(&space, at(0, 0), 9);
        };
        std::thread::scope(|scope| _ = scope.spawn(|| machine.attach(second)));
        assert_eq!(sums(&space), [4, 4 * PAGE, 4 * PAGE, 0]);
        drop(guest);
        drop(space);
    });
}

#[test]
fn spaces_that_are_not_spread_have_no_purses() {
    let none = |space: &TestedSpace<'_>| {
        map(space, at(1, 0), 4, AreaFlags::empty());
        assert!(!space.has_credits() && sums(space) == charged(space));
    };
    in_turn(Limits::default(), &[(1, &none)]);
}
