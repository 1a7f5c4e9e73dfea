//! The pattern: its bytes, kept where no allocator is needed, and where it repeats.
//!
//! # Guarantee
//! A pattern's bytes lie in a read-only mapping of their own, repeated to at least one page (the
//! *block*), so that a file or a range is filled by long copies.

use crate::{Error, sys};

/// The bytes to repeat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    block: *mut u8,
    /// A multiple of `len`.
    block_len: usize,
    len: usize,
    is_zero: bool,
}

impl Pattern {
    /// A pattern of nothing, for a place that is not in use.
    pub(crate) const NONE: Pattern = Pattern { block: std::ptr::null_mut(), block_len: 0, len: 0, is_zero: true };

    /// Copies `content` into a mapping of its own.
    pub(crate) fn new(content: &[u8]) -> Result<Pattern, Error> {
        let len = content.len();
        if len == 0 {
            return Err(Error::EmptyPattern);
        }
        let too_large = Error::TooLarge { len };
        let block_len = sys::page_len().checked_next_multiple_of(len).ok_or(too_large)?;
        let mapped = sys::round_to_pages(block_len).ok_or(too_large)?;
        let block = sys::map_anonymous(mapped).map_err(|_| Error::OutOfMemory { len: mapped })?;
        // SAFETY: the block is fresh, writable and `block_len` bytes long.
        let bytes = unsafe { std::slice::from_raw_parts_mut(block, block_len) };
        bytes.chunks_exact_mut(len).for_each(|chunk| chunk.copy_from_slice(content));
        // SAFETY: nobody writes to it any more. Where it fails, it stays writable, no worse.
        let _ = unsafe { sys::make_read_only(block, mapped) };
        Ok(Pattern { block, block_len, len, is_zero: content.iter().all(|byte| *byte == 0) })
    }

    /// Gives the block's memory back.
    ///
    /// # Safety
    /// Nobody uses the pattern, or a copy of it, any more.
    pub(crate) unsafe fn free(self) {
        if let Some(mapped) = sys::round_to_pages(self.block_len).filter(|len| *len > 0) {
            // SAFETY: `new` mapped exactly this range; the caller's promise.
            unsafe { sys::unmap(self.block, mapped) };
        }
    }

    /// Returns the pattern, repeated to at least one page.
    pub(crate) fn block(&self) -> &[u8] {
        // SAFETY: `new` initialised `block_len` bytes, which stay until `free`.
        unsafe { std::slice::from_raw_parts(self.block, self.block_len) }
    }

    /// Returns the pattern once.
    pub(crate) fn content(&self) -> &[u8] {
        &self.block()[..self.len]
    }

    /// Returns whether every byte is zero: then plain anonymous memory has the pattern already.
    pub(crate) fn is_zero(&self) -> bool {
        self.is_zero
    }

    /// Returns after how many bytes pattern and page begin together again.
    pub(crate) fn period(&self) -> Option<usize> {
        let page = sys::page_len();
        (self.len / greatest_common_divisor(self.len, page)).checked_mul(page)
    }

    /// Writes the pattern to `into`, whose first byte is byte `offset` of an allocation (I3).
    pub(crate) fn fill(&self, into: &mut [u8], offset: usize) {
        if self.len == 1 {
            return into.fill(self.content()[0]);
        }
        let block = self.block();
        let phase = offset % self.len;
        let (head, rest) = into.split_at_mut(into.len().min(block.len() - phase));
        head.copy_from_slice(&block[phase..phase + head.len()]);
        rest.chunks_mut(block.len()).for_each(|chunk| chunk.copy_from_slice(&block[..chunk.len()]));
    }

    /// Returns whether `bytes`, whose first is byte `offset` of an allocation, are the pattern.
    pub(crate) fn matches(&self, bytes: &[u8], offset: usize) -> bool {
        let block = self.block();
        let phase = offset % self.len;
        let (head, rest) = bytes.split_at(bytes.len().min(block.len() - phase));
        head == &block[phase..phase + head.len()]
            && rest.chunks(block.len()).all(|chunk| chunk == &block[..chunk.len()])
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(content: &[u8], offset: usize, len: usize) -> Vec<u8> {
        (offset..offset + len).map(|i| content[i % content.len()]).collect()
    }

    #[test]
    fn fill_keeps_the_phase_at_every_offset() {
        for len in [1, 2, 3, 12, 4095, 4096, 4097, 9000] {
            let content: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
            let pattern = Pattern::new(&content).unwrap();
            for offset in [0, 1, 11, 4095, 4096, 12_345] {
                let mut got = vec![0; 20_001];
                pattern.fill(&mut got, offset);
                assert_eq!(got, expected(&content, offset, got.len()), "{len} at {offset}");
            }
            for offset in [0, 1, 4095, 12_345] {
                let mut bytes = expected(&content, offset, 10_000);
                assert!(pattern.matches(&bytes, offset), "{len} at {offset}");
                bytes[9_999] ^= 1;
                assert!(!pattern.matches(&bytes, offset), "{len} at {offset}");
            }
            // SAFETY: the pattern is not used below.
            unsafe { pattern.free() };
        }
    }

    #[test]
    fn period_is_where_pattern_and_page_meet() {
        let page = sys::page_len();
        for (len, want) in [(1, page), (12, 3 * page), (page, page), (2 * page, 2 * page), (7, 7 * page)] {
            let pattern = Pattern::new(&vec![1; len]).unwrap();
            assert_eq!(pattern.period(), Some(want));
        }
    }

    #[test]
    fn a_pattern_of_no_bytes_is_refused() {
        assert_eq!(Pattern::new(&[]).unwrap_err(), Error::EmptyPattern);
    }
}
