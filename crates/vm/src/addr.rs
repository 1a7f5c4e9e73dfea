//! Addresses and ranges of them.
//!
//! # Which type where
//! * [`VirtAddr`]: any 64 bits that a program may use as an address, canonical or not
//! * [`AddressRange`]: bytes as a caller names them; each call says which it refuses, with Linux's error
//! * [`PageRange`]: pages that can be mapped
//!
//! Inside the crate, below the calls, addresses are plain numbers.
//!
//! # Invariants
//! * I1 a [`PageRange`] is page-aligned, not empty, and ends at or below [`USER_END`].

use core::fmt;
use core::ops::{Add, AddAssign, Range, Sub, SubAssign};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// First address that user memory can't have: Linux keeps the last page of the lower half free (x86-64, four levels).
pub const USER_END: u64 = 0x7fff_ffff_f000;

/// All addresses: the range of a call that is about every area, or that does not know its areas yet.
pub(crate) const EVERYTHING: Range<VirtAddr> = VirtAddr::new(0)..VirtAddr::new(u64::MAX);

/// Rounds an address down to its page.
///
/// ```
/// use faultless_vm::{page_ceil, page_floor};
///
/// assert_eq!((page_floor(0x1fff), page_ceil(0x1001), page_ceil(u64::MAX)), (0x1000, Some(0x2000), None));
/// ```
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

/// An address in an address space; any number is one.
///
/// ```
/// use faultless_vm::{PAGE, VirtAddr};
///
/// let address = VirtAddr::new(0x1234);
/// assert_eq!(address.page() + PAGE, VirtAddr::new(0x2000));
/// assert_eq!(address - address.page(), 0x234);
/// assert_eq!(format!("{address}"), "0x1234");
/// assert_eq!((address.get(), address.page_number(), address.is_page_aligned()), (0x1234, 1, false));
/// assert_eq!(VirtAddr::new(u64::MAX).checked_add(1), None);
/// assert_eq!(VirtAddr::new(u64::MAX).saturating_add(1), VirtAddr::new(u64::MAX));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct VirtAddr(u64);

impl VirtAddr {
    /// Returns the address with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the first address of its page.
    #[inline]
    pub const fn page(self) -> Self {
        Self(page_floor(self.0))
    }

    /// Returns the address so many bytes behind, if there is one.
    #[inline]
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }

    /// Returns the address so many bytes behind, or the last one there is.
    #[inline]
    pub const fn saturating_add(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// Returns how many pages lie below its own.
    #[inline]
    pub const fn page_number(self) -> u64 {
        self.0 / PAGE
    }

    /// Says whether it is the first of a page.
    #[inline]
    pub const fn is_page_aligned(self) -> bool {
        is_page_aligned(self.0)
    }
}

impl Add<u64> for VirtAddr {
    type Output = Self;

    #[inline]
    fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl AddAssign<u64> for VirtAddr {
    #[inline]
    fn add_assign(&mut self, bytes: u64) {
        self.0 += bytes;
    }
}

impl Sub<u64> for VirtAddr {
    type Output = Self;

    #[inline]
    fn sub(self, bytes: u64) -> Self {
        Self(self.0 - bytes)
    }
}

impl SubAssign<u64> for VirtAddr {
    #[inline]
    fn sub_assign(&mut self, bytes: u64) {
        self.0 -= bytes;
    }
}

impl Sub for VirtAddr {
    type Output = u64;

    /// The bytes between two addresses.
    #[inline]
    fn sub(self, lower: Self) -> u64 {
        self.0 - lower.0
    }
}

impl From<u64> for VirtAddr {
    #[inline]
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<VirtAddr> for u64 {
    #[inline]
    fn from(address: VirtAddr) -> Self {
        address.0
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x}", self.0)
    }
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x}", self.0)
    }
}

impl fmt::LowerHex for VirtAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, out)
    }
}

/// Bytes as a caller names them: neither aligned nor checked, possibly empty, possibly past the last address.
///
/// ```
/// use faultless_vm::{AddressRange, PageRange, VirtAddr};
///
/// let pages = PageRange::new(VirtAddr::new(0x1000), 0x2000).expect("whole pages of user memory");
/// assert_eq!(AddressRange::from(pages), AddressRange::new(VirtAddr::new(0x1000), 0x2000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first byte.
    pub start: VirtAddr,
    /// How many bytes.
    pub len_bytes: u64,
}

impl AddressRange {
    /// Returns `len_bytes` bytes from `start` on.
    #[inline]
    pub const fn new(start: VirtAddr, len_bytes: u64) -> Self {
        Self { start, len_bytes }
    }
}

