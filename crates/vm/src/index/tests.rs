//! The area index against a plain map, and its readers against a writer.

use super::node::{MIN_SLOTS, child};
use super::{Index, IndexEntry, Node};
use faultless_phys::{Memory, Options, Slab};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Processor, Threads};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::vec::Vec;

/// Areas here are bare numbers; the index never follows them.
type Plain = u64;

fn area(number: u64) -> NonNull<Plain> {
    NonNull::new(std::ptr::without_provenance_mut((number as usize + 1) * 16)).expect("not null")
}

struct Fixture<'a> {
    nodes: Slab<Native, Node<Native>>,
    index: Index<Native, Plain>,
    memory: &'a Memory<Native>,
}

impl<'a> Fixture<'a> {
    fn new(memory: &'a Memory<Native>) -> Self {
        Self { nodes: Slab::new(memory), index: Index::new(), memory }
    }

    /// Replaces the areas that start in `range` by `added`.
    fn edit(&self, range: Range<u64>, added: &[(u64, u64, u64)]) {
        let mut entries = [None; 3];
        for (place, &(start, end, number)) in entries.iter_mut().zip(added) {
            *place = Some(IndexEntry { start, end, area: area(number) });
        }
        let mut edit = self.index.unprepared(&self.nodes, None);
        edit.prepare(range, entries.into_iter().flatten()).expect("room");
        edit.commit(|| true);
    }
}

fn with_memory(nr_cpus: usize, test: impl FnOnce(&Machine, &Memory<Native>)) {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(nr_cpus);
    let options = Options { poison: true, ..Options::default() };
    // SAFETY: the region is zeroed, ours alone, and outlives the memory.
    let memory = unsafe { Memory::new(region.base(), region.len_bytes(), nr_cpus, options) }.expect("large enough");
    test(&machine, &memory);
}

/// An edit in units of 16 bytes: cut `range` free, then put up to three areas into it.
#[derive(Clone, Debug)]
struct Step {
    start: u64,
    len: u64,
    parts: Vec<(u64, u64)>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let part = (0_u64..4, 1_u64..4);
    let step = (0_u64..600, 1_u64..200, prop::collection::vec(part, 0..=3)).prop_map(|(start, len, parts)| {
        let len = if len > 150 { len * 3 } else { len % 12 + 1 };
        Step { start, len, parts }
    });
    prop::collection::vec(step, 1..400)
}

fn check(model: &BTreeMap<u64, (u64, u64)>, index: &Index<Native, Plain>) {
    let listed: Vec<_> = index.overlapping(0..u64::MAX).map(|entry| (entry.start, entry.end, entry.area)).collect();
    let expected: Vec<_> = model.iter().map(|(&start, &(end, number))| (start, end, area(number))).collect();
    assert_eq!(listed, expected);
    for address in (0..1300).step_by(7) {
        let above = model.iter().find(|(_, (end, _))| *end > address).map(|(&start, _)| start);
        assert_eq!(index.first_ending_after(address).map(|entry| entry.start), above, "above {address}");
        let below = model.range(..address).next_back().map(|(&start, _)| start);
        assert_eq!(index.last_starting_before(address).map(|entry| entry.start), below, "below {address}");
        check_writer(index, address);
    }
    for (len, low, high) in [(1, 0, 1300), (5, 100, 900), (40, 3, 1200), (200, 0, 5000), (7, 50, 60)] {
        assert_eq!(index.highest_gap(len, low..high), highest_gap(model, len, low..high), "a hole of {len}");
    }
}

/// The writer's lookups answer as all others', wherever the one before was.
fn check_writer(index: &Index<Native, Plain>, address: u64) {
    let places = |found: Option<IndexEntry<Plain>>| found.map(|entry| (entry.start, entry.end, entry.area));
    let writer = index.writer();
    for address in [address, address + 1, 1300 - address.min(1300), address] {
        let (above, below) = (index.first_ending_after(address), index.last_starting_before(address));
        assert_eq!(places(writer.first_ending_after(address)), places(above), "above {address}");
        assert_eq!(places(writer.last_starting_before(address)), places(below), "below {address}");
        assert_eq!(places(writer.containing(address)), places(index.containing(address)), "at {address}");
        check_around(index, address..address + 1);
        check_around(index, address..address + 9);
    }
}

