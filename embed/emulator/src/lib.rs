//! RV64GC user mode: runs static Linux programs, whose memory is an address space of this library.
//!
//! # Guarantee
//! A program sees Linux's memory calls and faults; one that may not go on dies as Linux says, and never takes the
//! emulator along. Instructions that hit the TLB take a few instructions of the host and no fence.
//!
//! # Rooms
//! * `memory`: the space, a software TLB that reads its entries, faults
//! * `load`: an ELF program, its stack and heap, in a space
//! * `hart`, `float`, `expand`: the processor; no memory code
//! * `calls`: Linux's calls: those on memory by the crate `abi`, the others by the host
//! * `program`: all of it together

mod calls;
mod expand;
mod float;
mod hart;
mod load;
mod memory;
mod program;

pub use load::LoadError;
pub use memory::{Cpu, Fault, Memory, Number, Own};
pub use program::{Ended, Options, RunError, run};
