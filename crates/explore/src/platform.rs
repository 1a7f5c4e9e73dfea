//! The traits, on coroutines.

use super::atomics::Watched;
use super::engine::{self, Engine};
use super::machine::Machine;
use super::policy::Policy;
use faultless_platform::native::Native;
use faultless_platform::{
    Bulk, CpuSet, InterruptHandler, PAGE_BYTES, Platform, Processor, StartError, ThreadToken, Threads, TouchKind,
};
use std::panic::Location;
use std::sync::atomic::Ordering;

/// Coroutines whose every access may be followed by another's.
#[derive(Debug, Clone, Copy)]
pub enum Explore {}

/// Says in words what the calling thread does from now on; failures print it.
pub fn note(what: String) {
    engine::inside(|engine| {
        let current = engine.current();
        engine.table.borrow_mut().threads[current].note = what;
    });
}

/// Returns a number that grows: of two calls the later one gets the larger one.
pub fn stamp() -> u64 {
    engine::inside(|engine| {
        engine.tick();
        engine.total()
    })
}

/// Runs `act` while no other thread goes on; nothing in it waits.
pub fn standing_still<R>(act: impl FnOnce() -> R) -> R {
    engine::inside(|engine| engine.still(act))
}

impl Engine<'_> {
    fn cpu(&self) -> Option<usize> {
        self.table.borrow().threads[self.current()].cpu
    }

    fn own_cpu(&self) -> usize {
        self.cpu().expect("this thread owns no slot: call enter first")
    }

    /// Serves what was published for this thread's CPU, if interrupts are on.
    fn serve(&self) {
        let (cpu, depth) = {
            let table = self.table.borrow();
            let thread = &table.threads[self.current()];
            (thread.cpu, thread.irq_depth)
        };
        if let Some(cpu) = cpu.filter(|_| depth == 0)
            && self.machine.take_pending(cpu)
        {
            self.machine.interrupt(cpu);
        }
    }

    fn change_irq_depth(&self, change: impl FnOnce(u32) -> u32) {
        let depth = &mut self.table.borrow_mut().threads[self.current()].irq_depth;
        *depth = change(*depth);
    }
}

impl Processor for Explore {
    type AtomicBool = Watched<<Native as Processor>::AtomicBool>;
    type AtomicU8 = Watched<<Native as Processor>::AtomicU8>;
    type AtomicU16 = Watched<<Native as Processor>::AtomicU16>;
    type AtomicU32 = Watched<<Native as Processor>::AtomicU32>;
    type AtomicU64 = Watched<<Native as Processor>::AtomicU64>;
    type AtomicUsize = Watched<<Native as Processor>::AtomicUsize>;
    type AtomicPtr<T> = Watched<<Native as Processor>::AtomicPtr<T>>;

    // ORDER: none: one OS thread runs all.
    fn fence(_order: Ordering) {
        engine::with(|engine| engine.tick());
    }
    fn nr_cpus() -> usize {
        engine::inside(|engine| engine.machine.nr_cpus())
    }
    fn cpu() -> usize {
        engine::inside(|engine| engine.own_cpu())
    }
    fn enter() {
        engine::inside(|engine| {
            assert!(engine.cpu().is_none(), "this thread owns a slot already");
            engine.tick();
            let me = engine.current();
            engine.table.borrow_mut().request_cpu(me);
            if engine.cpu().is_none() {
                engine.stop(|_, _| ());
            }
        });
    }
    fn prefer(cpu: usize) {
        engine::inside(|engine| engine.table.borrow_mut().threads[engine.current()].last_cpu = cpu);
    }
    fn leave() {
        engine::inside(|engine| {
            engine.table.borrow_mut().release_cpu(engine.current());
            engine.note_wake();
            engine.tick();
        });
    }
    /// Two nodes, of the CPUs with even and with odd numbers.
    fn node() -> usize {
        Self::cpu() % 2
    }
    fn irq_off() {
        engine::inside(|engine| engine.change_irq_depth(|depth| depth + 1));
    }
    fn irq_on() {
        engine::inside(|engine| engine.change_irq_depth(|depth| depth.saturating_sub(1)));
    }
    fn current() -> ThreadToken {
        engine::inside(|engine| ThreadToken::from_bits(engine.current() + 1))
    }
    fn is_running(thread: ThreadToken) -> bool {
        engine::inside(|engine| {
            engine.tick();
            let table = engine.table.borrow();
            table.threads.get(thread.bits().wrapping_sub(1)).is_some_and(|thread| thread.cpu.is_some())
        })
    }
    fn should_yield() -> bool {
        engine::inside(|engine| engine.table.borrow().is_cpu_wanted())
    }
    fn now() -> u64 {
        engine::inside(|engine| engine.now_ns())
    }
    #[track_caller]
    fn spin_until(condition: impl FnMut() -> bool) {
        let place = Location::caller();
        engine::inside(|engine| engine.wait_awake(None, place, Engine::serve, condition));
    }
    #[track_caller]
    fn spin_until_deadline(deadline_ns: u64, condition: impl FnMut() -> bool) -> bool {
        let place = Location::caller();
        engine::inside(|engine| engine.wait_awake(Some(deadline_ns), place, Engine::serve, condition))
    }
    #[track_caller]
    fn park(word: &Self::AtomicU32, expected: u32) {
        let place = Location::caller();
        engine::inside(|engine| {
            let address = std::ptr::from_ref(word).addr();
            engine.tick();
            engine.check(address, size_of::<Self::AtomicU32>());
            // Comparing and falling asleep are one step.
            if word.peek() != expected {
                return;
            }
            engine.note_wake();
            engine.stop(|table, me| table.sleep(me, address, place));
        });
    }
    fn unpark(word: *const Self::AtomicU32, threads: usize) -> usize {
        engine::inside(|engine| {
            engine.tick();
            let woken = (0..threads).take_while(|_| engine.table.borrow_mut().wake_one(word.addr())).count();
            engine.note_wake();
            engine.tick();
            woken
        })
    }
}

