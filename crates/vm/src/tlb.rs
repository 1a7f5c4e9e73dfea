//! A software TLB: what one CPU remembers of the page tables.
//!
//! # Guarantee
//! Like hardware: it answers from its own copy, also when the tables say otherwise by now. That makes it the witness
//! of missing shootdowns. Direct-mapped, tagged by address space.

use crate::access::Access;
use crate::addr::{PAGE, PageRange, VirtAddr};
use crate::entry::{Entry, EntryFlags};

/// Entries of a CPU's TLB.
const SIZE: usize = 256;
/// Above this many pages a range is flushed by dropping everything (Linux's default ceiling is 33).
const FLUSH_ALL_PAGES: u64 = 33;

/// Names an address space; never used twice by one instance. 0 is none.
pub type SpaceId = u64;

/// One remembered translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The address space.
    pub space: SpaceId,
    /// First byte of the page.
    pub address: u64,
    /// The page-table entry at the time of the walk.
    pub entry: Entry,
}

const NONE: Translation = Translation { space: 0, address: 0, entry: Entry::EMPTY };

/// A CPU's TLB; see the module. The library has one for each CPU; an emulator may keep one of its own.
///
/// ```
/// use faultless_phys::Pfn;
/// use faultless_vm::{Access, Entry, EntryFlags, PAGE, PageRange, SpaceId, Tlb, Translation, VirtAddr};
///
/// let (mut tlb, space): (Tlb, SpaceId) = (Tlb::new(), 7);
/// let entry = Entry::new(Pfn::new(3), EntryFlags::PRESENT | EntryFlags::ACCESSED);
/// tlb.fill(space, 0x1000, entry);
/// assert_eq!(tlb.lookup(space, 0x1000, Access::Read), Some(entry));
/// assert_eq!(tlb.lookup(space, 0x1000, Access::Write), None, "walk, or fault");
/// let known: Vec<&Translation> = tlb.translations().collect();
/// assert_eq!((known.len(), known[0].address), (1, 0x1000));
/// // What `Embedding::flush` asks for.
/// tlb.invalidate(space, PageRange::new(VirtAddr::new(0x1000), PAGE).expect("user memory"));
/// assert_eq!(tlb.lookup(space, 0x1000, Access::Read), None);
/// tlb.invalidate_space(space);
/// tlb.invalidate_all();
/// ```
pub struct Tlb {
    slots: [Translation; SIZE],
}

impl Tlb {
    /// Returns an empty TLB.
    pub const fn new() -> Self {
        Self { slots: [NONE; SIZE] }
    }

    fn place(address: u64) -> usize {
        (address / PAGE) as usize % SIZE
    }

    /// Returns the remembered entry of a page if it allows `access`; a store needs the dirty bit too, else the CPU
    /// walks.
    #[inline]
    pub fn lookup(&self, space: SpaceId, page: u64, access: Access) -> Option<Entry> {
        let slot = &self.slots[Self::place(page)];
        (slot.space == space && slot.address == page && allows(slot.entry, access)).then_some(slot.entry)
    }

    /// Remembers an entry.
    #[inline]
    pub fn fill(&mut self, space: SpaceId, page: u64, entry: Entry) {
        self.slots[Self::place(page)] = Translation { space, address: page, entry };
    }

    /// Forgets what it knows of `range` in `space`.
    pub fn invalidate(&mut self, space: SpaceId, range: PageRange) {
        if range.nr_pages() > FLUSH_ALL_PAGES {
            self.forget(|slot| slot.space == space && range.contains(VirtAddr::new(slot.address)));
            return;
        }
        for page in range.pages() {
            let slot = &mut self.slots[Self::place(page.get())];
            if slot.space == space && slot.address == page.get() {
                *slot = NONE;
            }
        }
    }

    /// Forgets what it knows of `space`.
    pub fn invalidate_space(&mut self, space: SpaceId) {
        self.forget(|slot| slot.space == space);
    }

    /// Forgets everything.
    pub fn invalidate_all(&mut self) {
        self.forget(|_| true);
    }

    fn forget(&mut self, which: impl Fn(&Translation) -> bool) {
        self.slots.iter_mut().filter(|slot| which(slot)).for_each(|slot| *slot = NONE);
    }

    /// Visits what it remembers.
    pub fn translations(&self) -> impl Iterator<Item = &Translation> {
        self.slots.iter().filter(|slot| slot.space != 0)
    }
}

