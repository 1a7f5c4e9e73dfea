//! Whose turn it is: the thread at the head of the heap, once all accesses before it were made.

use super::record::{NO_CPU, Wait};
use super::state::{Engine, step};
use super::suspend::suspend;

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
        let siblings = self.topology.siblings(usize::from(cpu));
        let nr_busy = siblings.filter(|&sibling| self.is_busy(sibling)).count();
        1024 + nr_busy as u64 * self.costs.sibling_share
    }

    /// Says whether a CPU's owner runs, or would if it were its turn.
    fn is_busy(&self, cpu: usize) -> bool {
        debug_assert_eq!(
            self.busy[cpu],
            self.cpus[cpu].owner.is_some_and(|thread| self.threads[thread as usize].wait == Wait::Turn),
            "CPU {cpu}: who owns it and what it waits for"
        );
        self.busy[cpu]
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
