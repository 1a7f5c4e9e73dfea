//! Calls beside stores of other CPUs, in every order with one switch.
//!
//! # Guarantee
//! CPU 0 makes calls. After each of its steps in turn (an access of the platform's), the other CPUs do all that they
//! do, as far as nothing makes them wait, and then CPU 0 goes on. So whatever a call looks at and then acts on,
//! somebody changes in between, once in each place. Every run is the same each time. Larger programs and more switches
//! are the business of `faultless check schedules`.

use faultless_explore::{Arena, Explore, Machine, Policy, Run, Switch};
use faultless_phys::{Memory, Options};
use faultless_platform::{PAGE_BYTES, Processor};
use faultless_sync::{Generation, Rwsem};
use faultless_vm::design::{Design, Faultless, FaultlessQueued, MapLock, MmapSem, SpfSrcu, SpfV9, SpfV11, VmaLock};
use faultless_vm::{
    Access, AccessError, AddressRange, Advice, AreaFlags, Backing, Event, FetchError, Guest, Limits, MapOptions,
    MapRequest, Mode, ObjectHandle, ObjectSpec, PAGE, PageSource, Placement, PlacementPolicy, Populate, Protection,
    RemapPlacement, RemapRequest, SpaceRef, VirtAddr, Vm, WriteNotice, check,
};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NR_CPUS: usize = 3;
const BASE: u64 = 0x1000_0000;
const ELSEWHERE: u64 = 0x2000_0000;
const OBJECT: u64 = 0x3000_0000;
const SHORT: u64 = PAGE - 64;
/// Pages that [`Sharers::LittleRoom`] leaves.
const ROOM: u64 = 4;
/// Two pages below what a leaf table ends with.
const LONG: u64 = 0x4000_0000 - 2 * PAGE;

trait Tested: Design<Explore, Lock: MapLock<Explore, Semaphore = Rwsem<Explore>>> {}

impl<D: Design<Explore, Lock: MapLock<Explore, Semaphore = Rwsem<Explore>>>> Tested for D {}

/// One page of private memory, and a thread for each CPU.
struct Stage<'vm, D: Tested> {
    space: SpaceRef<'vm, Explore, D>,
    guests: Vec<Guest<'vm, Explore, D>>,
    /// What CPU 0 says to the others.
    is_given_up: AtomicBool,
    /// Stores that must be found at the end, by CPU.
    owed: [AtomicU64; NR_CPUS],
    /// A child that shares the page, if there is one.
    child: Option<SpaceRef<'vm, Explore, D>>,
    /// Two pages that are zero nowhere, mapped shared at [`OBJECT`].
    object: ObjectHandle<'vm, Explore>,
    /// The last reference to a space, if there is one.
    second: Mutex<Option<SpaceRef<'vm, Explore, D>>>,
}

/// Content that is zero nowhere.
struct Pattern;

impl PageSource for Pattern {
    fn fetch(&self, _: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        page.fill(0x40 + page_index as u8);
        Ok(())
    }
}

/// Who else has the page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharers {
    Nobody,
    Child,
    /// Nobody, and there is a second space with as many areas.
    Neighbour,
    /// Nobody, and the object ends at [`SHORT`], in a page that is in memory.
    ShortObject,
    /// Nobody; mappings are spread.
    Spread,
    /// The same, and the address space ends with [`ROOM`] pages more.
    LittleRoom,
}

impl<'vm, D: Tested> Stage<'vm, D> {
    fn new(vm: &'vm Vm<Explore, D>, sharers: Sharers) -> Self {
        let size_bytes = 2 * PAGE;
        let spec = ObjectSpec { identity: 1, size_bytes, source: &Pattern, write_notice: WriteNotice::None };
        let object = vm.create_object(&spec).expect("room");
        let mut limits = Limits::default();
        if matches!(sharers, Sharers::Spread | Sharers::LittleRoom) {
            limits.placement = PlacementPolicy::Spread;
        }
        if sharers == Sharers::LittleRoom {
            limits.address_space_bytes = (3 + ROOM) * PAGE;
        }
        let space = furnished(vm, &object, limits);
        let guests: Vec<_> = (0..NR_CPUS).map(|_| Guest::new(&space)).collect();
        guests[0].store(VirtAddr::new(BASE), 1).expect("mapped");
        let child = (sharers == Sharers::Child).then(|| space.fork().expect("room"));
        let second = Mutex::new((sharers == Sharers::Neighbour).then(|| furnished(vm, &object, Limits::default())));
        let stage = Self {
            space,
            guests,
            is_given_up: AtomicBool::new(false),
            owed: Default::default(),
            child,
            object,
            second,
        };
        if sharers == Sharers::ShortObject {
            stage.truncate(SHORT);
            stage.guests[0].store(VirtAddr::new(OBJECT + SHORT), 1).expect("a page reaches to its end");
        }
        stage
    }

