//! A change of several tables: which are locked meanwhile, which are left alone, and which go.

use super::*;
use crate::entry::EntryFlags;
use crate::events::Events;
use crate::translations::shootdown::Cpus;
use crate::translations::table::Leaf;
use crate::translations::{Instance, frames};
use faultless_phys::{Kind, Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec::Vec;

/// What a leaf table spans.
const SPAN: u64 = 512 * PAGE;
/// Where the third of four tables begins: another table above the leaves begins there, too.
const BORDER: u64 = 1 << 30;
/// Something that needs no frame.
const SOMETHING: Entry = Entry::GUARD;

/// Runs `act` with the translations of a space, on a CPU of its own; what it leaves are tables above the leaves.
fn with_translations(len_bytes: usize, act: impl FnOnce(&Translations<Native>)) {
    let region = HostRegion::reserve(len_bytes).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, Options::default()) }.expect("room");
        let zero_page = frames::alloc_zeroed(&memory, Kind::Reserved).expect("room");
        let nr_free = memory.nr_free();
        let instance = Instance { memory, tags: None, cpus: Cpus::new(1), events: Events::new(1), zero_page };
        // SAFETY: the instance stays where it is until the end of this function.
        let translations = unsafe { Translations::new(&instance, 1, None) }.expect("room");
        act(&translations);
        let memory = &instance.memory;
        translations.tables.free_all(memory, &mut |entry| panic!("{entry:?} is left"));
        translations.free();
        memory.rcu().flush();
        assert_eq!(memory.nr_free(), nr_free, "all is given back");
    });
}

fn range(start: u64, end: u64) -> PageRange {
    PageRange::between(VirtAddr::new(start), VirtAddr::new(end)).expect("in user memory")
}

fn fill(translations: &Translations<Native>, range: PageRange) {
    let mut entries = CountedEntries::new(translations, range);
    entries.hold_tables().expect("room");
    entries.change(&mut |_, _| SOMETHING);
}

fn empty(translations: &Translations<Native>, range: PageRange) {
    CountedEntries::new(translations, range).change(&mut |_, _| Entry::EMPTY);
}

/// Returns the pages of a range that have something.
fn filled(translations: &Translations<Native>, range: PageRange) -> Vec<u64> {
    let mut pages = Vec::new();
    translations.visit_entries(range.numbers(), &mut |page, _| pages.push(page.get()));
    pages
}

/// Says which of the tables of these addresses are locked; nothing for one that is not there.
fn locked(translations: &Translations<Native>, addresses: &[u64]) -> Vec<Option<bool>> {
    let memory = translations.memory();
    let is_locked = |leaf: Leaf<'_, Native>| memory.page(leaf.table).lock().is_locked();
    addresses.iter().map(|&address| translations.tables.walk(memory, address).map(is_locked)).collect()
}

#[test]
fn all_tables_of_a_range_are_locked_while_its_entries_change_and_no_others() {
    with_translations(8 << 20, |translations| {
        let tables = [BORDER - 2 * SPAN, BORDER - SPAN, BORDER, BORDER + SPAN];
        let all = range(BORDER - 2 * SPAN, BORDER + 2 * SPAN);
        fill(translations, all);
        let mut nr_decided = 0;
        CountedEntries::new(translations, range(BORDER - 2 * PAGE, BORDER + 2 * PAGE)).change(&mut |_, _| {
            nr_decided += 1;
            assert_eq!(locked(translations, &tables), [false, true, true, false].map(Some));
            Entry::EMPTY
        });
        assert_eq!((nr_decided, locked(translations, &tables)), (4, [Some(false); 4].to_vec()));
        let left = filled(translations, range(BORDER - 3 * PAGE, BORDER + 3 * PAGE));
        assert_eq!(left, [BORDER - 3 * PAGE, BORDER + 2 * PAGE]);
        // Those whose last entry goes leave the tree.
        empty(translations, range(BORDER - SPAN, BORDER + SPAN));
        assert_eq!(locked(translations, &tables), [Some(false), None, None, Some(false)]);
        empty(translations, all);
        assert_eq!(locked(translations, &tables), [None; 4]);
    });
}

