//! Ctrl-C as something to look at between two measurements.
//!
//! # Guarantee
//! After [`on_interrupt`] the first SIGINT or SIGTERM is noted and ends nothing; a second one ends the process as ever.
//! Processes that are made afterwards note it too.

use std::io;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};

static HAS_COME: AtomicBool = AtomicBool::new(false);

/// Begins to note interrupts, except those that were ignored before.
pub fn on_interrupt() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler stores to an atomic and nothing else; the structures are ours, and zero is a valid start.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            if action.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            action.sa_sigaction = note as extern "C" fn(i32) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

extern "C" fn note(_signal: i32) {
    // Relaxed: nothing is read on the strength of the flag.
    HAS_COME.store(true, Ordering::Relaxed);
}

/// Returns whether an interrupt has come.
pub fn has_interrupt() -> bool {
    // Relaxed: see `note`.
    HAS_COME.load(Ordering::Relaxed)
}

/// Interrupts a process that this one started.
pub fn pass_on(child: &Child) {
    // SAFETY: a plain call; the number is a child's that was not waited for, so nobody else has it.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
}

/// Lets this process have no more than so much address space; what asks for more is refused.
///
/// # Errors
/// If the limit is above one that only root may raise.
pub fn limit_memory(bytes: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the structure is valid while the call lasts.
    match unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
