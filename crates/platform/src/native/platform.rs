//! The traits, on OS threads.

use super::context::{self, bound_machine, machine};
use super::fence::{self, fence};
use super::machine::Machine;
use super::{futex, handler, runner};
use crate::{CpuSet, InterruptHandler, Nodes, Platform, Processor, StartError, ThreadToken, Threads, Usual};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// OS threads and std atomics, with what address spaces are made of by the name `E`
/// ([`Platform::Embedding`]): an embedder's own, on this platform.
#[derive(Debug, Clone, Copy)]
pub struct NativeOf<E>(PhantomData<fn() -> E>);

/// OS threads and std atomics, with `phys`' memory and x86-64's tables.
pub type Native = NativeOf<Usual>;

/// Rounds of waiting, after which the OS may run somebody else: the one we wait for may share our core.
const SPINS_PER_YIELD: u32 = 128;

/// Spins until `condition` holds, giving the core away now and then.
fn spin(mut condition: impl FnMut() -> bool) {
    while !condition() {
        pause();
    }
}

fn pause() {
    core::hint::spin_loop();
    let spins = context::with(|context| {
        context.spins.set(context.spins.get().wrapping_add(1));
        context.spins.get()
    });
    if spins.is_multiple_of(SPINS_PER_YIELD) {
        check_alive();
        std::thread::yield_now();
    }
}

/// Panics if another thread of this machine did.
fn check_alive() {
    if let Some(machine) = bound_machine() {
        machine.check_alive();
    }
}

/// Serves this CPU's queue if interrupts are on.
fn serve_if_on() {
    context::with(|context| {
        if context.irq_depth.get() == 0 && context.cpu.get() != context::NO_CPU {
            machine().serve(context.cpu.get());
        }
    });
}

/// Sleeps while `word` holds `expected`, for at most `limit_ns`, without the slot that the thread may own.
fn sleep(word: &AtomicU32, expected: u32, limit_ns: u64) {
    // Relaxed: the futex compares again, and callers re-read the word with their own ordering.
    if word.load(Ordering::Relaxed) != expected {
        return;
    }
    let Some(machine) = bound_machine() else {
        return futex::wait(word, expected, limit_ns);
    };
    machine.check_alive();
    context::with(|context| {
        let owns_slot = context.cpu.get() != context::NO_CPU;
        if owns_slot {
            machine.leave(context);
        }
        futex::wait(word, expected, limit_ns);
        if owns_slot {
            machine.enter(context);
        }
    });
}

impl<E: 'static> Processor for NativeOf<E> {
    type AtomicBool = AtomicBool;
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicUsize = AtomicUsize;
    type AtomicPtr<T> = AtomicPtr<T>;

    #[inline(always)]
    // ORDER: the caller's; it names the pair.
    fn fence(order: Ordering) {
        fence(order);
    }
    #[inline(always)]
    fn fence_after_rmw() {
        fence::fence_after_rmw();
    }

    fn nr_cpus() -> usize {
        machine().nr_cpus()
    }

    #[inline(always)]
    fn cpu() -> usize {
        let cpu = context::with(|context| context.cpu.get());
        debug_assert_ne!(cpu, context::NO_CPU, "this thread owns no slot: call enter first");
        cpu
    }

    fn try_cpu() -> Option<usize> {
        Some(context::with(|context| context.cpu.get())).filter(|&cpu| cpu != context::NO_CPU)
    }

    fn enter() {
        context::with(|context| machine().enter(context));
    }

    fn prefer(cpu: usize) {
        context::with(|context| context.last_cpu.set(cpu));
    }

    fn leave() {
        context::with(|context| machine().leave(context));
    }

    fn node() -> usize {
        let node = |cpu| bound_machine().map(|machine| machine.nodes().of_cpu(cpu));
        Self::try_cpu().and_then(node).unwrap_or(0)
    }

    #[inline]
    fn irq_off() {
        context::with(|context| context.irq_depth.set(context.irq_depth.get() + 1));
    }

    #[inline]
    fn irq_on() {
        context::with(|context| {
            debug_assert_ne!(context.irq_depth.get(), 0, "interrupts are on already");
            context.irq_depth.set(context.irq_depth.get() - 1);
        });
    }

    #[inline]
    fn current() -> ThreadToken {
        ThreadToken::from_bits(context::with(|context| match context.token.get() {
            0 => context::unbound_token(context),
            token => token,
        }))
    }

    fn is_running(thread: ThreadToken) -> bool {
        let bits = thread.bits();
        context::is_unbound(bits) || bound_machine().is_none_or(|machine| machine.tokens().is_running(bits))
    }

    fn is_known(thread: ThreadToken) -> bool {
        !context::is_unbound(thread.bits()) && bound_machine().is_some()
    }

    fn should_yield() -> bool {
        bound_machine().is_some_and(|machine| machine.is_awaited())
    }

    fn now() -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes the time into our own variable.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    }

    #[inline]
    fn spin_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            serve_if_on();
            pause();
        }
    }

    fn spin_until_deadline(deadline_ns: u64, mut condition: impl FnMut() -> bool) -> bool {
        while !condition() {
            if Self::now() >= deadline_ns {
                return condition();
            }
            serve_if_on();
            pause();
        }
        true
    }

    fn park(word: &AtomicU32, expected: u32) {
        sleep(word, expected, futex::LOOK_UP_NS);
    }

    fn park_until(word: &AtomicU32, expected: u32, deadline_ns: u64) {
        sleep(word, expected, deadline_ns.saturating_sub(Self::now()).min(futex::LOOK_UP_NS));
    }

    fn unpark(word: *const AtomicU32, threads: usize) -> usize {
        futex::wake(word, threads)
    }
}

