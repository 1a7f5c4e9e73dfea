//! A lock that a forked child always finds free.
//!
//! # Guarantee
//! One holder at a time in a process. In a child the lock is free, even if another thread of the
//! parent held it at the fork, since its word is wiped (see `wiped`). What it protects must therefore
//! be consistent at every instruction (I6).
//!
//! # State word
//! `FREE` (0, what wiping leaves), `HELD`, `WAITED` (held, and somebody may sleep on it).

use crate::wiped::wiped;
use crate::{Error, sys};
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED: u32 = 2;

/// Having this value tells you that no other thread of this process changes the shared state.
#[derive(Debug)]
pub(crate) struct Guard {
    word: &'static AtomicU32,
}

/// Takes the lock.
pub(crate) fn lock() -> Result<Guard, Error> {
    let word = &wiped()?.lock;
    // ORDER: Acquire pairs with the Release in `Guard::drop`; Relaxed on failure, as `wait` retries.
    if word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
        wait(word);
    }
    Ok(Guard { word })
}

#[cold]
fn wait(word: &AtomicU32) {
    // ORDER: Acquire pairs with the Release in `Guard::drop`.
    while word.swap(WAITED, Ordering::Acquire) != FREE {
        sys::futex_wait(word.as_ptr(), WAITED);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // ORDER: Release pairs with the Acquire in `lock` and `wait`.
        if self.word.swap(FREE, Ordering::Release) == WAITED {
            sys::futex_wake(self.word.as_ptr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        static mut COUNT: u64 = 0;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _guard = lock().unwrap();
                        // SAFETY: the lock is held.
                        unsafe { COUNT += 1 };
                    }
                });
            }
        });
        // SAFETY: the threads are gone.
        assert_eq!(unsafe { COUNT }, 80_000);
    }

    #[test]
    fn a_child_finds_the_lock_free() {
        let _held = lock().unwrap();
        // SAFETY: the child only takes the lock and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that waits for ever.
            unsafe { libc::alarm(10) };
            let free = lock().is_ok();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if free { 7 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 7);
    }
}
