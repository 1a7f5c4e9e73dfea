//! What all threads use at once: counters seen by children, a region that everybody changes, the list of spaces.

use crate::known::{MARK, RW, anonymous};
use crate::worker::Worker;
use faultless_platform::native::Native;
use faultless_vm::design::Design;
use faultless_vm::{AddressRange, Advice, AreaFlags, Guest, PAGE, SpaceRef, VirtAddr};
use std::sync::atomic::Ordering;

/// Where the counters' pages are, one for each thread.
pub(crate) const COUNTERS: u64 = 0x30_0000_0000;
/// A region that all threads change; it spans two page tables.
const SHARED_BASE: u64 = 0x20_0000_0000 - 8 * PAGE;
const SHARED_PAGES: u64 = 16;

impl<'vm, D: Design<Native>> Worker<'_, 'vm, D> {
    pub fn count_up(&mut self) {
        let cell = &self.shared.counters[self.thread as usize];
        // SeqCst in this file: the run's own knowledge must not depend on an ordering that it tests.
        let next = cell.load(Ordering::SeqCst) + 1;
        let address = COUNTERS + self.thread * PAGE;
        let Some(before) = self.patience.given("counters stay mapped", self.guest.load(VirtAddr::new(address))) else {
            return;
        };
        assert_eq!(before.0, next - 1, "the parent's counter went back");
        let stored = self.guest.store(VirtAddr::new(address), next);
        if self.patience.given("counters stay mapped", stored).is_some() {
            cell.store(next, Ordering::SeqCst);
        }
    }

    fn counted(&self) -> Vec<u64> {
        self.shared.counters.iter().map(|cell| cell.load(Ordering::SeqCst)).collect()
    }

    /// Returns a child of the space.
    pub fn child(&mut self) -> Option<SpaceRef<'vm, Native, D>> {
        self.patience.given("a fork", self.shared.space.fork())
    }

    pub fn fork(&mut self) {
        let before = self.counted();
        let Some(child) = self.child() else { return };
        let after: Vec<u64> = self.counted().iter().map(|count| count + 1).collect();
        let guest = Guest::new(&child);
        for (thread, (before, after)) in before.iter().zip(&after).enumerate() {
            let loaded = guest.load(VirtAddr::new(COUNTERS + thread as u64 * PAGE));
            let Some((seen, _)) = self.patience.given("counters are inherited", loaded) else { continue };
            assert!((*before..=*after).contains(&seen), "the child sees {seen}, not {before} to {after}");
        }
        (0..self.pages.len()).for_each(|page| self.look_at_childs_page(&guest, page));
    }

    fn look_at_childs_page(&mut self, guest: &Guest<'_, Native, D>, page: usize) {
        let (known, address) = (self.pages[page], self.address(page as u64));
        let Some(rights) = known.rights.filter(|rights| !rights.is_empty()) else { return };
        if let Some((value, _)) = self.patience.given("a child's page", guest.load(VirtAddr::new(address))) {
            assert_eq!(value, known.value, "the child's page {page}");
        }
        if rights == RW && page.is_multiple_of(3) {
            self.patience.given("the child's own copy", guest.store(VirtAddr::new(address), MARK | 0xc1d));
        }
    }

    pub fn touch_shared(&mut self) {
        let space = self.shared.space;
        let address = SHARED_BASE + self.random.u64(0..SHARED_PAGES) * PAGE;
        match self.random.u32(0..10) {
            0 => drop(space.munmap(AddressRange::new(VirtAddr::new(address), PAGE * 2))),
            1..=2 => drop(space.mmap(&anonymous(address, PAGE))),
            3 => drop(
                space.madvise(AddressRange::new(VirtAddr::new(SHARED_BASE), SHARED_PAGES * PAGE), Advice::DontNeed),
            ),
            4 => drop(space.mprotect(
                AddressRange::new(VirtAddr::new(address), PAGE),
                [AreaFlags::READ, RW][self.random.usize(0..2)].protection(),
            )),
            5..=6 => drop(self.guest.store(VirtAddr::new(address), MARK | address)),
            _ => {
                if let Ok((value, _)) = self.guest.load(VirtAddr::new(address)) {
                    assert!(value == 0 || value == MARK | address, "{address:#x} holds {value:#x}");
                }
            }
        }
    }

    /// Looks at all spaces that there are, whoever made them.
    pub fn visit_all(&self) {
        self.shared.world.vm.for_each_space(|space| {
            let mut has_counters = false;
            space.for_each_area(|area| has_counters |= area.range.start().get() == COUNTERS);
            assert!(has_counters, "a space that is not whole is listed");
        });
    }
}
