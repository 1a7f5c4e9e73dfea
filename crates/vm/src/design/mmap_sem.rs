//! `mmap-sem`: a fault reads the address space's semaphore from its beginning to its end (Linux up to 4.x).
//!
//! # Guarantee
//! A fault excludes every map operation, and is excluded by it.
//!
//! Writes to shared lines of a store's fault and of an mmap, in a space where another CPU does the same
//! (`tests/cost.rs` counts them and compares the first number of the cells):
//!
//! | who | does | writes to shared lines |
//! |---|---|---|
//! | fault | read-locks the semaphore, looks the area up, installs under the page-table lock | 5: the semaphore's word 2, the page-table lock 2, the entry 1 |
//! | writer | write-locks the semaphore | 8: the semaphore's word 2, its owner 2, the index's root 1, the areas' number, size and size of data 3 |

use super::Design;
use crate::area::Area;
use crate::error::AccessError;
use crate::fault::{Fault, Handled, classic};
use crate::space::{Areas, Space, WholeSpace};
use crate::system::System;
use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_sync::RwSemaphore;

/// See the module.
pub struct MmapSem<S>(PhantomData<fn() -> S>);

// SAFETY: faults share the semaphore, which changes have alone.
unsafe impl<P: System, S: RwSemaphore<P>> Design<P> for MmapSem<S> {
    const NAME: &'static str = "mmap-sem";
    const SPECULATES: bool = false;
    type Lock = WholeSpace<S>;
    type Map = Areas;
    type InstanceState = ();
    type SpaceState = ();
    type AreaState = ();

    fn new_instance_state(_: usize) {}
    fn new_space_state() {}
    fn new_area_state() {}
    #[inline]
    fn begin_change((): &()) {}
    #[inline]
    fn end_change((): &()) {}
    #[inline]
    fn update_index(_: &Space<P, Self>, update: impl FnOnce()) {
        update();
    }
    #[inline]
    unsafe fn release_area(space: &Space<P, Self>, area: NonNull<Area<P, Self>>) {
        space.free_area(area);
    }

    #[inline]
    fn fault(space: &Space<P, Self>, fault: Fault) -> Result<Handled, AccessError> {
        classic::handle(space, fault)?;
        Ok(Handled::Classic)
    }
}
