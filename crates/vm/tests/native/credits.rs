//! Limits of a space whose mappings are spread, reached by four CPUs, of which some hold credits that another one
//! needs: each design answers as if there were one counter, exactly at the limit, one below and one above.

use crate::world::{RW, Tested, World, anonymous};
use faultless_platform::Processor;
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_vm::{
    AddressRange, AreaFlags, CallError, Guest, Limits, MapRequest, PAGE, PageLock, PlacementPolicy, SpaceRef, VirtAddr,
};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

const NR_CPUS: usize = 4;
const START: u64 = 0x10_0000_0000;

/// A limit, and how it is reached by single pages.
#[derive(Clone, Copy)]
struct Case {
    limits: Limits,
    /// How many pages that are areas of their own fit.
    most: u64,
    flags: AreaFlags,
    refusal: CallError,
}

fn cases() -> [Case; 4] {
    let pages = 40;
    let limit_bytes = pages * PAGE;
    let spread = Limits { placement: PlacementPolicy::Spread, ..Limits::default() };
    let over = CallError::OverLimit { limit_bytes };
    [
        // As Linux, one area more than the limit.
        Case {
            limits: Limits { max_map_count: pages, ..spread },
            most: pages + 1,
            flags: RW,
            refusal: CallError::TooManyAreas { limit: pages },
        },
        Case {
            limits: Limits { address_space_bytes: limit_bytes, ..spread },
            most: pages,
            flags: AreaFlags::READ,
            refusal: over,
        },
        Case { limits: Limits { data_bytes: limit_bytes, ..spread }, most: pages, flags: RW, refusal: over },
        Case {
            limits: Limits { lock_bytes: limit_bytes, ..spread },
            most: pages,
            flags: AreaFlags::READ | AreaFlags::LOCKED,
            refusal: CallError::OverLockLimitNow { limit_bytes },
        },
    ]
}

/// Lets threads that all have a CPU of their own, and a guest, act in a space of these limits. Who fails lets the
/// others come to their end, if they don't wait for it.
fn on_each_cpu<D: Tested>(limits: Limits, act: impl Fn(&SpaceRef<'_, Native, D>, &Barrier) + Sync) {
    let (region, machine) = (HostRegion::reserve(64 << 20).expect("the host has room"), Machine::new(NR_CPUS));
    let world = machine.attach(|| World::<D>::new(&region, NR_CPUS));
    let space = machine.attach(|| world.vm.create_space(limits).expect("room for a space"));
    let (step, failed) = (Barrier::new(NR_CPUS), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..NR_CPUS {
            scope.spawn(|| {
                machine.attach(|| {
                    let guest = Guest::new(&space);
                    step.wait();
                    note(&failed, || act(&space, &step));
                    step.wait();
                    drop(guest);
                });
            });
        }
    });
    fail_as(failed);
    machine.attach(|| {
        world.check("at the end");
        drop(space);
    });
    machine.attach(|| drop(world));
}

/// The first failure of several threads.
type Failed = Mutex<Option<Box<dyn Any + Send>>>;

fn note(failed: &Failed, act: impl FnOnce()) {
    if let Err(failure) = catch_unwind(AssertUnwindSafe(act)) {
        failed.lock().expect("nobody panics with it").get_or_insert(failure);
    }
}

fn fail_as(failed: Failed) {
    if let Some(failure) = failed.into_inner().expect("nobody panics with it") {
        resume_unwind(failure);
    }
}

