//! Edits of the index beside a reader who comes in after each of their steps in turn.
//!
//! # Guarantee
//! Whatever the step, the reader finds at each address what was there before the edit, or what is there after it.

use super::{Index, IndexEntry, Node};
use faultless_explore::{Arena, Explore, Machine, Policy, Switch};
use faultless_phys::{Memory, Options, Slab};
use faultless_platform::Processor;
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::string::String;
use std::sync::Mutex;
use std::vec::Vec;
use std::{format, vec};

/// Areas by their first addresses: their ends, and their numbers.
type Model = BTreeMap<u64, (u64, usize)>;

/// Enough for three levels of nodes.
const NR_AREAS: u64 = 150;
/// Distance of the areas' first addresses.
const STRIDE: u64 = 8;
/// Length of each area.
const HALF: u64 = STRIDE / 2;
/// Areas that are edited: more than a leaf has.
const EDITED: Range<u64> = 60..78;

fn area(number: usize) -> NonNull<u64> {
    NonNull::new(std::ptr::without_provenance_mut((number + 1) * 16)).expect("not null")
}

struct World<'a> {
    nodes: Slab<Explore, Node<Explore>>,
    index: Index<Explore, u64>,
    memory: &'a Memory<Explore>,
}

impl World<'_> {
    fn edit(&self, edit: &Edit) {
        let mut entries = [None; 3];
        for (place, &(start, end, number)) in entries.iter_mut().zip(&edit.added) {
            *place = Some(IndexEntry { start, end, area: area(number) });
        }
        let mut prepared = self.index.unprepared(&self.nodes, None);
        prepared.prepare(edit.range.clone(), entries.into_iter().flatten()).expect("room");
        prepared.commit(|| true);
    }
}

/// What starts in `range` goes, and what is added comes: first byte, first byte behind, number.
#[derive(Clone, Debug)]
struct Edit {
    range: Range<u64>,
    added: Vec<(u64, u64, usize)>,
}

impl Edit {
    fn applied_to(&self, model: &Model) -> Model {
        let mut model = model.clone();
        model.retain(|start, _| !self.range.contains(start));
        model.extend(self.added.iter().map(|&(start, end, number)| (start, (end, number))));
        model
    }

    /// Returns what takes the edit back; with the next area above, so that one that was the first of a leaf is so
    /// again, where two leaves are spread anew.
    fn undone(&self, model: &Model) -> Self {
        let range = self.range.start..self.range.end + STRIDE;
        let gone = model.range(range.clone()).map(|(&start, &(end, number))| (start, end, number));
        Self { added: gone.collect(), range }
    }
}

/// Returns all that may become of an area, its neighbour above and the holes around them.
fn edits_of(number: u64) -> Vec<Edit> {
    let (at, half, same) = (number * STRIDE, HALF, number as usize);
    let edit = |range: Range<u64>, added: &[(u64, u64, usize)]| Edit { range, added: added.to_vec() };
    let one = at..at + STRIDE;
    vec![
        edit(one.clone(), &[]),
        edit(one.clone(), &[(at, at + half, 1000)]),
        edit(one.clone(), &[(at, at + 1, same)]),
        edit(one.clone(), &[(at + 2, at + half, same)]),
        edit(one.clone(), &[(at, at + STRIDE, same)]),
        edit(one.clone(), &[(at, at + 1, same), (at + 1, at + 2, 1000), (at + 2, at + half, 1001)]),
        edit(one, &[(at, at + half, same), (at + half + 1, at + half + 2, 1000)]),
        edit(at - half..at + half, &[(at - half, at + half, same)]),
        edit(at..at + 2 * STRIDE, &[(at, at + STRIDE + half, same)]),
        edit(at..at + 2 * STRIDE, &[(at, at + half + 2, same), (at + STRIDE + 2, at + STRIDE + half, same + 1)]),
    ]
}

type Found = Option<(u64, u64, usize)>;

/// Returns the area around `address`, the first one that ends behind it, and the last one that starts below it.
fn expected(model: &Model, address: u64) -> [Found; 3] {
    let entry = |(&start, &(end, number)): (&u64, &(u64, usize))| (start, end, number);
    let above = model.iter().find(|(_, (end, _))| *end > address).map(entry);
    let below = model.range(..address).next_back().map(entry);
    [above.filter(|&(start, ..)| start <= address), above, below]
}