// SAFETY: `shoot_down` and `guest_enter` follow the table of `memory` (see `Machine`); `bulk` writes PAGE_BYTES.
unsafe impl<E: 'static> Platform for NativeOf<E> {
    type Embedding = E;

    #[inline]
    unsafe fn guest_enter() -> bool {
        let cpu = Self::cpu();
        let machine = machine();
        let is_pending = machine.guest_enter(cpu);
        if is_pending {
            machine.clear_pending(cpu);
        }
        is_pending
    }

    #[inline]
    unsafe fn guest_exit() {
        machine().guest_exit(Self::cpu());
    }

    fn owned_cpu() -> Option<usize> {
        Self::try_cpu()
    }

    fn is_idle(cpu: usize) -> bool {
        machine().is_idle(cpu)
    }

    fn shoot_down(targets: &CpuSet, mut is_drained: impl FnMut(usize) -> bool) {
        let (machine, me) = (machine(), Self::cpu());
        machine.request(me, targets);
        for cpu in targets.iter().filter(|&cpu| cpu != me && cpu < machine.nr_cpus()) {
            spin(|| machine.is_outside_guest(cpu) || is_drained(cpu));
        }
    }

    unsafe fn set_interrupt_handler(handler: InterruptHandler, context: *const ()) {
        machine().set_handler(handler, context);
    }

    unsafe fn clear_interrupt_handler(context: *const ()) {
        handler::clear(context);
    }

    /// Computes, and gives the core away to nobody: on a busy host whoever does so in the middle of a section gets it
    /// back milliseconds later.
    fn work(ns: u64) {
        let deadline_ns = Self::now() + ns;
        while Self::now() < deadline_ns {
            serve_if_on();
            check_alive();
            core::hint::spin_loop();
        }
    }
}