/// What a CPU does in its turn.
type Act<'a, D> = &'a (dyn Fn(&SpaceRef<'_, Native, D>) + Sync);

/// Lets one CPU after the other act, by their numbers.
fn in_turn<D: Tested>(limits: Limits, turns: &[(usize, Act<'_, D>)]) {
    let failed = Mutex::new(None);
    on_each_cpu::<D>(limits, |space, step| {
        for (cpu, act) in turns {
            if *cpu == Native::cpu() {
                note(&failed, || act(space));
            }
            step.wait();
        }
    });
    fail_as(failed);
}

fn at(cpu: usize, nr: u64) -> u64 {
    START + (cpu as u64 * 4096 + 2 * nr) * PAGE
}

fn request(at: u64, nr_pages: u64, flags: AreaFlags) -> MapRequest<'static, Native> {
    MapRequest { protection: flags.protection(), options: flags.options(), ..anonymous(Some(at), nr_pages * PAGE) }
}

fn range(at: u64, nr_pages: u64) -> AddressRange {
    AddressRange::new(VirtAddr::new(at), nr_pages * PAGE)
}

fn unmap<D: Tested>(space: &SpaceRef<'_, Native, D>, nr: u64) {
    space.munmap(range(at(Native::cpu(), nr), 1)).expect("valid");
}

/// Maps a page that joins no other, as this CPU's `nr`th.
fn map<D: Tested>(space: &SpaceRef<'_, Native, D>, case: &Case, nr: u64) -> Result<(), CallError> {
    space.mmap(&request(at(Native::cpu(), nr), 1, case.flags)).map(|_| ())
}

/// Maps and unmaps, so that this CPU holds credits, where CPUs do.
fn strand<D: Tested>(space: &SpaceRef<'_, Native, D>, case: &Case) {
    for _ in 0..2 {
        (0..6).for_each(|nr| map(space, case, nr).expect("far below the limit"));
        (0..6).for_each(|nr| unmap(space, nr));
    }
}

for_each_design!(one_cpu_reaches_each_limit_though_others_hold_credits, D, {
    for case in cases() {
        // One below the limit, exactly, one above.
        for wanted in [case.most - 1, case.most, case.most + 1] {
            let hold = |space: &SpaceRef<'_, Native, D>| strand(space, &case);
            let fill = |space: &SpaceRef<'_, Native, D>| {
                for nr in 0..wanted {
                    let right = if nr < case.most { Ok(()) } else { Err(case.refusal) };
                    assert_eq!(map(space, &case, nr), right, "page {nr}, of {} that fit", case.most);
                }
            };
            // The others get what is left, and what goes.
            let left = AtomicU64::new(case.most.saturating_sub(wanted));
            let rest = |space: &SpaceRef<'_, Native, D>| {
                for nr in 0..left.load(Ordering::Relaxed) {
                    assert_eq!(map(space, &case, nr), Ok(()), "page {nr} of the rest");
                }
                assert_eq!(map(space, &case, 50), Err(case.refusal));
                left.store(0, Ordering::Relaxed);
            };
            let give = |space: &SpaceRef<'_, Native, D>| {
                unmap(space, 0);
                left.store(1, Ordering::Relaxed);
            };
            in_turn::<D>(
                case.limits,
                &[
                    (1, &hold),
                    (2, &hold),
                    (3, &hold),
                    (0, &fill),
                    (1, &rest),
                    (2, &rest),
                    (0, &give),
                    (3, &rest),
                    (1, &rest),
                ],
            );
        }
    }
});

for_each_design!(one_call_reaches_each_size_though_others_hold_credits, D, {
    for case in cases().into_iter().skip(1) {
        for wanted in [case.most - 1, case.most, case.most + 1] {
            let hold = |space: &SpaceRef<'_, Native, D>| strand(space, &case);
            let fill = |space: &SpaceRef<'_, Native, D>| {
                let right = if wanted <= case.most { Ok(VirtAddr::new(at(0, 0))) } else { Err(case.refusal) };
                assert_eq!(space.mmap(&request(at(0, 0), wanted, case.flags)), right, "{wanted} of {}", case.most);
            };
            let rest = |space: &SpaceRef<'_, Native, D>| {
                let left = if wanted <= case.most { case.most - wanted } else { case.most };
                (0..left).for_each(|nr| assert_eq!(map(space, &case, nr), Ok(())));
                assert_eq!(map(space, &case, 50), Err(case.refusal));
            };
            in_turn::<D>(case.limits, &[(1, &hold), (2, &hold), (3, &hold), (0, &fill), (2, &rest)]);
        }
    }
});

