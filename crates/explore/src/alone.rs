//! What comes before an exploration, and behind it: one thread by itself.

use super::machine::Machine;
use super::platform::Explore;
use super::policy::Policy;
use faultless_platform::Processor;
use std::sync::{Mutex, PoisonError};

impl Machine {
    /// Runs `act` on CPU 0, by itself, and returns what it returns: for what comes before an exploration, and behind
    /// it.
    ///
    /// # Panics
    /// If `act` fails, with its message.
    ///
    /// ```
    /// use faultless_explore::{Explore, Machine};
    /// use faultless_platform::Processor;
    ///
    /// assert_eq!(Machine::new(2).alone(|| Explore::cpu()), 0);
    /// ```
    pub fn alone<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        let (act, result) = (Mutex::new(Some(act)), Mutex::new(None));
        let run = self.explore(1, Policy::in_turn(0), &|_| {
            Explore::enter();
            let act = act.lock().unwrap_or_else(PoisonError::into_inner).take();
            let value = act.map(|act| act());
            *result.lock().unwrap_or_else(PoisonError::into_inner) = value;
            Explore::leave();
        });
        run.outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
        let value = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        value.expect("the body ran to its end")
    }
}