    /// Maps four pages at [`LONG`], of which one in each of two tables is in memory.
    fn map_over_two_tables(&self) {
        let request = MapRequest {
            placement: Placement::Fixed(VirtAddr::new(LONG)),
            len_bytes: 4 * PAGE,
            protection: Protection::READ | Protection::WRITE,
            options: MapOptions::empty(),
            backing: Backing::Anonymous,
            populate: Populate::OnFault,
        };
        self.space.mmap(&request).expect("room");
        for page in [1, 2] {
            // Another CPU may have unmapped it by now.
            let _ = self.guests[0].store(VirtAddr::new(LONG + page * PAGE), 1);
        }
    }

    /// Maps pages of a CPU's own that touch no others; says whether there was room.
    fn map_own(&self, cpu: usize, nr_pages: u64) -> bool {
        let request = MapRequest {
            placement: Placement::Fixed(VirtAddr::new(own(cpu))),
            len_bytes: nr_pages * PAGE,
            protection: Protection::READ | Protection::WRITE,
            options: MapOptions::empty(),
            backing: Backing::Anonymous,
            populate: Populate::OnFault,
        };
        self.space.mmap(&request).is_ok()
    }

    fn unmap_own(&self, cpu: usize, nr_pages: u64) {
        self.space.munmap(AddressRange::new(VirtAddr::new(own(cpu)), nr_pages * PAGE)).expect("valid");
    }

    fn truncate(&self, size_bytes: u64) {
        self.space.vm().truncate(&self.object, size_bytes).expect("not too long");
    }

    /// Reads the first word of a page of the object through its mapping.
    fn look(&self, cpu: usize, page: u64) -> Result<u64, AccessError> {
        self.guests[cpu].load(VirtAddr::new(OBJECT + page * PAGE)).map(|(word, _)| word)
    }

    /// Goes along all spaces, which have all of their areas while they are listed.
    fn visit(&self) {
        self.space.vm().for_each_space(|space| {
            let mut starts = Vec::new();
            space.for_each_area(|area| starts.push(area.range.start().get()));
            assert_eq!(starts, [BASE, OBJECT], "a space that is listed");
        });
    }

    fn advise(&self, advice: Advice) {
        self.space.madvise(AddressRange::new(VirtAddr::new(BASE), PAGE), advice).expect("mapped");
    }

    /// Stores the CPU's number to its word of the page, wherever the page is; owed from now on.
    fn store(&self, cpu: usize) {
        let word = cpu as u64 * 8;
        let is_stored =
            [BASE, ELSEWHERE].iter().any(|page| self.guests[cpu].store(VirtAddr::new(page + word), cpu as u64).is_ok());
        self.owed[cpu].store(u64::from(is_stored), Ordering::Relaxed);
    }

    fn move_page(&self, from: u64, to: u64) {
        let request = RemapRequest {
            old: AddressRange::new(VirtAddr::new(from), PAGE),
            new_len_bytes: PAGE,
            placement: RemapPlacement::Fixed(VirtAddr::new(to)),
            keeps_source: false,
        };
        self.space.mremap(&request).expect("mapped");
    }

    /// Returns the words of the page that are owed and not there.
    fn lost(&self, page: u64) -> Vec<usize> {
        let word = |cpu: usize| self.guests[0].load(VirtAddr::new(page + cpu as u64 * 8)).expect("mapped").0;
        let is_owed = |cpu: &usize| self.owed[*cpu].load(Ordering::Relaxed) != 0;
        (1..NR_CPUS).filter(is_owed).filter(|&cpu| word(cpu) != cpu as u64).collect()
    }
}

