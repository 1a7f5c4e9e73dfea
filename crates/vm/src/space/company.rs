//! Spaces that two CPUs use, for tests of what calls do in company.

extern crate std;

use super::SpaceRef;
use crate::design::Faultless;
use crate::instance::Vm;
use crate::limits::{Limits, PlacementPolicy};
use crate::{Guest, check};
use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_sync::{Generation, Rwsem};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;

pub(super) type Tested = Faultless<Rwsem<Native>>;
pub(super) type TestedSpace<'a> = SpaceRef<'a, Native, Tested>;
type TestedGuest<'a> = Guest<'a, Native, Tested>;

/// As [`in_company_of`], in spaces whose mappings are spread.
pub(super) fn in_company<const N: usize>(
    nr_cpus: usize,
    limits: &Limits,
    act: impl FnOnce([(&TestedSpace<'_>, &TestedGuest<'_>); N]),
) {
    in_company_of(nr_cpus, Limits { placement: PlacementPolicy::Spread, ..*limits }, act);
}

/// Runs `act` on one of two CPUs that use some spaces, on a machine of so many; then the invariants hold. On a machine
/// of one CPU both users are the calling thread's.
pub(super) fn in_company_of<const N: usize>(
    nr_cpus: usize,
    limits: Limits,
    act: impl FnOnce([(&TestedSpace<'_>, &TestedGuest<'_>); N]),
) {
    let (region, machine) = (HostRegion::reserve(64 << 20).expect("the host has room"), Machine::new(nr_cpus));
    machine.attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), nr_cpus, Options::default()) };
        let vm = Vm::<Native, Tested>::with_semaphore(memory.expect("large enough"), Generation::RWSEM_V8);
        let vm = vm.expect("a frame for the zero page");
        let spaces: [TestedSpace<'_>; N] = core::array::from_fn(|_| vm.create_space(limits).expect("room"));
        let nr_threads = nr_cpus.min(2);
        let (came, done) = (Barrier::new(nr_threads), Barrier::new(nr_threads));
        std::thread::scope(|scope| {
            if nr_threads == 2 {
                scope.spawn(|| {
                    machine.attach(|| {
                        let _guests = spaces.each_ref().map(Guest::new);
                        came.wait();
                        done.wait();
                    });
                });
            }
            let guests = spaces.each_ref().map(Guest::new);
            let _others = (nr_threads == 1).then(|| spaces.each_ref().map(Guest::new));
            came.wait();
            // A failure must not leave the other thread waiting.
            let all = core::array::from_fn(|place| (&spaces[place], &guests[place]));
            let result = catch_unwind(AssertUnwindSafe(|| act(all)));
            done.wait();
            result.unwrap_or_else(|cause| resume_unwind(cause));
        });
        // SAFETY: no other thread is left.
        unsafe { check::invariants(&vm) }.expect("invariants");
        drop(spaces);
    });
}
