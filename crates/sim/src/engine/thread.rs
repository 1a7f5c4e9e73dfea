//! Threads of the simulation: coroutines on stacks of their own.
//!
//! # Guarantee
//! A thread that panics takes the others with it: each is woken from its wait by a panic of its own, unwinds while the
//! scheduler still runs, and so releases what it holds.

use super::heap::MAX_THREADS;
use super::record::{Fiber, FiberYielder, Thread, Wait};
use super::slots;
use super::state::{ENDED_AT, ENGINE, Engine, START_SPREAD, is_running_one, step};
use super::suspend::Ended;
use corosensei::CoroutineResult;
use corosensei::stack::DefaultStack;
use faultless_platform::StartError;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A thread's stack; the host gives it memory as it is used. The library's deepest call needs a quarter.
const STACK_BYTES: usize = 256 << 10;

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

/// Starts `body(number)` beside the running thread.
pub(crate) fn start(number: usize) -> Result<(), StartError> {
    step(|engine| {
        let clock = engine.clock + engine.costs.start;
        engine.spawn(number, clock)
    })
}

/// Runs a thread until it is suspended or ends.
pub(super) fn resume(index: u32) {
    let fiber = step(|engine| engine.threads[index as usize].fiber.as_deref_mut().map(std::ptr::from_mut));
    let Some(fiber) = fiber else { return };
    // SAFETY: the box stays in the thread's record until the fiber has returned, below; nobody else reaches into it,
    // and the thread that runs is not resumed.
    let result = unsafe { (*fiber).resume(()) };
    if let CoroutineResult::Return(()) = result {
        step(|engine| {
            let fiber = engine.threads[index as usize].fiber.take();
            engine.unused_stacks.extend(fiber.map(|fiber| fiber.into_stack()));
        });
    }
}

/// Makes `engine` the one that this OS thread runs, until dropped.
pub(super) struct Running(*mut Engine);

impl Running {
    pub(super) fn new(engine: &mut Engine) -> Self {
        assert!(!is_running_one(), "a simulation can't be run inside another");
        Self(ENGINE.replace(engine))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        ENDED_AT.set(step(|engine| engine.figures.elapsed_ns));
        ENGINE.set(self.0);
    }
}