/// A call on a neighbour puts a table at the range's end where there was none, and has it locked when the change ends.
#[test]
fn a_table_that_comes_during_a_change_is_left_to_who_put_it_there() {
    with_translations(8 << 20, |translations| {
        fill(translations, range(BORDER - PAGE, BORDER));
        let memory = translations.memory();
        let mut come = None;
        CountedEntries::new(translations, range(BORDER - PAGE, BORDER + PAGE)).change(&mut |page, _| {
            assert_eq!((page.get(), come), (BORDER - PAGE, None), "there was one table");
            fill(translations, range(BORDER + PAGE, BORDER + 2 * PAGE));
            let leaf = translations.tables.walk(memory, BORDER).expect("just made");
            memory.page(leaf.table).lock().lock();
            come = Some(leaf.table);
            Entry::EMPTY
        });
        assert_eq!(locked(translations, &[BORDER - PAGE, BORDER]), [None, Some(true)]);
        // SAFETY: locked above.
        unsafe { memory.page(come.expect("the first table had an entry")).lock().unlock() };
        empty(translations, range(BORDER, BORDER + 2 * PAGE));
    });
}

#[test]
fn a_change_whose_caller_panics_unlocks_all_tables_and_frees_the_empty_ones() {
    with_translations(8 << 20, |translations| {
        let both = range(BORDER - PAGE, BORDER + PAGE);
        fill(translations, both);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            CountedEntries::new(translations, both)
                .change(&mut |page, _| if page.get() == BORDER { panic!("as wanted") } else { Entry::EMPTY });
        }));
        assert!(panicked.is_err());
        assert_eq!(locked(translations, &[BORDER - PAGE, BORDER]), [None, Some(false)]);
        empty(translations, both);
    });
}

#[test]
fn tables_that_find_no_memory_are_given_back_and_no_entry_has_changed() {
    with_translations(2 << 20, |translations| {
        fill(translations, range(BORDER - PAGE, BORDER));
        let many = range(BORDER - PAGE, BORDER + 600 * SPAN);
        let mut entries = CountedEntries::new(translations, many);
        assert!(entries.hold_tables().is_err(), "more tables than frames");
        drop(entries);
        assert_eq!(locked(translations, &[BORDER - PAGE, BORDER, BORDER + SPAN]), [Some(false), None, None]);
        assert_eq!(filled(translations, many), [BORDER - PAGE]);
        empty(translations, many);
    });
}

/// What was taken away is shot down and freed under the locks, where there is no frame to keep its numbers in.
#[test]
fn a_range_is_emptied_in_one_step_though_memory_is_short() {
    with_translations(8 << 20, |translations| {
        let (memory, pages) = (translations.memory(), range(BORDER - 400 * PAGE, BORDER + 400 * PAGE));
        let mut entries = CountedEntries::new(translations, pages);
        entries.hold_tables().expect("room");
        entries.change(&mut |_, _| {
            let page = frames::alloc(memory, Kind::Anonymous).expect("room");
            Entry::new(page, EntryFlags::PRESENT | EntryFlags::USER)
        });
        translations.add_resident(800);
        let taken: Vec<_> = core::iter::from_fn(|| memory.try_alloc().ok()).collect();
        let mut nr_free = Vec::new();
        entries.change(&mut |page, _| {
            nr_free.push(memory.nr_free());
            assert_eq!(locked(translations, &[BORDER - PAGE, BORDER]), [Some(true); 2], "{page:?}");
            Entry::EMPTY
        });
        assert!(nr_free.first() < nr_free.last(), "some were freed before all had gone: {nr_free:?}");
        assert_eq!(filled(translations, pages), []);
        drop(entries);
        // SAFETY: taken above, and used by nobody.
        taken.into_iter().for_each(|frame| unsafe { memory.free(frame) });
    });
}
