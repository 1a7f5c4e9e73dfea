//! A lock that a forked child always finds free.
//!
//! # Guarantee
//! One holder at a time in a process. In a child the lock is free, even if another thread of the
//! parent held it at the fork: its word lies in a page that the kernel wipes on fork
//! (`MADV_WIPEONFORK`, Linux 4.14). What it protects must therefore be consistent at every
//! instruction (I6).
//!
//! # State word
//! `FREE` (0, what wiping leaves), `HELD`, `WAITED` (held, and somebody may sleep on it).

use crate::{Error, sys};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED: u32 = 2;

static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Having this value tells you that no other thread of this process changes the shared state.
#[derive(Debug)]
pub(crate) struct Guard {
    word: &'static AtomicU32,
}

/// Takes the lock.
pub(crate) fn lock() -> Result<Guard, Error> {
    let word = word()?;
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

fn word() -> Result<&'static AtomicU32, Error> {
    // ORDER: Acquire pairs with the AcqRel in `make_word`: the page's content is the kernel's.
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: a page that was published stays mapped for the process's life, in children too.
    unsafe { page.as_ref() }.map_or_else(make_word, Ok)
}

#[cold]
fn make_word() -> Result<&'static AtomicU32, Error> {
    let len = sys::page_len();
    let fresh = sys::map_anonymous(len).map_err(|_| Error::OutOfMemory { len })?;
    // SAFETY: the page is ours. A kernel that refuses leaves a lock that is not safe across fork.
    let _ = unsafe { sys::advise(fresh, len, libc::MADV_WIPEONFORK) };
    let fresh = fresh.cast::<AtomicU32>();
    // ORDER: AcqRel pairs with the Acquire in `word` and with the winner's own exchange.
    let seen = PAGE.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
    let page = match seen {
        Ok(_) => fresh,
        Err(winner) => {
            // SAFETY: nobody has seen our page.
            unsafe { sys::unmap(fresh.cast(), len) };
            winner
        }
    };
    // SAFETY: mapped for the process's life; zero, which is FREE, when it was published.
    Ok(unsafe { &*page })
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
