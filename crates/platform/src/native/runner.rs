//! Threads of one run: started, counted, joined; the first panic is passed on.

use super::context::Bound;
use super::machine::Machine;
use crate::StartError;
use std::any::Any;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Builder;

/// Bytes of a thread's stack: the core recurses nowhere deeply.
const STACK_BYTES: usize = 512 * 1024;

/// One call of `Threads::run`.
pub(super) struct Run {
    machine: *const Machine,
    body: *const (dyn Fn(usize) + Sync),
    state: Mutex<State>,
    is_done: Condvar,
}

#[derive(Default)]
struct State {
    nr_alive: usize,
    panic: Option<Box<dyn Any + Send>>,
}

struct RunPointer(*const Run);
// SAFETY: a `Run` is shared by design; `run` outlives its threads because it waits for all of them.
unsafe impl Send for RunPointer {}

impl RunPointer {
    fn get(&self) -> *const Run {
        self.0
    }
}

/// Runs threads 0 to `first` - 1 and what they start.
pub(super) fn run(machine: &Machine, first: usize, body: &(dyn Fn(usize) + Sync)) {
    // SAFETY: only the lifetime changes; `wait` returns after the last use of the body.
    let body: *const (dyn Fn(usize) + Sync) = unsafe { core::mem::transmute(body) };
    let run = Run { machine, body, state: Mutex::default(), is_done: Condvar::new() };
    for thread in 0..first {
        if let Err(error) = run.start(thread) {
            run.note_panic(Box::new(std::format!("{error}")));
            break;
        }
    }
    run.wait();
}

impl Run {
    /// Starts one thread.
    pub(super) fn start(&self, thread: usize) -> Result<(), StartError> {
        self.lock().nr_alive += 1;
        let pointer = RunPointer(self);
        let builder = Builder::new().stack_size(STACK_BYTES).name(std::format!("cpu thread {thread}"));
        // SAFETY: the closure's borrows live until `wait` has seen the thread's end, which is its last act.
        let started = unsafe { builder.spawn_unchecked(move || live(pointer.get(), thread)) };
        started.map(drop).map_err(|_| {
            self.end_one();
            StartError { thread }
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn machine(&self) -> &Machine {
        // SAFETY: `run` borrows the machine for as long as this value lives.
        unsafe { &*self.machine }
    }

    fn note_panic(&self, panic: Box<dyn Any + Send>) {
        let mut state = self.lock();
        state.panic.get_or_insert(panic);
        drop(state);
        self.machine().condemn();
    }

    fn end_one(&self) {
        let mut state = self.lock();
        state.nr_alive -= 1;
        // Under the lock: the waiter may free this value as soon as it sees 0.
        self.is_done.notify_all();
    }

    fn wait(&self) {
        let mut state = self.lock();
        while state.nr_alive != 0 {
            state = self.is_done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let panic = state.panic.take();
        drop(state);
        if let Some(panic) = panic {
            self.machine().revive();
            resume_unwind(panic);
        }
    }
}

/// A thread's whole life.
fn live(run: *const Run, thread: usize) {
    // SAFETY: `wait` keeps the run alive until `end_one` below.
    let run = unsafe { &*run };
    let bound = Bound::new(run.machine(), run);
    // SAFETY: `run` keeps the body borrowed until all threads have ended.
    let body = unsafe { &*run.body };
    let result = catch_unwind(AssertUnwindSafe(|| body(thread)));
    drop(bound);
    if let Err(panic) = result {
        run.note_panic(panic);
    }
    run.end_one();
}
