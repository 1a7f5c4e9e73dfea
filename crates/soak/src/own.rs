//! A thread's own region: nobody else changes it, so each answer is known beforehand.

use crate::known::{OWN_PAGES, Page, RW, anonymous};
use crate::worker::Worker;
use faultless_platform::PAGE_BYTES;
use faultless_platform::native::Native;
use faultless_vm::design::Design;
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, Backing, CallError, MapRequest, PAGE, Pattern, PinKind,
    RemapPlacement, RemapRequest, VirtAddr,
};
use std::ops::Range;

const OWN_BASE: u64 = 0x10_0000_0000;

fn places(pages: &Range<u64>) -> Range<usize> {
    pages.start as usize..pages.end as usize
}

impl<D: Design<Native>> Worker<'_, '_, D> {
    /// Returns a page's address. The region ends in the middle of a table and begins in the one before.
    pub fn address(&self, page: u64) -> u64 {
        OWN_BASE + (self.thread + 1) * (4 << 20) - OWN_PAGES / 2 * PAGE + page * PAGE
    }

    fn some_range(&mut self) -> (Range<u64>, u64) {
        let first = self.random.u64(0..OWN_PAGES);
        let len = 1 + self.random.u64(0..(OWN_PAGES - first).min(12));
        (first..first + len, len * PAGE)
    }

    pub fn store(&mut self) {
        let page = self.random.u64(0..OWN_PAGES);
        let (address, value) = (self.address(page), self.fresh_value());
        let stored = self.guest.store(VirtAddr::new(address), value).map(drop);
        let Some(result) = self.patience.judged(stored) else { return };
        let known = &mut self.pages[page as usize];
        match known.rights {
            None => assert_eq!(result, Err(AccessError::NotMapped { address: VirtAddr::new(address) })),
            Some(rights) if rights.contains(AreaFlags::WRITE) => {
                assert_eq!(result, Ok(()));
                known.value = value;
            }
            Some(_) => assert_eq!(result, Err(AccessError::Forbidden { address: VirtAddr::new(address) })),
        }
    }

    pub fn load(&mut self) {
        let page = self.random.u64(0..OWN_PAGES);
        let (address, known) = (self.address(page), self.pages[page as usize]);
        let loaded = self.guest.load(VirtAddr::new(address)).map(|(value, _)| value);
        let Some(result) = self.patience.judged(loaded) else { return };
        match known.rights {
            None => assert_eq!(result, Err(AccessError::NotMapped { address: VirtAddr::new(address) })),
            Some(rights) if rights.is_empty() => {
                assert_eq!(result, Err(AccessError::Forbidden { address: VirtAddr::new(address) }))
            }
            Some(_) => assert_eq!(result, Ok(known.value), "thread {} page {page}", self.thread),
        }
    }

    pub fn map(&mut self) {
        let (pages, len_bytes) = self.some_range();
        let address = self.address(pages.start);
        let byte = 1 + self.random.u8(0..3);
        let (backing, untouched) = match (self.random.u32(0..4), &self.reference) {
            (0, _) => (Backing::Pattern(Pattern::Byte(byte)), Pattern::Byte(byte).word()),
            // Neighbours continue each other, so that they may be joined.
            (1, Some((handle, word))) => (Backing::Reference(handle, pages.start * PAGE), *word),
            _ => (Backing::Anonymous, 0),
        };
        let mapped = self.shared.space.mmap(&MapRequest { backing, ..anonymous(address, len_bytes) });
        let Some(result) = self.patience.judged(mapped) else { return };
        assert_eq!(result, Ok(VirtAddr::new(address)));
        self.pages[places(&pages)].fill(Page { rights: Some(RW), value: untouched, untouched });
        self.change_reference();
    }

    /// Now and then makes another reference page, of arbitrary content or of one byte; areas keep the old one.
    fn change_reference(&mut self) {
        if self.random.u32(0..8) != 0 {
            return;
        }
        let word = self.fresh_value();
        let mut content = [word; PAGE_BYTES / 8];
        if self.random.bool() {
            content[PAGE_BYTES / 16] = 1;
        }
        let made = self.shared.world.vm.create_reference(&content).map_err(CallError::from);
        let made = self.patience.given("a reference page", made);
        self.reference = made.map(|handle| (handle, word));
    }

    /// Pins a page, compares what it holds, and keeps the pin for a while.
    pub fn pin(&mut self) {
        let page = self.random.u64(0..OWN_PAGES);
        let (address, known) = (self.address(page), self.pages[page as usize]);
        let kind = [PinKind::Read, PinKind::Write, PinKind::LongTermRead][self.random.usize(0..3)];
        let Some(result) = self.patience.judged(self.shared.space.pin(VirtAddr::new(address), kind)) else { return };
        let needed = if kind == PinKind::Write { AreaFlags::WRITE } else { AreaFlags::READ };
        match (known.rights, result) {
            (Some(rights), Ok(pin)) if rights.contains(needed) => {
                let mut words = [0];
                pin.read(0, &mut words);
                assert_eq!(words, [known.value], "thread {} page {page}, {kind:?}", self.thread);
                self.pins.push(pin);
            }
            (rights, Err(error)) if rights.is_none_or(|rights| !rights.contains(needed)) => {
                assert_eq!(error, CallError::BadBuffer { address: VirtAddr::new(address) });
            }
            (rights, result) => panic!("{kind:?} of {address:#x} with {rights:?}: {:?}", result.map(drop)),
        }
        if self.pins.len() > 4 {
            let nth = self.random.usize(0..self.pins.len());
            self.pins.swap_remove(nth);
        }
    }