/// Checks what one look finds around and in a range, where it finds that.
fn check_around(index: &Index<Native, Plain>, range: Range<u64>) {
    let places = |found: Option<IndexEntry<Plain>>| found.map(|entry| (entry.start, entry.end, entry.area));
    let Some(around) = index.writer().around(range.clone()) else { return };
    assert_eq!(places(around.below), places(index.last_starting_before(range.start)), "below {range:?}");
    assert_eq!(places(around.first), places(index.first_ending_after(range.start)), "first of {range:?}");
    assert_eq!(places(around.above), places(index.first_ending_after(range.end)), "above {range:?}");
    let nr_up_to_end = index.overlapping(range.clone()).filter(|entry| entry.end <= range.end).count();
    assert_eq!(around.nr_up_to_end, nr_up_to_end, "in {range:?}");
}

fn highest_gap(model: &BTreeMap<u64, (u64, u64)>, len: u64, room: Range<u64>) -> Option<u64> {
    let mut upper = room.end;
    for (&start, &(end, _)) in model.iter().rev() {
        let low = end.max(room.start);
        if upper > low && upper - low >= len {
            return Some(upper - len);
        }
        upper = upper.min(start);
    }
    (upper > room.start && upper - room.start >= len).then(|| upper - len)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 60 }, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn behaves_like_a_plain_map(steps in steps()) {
        with_memory(1, |machine, memory| machine.attach(|| {
            let fixture = Fixture::new(memory);
            let mut model: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            let mut number = 0;
            for step in steps {
                // Whole areas only: the range grows to those that stick out, as callers see to.
                let mut range = step.start..step.start + step.len;
                for (&start, &(end, _)) in &model {
                    if start < range.end && end > range.start {
                        range = range.start.min(start)..range.end.max(end);
                    }
                }
                model.retain(|start, _| !range.contains(start));
                let (mut added, mut position) = (Vec::new(), range.start);
                for (hole, len) in step.parts {
                    let (start, end) = (position + hole, position + hole + len);
                    if end <= range.end {
                        added.push((start, end, number));
                        model.insert(start, (end, number));
                        number += 1;
                        position = end;
                    }
                }
                // Half of the edits are where the writer has looked.
                if number % 2 == 0 {
                    check_writer(&fixture.index, range.start);
                }
                fixture.edit(range, &added);
                check_writer(&fixture.index, step.start);
            }
            check(&model, &fixture.index);
            if let Some(root) = fixture.index.root() {
                count_full_nodes(root, true);
            }
            fixture.edit(0..u64::MAX, &[]);
            memory.rcu().flush();
            assert_eq!(fixture.nodes.nr_live(), 0, "nodes were lost");
        }));
    }
}

/// Returns how many nodes a subtree has; each below the root is as full as a rebuilt one must be, and its parent knows
/// its bounds and its largest hole.
fn count_full_nodes(node: &Node<Native>, is_root: bool) -> usize {
    let slots = node.slots();
    assert!(is_root || slots.len() >= MIN_SLOTS, "{} slots in a node of height {}", slots.len(), node.height);
    if node.is_leaf() {
        return 1;
    }
    let count = |slot| {
        let below: &Node<Native> = child(slot);
        assert_eq!(*slot, below.summary(), "what a node of height {} keeps of its child", node.height);
        count_full_nodes(below, false)
    };
    1 + slots.iter().map(count).sum::<usize>()
}

/// Areas come and go one by one, in an order without a pattern; no node is lost, or left with few slots.
#[test]
fn a_node_that_runs_empty_is_merged_with_a_neighbour() {
    with_memory(1, |machine, memory| {
        machine.attach(|| {
            let fixture = Fixture::new(memory);
            let check = |nr_areas: usize| {
                memory.rcu().flush();
                let nr_nodes = fixture.index.root().map_or(0, |root| count_full_nodes(root, true));
                assert_eq!(fixture.nodes.nr_live(), nr_nodes, "nodes for {nr_areas} areas");
                // A tree of nodes that are a third full: their leaves, and a quarter of that above.
                assert!(nr_nodes <= 1 + nr_areas / MIN_SLOTS * 5 / 4, "{nr_nodes} nodes for {nr_areas} areas");
            };
            // Prime, so that each number below it comes once.
            let nr_places = if cfg!(miri) { 101 } else { 997_u64 };
            let places = || (1..nr_places).map(|number| number * 389 % nr_places * 10);
            for (nr_before, start) in places().enumerate() {
                fixture.edit(start..start + 10, &[(start, start + 5, start)]);
                check(nr_before + 1);
            }
            // Enough is left of the area's node, so that no neighbour is made anew, and the nodes above it stay.
            let gone = places().next().expect("there are some");
            assert!(fixture.index.nr_levels() >= 3 || cfg!(miri));
            fixture.edit(gone..gone + 10, &[]);
            assert_eq!(fixture.nodes.nr_deferred(), 1, "nodes that one removal replaces");
            fixture.edit(gone..gone + 10, &[(gone, gone + 5, gone)]);
            for (nr_gone, start) in places().enumerate() {
                fixture.edit(start..start + 10, &[]);
                check(nr_places as usize - 2 - nr_gone);
            }
        });
    });
}

