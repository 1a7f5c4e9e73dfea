//! Workloads under each locking design: how fast, how often, how sure.
//!
//! # Guarantee
//! A result is measured, carries its spread, and says what could not be measured.
//!
//! # Rooms
//! * [`measure`]: workloads on the virtual memory and on the host, run by run in turn
//! * [`stat`]: events and locks of a workload or of a replay
//! * [`reproduce`]: the tables of the literature, simulated anew
//! * [`spread`]: simulated results as intervals, over what was guessed of a machine
//! * [`rwsem`]: semaphores by themselves
//! * [`kmap`]: kernel maps by themselves
//! * [`high`]: a compile whose page tables have no address of their own
//! * [`calibrate`]: a simulated machine with this machine's numbers
//! * [`report`]: all of it for people and as result sets

#![deny(unsafe_code)]

pub mod calibrate;
pub mod high;
pub mod kmap;
pub mod measure;
pub mod report;
pub mod reproduce;
pub mod rwsem;
pub mod spread;
pub mod stat;

/// So that a test's simulations give the same figures beside other tests, as the command's do.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: faultless_sim::LineAllocator = faultless_sim::LineAllocator;