    pub fn unmap(&mut self) {
        let (pages, len_bytes) = self.some_range();
        let unmapped = self.shared.space.munmap(AddressRange::new(VirtAddr::new(self.address(pages.start)), len_bytes));
        let Some(result) = self.patience.judged(unmapped) else { return };
        assert_eq!(result, Ok(()));
        self.pages[places(&pages)].fill(Page::UNMAPPED);
    }

    pub fn protect(&mut self) {
        let (pages, len_bytes) = self.some_range();
        let rights = [RW, AreaFlags::READ, AreaFlags::empty()][self.random.usize(0..3)];
        let protected = self
            .shared
            .space
            .mprotect(AddressRange::new(VirtAddr::new(self.address(pages.start)), len_bytes), rights.protection());
        let Some(result) = self.patience.judged(protected) else { return self.learn_rights(pages, rights) };
        for page in pages {
            let address = self.address(page);
            let known = &mut self.pages[page as usize];
            if known.rights.is_none() {
                assert_eq!(result, Err(CallError::Unmapped { address: VirtAddr::new(address) }));
                return;
            }
            known.rights = Some(rights);
        }
        assert_eq!(result, Ok(()));
    }

    pub fn advise(&mut self) {
        let (pages, len_bytes) = self.some_range();
        let advice = if self.random.u32(0..4) == 0 { Advice::Free } else { Advice::DontNeed };
        let advised =
            self.shared.space.madvise(AddressRange::new(VirtAddr::new(self.address(pages.start)), len_bytes), advice);
        let Some(result) = self.patience.judged(advised) else { return self.learn_values(pages) };
        let range = &mut self.pages[places(&pages)];
        assert_eq!(result.is_ok(), range.iter().all(|page| page.rights.is_some()));
        if advice == Advice::DontNeed {
            range.iter_mut().for_each(|page| page.value = page.untouched);
        }
    }

    /// Moves a run of pages with the same rights within the region.
    pub fn remap(&mut self) {
        let (from, len_bytes) = self.some_range();
        let len = from.end - from.start;
        let to = self.random.u64(0..OWN_PAGES - len + 1);
        let moved = self.shared.space.mremap(&RemapRequest {
            old: AddressRange::new(VirtAddr::new(self.address(from.start)), len_bytes),
            new_len_bytes: len_bytes,
            placement: RemapPlacement::Fixed(VirtAddr::new(self.address(to))),
            keeps_source: false,
        });
        let Some(result) = self.patience.judged(moved) else { return self.learn_moved(from, to) };
        let old: Vec<Page> = self.pages[places(&from)].to_vec();
        if from.start.abs_diff(to) < len {
            assert!(result.is_err(), "an overlap was accepted");
        } else if result.is_ok() {
            // Holes do not move: what the target held there stays.
            for (page, old) in old.iter().enumerate().filter(|(_, old)| old.rights.is_some()) {
                self.pages[to as usize + page] = *old;
            }
            self.pages[places(&from)].fill(Page::UNMAPPED);
        } else {
            // Holes, or areas that can't move together; what the target held may be gone only if the move happened.
            assert!(len > 1 || old[0].rights.is_none(), "{result:?}");
        }
    }
}

/// A call over several areas that finds no frame half way has done those before: what it did is a beginning of its
/// range.
impl<D: Design<Native>> Worker<'_, '_, D> {
    /// Returns the rights of the region's pages, as the space lists them.
    fn listed(&self) -> Vec<Option<AreaFlags>> {
        let mut listed = vec![None; OWN_PAGES as usize];
        self.shared.space.for_each_area(|area| {
            for (page, rights) in listed.iter_mut().enumerate() {
                if area.range.contains(VirtAddr::new(self.address(page as u64))) {
                    *rights = Some(area.flags & AreaFlags::RIGHTS);
                }
            }
        });
        listed
    }

    fn learn_rights(&mut self, pages: Range<u64>, rights: AreaFlags) {
        let listed = self.listed();
        let nr_done = places(&pages).take_while(|&page| listed[page] == Some(rights)).count();
        self.pages[places(&pages)][..nr_done].iter_mut().for_each(|page| page.rights = Some(rights));
        self.compare_with(&listed, "mprotect");
    }

    fn learn_moved(&mut self, from: Range<u64>, to: u64) {
        let listed = self.listed();
        let source = |nth: &u64| (from.start + nth) as usize;
        let mapped: Vec<u64> =
            (0..from.end - from.start).filter(|nth| self.pages[source(nth)].rights.is_some()).collect();
        for nth in mapped.iter().take_while(|nth| listed[source(nth)].is_none()) {
            self.pages[(to + nth) as usize] = self.pages[source(nth)];
            self.pages[source(nth)] = Page::UNMAPPED;
        }
        self.compare_with(&listed, "mremap");
    }

    fn compare_with(&self, listed: &[Option<AreaFlags>], call: &str) {
        let known: Vec<_> = self.pages.iter().map(|page| page.rights).collect();
        assert_eq!(listed, known, "a {call} that found no frame left something else than a beginning of its range");
    }

    /// Looks at pages whose content may be given up; what stands behind the first that is kept must be kept.
    fn learn_values(&mut self, pages: Range<u64>) {
        for page in pages {
            let (known, address) = (self.pages[page as usize], self.address(page));
            if known.rights.is_none_or(|rights| rights.is_empty()) {
                continue;
            }
            let value = loop {
                if let Some((value, _)) =
                    self.patience.given("a page of one's own", self.guest.load(VirtAddr::new(address)))
                {
                    break value;
                }
            };
            assert!(value == known.untouched || value == known.value, "{value:#x} instead of {:#x}", known.value);
            self.pages[page as usize].value = value;
        }
    }
}
