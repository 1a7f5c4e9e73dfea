//! Who serves the interrupts of machines with high memory: several, where other machines have one.
//!
//! # Guarantee
//! As of a platform ([`Platform::set_interrupt_handler`](crate::Platform::set_interrupt_handler)): a handler runs until
//! it is taken away and not afterwards, whichever thread does that. All that is registered is asked at each request.
//!
//! # Lock order
//! The machines, then a machine's list, for a moment; no handler runs, and nobody waits for one, with either held.

use super::High;
use crate::{InterruptHandler, Processor};
use core::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

/// The high memory of all machines of the process that have a handler, which is kept as long as they do.
static MACHINES: Mutex<Vec<Arc<High>>> = Mutex::new(Vec::new());

/// The handlers of one machine. Whoever runs them holds the list as it was.
#[derive(Default)]
pub(super) struct Handlers(Mutex<Arc<Vec<Handler>>>);

#[derive(Clone, Copy)]
struct Handler {
    function: InterruptHandler,
    context: *const (),
}

// SAFETY: whoever registers a handler vouches that it may run on any CPU (`Platform::set_interrupt_handler`).
unsafe impl Send for Handler {}
// SAFETY: as above.
unsafe impl Sync for Handler {}

impl Handlers {
    /// Serves all that was published for a CPU.
    ///
    /// # Safety
    /// As of a handler.
    pub(super) unsafe fn serve(&self, cpu: usize) {
        let handlers = Arc::clone(&self.list());
        for handler in &*handlers {
            // SAFETY: the caller's promise; who takes a handler away waits for us.
            unsafe { (handler.function)(handler.context, cpu) };
        }
    }

    fn list(&self) -> MutexGuard<'_, Arc<Vec<Handler>>> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a handler to those of a machine; before the first one, lets `register` have the machine ask for them.
pub(super) fn add(high: &Arc<High>, (function, context): (InterruptHandler, *const ()), register: impl FnOnce()) {
    let mut machines = machines();
    if !machines.iter().any(|other| Arc::ptr_eq(other, high)) {
        register();
        machines.push(Arc::clone(high));
    }
    let mut list = high.handlers.list();
    let all = list.iter().copied().chain([Handler { function, context }]).collect();
    *list = Arc::new(all);
}

/// Takes the handler with that context away, from whichever machine has it, and waits for those who run it; says
/// whether there was one. With a machine's last, lets `unregister` end the machine's asking, by its context.
pub(super) fn remove<P: Processor>(context: *const (), unregister: impl FnOnce(*const High)) -> bool {
    let is_meant = |handler: &Handler| ptr::eq(handler.context, context);
    let mut machines = machines();
    let Some(place) = machines.iter().position(|high| high.handlers.list().iter().any(is_meant)) else { return false };
    let mut before = {
        let mut list = machines[place].handlers.list();
        let left = list.iter().copied().filter(|handler| !is_meant(handler)).collect();
        core::mem::replace(&mut *list, Arc::new(left))
    };
    let is_last = before.len() == 1;
    let _gone = is_last.then(|| {
        unregister(Arc::as_ptr(&machines[place]));
        machines.swap_remove(place)
    });
    drop(machines);
    while Arc::get_mut(&mut before).is_none() {
        P::spin_until_deadline(P::now() + 1_000, || false);
    }
    true
}

fn machines() -> MutexGuard<'static, Vec<Arc<High>>> {
    // A platform that refuses a second handler panics before anything is noted.
    MACHINES.lock().unwrap_or_else(PoisonError::into_inner)
}
