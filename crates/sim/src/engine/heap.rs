//! Who runs next: the thread with the lowest clock; ties are drawn.
//!
//! An entry is 128 bits, most significant first: clock (64), a random tie-break (16), thread (24), generation (24). An
//! entry whose generation is not its thread's any more is passed over.

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

    pub(super) fn push(&mut self, clock: u64, tie: u64, thread: u32, generation: u32) {
        let low = tie >> 48 << 48 | u64::from(thread) << THREAD_BITS | u64::from(generation & 0xff_ffff);
        let entry = Reverse(u128::from(clock) << 64 | u128::from(low));
        if let Some(before) = self.last.replace(entry) {
            self.earlier.push(before);
        }
    }

    pub(super) fn pop(&mut self) -> Option<(u64, u32, u32)> {
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

    pub(super) fn first_clock(&self) -> u64 {
        let first = self.earlier.peek().into_iter().chain(&self.last).max();
        first.map_or(u64::MAX, |Reverse(entry)| (entry >> 64) as u64)
    }

    pub(super) fn clear(&mut self) {
        self.earlier.clear();
        self.last = None;
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
