//! What outlives a run: the CPUs' number, what was published for each, the interrupt handler, the memory, the stacks.

use super::arena::Arena;
use super::engine::{Engine, Run};
use super::policy::Policy;
use corosensei::stack::DefaultStack;
use faultless_platform::InterruptHandler;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes of a coroutine's stack; the host gives it pages as they are touched.
const STACK_BYTES: usize = 256 << 10;
/// Steps after which a run counts as endless.
const DEFAULT_STEP_LIMIT: u64 = 2_000_000;

/// A machine with a fixed number of CPU slots, used by one OS thread at a time.
pub struct Machine {
    nr_cpus: usize,
    /// Something was published for the CPU since it last looked. Relaxed: one OS thread uses a machine at a time.
    pending: Box<[AtomicBool]>,
    handler: Mutex<Option<Handler>>,
    arena: Option<Arena>,
    stacks: Mutex<Vec<DefaultStack>>,
    step_limit: u64,
}

#[derive(Clone, Copy)]
struct Handler {
    function: InterruptHandler,
    context: *const (),
}

// SAFETY: whoever registers a handler vouches that it may run on any CPU.
unsafe impl Send for Handler {}

impl Machine {
    /// Returns a machine of `nr_cpus` CPUs, 1 to 64.
    ///
    /// # Panics
    /// If there are more CPUs, or none.
    pub fn new(nr_cpus: usize) -> Self {
        assert!((1..=64).contains(&nr_cpus), "{nr_cpus} CPUs: an exploring machine has 1 to 64");
        Self {
            nr_cpus,
            pending: (0..nr_cpus).map(|_| AtomicBool::new(false)).collect(),
            handler: Mutex::new(None),
            arena: None,
            stacks: Mutex::default(),
            step_limit: DEFAULT_STEP_LIMIT,
        }
    }

    /// As [`Machine::new`], and watches what is freed in an arena.
    pub fn with_arena(nr_cpus: usize, arena: Arena) -> Self {
        Self { arena: Some(arena), ..Self::new(nr_cpus) }
    }

    /// Returns the machine with another limit of steps.
    pub fn with_step_limit(self, step_limit: u64) -> Self {
        Self { step_limit, ..self }
    }

    /// Runs `body(0)` to `body(first - 1)`, and what they start, as `policy` says.
    ///
    /// After a failure the threads are gone as they stood: what they had borrowed, locked or allocated stays so.
    pub fn explore(&self, first: usize, policy: Policy, body: &(dyn Fn(usize) + Sync)) -> Run {
        Engine::new(self, policy).run(first, body)
    }

    /// As [`Machine::explore`], and notes every access.
    pub fn explore_noting(&self, first: usize, policy: Policy, body: &(dyn Fn(usize) + Sync)) -> Run {
        Engine::new(self, policy).noting().run(first, body)
    }

    /// Forgets what a failed run has left behind: requests, and the interrupt handler.
    pub fn reset(&self) {
        self.pending.iter().for_each(|pending| pending.store(false, Ordering::Relaxed));
        self.clear_handler(None);
    }

    /// Returns the watched memory.
    pub fn arena(&self) -> Option<&Arena> {
        self.arena.as_ref()
    }

    pub(super) fn nr_cpus(&self) -> usize {
        self.nr_cpus
    }

    pub(super) fn step_limit(&self) -> u64 {
        self.step_limit
    }

    pub(super) fn raise(&self, cpu: usize) {
        self.pending[cpu].store(true, Ordering::Relaxed);
    }

    /// Says whether something was published for a CPU, and lowers the flag.
    pub(super) fn take_pending(&self, cpu: usize) -> bool {
        self.pending[cpu].swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_handler(&self, function: InterruptHandler, context: *const ()) {
        let mut handler = self.handler.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(handler.is_none(), "a machine has one interrupt handler, and one is registered");
        *handler = Some(Handler { function, context });
    }

    /// Takes the handler away, if it is the one with that context, or whichever there is.
    pub(super) fn clear_handler(&self, context: Option<*const ()>) {
        let mut handler = self.handler.lock().unwrap_or_else(PoisonError::into_inner);
        handler.take_if(|handler| context.is_none_or(|context| context == handler.context));
    }

    /// Runs the interrupt handler for a CPU that the calling thread owns.
    pub(super) fn interrupt(&self, cpu: usize) {
        let handler = *self.handler.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Handler { function, context }) = handler {
            // SAFETY: registered under the promise that it may run on any CPU in any wait with interrupts on.
            unsafe { function(context, cpu) }
        }
    }

    pub(super) fn take_stack(&self) -> DefaultStack {
        let unused = self.stacks.lock().unwrap_or_else(PoisonError::into_inner).pop();
        unused.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("the host has room for a stack of 256 KiB"))
    }

    pub(super) fn give_stack(&self, stack: DefaultStack) {
        self.stacks.lock().unwrap_or_else(PoisonError::into_inner).push(stack);
    }
}
