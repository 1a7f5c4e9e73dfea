//! Sleeping on a word: the host's futex.

use core::sync::atomic::AtomicU32;

/// How long a sleep lasts before the sleeper looks whether its machine still lives, in ns.
pub(super) const LOOK_UP_NS: u64 = 100_000_000;

/// Sleeps while `word` holds `expected`, at most `limit_ns` or [`LOOK_UP_NS`].
pub(super) fn wait(word: &AtomicU32, expected: u32, limit_ns: u64) {
    // Below a second, so that it is a number of nanoseconds.
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: limit_ns.min(LOOK_UP_NS) as i64 };
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
