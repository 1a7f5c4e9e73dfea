//! Reference pages on stock Linux: fresh memory that starts out as a pattern instead of zero.
//!
//! # Guarantee
//! Memory from [`RefPage::map`] reads as the pattern, repeated from its first byte on, until it is
//! written; a page that nobody writes costs no memory and no `memset`. No kernel patch is needed,
//! and no call that Linux 5.4 does not have.
//!
//! # How
//! The pattern lies in one sealed memfd (a *tile*, 2 MiB for an allocation of 256 MiB), which is
//! mapped privately, again and again, over the allocation. A load reads the tile's page; the first
//! store to a page copies it. Where this is impossible (the limit of areas or of descriptors is
//! reached, the kernel refuses a call), the memory is filled instead, or, on request, an error says
//! why not.
//!
//! # Invariants
//! - I1 A tile is never written after it was sealed, so what was mapped from it keeps its pattern.
//! - I2 A tile's length is a multiple of the pattern's period (the least common multiple of its
//!   length and the page's), unless the tile alone holds the whole allocation.
//! - I3 Byte `i` of an allocation is byte `i % pattern.len()` of the pattern, whatever mixture of
//!   tiles it was made from.
//! - I4 A descriptor is used only after device and inode have shown that it is still ours.
//! - I5 Nothing in here calls the process's allocator: an allocator may be the caller.
//! - I6 Every piece of shared state is consistent at each instruction, so that a fork in the middle
//!   of a call leaves the child with working state.
//!
//! ```
//! use faultless_refpage::RefPage;
//!
//! let pages = RefPage::new(&[0xAA])?;
//! let mut memory = pages.map(64 << 20)?;
//! assert_eq!(memory[12_345_678], 0xAA);
//! memory[0] = 1;
//! memory.reset(0..4096)?;
//! assert_eq!(memory[0], 0xAA);
//! # Ok::<(), faultless_refpage::Error>(())
//! ```
//!
//! Source: "mm: introduce reference pages", P. Collingbourne, linux-mm, August 2020.

#![deny(missing_docs)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("faultless-refpage needs 64-bit Linux");

mod areas;
mod arena;
mod dirty;
mod error;
mod ffi;
mod intern;
mod lock;
mod mapping;
mod memory;
mod options;
mod pattern;
mod raw;
mod refpage;
mod registry;
mod resize;
mod share;
mod stats;
mod sys;
mod tile;
mod wiped;

pub use error::Error;
pub use mapping::Mapping;
pub use memory::fits_in_memory;
pub use options::{Fallback, HugePages, Options, TileLen};
pub use raw::{Kind, RawMapping};
pub use refpage::RefPage;
pub use registry::Registry;
pub use stats::{Stats, stats};
pub use sys::{keeping_errno, round_to_pages, set_errno};
