//! Accesses that the processor refuses, turned into failures of the run.
//!
//! # Guarantee
//! A coroutine of a run that follows a pointer into nowhere ends that run, as a panic does, and the process goes on.
//! Elsewhere the handler that was there before decides.
//!
//! # Protocol
//! The kernel calls `refused` on the OS thread's own signal stack. It changes where the interrupted code goes on: in
//! `end`, on the coroutine's stack, below what stands there. `end` never returns.

use std::cell::Cell;
use std::sync::OnceLock;

/// Bytes below the stack pointer that the interrupted code may be using.
const RED_ZONE_BYTES: i64 = 128;

thread_local! {
    /// Where the refused access went; 0 while there was none.
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// What the handler asks of the runs; the same for all.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    /// Says whether a coroutine of a run is at work on this OS thread.
    pub is_inside: fn() -> bool,
    /// Ends that run with a message.
    pub end: fn(String) -> !,
}

static RUNS: OnceLock<Runs> = OnceLock::new();

/// What was there before, by signal.
static PREVIOUS: OnceLock<[libc::sigaction; 2]> = OnceLock::new();

const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Begins to catch refused accesses of runs; once for the process.
pub(super) fn watch(runs: Runs) {
    RUNS.get_or_init(|| runs);
    REFUSED.with(|refused| refused.set(0));
    PREVIOUS.get_or_init(|| SIGNALS.map(install));
}

fn install(signal: libc::c_int) -> libc::sigaction {
    // SAFETY: both are plain data, for which zeros are valid; the handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let (mut action, mut previous): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        action.sa_sigaction = refused as *const () as usize;
        libc::sigaction(signal, &raw const action, &raw mut previous);
        previous
    }
}

/// The handler.
unsafe extern "C" fn refused(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let is_ours = RUNS.get().is_some_and(|runs| (runs.is_inside)()) && REFUSED.with(Cell::get) == 0;
    if !is_ours {
        return pass_on(signal);
    }
    // SAFETY: the kernel hands over both; with SA_SIGINFO the context is a `ucontext_t`.
    unsafe {
        REFUSED.with(|refused| refused.set(((*info).si_addr() as usize).max(1)));
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let stack = (registers[libc::REG_RSP as usize] - RED_ZONE_BYTES) & !0xf;
        // As after a call: the return address, which is never used, stands below an aligned place.
        registers[libc::REG_RSP as usize] = stack - 8;
        registers[libc::REG_RIP as usize] = end as *const () as i64;
    }
}

/// Restores what was there before; the access is then made again.
fn pass_on(signal: libc::c_int) {
    let previous = PREVIOUS.get().zip(SIGNALS.iter().position(|&known| known == signal));
    if let Some((previous, place)) = previous {
        // SAFETY: what `sigaction` returned when the handler was installed.
        unsafe { libc::sigaction(signal, &raw const previous[place], std::ptr::null_mut()) };
    }
}

/// Where a refused access goes on.
extern "C" fn end() -> ! {
    let address = REFUSED.with(Cell::get);
    let runs = RUNS.get().expect("a run watches before it begins");
    (runs.end)(format!("access to {address:#x}, where nothing is"))
}
