//! Page-table entries: the bits of the x86-64 hardware.
//!
//! # Guarantee
//! An [`Entry`] has the layout of the processor's own 4 KiB entries (Intel SDM volume 3A, section 4.5), so that a
//! later platform can point the hardware at the same tables. Software bits are among those that it ignores.

use bitflags::bitflags;
use faultless_phys::Pfn;

bitflags! {
    /// The bits of an entry that aren't the frame's address.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EntryFlags: u64 {
        /// P: the entry may be used.
        const PRESENT = 1 << 0;
        /// R/W: stores are allowed.
        const WRITE = 1 << 1;
        /// U/S: user mode may use it.
        const USER = 1 << 2;
        /// A: used since the bit was cleared.
        const ACCESSED = 1 << 5;
        /// D: written since the bit was cleared.
        const DIRTY = 1 << 6;
        /// Software (bit 9): the frame is not counted: the zero page, or a reference page.
        const SPECIAL = 1 << 9;
        /// Software (bit 10): of private memory, that no fork shares it (Linux's PageAnonExclusive); of shared memory,
        /// that it was written back (msync) since the last store.
        const EXCLUSIVE = 1 << 10;
        /// Software (bit 11), of entries that are not present and hold no frame: an access is a bad one
        /// (`MADV_GUARD_INSTALL`).
        const GUARD = 1 << 11;
        /// Software (bit 52): not stored to since [`Space::collect_written`](crate::Space::collect_written) looked; never
        /// with WRITE.
        const COLLECTED = 1 << 52;
        /// Software (bit 53): memory is promised here, whether there is a page or not
        /// ([`Entry::promise`]).
        const PROMISED = 1 << 53;
        /// Software (bit 54): the promise allows loads.
        const MAY_READ = 1 << 54;
        /// Software (bit 55): the promise allows stores.
        const MAY_WRITE = 1 << 55;
        /// Software (bit 56): the frame is a page of a memory object, which keeps it: the entry holds no reference.
        const OBJECT = 1 << 56;
        /// The protection key in bits 59 to 62 is 1, the one whose loads and stores are forbidden; else it is 0.
        const EXECUTE_ONLY = 1 << 59;
        /// XD: fetches are forbidden.
        const NO_EXECUTE = 1 << 63;
    }
}

const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// One entry as a value.
///
/// ```
/// use faultless_phys::Pfn;
/// use faultless_vm::{Entry, EntryFlags, Protection, State};
///
/// let page = Entry::new(Pfn::new(5), EntryFlags::PRESENT | EntryFlags::USER | EntryFlags::ACCESSED);
/// assert!(page.is_present() && page.holds_frame() && !page.is_writable() && !page.is_special());
/// // A page of a file: the file keeps it.
/// let of_file = page.with(EntryFlags::OBJECT);
/// assert!(page.holds_reference() && of_file.is_of_object() && of_file.holds_frame() && !of_file.holds_reference());
/// assert_eq!((page.pfn(), page.state()), (Pfn::new(5), State::Page));
/// let stored = page.with(EntryFlags::WRITE).written();
/// assert!(stored.has(EntryFlags::DIRTY) && stored.flags().contains(EntryFlags::WRITE));
/// assert_eq!(stored.without(EntryFlags::WRITE | EntryFlags::DIRTY), page);
/// assert_eq!(Entry::from_bits(page.bits()), page);
///
/// // No frame.
/// assert!(Entry::EMPTY.is_empty() && Entry::EMPTY.is_vacant() && Entry::GUARD.is_guard() && Entry::HOLE.is_hole());
/// // An upper entry, which leads to a table.
/// assert!(Entry::table(Pfn::new(6)).is_present());
///
/// // Memory that is there by its entry alone.
/// let promised = Entry::promise(Protection::READ);
/// assert_eq!((promised.state(), promised.promised()), (State::Promised, Some(Protection::READ)));
/// assert_eq!(promised.promising(Protection::empty()).promised(), Some(Protection::empty()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(u64);

impl Entry {
    /// Nothing mapped.
    pub const EMPTY: Self = Self(0);
    /// A page that must not be touched: no frame, but not empty either.
    pub const GUARD: Self = Self(EntryFlags::GUARD.bits());

    /// In an object's tree: a page that was removed, and is zeros.
    pub const HOLE: Self = Self::GUARD;

