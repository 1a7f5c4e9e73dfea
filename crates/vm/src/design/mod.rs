//! The designs: how a fault finds its area, knows that it did not change, and what a writer must do first.
//!
//! # Guarantee
//! Under every design a fault installs a page that was right at some instant between its start and its end, and none
//! into a range whose unmapping has returned. Areas, tables, frames and operations are the same under all.
//!
//! # How to add one
//! Implement [`Design`] in a file of its own and name it in [`registry`](crate::registry). What map calls lock is a
//! [`MapLock`]: [`WholeSpace`] of a semaphore, which leaves ranges alone.

mod attempt;
mod faultless;
mod mmap_sem;
mod speculation;
mod spf_srcu;
mod spf_v11;
mod spf_v9;
mod vma_lock;

pub use crate::space::{Areas, Change, Cursor, Map, MapLock, Promises, Sizes, Tally, WholeSpace};
pub use faultless::Faultless;
pub use mmap_sem::MmapSem;
pub use speculation::{Speculation, Version, WhenBusy};
pub use spf_srcu::{DeferredArea, SpfSrcu, V2017};
pub use spf_v9::{SpfV9, V9};
pub use spf_v11::{CountedArea, SpfV11, V11};
pub use vma_lock::VmaLock;

use crate::area::Area;
use crate::error::AccessError;
use crate::fault::{Fault, Handled};
use crate::instance::Vm;
use crate::space::Space;
use crate::system::System;
use core::ptr::NonNull;
use faultless_sync::{RwSemaphore, Rwsem, lock_class};

lock_class! {
    /// The locks around area indexes, by the name that the series gave them.
    pub IndexLock = "mm_rb_lock"
}

/// The design of a [`Vm`] that says nothing else: a lock for each area, as Linux has since 6.4.
pub type DefaultDesign<P> = VmaLock<Rwsem<P>>;

/// What tells the members of a design's family of semaphores apart.
pub type GenerationOf<P, D> = <SemaphoreOf<P, D> as RwSemaphore<P>>::Generation;

/// The semaphore that a design's lock is made of.
pub type SemaphoreOf<P, D> = <<D as Design<P>>::Lock as MapLock<P>>::Semaphore;

/// A way to lock an address space against its faults.
///
/// # Safety
/// * `update_index` runs `update` once.
/// * Between `begin_change` and `end_change`, once `await_faults` has returned, no fault uses what it found in the area
///   before.
/// * `release_area` frees the area once, after every fault that may use it.
pub unsafe trait Design<P: System>: Sized + Send + Sync + 'static {
    /// The name in the registry.
    const NAME: &'static str;
    /// Whether faults fill empty entries by compare-and-swap, without their table's lock; then nobody empties one for a
    /// moment.
    const FILLS_FREELY: bool = false;
    /// What map operations write and classic faults read; the instance says of which generation its semaphore is.
    type Lock: MapLock<P>;
    /// Where the map is, and what map calls do to it: areas in the space's index, or promises in entries.
    type Map: Map<P, Self>;
    /// What the design keeps for the instance.
    type InstanceState: Send + Sync;
    /// What the design keeps for each address space.
    type SpaceState: Send + Sync;
    /// What the design keeps for each area.
    type AreaState: Send + Sync;

    /// Returns the state of a new instance; may allocate.
    fn new_instance_state(nr_cpus: usize) -> Self::InstanceState;
    /// Returns the state of a new address space.
    fn new_space_state() -> Self::SpaceState;
    /// Returns the state of a new area, which the index holds; under a change, as after [`Design::begin_change`].
    fn new_area_state() -> Self::AreaState;

    /// Called under the write lock before an area's attributes or translations change; may wait for faults that use it.
    fn begin_change(area: &Self::AreaState);
    /// Called under the write lock when all areas of a change are announced, and before anything changes: waits for the
    /// faults that found one of them before, if [`Design::begin_change`] has not.
    #[inline]
    fn await_faults(_space: &Space<P, Self>) {}
    /// Called under the write lock when they have changed. A removed area gets no such call, and calls don't nest.
    fn end_change(area: &Self::AreaState);
    /// As [`Design::end_change`], for an area that is about to be published and that nobody has reached yet.
    #[inline]
    fn end_change_unpublished(area: &Self::AreaState) {
        Self::end_change(area);
    }
    /// Runs `update`, which publishes a new version of the index; called under the write lock.
    fn update_index(space: &Space<P, Self>, update: impl FnOnce());
    /// Ends the index's hold on a removed area; whoever holds it last frees it by `Space::free_area`.
    ///
    /// # Safety
    /// The area was in the index of `space`, is not any more, and is released once.
    unsafe fn release_area(space: &Space<P, Self>, area: NonNull<Area<P, Self>>);
    /// Waits until every area that was let go of and that nobody holds is freed; called without any lock.
    fn flush(_vm: &Vm<P, Self>) {}
    /// Frees areas that were let go of, as far as that needs no waiting; called without any lock.
    #[inline]
    fn poll(_vm: &Vm<P, Self>) {}
    /// Says whether areas that were let go of wait, so that [`Design::flush`] may free memory.
    fn has_deferred(_vm: &Vm<P, Self>) -> bool {
        false
    }

    /// Handles a page fault; returns how.
    fn fault(space: &Space<P, Self>, fault: Fault) -> Result<Handled, AccessError>;
}
