//! Addresses and page-aligned ranges.
//!
//! # Invariants
//! * I1 a [`PageRange`] is page-aligned, not empty, and ends at or below [`USER_END`].

use core::ops::Range;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// First address that user memory can't have: Linux keeps the last page of the lower half free (x86-64, four levels).
pub const USER_END: u64 = 0x7fff_ffff_f000;

/// Rounds an address down to its page.
#[inline]
pub const fn page_floor(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// Rounds up to a page; `None` if that exceeds 64 bits.
#[inline]
pub const fn page_ceil(address: u64) -> Option<u64> {
    match address.checked_add(PAGE - 1) {
        Some(sum) => Some(page_floor(sum)),
        None => None,
    }
}

/// Says whether an address is the first of a page.
#[inline]
pub const fn is_page_aligned(address: u64) -> bool {
    address.is_multiple_of(PAGE)
}

/// A page-aligned range of user memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    start: u64,
    end: u64,
}

impl PageRange {
    /// Returns the range of `len_bytes`, rounded up to pages, from `start`; `None` unless I1 holds for it.
    pub fn new(start: u64, len_bytes: u64) -> Option<Self> {
        let end = start.checked_add(page_ceil(len_bytes)?)?;
        (is_page_aligned(start) && start < end && end <= USER_END).then_some(Self { start, end })
    }

    /// Returns the range between two page-aligned addresses; `None` unless I1 holds for it.
    pub fn between(start: u64, end: u64) -> Option<Self> {
        (start < end && is_page_aligned(end)).then(|| Self::new(start, end - start)).flatten()
    }

    /// Returns the first byte.
    #[inline]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Returns the first byte behind.
    #[inline]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn len_bytes(self) -> u64 {
        self.end - self.start
    }

    /// Returns the number of pages.
    #[inline]
    pub const fn nr_pages(self) -> u64 {
        self.len_bytes() / PAGE
    }

    /// Returns the part inside `other`, if there is one.
    pub fn intersection(self, other: Range<u64>) -> Option<Self> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Self { start, end })
    }

    /// Says whether `address` lies inside.
    #[inline]
    pub const fn contains(self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// Returns the range as addresses.
    #[inline]
    pub const fn addresses(self) -> Range<u64> {
        self.start..self.end
    }

    /// Visits the first address of each page.
    pub fn pages(self) -> impl Iterator<Item = u64> {
        (self.start..self.end).step_by(PAGE as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_user_memory_do_not_exist() {
        assert!(PageRange::new(0x1000, 0).is_none());
        assert!(PageRange::new(0x1001, 1).is_none());
        assert!(PageRange::new(USER_END, 1).is_none());
        assert!(PageRange::new(0, u64::MAX).is_none());
        assert_eq!(PageRange::new(USER_END - PAGE, 1).map(PageRange::nr_pages), Some(1));
    }
}
