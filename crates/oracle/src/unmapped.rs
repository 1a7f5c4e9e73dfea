//! What is said when the instance reaches for the bytes of a frame of high memory that nobody maps.
//!
//! # Guarantee
//! After [`tell`] a thread of this process that gets `SIGSEGV` writes the address and its own stack to standard error,
//! and the process aborts: the same run finds it again.

use std::backtrace::Backtrace;
use std::sync::Once;

/// Lets the process say where it was.
pub(super) fn tell() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        // SAFETY: a zeroed sigaction is valid, and so is the handler.
        let answer = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
            libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut())
        };
        debug_assert_eq!(answer, 0, "the host takes the handler");
    });
}

/// Runs on the stack of the thread that faulted. Its access is one of ours, outside any allocator, so that this may
/// allocate; should it fault itself, the process ends at once.
extern "C" fn on_fault(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel hands out a valid siginfo with an address.
    let address = unsafe { (*info).si_addr() };
    eprintln!(
        "SIGSEGV at {address:?}: is this a frame of high memory that nobody maps?\n{}",
        Backtrace::force_capture()
    );
    std::process::abort();
}