#[test]
fn an_abandoned_edit_changes_nothing() {
    with_memory(1, |machine, memory| {
        machine.attach(|| {
            let fixture = Fixture::new(memory);
            for number in 0..200 {
                fixture.edit(number * 10..number * 10 + 10, &[(number * 10, number * 10 + 5, number)]);
            }
            let live = fixture.nodes.nr_live() - fixture.nodes.nr_deferred();
            let entry = IndexEntry { start: 500, end: 505, area: area(7) };
            let mut edit = fixture.index.unprepared(&fixture.nodes, None);
            edit.prepare(300..900, std::iter::once(entry)).expect("room");
            drop(edit);
            memory.rcu().flush();
            assert_eq!(fixture.nodes.nr_live(), live);
            assert_eq!(fixture.index.overlapping(0..u64::MAX).count(), 200);
        });
    });
}

/// A writer moves one pair of areas back and forth and lets a run of others come and go; each lookup of a reader finds
/// the index of before or after: one of the pair's two places, and the run or what follows it. Replaced nodes are
/// poisoned and used again at once, so that a reader that outlives its grace period finds garbage.
#[test]
fn readers_find_what_was_or_is_while_a_writer_edits() {
    with_memory(2, |machine, memory| {
        let fixture = machine.attach(|| Fixture::new(memory));
        machine.attach(|| (0..300).for_each(|n| fixture.edit(n * 10..n * 10 + 10, &[(n * 10, n * 10 + 5, n)])));
        let is_over = AtomicBool::new(false);
        Native::run(machine, 2, &|thread| {
            Native::enter();
            match thread {
                0 => write(&fixture, &is_over),
                _ => read(&fixture, &is_over),
            }
            Native::leave();
        });
        machine.attach(|| {
            fixture.edit(0..u64::MAX, &[]);
            memory.rcu().flush();
            drop(fixture);
        });
    });
}

fn write(fixture: &Fixture<'_>, is_over: &AtomicBool) {
    for round in 0..if cfg!(miri) { 20 } else { 20_000_u64 } {
        let (start, number) = if round % 2 == 0 { (1006, 1) } else { (1001, 2) };
        fixture.edit(1000..1010, &[(start, start + 3, number)]);
        match round % 2 {
            0 => fixture.edit(2000..2500, &[]),
            _ => fixture.edit(2000..2500, &[(2000, 2100, 5), (2200, 2300, 6), (2400, 2410, 7)]),
        }
        fixture.memory.rcu().poll();
    }
    is_over.store(true, Ordering::SeqCst);
}

fn read(fixture: &Fixture<'_>, is_over: &AtomicBool) {
    let mut seen = [0_u64; 4];
    let mut is_last = false;
    // Once more when it is over: on a busy host the writer may end before we begin.
    while !core::mem::replace(&mut is_last, is_over.load(Ordering::SeqCst)) {
        let _section = fixture.memory.rcu().read();
        let place = fixture.index.first_ending_after(1000).expect("one of the two").start;
        assert!(place == 1006 || place == 1001 || place == 1000, "an area at {place}");
        let run = fixture.index.first_ending_after(2000).expect("areas above stay").start;
        assert!(run == 2000 || run == 2500, "the next area is at {run}");
        seen[usize::from(place == 1006)] += 1;
        seen[2 + usize::from(run == 2500)] += 1;
    }
    assert!(seen.iter().sum::<u64>() > 0);
}