impl Default for Tlb {
    fn default() -> Self {
        Self::new()
    }
}

/// Says whether an entry allows an access without a walk or a fault.
#[inline]
pub fn allows(entry: Entry, access: Access) -> bool {
    match access {
        Access::Read => entry.is_present() && !entry.has(EntryFlags::EXECUTE_ONLY),
        Access::Write => entry.has(EntryFlags::PRESENT | EntryFlags::WRITE | EntryFlags::DIRTY),
        Access::Fetch => entry.is_present() && !entry.has(EntryFlags::NO_EXECUTE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_phys::Pfn;

    fn range(start: u64, pages: u64) -> PageRange {
        PageRange::new(VirtAddr::new(start), pages * PAGE).expect("inside user memory")
    }

    #[test]
    fn forgets_exactly_the_range_of_the_space() {
        let entry = Entry::new(Pfn::new(7), EntryFlags::PRESENT);
        for pages in [2, 100] {
            let mut tlb = Tlb::new();
            tlb.fill(1, 0x1000, entry);
            tlb.fill(1, 0x5000, entry);
            tlb.fill(2, 0x2000, entry);
            tlb.invalidate(1, range(0x1000, pages));
            assert_eq!(tlb.lookup(1, 0x1000, Access::Read), None);
            assert_eq!(tlb.lookup(1, 0x5000, Access::Read).is_some(), pages == 2);
            assert!(tlb.lookup(2, 0x2000, Access::Read).is_some());
        }
    }

    #[test]
    fn a_place_remembers_one_page_of_one_space() {
        let entry = Entry::new(Pfn::new(7), EntryFlags::PRESENT);
        let (near, far) = (0x1000, 0x1000 + SIZE as u64 * PAGE);
        let mut tlb = Tlb::new();
        tlb.fill(1, near, entry);
        assert_eq!(tlb.lookup(1, near, Access::Read), Some(entry));
        assert_eq!([tlb.lookup(1, far, Access::Read), tlb.lookup(2, near, Access::Read)], [None; 2]);
        tlb.fill(1, far, entry);
        assert_eq!((tlb.lookup(1, near, Access::Read), tlb.translations().count()), (None, 1));
        let known = |tlb: &Tlb| tlb.lookup(1, far, Access::Read).is_some();
        for pages in [1, FLUSH_ALL_PAGES, FLUSH_ALL_PAGES + 1] {
            tlb.invalidate(1, range(near, pages));
            tlb.invalidate(2, range(far, pages));
            tlb.invalidate_space(2);
            assert!(known(&tlb), "{pages} pages of others");
            tlb.invalidate(1, range(far, pages));
            assert!(!known(&tlb));
            tlb.fill(1, far, entry);
        }
        tlb.invalidate_space(1);
        assert!(!known(&tlb));
        tlb.fill(1, far, entry);
        tlb.invalidate_all();
        assert_eq!(tlb.translations().count(), 0);
    }

    #[test]
    fn an_entry_allows_what_a_walk_would_find_nothing_to_do_for() {
        let allowed = |flags| {
            let entry = Entry::new(Pfn::new(7), flags);
            [Access::Read, Access::Write, Access::Fetch].map(|access| allows(entry, access))
        };
        let present = EntryFlags::PRESENT;
        assert_eq!(allowed(EntryFlags::empty()), [false; 3]);
        assert_eq!(allowed(present), [true, false, true]);
        assert_eq!(allowed(present | EntryFlags::NO_EXECUTE), [true, false, false]);
        assert_eq!(allowed(present | EntryFlags::EXECUTE_ONLY), [false, false, true]);
        assert_eq!(allowed(present | EntryFlags::DIRTY), [true, false, true]);
        assert_eq!(allowed(present | EntryFlags::WRITE | EntryFlags::DIRTY), [true; 3]);
        assert_eq!(allowed(EntryFlags::WRITE | EntryFlags::DIRTY), [false; 3]);
    }

    #[test]
    fn a_store_needs_write_and_dirty() {
        let mut tlb = Tlb::new();
        let clean = Entry::new(Pfn::new(7), EntryFlags::PRESENT | EntryFlags::WRITE);
        tlb.fill(1, 0x1000, clean);
        assert_eq!(tlb.lookup(1, 0x1000, Access::Write), None);
        tlb.fill(1, 0x1000, clean.with(EntryFlags::DIRTY));
        assert!(tlb.lookup(1, 0x1000, Access::Write).is_some());
    }
}
