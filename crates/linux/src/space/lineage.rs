//! A family tree of processes that replay a program: forks that nobody waits for, and gates that all of them see.
//!
//! # Guarantee
//! [`reap`] returns once every descendant has ended, also those whose own parent ended before them. If one is ended by
//! a signal, the gates open and all are asked to stop, so that nobody waits for it in vain.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const UNSET: u32 = 0;
const SET: u32 = 1;
const AWAITED: u32 = 2;

/// Gates that processes share: each opens once.
pub struct Gates {
    words: NonNull<AtomicU32>,
    len: usize,
}

// SAFETY: the words are atomics in memory that lives as long as this value.
unsafe impl Sync for Gates {}
// SAFETY: as above.
unsafe impl Send for Gates {}

impl Gates {
    /// Returns `nr_gates` closed gates. Processes that are made later share them.
    pub fn new(nr_gates: usize) -> io::Result<Self> {
        // One more word: the wish to stop.
        let len = nr_gates + 1;
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a free place.
        let words = unsafe { libc::mmap(std::ptr::null_mut(), len * 4, rights, flags, -1, 0) };
        match NonNull::new(words.cast::<AtomicU32>()) {
            Some(words) if words.as_ptr().cast::<libc::c_void>() != libc::MAP_FAILED => Ok(Self { words, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn words(&self) -> &[AtomicU32] {
        // SAFETY: as many words are mapped until `drop`, and zeros are valid.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }

    /// Opens a gate.
    pub fn open(&self, gate: usize) {
        let word = &self.words()[gate];
        // ORDER: Release pairs with the Acquire in `wait`.
        if word.swap(SET, Ordering::Release) == AWAITED {
            // SAFETY: the word is ours; the call reads no memory.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        }
    }

    /// Waits until a gate is open.
    pub fn wait(&self, gate: usize) {
        let word = &self.words()[gate];
        // ORDER: Acquire pairs with the Release in `open`.
        while word.load(Ordering::Acquire) != SET {
            // Relaxed: a failure means set or awaited, and the loop looks again.
            let _ = word.compare_exchange(UNSET, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
            let forever = std::ptr::null::<libc::timespec>();
            // SAFETY: the word is ours; the kernel compares it and sleeps.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, AWAITED, forever) };
        }
    }

    /// Asks all to stop, and lets nobody wait any more.
    pub fn stop(&self) {
        (0..self.len).rev().for_each(|gate| self.open(gate));
    }

    /// Returns whether all are asked to stop.
    pub fn has_stopped(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `open`.
        self.words()[self.len - 1].load(Ordering::Acquire) == SET
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.len * 4) };
    }
}

/// Makes a child that lives `life` and ends; nobody but [`reap`] waits for it.
pub fn split(life: impl FnOnce()) -> io::Result<()> {
    // SAFETY: the child runs code that takes no lock which another thread may have held at the fork but malloc's, which
    // the C library hands over; it ends without running what its parent will run.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let is_whole = std::panic::catch_unwind(std::panic::AssertUnwindSafe(life)).is_ok();
            // SAFETY: ends the child.
            unsafe { libc::_exit(if is_whole { 0 } else { 101 }) }
        }
        _ => Ok(()),
    }
}

/// Makes orphaned descendants this process's children; gives it as many descriptors as it may have.
pub fn adopt() {
    // SAFETY: settings of this process; the limit is our own variable.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Waits until all descendants have ended; returns how one of them failed, if one did.
pub fn reap(gates: &Gates) -> Option<String> {
    let mut failure = None;
    loop {
        let mut status = 0;
        // SAFETY: the status is our own variable.
        let child = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if child < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            if super::has_interrupt() {
                gates.stop();
            }
            continue;
        }
        if child < 0 {
            return failure;
        }
        if status != 0 {
            gates.stop();
            failure.get_or_insert_with(|| describe(status));
        }
    }
}

fn describe(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("a replaying process was ended by signal {}", libc::WTERMSIG(status))
    } else {
        format!("a replaying process ended with code {}", libc::WEXITSTATUS(status))
    }
}
