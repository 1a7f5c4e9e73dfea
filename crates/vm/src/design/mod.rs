//! The designs: how a fault finds its area, knows that it did not change, and what a writer must do first.
//!
//! # Guarantee
//! Under every design a fault installs a page that was right at some instant between its start and its end, and none
//! into a range whose unmapping has returned. Areas, tables, frames and operations are the same under all.
//!
//! # How to add one
//! Implement [`Design`] in a file of its own and name it in [`registry`](crate::registry).

mod mmap_sem;
mod spf_v11;

pub use mmap_sem::MmapSem;
pub use spf_v11::SpfV11;

use crate::error::AccessError;
use crate::fault::{Fault, Handled};
use crate::space::Space;
use faultless_platform::Platform;
use faultless_sync::RwSemaphore;

/// A way to lock an address space against its faults.
pub trait Design<P: Platform>: Sized + Send + Sync + 'static {
    /// The name in the registry.
    const NAME: &'static str;
    /// The semaphore that map operations write and classic faults read.
    type Semaphore: RwSemaphore<P>;
    /// What the design keeps for each address space.
    type SpaceState: Send + Sync;
    /// What the design keeps for each area.
    type AreaState: Send + Sync;

    /// Returns the state of a new address space.
    fn new_space_state() -> Self::SpaceState;
    /// Returns the state of a new area, which the index holds.
    fn new_area_state() -> Self::AreaState;

    /// Called under the write lock before an area's attributes or translations change.
    fn begin_change(area: &Self::AreaState);
    /// Called under the write lock when they have changed. A removed area gets no such call.
    fn end_change(area: &Self::AreaState);
    /// Runs `update`, which publishes a new version of the index; called under the write lock.
    fn update_index(space: &Self::SpaceState, update: impl FnOnce());
    /// Ends the index's hold on a removed area; says whether nobody else holds it, so that the caller frees it.
    fn release_area(area: &Self::AreaState) -> bool;

    /// Handles a page fault; returns how.
    fn fault(space: &Space<P, Self>, fault: Fault) -> Result<Handled, AccessError>;
}