fn found(index: &Index<Explore, u64>, address: u64) -> [Found; 3] {
    let entry = |found: IndexEntry<u64>| (found.start, found.end, found.area.as_ptr().addr() / 16 - 1);
    let found = [index.containing(address), index.first_ending_after(address), index.last_starting_before(address)];
    found.map(|found| found.map(entry))
}

/// Says what is wrong with what a reader finds.
fn judge(world: &World<'_>, (before, after): (&Model, &Model), around: Range<u64>) -> Result<(), String> {
    let _section = world.memory.rcu().read();
    for address in around.chain([0, NR_AREAS * STRIDE - HALF, u64::MAX - 1]) {
        let (was, is) = (expected(before, address), expected(after, address));
        for (question, answer) in found(&world.index, address).into_iter().enumerate() {
            if answer != was[question] && answer != is[question] {
                return Err(format!(
                    "{address}: {answer:?}, but {:?} before and {:?} after",
                    was[question], is[question]
                ));
            }
        }
    }
    Ok(())
}

/// Runs `act` on CPU 0 alone.
fn alone<R: Send>(machine: &Machine, act: impl FnOnce() -> R + Send) -> R {
    let (act, result) = (Mutex::new(Some(act)), Mutex::new(None));
    let run = machine.explore(1, Policy::in_turn(0), &|_| {
        Explore::enter();
        let act = act.lock().expect("one thread").take();
        *result.lock().expect("one thread") = act.map(|act| act());
        Explore::leave();
    });
    run.outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
    result.into_inner().expect("one thread").expect("the body ran to its end")
}

/// Edits while a reader comes in after the step of that number; returns how many steps the edit took.
fn run(machine: &Machine, world: &World<'_>, model: &Model, edit: &Edit, step: u64) -> u64 {
    let after = edit.applied_to(model);
    let around = edit.range.start - 2 * STRIDE..edit.range.end + 2 * STRIDE;
    let wrong = Mutex::new(None);
    let switches = vec![Switch { from: 0, step, to: 1 }];
    let run = machine.explore(2, Policy::Replay { first: 0, switches }, &|cpu| {
        Explore::enter();
        match cpu {
            0 => world.edit(edit),
            _ => *wrong.lock().expect("one at a time") = judge(world, (model, &after), around.clone()).err(),
        }
        Explore::leave();
    });
    run.outcome.unwrap_or_else(|failure| panic!("{edit:?}, step {step}: {}", failure.message));
    if let Some(wrong) = wrong.into_inner().expect("nobody panicked") {
        panic!("{edit:?}, step {step}: {wrong}");
    }
    run.steps[0]
}

#[test]
fn an_address_is_found_between_any_two_steps_of_an_edit() {
    let machine = Machine::with_arena(2, Arena::new(4 << 20).expect("the host has room"));
    let arena = machine.arena().expect("just given");
    let options = Options { poison: true, list_high: 2, list_batch: 1, ..Options::default() };
    // SAFETY: the arena is zero, ours alone, and outlives the memory.
    let memory = unsafe { Memory::<Explore>::new(arena.base(), arena.len_bytes(), 2, options) }.expect("room");
    let areas = || (1..NR_AREAS).map(|number| (number * STRIDE, number * STRIDE + HALF, number as usize));
    let model: Model = areas().map(|(start, end, number)| (start, (end, number))).collect();
    let world = alone(&machine, || {
        let world = World { nodes: Slab::new(&memory), index: Index::new(), memory: &memory };
        areas().for_each(|area| world.edit(&Edit { range: area.0..area.1, added: vec![area] }));
        assert_eq!(world.index.nr_levels(), 3);
        world
    });
    for edit in EDITED.flat_map(edits_of) {
        let (mut step, mut nr_steps) = (1, 1);
        while step <= nr_steps {
            nr_steps = run(&machine, &world, &model, &edit, step);
            step += 1;
            alone(&machine, || {
                world.edit(&edit.undone(&model));
                memory.rcu().flush();
            });
        }
        assert!(nr_steps > 3, "an edit of {nr_steps} steps");
    }
    alone(&machine, || {
        world.edit(&Edit { range: 0..u64::MAX, added: Vec::new() });
        memory.rcu().flush();
        assert_eq!(world.nodes.nr_live(), 0, "nodes were lost");
        drop(world);
    });
    alone(&machine, || drop(memory));
}
