//! Sleeping on a word: the host's futex.

use core::sync::atomic::AtomicU32;

/// How long a sleep lasts before the sleeper looks whether its machine still lives, in ns.
const LOOK_UP_NS: i64 = 100_000_000;

/// Sleeps while `word` holds `expected`, at most [`LOOK_UP_NS`].
pub(super) fn wait(word: &AtomicU32, expected: u32) {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: LOOK_UP_NS };
    // SAFETY: the word outlives the call, and the kernel only reads it and the timeout.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            &raw const timeout,
        );
    }
}

/// Wakes up to `threads` sleepers; returns how many.
pub(super) fn wake(word: *const AtomicU32, threads: usize) -> usize {
    let limit = i32::try_from(threads).unwrap_or(i32::MAX);
    // SAFETY: the kernel only uses the word's address as a name.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, limit) };
    usize::try_from(woken).unwrap_or(0)
}
