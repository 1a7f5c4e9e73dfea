//! Words of a page that guests may access meanwhile.

use crate::system::System;
use faultless_platform::{Atomic, InPlace, Ordering};

/// Loads words that other CPUs may store to.
///
/// # Safety
/// The words from `source` on lie in memory that is accessed atomically by all, and `source` is a multiple of 8.
pub(crate) unsafe fn load_words<P: System>(source: *const u8, words: &mut [u64]) {
    for (place, value) in words.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let word = unsafe { P::AtomicU64::view(source.add(place * 8).cast_mut().cast()) };
        // Relaxed: a program's plain load.
        *value = word.load(Ordering::Relaxed);
    }
}

/// Stores words that other CPUs may load.
///
/// # Safety
/// As for [`load_words`], with `target` for `source`.
pub(crate) unsafe fn store_words<P: System>(target: *mut u8, words: &[u64]) {
    for (place, &value) in words.iter().enumerate() {
        // SAFETY: the caller's promise.
        let word = unsafe { P::AtomicU64::view(target.add(place * 8).cast()) };
        // Relaxed: a program's plain store.
        word.store(value, Ordering::Relaxed);
    }
}