/// Returns where a CPU has pages of its own.
fn own(cpu: usize) -> u64 {
    ELSEWHERE + cpu as u64 * 16 * PAGE
}

/// Returns a space with a page of private memory and a mapping of the object.
fn furnished<'vm, D: Tested>(
    vm: &'vm Vm<Explore, D>,
    object: &ObjectHandle<'vm, Explore>,
    limits: Limits,
) -> SpaceRef<'vm, Explore, D> {
    let space = vm.create_space(limits).expect("room");
    let (anonymous, shared) = ((BASE, PAGE, AreaFlags::empty()), (OBJECT, 2 * PAGE, AreaFlags::SHARED));
    for (start, len_bytes, kind) in [anonymous, shared] {
        space
            .mmap(&MapRequest {
                placement: Placement::Fixed(VirtAddr::new(start)),
                len_bytes,
                protection: (AreaFlags::READ | AreaFlags::WRITE | kind).protection(),
                options: (AreaFlags::READ | AreaFlags::WRITE | kind).options(),
                backing: if start == BASE { Backing::Anonymous } else { Backing::Object(object, 0) },
                populate: Populate::OnFault,
            })
            .expect("room");
    }
    space
}

/// Runs `act` with an instance on a machine of [`NR_CPUS`] CPUs.
fn with_instance<D: Tested>(act: impl FnOnce(&Machine, &Vm<Explore, D>)) {
    let machine = Machine::with_arena(NR_CPUS, Arena::new(8 << 20).expect("the host has room"));
    let arena = machine.arena().expect("just given");
    // Lists of two frames: what one CPU frees, another finds at once.
    let options = Options { poison: true, list_high: 2, list_batch: 1, ..Options::default() };
    // SAFETY: the arena is zero, ours alone, and outlives the instance.
    let memory = unsafe { Memory::<Explore>::new(arena.base(), arena.len_bytes(), NR_CPUS, options) }.expect("room");
    let vm = machine.alone(|| Vm::<Explore, D>::with_semaphore(memory, Generation::RWSEM_V8)).expect("room");
    act(&machine, &vm);
    machine.alone(|| drop(vm));
}

