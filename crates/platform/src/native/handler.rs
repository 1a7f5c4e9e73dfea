//! The interrupt handler of a machine.
//!
//! # Guarantee
//! A handler runs until it is cleared and not afterwards. Whoever knows its context may clear it on any thread, also
//! when the machine is gone.
//!
//! # Lock order
//! The list of places, then a place. Handlers run with their place shared: one that is clearing waits for them.

use crate::InterruptHandler;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::vec::Vec;

/// The places with a handler, of all machines of the process.
static PLACES: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// What a machine keeps: the place of its handler.
#[derive(Debug, Default)]
pub(super) struct Place(Arc<Shared>);

type Shared = RwLock<Option<Handler>>;

#[derive(Debug, Clone, Copy)]
struct Handler {
    function: InterruptHandler,
    context: *const (),
}

// SAFETY: whoever registers a handler vouches that it may run on any CPU (`Platform::set_interrupt_handler`).
unsafe impl Send for Handler {}
// SAFETY: as above.
unsafe impl Sync for Handler {}

struct Registered {
    context: usize,
    place: Weak<Shared>,
}

impl Place {
    /// Registers a handler.
    ///
    /// # Panics
    /// If there is one.
    pub(super) fn set(&self, function: InterruptHandler, context: *const ()) {
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let mut handler = self.0.write().unwrap_or_else(PoisonError::into_inner);
        assert!(handler.is_none(), "a machine has one interrupt handler, and one is registered");
        *handler = Some(Handler { function, context });
        places.push(Registered { context: context.addr(), place: Arc::downgrade(&self.0) });
    }

    /// Takes the handler away.
    pub(super) fn clear(&self) {
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|registered| !core::ptr::eq(registered.place.as_ptr(), Arc::as_ptr(&self.0)));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Runs the handler for a CPU, which the caller owns.
    pub(super) fn run(&self, cpu: usize) {
        let handler = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(handler) = *handler {
            // SAFETY: registered under the promise that it may run on any CPU in any wait with interrupts on.
            unsafe { (handler.function)(handler.context, cpu) }
        }
    }
}

/// Takes the handler with that context away, from whichever machine has it.
pub(super) fn clear(context: *const ()) {
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    places.retain(|registered| {
        let is_meant = registered.context == context.addr();
        if let (true, Some(place)) = (is_meant, registered.place.upgrade()) {
            *place.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        !is_meant
    });
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clear();
    }
}
