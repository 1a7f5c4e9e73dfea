//! The state of a simulation, and how its steps reach it.
//!
//! # Invariant
//! E1 the engine is borrowed for the length of one step, never across a suspension.

use super::books::Books;
use super::figures::Figures;
use super::heap::Heap;
use super::idle::Idle;
use super::lines::{LineId, Lines, NEVER};
use super::places::Places;
use super::random::Random;
use super::record::{Body, NO_CPU, Thread};
use crate::machine::{Costs, Topology};
use faultless_platform::InterruptHandler;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// How far a thread may run ahead of the others on its own lines, in ps.
pub(super) const RUN_AHEAD: u64 = 300_000;
/// Threads start within so many ps of each other: the same instant everywhere is no machine's.
pub(super) const START_SPREAD: u64 = 1_000_000;

/// A CPU. What accesses and turns look at stands first, on one line of the host's.
#[repr(C, align(64))]
pub(super) struct Cpu {
    pub(super) owner: Option<u32>,
    pub(super) slice_end: u64,
    /// What interrupts took from the owner and it has not been charged for yet.
    pub(super) stolen: u64,
    /// From when on the line that it waits for is wanted by the next one.
    pub(super) next_leaves_at: u64,
    /// Until when its stores are on their way.
    pub(super) drained_at: u64,
    pub(super) nr_fillings: u64,
    pub(super) is_guest: bool,
    /// Something was published for it since it last looked.
    pub(super) is_pending: bool,
    /// Whether it has watchers.
    pub(super) is_watched: bool,
    pub(super) last_thread: Option<u32>,
    pub(super) free_at: u64,
    /// The interrupt on its way: when it arrives, and when its handler is done.
    pub(super) arrives_at: u64,
    pub(super) handled_at: u64,
    /// The line of the last of its stores on their way, by an address in it.
    pub(super) drained_line: Option<(LineId, usize)>,
    /// Threads that wait until it leaves guest.
    pub(super) watchers: Vec<u32>,
    /// What its idle times were like.
    pub(super) idle: Idle,
}

const _: () = assert!(std::mem::offset_of!(Cpu, last_thread) < 64);

impl Cpu {
    pub(super) fn new() -> Self {
        Self {
            idle: Idle::default(),
            owner: None,
            last_thread: None,
            free_at: 0,
            slice_end: 0,
            is_guest: false,
            is_pending: false,
            is_watched: false,
            stolen: 0,
            arrives_at: 0,
            handled_at: 0,
            next_leaves_at: NEVER,
            drained_at: 0,
            drained_line: None,
            nr_fillings: 0,
            watchers: Vec::new(),
        }
    }
}

/// A handler and its context.
pub(super) type Handler = (InterruptHandler, *const ());

/// Threads that sleep, by the address of the word.
pub(super) type Sleepers = HashMap<usize, VecDeque<u32>, BuildHasherDefault<DefaultHasher>>;

/// The state of a simulation.
pub(crate) struct Engine {
    /// The running thread's clock, in ps.
    pub(super) clock: u64,
    /// The lowest clock of the others.
    pub(super) horizon: u64,
    pub(super) current: u32,
    /// The word that was accessed last.
    pub(super) last_word: usize,
    /// How long instructions take here and now, in 1024ths: the core's other threads take their part.
    pub(super) pace: u64,
    pub(super) cpu: u16,
    pub(super) is_recording: bool,
    pub(super) is_dying: bool,
    pub(super) costs: Costs,
    pub(super) lines: Lines,
    pub(super) topology: Topology,
    pub(super) cpus: Vec<Cpu>,
    /// Which CPUs have an owner that runs, or would if it were its turn.
    pub(super) busy: Vec<bool>,
    pub(super) threads: Vec<Thread>,
    pub(super) unused_stacks: Vec<corosensei::stack::DefaultStack>,
    pub(super) heap: Heap,
    pub(super) queue: VecDeque<u32>,
    pub(super) nr_free: usize,
    pub(super) sleepers: Sleepers,
    /// How many pages each complex has filled or copied from.
    pub(super) complex_fillings: Vec<u64>,
    /// Memory that was put onto a socket.
    pub(super) places: Places,
    /// When each socket's memory bus is free again.
    pub(super) buses: Vec<u64>,
    pub(super) random: Random,
    pub(super) handler: Option<Handler>,
    pub(super) body: Option<Body>,
    pub(super) nr_alive: usize,
    pub(super) failure: Option<String>,
    pub(super) last_panic: Option<String>,
    pub(super) figures: Figures,
    pub(super) books: Books,
    pub(super) machine: String,
    pub(super) seed: u64,
}

thread_local! {
    pub(super) static ENGINE: Cell<*mut Engine> = const { Cell::new(std::ptr::null_mut()) };
    /// Whether a step has the engine.
    pub(super) static IS_BORROWED: Cell<bool> = const { Cell::new(false) };
    /// When the last simulation of this OS thread ended: what a clock shows that is read after it.
    pub(super) static ENDED_AT: Cell<u64> = const { Cell::new(0) };
}

/// Says whether the calling OS thread runs a simulation now.
pub(crate) fn is_running_one() -> bool {
    !ENGINE.get().is_null()
}

/// Runs `step` with the running simulation, if there is one.
#[inline(always)]
pub(super) fn with<R>(step: impl FnOnce(&mut Engine) -> R) -> Option<R> {
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
pub(super) fn step<R>(step: impl FnOnce(&mut Engine) -> R) -> R {
    let result = with(step);
    result.expect("a simulation runs on this OS thread: the caller is a thread that Threads::run started")
}

/// While it lives, memory that is freed is the engine's own.
pub(super) struct Borrowed;

impl Borrowed {
    #[inline(always)]
    pub(super) fn new() -> Self {
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

/// Returns the socket of the running thread's CPU.
pub(crate) fn socket() -> usize {
    step(|engine| engine.topology.socket(usize::from(engine.cpu)))
}

/// Returns how many CPUs the running simulation has.
pub(crate) fn nr_cpus() -> usize {
    step(|engine| engine.cpus.len())
}

impl Engine {
    pub(super) fn here(&mut self) -> &mut Cpu {
        &mut self.cpus[usize::from(self.cpu)]
    }

    pub(super) fn thread(&mut self) -> &mut Thread {
        &mut self.threads[self.current as usize]
    }
}
