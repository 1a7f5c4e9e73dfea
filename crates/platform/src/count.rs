//! `Count`: the platform that counts what code does to memory.
//!
//! # Guarantee
//! As [`Native`], with figures for each CPU slot that depend on the code's path alone, never on time: atomic
//! accesses, read-modify-writes, fences, and writes to lines that another CPU uses. A test can hold them.
//!
//! # What counts as a shared write
//! A store or read-modify-write of a 64-byte line that another slot has accessed by an atomic since the machine was
//! made or [`Machine::forget`] was called. It is a *taken line*, too, if the last atomic access was another slot's: a
//! cache would fetch it from there. Memory that passes from one CPU to the other once is shared from then on, but taken
//! once. Plain accesses are not seen, those named by [`Platform::touch`] included; neither are waits, of which every
//! round counts as its atomics.

use crate::native::{self, Native};
use crate::{
    Atomic, AtomicInteger, Bulk, CpuSet, InPlace, InterruptHandler, Platform, Processor, StartError, ThreadToken,
    Threads,
};
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::Ordering;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::vec::Vec;

/// OS threads with counting atomics.
#[derive(Debug, Clone, Copy)]
pub enum Count {}

/// What one CPU slot did: [`Machine::figures`] returns it. `vm/tests/cost.rs` holds faults and calls to such figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Atomic accesses of any kind.
    pub atomics: u64,
    /// Those that read and write in one step.
    pub read_modify_writes: u64,
    /// Fences.
    pub fences: u64,
    /// Writes to lines that another CPU uses.
    pub shared_writes: u64,
    /// Writes to lines that another CPU accessed last.
    pub taken_lines: u64,
}

impl core::ops::Add for Figures {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            atomics: self.atomics + other.atomics,
            read_modify_writes: self.read_modify_writes + other.read_modify_writes,
            fences: self.fences + other.fences,
            shared_writes: self.shared_writes + other.shared_writes,
            taken_lines: self.taken_lines + other.taken_lines,
        }
    }
}

impl core::ops::Sub for Figures {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self {
            atomics: self.atomics - before.atomics,
            read_modify_writes: self.read_modify_writes - before.read_modify_writes,
            fences: self.fences - before.fences,
            shared_writes: self.shared_writes - before.shared_writes,
            taken_lines: self.taken_lines - before.taken_lines,
        }
    }
}

/// A native machine with a ledger.
///
/// ```
/// use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor, count::{Count, Machine}};
/// let machine = Machine::new(1);
/// let word = <Count as Processor>::AtomicU64::new(0);
/// machine.attach(|| word.fetch_add(1, Ordering::Relaxed));
/// assert_eq!((machine.figures(0).atomics, machine.figures(0).read_modify_writes), (1, 1));
/// ```
#[derive(Debug)]
pub struct Machine {
    native: native::Machine,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    figures: Vec<Figures>,
    lines: HashMap<usize, Line>,
}

/// Who accessed a line.
#[derive(Debug)]
struct Line {
    users: CpuSet,
    last: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Load,
    Store,
    ReadModifyWrite,
}

const LINE_BYTES: usize = 64;

std::thread_local! {
    static MACHINE: Cell<*const Machine> = const { Cell::new(ptr::null()) };
}

impl Machine {
    /// Returns a machine of `nr_cpus` slots; the limits are those of [`native::Machine::new`].
    pub fn new(nr_cpus: usize) -> Self {
        let ledger = Ledger { figures: std::vec![Figures::default(); nr_cpus], lines: HashMap::new() };
        Self { native: native::Machine::new(nr_cpus), ledger: Mutex::new(ledger) }
    }

    /// Runs `body` on the calling thread, on a slot of this machine.
    pub fn attach<R>(&self, body: impl FnOnce() -> R) -> R {
        let _counted = Counted::new(self);
        self.native.attach(body)
    }

    /// Returns what slot `cpu` has done so far.
    pub fn figures(&self, cpu: usize) -> Figures {
        self.lock().figures[cpu]
    }

    /// Returns what all slots have done so far, together; for tests of several CPUs' writes.
    pub fn total(&self) -> Figures {
        self.lock().figures.iter().fold(Figures::default(), |sum, slot| sum + *slot)
    }

    /// Forgets which lines are used by whom.
    pub fn forget(&self) {
        self.lock().lines.clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, address: usize, kind: Kind) {
        let cpu = Native::cpu();
        let mut ledger = self.lock();
        let first = || Line { users: CpuSet::default(), last: cpu };
        let line = ledger.lines.entry(address / LINE_BYTES).or_insert_with(first);
        line.users.insert(cpu);
        let is_shared = line.users.iter().any(|user| user != cpu);
        let is_taken = std::mem::replace(&mut line.last, cpu) != cpu;
        let figures = &mut ledger.figures[cpu];
        figures.atomics += 1;
        figures.read_modify_writes += u64::from(kind == Kind::ReadModifyWrite);
        figures.shared_writes += u64::from(kind != Kind::Load && is_shared);
        figures.taken_lines += u64::from(kind != Kind::Load && is_taken);
    }
}

