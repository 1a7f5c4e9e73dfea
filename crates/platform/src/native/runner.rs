//! Threads of one run: started, counted, joined; the first panic is passed on.

use super::context::Bound;
use super::machine::Machine;
use crate::StartError;
use std::any::Any;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;

/// Bytes of a thread's stack: the core recurses nowhere deeply.
const STACK_BYTES: usize = 512 * 1024;

/// One call of `Threads::run`. Its threads share it: the last one still unlocks the state when the caller has seen it
/// end.
///
/// # Invariant
/// I1 `machine` and `body` are used while the state counts the user as alive: [`Run::wait`] keeps both borrowed until
/// then.
pub(super) struct Run {
    machine: *const Machine,
    body: *const (dyn Fn(usize) + Sync),
    state: Mutex<State>,
    is_done: Condvar,
}

// SAFETY: machine and body may be used by any thread, and are while they are borrowed (I1).
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

#[derive(Default)]
struct State {
    nr_alive: usize,
    panic: Option<Box<dyn Any + Send>>,
}

/// Runs threads 0 to `first` - 1 and what they start.
pub(super) fn run(machine: &Machine, first: usize, body: &(dyn Fn(usize) + Sync)) {
    // SAFETY: only the lifetime changes; `wait` returns after the last use of the body.
    let body: *const (dyn Fn(usize) + Sync) = unsafe { core::mem::transmute(body) };
    let run = Arc::new(Run { machine, body, state: Mutex::default(), is_done: Condvar::new() });
    for thread in 0..first {
        if let Err(error) = run.start(thread) {
            run.note_panic(Box::new(std::format!("{error}")));
            break;
        }
    }
    run.wait();
}

/// Starts one thread more.
///
/// # Safety
/// `run` is the one of a thread that runs now, as its context names it.
pub(super) unsafe fn start(run: *const Run, thread: usize) -> Result<(), StartError> {
    // SAFETY: the context's pointer came from the thread's own share, which lasts.
    let run = unsafe {
        Arc::increment_strong_count(run);
        Arc::from_raw(run)
    };
    run.start(thread)
}

impl Run {
    /// Starts one thread.
    fn start(self: &Arc<Self>, thread: usize) -> Result<(), StartError> {
        self.lock().nr_alive += 1;
        let shared = Arc::clone(self);
        let builder = Builder::new().stack_size(STACK_BYTES).name(std::format!("cpu thread {thread}"));
        builder.spawn(move || live(&shared, thread)).map(drop).map_err(|_| {
            self.end_one();
            StartError { thread }
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn machine(&self) -> &Machine {
        // SAFETY: asked by the caller of `run` and by threads that are alive (I1).
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
fn live(run: &Arc<Run>, thread: usize) {
    let bound = Bound::new(run.machine(), Arc::as_ptr(run));
    // SAFETY: we are alive until `end_one` (I1).
    let body = unsafe { &*run.body };
    let result = catch_unwind(AssertUnwindSafe(|| body(thread)));
    drop(bound);
    if let Err(panic) = result {
        run.note_panic(panic);
    }
    run.end_one();
}
