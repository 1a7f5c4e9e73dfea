//! Physical memory: frames, what is known of each, and allocators that never need another.
//!
//! # Guarantee
//! [`Memory`] hands out the frames of a region that its embedder passes in; [`Slab`] cuts objects from such frames.
//! After set-up neither calls the global allocator. A frame or object belongs to one owner at a time. A frame is
//! refused only if none was free at some instant during the call, wherever the free ones lay; an object only if,
//! besides, none was free at some other instant. A refusal changes nothing.
//!
//! ```
//! use faultless_phys::{Memory, Options};
//! use faultless_platform::native::{HostRegion, Machine, Native};
//!
//! let (machine, region) = (Machine::new(2), HostRegion::reserve(4 << 20)?);
//! // SAFETY: the region is ours and outlives the memory.
//! let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default())? };
//! let before = memory.nr_free();
//! machine.attach(|| {
//!     let pfn = memory.alloc_zeroed()?;
//!     assert_eq!(memory.nr_free(), before - 1);
//!     // SAFETY: the frame is ours until it is freed.
//!     unsafe {
//!         memory.frame(pfn).write(7);
//!         memory.free(pfn);
//!     }
//!     Ok::<(), faultless_phys::OutOfFrames>(())
//! })?;
//! assert_eq!(memory.nr_free(), before);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What may be called from where
//! | call | sleeps | may be called |
//! |---|---|---|
//! | `try_alloc...` | never | anywhere but in an interrupt handler |
//! | `alloc...` | when nothing is free: waits for a grace period, then asks `reclaim` | with no spin lock held,
//! outside RCU sections, with interrupts on |
//! | `free...`, `put`, [`Slab::free`], `drain...` | never | anywhere but in an interrupt handler |
//! | [`Page`]'s functions | never | anywhere |
//! | `nr_...`, [`Memory::audit`] | never | anywhere |
//!
//! All but set-up, `nr_...`, `audit` and what looks at a [`Page`] are called by a thread that owns a CPU slot.
//!
//! # Lock order
//! The caller's locks, then a slab's depot, then a zone. A slab takes frames, without sleeping, and gives them back
//! under its depot's lock. Zones' locks are the innermost of all: under one nothing waits or calls out. An allocation
//! that is about to fail takes those of all nodes that it may use, ascending.
//!
//! # NUMA nodes
//! [`Memory::with_nodes`] divides the frames among a machine's nodes. A CPU takes frames of its own node first, falls
//! back by distance, and what it frees goes back to the frame's node; a [`Policy`] says otherwise for one allocation.
//!
//! # Rooms
//! `frames` divides the region; `page` and `state` are a frame's metadata; `buddy` splits and merges blocks; `stash` is
//! a CPU's own stack, `list` what a CPU keeps of a zone; `reserve` and `chain` name many frames by one word; `zone`
//! joins them; `lists` and `zones` are those of all NUMA nodes, among which a `policy` chooses; `high` keeps what needs
//! an address out of frames without one; `memory` is what callers see; `source` is what memory of an embedder's own
//! implements instead; `slab` cuts frames up; `poison`, `inject`, `audit` and `checked` are for tests.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod audit;
mod buddy;
mod chain;
mod checked;
mod error;
mod frames;
mod high;
mod inject;
mod list;
mod lists;
mod memory;
mod options;
mod page;
mod pfn;
mod poison;
mod policy;
mod reclaim;
mod reserve;
mod slab;
mod source;
mod stash;
mod state;
mod zone;
mod zones;

pub use audit::{Audit, FrameInfo};
pub use checked::CheckedSource;
pub use error::{Cause, OutOfFrames, SetupError, ZoneKind};
pub use inject::Failing;
pub use memory::Memory;
pub use options::Options;
pub use page::{OwnedPage, Page, TableLock};
pub use pfn::{Pfn, PhysAddr};
pub use policy::{NodeStats, Policy};
pub use reclaim::{NoReclaim, Reclaim, Shortage};
pub use slab::Slab;
pub use source::FrameSource;
pub use state::Kind;

/// The largest order: blocks of 1024 frames, 4 MiB.
pub const MAX_ORDER: u8 = 10;