/// Binds the calling thread to a machine's ledger, until dropped.
struct Counted(*const Machine);

impl Counted {
    fn new(machine: &Machine) -> Self {
        Self(MACHINE.with(|current| current.replace(machine)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        MACHINE.with(|current| current.set(self.0));
    }
}

/// Notes an access by a thread that owns a slot; others are not counted.
fn note<T>(cell: *const T, kind: Kind) {
    with_machine(|machine| machine.note(cell.addr(), kind));
}

fn with_machine(act: impl FnOnce(&Machine)) {
    let machine = MACHINE.with(Cell::get);
    if !machine.is_null() && native::owns_slot() {
        // SAFETY: `Counted` borrows the machine for as long as the pointer is set.
        act(unsafe { &*machine });
    }
}

/// A std atomic whose accesses are counted. Used by [`Count`] for each of its atomics.
#[derive(Debug)]
#[repr(transparent)]
pub struct Counting<A>(A);

impl<A: Atomic> Atomic for Counting<A> {
    type Value = A::Value;
    fn new(value: A::Value) -> Self {
        Self(A::new(value))
    }
    fn load(&self, order: Ordering) -> A::Value {
        note(self, Kind::Load);
        self.0.load(order)
    }
    fn store(&self, value: A::Value, order: Ordering) {
        note(self, Kind::Store);
        self.0.store(value, order);
    }
    fn swap(&self, value: A::Value, order: Ordering) -> A::Value {
        note(self, Kind::ReadModifyWrite);
        self.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        current: A::Value,
        new: A::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<A::Value, A::Value> {
        note(self, Kind::ReadModifyWrite);
        self.0.compare_exchange(current, new, success, failure)
    }
    fn compare_exchange_weak(
        &self,
        current: A::Value,
        new: A::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<A::Value, A::Value> {
        // The strong form: a failure without reason would make the figures depend on chance.
        self.compare_exchange(current, new, success, failure)
    }
}

impl<A: AtomicInteger> AtomicInteger for Counting<A> {
    fn fetch_add(&self, value: A::Value, order: Ordering) -> A::Value {
        note(self, Kind::ReadModifyWrite);
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: A::Value, order: Ordering) -> A::Value {
        note(self, Kind::ReadModifyWrite);
        self.0.fetch_sub(value, order)
    }
    fn fetch_and(&self, value: A::Value, order: Ordering) -> A::Value {
        note(self, Kind::ReadModifyWrite);
        self.0.fetch_and(value, order)
    }
    fn fetch_or(&self, value: A::Value, order: Ordering) -> A::Value {
        note(self, Kind::ReadModifyWrite);
        self.0.fetch_or(value, order)
    }
}

// SAFETY: `repr(transparent)` over a type that keeps the same promise.
unsafe impl<A: InPlace> InPlace for Counting<A> {}

impl Processor for Count {
    type AtomicBool = Counting<<Native as Processor>::AtomicBool>;
    type AtomicU8 = Counting<<Native as Processor>::AtomicU8>;
    type AtomicU16 = Counting<<Native as Processor>::AtomicU16>;
    type AtomicU32 = Counting<<Native as Processor>::AtomicU32>;
    type AtomicU64 = Counting<<Native as Processor>::AtomicU64>;
    type AtomicUsize = Counting<<Native as Processor>::AtomicUsize>;
    type AtomicPtr<T> = Counting<<Native as Processor>::AtomicPtr<T>>;

    // ORDER: the caller's; it names the pair.
    fn fence(order: Ordering) {
        with_machine(|machine| machine.lock().figures[Native::cpu()].fences += 1);
        Native::fence(order);
    }
    fn fence_after_rmw() {
        // Not counted: on x86-64 the read-modify-write is the fence.
        Native::fence_after_rmw();
    }
    fn nr_cpus() -> usize {
        Native::nr_cpus()
    }
    fn cpu() -> usize {
        Native::cpu()
    }
    fn try_cpu() -> Option<usize> {
        Native::try_cpu()
    }
    fn enter() {
        Native::enter();
    }
    fn prefer(cpu: usize) {
        Native::prefer(cpu);
    }
    fn leave() {
        Native::leave();
    }
    fn node() -> usize {
        Native::node()
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
    fn is_known(thread: ThreadToken) -> bool {
        Native::is_known(thread)
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
    fn park_until(word: &Self::AtomicU32, expected: u32, deadline_ns: u64) {
        Native::park_until(&word.0, expected, deadline_ns);
    }
    fn unpark(word: *const Self::AtomicU32, threads: usize) -> usize {
        // `Counting` is `repr(transparent)`.
        Native::unpark(word.cast(), threads)
    }
}

// SAFETY: all promises are Native's.
unsafe impl Platform for Count {
    type Embedding = crate::Usual;

    unsafe fn guest_enter() -> bool {
        with_machine(|machine| machine.lock().figures[Native::cpu()].fences += 1);
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

impl Threads for Count {
    type Machine = Machine;

    fn run(machine: &Machine, first: usize, body: &(dyn Fn(usize) + Sync)) {
        Native::run(&machine.native, first, &|thread| {
            let _counted = Counted::new(machine);
            body(thread);
        });
    }

    fn start(thread: usize) -> Result<(), StartError> {
        Native::start(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_known_as_their_machine_knows_them() {
        let unbound = Count::current();
        Machine::new(1).attach(|| {
            assert!(Count::is_known(Count::current()) && Count::is_running(Count::current()));
            assert!(!Count::is_known(unbound), "a thread of no machine");
        });
    }

    #[test]
    fn a_thread_runs_until_it_leaves_its_cpu() {
        let machine = Machine::new(2);
        machine.attach(|| {
            let ended = || std::thread::scope(|scope| scope.spawn(|| machine.attach(Count::current)).join());
            let ended = ended().expect("no panic");
            assert!(!Count::is_running(ended) && Count::is_running(Count::current()));
        });
    }

    #[test]
    fn a_wait_with_a_deadline_lasts_until_it_or_until_the_word_changes() {
        Machine::new(1).attach(|| {
            let word = <Count as Processor>::AtomicU32::new(1);
            let far_ns = Count::now() + 600_000_000_000;
            Count::park_until(&word, 0, far_ns);
            assert!(Count::now() < far_ns, "another value is no reason to sleep");
            let begun = Count::now();
            Count::park_until(&word, 1, begun + 2_000_000);
            assert!(Count::now() - begun >= 1_000_000, "it slept");
        });
    }

    #[test]
    fn a_thread_that_parks_is_woken_by_who_changed_the_word() {
        let (machine, word) = (Machine::new(2), <Count as Processor>::AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                machine.attach(|| {
                    while word.load(Ordering::Acquire) == 0 {
                        Count::park(&word, 0);
                    }
                    word.store(2, Ordering::Release);
                });
            });
            machine.attach(|| {
                // It may not sleep yet: once it does, it is the one that is woken.
                while Count::unpark(&word, 1) != 1 {
                    std::thread::yield_now();
                }
                word.store(1, Ordering::Release);
                while word.load(Ordering::Acquire) != 2 {
                    Count::unpark(&word, 1);
                    std::thread::yield_now();
                }
            });
        });
    }

    #[test]
    fn figures_add_up_one_by_one() {
        let figures = |first: u64| Figures {
            atomics: first,
            read_modify_writes: first + 1,
            fences: first + 2,
            shared_writes: first + 3,
            taken_lines: first + 4,
        };
        let sum = figures(10) + figures(20);
        assert_eq!(
            sum,
            Figures { atomics: 30, read_modify_writes: 32, fences: 34, shared_writes: 36, taken_lines: 38 }
        );
        assert_eq!(sum - figures(20), figures(10));
    }

    #[test]
    fn a_thread_that_left_its_machine_is_not_counted_there() {
        let (counted, word) = (Machine::new(1), <Count as Processor>::AtomicU64::new(0));
        let write = || word.store(1, Ordering::Relaxed);
        counted.attach(write);
        native::Machine::new(1).attach(write);
        assert_eq!(counted.figures(0).atomics, 1);
    }

    #[test]
    fn a_write_is_shared_once_another_cpu_used_the_line() {
        let machine = Machine::new(2);
        let word = <Count as Processor>::AtomicU64::new(0);
        let write = || {
            machine.attach(|| {
                word.store(1, Ordering::Relaxed);
                Count::cpu()
            })
        };
        assert_eq!(write(), 0);
        let before = machine.figures(0);
        assert_eq!((before.atomics, before.shared_writes), (1, 0));
        // Slot 0 is taken, so the other thread gets slot 1.
        machine.attach(|| {
            let other =
                std::thread::scope(|scope| scope.spawn(|| machine.attach(|| word.load(Ordering::Relaxed))).join());
            assert_eq!(other.expect("the reader failed"), 1);
        });
        assert_eq!(machine.figures(1), Figures { atomics: 1, ..Figures::default() });
        assert_eq!(write(), 0);
        let taken = machine.figures(0);
        assert_eq!(((taken - before).shared_writes, (taken - before).taken_lines), (1, 1));
        assert_eq!(before + (taken - before), taken);
        assert_eq!(write(), 0);
        let kept = machine.figures(0) - taken;
        assert_eq!((kept.shared_writes, kept.taken_lines), (1, 0), "the line is shared still, and was its own last");
        assert_eq!(machine.total() - machine.figures(0), machine.figures(1));
    }
}
