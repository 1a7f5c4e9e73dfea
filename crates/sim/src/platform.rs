//! The traits, on a simulated machine.

use crate::atomics::{Carrier, Simulated};
use crate::engine::{self, Filling, Machine};
use faultless_platform::native::Native;
use faultless_platform::{
    Atomic, Bulk, CpuSet, InterruptHandler, KernelEntry, Nodes, Ordering, Platform, Processor, StartError, ThreadToken,
    Threads, TouchKind, Tracepoint,
};

/// Simulated CPUs; see the crate.
#[derive(Debug, Clone, Copy)]
pub enum Sim {}

impl Processor for Sim {
    type AtomicBool = Simulated<<Native as Processor>::AtomicBool>;
    type AtomicU8 = Simulated<<Native as Processor>::AtomicU8>;
    type AtomicU16 = Simulated<<Native as Processor>::AtomicU16>;
    type AtomicU32 = Simulated<<Native as Processor>::AtomicU32>;
    type AtomicU64 = Simulated<<Native as Processor>::AtomicU64>;
    type AtomicUsize = Simulated<<Native as Processor>::AtomicUsize>;
    type AtomicPtr<T> = Simulated<Carrier<T>>;

    #[inline]
    // ORDER: the caller's: it decides what the fence costs; one OS thread runs all CPUs.
    fn fence(order: Ordering) {
        if order == Ordering::SeqCst {
            engine::fence();
        }
    }
    #[inline]
    fn fence_after_rmw() {
        // The machines are x86-64's: the read-modify-write was the fence, and has been charged.
    }
    fn nr_cpus() -> usize {
        engine::nr_cpus()
    }
    #[inline]
    fn cpu() -> usize {
        engine::cpu()
    }
    fn try_cpu() -> Option<usize> {
        // What is set up before the machine runs has none.
        engine::is_running_one().then(engine::cpu)
    }
    fn enter() {
        engine::enter();
    }
    fn prefer(cpu: usize) {
        engine::prefer(cpu);
    }
    fn leave() {
        engine::leave();
    }
    #[inline]
    fn node() -> usize {
        engine::socket()
    }
    #[inline]
    fn irq_off() {
        engine::irq_off();
    }
    #[inline]
    fn irq_on() {
        engine::irq_on();
    }
    fn current() -> ThreadToken {
        ThreadToken::from_bits(engine::current_token())
    }
    fn is_running(thread: ThreadToken) -> bool {
        engine::is_running(thread.bits())
    }
    fn should_yield() -> bool {
        engine::should_yield()
    }
    fn now() -> u64 {
        engine::read_clock()
    }
    fn watch_clock() -> u64 {
        engine::look_at_clock()
    }
    fn spin_until(condition: impl FnMut() -> bool) {
        engine::spin_until(None, condition);
    }
    fn spin_until_deadline(deadline_ns: u64, condition: impl FnMut() -> bool) -> bool {
        engine::spin_until(Some(deadline_ns), condition)
    }
    fn park(word: &Self::AtomicU32, expected: u32) {
        // The access is charged by `park` itself; the comparison is part of it.
        engine::park(std::ptr::from_ref(word).addr(), || word.uncharged() == expected);
    }
    fn unpark(word: *const Self::AtomicU32, threads: usize) -> usize {
        engine::unpark(word.addr(), threads)
    }
    fn trace(event: Tracepoint) {
        engine::note(event);
    }
}

// SAFETY: `shoot_down` and `guest_enter` follow the table of `faultless_platform::Platform` (see `engine::interrupts`);
// `bulk` passes the whole frame on to Native.
unsafe impl Platform for Sim {
    type Embedding = faultless_platform::Usual;

    #[inline]
    unsafe fn guest_enter() -> bool {
        engine::guest_enter()
    }
    #[inline]
    unsafe fn guest_exit() {
        engine::guest_exit();
        engine::after_guest();
    }
    fn owned_cpu() -> Option<usize> {
        engine::owned_cpu()
    }
    fn is_idle(cpu: usize) -> bool {
        engine::is_idle(cpu)
    }
    fn shoot_down(targets: &CpuSet, is_drained: impl FnMut(usize) -> bool) {
        engine::shoot_down(targets, is_drained);
    }
    unsafe fn set_interrupt_handler(handler: InterruptHandler, context: *const ()) {
        engine::set_handler(handler, context);
    }
    unsafe fn clear_interrupt_handler(context: *const ()) {
        engine::clear_handler(context);
    }
    fn work(ns: u64) {
        engine::work(ns);
    }
    fn enter_kernel(entry: KernelEntry) {
        engine::enter_kernel(entry);
    }
    #[inline]
    fn touch(address: *const u8, len_bytes: usize, access: TouchKind) {
        engine::touch(address.addr(), len_bytes, access);
    }
    unsafe fn bulk(frame: *mut u8, kind: Bulk) {
        let filling = if matches!(kind, Bulk::CopyFrom(_)) { Filling::Copy } else { Filling::Zero };
        engine::bulk(frame.addr(), filling);
        // SAFETY: passed on as promised.
        unsafe { Native::bulk(frame, kind) };
    }
}

impl Threads for Sim {
    type Machine = Machine;

    fn run(machine: &Machine, first: usize, body: &(dyn Fn(usize) + Sync)) {
        machine.run(first, body);
    }

    fn nodes(machine: &Machine) -> Nodes {
        machine.nodes().clone()
    }

    fn place(machine: &Machine, node: usize, address: *const u8, len_bytes: usize) {
        // With one node there is nothing to tell apart: what is touched first by a CPU is its socket's.
        if machine.nodes().len() > 1 {
            machine.place(node, address, len_bytes);
        }
    }

    fn start(thread: usize) -> Result<(), StartError> {
        engine::start(thread)
    }
}

impl<A: Atomic> Simulated<A> {
    fn uncharged(&self) -> A::Value {
        self.carrier().load(Ordering::Relaxed)
    }
}