    /// Returns the entry with these 64 bits.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the 64 bits.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns an entry for a frame.
    #[inline]
    pub fn new(pfn: Pfn, flags: EntryFlags) -> Self {
        Self(pfn.address().get() & ADDRESS | flags.bits())
    }

    /// Returns an upper-level entry for a table.
    #[inline]
    pub fn table(pfn: Pfn) -> Self {
        Self::new(pfn, EntryFlags::PRESENT | EntryFlags::WRITE | EntryFlags::USER | EntryFlags::ACCESSED)
    }

    /// Says whether nothing is mapped.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Says whether no page is here, and none is forbidden: a fault finds nothing, or a promise.
    #[inline]
    pub const fn is_vacant(self) -> bool {
        self.0 & (ADDRESS | EntryFlags::GUARD.bits()) == 0
    }

    /// Says whether the entry may be used.
    #[inline]
    pub const fn is_present(self) -> bool {
        self.0 & EntryFlags::PRESENT.bits() != 0
    }

    /// Says whether stores are allowed.
    #[inline]
    pub const fn is_writable(self) -> bool {
        self.has(EntryFlags::WRITE)
    }

    /// Says whether the frame is one that nobody counts: the zero page, or a reference page.
    #[inline]
    pub const fn is_special(self) -> bool {
        self.has(EntryFlags::SPECIAL)
    }

    /// Says whether the page must not be touched.
    #[inline]
    pub const fn is_guard(self) -> bool {
        self.has(EntryFlags::GUARD)
    }

    /// Says whether the page was removed from its object.
    #[inline]
    pub const fn is_hole(self) -> bool {
        self.has(EntryFlags::GUARD)
    }

    /// Says whether the entry holds a page that counts as resident: any but the zero page and reference pages.
    #[inline]
    pub const fn holds_frame(self) -> bool {
        self.0 & ADDRESS != 0 && self.0 & EntryFlags::SPECIAL.bits() == 0
    }

    /// Says whether the entry holds a reference to its frame: not where a memory object keeps the page.
    #[inline]
    pub const fn holds_reference(self) -> bool {
        self.0 & ADDRESS != 0 && self.0 & EntryFlags::SPECIAL.union(EntryFlags::OBJECT).bits() == 0
    }

    /// Says whether the page is a memory object's own.
    #[inline]
    pub const fn is_of_object(self) -> bool {
        self.has(EntryFlags::OBJECT)
    }

    /// Says whether all of `flags` are set.
    #[inline]
    pub const fn has(self, flags: EntryFlags) -> bool {
        self.0 & flags.bits() == flags.bits()
    }

    /// Returns the frame.
    #[inline]
    pub fn pfn(self) -> Pfn {
        Pfn::new(((self.0 & ADDRESS) >> 12) as u32)
    }

    /// Returns the entry's flags.
    #[inline]
    pub const fn flags(self) -> EntryFlags {
        EntryFlags::from_bits_truncate(self.0)
    }

    /// Returns the entry with `flags` set.
    #[inline]
    pub const fn with(self, flags: EntryFlags) -> Self {
        Self(self.0 | flags.bits())
    }

    /// Returns the entry of a page that stores may reach, and that holds data.
    #[inline]
    pub const fn written(self) -> Self {
        self.with(EntryFlags::WRITE.union(EntryFlags::DIRTY)).without(EntryFlags::COLLECTED)
    }

    /// Returns the entry of a page of shared memory that was written back: its next store faults.
    #[inline]
    pub(crate) const fn written_back(self) -> Self {
        self.without(EntryFlags::WRITE).with(EntryFlags::EXCLUSIVE)
    }

    /// Says whether a page of shared memory was written back since the last store.
    #[inline]
    pub(crate) const fn is_written_back(self) -> bool {
        self.has(EntryFlags::EXCLUSIVE)
    }

    /// Returns the entry with `flags` cleared.
    #[inline]
    pub const fn without(self, flags: EntryFlags) -> Self {
        Self(self.0 & !flags.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upper_entry_takes_no_right_away() {
        let (pfn, entry) = (Pfn::new(0x12_3456), Entry::table(Pfn::new(0x12_3456)));
        // A walk needs the right at every level.
        assert!(entry.flags().contains(EntryFlags::PRESENT | EntryFlags::WRITE | EntryFlags::USER));
        assert!(!entry.flags().contains(EntryFlags::NO_EXECUTE) && entry.pfn() == pfn && entry.is_present());
    }
}
