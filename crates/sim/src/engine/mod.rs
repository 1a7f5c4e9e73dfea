//! The simulation: virtual clocks, CPUs, threads as coroutines, and the directory of lines.
//!
//! # Guarantee
//! One thread of the simulation runs at a time, on the OS thread that called `run`: always the one whose clock is
//! lowest, but that it may run ahead by [`RUN_AHEAD`] on lines that no other CPU has touched. Not where it reads a line
//! that it has a copy of: that saved one turn in seven, and moved figures on 192 CPUs by up to 18 %.
//!
//! # Invariants
//! * E1 the engine is borrowed for the length of one step, never across a suspension.
//! * E2 a thread that is suspended is in the heap, or in a list of those that will put it there.
//! * E3 a CPU has one owner; only it is charged for what it does there.

mod access;
mod idle;
mod interrupts;
mod lines;
mod machine;
mod pages;
mod places;
mod random;
mod schedule;
mod slots;
mod story;
mod thread;
mod wait;

pub(crate) use access::{Kind, access, enter_kernel, fence, look_at_clock, read_clock, touch};
pub(crate) use interrupts::{
    after_guest, clear_handler, guest_enter, guest_exit, irq_off, irq_on, set_handler, shoot_down,
};
pub use machine::{Failure, Figures, Machine, TooManyCpus};
pub(crate) use pages::{Filling, bulk, forget};
pub(crate) use slots::{current_token, enter, is_running, leave, prefer, should_yield, work};
pub(crate) use story::{Quiet, words_of};
pub(crate) use thread::start;
pub(crate) use wait::{park, spin_until, unpark};

use crate::machine::{Costs, Topology};
use faultless_platform::InterruptHandler;
use lines::Lines;
use places::Places;
use random::Random;
use schedule::Heap;
use std::cell::Cell;
use std::collections::VecDeque;
use thread::{Body, Thread};
use wait::Sleepers;

/// How far a thread may run ahead of the others on its own lines, in ps.
const RUN_AHEAD: u64 = 300_000;
/// Threads start within so many ps of each other: the same instant everywhere is no machine's.
const START_SPREAD: u64 = 1_000_000;
/// No CPU owned.
const NO_CPU: u16 = u16::MAX;

/// A CPU.
struct Cpu {
    /// What its idle times were like.
    idle: idle::Idle,
    owner: Option<u32>,
    last_thread: Option<u32>,
    free_at: u64,
    slice_end: u64,
    is_guest: bool,
    /// Something was published for it since it last looked.
    is_pending: bool,
    /// What interrupts took from the owner and it has not been charged for yet.
    stolen: u64,
    /// The interrupt on its way: when it arrives, and when its handler is done.
    arrives_at: u64,
    handled_at: u64,
    /// From when on the line that it waits for is wanted by the next one.
    next_leaves_at: u64,
    /// Until when its stores are on their way.
    drained_at: u64,
    nr_fillings: u64,
    /// Threads that wait until it leaves guest.
    watchers: Vec<u32>,
}

impl Cpu {
    fn new() -> Self {
        Self {
            idle: idle::Idle::default(),
            owner: None,
            last_thread: None,
            free_at: 0,
            slice_end: 0,
            is_guest: false,
            is_pending: false,
            stolen: 0,
            arrives_at: 0,
            handled_at: 0,
            next_leaves_at: lines::NEVER,
            drained_at: 0,
            nr_fillings: 0,
            watchers: Vec::new(),
        }
    }
}

/// A handler and its context.
type Handler = (InterruptHandler, *const ());

/// The state of a simulation.
pub(crate) struct Engine {
    /// The running thread's clock, in ps.
    clock: u64,
    /// The lowest clock of the others.
    horizon: u64,
    current: u32,
    /// The word that was accessed last.
    last_word: usize,
    /// How long instructions take here and now, in 1024ths: the core's other threads take their part.
    pace: u64,
    cpu: u16,
    is_recording: bool,
    is_dying: bool,
    costs: Costs,
    lines: Lines,
    topology: Topology,
    cpus: Vec<Cpu>,
    threads: Vec<Thread>,
    unused_stacks: Vec<corosensei::stack::DefaultStack>,
    heap: Heap,
    queue: VecDeque<u32>,
    nr_free: usize,
    sleepers: Sleepers,
    /// How many pages each complex has filled or copied from.
    complex_fillings: Vec<u64>,
    /// Memory that was put onto a socket.
    places: Places,
    /// When each socket's memory bus is free again.
    buses: Vec<u64>,
    random: Random,
    handler: Option<Handler>,
    body: Option<Body>,
    nr_alive: usize,
    failure: Option<String>,
    last_panic: Option<String>,
    figures: Figures,
    machine: String,
    seed: u64,
}

thread_local! {
    static ENGINE: Cell<*mut Engine> = const { Cell::new(std::ptr::null_mut()) };
    /// Whether a step has the engine.
    static IS_BORROWED: Cell<bool> = const { Cell::new(false) };
    /// When the last simulation of this OS thread ended: what a clock shows that is read after it.
    static ENDED_AT: Cell<u64> = const { Cell::new(0) };
}

/// Says whether the calling OS thread runs a simulation now.
pub(crate) fn is_running_one() -> bool {
    !ENGINE.get().is_null()
}

/// Runs `step` with the running simulation, if there is one.
#[inline(always)]
fn with<R>(step: impl FnOnce(&mut Engine) -> R) -> Option<R> {
    let engine = ENGINE.get();
    if engine.is_null() {
        return None;
    }
    let _borrowed = Borrowed::new();
    // SAFETY: set by `run` for as long as the engine is borrowed there; steps do not nest or suspend (E1).
    Some(step(unsafe { &mut *engine }))
}

/// As [`with`], where there surely is one.
#[inline(always)]
fn step<R>(step: impl FnOnce(&mut Engine) -> R) -> R {
    let result = with(step);
    result.expect("a simulation runs on this OS thread: the caller is a thread that Threads::run started")
}

/// While it lives, memory that is freed is the engine's own.
struct Borrowed;

impl Borrowed {
    #[inline(always)]
    fn new() -> Self {
        IS_BORROWED.set(true);
        Self
    }
}

impl Drop for Borrowed {
    #[inline(always)]
    fn drop(&mut self) {
        IS_BORROWED.set(false);
    }
}

/// Returns the running thread's CPU, if it owns one.
pub(crate) fn owned_cpu() -> Option<usize> {
    step(|engine| (engine.cpu != NO_CPU).then(|| usize::from(engine.cpu)))
}

/// Says whether nobody owns a CPU.
pub(crate) fn is_idle(cpu: usize) -> bool {
    step(|engine| engine.cpus[cpu].owner.is_none())
}

/// Returns the running thread's CPU.
#[inline]
pub(crate) fn cpu() -> usize {
    step(|engine| {
        debug_assert_ne!(engine.cpu, NO_CPU, "this thread owns no slot: call enter first");
        usize::from(engine.cpu)
    })
}

/// Returns how many CPUs the running simulation has.
pub(crate) fn nr_cpus() -> usize {
    step(|engine| engine.cpus.len())
}

impl Engine {
    fn here(&mut self) -> &mut Cpu {
        &mut self.cpus[usize::from(self.cpu)]
    }

    fn thread(&mut self) -> &mut Thread {
        &mut self.threads[self.current as usize]
    }
}
