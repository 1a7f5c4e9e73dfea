//! A locking design from outside the library: memory is promised by the entries of the page tables, and map calls on
//! disjoint ranges run side by side.
//!
//! # Guarantee
//! As every design's: a fault makes a page that was right at some instant between its start and its end, and none in a
//! range whose unmapping has returned.
//!
//! # Protocol
//! ```text
//! fault                                          map call
//! walk; the entry promises the access?           lock the range and a page on each side (`ranges`)
//! take a frame                                   take what it adds from the limits, make the tables it needs
//! lock the leaf table; the same entry? page      lock the range's tables; change each entry; unlock the tables
//!                                                shoot down, free; unlock the range
//! ```
//! A fault takes no lock of a space, and no map call waits for a fault but while it has its table locked. A call is one
//! step for faults, however many tables its range has. Nothing else is shared by two calls on disjoint
//! ranges but counters.
//!
//! # What it can't
//! An entry has room for three rights. So it promises private anonymous memory alone, which is neither locked nor
//! grows; mmap refuses all else. Calls other than mmap, munmap, mprotect and the list find no area. Each page of a
//! mapping has an entry, so that a large one takes tables at once. Neighbours with equal rights are one area, also
//! where Linux keeps two apart whose pages came before they met.
//!
//! It proves what the library's seams can carry, and is not made to be fast.
#![no_std]

mod promised;
mod ranges;

pub use promised::Promised;
pub use ranges::{RangeGuard, Ranges};

use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_sync::RwSemaphore;
use faultless_vm::design::{Design, Promises};
use faultless_vm::{AccessError, Area, Fault, Handled, Space, System};

/// See the crate. The semaphore stands between calls on ranges and those on the whole space.
pub struct ByEntry<S>(PhantomData<fn() -> S>);

// SAFETY: there are no areas, so that no fault uses one. Entries are changed by compare-and-swap under their tables'
// locks, by calls that have locked them.
unsafe impl<P: System, S: RwSemaphore<P>> Design<P> for ByEntry<S> {
    const NAME: &'static str = "by-entry";
    type Lock = Ranges<P, S>;
    type Map = Promised;
    type InstanceState = ();
    type SpaceState = ();
    type AreaState = ();

    fn new_instance_state(_: usize) {}
    fn new_space_state() {}
    fn new_area_state() {}
    fn begin_change((): &()) {}
    fn end_change((): &()) {}

    fn update_index(_: &Space<P, Self>, update: impl FnOnce()) {
        update();
    }

    unsafe fn release_area(_: &Space<P, Self>, _: NonNull<Area<P, Self>>) {
        unreachable!("a map of promises makes no area");
    }

    fn fault(space: &Space<P, Self>, fault: Fault) -> Result<Handled, AccessError> {
        Promises::of(space).fault(fault)
    }
}
