//! Threads of the simulation: coroutines on stacks of their own.
//!
//! # Guarantee
//! A thread that panics takes the others with it: each is woken from its wait by a panic of its own, unwinds while the
//! scheduler still runs, and so releases what it holds.

use super::access::Pending;
use super::lines::LineId;
use super::schedule::MAX_THREADS;
use super::{ENGINE, Engine, NO_CPU, START_SPREAD, slots, step};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use faultless_platform::StartError;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

/// A thread's stack; the host gives it memory as it is used. The library's deepest call needs a quarter.
const STACK_BYTES: usize = 256 << 10;

/// What the threads run, for as long as `run` lasts.
pub(super) type Body = *const (dyn Fn(usize) + Sync);
type Fiber = Coroutine<(), (), (), DefaultStack>;
type FiberYielder = Yielder<(), ()>;

/// What a suspended thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Its turn.
    Turn,
    /// A write to a line that it read, or a deadline.
    Spin,
    /// That somebody wakes it.
    Sleep,
    /// A CPU.
    Slot,
    /// That a CPU leaves guest.
    Guest(usize),
}

/// A thread.
pub(super) struct Thread {
    /// In a box: it is taken out at each turn, and a coroutine is large.
    fiber: Option<Box<Fiber>>,
    yielder: *const FiberYielder,
    /// The number that its body got.
    pub(super) number: usize,
    pub(super) generation: u32,
    pub(super) cpu: u16,
    pub(super) last_cpu: u16,
    pub(super) irq_depth: u32,
    pub(super) wait: Wait,
    pub(super) is_done: bool,
    /// It has panicked, or was told to.
    pub(super) is_unwinding: bool,
    /// It was woken before it slept.
    pub(super) is_roused: bool,
    /// The access that its turn begins with.
    pub(super) pending: Option<Pending>,
    /// It evaluates the condition of a wait.
    pub(super) is_recording: bool,
    /// Its clock when it began to wait.
    pub(super) since: u64,
    /// Until when an interrupt keeps it busy while it waits.
    pub(super) busy_until: u64,
    /// The address that it sleeps on.
    pub(super) word: usize,
    /// What the condition of its wait read: lines and their versions.
    pub(super) reads: Vec<(LineId, u32)>,
    /// The lines that it watches.
    pub(super) watched: Vec<LineId>,
}

/// The quiet panic of a thread whose simulation is over.
struct Ended;

impl Engine {
    /// Makes a thread that runs `body(number)` from `clock` on.
    pub(super) fn spawn(&mut self, number: usize, clock: u64) -> Result<(), StartError> {
        let refused = StartError { thread: number };
        if self.threads.len() == MAX_THREADS {
            return Err(refused);
        }
        let stack = match self.unused_stacks.pop() {
            Some(stack) => stack,
            None => DefaultStack::new(STACK_BYTES).map_err(|_| refused)?,
        };
        let index = self.threads.len() as u32;
        let fiber = Fiber::with_stack(stack, move |yielder, ()| live(yielder, index, number));
        self.threads.push(Thread::new(fiber, number));
        self.nr_alive += 1;
        let clock = clock + self.random.below(START_SPREAD);
        self.make_ready(index, clock);
        Ok(())
    }

    fn end_thread(&mut self, index: u32, failure: Option<String>) {
        if let Some(message) = failure
            && self.failure.is_none()
        {
            self.failure = Some(self.told(index, &message));
            self.condemn(Some(index));
        }
        self.threads[index as usize].is_done = true;
        self.nr_alive -= 1;
    }

    /// Ends the waits of all threads, because the simulation is over.
    pub(super) fn condemn(&mut self, except: Option<u32>) {
        self.is_dying = true;
        let clock = self.clock;
        for index in 0..self.threads.len() as u32 {
            let thread = &self.threads[index as usize];
            if !thread.is_done && thread.wait != Wait::Turn && Some(index) != except {
                self.make_ready(index, clock);
            }
        }
    }

