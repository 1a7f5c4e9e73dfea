//! Calls at the bounds of lanes beside others, in orders with two switches.
//!
//! # Guarantee
//! CPU 0 makes a call, and CPU 1 some calls and stores. One begins; after one of its steps the other goes on, and after
//! one of its steps the first again, as far as nothing makes them wait. What the list shows in the end is what a space
//! without lanes shows when the call stands somewhere among the others; and the invariants hold, S2 among them.

use super::*;
use crate::design::Faultless;
use crate::instance::Vm;
use crate::limits::{Limits, PlacementPolicy};
use crate::space::SpaceRef;
use crate::space::crowding::{START, crowd, private};
use crate::{AddressRange, Guest, PAGE, check};
use faultless_explore::{Arena, Explore, Machine, Policy, Random, Switch};
use faultless_phys::{Memory, Options};
use faultless_platform::Processor;
use faultless_sync::{Generation, Rwsem};
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

type Tested = Faultless<Rwsem<Explore>>;
type TestedSpace<'a> = SpaceRef<'a, Explore, Tested>;
const NR_CPUS: usize = 3;
/// Granules that an area lies in at first, each an annex of its own.
const NR_GRANULES: u64 = 5;
/// Bounds of annexes that calls come near to.
const BOUNDS: Range<u64> = 2..4;
/// Pages at each side of a bound.
const NEAR: u64 = 3;

/// Something that changes a list, or what may be joined.
#[derive(Clone, Debug)]
enum Action {
    Map(Range<u64>),
    Unmap(Range<u64>),
    Protect(Range<u64>, AreaFlags),
    Store(u64),
}

/// Draws places and calls.
struct Numbers(Random);

impl Numbers {
    fn bound(&mut self) -> u64 {
        START + (BOUNDS.start + self.0.below(BOUNDS.end - BOUNDS.start)) * GRANULE_BYTES
    }

    fn place(&mut self, bound: u64) -> u64 {
        bound + self.0.below(2 * NEAR) * PAGE - NEAR * PAGE
    }

    /// Returns a call near a bound, and maybe as far as to another.
    fn call(&mut self, bound: u64) -> Action {
        let one = self.place(bound);
        let other = if self.0.one_in(4) { self.bound() } else { bound };
        let two = self.place(other);
        let range = if self.0.one_in(3) && one != two { one.min(two)..one.max(two) } else { one..one + PAGE };
        match self.0.below(7) {
            0..4 => Action::Map(range),
            4 => Action::Unmap(range),
            5 => Action::Protect(range, AreaFlags::READ),
            _ => Action::Protect(range, AreaFlags::READ | AreaFlags::WRITE),
        }
    }

    /// Returns calls and stores, of which one in so many are stores.
    fn actions(&mut self, nr: u64, bound: Option<u64>, store: u64) -> Vec<Action> {
        let action = |_| {
            let bound = bound.unwrap_or_else(|| self.bound());
            if self.0.one_in(store) { Action::Store(self.place(bound)) } else { self.call(bound) }
        };
        (0..nr).map(action).collect()
    }
}

fn act(space: &TestedSpace<'_>, guest: &Guest<'_, Explore, Tested>, action: &Action) -> bool {
    let addresses = |range: &Range<u64>| AddressRange::new(VirtAddr::new(range.start), range.end - range.start);
    match action {
        Action::Map(range) => space.mmap(&private(range)).is_ok(),
        Action::Unmap(range) => space.munmap(addresses(range)).is_ok(),
        Action::Protect(range, rights) => space.mprotect(addresses(range), rights.protection()).is_ok(),
        Action::Store(address) => guest.store(VirtAddr::new(*address), 1).is_ok(),
    }
}

/// Who does what, where an area is cut at the bounds of annexes.
#[derive(Debug)]
struct Program {
    /// What is done before.
    before: Vec<Action>,
    /// What CPU 0 does.
    call: Action,
    /// What CPU 1 does.
    others: Vec<Action>,
}

/// The area that is cut.
const WHOLE: Range<u64> = START + PAGE..START + NR_GRANULES * GRANULE_BYTES - PAGE;

impl Program {
    fn draw(numbers: &mut Numbers) -> Self {
        let (nr_before, one_in) = (1 + numbers.0.below(8), 2 + numbers.0.below(16));
        let mut before = numbers.actions(nr_before, None, one_in);
        if numbers.0.one_in(2) {
            before.insert(0, Action::Unmap(WHOLE));
        }
        let bound = numbers.bound();
        let (call, nr_others) = (numbers.call(bound), 1 + numbers.0.below(4));
        let others = numbers.actions(nr_others, Some(bound), 3);
        Self { before, call, others }
    }
}

type List = Vec<(Range<u64>, AreaFlags)>;

fn list(space: &TestedSpace<'_>) -> (u64, List) {
    let mut found = Vec::new();
    space.for_each_area(|area| found.push((area.range.start().get()..area.range.end().get(), area.flags)));
    (space.nr_areas(), found)
}

/// Returns the lists of a space without lanes, the call before each of the others in turn and behind all.
fn lists_in_turn(vm: &Vm<Explore, Tested>, program: &Program) -> Vec<(u64, List)> {
    let lists = (0..=program.others.len()).map(|place| {
        let limits = Limits { placement: PlacementPolicy::Linux, ..Limits::default() };
        let space = vm.create_space(limits).expect("room");
        let guest = Guest::new(&space);
        let (first, last) = program.others.split_at(place);
        let all = [&Action::Map(WHOLE)].into_iter().chain(&program.before);
        let all = all.chain(first).chain([&program.call]).chain(last);
        all.for_each(|action| _ = act(&space, &guest, action));
        list(&space)
    });
    lists.collect()
}