/// Plays a program on a stage of its own, begun by CPU 0, with these switches; returns what was done.
fn play_once<D: Tested>(
    (machine, vm): (&Machine, &Vm<Explore, D>),
    stage: Stage<'_, D>,
    switches: Vec<Switch>,
    play: impl Fn(&Stage<'_, D>, usize) + Sync,
    judge: impl Fn(&Stage<'_, D>) -> Result<(), String> + Sync + Send,
) -> Run {
    let run = machine.explore(NR_CPUS, Policy::Replay { first: 0, switches: switches.clone() }, &|cpu| {
        Explore::enter();
        play(&stage, cpu);
        Explore::leave();
    });
    run.outcome.as_ref().unwrap_or_else(|failure| panic!("{switches:?}: {}", failure.message));
    let judged = machine.alone(|| {
        let judged = judge(&stage);
        // SAFETY: no other thread runs.
        unsafe { check::invariants(vm) }.unwrap_or_else(|broken| panic!("{switches:?}: {broken}"));
        drop(stage);
        judged
    });
    judged.unwrap_or_else(|wrong| panic!("{switches:?}: {wrong}"));
    run
}

/// Plays a program once for each step of CPU 0 and each CPU that may come in there; returns how often.
fn in_every_order<D: Tested>(
    sharers: Sharers,
    play: impl Fn(&Stage<'_, D>, usize) + Sync,
    judge: impl Fn(&Stage<'_, D>) -> Result<(), String> + Sync + Send,
) -> usize {
    let mut nr_runs = 0;
    with_instance::<D>(|machine, vm| {
        for other in 1..NR_CPUS {
            let mut step = 1;
            loop {
                let stage = machine.alone(|| Stage::new(vm, sharers));
                let switches = vec![Switch { from: 0, step, to: other }];
                let run = play_once((machine, vm), stage, switches, &play, &judge);
                nr_runs += 1;
                step += 1;
                if step > run.steps[0] {
                    break;
                }
            }
        }
    });
    nr_runs
}

fn nothing_is_lost<D: Tested>(stage: &Stage<'_, D>, page: u64) -> Result<(), String> {
    let lost = stage.lost(page);
    if lost.is_empty() { Ok(()) } else { Err(format!("the stores of CPUs {lost:?} are lost")) }
}

const _: () = assert!(faultless_vm::registry::DESIGNS.len() == 7, "`for_each_design` has all that are registered");

/// Makes a test of each design.
macro_rules! for_each_design {
    ($name:ident, $design:ident, $body:block) => {
        mod $name {
            use super::*;

            fn run<$design: Tested>() $body

            #[test]
            fn mmap_sem() {
                run::<MmapSem<Rwsem<Explore>>>();
            }

            #[test]
            fn spf_srcu() {
                run::<SpfSrcu<Rwsem<Explore>>>();
            }

            #[test]
            fn spf_v9() {
                run::<SpfV9<Rwsem<Explore>>>();
            }

            #[test]
            fn spf_v11() {
                run::<SpfV11<Rwsem<Explore>>>();
            }

            #[test]
            fn vma_lock() {
                run::<VmaLock<Rwsem<Explore>>>();
            }

            #[test]
            fn faultless_queued() {
                run::<FaultlessQueued<Rwsem<Explore>>>();
            }

            #[test]
            fn faultless() {
                run::<Faultless<Rwsem<Explore>>>();
            }
        }
    };
}

#[path = "orders/locked.rs"]
mod locked;

#[path = "orders/objects.rs"]
mod objects;

#[path = "orders/recalls.rs"]
mod recalls;

#[path = "orders/roots.rs"]
mod roots;

#[path = "orders/sharing.rs"]
mod sharing;

for_each_design!(a_store_to_a_page_that_was_given_up_survives_whoever_drops_such_pages, D, {
    let nr_dropped = AtomicU64::new(0);
    let nr_runs = in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => {
                stage.advise(Advice::Free);
                stage.is_given_up.store(true, Ordering::Relaxed);
                stage.advise(Advice::PageOut);
            }
            1 => {
                // Beside MADV_FREE, the store may be part of what is given up.
                let is_given_up = stage.is_given_up.load(Ordering::Relaxed);
                stage.store(1);
                stage.owed[1].store(u64::from(is_given_up), Ordering::Relaxed);
            }
            _ => stage.advise(Advice::PageOut),
        },
        |stage| {
            nr_dropped.fetch_add(
                u64::from(stage.guests[0].load(VirtAddr::new(BASE)).expect("mapped").0 == 0),
                Ordering::Relaxed,
            );
            nothing_is_lost(stage, BASE)
        },
    );
    let nr_dropped = nr_dropped.into_inner() as usize;
    assert!((1..nr_runs).contains(&nr_dropped), "the page went in {nr_dropped} of {nr_runs} orders");
});

for_each_design!(stores_survive_a_copy_on_write_by_another_cpu, D, {
    in_every_order::<D>(
        Sharers::Child,
        |stage, cpu| match cpu {
            0 => assert!(stage.guests[0].store(VirtAddr::new(BASE), 2).is_ok()),
            _ => stage.store(cpu),
        },
        |stage| {
            let child = stage.child.as_ref().expect("forked");
            let seen: Vec<u64> =
                (0..3).map(|word| Guest::new(child).load(VirtAddr::new(BASE + word * 8)).expect("mapped").0).collect();
            match nothing_is_lost(stage, BASE) {
                Ok(()) if seen != [1, 0, 0] => Err(format!("the child sees {seen:?}")),
                result => result,
            }
        },
    );
});

for_each_design!(stores_survive_a_move_of_their_page, D, {
    in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => stage.move_page(BASE, ELSEWHERE),
            _ => stage.store(cpu),
        },
        |stage| nothing_is_lost(stage, ELSEWHERE),
    );
});

