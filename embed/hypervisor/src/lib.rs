//! The memory half of a hypervisor on threads of the host: what such a hypervisor writes to live on this library.
//!
//! # Guarantee
//! Guest-physical memory is an address space whose tables are Intel's second stage: the processor walks them, and what
//! it refuses comes here as a violation. Pages come at their first access. Devices reach them through the traits of the
//! crate `vm-memory`; a machine can be copied while it runs.
//!
//! # Rooms
//! * `machine`: guest-physical memory, violations, rights
//! * `formats`: tables of processors that set accessed and dirty bits, and of those that don't
//! * `window`: what devices see, pinned
//! * `migrate`: a copy of all memory while the guest stores into it

mod formats;
mod machine;
mod migrate;
mod window;

pub use formats::{EptWithoutBits, Hardware, Tables};
pub use machine::{Exit, Machine, Ram, Rights, instance};
pub use migrate::{Migration, Page};
pub use window::Window;
