//! Areas at the bounds of lanes, and across them, where each lane has an index of its own: they are found, joined and
//! cut as anywhere else.

use crate::world::{Random, Tested, World, anonymous};
use faultless_phys::Failing;
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Processor, Threads};
use faultless_vm::{
    AddressRange, Event, Guest, Limits, PAGE, PlacementPolicy, Protection, RemapPlacement, RemapRequest, SpaceRef,
    VirtAddr,
};
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

const NR_THREADS: usize = 3;
const GIB: u64 = 1 << 30;
/// Pages beside each bound.
const NEAR: u64 = 3;

/// Ranges of 1 GiB, so that lanes begin and end at each whole number of them from 1 to 4.
fn limits() -> Limits {
    Limits { placement: PlacementPolicy::Spread, mmap_base: 5 * GIB, lowest_chosen: GIB / 2, ..Limits::default() }
}

/// What operations begin and end at: pages beside the bounds, and what lies between.
fn cells() -> Vec<Range<u64>> {
    let near = |bound: u64| (bound - NEAR * PAGE..bound + NEAR * PAGE).step_by(PAGE as usize);
    let starts: Vec<u64> = (1..=4).flat_map(|bound| near(bound * GIB).chain([bound * GIB + NEAR * PAGE])).collect();
    starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

impl Random {
    fn range(&mut self, nr_cells: usize) -> Range<usize> {
        let start = self.below(nr_cells);
        let most = if self.below(8) == 0 { nr_cells } else { 5 };
        start..(start + 1 + self.below(most)).min(nr_cells)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Hole,
    Written,
    Read,
}

fn addresses(cells: &[Range<u64>], range: &Range<usize>) -> AddressRange {
    let (start, end) = (cells[range.start].start, cells[range.end - 1].end);
    AddressRange::new(VirtAddr::new(start), end - start)
}

/// Does something at random; tells the model, if there is one.
fn act<D: Tested>(
    space: &SpaceRef<'_, Native, D>,
    random: &mut Random,
    cells: &[Range<u64>],
    mut model: Option<&mut Vec<Cell>>,
) {
    let range = random.range(cells.len());
    let at = addresses(cells, &range);
    let becomes = match random.below(4) {
        0 | 1 => {
            space.mmap(&anonymous(Some(at.start.get()), at.len_bytes)).expect("room");
            Cell::Written
        }
        2 => {
            space.munmap(at).expect("valid");
            Cell::Hole
        }
        _ => {
            let is_mapped = |model: &&mut Vec<Cell>| !model[range.clone()].contains(&Cell::Hole);
            if !model.as_ref().is_none_or(is_mapped) {
                return;
            }
            // Without a model, the range may have holes.
            let result = space.mprotect(at, Protection::READ);
            assert!(result.is_ok() || model.is_none(), "{at:?}");
            Cell::Read
        }
    };
    if let Some(model) = model.as_mut() {
        model[range].fill(becomes);
    }
}

/// Returns the areas that a model has: cells side by side that are alike are one.
fn areas(model: &[Cell], cells: &[Range<u64>]) -> Vec<(Range<u64>, Cell)> {
    let mut areas: Vec<(Range<u64>, Cell)> = Vec::new();
    for (cell, range) in model.iter().zip(cells).filter(|(cell, _)| **cell != Cell::Hole) {
        match areas.last_mut() {
            Some((last, kind)) if last.end == range.start && kind == cell => last.end = range.end,
            _ => areas.push((range.clone(), *cell)),
        }
    }
    areas
}

/// Runs `act` on each of several threads in one space whose mappings are spread, and then checks all invariants.
fn with_threads<D: Tested>(act: impl Fn(&World<D>, &SpaceRef<'_, Native, D>, usize) + Sync) {
    let (region, machine) = (HostRegion::reserve(64 << 20).expect("the host has room"), Machine::new(NR_THREADS));
    let world = machine.attach(|| World::<D>::new(&region, NR_THREADS));
    let space = machine.attach(|| world.vm.create_space(limits()).expect("room"));
    Native::run(&machine, NR_THREADS, &|thread| {
        Native::enter();
        let guest = Guest::new(&space);
        act(&world, &space, thread);
        drop(guest);
        Native::leave();
    });
    machine.attach(|| {
        world.check("invariants");
        space.munmap(AddressRange::new(VirtAddr::new(0), 8 * GIB)).expect("valid");
        assert_eq!((space.nr_areas(), space.mapped_bytes(), space.resident_pages()), (0, 0, 0));
        world.check("nothing is left");
        drop(space);
    });
    machine.attach(|| drop(world));
}

for_each_design!(areas_at_bounds_are_those_of_a_model, D, {
    let all_came = Barrier::new(NR_THREADS);
    with_threads::<D>(|world, space, thread| {
        all_came.wait();
        if thread != 0 {
            all_came.wait();
            return;
        }
        let (cells, mut random) = (cells(), Random(0x9e37_79b9));
        let mut model = vec![Cell::Hole; cells.len()];
        for round in 0..400 {
            act(space, &mut random, &cells, Some(&mut model));
            let wanted = areas(&model, &cells);
            let mut found = Vec::new();
            space.for_each_area(|area| found.push(area.range.start().get()..area.range.end().get()));
            assert_eq!(found, wanted.iter().map(|(range, _)| range.clone()).collect::<Vec<_>>(), "round {round}");
            assert_eq!(space.nr_areas(), wanted.len() as u64, "round {round}");
            // What may lie anywhere lies where nothing is; a CPU's range first, and then all room.
            let len = PAGE << (3 * random.below(8));
            if let Ok(place) = space.mmap(&anonymous(None, len)) {
                let (start, end) = (place.get(), place.get() + len);
                assert!(
                    wanted.iter().all(|(area, _)| area.end <= start || end <= area.start),
                    "round {round}: {start:x}"
                );
                space.munmap(AddressRange::new(place, len)).expect("just mapped");
            }
            if round % 40 == 0 {
                world.check("invariants");
            }
        }
        all_came.wait();
    });
});

// Calls about areas of one lane beside calls about areas of several.
for_each_design!(calls_at_bounds_side_by_side_lose_nothing, D, {
    with_threads::<D>(|_, space, thread| {
        let (cells, mut random) = (cells(), Random(thread as u64 + 1));
        let own = 4 * GIB - (thread as u64 + 1) * GIB + GIB / 2;
        let guest = Guest::new(space);
        for round in 0..150 {
            act(space, &mut random, &cells, None);
            // Of its own lane, in what lies between the bounds: its neighbours come and go by calls of others.
            space.mmap(&anonymous(Some(own), 4 * PAGE)).expect("room");
            if guest.store(VirtAddr::new(own + PAGE), round).is_ok() && round % 3 == 0 {
                let _ = space.mprotect(AddressRange::new(VirtAddr::new(own), PAGE), Protection::READ);
            }
            space.munmap(AddressRange::new(VirtAddr::new(own), 4 * PAGE)).expect("valid");
            let anywhere = space.mmap(&anonymous(None, 2 * PAGE)).expect("room");
            space.munmap(AddressRange::new(anywhere, 2 * PAGE)).expect("valid");
        }
    });
});

// Areas at addresses that nobody's range has, each thread's apart from the others', that grow over whole granules.
for_each_design!(named_addresses_side_by_side_lose_nothing, D, {
    with_threads::<D>(|_, space, thread| {
        let own = 6 * GIB + thread as u64 * (4 << 20);
        let step = 128 << 10;
        let guest = Guest::new(space);
        for round in 0..25 {
            for place in (own..own + (2 << 20)).step_by(step as usize) {
                space.mmap(&anonymous(Some(place), step)).expect("room");
                assert!(guest.store(VirtAddr::new(place), round).is_ok(), "just mapped");
            }
            assert_eq!(guest.load(VirtAddr::new(own)).map(|loaded| loaded.0), Ok(round), "nobody else maps here");
            for place in (own..own + (2 << 20)).step_by(2 * step as usize) {
                space.munmap(AddressRange::new(VirtAddr::new(place), step)).expect("valid");
                assert!(guest.load(VirtAddr::new(place)).is_err(), "just unmapped");
                assert!(guest.load(VirtAddr::new(place + step)).is_ok(), "beside it");
            }
            // Now and then over all threads' areas: whoever does that has everything.
            let across = if round % 8 == 7 { own..own + (2 << 20) + PAGE } else { own..own + (2 << 20) };
            space.munmap(AddressRange::new(VirtAddr::new(across.start), across.end - across.start)).expect("valid");
        }
    });
});

// Two leaf tables a round: what is above them has the top of the CPU's range, for whoever has a part and for whoever
// has everything.
for_each_design!(tables_above_the_leaves_stay_where_a_cpu_maps_again, D, {
    const NR_ROUNDS: u64 = 12;
    let all_came = Barrier::new(NR_THREADS);
    with_threads::<D>(|world, space, thread| {
        all_came.wait();
        let freed = || world.vm.events().total(Event::TablesFreed);
        let guest = Guest::new(space);
        let before = freed();
        all_came.wait();
        for round in 0..NR_ROUNDS {
            let place = space.mmap(&anonymous(None, 4 << 20)).expect("room");
            for page in [place, VirtAddr::new(place.get() + (2 << 20))] {
                assert!(guest.store(page, round).is_ok(), "just mapped");
            }
            let all = AddressRange::new(place, 4 << 20);
            let rest = match round % 2 {
                0 => all,
                // Has everything.
                _ => {
                    let placement = RemapPlacement::InPlace;
                    let request = RemapRequest { old: all, new_len_bytes: PAGE, placement, keeps_source: false };
                    space.mremap(&request).expect("it shrinks");
                    AddressRange::new(place, PAGE)
                }
            };
            space.munmap(rest).expect("valid");
        }
        all_came.wait();
        if D::NAME == "faultless" {
            assert_eq!(freed() - before, 2 * NR_ROUNDS * NR_THREADS as u64);
        }
        if thread == 0 {
            world.check("tops have tables");
        }
        all_came.wait();
    });
});

// A second user comes, to a space with areas in and across lanes, while the n-th allocation fails.
for_each_design!(a_space_that_finds_no_memory_for_lanes_goes_on_without, D, {
    let (region, machine) = (HostRegion::reserve(64 << 20).expect("the host has room"), Machine::new(2));
    let world = machine.attach(|| World::<D>::new(&region, 2));
    let cells: Vec<Range<u64>> = cells().into_iter().step_by(2).collect();
    let come = |failing: Failing| {
        let auto = Limits { placement: PlacementPolicy::Auto, ..limits() };
        let space = machine.attach(|| world.vm.create_space(auto).expect("room"));
        let (step, was_hit) = (Barrier::new(2), AtomicBool::new(false));
        let first = || {
            let guest = Guest::new(&space);
            for cell in &cells {
                let place = space.mmap(&anonymous(Some(cell.start), cell.end - cell.start)).expect("room");
                assert!(guest.store(place, 7).is_ok(), "just mapped");
            }
            world.vm.memory().set_failing(failing);
            step.wait();
            // Until the second one has gone.
            step.wait();
        };
        let second = || {
            let guest = Guest::new(&space);
            was_hit.store(world.vm.memory().failing() == Failing::Never, Ordering::Relaxed);
            world.vm.memory().set_failing(Failing::Never);
            let mut found = Vec::new();
            space.for_each_area(|area| found.push(area.range.start().get()..area.range.end().get()));
            assert_eq!(found, cells);
            for cell in &found {
                assert_eq!(guest.load(VirtAddr::new(cell.start)).map(|loaded| loaded.0), Ok(7), "still mapped");
                space.munmap(AddressRange::new(VirtAddr::new(cell.start), PAGE)).expect("valid");
            }
            let place = space.mmap(&anonymous(None, PAGE)).expect("room");
            assert!(guest.store(place, 1).is_ok(), "just mapped");
        };
        Native::run(&machine, 2, &|thread| {
            if thread == 1 {
                step.wait();
            }
            Native::enter();
            if thread == 0 {
                first()
            } else {
                second()
            }
            Native::leave();
            if thread == 1 {
                step.wait();
            }
        });
        let nr_free = machine.attach(|| {
            world.check("with lanes or without");
            drop(space);
            world.check("nothing is left");
            world.vm.memory().nr_free()
        });
        (was_hit.into_inner(), nr_free)
    };
    let all_fail = || (1..).map(|nth| come(Failing::Once(nth))).take_while(|(was_hit, _)| *was_hit).collect::<Vec<_>>();
    let (before, after) = (all_fail(), all_fail());
    machine.attach(|| drop(world));
    // The sets, and what areas of four lanes and of their bounds take in the indexes.
    assert!(before.len() >= if D::NAME == "faultless" { 5 } else { 1 }, "{before:?}");
    // Slabs may keep some frames more; what is lost is a frame at least with each of the allocations.
    assert!(after.last().map(|last| last.1 + 16) >= before.last().map(|last| last.1), "{before:?}, {after:?}");
});
