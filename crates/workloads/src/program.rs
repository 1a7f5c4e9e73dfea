//! What a program is: shared state of a team of threads, and a worker for each of them.

use crate::space::{AddressSpace, Refused};
use alloc::boxed::Box;
use faultless_platform::Threads;

/// A worker's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its number among the threads of its address space.
    pub worker: usize,
    /// How many threads its address space has.
    pub team: usize,
    /// Its number among all workers of all address spaces.
    pub global: usize,
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Operations that count.
    pub ops: u64,
    /// Time spent on what does not count, in ns.
    pub aside_ns: u64,
}

impl Step {
    /// So many operations, and nothing besides.
    pub const fn of(ops: u64) -> Self {
        Self { ops, aside_ns: 0 }
    }
}

/// A program in one address space: what its threads share.
pub trait Program<P: Threads>: Send + Sync {
    /// Makes a worker; called by its thread, with its view of the space.
    fn worker<'a>(&'a self, seat: Seat, space: &'a dyn AddressSpace) -> Result<Box<dyn Worker + 'a>, Refused>;
}

/// One thread of a program.
pub trait Worker {
    /// Makes a step.
    fn step(&mut self) -> Result<Step, Refused>;

    /// Makes at least one step and at most `most` in a row; returns how many, and what they did together. A worker
    /// whose published loop is a tight one makes it here.
    fn steps(&mut self, _most: u32) -> Result<(u32, Step), Refused> {
        Ok((1, self.step()?))
    }

    /// Ends the worker's part; called once, after its last step, failed or not.
    fn finish(&mut self) {}
}