impl<E: 'static> Threads for NativeOf<E> {
    type Machine = Machine;

    fn run(machine: &Machine, first: usize, body: &(dyn Fn(usize) + Sync)) {
        runner::run(machine, first, body);
    }

    fn nodes(machine: &Machine) -> Nodes {
        machine.nodes().clone()
    }

    fn start(thread: usize) -> Result<(), StartError> {
        let run = context::with(|context| context.run.get());
        assert!(!run.is_null(), "Threads::start is for threads that Threads::run started");
        // SAFETY: the context names the run of the calling thread.
        unsafe { runner::start(run, thread) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Atomic;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn more_threads_than_slots_take_turns_and_park_gives_the_slot_up() {
        let (machine, word, entered) = (Machine::new(1), AtomicU32::new(0), AtomicUsize::new(0));
        Native::run(&machine, 3, &|thread| {
            Native::enter();
            entered.fetch_add(1, Ordering::Relaxed);
            if thread == 0 {
                while word.load(Ordering::Acquire) == 0 {
                    Native::park(&word, 0);
                }
            } else {
                while entered.load(Ordering::Relaxed) != 3 {
                    Native::leave();
                    Native::enter();
                }
                word.store(1, Ordering::Release);
                Native::unpark(&word, 1);
            }
            Native::leave();
        });
        assert_eq!(entered.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_panic_ends_the_waits_of_the_others_and_is_passed_on() {
        let (machine, word) = (Machine::new(2), AtomicU32::new(0));
        let result = catch_unwind(AssertUnwindSafe(|| {
            Native::run(&machine, 2, &|thread| {
                Native::enter();
                assert_ne!(thread, 1, "thread one fails");
                loop {
                    Native::park(&word, 0);
                }
            });
        }));
        assert!(result.is_err());
        // The next run's waits last: this one looks often whether somebody has failed.
        Native::run(&machine, 1, &|_| {
            Native::enter();
            assert!(!Native::spin_until_deadline(Native::now() + 2_000_000, || false));
            Native::leave();
        });
    }

    #[test]
    fn whoever_computes_gives_the_core_away_to_nobody() {
        let nr_spins = || context::with(|context| context.spins.get());
        let (before, begin_ns) = (nr_spins(), Native::now());
        Machine::new(1).attach(|| Native::work(300_000));
        assert!(Native::now() >= begin_ns + 300_000);
        assert_eq!(nr_spins(), before, "rounds of waits, some of which give the core away");
        assert!(!Native::spin_until_deadline(Native::now() + 300_000, || false));
        assert_ne!(nr_spins(), before, "a wait has them");
    }

    #[test]
    fn a_cpu_says_of_which_node_it_is() {
        let machine = Machine::with_nodes(2, Nodes::new(2, |cpu| cpu % 2, |_, _| 20));
        assert_eq!(Native::node(), 0, "of no machine");
        Native::run(&machine, 1, &|_| {
            Native::prefer(1);
            Native::enter();
            assert_eq!((Native::cpu(), Native::node()), (1, 1));
            Native::leave();
        });
    }

    #[test]
    fn a_thread_without_a_machine_has_a_name_waits_and_sleeps() {
        let here = Native::current();
        let there = std::thread::spawn(Native::current).join().expect("it ends");
        assert!(here != there, "two threads have one name");
        assert!(here != ThreadToken::NONE && Native::is_running(here) && !Native::is_known(here));
        assert!(!Native::should_yield() && Native::try_cpu().is_none());
        let word = AtomicU32::new(0);
        let begin_ns = Native::now();
        Native::park_until(&word, 0, begin_ns + 2_000_000);
        assert!(!Native::spin_until_deadline(begin_ns + 3_000_000, || false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                Atomic::store(&word, 1, Ordering::Release);
                Native::unpark(&word, 1);
            });
            while word.load(Ordering::Acquire) == 0 {
                Native::park(&word, 0);
            }
        });
    }

    #[test]
    fn a_bound_thread_without_a_slot_sleeps_too_and_gets_none() {
        Native::run(&Machine::new(1), 1, &|_| {
            let word = AtomicU32::new(0);
            Native::park_until(&word, 0, Native::now() + 1_000_000);
            assert!(Native::try_cpu().is_none() && Native::is_known(Native::current()));
        });
    }

    /// Counts the calls.
    unsafe fn count(context: *const (), _cpu: usize) {
        // SAFETY: the test registers a counter that outlives its machine's threads.
        unsafe { &*context.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn interrupts_stay_off_until_the_outermost_guard_ends() {
        let (machine, nr_served, target) = (Machine::new(2), AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        let is_asked = AtomicBool::new(false);
        let wait = || Native::spin_until_deadline(Native::now() + 2_000_000, || false);
        // SAFETY: the counter lives until the handler is cleared, and may be changed by any CPU.
        machine.attach(|| unsafe { Native::set_interrupt_handler(count, (&raw const nr_served).cast()) });
        Native::run(&machine, 2, &|thread| {
            Native::enter();
            if thread == 0 {
                assert!(!crate::native::holds_irq_off());
                let outer = crate::IrqOffGuard::<Native>::new();
                drop(crate::IrqOffGuard::<Native>::new());
                assert!(crate::native::holds_irq_off());
                target.store(Native::cpu(), Ordering::Release);
                Native::spin_until(|| is_asked.load(Ordering::Acquire));
                wait();
                assert_eq!(nr_served.load(Ordering::Relaxed), 0, "served under the outer guard");
                drop(outer);
                assert!(!crate::native::holds_irq_off());
                wait();
                assert_eq!(nr_served.load(Ordering::Relaxed), 1);
            } else {
                Native::spin_until(|| target.load(Ordering::Acquire) != usize::MAX);
                let mut targets = CpuSet::new();
                targets.insert(target.load(Ordering::Relaxed));
                Native::shoot_down(&targets, |_| false);
                is_asked.store(true, Ordering::Release);
            }
            Native::leave();
        });
        // SAFETY: registered above, and nothing is translated here.
        unsafe { Native::clear_interrupt_handler((&raw const nr_served).cast()) };
    }

    #[test]
    fn started_threads_are_waited_for() {
        let (machine, ended) = (Machine::new(2), AtomicUsize::new(0));
        Native::run(&machine, 1, &|thread| {
            if thread < 50 {
                Native::start(thread + 1).expect("the host starts fifty threads");
            }
            ended.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ended.load(Ordering::Relaxed), 51);
    }

    #[test]
    fn a_thread_runs_while_it_has_a_slot() {
        let machine = Machine::new(2);
        let (sender, receiver) = std::sync::mpsc::channel();
        let is_seen = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                machine.attach(|| {
                    sender.send(Native::current()).expect("somebody listens");
                    while !is_seen.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                });
            });
            machine.attach(|| {
                let token = receiver.recv().expect("a token");
                assert!(Native::is_running(token) && Native::is_running(Native::current()));
                is_seen.store(true, Ordering::Release);
                other.join().expect("no panic");
                assert!(!Native::is_running(token), "it has ended");
            });
        });
    }

    #[test]
    fn a_handler_that_was_cleared_makes_room_for_another() {
        let (machine, nr_served) = (Machine::new(2), [const { AtomicUsize::new(0) }; 3]);
        let context = |place: usize| (&raw const nr_served[place]).cast::<()>();
        let serve = || {
            machine.attach(|| {
                let mut here = CpuSet::new();
                here.insert(Native::cpu());
                let ask = || machine.attach(|| Native::shoot_down(&here, |_| true));
                std::thread::scope(|scope| scope.spawn(ask).join()).expect("no panic");
                Native::spin_until_deadline(Native::now() + 1_000_000, || false);
            });
            nr_served.each_ref().map(|served| served.load(Ordering::Relaxed))
        };
        // SAFETY: the counters live until the handlers are cleared, and may be changed by any CPU.
        let set = |place| machine.attach(|| unsafe { Native::set_interrupt_handler(count, context(place)) });
        set(0);
        assert_eq!(serve(), [1, 0, 0]);
        // SAFETY: nothing is translated here.
        let clear = |place| unsafe { Native::clear_interrupt_handler(context(place)) };
        machine.attach(|| clear(0));
        assert_eq!(serve(), [1, 0, 0]);
        set(1);
        assert_eq!(serve(), [1, 1, 0]);
        // On a thread that runs on no machine; another one's stays.
        clear(0);
        assert_eq!(serve(), [1, 2, 0]);
        clear(1);
        assert_eq!(serve(), [1, 2, 0]);
        set(2);
        assert_eq!(serve(), [1, 2, 1]);
        drop(machine);
        clear(2);
    }

    #[test]
    fn shootdown_waits_for_a_cpu_in_guest_until_it_leaves_or_drains() {
        let (machine, stage) = (Machine::new(2), AtomicU32::new(0));
        Native::run(&machine, 2, &|thread| {
            Native::enter();
            if thread == 0 {
                // SAFETY: nothing is translated here.
                assert!(!unsafe { Native::guest_enter() });
                Atomic::store(&stage, Native::cpu() as u32 + 1, Ordering::Release);
                let until = Native::now() + 20_000_000;
                Native::spin_until_deadline(until, || false);
                Atomic::store(&stage, 10, Ordering::Release);
                // SAFETY: as above.
                unsafe { Native::guest_exit() };
            } else {
                Native::spin_until(|| stage.load(Ordering::Acquire) != 0);
                let mut targets = CpuSet::new();
                targets.insert(1 - Native::cpu());
                Native::shoot_down(&targets, |_| false);
                assert_eq!(stage.load(Ordering::Acquire), 10, "returned while the other CPU was in guest");
            }
            Native::leave();
        });
    }
}