for_each_design!(all_cpus_together_reach_each_limit_and_never_pass_it, D, {
    for case in cases() {
        let (nr_mapped, failed) = (AtomicU64::new(0), Mutex::new(None));
        on_each_cpu::<D>(case.limits, |space, step| {
            strand(space, &case);
            step.wait();
            for round in 0..3 {
                let mut own = 0;
                while map(space, &case, own).is_ok() {
                    own += 1;
                }
                nr_mapped.fetch_add(own, Ordering::Relaxed);
                step.wait();
                if Native::cpu() == 0 {
                    note(&failed, || {
                        assert_eq!(nr_mapped.swap(0, Ordering::Relaxed), case.most, "round {round}");
                        let [pages, locked] = [space.mapped_bytes(), space.locked_bytes()].map(|bytes| bytes / PAGE);
                        assert_eq!((space.nr_areas(), pages), (case.most, case.most));
                        assert!(locked == 0 || locked == case.most);
                    });
                }
                step.wait();
                (0..own).for_each(|nr| unmap(space, nr));
                step.wait();
            }
            assert_eq!((space.nr_areas(), space.mapped_bytes(), space.data_bytes()), (0, 0, 0));
        });
        fail_as(failed);
    }
});

// Calls that have everything, and what counts otherwise than mmap: cuts, mlock, data that comes by mprotect.
for_each_design!(calls_about_everything_see_through_credits, D, {
    let [areas, _, data, locked] = cases();
    let hold = |space: &SpaceRef<'_, Native, D>| strand(space, &areas);
    let cut = |space: &SpaceRef<'_, Native, D>| {
        // A cut needs one area below the limit.
        space.mmap(&request(at(0, 100), 9, RW)).expect("room");
        (0..areas.most - 3).for_each(|nr| map(space, &areas, nr).expect("room"));
        assert_eq!(space.nr_areas(), areas.most - 2);
        space.munmap(range(at(0, 100) + PAGE, 1)).expect("one below the limit");
        let refused = space.munmap(range(at(0, 100) + 3 * PAGE, 1));
        assert_eq!(refused, Err(areas.refusal), "at the limit");
        assert_eq!(space.nr_areas(), areas.most - 1);
    };
    in_turn::<D>(areas.limits, &[(1, &hold), (2, &hold), (3, &hold), (0, &cut)]);
    let hold = |space: &SpaceRef<'_, Native, D>| strand(space, &locked);
    let lock = |space: &SpaceRef<'_, Native, D>| {
        space.mmap(&request(at(0, 0), locked.most + 1, RW)).expect("not locked yet");
        let limit_bytes = locked.limits.lock_bytes;
        let refused = space.mlock(range(at(0, 0), locked.most + 1), PageLock::Lock);
        assert_eq!(refused, Err(CallError::OverLockLimit { limit_bytes }));
        assert_eq!(space.mlock(range(at(0, 0), locked.most), PageLock::Lock), Ok(()));
        assert_eq!(space.locked_bytes(), limit_bytes);
    };
    in_turn::<D>(locked.limits, &[(1, &hold), (2, &hold), (3, &hold), (0, &lock)]);
    let hold = |space: &SpaceRef<'_, Native, D>| strand(space, &data);
    let open = |space: &SpaceRef<'_, Native, D>| {
        space.mmap(&request(at(0, 0), data.most + 1, AreaFlags::READ)).expect("no data yet");
        assert_eq!(space.mprotect(range(at(0, 0), data.most + 1), RW.protection()), Err(data.refusal));
        assert_eq!(space.mprotect(range(at(0, 0), data.most), RW.protection()), Ok(()));
        assert_eq!(space.data_bytes(), data.limits.data_bytes);
    };
    in_turn::<D>(data.limits, &[(1, &hold), (2, &hold), (3, &hold), (0, &open)]);
});

// Each demand for memory is judged by itself, whatever the others have.
for_each_design!(committed_memory_is_judged_by_the_demand, D, {
    let pages = 40;
    let limit_bytes = pages * PAGE;
    let limits = Limits { commit_bytes: limit_bytes, placement: PlacementPolicy::Spread, ..Limits::default() };
    on_each_cpu::<D>(limits, |space, _| {
        let own = |nr| at(Native::cpu(), nr);
        for nr in 0..3 {
            let place = own(100 * nr);
            assert_eq!(space.mmap(&request(place, pages + 1, RW)), Err(CallError::OverCommit { limit_bytes }));
            assert_eq!(space.mmap(&request(place, pages, RW)), Ok(VirtAddr::new(place)));
            assert_eq!(
                space.mmap(&request(own(1000 + 100 * nr), pages - 1, RW)),
                Ok(VirtAddr::new(own(1000 + 100 * nr)))
            );
        }
    });
});
