//! An object that all threads shorten, extend, punch, map, store to and read; a new one each round.

use crate::known::{FILE_PAGES, Known, MARK, RW};
use crate::worker::Worker;
use faultless_platform::PAGE_BYTES;
use faultless_platform::native::Native;
use faultless_vm::design::Design;
use faultless_vm::{
    AccessError, AreaFlags, Backing, FetchError, MapRequest, ObjectHandle, ObjectSpec, PAGE, PageSource, Placement,
    Populate, SpaceRef, VirtAddr, Vm, WriteNotice,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const FILE_SHARED: u64 = 0x40_0000_0000;
const FILE_PRIVATE: u64 = 0x50_0000_0000;
/// Word of a page that the source gives.
const CONTENT: u64 = 0x4242_4242_4242_4242;

/// Content that is zero nowhere, now and then at the second attempt, and never for the last page.
struct Content;

impl PageSource for Content {
    fn fetch(&self, _: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        static NR_FETCHES: AtomicU64 = AtomicU64::new(0);
        match NR_FETCHES.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => Err(FetchError::Retry),
            _ if page_index == FILE_PAGES - 1 => Err(FetchError::Failed),
            _ => {
                page.fill(CONTENT as u8);
                Ok(())
            }
        }
    }
}

/// The round's object, and what is known of it.
pub(crate) struct File<'vm> {
    object: ObjectHandle<'vm, Native>,
    /// Pages of which a removal is over.
    is_cut: [AtomicBool; FILE_PAGES as usize],
    /// Removals that have begun.
    nr_begun: AtomicU64,
    /// Removals that are over: those under way may still take what is stored now.
    nr_ended: AtomicU64,
}

impl<'vm> File<'vm> {
    /// Makes an object and maps it in place of the last one; no shortage is injected meanwhile.
    pub fn new<D: Design<Native>>(vm: &'vm Vm<Native, D>, space: &SpaceRef<'_, Native, D>) -> Self {
        let spec = ObjectSpec {
            identity: 1,
            size_bytes: FILE_PAGES * PAGE,
            source: &Content,
            write_notice: WriteNotice::Fault,
        };
        let object = vm.create_object(&spec).expect("room for an object");
        for (at, kind) in [(FILE_SHARED, AreaFlags::SHARED), (FILE_PRIVATE, AreaFlags::empty())] {
            let request = MapRequest {
                placement: Placement::Fixed(VirtAddr::new(at)),
                len_bytes: FILE_PAGES * PAGE,
                protection: (RW | kind).protection(),
                options: (RW | kind).options(),
                backing: Backing::Object(&object, 0),
                populate: Populate::OnFault,
            };
            space.mmap(&request).expect("room for a mapping");
        }
        Self { object, is_cut: Default::default(), nr_begun: AtomicU64::new(0), nr_ended: AtomicU64::new(0) }
    }

    fn note_cut(&self, pages: std::ops::Range<u64>) {
        pages.for_each(|page| self.is_cut[page as usize].store(true, Ordering::SeqCst));
    }
}

impl<D: Design<Native>> Worker<'_, '_, D> {
    pub fn use_file(&mut self) {
        let file = self.shared.file.read().expect("no panic");
        let page = self.random.u64(0..FILE_PAGES);
        match self.random.u32(0..24) {
            0..=4 => self.remove(&file, page),
            5 => self.child = self.child(),
            // Private copies may go, and nobody else looks at them.
            6..=7 => drop(self.guest.store(VirtAddr::new(FILE_PRIVATE + page * PAGE), MARK)),
            8..=9 => drop(self.guest.load(VirtAddr::new(FILE_PRIVATE + page * PAGE))),
            10..=14 => self.store_to_file(&file, page),
            15..=19 => self.load_from_file(&file, page),
            _ => self.read_file(&file, page),
        }
    }

    /// Truncates, extends or punches. One that fails for want of a frame may have removed or not, and counts as begun.
    fn remove(&mut self, file: &File<'_>, page: u64) {
        // An extension removes, too, if another has made the object longer meanwhile.
        file.nr_begun.fetch_add(1, Ordering::SeqCst);
        let vm = &self.shared.world.vm;
        let (result, cut) = match self.random.u32(0..5) {
            0..=1 => {
                let size = page * PAGE + 8 * self.random.u64(0..8);
                (vm.truncate(&file.object, size), size.div_ceil(PAGE)..FILE_PAGES)
            }
            2..=3 => (vm.truncate(&file.object, FILE_PAGES * PAGE - self.random.u64(0..2)), 0..0),
            _ => {
                let pages = page..page + 1 + self.random.u64(0..(FILE_PAGES - page).min(3));
                (vm.punch(&file.object, pages.start * PAGE..pages.end * PAGE), pages)
            }
        };
        if self.patience.given("a removal", result).is_some() {
            file.note_cut(cut);
        }
        file.nr_ended.fetch_add(1, Ordering::SeqCst);
    }

    fn store_to_file(&mut self, file: &File<'_>, page: u64) {
        let before = file.nr_ended.load(Ordering::SeqCst);
        let value = self.fresh_value();
        let stored = self.guest.store(VirtAddr::new(FILE_SHARED + page * PAGE + 8 * self.thread), value);
        match self.patience.judged(stored) {
            None => {}
            Some(Ok(_)) => self.words[page as usize] = Some((value, before)),
            Some(Err(error)) => assert!(matches!(error, AccessError::NoPage { .. }), "{error}"),
        }
    }

    fn load_from_file(&mut self, file: &File<'_>, page: u64) {
        let before = file.nr_ended.load(Ordering::SeqCst);
        let is_cut = file.is_cut[page as usize].load(Ordering::SeqCst);
        let loaded = self.guest.load(VirtAddr::new(FILE_SHARED + page * PAGE + 8 * self.thread));
        let value = match self.patience.judged(loaded) {
            None => return,
            Some(Ok((value, _))) => value,
            Some(Err(error)) => return assert!(matches!(error, AccessError::NoPage { .. }), "{error}"),
        };
        let begun = file.nr_begun.load(Ordering::SeqCst);
        let known = &mut self.words[page as usize];
        assert!(may_be(value, *known, begun, is_cut), "page {page} holds {value:#x}, known was {known:x?}");
        *known = Some(if value == 0 { (0, before) } else { known.unwrap_or((value, 0)) });
    }

    /// Reads without a mapping. While a removal is under way, a mapping may show what a read does not find any more.
    fn read_file(&mut self, file: &File<'_>, page: u64) {
        let is_cut = file.is_cut[page as usize].load(Ordering::SeqCst);
        let mut word = [0];
        let place = page * PAGE + 8 * self.thread;
        let is_read = self.shared.world.vm.read_object(&file.object, place, &mut word).is_ok();
        assert!(!(is_read && is_cut && word[0] == CONTENT), "page {page} holds what was cut off");
    }
}

/// Says whether a thread may find `value` in its word of the object.
fn may_be(value: u64, known: Known, nr_begun: u64, is_cut: bool) -> bool {
    let (last, before) = known.unwrap_or((CONTENT, 0));
    let is_old_content = value == CONTENT && is_cut;
    value == last && !is_old_content || value == 0 && nr_begun != before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_content_and_lost_stores_are_noticed() {
        assert!(may_be(CONTENT, None, 0, false));
        assert!(!may_be(CONTENT, None, 1, true), "what was cut off came back");
        assert!(!may_be(0, Some((7, 3)), 3, false), "a store was lost though nothing was removed");
        assert!(may_be(0, Some((7, 3)), 4, true));
        assert!(!may_be(8, Some((7, 3)), 4, true), "a value that nobody stored");
    }
}
