//! What tables are taken as, which decides where in memory they may lie.

use super::{Tables, frames};
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