impl From<PageRange> for AddressRange {
    fn from(range: PageRange) -> Self {
        Self::new(range.start, range.len_bytes())
    }
}

/// A page-aligned range of user memory.
///
/// ```
/// use faultless_vm::{PAGE, PageRange, VirtAddr};
///
/// let start = VirtAddr::new(0x1000);
/// let range = PageRange::new(start, 0x1001).expect("it lies in user memory");
/// assert_eq!((range.nr_pages(), range.len_bytes(), range.end()), (2, 2 * PAGE, start + 2 * PAGE));
/// assert_eq!(range.pages().last(), Some(start + PAGE));
/// assert!(PageRange::new(start + 1, PAGE).is_none(), "it does not begin at a page");
/// assert_eq!(PageRange::between(start, start + 2 * PAGE), Some(range));
/// assert_eq!(range.intersection(start + PAGE..start + 9 * PAGE), PageRange::new(start + PAGE, PAGE));
/// assert!(range.contains(start) && !range.contains(range.end()) && range.addresses().contains(&start));
/// assert_eq!(PageRange::USER.end().get(), faultless_vm::USER_END);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    start: VirtAddr,
    end: VirtAddr,
}

impl PageRange {
    /// All of user memory.
    pub const USER: Self = Self { start: VirtAddr(0), end: VirtAddr(USER_END) };

    /// Returns the range of `len_bytes`, rounded up to pages, from `start`; `None` unless I1 holds for it.
    #[inline]
    pub fn new(start: VirtAddr, len_bytes: u64) -> Option<Self> {
        let end = start.checked_add(page_ceil(len_bytes)?)?;
        (start.is_page_aligned() && start < end && end.get() <= USER_END).then_some(Self { start, end })
    }

    /// Returns the range between two page-aligned addresses; `None` unless I1 holds for it.
    #[inline]
    pub fn between(start: VirtAddr, end: VirtAddr) -> Option<Self> {
        (start < end && end.is_page_aligned()).then(|| Self::new(start, end - start)).flatten()
    }

    /// Returns an area's range; `area`'s I1 is ours, and the checker's to doubt.
    pub(crate) const fn of_area(start: VirtAddr, end: VirtAddr) -> Self {
        Self { start, end }
    }

    /// Returns the first byte.
    #[inline]
    pub const fn start(self) -> VirtAddr {
        self.start
    }