for_each_design!(a_page_is_not_taken_for_zeros_where_it_is_moved_to, D, {
    let nr_found = AtomicU64::new(0);
    let nr_runs = in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => stage.move_page(BASE, ELSEWHERE),
            _ => match stage.guests[cpu].load(VirtAddr::new(ELSEWHERE)) {
                Ok((word, _)) => {
                    nr_found.fetch_add(1, Ordering::Relaxed);
                    stage.owed[cpu].store(u64::from(word != 1), Ordering::Relaxed);
                }
                Err(error) => assert_eq!(error, AccessError::NotMapped { address: VirtAddr::new(ELSEWHERE) }),
            },
        },
        |stage| {
            let has_seen_zeros = stage.owed.iter().any(|owed| owed.load(Ordering::Relaxed) != 0);
            let seen = stage.guests[0].load(VirtAddr::new(ELSEWHERE)).expect("mapped").0;
            if seen == 1 && !has_seen_zeros { Ok(()) } else { Err(format!("a load found zeros, and then {seen}")) }
        },
    );
    let nr_found = nr_found.into_inner() as usize;
    assert!((1..2 * nr_runs).contains(&nr_found), "the page was there at {nr_found} of {} looks", 2 * nr_runs);
});

for_each_design!(stores_survive_a_change_of_rights_and_back, D, {
    in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => {
                stage.space.mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::READ).expect("mapped");
                stage
                    .space
                    .mprotect(AddressRange::new(VirtAddr::new(BASE), PAGE), Protection::READ | Protection::WRITE)
                    .expect("mapped");
            }
            _ => stage.store(cpu),
        },
        |stage| nothing_is_lost(stage, BASE),
    );
});

// What is kept behind the end is found by the invariants.
for_each_design!(a_fault_finds_nothing_where_an_area_was_cut_or_went_meanwhile, D, {
    let nr_found = AtomicU64::new(0);
    let nr_runs = in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => {
                // In memory before, so that the second fault needs no fetch.
                let _ = stage.guests[0].load(VirtAddr::new(OBJECT + PAGE));
                let _ = stage.space.madvise(AddressRange::new(VirtAddr::new(OBJECT + PAGE), PAGE), Advice::DontNeed);
                let is_found = stage.guests[0].load(VirtAddr::new(OBJECT + PAGE)).is_ok();
                nr_found.fetch_add(u64::from(is_found), Ordering::Relaxed);
            }
            1 => stage.space.munmap(AddressRange::new(VirtAddr::new(OBJECT + PAGE), PAGE)).expect("a range"),
            // The whole area: the fault may be its last holder.
            _ => stage.space.munmap(AddressRange::new(VirtAddr::new(OBJECT), 2 * PAGE)).expect("a range"),
        },
        |stage| match stage.guests[0].load(VirtAddr::new(OBJECT + PAGE)) {
            Err(AccessError::NotMapped { .. }) => Ok(()),
            other => Err(format!("a load behind the area returned {other:?}")),
        },
    );
    let nr_found = nr_found.into_inner() as usize;
    assert!((1..nr_runs).contains(&nr_found), "the page was there in {nr_found} of {nr_runs} orders");
});

// What is left of the area stays unlocked: its bounds alone tell.
for_each_design!(a_fault_finds_nothing_in_the_part_of_an_area_that_was_cut_off_meanwhile, D, {
    let nr_found = AtomicU64::new(0);
    let nr_runs = in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => {
                // In memory before, so that the second fault needs no fetch.
                let _ = stage.look(0, 1);
                let _ = stage.space.madvise(AddressRange::new(VirtAddr::new(OBJECT + PAGE), PAGE), Advice::DontNeed);
                let is_found = stage.look(0, 1).is_ok();
                nr_found.fetch_add(u64::from(is_found), Ordering::Relaxed);
            }
            1 => stage.space.munmap(AddressRange::new(VirtAddr::new(OBJECT + PAGE), PAGE)).expect("a range"),
            _ => {}
        },
        |stage| match stage.look(0, 1) {
            Err(AccessError::NotMapped { .. }) => Ok(()),
            other => Err(format!("a load behind the area returned {other:?}")),
        },
    );
    let nr_found = nr_found.into_inner() as usize;
    assert!((1..nr_runs).contains(&nr_found), "the page was there in {nr_found} of {nr_runs} orders");
});

