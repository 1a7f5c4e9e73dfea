//! Programs that drive an address space: the workloads that kernel developers argue with.
//!
//! # Guarantee
//! A program is written once. It knows its address space through [`AddressSpace`] alone, so the same loop runs on a
//! virtual memory of any design, in [`VmSpace`], and on the host's kernel. It waits, and reads the time, through its
//! platform `P` alone, so it runs on a simulated machine as well.
//!
//! # Rooms
//! * `space`: what a program may ask of its memory; `guest`: that, by the crate `vm`; `heap`: malloc over it
//! * `program`: what a program is; `registry`: all of them by name; `settings`: what it is told; `spec`:
//!   a name with its flags; `rounds`: teams that work in step
//! * one file for each workload, named after it, with its published source
//!
//! # Invariants
//! * I1 a step does what the published loop does between two counts of its operations, nothing besides
//! * I2 what a step loads is compared with what must be there where the published program does so
//! * I3 no operation of a step allocates from the global allocator
#![no_std]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod brk1;
mod brk2;
mod corten;
mod ebizzy;
mod flush;
mod fork;
mod guest;
mod heap;
mod malloc1;
mod malloc2;
mod mmap1;
mod mmap2;
mod mmap_touch;
mod page_fault1;
mod page_fault2;
mod page_fault3;
mod pagefaults;
mod program;
mod random;
mod read1;
mod read2;
mod read_byte;
mod reading;
mod refpage;
mod registry;
mod renderer;
mod rounds;
mod settings;
mod space;
mod spec;
mod storing;
mod sweep;
mod tlb_flush1;
mod tlb_flush2;
mod tlb_flush3;

pub use guest::{Counts, Files, VmSpace};
pub use heap::{Heap, HeapPolicy};
pub use program::{Program, Seat, Step, Worker};
pub use registry::{DEFAULT_SELECTION, Flags, WORKLOADS, Workload, find};
pub use renderer::{RENDERER, renderer_cpu_ns};
pub use settings::{Access, AccessKind, Begins, Contention, Ebizzy, Mapping, MmapTouch, PageFaults, Pattern};
pub use settings::{Refpage, Settings, Touch, Variant, Whose};
pub use space::{AddressSpace, Backing, Content, FileId, FileName, MapCall, Refused, Rights, Start};
pub use spec::{Spec, SpecError};

/// Bytes of a page.
pub const PAGE: u64 = faultless_vm::PAGE;
