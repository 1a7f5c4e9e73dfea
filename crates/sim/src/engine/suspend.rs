//! How the running thread gives way to the scheduler.
//!
//! # Guarantee
//! A thread whose simulation is over is woken from its wait by a panic, once.

use super::record::Wait;
use super::state::{Engine, step};
use std::panic::resume_unwind;

/// The quiet panic of a thread whose simulation is over.
pub(super) struct Ended;

impl Engine {
    /// Notes that the running thread unwinds, if it is the one that does: panics that no hook saw are found here.
    #[cold]
    fn note_unwinding(&mut self) {
        let is_others = self.threads.iter().any(|thread| thread.is_unwinding && !thread.is_done);
        if !is_others {
            self.thread().is_unwinding = true;
        }
    }

    /// Notes whether the running thread's CPU is busy, if it has one.
    fn set_busy(&mut self, is_busy: bool) {
        if let Some(busy) = self.busy.get_mut(usize::from(self.cpu)) {
            *busy = is_busy;
        }
    }

    /// Lets a thread whose simulation is over panic, once.
    fn must_end(&mut self) -> bool {
        self.is_dying && !std::mem::replace(&mut self.thread().is_unwinding, true)
    }
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
        engine.set_busy(wait == Wait::Turn);
        let thread = engine.thread();
        thread.wait = wait;
        thread.since = clock;
    });
    suspend();
    step(|engine| {
        engine.thread().wait = Wait::Turn;
        engine.set_busy(true);
    });
    check_alive();
}

/// Panics if the simulation is over, unless this thread does already.
pub(super) fn check_alive() {
    if step(|engine| engine.must_end()) {
        resume_unwind(Box::new(Ended));
    }
}
