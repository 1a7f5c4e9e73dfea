//! `Native`: the platform of OS threads and std atomics.
//!
//! # Guarantee
//! Real speed: every atomic is std's own, [`Processor::cpu`](crate::Processor::cpu) is one thread-local load.
//! A thread runs on a [`Machine`] from [`Threads::run`](crate::Threads::run) or inside [`Machine::attach`]. Locks alone
//! need neither: any thread has a token, waits and sleeps; whether one without a machine runs, nobody knows.
//!
//! # What interrupts are here
//! Nothing interrupts an OS thread: pending requests are served where a CPU enters guest and in its waits. A CPU
//! that computes without touching memory is not in guest, so nobody waits for it.
//!
//! # Rooms
//! `slots` hands CPU slots to threads; `machine` owns slots and threads; `handler` serves interrupts; `context` is the
//! thread's view of them; `futex` sleeps and wakes; `atomics` names std's, `fence` orders; `region` reserves host
//! memory for frames; `windows` are addresses that lead to one frame of a file at a time.

mod context;
mod fence;
mod futex;
mod handler;
mod machine;
mod platform;
mod region;
mod runner;
mod slots;
#[cfg(not(miri))]
mod windows;

pub use machine::Machine;
pub use platform::{Native, NativeOf};
pub use region::{HostRegion, ReserveError};
#[cfg(not(miri))]
pub use windows::HostWindows;

/// Says whether the calling thread holds interrupts off: for tests of who does, such as `vm/tests/native/shootdown.rs`.
pub fn holds_irq_off() -> bool {
    context::with(|context| context.irq_depth.get() != 0)
}

/// Says whether the calling thread owns a slot of some machine.
pub(crate) fn owns_slot() -> bool {
    context::with(|context| context.cpu.get() != context::NO_CPU)
}
