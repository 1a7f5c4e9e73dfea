//! Linux's memory calls as a kernel's system-call layer receives them: integers in, a value or an errno out.
//!
//! # Guarantee
//! [`Calls`] checks arguments in Linux's order, so that a call with several mistakes gets the errno that Linux gives.
//! Any argument is accepted: numbers that mean nothing get Linux's answer, never a panic.
//!
//! # Rooms
//! * `errno`: the error numbers
//! * `flags`: `PROT_*`, `MAP_*`, `MREMAP_*`
//! * `advice`: `MADV_*`
//! * `x86`: what the processor says of a page fault
//! * `file`: what mmap looks at in a file descriptor
//! * `map`, `protect`, `remap`: what a call's registers ask of the library; `range`: the bytes that two of them name
//! * `calls`: the calls; `refpage` has one that Linux lacks
//!
//! # What stays with the caller
//! Descriptor tables, copying a call's structures in and out of user memory, signals, and which thread called.
//!
//! # Sources
//! The manual pages of section 2, and the kernel itself: the crate `oracle` runs random calls on both sides.
//!
//! ```
//! use faultless_abi::{Calls, Errno};
//! use faultless_phys::{Memory, Options};
//! use faultless_platform::native::{HostRegion, Machine, Native};
//! use faultless_sync::Rwsem;
//! use faultless_vm::{Limits, Vm, design::VmaLock};
//!
//! let region = HostRegion::reserve(64 << 20)?;
//! Machine::new(2).attach(|| {
//!     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
//!     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
//!     let vm = Vm::<Native, VmaLock<Rwsem<Native>>>::new(memory)?;
//!     let space = vm.create_space(Limits::default())?;
//!     let calls = Calls::new(&space);
//!     // mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
//!     let start = calls.mmap([0, 8192, 3, 0x22, u64::MAX, 0], None).expect("there is room");
//!     assert_eq!(calls.munmap(start, 8192), Ok(0));
//!     // madvise(start, 4096, 5): there is no such advice
//!     assert_eq!(calls.madvise(start, 4096, 5), Err(Errno::EINVAL));
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod advice;
mod calls;
mod errno;
mod file;
mod flags;
mod map;
mod protect;
mod range;
mod refpage;
mod remap;
mod x86;

pub use advice::{advice_of, number_of};
pub use calls::{Answer, Calls};
pub use errno::Errno;
pub use file::{File, FileMode};
pub use flags::{MapFlags, Prot, RemapFlags, page_lock_of};
pub use map::map_request;
pub use protect::ProtectRequest;
pub use refpage::{REFPAGE_OPEN_FLAGS, refpage_create, refpage_create_sized};
pub use remap::remap_request;
pub use x86::page_fault;