    /// Notes that the running thread unwinds, if it is the one that does: panics that no hook saw are found here.
    #[cold]
    fn note_unwinding(&mut self) {
        let is_others = self.threads.iter().any(|thread| thread.is_unwinding && !thread.is_done);
        if !is_others {
            self.thread().is_unwinding = true;
        }
    }

    /// Lets a thread whose simulation is over panic, once.
    fn must_end(&mut self) -> bool {
        self.is_dying && !std::mem::replace(&mut self.thread().is_unwinding, true)
    }
}

impl Thread {
    fn new(fiber: Fiber, number: usize) -> Self {
        Self {
            fiber: Some(Box::new(fiber)),
            yielder: ptr::null(),
            number,
            generation: 0,
            cpu: NO_CPU,
            last_cpu: NO_CPU,
            irq_depth: 0,
            wait: Wait::Turn,
            is_done: false,
            is_unwinding: false,
            is_roused: false,
            pending: None,
            is_recording: false,
            since: 0,
            busy_until: 0,
            word: 0,
            reads: Vec::new(),
            watched: Vec::new(),
        }
    }
}

/// A thread's whole life.
fn live(yielder: &FiberYielder, index: u32, number: usize) {
    let body = step(|engine| {
        engine.threads[index as usize].yielder = yielder;
        engine.body
    });
    let result = catch_unwind(AssertUnwindSafe(|| {
        if let Some(body) = body {
            // SAFETY: `run` keeps the body borrowed until all threads have ended.
            unsafe { (*body)(number) };
        }
        slots::leave_if_owned();
    }));
    let failure = result.err().filter(|payload| !payload.is::<Ended>()).map(|payload| {
        step(|engine| engine.thread().is_unwinding = true);
        super::story::words_of(payload.as_ref())
    });
    if failure.is_some() || step(|engine| engine.is_dying) {
        slots::abandon();
    }
    step(|engine| engine.end_thread(index, failure));
}

/// Suspends the running thread until the scheduler gives it its turn.
#[inline]
pub(super) fn suspend() {
    if std::thread::panicking() {
        step(Engine::note_unwinding);
    }
    let yielder = step(|engine| engine.thread().yielder);
    // SAFETY: set by `live`, on whose stack the yielder stays until the thread ends.
    unsafe { (*yielder).suspend(()) };
}

/// Suspends the running thread in a wait, which a dying simulation ends by a panic.
pub(super) fn suspend_in(wait: Wait) {
    step(|engine| {
        let clock = engine.clock;
        let thread = engine.thread();
        thread.wait = wait;
        thread.since = clock;
    });
    suspend();
    step(|engine| engine.thread().wait = Wait::Turn);
    check_alive();
}

/// Panics if the simulation is over, unless this thread does already.
pub(super) fn check_alive() {
    if step(|engine| engine.must_end()) {
        resume_unwind(Box::new(Ended));
    }
}

/// Starts `body(number)` beside the running thread.
pub(crate) fn start(number: usize) -> Result<(), StartError> {
    step(|engine| {
        let clock = engine.clock + engine.costs.start;
        engine.spawn(number, clock)
    })
}

/// Runs a thread until it is suspended or ends.
pub(super) fn resume(index: u32) {
    let Some(mut fiber) = step(|engine| engine.threads[index as usize].fiber.take()) else { return };
    let result = fiber.resume(());
    step(|engine| match result {
        CoroutineResult::Yield(()) => engine.threads[index as usize].fiber = Some(fiber),
        CoroutineResult::Return(()) => engine.unused_stacks.push(fiber.into_stack()),
    });
}

/// Makes `engine` the one that this OS thread runs, until dropped.
pub(super) struct Running(*mut Engine);

impl Running {
    pub(super) fn new(engine: &mut Engine) -> Self {
        assert!(!super::is_running_one(), "a simulation can't be run inside another");
        Self(ENGINE.replace(engine))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        super::ENDED_AT.set(step(|engine| engine.figures.elapsed_ns));
        ENGINE.set(self.0);
    }
}
