//! The memory half of a small x86-64 kernel: what such a kernel writes to live on this library.
//!
//! # Guarantee
//! It uses the public API of `platform`, `sync`, `phys`, `vm` and `abi` alone, and no std. Memory may have holes and
//! begin anywhere; tables are reached through a window, never by their physical address; the upper half of every root
//! is the kernel's. What only hardware can do is behind [`Hardware`], so that the tests walk its tables as a processor
//! does.
//!
//! # Rooms
//! * `ram`: physical memory with holes, its frame source, the kernel's half of each root
//! * `cpu`: the processor as the library sees it
//! * `process`: address spaces, the fault entry, calls, copies to and from user memory
#![no_std]

extern crate alloc;

mod cpu;
mod process;
mod ram;

pub use cpu::{Cpu, Hardware};
pub use process::{Fate, Kernel, Process};
pub use ram::{BootError, DIRECT_MAP, Ram, Window};
