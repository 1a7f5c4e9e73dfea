//! Guest state and shootdown: what the protocol demands, and what the interrupts cost.
//!
//! # Guarantee
//! The protocol is the one of [`faultless_platform::Platform`]: `shoot_down` returns when every target has left guest
//! or drained its queue. The bill is that of a kernel that sends interrupts: the sender pays for each, and waits for
//! the slowest handler; each target that runs loses the handler's time. Idle CPUs are skipped; an interrupt that has
//! not arrived yet serves two senders.

use super::books::waits;
use super::profile::in_wait;
use super::record::{NO_CPU, Wait};
use super::schedule::order;
use super::slots;
use super::state::{Engine, Handler, step, with};
use super::suspend::{check_alive, suspend_in};
use faultless_platform::{CpuSet, InterruptHandler};

/// A distance from which on a CPU is on another socket.
const REMOTE_LEVEL: usize = 4;

/// Holds interrupts off; nests.
pub(crate) fn irq_off() {
    step(|engine| engine.thread().irq_depth += 1);
}

/// Undoes one [`irq_off`].
pub(crate) fn irq_on() {
    step(|engine| {
        let thread = engine.thread();
        debug_assert_ne!(thread.irq_depth, 0, "interrupts are on already");
        thread.irq_depth = thread.irq_depth.saturating_sub(1);
    });
}

/// Lets the CPU use translations; says whether its queue must be drained first.
pub(crate) fn guest_enter() -> bool {
    check_alive();
    step(|engine| {
        engine.clock += engine.costs.between + engine.costs.store + engine.costs.fence;
        engine.pay_stolen();
        let cpu = engine.here();
        cpu.is_guest = true;
        std::mem::take(&mut cpu.is_pending)
    })
}

/// Ends the use of translations; a thread whose slice is over lets the next one have the CPU.
pub(crate) fn guest_exit() {
    step(|engine| {
        engine.clock += engine.costs.between + engine.costs.store;
        let cpu = usize::from(engine.cpu);
        engine.cpus[cpu].is_guest = false;
        engine.release_watchers(cpu);
    });
}

/// Interrupts `targets`, and waits until none of them can use what was taken away.
pub(crate) fn shoot_down(targets: &CpuSet, is_drained: impl FnMut(usize) -> bool) {
    in_wait(waits::SHOOTDOWN, || interrupt_and_wait(targets, is_drained));
}

fn interrupt_and_wait(targets: &CpuSet, mut is_drained: impl FnMut(usize) -> bool) {
    order();
    let (me, nr_cpus) = step(|engine| {
        engine.interrupt_all(targets);
        (usize::from(engine.cpu), engine.cpus.len())
    });
    order();
    for cpu in targets.iter().filter(|&cpu| cpu != me && cpu < nr_cpus) {
        while step(|engine| engine.cpus[cpu].is_guest) && !is_drained(cpu) {
            if step(|engine| engine.await_guest_exit(cpu)) {
                suspend_in(Wait::Guest(cpu as u16));
            }
        }
    }
}

/// Registers what serves a CPU's queue.
pub(crate) fn set_handler(handler: InterruptHandler, context: *const ()) {
    with(|engine| {
        assert!(engine.handler.is_none(), "a machine has one interrupt handler, and one is registered");
        engine.handler = Some((handler, context));
    });
}

/// Takes the handler with that context away.
pub(crate) fn clear_handler(context: *const ()) {
    with(|engine| engine.handler = engine.handler.filter(|(_, own)| *own != context));
}

/// Serves what was published for the waiting thread's CPU; says whether there was anything.
pub(super) fn serve_pending() -> bool {
    let Some((handler, context, cpu)) = step(Engine::take_pending) else { return false };
    // SAFETY: registered under the promise that it may run on any CPU in any wait with interrupts on.
    unsafe { handler(context, cpu) };
    true
}

impl Engine {
    fn take_pending(&mut self) -> Option<(InterruptHandler, *const (), usize)> {
        let is_on = self.thread().irq_depth == 0 && self.cpu != NO_CPU;
        let (handler, context): Handler = self.handler.filter(|_| is_on)?;
        let cpu = usize::from(self.cpu);
        std::mem::take(&mut self.cpus[cpu].is_pending).then_some((handler, context, cpu))
    }

    /// Charges what interrupts took from the running thread.
    #[inline]
    pub(super) fn pay_stolen(&mut self) {
        if self.cpu != NO_CPU {
            let stolen = std::mem::take(&mut self.here().stolen);
            if stolen > 0 {
                self.clock += stolen;
                self.count_interrupts(stolen);
            }
        }
    }

    fn interrupt_all(&mut self, targets: &CpuSet) {
        let me = usize::from(self.cpu);
        let mut acknowledged_at = self.clock;
        let nr_cpus = self.cpus.len();
        for cpu in targets.iter().filter(|&cpu| cpu != me && cpu < nr_cpus) {
            self.cpus[cpu].is_pending = true;
            if let Some(thread) = self.cpus[cpu].owner {
                acknowledged_at = acknowledged_at.max(self.interrupt(cpu, thread));
            }
        }
        self.clock = self.clock.max(acknowledged_at);
    }

    /// Sends an interrupt; returns when its end is known here.
    fn interrupt(&mut self, cpu: usize, thread: u32) -> u64 {
        self.clock += self.costs.send_each;
        let level = self.topology.level(usize::from(self.cpu), cpu);
        let delay = if level < REMOTE_LEVEL { self.costs.deliver } else { self.costs.deliver_remote };
        let clock = self.clock;
        let target = &mut self.cpus[cpu];
        if target.arrives_at <= clock {
            target.arrives_at = clock + self.random.about(delay);
            target.handled_at = target.arrives_at.max(target.handled_at) + self.costs.handle;
            self.figures.interrupts += 1;
            self.steal_from(cpu, thread);
        }
        self.cpus[cpu].handled_at + self.costs.read[level]
    }

    fn steal_from(&mut self, cpu: usize, thread: u32) {
        let handled_at = self.cpus[cpu].handled_at;
        let target = &mut self.threads[thread as usize];
        if target.wait == Wait::Spin {
            target.busy_until = handled_at;
            if target.irq_depth == 0 && self.handler.is_some() {
                self.make_ready(thread, handled_at);
            }
        } else {
            self.cpus[cpu].stolen += self.costs.handle;
        }
    }

    fn await_guest_exit(&mut self, cpu: usize) -> bool {
        let is_guest = self.cpus[cpu].is_guest;
        if is_guest {
            let current = self.current;
            self.cpus[cpu].watchers.push(current);
            self.cpus[cpu].is_watched = true;
        }
        is_guest
    }

    /// Lets those go on who wait until `cpu` leaves guest.
    pub(super) fn release_watchers(&mut self, cpu: usize) {
        if !std::mem::take(&mut self.cpus[cpu].is_watched) {
            return;
        }
        let clock = self.clock;
        let mut watchers = std::mem::take(&mut self.cpus[cpu].watchers);
        for thread in watchers.drain(..) {
            let clock = clock.max(self.threads[thread as usize].since);
            self.make_ready(thread, clock);
        }
        self.cpus[cpu].watchers = watchers;
    }
}

/// Gives way after a guest access, where the thread holds nothing.
pub(crate) fn after_guest() {
    slots::give_way();
}