    /// Returns the first byte behind.
    #[inline]
    pub const fn end(self) -> VirtAddr {
        self.end
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn len_bytes(self) -> u64 {
        self.end.get() - self.start.get()
    }

    /// Returns the number of pages.
    #[inline]
    pub const fn nr_pages(self) -> u64 {
        self.len_bytes() / PAGE
    }

    /// Returns the whole pages inside `other`, if there are any.
    pub fn intersection(self, other: Range<VirtAddr>) -> Option<Self> {
        let first = page_ceil(self.start.max(other.start).get())?;
        Self::between(VirtAddr::new(first), self.end.min(other.end).page())
    }

    /// Says whether `address` lies inside.
    #[inline]
    pub fn contains(self, address: VirtAddr) -> bool {
        self.start <= address && address < self.end
    }

    /// Returns the range as addresses.
    #[inline]
    pub const fn addresses(self) -> Range<VirtAddr> {
        self.start..self.end
    }

    /// Visits the first address of each page.
    pub fn pages(self) -> impl Iterator<Item = VirtAddr> {
        self.numbers().step_by(PAGE as usize).map(VirtAddr::new)
    }

    /// Returns the range as numbers, for tables and what counts in them.
    #[inline]
    pub(crate) const fn numbers(self) -> Range<u64> {
        self.start.get()..self.end.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_user_memory_do_not_exist() {
        let range = |start, len_bytes| PageRange::new(VirtAddr::new(start), len_bytes);
        assert!(range(0x1000, 0).is_none());
        assert!(range(0x1001, 1).is_none());
        assert!(range(USER_END, 1).is_none());
        assert!(range(0, u64::MAX).is_none());
        assert_eq!(range(USER_END - PAGE, 1).map(PageRange::nr_pages), Some(1));
    }

    fn pages(start: u64, end: u64) -> Option<PageRange> {
        PageRange::between(VirtAddr::new(start * PAGE), VirtAddr::new(end * PAGE))
    }

    #[test]
    fn addresses_are_rounded_to_their_pages() {
        let cases = [(0, 0, 0), (1, 0, PAGE), (PAGE - 1, 0, PAGE), (PAGE, PAGE, PAGE), (PAGE + 1, PAGE, 2 * PAGE)];
        for (number, floor, ceil) in cases {
            assert_eq!((page_floor(number), page_ceil(number)), (floor, Some(ceil)), "{number}");
            assert_eq!(VirtAddr::new(number).page(), VirtAddr::new(floor));
            assert_eq!(VirtAddr::new(number).page_number(), floor / PAGE);
            assert_eq!(VirtAddr::new(number).is_page_aligned(), number == floor);
        }
        let last_page = u64::MAX - (PAGE - 1);
        assert_eq!((page_ceil(last_page), page_ceil(last_page + 1)), (Some(last_page), None));
    }

    #[test]
    fn addresses_count_as_numbers_do() {
        let mut address = VirtAddr::from(0x3000);
        assert_eq!((address + 0x10, address - 0x10), (VirtAddr::new(0x3010), VirtAddr::new(0x2ff0)));
        address += 0x20;
        assert_eq!(u64::from(address), 0x3020);
        address -= 0x30;
        assert_eq!(address - VirtAddr::new(0x1000), 0x1ff0);
        let last = VirtAddr::new(u64::MAX);
        assert_eq!((address.checked_add(0x10), last.checked_add(0)), (Some(VirtAddr::new(0x3000)), Some(last)));
        assert_eq!((last.checked_add(1), last.saturating_add(1)), (None, last));
        assert_eq!(address.saturating_add(0x10), VirtAddr::new(0x3000));
        assert_eq!(alloc::format!("{address} {address:?} {address:x} {address:#x}"), "0x2ff0 0x2ff0 2ff0 0x2ff0");
    }

    #[test]
    fn ranges_are_between_page_aligned_addresses_in_order() {
        let (low, high) = (VirtAddr::new(PAGE), VirtAddr::new(3 * PAGE));
        let range = PageRange::between(low, high).expect("in order");
        assert_eq!((range.start(), range.end(), range.addresses()), (low, high, low..high));
        assert_eq!((range.len_bytes(), range.nr_pages()), (2 * PAGE, 2));
        assert_eq!(PageRange::between(low, low), None);
        assert_eq!(PageRange::between(high, low), None);
        assert_eq!(PageRange::between(low + 1, high), None);
        assert_eq!(PageRange::between(low, high + 1), None);
        assert_eq!(PageRange::between(low, VirtAddr::new(USER_END + PAGE)), None);
        assert_eq!(PageRange::between(VirtAddr::new(0), VirtAddr::new(USER_END)), Some(PageRange::USER));
        assert_eq!(AddressRange::from(range), AddressRange { start: low, len_bytes: 2 * PAGE });
    }

    #[test]
    fn what_two_ranges_have_in_common_are_whole_pages() {
        let range = pages(2, 5).expect("in order");
        let within = |start: u64, end: u64| range.intersection(VirtAddr::new(start)..VirtAddr::new(end));
        assert_eq!(within(0, u64::MAX), Some(range));
        assert_eq!(within(3 * PAGE, 4 * PAGE), pages(3, 4));
        assert_eq!(within(2 * PAGE + 1, 4 * PAGE + 1), pages(3, 4), "of a page in part nothing");
        assert_eq!(within(3 * PAGE + 1, 4 * PAGE - 1), None);
        assert_eq!([within(5 * PAGE, 9 * PAGE), within(u64::MAX, u64::MAX), within(4 * PAGE, PAGE)], [None; 3]);
    }

    #[test]
    fn ranges_hold_their_first_byte_and_not_the_one_behind() {
        let range = pages(2, 5).expect("in order");
        let is_in = |address| range.contains(VirtAddr::new(address));
        assert!(is_in(2 * PAGE) && is_in(5 * PAGE - 1));
        assert!(!is_in(2 * PAGE - 1) && !is_in(5 * PAGE));
        assert!(range.pages().eq([2, 3, 4].map(|page| VirtAddr::new(page * PAGE))));
    }

    #[test]
    fn ranges_that_only_touch_have_nothing_in_common() {
        let range = pages(2, 5).expect("in order");
        let common = |start, end| range.intersection(VirtAddr::new(start * PAGE)..VirtAddr::new(end * PAGE));
        assert_eq!([common(0, 2), common(5, 7), common(3, 3)], [None; 3]);
        assert_eq!([common(0, 3), common(4, 9)], [pages(2, 3), pages(4, 5)]);
        assert_eq!([common(3, 4), common(0, 9)], [pages(3, 4), Some(range)]);
    }
}
