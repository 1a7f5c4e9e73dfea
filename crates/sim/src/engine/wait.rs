//! Waiting: spinning until a line is written, and sleeping until somebody wakes.
//!
//! # Guarantee
//! A spinner costs the simulation nothing while it waits. It looks again when a line that its condition read is
//! written, at its deadline, and when an interrupt has work for it. What it read is compared, by version, before it is
//! suspended: no write is missed.

use super::access::access;
use super::books::waits;
use super::lines::LineId;
use super::pending::Kind;
use super::profile::in_wait;
use super::record::Wait;
use super::schedule::order;
use super::state::{Engine, is_running_one, step, with};
use super::suspend::{check_alive, suspend_in};
use super::{interrupts, slots};
use std::collections::VecDeque;

/// Waits until `condition` holds or the deadline has come; says whether it held.
pub(crate) fn spin_until(deadline_ns: Option<u64>, mut condition: impl FnMut() -> bool) -> bool {
    if !is_running_one() {
        assert!(condition(), "a wait outside a simulation: nobody is left who could end it");
        return true;
    }
    let deadline = deadline_ns.map(|ns| ns.saturating_mul(1000));
    loop {
        if recorded(&mut condition) {
            return true;
        }
        if deadline.is_some_and(|deadline| step(|engine| engine.clock >= deadline)) {
            return condition();
        }
        check_alive();
        if !interrupts::serve_pending() && step(|engine| engine.prepare_spin(deadline)) {
            in_wait(waits::SPINNING, || {
                suspend_in(Wait::Spin);
                step(Engine::end_spin);
            });
        }
    }
}

/// Evaluates a condition, noting what it reads.
fn recorded(condition: &mut impl FnMut() -> bool) -> bool {
    step(|engine| {
        engine.set_recording(true);
        engine.thread().reads.clear();
    });
    let holds = condition();
    step(|engine| engine.set_recording(false));
    holds
}

/// Sleeps while the word at `address` holds what `is_expected` says, giving the CPU up.
pub(crate) fn park(address: usize, is_expected: impl FnOnce() -> bool) {
    access(address, Kind::Load);
    check_alive();
    if !is_expected() || !step(|engine| engine.fall_asleep(address)) {
        return;
    }
    order();
    if step(|engine| std::mem::take(&mut engine.thread().is_roused)) {
        return;
    }
    in_wait(waits::ASLEEP, || {
        slots::leave_at_once();
        suspend_in(Wait::Sleep);
        slots::ensure_owned();
    });
}

/// Wakes up to `threads` of those that sleep on `address`; returns how many.
pub(crate) fn unpark(address: usize, threads: usize) -> usize {
    if !is_running_one() {
        return 0;
    }
    order();
    with(|engine| engine.wake_sleepers(address, threads)).unwrap_or(0)
}

impl Engine {
    /// Lets the running thread watch what it has read; false if that has changed already.
    fn prepare_spin(&mut self, deadline: Option<u64>) -> bool {
        self.clock += self.costs.pause;
        let current = self.current;
        let mut reads = std::mem::take(&mut self.thread().reads);
        reads.sort_unstable();
        reads.dedup_by_key(|read| read.0);
        let is_unchanged = reads.iter().all(|&(line, version)| self.lines.get(line).version == version);
        if is_unchanged {
            for &(line, _) in &reads {
                self.lines.watch(line, current);
                self.thread().watched.push(line);
            }
            if let Some(deadline) = deadline {
                let clock = self.clock.max(deadline);
                self.make_ready(current, clock);
            }
        }
        self.thread().reads = reads;
        is_unchanged
    }

    fn set_recording(&mut self, is_recording: bool) {
        self.is_recording = is_recording;
        self.thread().is_recording = is_recording;
    }

    /// Whatever woke the spinner: it watches nothing any more.
    fn end_spin(&mut self) {
        let current = self.current;
        let mut watched = std::mem::take(&mut self.thread().watched);
        for line in watched.drain(..) {
            self.lines.unwatch(line, current);
        }
        self.thread().watched = watched;
        let busy_until = std::mem::take(&mut self.thread().busy_until);
        self.clock = self.clock.max(busy_until);
    }

    /// Lets those who watch a line look at it; called by its writer.
    pub(super) fn wake_watchers(&mut self, line: LineId) {
        let list = self.lines.take_watchers(line);
        let written_at = self.clock.max(self.lines.busy_until(line).min(self.here().drained_at));
        for &thread in &list {
            self.notify(thread, line, written_at);
        }
        self.lines.return_list(line, list);
    }

    fn notify(&mut self, thread: u32, line: LineId, written_at: u64) {
        let late = self.costs.notice + self.random.below(self.costs.pause);
        let record = &mut self.threads[thread as usize];
        record.watched.retain(|&watched| watched != line);
        let clock = (written_at + late).max(record.since);
        self.make_ready(thread, clock);
    }

    /// Puts the running thread among the sleepers; false if it is to unwind.
    fn fall_asleep(&mut self, address: usize) -> bool {
        if self.is_dying {
            return false;
        }
        let current = self.current;
        self.sleepers.entry(address).or_default().push_back(current);
        self.thread().word = address;
        self.figures.sleeps += 1;
        self.clock += self.costs.sleep;
        true
    }

    fn wake_sleepers(&mut self, address: usize, threads: usize) -> usize {
        let mut woken = 0;
        while woken < threads {
            let Some(list) = self.sleepers.get_mut(&address) else { break };
            let Some(thread) = list.pop_front() else { break };
            woken += 1;
            self.wake_sleeper(thread);
        }
        if self.sleepers.get(&address).is_some_and(VecDeque::is_empty) {
            self.sleepers.remove(&address);
        }
        woken
    }

    fn wake_sleeper(&mut self, thread: u32) {
        self.clock += self.costs.wake;
        if self.threads[thread as usize].wait == Wait::Sleep {
            self.give_slot(thread, self.clock);
        } else {
            self.threads[thread as usize].is_roused = true;
        }
    }
}
