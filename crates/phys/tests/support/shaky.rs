//! `Shaky`: OS threads that let another run before one atomic in sixteen, so that every gap between two atomics is a
//! place where others come between. For claims about instants, whose windows are too short for chance.

use faultless_platform::native::{Machine, Native};
use faultless_platform::{
    Atomic, AtomicInteger, Bulk, CpuSet, InPlace, InterruptHandler, Ordering, Platform, Processor, StartError,
    ThreadToken, Threads,
};
use std::cell::Cell;

pub enum Shaky {}

thread_local! {
    static DICE: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

fn shake() {
    let state = DICE.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    DICE.set(state);
    if state >> 60 == 0 {
        std::thread::yield_now();
    }
}

/// Makes the calling thread shake differently from others.
pub fn seed(seed: u64) {
    DICE.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
}

#[repr(transparent)]
pub struct Shaking<A>(A);

impl<A: Atomic> Atomic for Shaking<A> {
    type Value = A::Value;
    fn new(value: A::Value) -> Self {
        Self(A::new(value))
    }
    fn load(&self, order: Ordering) -> A::Value {
        shake();
        self.0.load(order)
    }
    fn store(&self, value: A::Value, order: Ordering) {
        shake();
        self.0.store(value, order);
    }
    fn swap(&self, value: A::Value, order: Ordering) -> A::Value {
        shake();
        self.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        current: A::Value,
        new: A::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<A::Value, A::Value> {
        shake();
        self.0.compare_exchange(current, new, success, failure)
    }
    fn compare_exchange_weak(
        &self,
        current: A::Value,
        new: A::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<A::Value, A::Value> {
        shake();
        self.0.compare_exchange_weak(current, new, success, failure)
    }
}

impl<A: AtomicInteger> AtomicInteger for Shaking<A> {
    fn fetch_add(&self, value: A::Value, order: Ordering) -> A::Value {
        shake();
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: A::Value, order: Ordering) -> A::Value {
        shake();
        self.0.fetch_sub(value, order)
    }
    fn fetch_and(&self, value: A::Value, order: Ordering) -> A::Value {
        shake();
        self.0.fetch_and(value, order)
    }
    fn fetch_or(&self, value: A::Value, order: Ordering) -> A::Value {
        shake();
        self.0.fetch_or(value, order)
    }
}

// SAFETY: `repr(transparent)` over a type that keeps the same promise.
unsafe impl<A: InPlace> InPlace for Shaking<A> {}

impl Processor for Shaky {
    type AtomicBool = Shaking<<Native as Processor>::AtomicBool>;
    type AtomicU8 = Shaking<<Native as Processor>::AtomicU8>;
    type AtomicU16 = Shaking<<Native as Processor>::AtomicU16>;
    type AtomicU32 = Shaking<<Native as Processor>::AtomicU32>;
    type AtomicU64 = Shaking<<Native as Processor>::AtomicU64>;
    type AtomicUsize = Shaking<<Native as Processor>::AtomicUsize>;
    type AtomicPtr<T> = Shaking<<Native as Processor>::AtomicPtr<T>>;

    fn fence(order: Ordering) {
        Native::fence(order);
    }
    fn nr_cpus() -> usize {
        Native::nr_cpus()
    }
    fn cpu() -> usize {
        Native::cpu()
    }
    fn enter() {
        Native::enter();
    }
    fn leave() {
        Native::leave();
    }
    fn irq_off() {
        Native::irq_off();
    }
    fn irq_on() {
        Native::irq_on();
    }
    fn current() -> ThreadToken {
        Native::current()
    }
    fn is_running(thread: ThreadToken) -> bool {
        Native::is_running(thread)
    }
    fn should_yield() -> bool {
        Native::should_yield()
    }
    fn now() -> u64 {
        Native::now()
    }
    fn spin_until(condition: impl FnMut() -> bool) {
        Native::spin_until(condition);
    }
    fn spin_until_deadline(deadline_ns: u64, condition: impl FnMut() -> bool) -> bool {
        Native::spin_until_deadline(deadline_ns, condition)
    }
    fn park(word: &Self::AtomicU32, expected: u32) {
        Native::park(&word.0, expected);
    }
    fn unpark(word: *const Self::AtomicU32, threads: usize) -> usize {
        Native::unpark(word.cast(), threads)
    }
}

// SAFETY: all promises are Native's.
unsafe impl Platform for Shaky {
    type Embedding = faultless_platform::Usual;

    unsafe fn guest_enter() -> bool {
        // SAFETY: passed on as promised.
        unsafe { Native::guest_enter() }
    }
    unsafe fn guest_exit() {
        // SAFETY: passed on as promised.
        unsafe { Native::guest_exit() };
    }
    fn owned_cpu() -> Option<usize> {
        Native::owned_cpu()
    }
    fn is_idle(cpu: usize) -> bool {
        Native::is_idle(cpu)
    }
    fn shoot_down(targets: &CpuSet, is_drained: impl FnMut(usize) -> bool) {
        Native::shoot_down(targets, is_drained);
    }
    unsafe fn set_interrupt_handler(handler: InterruptHandler, context: *const ()) {
        // SAFETY: passed on as promised.
        unsafe { Native::set_interrupt_handler(handler, context) };
    }
    unsafe fn clear_interrupt_handler(context: *const ()) {
        // SAFETY: passed on as promised.
        unsafe { Native::clear_interrupt_handler(context) };
    }
    fn work(ns: u64) {
        Native::work(ns);
    }
    unsafe fn bulk(frame: *mut u8, kind: Bulk) {
        // SAFETY: passed on as promised.
        unsafe { Native::bulk(frame, kind) };
    }
}

impl Threads for Shaky {
    type Machine = Machine;

    fn run(machine: &Machine, first: usize, body: &(dyn Fn(usize) + Sync)) {
        Native::run(machine, first, &|thread| {
            seed(thread as u64 + 1);
            body(thread);
        });
    }

    fn start(thread: usize) -> Result<(), StartError> {
        Native::start(thread)
    }
}
