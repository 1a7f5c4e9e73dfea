//! The designs: how a fault finds its area, knows that it did not change, and what a writer must do first.
//!
//! # Guarantee
//! Under every design a fault installs a page that was right at some instant between its start and its end, and none
//! into a range whose unmapping has returned. Areas, tables, frames and operations are the same under all.
//!
//! # How to add one
//! Implement [`Design`] in a file of its own and name it in [`registry`](crate::registry). What map calls lock is a
//! [`MapLock`]: [`WholeSpace`] of a semaphore, which leaves ranges alone; that of `faultless` is [`Ranges`].
//!
//! ```
//! use faultless_platform::native::Native;
//! use faultless_sync::Rwsem;
//! use faultless_vm::design::{
//!     Areas, DefaultDesign, Design, FaultlessQueued, Faultless, Map, MmapSem, SpfSrcu, SpfV9, SpfV11, VmaLock,
//! };
//!
//! fn name<D: Design<Native>>() -> &'static str {
//!     D::NAME
//! }
//! type Lock = Rwsem<Native>;
//! let published = [name::<MmapSem<Lock>>(), name::<SpfSrcu<Lock>>(), name::<SpfV9<Lock>>(), name::<SpfV11<Lock>>()];
//! assert_eq!(published, ["mmap-sem", "spf-srcu", "spf-v9", "spf-v11"]);
//! assert_eq!([name::<VmaLock<Lock>>(), name::<FaultlessQueued<Lock>>()], ["vma-lock", "faultless-queued"]);
//! assert_eq!(name::<Faultless<Lock>>(), "faultless");
//! assert_eq!(name::<DefaultDesign<Native>>(), "vma-lock");
//! // All of them keep areas in the space's index; a map of promises keeps none.
//! assert!(!<Areas as Map<Native, DefaultDesign<Native>>>::PROMISES);
//! ```

mod attempt;
mod faultless;
mod mmap_sem;
pub(crate) mod names;
mod recall;
mod speculation;
mod spf_srcu;
mod spf_v11;
mod spf_v9;
mod vma_lock;

pub use crate::space::{
    Areas, Cursor, EditGuard, EntryChange, LaneRooms, LeftOver, MapLock, Promises, Ranges, Sizes, Tally, WholeSpace,
};
pub use crate::types::{Design, GenerationOf, Map, SemaphoreOf};
pub use faultless::{Faultless, FaultlessQueued};
pub use mmap_sem::MmapSem;
pub use names::{DefaultDesign, VmaLock};
pub use spf_srcu::SpfSrcu;
pub use spf_v9::SpfV9;
pub use spf_v11::SpfV11;
// What the aliases above stand for. Nobody outside names it.
#[doc(hidden)]
pub use speculation::{Speculation, Version, WhenBusy};
#[doc(hidden)]
pub use {
    faultless::{Announced, Queued, SideBySide, Variant},
    recall::Recalled,
    spf_srcu::{DeferredArea, V2017},
    spf_v9::V9,
    spf_v11::{CountedArea, V11},
};

use faultless_sync::lock_class;

lock_class! {
    /// The locks around area indexes, by the name that the series gave them.
    #[doc(hidden)]
    pub IndexLock = "mm_rb_lock"
}
