//! Accesses that may be refused: a signal ends the access, not the process.
//!
//! # Guarantee
//! After [`survive_faults`] a [`load`] or [`store`] of this module on memory that is not mapped, or not mapped so,
//! returns `None`; a signal from anywhere else acts as before.
//!
//! # How
//! Each access is one instruction at a known address. The handler moves a thread that was stopped there on to code that
//! returns the failure.

use std::sync::atomic::{AtomicBool, Ordering};

std::arch::global_asm!(
    ".pushsection .text.faultless_probe,\"ax\",@progbits",
    ".globl faultless_probe_load",
    ".globl faultless_probe_store",
    ".globl faultless_probe_failed",
    "faultless_probe_load:",
    "mov rax, [rdi]",
    "xor edx, edx",
    "ret",
    "faultless_probe_store:",
    "mov [rdi], rsi",
    "xor edx, edx",
    "ret",
    "faultless_probe_failed:",
    "mov edx, 1",
    "ret",
    ".popsection",
);

/// A loaded word, and whether it was refused: the two registers in which such a structure is returned.
#[repr(C)]
struct Probed {
    word: u64,
    is_refused: u64,
}

unsafe extern "C" {
    fn faultless_probe_load(address: u64) -> Probed;
    fn faultless_probe_store(address: u64, value: u64) -> Probed;
    fn faultless_probe_failed();
}

static IS_READY: AtomicBool = AtomicBool::new(false);

/// Makes refused accesses of this module return; for this process and those that it makes.
pub fn survive_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the handler changes the stopped thread's place only; zero is a valid start for the structure.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = recover;
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    // Relaxed: callers run in this thread, or in ones made later.
    IS_READY.store(true, Ordering::Relaxed);
}

extern "C" fn recover(signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives the stopped thread's registers; those of a thread in one of the two instructions are
    // moved on to code that returns as they would. Otherwise the signal strikes again, without a handler.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let place = registers[libc::REG_RIP as usize];
        let probes = [faultless_probe_load as *const () as i64, faultless_probe_store as *const () as i64];
        if probes.contains(&place) {
            registers[libc::REG_RIP as usize] = faultless_probe_failed as *const () as i64;
        } else {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Loads the word at `address`; nothing if that is refused.
#[inline]
pub fn load(address: u64) -> Option<u64> {
    // Relaxed: see `survive_faults`.
    debug_assert!(IS_READY.load(Ordering::Relaxed));
    // SAFETY: a load of any address either gives its word or is refused. Words belong to programs alone.
    let probed = unsafe { faultless_probe_load(address) };
    (probed.is_refused == 0).then_some(probed.word)
}

/// Stores a word to `address`, which a program has mapped or which is not mapped; says whether that was done.
#[inline]
pub fn store(address: u64, value: u64) -> bool {
    // Relaxed: see `survive_faults`.
    debug_assert!(IS_READY.load(Ordering::Relaxed));
    // SAFETY: the caller stores to a program's memory only; a refused store changes nothing.
    let probed = unsafe { faultless_probe_store(address, value) };
    probed.is_refused == 0
}

#[cfg(test)]
mod tests {
    use super::super::{Behind, READ, mmap, munmap};
    use super::*;

    #[test]
    fn a_refused_access_returns_and_an_allowed_one_is_done() {
        survive_faults();
        let page = mmap(None, 8192, READ, Behind::Nothing).expect("room");
        assert_eq!(load(page), Some(0));
        assert!(!store(page, 1), "the page is read-only");
        munmap(page + 4096..page + 8192).expect("ours");
        assert_eq!(load(page + 4096), None);
        let word = 5u64;
        assert_eq!(load(&raw const word as u64), Some(5));
        munmap(page..page + 4096).expect("ours");
    }
}