// A long unmapping may take the area off the map first, and empty its tables without the space's lock.
for_each_design!(a_fault_finds_nothing_in_what_was_unmapped_over_two_tables_meanwhile, D, {
    let nr_found = AtomicU64::new(0);
    let nr_runs = in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => {
                stage.map_over_two_tables();
                stage.is_given_up.store(true, Ordering::Relaxed);
                let is_found = stage.guests[0].load(VirtAddr::new(LONG)).is_ok();
                nr_found.fetch_add(u64::from(is_found), Ordering::Relaxed);
            }
            1 => {
                let is_mapped = stage.is_given_up.load(Ordering::Relaxed);
                stage.space.munmap(AddressRange::new(VirtAddr::new(LONG), 4 * PAGE)).expect("a range");
                stage.owed[1].store(u64::from(is_mapped), Ordering::Relaxed);
            }
            _ => {}
        },
        |stage| match stage.guests[0].load(VirtAddr::new(LONG)) {
            Err(AccessError::NotMapped { .. }) => Ok(()),
            Ok(_) if stage.owed[1].load(Ordering::Relaxed) == 0 => Ok(()),
            other => Err(format!("a load of what was unmapped returned {other:?}")),
        },
    );
    let nr_found = nr_found.into_inner() as usize;
    assert!((1..nr_runs).contains(&nr_found), "the page was there in {nr_found} of {nr_runs} orders");
});

for_each_design!(a_page_that_is_made_for_stores_is_writable_whoever_loads_meanwhile, D, {
    in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => {
                stage.advise(Advice::DontNeed);
                stage.advise(Advice::PopulateWrite);
            }
            _ => assert!(stage.guests[cpu].load(VirtAddr::new(BASE)).is_ok()),
        },
        |stage| match stage.guests[0].store(VirtAddr::new(BASE), 1) {
            Ok(taken) if taken.count == 0 => Ok(()),
            other => Err(format!("a store to it: {other:?}")),
        },
    );
});

// The last room goes to whoever comes first, whatever credits the others hold, and there is as much as before when all
// have unmapped.
for_each_design!(a_limit_is_reached_and_never_passed_though_cpus_hold_credits, D, {
    let nr_refused = AtomicU64::new(0);
    in_every_order::<D>(
        Sharers::LittleRoom,
        |stage, cpu| {
            // What goes leaves a credit, where CPUs hold credits.
            if stage.map_own(cpu, 1) {
                stage.unmap_own(cpu, 1);
            }
            let has_room = stage.map_own(cpu, 2);
            stage.owed[cpu].store(u64::from(has_room), Ordering::Relaxed);
        },
        |stage| {
            let has_room = |cpu: usize| stage.owed[cpu].load(Ordering::Relaxed) != 0;
            let nr_mapped = (0..NR_CPUS).filter(|&cpu| has_room(cpu)).count() as u64;
            nr_refused.fetch_add(NR_CPUS as u64 - nr_mapped, Ordering::Relaxed);
            let pages = stage.space.mapped_bytes() / PAGE - 3;
            // The third may have asked while another one had the room for the page that went.
            if pages != 2 * nr_mapped || !(1..=ROOM / 2).contains(&nr_mapped) {
                return Err(format!("{pages} pages, of {nr_mapped} CPUs"));
            }
            (0..NR_CPUS).for_each(|cpu| stage.unmap_own(cpu, 2));
            let fits = [stage.map_own(0, ROOM - 1), stage.map_own(1, 2), stage.map_own(2, 1), stage.map_own(1, 1)];
            if fits == [true, false, true, false] { Ok(()) } else { Err(format!("{fits:?} of all the room")) }
        },
    );
    assert!(nr_refused.into_inner() > 0, "there was room for all");
});

/// Two CPUs store to one new page beside another of its table, so that one finds the table locked in some orders.
/// Returns how often a fault gave up for that.
fn nr_given_up_for_a_locked_table<D: Tested>() -> u64 {
    let nr_given_up = AtomicU64::new(0);
    in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| {
            if cpu == 0 {
                stage.map_over_two_tables();
            }
            // Before the mapping is there, another CPU finds nothing.
            let _ = stage.guests[cpu].store(VirtAddr::new(LONG), 1);
        },
        |stage| {
            nr_given_up.store(stage.space.vm().events().total(Event::SpfPteLock), Ordering::Relaxed);
            Ok(())
        },
    );
    nr_given_up.into_inner()
}