/// A space whose mappings are spread, in which a program's threads may begin.
fn begun<'vm>(vm: &'vm Vm<Explore, Tested>, program: &Program) -> (TestedSpace<'vm>, Vec<Guest<'vm, Explore, Tested>>) {
    let limits = Limits { placement: PlacementPolicy::Spread, ..Limits::default() };
    let space = vm.create_space(limits).expect("room");
    let guests: Vec<_> = (0..NR_CPUS).map(|_| Guest::new(&space)).collect();
    act(&space, &guests[0], &Action::Map(WHOLE));
    crowd(&space, START + BOUNDS.start * GRANULE_BYTES - NEAR * PAGE);
    let lanes = space.lane_rooms().expect("mappings are spread");
    assert!(BOUNDS.map(|number| START + number * GRANULE_BYTES).all(|bound| lanes.is_bound(bound)), "annexes");
    program.before.iter().for_each(|action| _ = act(&space, &guests[0], action));
    (space, guests)
}

/// Plays a program in so many orders.
fn play(
    (machine, vm): (&Machine, &Vm<Explore, Tested>),
    program: &Program,
    numbers: &mut Numbers,
    nr_orders: u64,
) -> Result<(), String> {
    let wanted = machine.alone(|| lists_in_turn(vm, program));
    // How many steps each CPU had last.
    let mut nr_steps = [512; 2];
    for _ in 0..nr_orders {
        let first = numbers.0.below(2) as usize;
        let both = [first, 1 - first];
        let switches = both.map(|cpu| Switch { from: cpu, step: 1 + numbers.0.below(nr_steps[cpu]), to: 1 - cpu });
        let (space, guests) = machine.alone(|| begun(vm, program));
        let policy = Policy::Replay { first, switches: switches.to_vec() };
        let run = machine.explore(2, policy, &|cpu| {
            Explore::enter();
            let own = if cpu == 0 { core::slice::from_ref(&program.call) } else { &program.others };
            own.iter().for_each(|action| _ = act(&space, &guests[cpu], action));
            Explore::leave();
        });
        nr_steps = [0, 1].map(|cpu| run.steps[cpu].max(1));
        if let Err(failure) = run.outcome {
            // As the instance: what is left belongs to threads of a machine.
            core::mem::forget((space, guests));
            return Err(format!("{switches:?}: {}", failure.message));
        }
        let (found, result) = machine.alone(|| {
            // SAFETY: no other thread runs.
            let result = unsafe { check::invariants(vm) };
            let found = list(&space);
            drop((guests, space));
            (found, result)
        });
        result.map_err(|broken| format!("{switches:?}: {broken}"))?;
        if !wanted.contains(&found) {
            return Err(format!("{switches:?}: {found:x?}, wanted is one of {wanted:x?}"));
        }
    }
    Ok(())
}

/// Runs `act` with an instance.
fn with_instance(act: impl FnOnce((&Machine, &Vm<Explore, Tested>)) -> Result<(), String>) {
    let machine = Machine::with_arena(NR_CPUS, Arena::new(8 << 20).expect("the host has room"));
    let arena = machine.arena().expect("just given");
    let options = Options { list_high: 2, list_batch: 1, ..Options::default() };
    // SAFETY: the arena is zero, ours alone, and outlives the instance.
    let memory = unsafe { Memory::<Explore>::new(arena.base(), arena.len_bytes(), NR_CPUS, options) }.expect("room");
    let vm = machine.alone(|| Vm::<Explore, Tested>::with_semaphore(memory, Generation::RWSEM_V8)).expect("room");
    if let Err(wrong) = act((&machine, &vm)) {
        // What is left of the run belongs to threads of a machine.
        core::mem::forget(vm);
        panic!("{wrong}");
    }
    machine.alone(|| drop(vm));
}

#[test]
fn calls_at_bounds_beside_others_leave_what_they_leave_in_turn() {
    // More of them, by hand.
    let nr_programs = std::env::var("FAULTLESS_PROGRAMS").map_or(Ok(60), |value| value.parse()).expect("a number");
    with_instance(|stage| {
        for seed in 1..=nr_programs {
            let mut numbers = Numbers(Random::new(seed));
            let program = Program::draw(&mut numbers);
            let played = play(stage, &program, &mut numbers, 200);
            played.map_err(|wrong| format!("seed {seed}: {wrong}\n{program:x?}"))?;
        }
        Ok(())
    });
}

// CPU 1 makes the area below the bound one of a chain without a root, while CPU 0, which has chosen a part that touches
// it, and another area with a root, has not entered that part yet.
#[test]
fn a_part_that_touches_what_came_into_a_chain_before_it_was_entered_is_looked_at_again() {
    let page = |number: i64| (START + BOUNDS.start * GRANULE_BYTES).wrapping_add_signed(number * PAGE as i64);
    let program = Program {
        before: vec![
            Action::Unmap(WHOLE.start..page(-1)),
            Action::Unmap(page(0)..page(1)),
            Action::Unmap(page(2)..WHOLE.end),
            Action::Map(page(-3)..page(-2)),
            Action::Store(page(-3)),
        ],
        call: Action::Map(page(-2)..page(-1)),
        others: vec![Action::Map(page(0)..page(1))],
    };
    with_instance(|stage| play(stage, &program, &mut Numbers(Random::new(1)), 4000));
}
