//! What tables are taken as, which decides where in memory they may lie; and short ways, which are as good as the long
//! ones.

use super::{Tables, frames, has_whole_leaf, leaf_end, span};
use faultless_phys::{Memory, Options, OutOfFrames, Pfn};
use faultless_platform::Holds;
use faultless_platform::native::{HostRegion, Machine, Native};
use std::cell::RefCell;
use std::vec::Vec;

std::thread_local! {
    static TAKEN: RefCell<Vec<Option<Holds>>> = const { RefCell::new(Vec::new()) };
}

/// Takes a table and notes as what.
fn take(memory: &Memory<Native>, holds: Option<Holds>) -> Result<Pfn, OutOfFrames> {
    TAKEN.with(|taken| taken.borrow_mut().push(holds));
    frames::alloc_table(memory, holds)
}

/// Returns as what the tables are taken that an address needs in an empty tree.
fn taken_by<const HEIGHT: u32>(memory: &Memory<Native>, address: u64) -> Vec<Option<Holds>> {
    let tables = Tables::<Native, HEIGHT>::new(memory).expect("room");
    tables.walk_or_add(memory, address, take).expect("room");
    tables.free_tables(memory);
    TAKEN.take()
}

#[test]
fn only_a_spaces_leaf_tables_may_lie_where_leaf_tables_may() {
    let region = HostRegion::reserve(4 << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the memory.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, Options::default()) }.expect("room");
        let upper = Some(Holds::UpperTable);
        assert_eq!(taken_by::<{ super::OF_FORMAT }>(&memory, 1 << 40), [upper, upper, Some(Holds::Table)]);
        // An object keeps its pages in tables that always have an address.
        assert_eq!(taken_by::<3>(&memory, 1 << 30), [None, None]);
    });
}

#[test]
fn a_leaf_goes_with_a_hole_that_holds_all_of_it_and_meets_the_range() {
    let bounds = || (0..9).map(|half| half * span(2) / 2);
    let ranges = || bounds().flat_map(|start| bounds().filter(move |&end| start < end).map(move |end| start..end));
    for (range, hole) in ranges().flat_map(|range| ranges().map(move |hole| (range.clone(), hole))) {
        let leaves = (0..5).map(|number| number * span(2)..(number + 1) * span(2));
        let meets = |leaf: &core::ops::Range<u64>| leaf.start < range.end && range.start < leaf.end;
        let goes = leaves.filter(meets).any(|leaf| hole.start <= leaf.start && leaf.end <= hole.end);
        assert_eq!(has_whole_leaf(&range, &hole), goes, "{range:x?} of {hole:x?}");
    }
}

#[test]
fn a_range_of_one_leaf_is_visited_where_its_table_is() {
    let region = HostRegion::reserve(4 << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the memory.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, Options::default()) }.expect("room");
        let tables = Tables::<Native>::new(&memory).expect("room");
        let there = 1 << 40;
        let table = tables.walk_or_grow(&memory, there).expect("room").table;
        let visited = |range| {
            let mut visited = Vec::new();
            tables.for_each_leaf(&memory, range, &mut |table, part| {
                visited.push((table, part));
                true
            });
            visited
        };
        let end = leaf_end(there);
        for part in [there..there + 4096, end - 4096..end, there..end] {
            assert_eq!(visited(part.clone()), [(table, part)]);
        }
        // As far as the table goes, also of what begins before it or ends behind it.
        assert_eq!(visited(there - 4096..there + 4096), [(table, there..there + 4096)]);
        assert_eq!(visited(end - 4096..end + 4096), [(table, end - 4096..end)]);
        for elsewhere in [end..end + 4096, there - span(2)..there, 0..4096, there..there] {
            assert_eq!(visited(elsewhere), []);
        }
        tables.free_tables(&memory);
    });
}
