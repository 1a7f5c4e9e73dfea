//! A pattern in freed memory, and a look whether it is still there.
//!
//! # Guarantee
//! With poison on, a write to a frame or object after it was freed is found when it is given out again, at the latest.
//! A reader of freed memory reads the pattern, which is no valid address, number or text. A platform that watches
//! accesses is told, so that it finds the access itself.

use faultless_platform::Platform;

/// What a freed word holds.
pub(crate) const PATTERN: u64 = 0xdead_f4ee_dead_f4ee;

const WORD_BYTES: usize = size_of::<u64>();

/// Fills the whole words of `len_bytes` at `start`.
///
/// # Safety
/// The memory is valid for writes, aligned to 8 bytes, and nobody else uses it.
#[cold]
pub(crate) unsafe fn fill<P: Platform>(start: *mut u8, len_bytes: usize) {
    P::forbid(start, len_bytes);
    for word in 0..len_bytes / WORD_BYTES {
        // SAFETY: inside the range; volatile, so that a later reader after the free sees the pattern.
        unsafe { start.cast::<u64>().add(word).write_volatile(PATTERN) };
    }
}

/// Looks whether the pattern is whole.
///
/// # Panics
/// If it is not: somebody wrote to freed memory.
///
/// # Safety
/// The memory is valid for reads, aligned to 8 bytes, and nobody who obeys the rules uses it.
#[cold]
pub(crate) unsafe fn check<P: Platform>(start: *const u8, len_bytes: usize, what: &dyn core::fmt::Display) {
    P::permit(start, len_bytes);
    for word in 0..len_bytes / WORD_BYTES {
        // SAFETY: inside the range.
        let found = unsafe { start.cast::<u64>().add(word).read_volatile() };
        assert!(
            found == PATTERN,
            "{what} was written after it was freed: byte {} holds {found:#018x} instead of {PATTERN:#018x}",
            word * WORD_BYTES
        );
    }
}