#[test]
fn a_fault_that_finds_its_table_locked_waits_or_gives_up_as_its_series_has_it() {
    assert!(nr_given_up_for_a_locked_table::<SpfSrcu<Rwsem<Explore>>>() > 0, "2017: it gives up");
    assert!(nr_given_up_for_a_locked_table::<SpfV9<Rwsem<Explore>>>() > 0, "version 9: it gives up");
    assert_eq!(nr_given_up_for_a_locked_table::<SpfV11<Rwsem<Explore>>>(), 0, "version 11: it waits");
}

// A page is in memory while a store to it is given a copy.
for_each_design!(a_page_is_in_memory_while_it_is_copied, D, {
    in_every_order::<D>(
        Sharers::Child,
        |stage, cpu| match cpu {
            0 => assert!(stage.guests[0].store(VirtAddr::new(BASE), 2).is_ok()),
            _ => {
                let mut is_in_memory = false;
                let page = AddressRange::new(VirtAddr::new(BASE), PAGE);
                let looked = stage.space.mincore(page, &mut |is_there| {
                    is_in_memory = is_there;
                    ControlFlow::Continue(())
                });
                looked.expect("mapped");
                stage.owed[cpu].store(u64::from(!is_in_memory), Ordering::Relaxed);
            }
        },
        |stage| {
            let is_missed = stage.owed.iter().any(|missed| missed.load(Ordering::Relaxed) != 0);
            if is_missed { Err("mincore says that the page is not there".into()) } else { Ok(()) }
        },
    );
});

// A kernel that has taken a fault may take another one, for a copy to its program, without having been in guest.
#[test]
fn a_fault_is_waited_for_though_its_cpu_is_just_taken_out_of_the_spaces_set() {
    type D = FaultlessQueued<Rwsem<Explore>>;
    let base = AddressRange::new(VirtAddr::new(BASE), PAGE);
    let drop_page = |stage: &Stage<'_, D>| stage.advise(Advice::DontNeed);
    with_instance::<D>(|machine, vm| {
        let set_up = || {
            let stage = machine.alone(|| Stage::new(vm, Sharers::Nobody));
            // CPU 1 has used the space, and has no owner any more.
            let joining = machine.explore(2, Policy::in_turn(0), &|cpu| {
                if cpu == 1 {
                    Explore::enter();
                    stage.guests[1].load(VirtAddr::new(BASE)).expect("mapped");
                    Explore::leave();
                }
            });
            joining.outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
            assert!(stage.space.is_used_by(1));
            stage
        };
        let play = |stage: &Stage<'_, D>, cpu: usize| match cpu {
            0 => {
                drop_page(stage);
                stage.space.munmap(base).expect("a range");
            }
            1 => drop(stage.space.handle_fault(VirtAddr::new(BASE), Access::Read, Mode::User)),
            _ => {}
        };
        let judge = |stage: &Stage<'_, D>| match stage.guests[0].load(VirtAddr::new(BASE)) {
            Err(AccessError::NotMapped { .. }) => Ok(()),
            other => Err(format!("a load of what was unmapped returned {other:?}")),
        };
        let dropping = play_once(
            (machine, vm),
            set_up(),
            Vec::new(),
            |stage, cpu| {
                if cpu == 0 {
                    drop_page(stage)
                }
            },
            |_| Ok(()),
        );
        let mut nr_runs = 0;
        for step in 1..dropping.steps[0] {
            let mut back = 1;
            loop {
                let switches = vec![Switch { from: 0, step, to: 1 }, Switch { from: 1, step: back, to: 0 }];
                let run = play_once((machine, vm), set_up(), switches, play, judge);
                nr_runs += 1;
                back += 1;
                if back > run.steps[1] {
                    break;
                }
            }
        }
        assert!(nr_runs > 1000, "{nr_runs} orders");
    });
}

