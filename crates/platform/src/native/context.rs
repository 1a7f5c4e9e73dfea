//! A thread's view of its machine: which one, which slot, which token.

use super::machine::Machine;
use super::runner::Run;
use core::cell::Cell;
use core::ptr;

/// No slot owned.
pub(super) const NO_CPU: usize = usize::MAX;

/// What a thread knows of itself. Set by `Bound`, which outlives every use.
pub(super) struct Context {
    pub(super) machine: Cell<*const Machine>,
    pub(super) run: Cell<*const Run>,
    pub(super) cpu: Cell<usize>,
    pub(super) last_cpu: Cell<usize>,
    pub(super) token: Cell<usize>,
    pub(super) irq_depth: Cell<u32>,
    /// Rounds of all waits: those who wait in slices give the core away too.
    pub(super) spins: Cell<u32>,
}

std::thread_local! {
    static CONTEXT: Context = const {
        Context {
            machine: Cell::new(ptr::null()),
            run: Cell::new(ptr::null()),
            cpu: Cell::new(NO_CPU),
            last_cpu: Cell::new(0),
            token: Cell::new(0),
            irq_depth: Cell::new(0),
            spins: Cell::new(0),
        }
    };
}

/// Runs `read` with the calling thread's context.
#[inline(always)]
pub(super) fn with<R>(read: impl FnOnce(&Context) -> R) -> R {
    CONTEXT.with(read)
}

/// Set in the tokens of threads that are bound to no machine: no machine has so many records.
const UNBOUND: usize = 1 << 60;

/// Returns the name of a thread that is bound to no machine: no other such thread has it while this one lives.
pub(super) fn unbound_token(context: &Context) -> usize {
    (ptr::from_ref(context).addr() >> 3) | UNBOUND
}

/// Says whether a token names a thread that is bound to no machine.
pub(super) const fn is_unbound(token: usize) -> bool {
    token & UNBOUND != 0
}

/// Returns the machine that the calling thread is bound to, if it is bound to one.
#[inline(always)]
pub(super) fn bound_machine<'a>() -> Option<&'a Machine> {
    let machine = with(|context| context.machine.get());
    // SAFETY: as in `machine`.
    unsafe { machine.as_ref() }
}

/// Returns the machine that the calling thread is bound to.
///
/// # Panics
/// If it is bound to none: the caller runs outside `Threads::run` and `Machine::attach`.
#[inline(always)]
pub(super) fn machine<'a>() -> &'a Machine {
    let machine = with(|context| context.machine.get());
    assert!(!machine.is_null(), "this thread runs on no machine: use Threads::run or Machine::attach");
    // SAFETY: `Bound` keeps the machine borrowed for as long as the pointer is set, and callers use the reference
    // within one call.
    unsafe { &*machine }
}

impl Machine {
    /// Runs `body` on the calling thread, on a slot of this machine.
    pub fn attach<R>(&self, body: impl FnOnce() -> R) -> R {
        let _bound = self.bound_to_slot();
        body()
    }

    /// Binds the calling thread and takes a slot: apart from `attach`, which is compiled for each body.
    fn bound_to_slot(&self) -> Bound<'_> {
        let bound = Bound::new(self, ptr::null());
        with(|context| self.enter(context));
        bound
    }

    pub(super) fn enter(&self, context: &Context) {
        assert_eq!(context.cpu.get(), NO_CPU, "this thread owns a slot already");
        let cpu = self.take_slot(context.last_cpu.get(), context.token.get());
        context.cpu.set(cpu);
        context.last_cpu.set(cpu);
    }

    pub(super) fn leave(&self, context: &Context) {
        assert_eq!(context.irq_depth.get(), 0, "a slot is left with interrupts off");
        self.give_slot(context.cpu.replace(NO_CPU), context.token.get());
    }
}

/// Binds the calling thread to a machine, until dropped.
pub(super) struct Bound<'a> {
    machine: &'a Machine,
    token: usize,
    before: (*const Machine, *const Run, usize),
}

impl<'a> Bound<'a> {
    pub(super) fn new(machine: &'a Machine, run: *const Run) -> Self {
        let token = machine.tokens().take();
        with(|context| {
            assert_eq!(context.cpu.get(), NO_CPU, "a thread that owns a slot can't be bound anew");
            let before = (context.machine.replace(machine), context.run.replace(run), context.token.replace(token));
            Self { machine, token, before }
        })
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        with(|context| {
            if context.cpu.get() != NO_CPU {
                context.irq_depth.set(0);
                self.machine.leave(context);
            }
            context.machine.set(self.before.0);
            context.run.set(self.before.1);
            context.token.set(self.before.2);
        });
        self.machine.tokens().give(self.token);
    }
}
