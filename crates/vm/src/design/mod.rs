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
pub(crate) mod names;
mod speculation;
mod spf_srcu;
mod spf_v11;
mod spf_v9;
mod vma_lock;

pub use crate::space::{Areas, Change, Cursor, MapLock, Promises, Sizes, Tally, WholeSpace};
pub use crate::types::{Design, GenerationOf, Map, SemaphoreOf};
pub use faultless::Faultless;
pub use mmap_sem::MmapSem;
pub use names::{DefaultDesign, VmaLock};
pub use speculation::{Speculation, Version, WhenBusy};
pub use spf_srcu::{DeferredArea, SpfSrcu, V2017};
pub use spf_v9::{SpfV9, V9};
pub use spf_v11::{CountedArea, SpfV11, V11};

use faultless_sync::lock_class;

lock_class! {
    /// The locks around area indexes, by the name that the series gave them.
    pub IndexLock = "mm_rb_lock"
}
