//! Stores into files that are shared: which of them fault, because a file system is told.

mod support;

use faultless_plan::classes::Class;
use faultless_trace::*;
use support::{PAGE, READ, Story, WRITE, WRITE_PRESENT, class, planned};

const HEAP: u64 = 0x7f00_0000_0000;
const SHARED: u64 = 1;
const PRIVATE: u64 = 2;
const POPULATE: u64 = 0x8000;
const MS_ASYNC: u64 = 1;
const MS_SYNC: u64 = 4;

const STRICT: (Option<Class>, bool) = (None, true);
const RECLAIMED: (Option<Class>, bool) = (Some(Class::Reclaimed), false);

/// Tells of a process that maps four pages of a file.
fn mapped(path: &str, flags: u64) -> Story {
    let mut story = Story::new(1);
    let file = story.file(path);
    story.enter(0, Call::Mmap, [0, 4 * PAGE, 3, flags, 3, 0]);
    let file = Some(file);
    let told = Mapped { start: HEAP, len_bytes: 4 * PAGE, file_offset: 0, prot: 3, flags: flags as u32, file };
    story.push(0, EventKind::Mapped(told));
    story.exit(0, Call::Mmap, HEAP as i64);
    story
}

/// Returns what becomes of a store that finds its page there, after what `before` tells.
fn store_after(path: &str, flags: u64, before: impl FnOnce(&mut Story)) -> (Option<Class>, bool) {
    let mut story = mapped(path, flags);
    before(&mut story);
    let store = story.fault(0, HEAP, WRITE_PRESENT);
    class(&story, store)
}

fn sync(story: &mut Story, flags: u64, result: i64) {
    story.call(0, Call::Msync, [HEAP, 4 * PAGE, flags, 0, 0, 0], result);
}

#[test]
fn the_first_store_to_a_page_that_was_loaded_faults() {
    let after_load = |path, flags| store_after(path, flags, |story| _ = story.fault(0, HEAP, READ));
    assert_eq!(after_load("/data", SHARED), STRICT);
    assert_eq!(after_load("/data", PRIVATE), STRICT, "it copies the page");
    assert_eq!(after_load("/dev/shm/data", SHARED), RECLAIMED, "memory is not told of stores");
}

#[test]
fn the_first_store_to_a_page_that_a_neighbour_brought_faults() {
    assert_eq!(store_after("/data", SHARED, |story| _ = story.fault(0, HEAP + PAGE, READ)), STRICT);
}

#[test]
fn the_first_store_to_a_page_that_a_call_made_faults_unless_the_call_stored() {
    const POPULATE_READ: u64 = 22;
    const POPULATE_WRITE: u64 = 23;
    let after_advice = |advice| {
        store_after("/data", SHARED, |story| {
            story.call(0, Call::Madvise, [HEAP, 4 * PAGE, advice, 0, 0, 0], 0);
        })
    };
    assert_eq!(store_after("/data", SHARED | POPULATE, |_| ()), STRICT);
    assert_eq!(after_advice(POPULATE_READ), STRICT);
    assert_eq!(after_advice(POPULATE_WRITE), (Some(Class::Populated), false));
}

#[test]
fn a_second_store_faults_where_msync_has_written_the_page_back() {
    let after_sync = |flags, result| {
        store_after("/data", SHARED, |story| {
            story.fault(0, HEAP, WRITE);
            sync(story, flags, result);
        })
    };
    assert_eq!(after_sync(MS_SYNC, 0), STRICT);
    assert_eq!(after_sync(MS_ASYNC, 0), RECLAIMED, "written back whenever the kernel likes");
    assert_eq!(after_sync(MS_SYNC, -12), RECLAIMED, "up to a hole");
    let after_another_store = store_after("/data", SHARED, |story| {
        story.fault(0, HEAP, WRITE);
        sync(story, MS_SYNC, 0);
        story.fault(0, HEAP, WRITE_PRESENT);
        story.fault(0, HEAP + PAGE, WRITE);
    });
    assert_eq!(after_another_store, RECLAIMED);
}

#[test]
fn new_rights_leave_it_open_whether_what_was_written_back_faults() {
    let after_rights = |is_stored: bool| {
        store_after("/data", SHARED, |story| {
            story.fault(0, HEAP, if is_stored { WRITE } else { READ });
            sync(story, MS_SYNC, 0);
            story.protect(0, HEAP, 4, 1);
            story.protect(0, HEAP, 4, 3);
        })
    };
    assert_eq!(after_rights(true), RECLAIMED);
    assert_eq!(after_rights(false), STRICT, "no store made it dirty");
}

#[test]
fn advice_leaves_it_open_which_pages_are_there() {
    const PAGE_OUT: u64 = 21;
    let after_advice = store_after("/data", SHARED, |story| {
        story.fault(0, HEAP, READ);
        story.call(0, Call::Madvise, [HEAP, 4 * PAGE, PAGE_OUT, 0, 0, 0], 0);
    });
    assert_eq!(after_advice, RECLAIMED);
}

#[test]
fn what_advice_says_of_pages_cuts_no_area() {
    const PAGE_OUT: u64 = 21;
    const DONT_FORK: u64 = 10;
    for (advice, is_brought) in [(PAGE_OUT, true), (DONT_FORK, false)] {
        let mut story = mapped("/data", SHARED);
        story.call(0, Call::Madvise, [HEAP + PAGE, PAGE, advice, 0, 0, 0], 0);
        story.fault(0, HEAP + 3 * PAGE, READ);
        story.fault(0, HEAP, WRITE_PRESENT);
        let brought = planned(&story.done()).arounds.concat();
        assert_eq!(brought.contains(&HEAP), is_brought, "advice {advice}");
    }
}

#[test]
fn a_call_that_fills_pages_may_bring_their_neighbours() {
    const POPULATE_READ: u64 = 22;
    let after_advice = |nr_pages: u64| {
        store_after("/data", SHARED, |story| {
            story.fault(0, HEAP + PAGE, READ);
            story.call(0, Call::Madvise, [HEAP, 4 * PAGE, 4, 0, 0, 0], 0);
            story.call(0, Call::Madvise, [HEAP + 2 * PAGE, nr_pages * PAGE, POPULATE_READ, 0, 0, 0], 0);
        })
    };
    assert_eq!(after_advice(1), (Some(Class::FaultAround), false), "the fault before is no longer it");
    assert_eq!(after_advice(0), (None, true), "nothing brought it");
}

#[test]
fn a_page_that_its_file_may_not_reach_may_be_gone_when_it_is_touched_again() {
    let ambiguous = (Some(Class::Ambiguous), false);
    for (flags, size_bytes, expected) in [
        (PRIVATE, Some(PAGE), (None, true)),
        (PRIVATE, Some(0), ambiguous),
        (PRIVATE, None, ambiguous),
        (SHARED, Some(PAGE), RECLAIMED),
        (SHARED, Some(PAGE - 1), RECLAIMED),
        (SHARED, Some(0), ambiguous),
    ] {
        let mut story = mapped("/data", flags);
        story.trace.files[0].size_bytes = size_bytes;
        story.fault(0, HEAP, WRITE);
        story.fault(0, HEAP + PAGE, READ);
        story.wait(1_000_000);
        let again = story.fault(0, HEAP, WRITE);
        assert_eq!(class(&story, again), expected, "{flags}, {size_bytes:?}");
    }
}