// A writer waits for nobody as long as no other CPU has looked; the first that does comes beside it.
#[test]
fn a_change_waits_for_a_cpu_that_faults_in_the_space_for_the_first_time() {
    type D = FaultlessQueued<Rwsem<Explore>>;
    let base = AddressRange::new(VirtAddr::new(BASE), PAGE);
    with_instance::<D>(|machine, vm| {
        // CPU 1 may use the space's tables, and has never looked at anything.
        let set_up = || {
            let stage = machine.alone(|| {
                let mut stage = Stage::new(vm, Sharers::Nobody);
                stage.guests.clear();
                stage.space = furnished(vm, &stage.object, Limits::default());
                stage.guests.push(Guest::new(&stage.space));
                stage
            });
            let joining = machine.explore(2, Policy::in_turn(0), &|cpu| {
                if cpu == 1 {
                    Explore::enter();
                    stage.guests[0].enter();
                    stage.guests[0].leave();
                    Explore::leave();
                }
            });
            joining.outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
            stage
        };
        let unmap = |stage: &Stage<'_, D>| stage.space.munmap(base).expect("a range");
        let play = |stage: &Stage<'_, D>, cpu: usize| match cpu {
            0 => unmap(stage),
            1 => drop(stage.space.handle_fault(VirtAddr::new(BASE), Access::Write, Mode::User)),
            _ => {}
        };
        let judge = |stage: &Stage<'_, D>| match stage.space.entry_at(VirtAddr::new(BASE)) {
            entry if entry.is_empty() => Ok(()),
            entry => Err(format!("{entry:?} is left of what was unmapped")),
        };
        let unmap_alone = |stage: &Stage<'_, D>, cpu: usize| {
            if cpu == 0 {
                unmap(stage)
            }
        };
        let alone = play_once((machine, vm), set_up(), Vec::new(), unmap_alone, judge);
        let mut nr_runs = 0;
        for step in 1..alone.steps[0] {
            let mut back = 1;
            loop {
                // The fault first, as far as to some step, and the change in it.
                let switches = vec![Switch { from: 0, step, to: 1 }, Switch { from: 1, step: back, to: 0 }];
                let run = play_once((machine, vm), set_up(), switches, play, judge);
                nr_runs += 1;
                back += 1;
                if back > run.steps[1] {
                    break;
                }
            }
        }
        assert!(nr_runs > 1000, "{nr_runs} orders");
    });
}

// The page goes with the last of what shows it, and that is the area.
for_each_design!(a_reference_page_outlives_its_translations_where_an_area_over_two_tables_goes, D, {
    const WORD: u64 = 0x0707_0707_0707_0707;
    let nr_found = AtomicU64::new(0);
    let nr_runs = in_every_order::<D>(
        Sharers::Nobody,
        |stage, cpu| match cpu {
            0 => {
                let handle = stage.space.instance().create_repeated(faultless_vm::Pattern::Byte(7)).expect("room");
                let request = MapRequest {
                    placement: Placement::Fixed(VirtAddr::new(LONG)),
                    len_bytes: 4 * PAGE,
                    protection: Protection::READ,
                    options: MapOptions::empty(),
                    backing: Backing::Reference(&handle, 0),
                    populate: Populate::Now,
                };
                stage.space.mmap(&request).expect("room");
                drop(handle);
                stage.space.munmap(AddressRange::new(VirtAddr::new(LONG), 4 * PAGE)).expect("a range");
            }
            _ => {
                if let Ok((word, _)) = stage.guests[cpu].load(VirtAddr::new(LONG + PAGE)) {
                    nr_found.fetch_add(1, Ordering::Relaxed);
                    stage.owed[cpu].store(u64::from(word != WORD), Ordering::Relaxed);
                }
            }
        },
        |stage| match stage.owed.iter().any(|is_wrong| is_wrong.load(Ordering::Relaxed) != 0) {
            true => Err("a load found what the page holds by now".into()),
            false => Ok(()),
        },
    );
    let nr_found = nr_found.into_inner() as usize;
    assert!((1..2 * nr_runs).contains(&nr_found), "the page was there at {nr_found} of {} looks", 2 * nr_runs);
});
