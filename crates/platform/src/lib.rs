//! What the core needs of the machine below it.
//!
//! # Guarantee
//! Code that is generic over these traits runs unchanged on OS threads (`Native`),
//! on counting atomics (`Count`), under a model checker, on a simulated machine and,
//! later, on bare metal. It reaches atomics, CPUs, waiting and threads through the traits alone.
//!
//! # The traits, from small to large
//! * [`Processor`]: atomics, fences, the CPU that runs us, interrupts, spinning and parking. All that `sync` needs.
//! * [`Platform`]: adds memory: atomics viewed in place, page-sized work, guest state and TLB shootdown. What `phys`
//!   and `vm` need.
//! * [`Threads`]: adds machines and threads on them. What replay, workloads and soak tests need.
//!
//! # CPUs are slots
//! A CPU is a slot of a machine, not the operating system's CPU. At most one thread owns it, from
//! [`Processor::enter`] to [`Processor::leave`]; per-CPU cells, the TLB and RCU state belong to the slot.
//! [`Processor::park`] gives the slot up while the thread sleeps, so a thread may wake on another slot:
//! nobody keeps a per-CPU reference, or an RCU read section, across it.
//!
//! # Invariants
//! * I1 a slot has at most one owner; what one owner wrote to the slot's cells the next one sees.
//! * I2 a slot in state guest is the only one that may use a translation.
//! * I3 every wait goes through `spin_until`, `spin_until_deadline` or `park`.
//!
//! # Floors
//! The core is `no_std`; the feature `std` adds `native`, `count` and `watched`, the feature `loom` the processor of
//! model tests.
//!
//! ```
//! # #[cfg(feature = "std")] {
//! use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor, Threads, native::{Machine, Native}};
//!
//! fn count_to<P: Threads>(machine: &P::Machine, threads: usize) -> u64 {
//!     let total = P::AtomicU64::new(0);
//!     P::run(machine, threads, &|_| {
//!         P::enter();
//!         total.fetch_add(1, Ordering::Relaxed);
//!         P::leave();
//!     });
//!     total.load(Ordering::Relaxed)
//! }
//! assert_eq!(count_to::<Native>(&Machine::new(2), 5), 5);
//! # }
//! ```
#![no_std]

#[cfg(any(test, feature = "std"))]
extern crate std;

mod atomic;
mod cpu_set;
mod irq;
mod memory;
// For the tests of this workspace: nobody outside puts bugs back.
#[doc(hidden)]
pub mod mutants;
mod nodes;
mod padded;
mod plain;
mod processor;
mod threads;

#[cfg(feature = "std")]
pub mod count;
#[cfg(feature = "loom")]
pub mod loom;
#[cfg(feature = "std")]
pub mod native;
#[cfg(feature = "std")]
pub mod watched;

pub use atomic::{Atomic, AtomicInteger, InPlace};
pub use core::sync::atomic::Ordering;
pub use cpu_set::{CpuSet, GROUP_BITS, MAX_CPUS};
pub use irq::IrqOffGuard;
pub use memory::{Bulk, HighZone, Holds, InterruptHandler, KernelEntry, PAGE_BYTES, Platform, TouchKind, Usual};
pub use nodes::{DISTANCE_LOCAL, NODES_MAX, NodeSet, Nodes};
pub use padded::CachePadded;
pub use processor::{Holding, LockId, Processor, ThreadToken, Tracepoint};
pub use threads::{StartError, Threads};
