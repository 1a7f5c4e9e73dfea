//! Memory for frames that notices accesses after a free.
//!
//! # Guarantee
//! Every eight bytes are allowed or forbidden; `check` names the first forbidden word of a range. Behind the memory
//! lie addresses that hold nothing, as many as a frame's number of 32 bits can reach if the host has them: a number
//! made of garbage leads there.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const WORD_BYTES: usize = 8;
const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// First address that no program has.
const USER_END: usize = 1 << 47;
/// What frame numbers of 32 bits span; the most that is kept free behind the memory.
const MOST_REACH_BYTES: usize = PAGE_BYTES << 32;

/// The host gave no room.
#[derive(Debug)]
pub struct ArenaError {
    /// What was asked for.
    pub len_bytes: usize,
    /// The host's answer.
    pub cause: io::Error,
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host gave no room for {} bytes: {}; raise `ulimit -v`", self.len_bytes, self.cause)
    }
}

impl std::error::Error for ArenaError {}

/// A page-aligned range of memory; see the module.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    len_bytes: usize,
    /// Addresses behind the memory that hold nothing.
    reach_bytes: usize,
    /// A bit for each word: set if nobody may access it. Relaxed throughout: one OS thread uses an arena at a time.
    forbidden: Box<[AtomicU64]>,
    /// How often each line was given out. Relaxed as above.
    lives: Box<[AtomicU32]>,
}

// SAFETY: plain memory; who may access what is its users' business.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `len_bytes`, rounded up to whole pages, all zero.
    pub fn new(len_bytes: usize) -> Result<Self, ArenaError> {
        let len = len_bytes.max(1).next_multiple_of(PAGE_BYTES);
        let refuse = || ArenaError { len_bytes, cause: io::Error::last_os_error() };
        let reaches = std::iter::successors(Some(MOST_REACH_BYTES), |&reach| (reach > 0).then_some(reach / 4));
        let (start, reach_bytes) =
            reaches.into_iter().find_map(|reach| reserve(len + reach).zip(Some(reach))).ok_or_else(refuse)?;
        // SAFETY: the beginning of the mapping just made.
        if unsafe { libc::mprotect(start, len, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return Err(refuse());
        }
        let forbidden = (0..len.div_ceil(WORD_BYTES * 64)).map(|_| AtomicU64::new(0)).collect();
        let lives = (0..len / LINE_BYTES).map(|_| AtomicU32::new(0)).collect();
        let base = NonNull::new(start.cast()).ok_or_else(refuse)?;
        Ok(Self { base, len_bytes: len, reach_bytes, forbidden, lives })
    }

    /// Returns the first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Says whether an address lies inside, or would with a wild index.
    pub(super) fn reaches(&self, address: usize) -> bool {
        self.offset(address).is_some()
    }

    /// Makes all of it zero, and allowed.
    ///
    /// # Safety
    /// Nobody uses the memory any more.
    pub unsafe fn clear(&self) {
        // SAFETY: the caller's promise; the range is ours.
        unsafe { self.base.write_bytes(0, self.len_bytes) };
        self.forbidden.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.lives.iter().for_each(|life| life.store(0, Ordering::Relaxed));
    }

    /// Forbids the whole words of a range.
    pub(super) fn forbid(&self, address: usize, len_bytes: usize) {
        self.mark(address, len_bytes, |word, mask| word | mask);
    }

    /// Allows the whole words of a range.
    pub(super) fn permit(&self, address: usize, len_bytes: usize) {
        self.mark(address, len_bytes, |word, mask| word & !mask);
        let Some(offset) = self.offset(address) else { return };
        let lines = offset / LINE_BYTES..(offset + len_bytes).div_ceil(LINE_BYTES);
        self.lives[lines].iter().for_each(|life| {
            life.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Returns how often the line of an address was given out; 0 outside.
    pub(super) fn life(&self, address: usize) -> u32 {
        let line = self.offset(address).and_then(|offset| self.lives.get(offset / LINE_BYTES));
        line.map_or(0, |life| life.load(Ordering::Relaxed))
    }

    fn mark(&self, address: usize, len_bytes: usize, change: impl Fn(u64, u64) -> u64) {
        let Some(offset) = self.offset(address) else { return };
        let (first, last) = (offset / WORD_BYTES, (offset + len_bytes) / WORD_BYTES);
        let mut word = first;
        while word < last {
            let (index, bit) = (word / 64, word % 64);
            let count = (64 - bit).min(last - word);
            let mask = (u64::MAX >> (64 - count)) << bit;
            if let Some(cell) = self.forbidden.get(index) {
                cell.store(change(cell.load(Ordering::Relaxed), mask), Ordering::Relaxed);
            }
            word += count;
        }
    }

    fn offset(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base.as_ptr().addr());
        (offset < self.len_bytes + self.reach_bytes).then_some(offset)
    }

    /// Says what is wrong with an access, if anything.
    #[inline]
    pub(super) fn check(&self, address: usize, len_bytes: usize) -> Option<String> {
        let Some(offset) = self.offset(address) else {
            return (!(PAGE_BYTES..USER_END).contains(&address))
                .then(|| format!("access to {address:#x}, which is no address"));
        };
        if offset + len_bytes > self.len_bytes {
            return Some(format!("access to frame {}, which does not exist", offset / PAGE_BYTES));
        }
        let words = offset / WORD_BYTES..(offset + len_bytes.max(1)).div_ceil(WORD_BYTES);
        let is_forbidden = |&word: &usize| self.forbidden[word / 64].load(Ordering::Relaxed) >> (word % 64) & 1 != 0;
        let bad = words.into_iter().find(is_forbidden)?;
        Some(format!("access to freed memory: byte {} of frame {}", bad * WORD_BYTES % PAGE_BYTES, offset / PAGE_BYTES))
    }
}

/// Takes addresses that nobody may access yet.
fn reserve(len_bytes: usize) -> Option<*mut libc::c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len_bytes, libc::PROT_NONE, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start)
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and its users are gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len_bytes + self.reach_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_words_are_found_and_no_others() {
        let arena = Arena::new(3 * PAGE_BYTES).expect("room");
        let base = arena.base().as_ptr().addr();
        arena.forbid(base + 1000, 800);
        for (offset, len, is_bad) in
            [(992, 8, false), (1000, 1, true), (1796, 8, true), (1800, 8, false), (0, 4096, true)]
        {
            assert_eq!(arena.check(base + offset, len).is_some(), is_bad, "{offset}");
        }
        arena.permit(base + 1000, 600);
        assert!(arena.check(base + 1592, 8).is_none() && arena.check(base + 1600, 8).is_some());
        assert!(arena.check(base + 3 * PAGE_BYTES - 8, 8).is_none());
        assert!(arena.check(base + 3 * PAGE_BYTES, 8).is_some());
        assert!(arena.check(base + arena.reach_bytes, 8).is_some());
        assert!(arena.check(base - 8, 8).is_none(), "not ours to judge");
    }
}
