//! Who runs next: the thread with the lowest clock; ties are drawn.
//!
//! An entry is 128 bits, most significant first: clock (64), a random tie-break (16), thread (24), generation (24). An
//! entry whose generation is not its thread's any more is passed over.

use super::{Engine, NO_CPU, step};
use crate::engine::thread::{Wait, suspend};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Threads that will run, by clock.
///
/// The entry that came last stands apart: mostly it is that of a thread that gives way to the first one, whose place it
/// then takes.
pub(super) struct Heap {
    earlier: BinaryHeap<Reverse<u128>>,
    last: Option<Reverse<u128>>,
}

const THREAD_BITS: u32 = 24;
/// The most threads that a simulation can number.
pub(super) const MAX_THREADS: usize = 1 << THREAD_BITS;

impl Heap {
    pub(super) fn new() -> Self {
        Self { earlier: BinaryHeap::new(), last: None }
    }

    fn push(&mut self, clock: u64, tie: u64, thread: u32, generation: u32) {
        let low = tie >> 48 << 48 | u64::from(thread) << THREAD_BITS | u64::from(generation & 0xff_ffff);
        let entry = Reverse(u128::from(clock) << 64 | u128::from(low));
        if let Some(before) = self.last.replace(entry) {
            self.earlier.push(before);
        }
    }

    fn pop(&mut self) -> Option<(u64, u32, u32)> {
        let Reverse(entry) = self.pop_entry()?;
        Some(((entry >> 64) as u64, (entry >> THREAD_BITS) as u32 & 0xff_ffff, entry as u32 & 0xff_ffff))
    }

    fn pop_entry(&mut self) -> Option<Reverse<u128>> {
        let Some(last) = self.last.take() else { return self.earlier.pop() };
        match self.earlier.peek_mut() {
            Some(mut first) if *first > last => Some(std::mem::replace(&mut *first, last)),
            _ => Some(last),
        }
    }

    fn first_clock(&self) -> u64 {
        let first = self.earlier.peek().into_iter().chain(&self.last).max();
        first.map_or(u64::MAX, |Reverse(entry)| (entry >> 64) as u64)
    }

    pub(super) fn clear(&mut self) {
        self.earlier.clear();
        self.last = None;
    }
}

impl Engine {
    /// Lets a thread run at `clock`; an earlier entry of it is void.
    pub(super) fn make_ready(&mut self, thread: u32, clock: u64) {
        let tie = self.random.next();
        let record = &mut self.threads[thread as usize];
        record.generation = record.generation.wrapping_add(1);
        self.heap.push(clock, tie, thread, record.generation);
        self.horizon = self.horizon.min(clock);
    }

    /// Takes the next thread's turn up, and makes the accesses that waited for theirs; nothing if nobody can run.
    pub(super) fn next_turn(&mut self) -> Option<u32> {
        loop {
            let (clock, thread, generation) = self.heap.pop()?;
            let record = &self.threads[thread as usize];
            if record.generation & 0xff_ffff != generation || record.is_done {
                continue;
            }
            self.begin_turn(thread, clock);
            let access = self.thread().pending.take();
            if access.is_none_or(|access| self.access_now(access)) {
                self.pace = self.pace_of(self.cpu);
                return Some(thread);
            }
        }
    }

    fn begin_turn(&mut self, thread: u32, clock: u64) {
        self.figures.switches += 1;
        self.horizon = self.heap.first_clock();
        self.current = thread;
        let record = &self.threads[thread as usize];
        (self.cpu, self.is_recording) = (record.cpu, record.is_recording);
        self.clock = clock;
        self.pay_stolen();
    }

    /// Says how long instructions take on a CPU, in 1024ths: as much longer as other threads of its core are busy.
    pub(super) fn pace_of(&self, cpu: u16) -> u64 {
        if cpu == NO_CPU || self.costs.sibling_share == 0 {
            return 1024;
        }
        let is_busy = |&&sibling: &&u16| {
            let owner = self.cpus[usize::from(sibling)].owner;
            owner.is_some_and(|thread| self.threads[thread as usize].wait == Wait::Turn)
        };
        let nr_busy = self.topology.siblings(usize::from(cpu)).iter().filter(is_busy).count();
        1024 + nr_busy as u64 * self.costs.sibling_share
    }

    /// Puts the running thread in line if another one's clock is lower; says whether it did.
    #[inline]
    pub(super) fn is_too_early(&mut self) -> bool {
        if self.clock <= self.horizon {
            return false;
        }
        self.make_ready(self.current, self.clock);
        true
    }
}

/// Suspends the running thread until its clock is the lowest.
#[inline]
pub(super) fn order() {
    if step(Engine::is_too_early) {
        suspend();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_by_clock_whichever_came_last() {
        let mut heap = Heap::new();
        let clocks = [5, 9, 1, 7, 3, 8, 2];
        for (thread, &clock) in clocks.iter().enumerate() {
            heap.push(clock, 0, thread as u32, 0);
        }
        let mut pop = || heap.pop().map(|(clock, thread, _)| (clock, clocks[thread as usize]));
        assert_eq!([pop(), pop()], [Some((1, 1)), Some((2, 2))]);
        // Two that give way: one to whoever is first, one that is first itself.
        heap.push(6, 0, 4, 1);
        assert_eq!((heap.first_clock(), heap.pop()), (3, Some((3, 4, 0))));
        heap.push(4, 0, 2, 1);
        assert_eq!((heap.first_clock(), heap.pop()), (4, Some((4, 2, 1))));
        let rest: Vec<u64> = std::iter::from_fn(|| heap.pop()).map(|(clock, ..)| clock).collect();
        assert_eq!((rest, heap.first_clock()), (vec![5, 6, 7, 8, 9], u64::MAX));
    }
}
