//! CPUs and the threads that share them: a queue for all, time slices, wake-ups.
//!
//! # Guarantee
//! A CPU has one owner (E3). Who finds none free stands in line; the first in line gets the next one that is given up.
//! A thread is asked to give way (`should_yield`) when its slice is over and somebody waits, and does so by itself
//! where it leaves guest and while it computes: nowhere else may its CPU change under it.

use super::books::waits;
use super::profile::in_wait;
use super::record::{NO_CPU, Wait};
use super::schedule::order;
use super::state::{Engine, step, with};
use super::suspend::{check_alive, suspend, suspend_in};

/// Takes a CPU, waiting in line for one.
pub(crate) fn enter() {
    order();
    check_alive();
    step(|engine| assert_eq!(engine.cpu, NO_CPU, "this thread owns a slot already"));
    if !step(Engine::try_take_slot) {
        in_wait(waits::CPU, || {
            suspend_in(Wait::Slot);
            ensure_owned();
        });
    }
}

/// Takes a CPU if the wait ended without one: the simulation is dying.
pub(super) fn ensure_owned() {
    if step(|engine| engine.cpu == NO_CPU && !engine.is_dying) {
        enter();
    }
}

/// Says which CPU the running thread, which has none, would rather have next.
pub(crate) fn prefer(cpu: usize) {
    step(|engine| engine.thread().last_cpu = cpu as u16);
}

/// Gives the CPU up.
pub(crate) fn leave() {
    step(|engine| assert_eq!(engine.thread().irq_depth, 0, "a slot is left with interrupts off"));
    order();
    leave_at_once();
}

pub(super) fn leave_at_once() {
    step(Engine::free_slot);
}

/// Gives the CPU up at a thread's end.
pub(super) fn leave_if_owned() {
    if step(|engine| engine.cpu != NO_CPU) {
        leave();
    }
}

/// Gives up what a thread that has panicked still has.
pub(super) fn abandon() {
    step(|engine| {
        engine.thread().irq_depth = 0;
        if engine.cpu != NO_CPU {
            let cpu = usize::from(engine.cpu);
            engine.cpus[cpu].is_guest = false;
            engine.release_watchers(cpu);
            engine.free_slot();
        }
    });
}

/// Says whether the thread's slice is over and somebody waits for a CPU.
pub(crate) fn should_yield() -> bool {
    with(|engine| engine.is_slice_over()).unwrap_or(false)
}

/// Names the running thread: its index + 1.
pub(crate) fn current_token() -> usize {
    with(|engine| engine.current as usize + 1).unwrap_or(0)
}

/// Says whether the thread of a token owns a CPU.
pub(crate) fn is_running(token: usize) -> bool {
    let runs = |engine: &mut Engine| {
        let thread = token.checked_sub(1).and_then(|index| engine.threads.get(index));
        thread.is_some_and(|thread| !thread.is_done && thread.cpu != NO_CPU)
    };
    with(runs).unwrap_or(false)
}

/// Computes for `ns`, give or take 5 %, sharing the CPU with those in line.
pub(crate) fn work(ns: u64) {
    let mut left = step(|engine| engine.random.about(ns.saturating_mul(1000)));
    while left > 0 {
        let part = step(|engine| engine.work_part(left));
        left -= part;
        suspend();
        check_alive();
        give_way();
    }
}

/// Lets the first in line have the CPU if the slice is over, unless the thread holds interrupts off.
pub(super) fn give_way() {
    if should_yield() && step(|engine| engine.thread().irq_depth == 0) {
        leave();
        enter();
    }
}

impl Engine {
    fn is_slice_over(&mut self) -> bool {
        !self.queue.is_empty() && self.cpu != NO_CPU && self.clock >= self.here().slice_end
    }

    fn work_part(&mut self, left: u64) -> u64 {
        let slice_end = if self.cpu == NO_CPU { u64::MAX } else { self.here().slice_end };
        let part = left.min(slice_end.saturating_sub(self.clock).max(self.costs.slice / 8).max(1));
        // Computing is instructions: busy threads of the same core make it take longer.
        self.pace = self.pace_of(self.cpu);
        let longer = u128::from(part) * u128::from(self.pace - 1024) / 1024;
        self.make_ready(self.current, self.clock + part + longer as u64);
        part
    }

    /// Takes a free CPU for the running thread, or stands in line.
    fn try_take_slot(&mut self) -> bool {
        let current = self.current;
        let Some(cpu) = self.free_cpu_for(current) else {
            self.queue.push_back(current);
            return false;
        };
        self.clock = self.own(cpu, current, self.clock);
        self.cpu = cpu;
        self.pace = self.pace_of(cpu);
        true
    }

    /// Returns the free CPU that a thread would rather have; nothing if none is free, or others come first.
    fn free_cpu_for(&self, thread: u32) -> Option<u16> {
        if self.nr_free == 0 || !self.queue.is_empty() {
            return None;
        }
        let last = self.threads[thread as usize].last_cpu;
        let is_free = |&cpu: &usize| self.cpus[cpu].owner.is_none();
        let preferred = Some(usize::from(last)).filter(|&cpu| cpu < self.cpus.len());
        let cpu = preferred.filter(is_free).or_else(|| (0..self.cpus.len()).find(is_free))?;
        Some(cpu as u16)
    }

    /// Makes a thread the owner of a CPU; returns when it runs there.
    fn own(&mut self, cpu: u16, thread: u32, clock: u64) -> u64 {
        let record = &mut self.cpus[usize::from(cpu)];
        let is_new = record.last_thread.replace(thread) != Some(thread);
        let clock = clock.max(record.free_at) + if is_new { self.costs.context_switch } else { 0 };
        record.owner = Some(thread);
        record.slice_end = clock + self.costs.slice;
        record.stolen = 0;
        self.nr_free -= 1;
        let thread = &mut self.threads[thread as usize];
        (thread.cpu, thread.last_cpu) = (cpu, cpu);
        self.busy[usize::from(cpu)] = thread.wait == Wait::Turn;
        clock
    }

    /// Gives the running thread's CPU up, to the first in line.
    fn free_slot(&mut self) {
        let cpu = std::mem::replace(&mut self.cpu, NO_CPU);
        self.thread().cpu = NO_CPU;
        let clock = self.clock;
        let record = &mut self.cpus[usize::from(cpu)];
        (record.owner, record.free_at) = (None, clock);
        self.busy[usize::from(cpu)] = false;
        self.nr_free += 1;
        while let Some(next) = self.queue.pop_front() {
            if self.threads[next as usize].wait == Wait::Slot || self.threads[next as usize].wait == Wait::Sleep {
                let since = self.threads[next as usize].since;
                let clock = self.own(cpu, next, clock.max(since));
                self.make_ready(next, clock);
                return;
            }
        }
        self.begin_idle(cpu, clock);
    }

    /// Gives a woken thread a CPU, or a place in line.
    pub(super) fn give_slot(&mut self, thread: u32, clock: u64) {
        match self.free_cpu_for(thread) {
            Some(cpu) => {
                let awake = self.end_idle(cpu, clock);
                let clock = self.own(cpu, thread, awake);
                self.make_ready(thread, clock);
            }
            None => self.queue.push_back(thread),
        }
    }
}
