//! Memory for the time while the next allocator's functions are looked up (`dlsym` may allocate).
//!
//! # Guarantee
//! What is handed out is zero, begins at a multiple of [`PAGE`], and is never taken back. So free
//! sees from the low bits of a pointer that it is none of these (P1).

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The shortest page that any system has.
pub(crate) const PAGE: usize = 4096;
/// Room for 256 allocations; pages that nobody asks for cost nothing.
const LEN: usize = 1 << 20;

#[repr(align(4096))]
struct Memory(UnsafeCell<[u8; LEN]>);

// SAFETY: each byte is handed out once, by the counter.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; LEN]));
// Relaxed: the counter alone decides who gets which bytes.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Returns `len` bytes of zero, or null when all are used.
pub(crate) fn allocate(len: usize) -> *mut u8 {
    let more = |used: usize| {
        let rounded = len.max(1).checked_next_multiple_of(PAGE)?;
        used.checked_add(rounded).filter(|end| *end <= LEN)
    };
    match USED.fetch_update(Relaxed, Relaxed, more) {
        // SAFETY: the offset lies inside.
        Ok(start) => unsafe { MEMORY.0.get().cast::<u8>().add(start) },
        Err(_) => ptr::null_mut(),
    }
}

/// Returns how many bytes lie between an address and the end of this memory, if it lies inside.
pub(crate) fn room_behind(address: *const u8) -> Option<usize> {
    let start = MEMORY.0.get().addr();
    let offset = address.addr().wrapping_sub(start);
    (offset < LEN).then(|| LEN - offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_disjoint_and_ends() {
        let (first, second) = (allocate(5), allocate(100));
        assert_eq!((first.addr() % PAGE, second.addr() % PAGE), (0, 0));
        assert!(second.addr() >= first.addr() + 5);
        assert!(room_behind(second).is_some_and(|room| room >= 100));
        assert!(allocate(LEN).is_null());
        assert_eq!(room_behind(ptr::null()), None);
    }
}