// SAFETY: `shoot_down` waits for every target that is in guest and has not drained; `bulk` writes PAGE_BYTES.
unsafe impl Platform for Explore {
    type Embedding = faultless_platform::Usual;

    unsafe fn guest_enter() -> bool {
        engine::inside(|engine| {
            let cpu = engine.own_cpu();
            engine.tick();
            engine.table.borrow_mut().set_guest(cpu, true);
            engine.tick();
            engine.machine.take_pending(cpu)
        })
    }
    unsafe fn guest_exit() {
        engine::inside(|engine| {
            let cpu = engine.own_cpu();
            engine.tick();
            engine.table.borrow_mut().set_guest(cpu, false);
            engine.note_write();
            engine.tick();
        });
    }
    fn owned_cpu() -> Option<usize> {
        engine::inside(|engine| engine.cpu())
    }
    fn is_idle(cpu: usize) -> bool {
        engine::inside(|engine| {
            engine.tick();
            engine.table.borrow().is_idle(cpu)
        })
    }
    #[track_caller]
    fn shoot_down(targets: &CpuSet, mut is_drained: impl FnMut(usize) -> bool) {
        let place = Location::caller();
        engine::inside(|engine| {
            let (me, nr_cpus) = (engine.own_cpu(), engine.machine.nr_cpus());
            let others = || targets.iter().filter(|&cpu| cpu != me && cpu < nr_cpus);
            others().for_each(|cpu| engine.machine.raise(cpu));
            engine.note_write();
            engine.tick();
            for cpu in others() {
                // Not in guest, so nobody waits for us: nothing is served meanwhile.
                let is_gone = || !engine.table.borrow().is_guest(cpu) || is_drained(cpu);
                engine.wait_awake(None, place, |_| (), is_gone);
            }
        });
    }
    unsafe fn set_interrupt_handler(handler: InterruptHandler, context: *const ()) {
        engine::inside(|engine| engine.machine.set_handler(handler, context));
    }
    unsafe fn clear_interrupt_handler(context: *const ()) {
        engine::inside(|engine| engine.machine.clear_handler(Some(context)));
    }
    fn work(ns: u64) {
        let deadline_ns = Self::now() + ns;
        Self::spin_until_deadline(deadline_ns, || false);
    }
    fn touch(address: *const u8, len_bytes: usize, access: TouchKind) {
        engine::with(|engine| {
            // A thread's own stack is nobody else's: no place for a switch.
            if engine.machine.arena().is_none_or(|arena| arena.reaches(address.addr())) {
                engine.access(address.addr(), len_bytes, || ((), access == TouchKind::Write));
            }
        });
    }
    unsafe fn bulk(frame: *mut u8, kind: Bulk) {
        engine::inside(|engine| {
            engine.access(frame.addr(), PAGE_BYTES, || {
                if let Bulk::CopyFrom(source) = kind {
                    engine.check(source.addr(), PAGE_BYTES);
                }
                // SAFETY: passed on as promised.
                (unsafe { Native::bulk(frame, kind) }, true)
            });
        });
    }
    fn forbid(address: *const u8, len_bytes: usize) {
        engine::with(|engine| engine.machine.arena().map(|arena| arena.forbid(address.addr(), len_bytes)));
    }
    fn permit(address: *const u8, len_bytes: usize) {
        engine::with(|engine| engine.machine.arena().map(|arena| arena.permit(address.addr(), len_bytes)));
    }
}

impl Threads for Explore {
    type Machine = Machine;

    /// Runs the threads, each until it stops. See [`Machine::explore`] for other schedules.
    fn run(machine: &Machine, first: usize, body: &(dyn Fn(usize) + Sync)) {
        if let Err(failure) = machine.explore(first, Policy::in_turn(0), body).outcome {
            panic!("{failure}");
        }
    }

    fn start(thread: usize) -> Result<(), StartError> {
        engine::inside(|engine| {
            engine.add(thread);
            engine.note_wake();
            engine.tick();
        });
        Ok(())
    }
}
