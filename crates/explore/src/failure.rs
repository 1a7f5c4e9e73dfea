//! How a run fails, and how a panic's message is caught before it is printed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::PanicHookInfo;
use std::sync::Once;

/// What kind of failure ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The code panicked: one of its own checks, or one of the test's.
    Panic,
    /// Memory that had been freed was accessed, or memory outside the arena.
    Freed,
    /// The processor refused an access.
    Crash,
    /// Every thread waits.
    Deadlock,
    /// The run went on longer than any that ends.
    Endless,
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which kind.
    pub kind: Kind,
    /// Which thread, and what it was doing; empty if no single one failed.
    pub place: String,
    /// What happened.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.message),
            place => write!(f, "{place}: {}", self.message),
        }
    }
}

impl std::error::Error for Failure {}

thread_local! {
    /// The message of the panic under way in a coroutine of this OS thread; none while it runs no coroutine.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Who hears that a coroutine of this OS thread panics, before it unwinds.
    static LISTENER: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Lets panics inside coroutines of this OS thread be caught silently, until dropped.
pub(super) struct Silence;

impl Silence {
    /// Catches panics; `listener` is called at each, before anything is unwound.
    pub(super) fn new(listener: fn()) -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if !catch(info) {
                    previous(info);
                }
            }));
        });
        LISTENER.set(Some(listener));
        CAUGHT.with(|caught| *caught.borrow_mut() = Some(String::new()));
        Self
    }

    /// Returns the message of the last panic.
    pub(super) fn message() -> String {
        CAUGHT.with(|caught| caught.borrow().clone().unwrap_or_default())
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        CAUGHT.with(|caught| *caught.borrow_mut() = None);
    }
}

/// Keeps a panic's message if a coroutine of this OS thread panicked.
fn catch(info: &PanicHookInfo<'_>) -> bool {
    CAUGHT.with(|caught| {
        let Ok(mut caught) = caught.try_borrow_mut() else { return false };
        let Some(message) = caught.as_mut() else { return false };
        let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line())).unwrap_or_default();
        if let Some(listener) = LISTENER.get() {
            listener();
        }
        *message = format!("{}{place}", info.payload_as_str().unwrap_or("a panic without a message"));
        true
    })
}
