//! The rule of `populated`: pages that were filled without a fault of the program.

mod support;

use faultless_plan::classes::Class;
use faultless_plan::memory_calls::MemoryCall;
use faultless_trace::*;
use faultless_vm::PageLock;
use support::{PAGE, READ, STEP_NS, Story, WRITE, WRITE_PRESENT, class, planned};

const HEAP: u64 = 0x7f00_0000_0000;

#[test]
fn populated_memory_is_there_until_advice_drops_it() {
    const POPULATE: u64 = 0x8022;
    const POPULATE_NONBLOCK: u64 = 0x1_8022;
    let mut story = Story::new(1);
    for (place, flags) in [(HEAP, POPULATE), (HEAP + 64 * PAGE, POPULATE_NONBLOCK)] {
        story.call(0, Call::Mmap, [0, 4 * PAGE, 3, flags, u64::MAX, 0], place as i64);
    }
    let populated = story.fault(0, HEAP, WRITE);
    let nonblock = story.fault(0, HEAP + 64 * PAGE, WRITE);
    story.call(0, Call::Madvise, [HEAP, 4 * PAGE, 4, 0, 0, 0], 0);
    let dropped = story.fault(0, HEAP, WRITE);
    assert_eq!(class(&story, populated), (Some(Class::Populated), false));
    assert_eq!(class(&story, nonblock), (None, true));
    assert_eq!(class(&story, dropped), (None, true));
}

#[test]
fn what_a_call_filled_faults_as_if_loads_had_filled_it() {
    const POPULATE_READ: u64 = 22;
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.call(0, Call::Madvise, [HEAP, 4 * PAGE, POPULATE_READ, 0, 0, 0], 0);
    let (as_filled, otherwise) = (story.fault(0, HEAP, WRITE_PRESENT), story.fault(0, HEAP + PAGE, WRITE));
    assert_eq!(class(&story, as_filled), (None, true));
    assert_eq!(class(&story, otherwise), (Some(Class::Populated), false));
}

#[test]
fn a_load_of_a_page_that_is_there_is_explained_by_a_key_alone() {
    const LOAD_PRESENT: u32 = READ | Fault::PRESENT;
    let [populated, by_key] = [Some(Class::Populated), Some(Class::Ambiguous)];
    for (code, expected) in [(LOAD_PRESENT, None), (LOAD_PRESENT | Fault::KEY, by_key), (WRITE_PRESENT, populated)] {
        let mut story = Story::new(1);
        story.call(0, Call::Mmap, [0, 4 * PAGE, 3, 0x8022, u64::MAX, 0], HEAP as i64);
        let fault = story.fault(0, HEAP, code);
        assert_eq!(class(&story, fault).0, expected, "{code:#x}");
    }
}

#[test]
fn what_fills_pages_takes_no_right_to_store() {
    for (is_forked, is_stored, expected) in
        [(false, true, (None, false)), (false, false, (Some(Class::Populated), false)), (true, true, (None, true))]
    {
        let mut story = Story::new(2);
        story.trace.threads[1].pid = 2;
        story.call(0, Call::Mmap, [0, 4 * PAGE, 3, 0x8022, u64::MAX, 0], HEAP as i64);
        if is_stored {
            story.fault(0, HEAP, WRITE_PRESENT);
        }
        if is_forked {
            story.clone_task(0, 1, 0);
        }
        let again = story.fault(0, HEAP + 8, WRITE_PRESENT);
        assert_eq!(class(&story, again), expected, "{is_forked}, {is_stored}");
        let plan = planned(&story.done());
        assert_eq!(plan.surprises.contains(&again), !is_forked && is_stored);
    }
}

/// A load behind the fork has left the weaker entry in this CPU's TLB, and Linux drops no translation of an entry that
/// gets stronger: one store faults, on processors that look at memory only then.
#[test]
fn what_a_call_lets_stores_into_may_fault_once_more() {
    for (is_locked, expected) in [(true, (Some(Class::Raced), false)), (false, (None, true))] {
        let mut story = Story::new(2);
        story.trace.threads[1].pid = 2;
        story.map(0, HEAP, 1);
        story.fault(0, HEAP, WRITE);
        if is_locked {
            story.call(0, Call::Mlock, [HEAP, PAGE, 0, 0, 0, 0], 0);
        }
        story.protect(0, HEAP, 1, 1);
        story.clone_task(0, 1, 0);
        story.protect(0, HEAP, 1, 3);
        let store = story.fault(0, HEAP, WRITE_PRESENT);
        assert_eq!(class(&story, store), expected, "locked: {is_locked}");
        assert!(planned(&story.done()).surprises.is_empty());
    }
}

#[test]
fn drivers_put_pages_in_when_they_are_mapped() {
    let populated = Some(Class::Populated);
    let driven = ["anon_inode:[perf_event]", "socket:[4711]", "/dev/dri/card0"].map(|path| (path, populated));
    for (path, expected) in driven.into_iter().chain([("/dev/shm/x", None), ("/home/x", None)]) {
        let mut story = Story::new(1);
        let file = story.file(path);
        story.map_file(0, HEAP, 4, 3, file);
        let (first, other) = (story.fault(0, HEAP, WRITE_PRESENT), story.fault(0, HEAP + PAGE, WRITE));
        assert_eq!((class(&story, first).0, class(&story, other).0), (expected, None), "{path}");
        assert_eq!(planned(&story.done()).surprises.contains(&first), expected.is_none(), "{path}");
    }
}

#[test]
fn what_drivers_had_mapped_before_the_recording_is_told_as_absent() {
    for (path, expected) in [("anon_inode:[perf_event]", Some(Class::Populated)), ("/home/x", None)] {
        let area =
            Area { start: HEAP, end: HEAP + 4 * PAGE, prot: 3, flags: Area::SHARED, file: Some(0), ..Area::default() };
        let mut story = Story::joining(1, 0..0, vec![area], 2 * STEP_NS);
        story.file(path);
        let fault = story.wait(3 * STEP_NS).fault(0, HEAP, WRITE_PRESENT);
        assert_eq!(class(&story, fault).0, expected, "{path}");
    }
}

#[test]
fn locked_memory_may_differ() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.call(0, Call::Mlock, [HEAP, PAGE, 0, 0, 0, 0], 0);
    let (locked, beside) = (story.fault(0, HEAP, WRITE), story.fault(0, HEAP + PAGE, WRITE));
    assert_eq!(class(&story, locked), (Some(Class::Populated), false));
    assert_eq!(class(&story, beside), (None, true));
}

#[test]
fn a_page_that_no_fault_made_is_populated_only_after_a_fork() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    let unforked = story.fault(0, HEAP, WRITE_PRESENT);
    story.clone_task(0, 1, 0);
    let forked = story.fault(0, HEAP + PAGE, WRITE_PRESENT);
    assert_eq!(class(&story, unforked), (None, true));
    assert_eq!(class(&story, forked), (Some(Class::Populated), false));
    assert_eq!(planned(&story.done()).surprises, [unforked]);
}

#[test]
fn a_page_that_no_fault_made_is_populated_where_a_debugger_reaches_in() {
    for is_traced in [false, true] {
        let mut story = Story::new(2);
        story.map(0, HEAP, 4);
        if is_traced {
            story.call(0, Call::Ptrace, [0; 6], 0);
        }
        story.spawn(0, 1);
        let fault = story.fault(1, HEAP, WRITE_PRESENT);
        assert_eq!(class(&story, fault).0, is_traced.then_some(Class::Populated), "of a traced thread's child");
    }
}

#[test]
fn execs_arguments_are_populated_and_the_stack_below_is_strict() {
    let (top, len_bytes) = (0x7fff_0000_0000, 33 * PAGE);
    let mut story = Story::new(1);
    let stack = Mapped { start: top - len_bytes, len_bytes, file_offset: 0, prot: 3, flags: 2, file: None };
    story.push(0, EventKind::Mapped(stack));
    let arguments = story.fault(0, top - PAGE, WRITE_PRESENT);
    let below = story.fault(0, top - 3 * PAGE, WRITE);
    let grown = story.fault(0, top - len_bytes - 5 * PAGE, WRITE);
    assert_eq!(class(&story, arguments).0, Some(Class::Populated));
    assert_eq!(class(&story, below), (None, true));
    assert_eq!(class(&story, grown), (None, true));
    assert_eq!(planned(&story.done()).totals.outside, 0);
}

#[test]
fn what_is_locked_is_filled_when_it_may_be_written() {
    const NO_MEMORY: i64 = -12;
    for (locked_pages, expected) in [(2, (Some(Class::Populated), false)), (0, (None, true))] {
        let mut story = Story::new(1);
        story.call(0, Call::Mmap, [0, PAGE, 1, 0x22, u64::MAX, 0], HEAP as i64);
        if locked_pages > 0 {
            // It meets the hole behind the page, and so fills nothing.
            story.call(0, Call::Mlock, [HEAP, locked_pages * PAGE, 0, 0, 0, 0], NO_MEMORY);
        }
        story.protect(0, HEAP, 1, 3);
        let fault = story.fault(0, HEAP, WRITE);
        assert_eq!(class(&story, fault), expected, "{locked_pages} locked");
    }
}

#[test]
fn what_calls_fill_of_objects_needs_memory_once() {
    let object_pages = |nr_maps: u64, flags: u64| {
        let mut story = Story::new(1);
        let file = story.file("/home/x");
        for nth in 0..nr_maps {
            let place = HEAP + nth * 64 * PAGE;
            story.enter(0, Call::Mmap, [0, 32 * PAGE, 3, flags, 3, 0]);
            let (len_bytes, prot) = (32 * PAGE, 3);
            let mapped = Mapped { start: place, len_bytes, file_offset: 0, prot, flags: 1, file: Some(file) };
            story.push(0, EventKind::Mapped(mapped));
            story.exit(0, Call::Mmap, place as i64);
        }
        planned(&story.done()).demand.object_pages
    };
    const SHARED: u64 = 1;
    const POPULATE: u64 = 0x8000;
    let without = object_pages(1, SHARED);
    assert_eq!(object_pages(1, SHARED | POPULATE), without + 32);
    assert_eq!(object_pages(2, SHARED | POPULATE), without + 32, "both map the same pages");
}

#[test]
fn a_child_keeps_the_pages_that_its_parent_copies_or_maps_anew() {
    const CHILDREN: u32 = 10;
    let needed = |nr_forks: u32| {
        let mut story = Story::new(CHILDREN + 1);
        story.map(0, HEAP, 8);
        for child in 1..=CHILDREN {
            for page in 0..8 {
                story.fault(0, HEAP + page * PAGE, WRITE);
            }
            if child <= nr_forks {
                story.clone_task(0, child, 0);
            }
            story.unmap(0, HEAP, 8);
            story.map(0, HEAP, 8);
        }
        let demand = planned(&story.done()).demand;
        demand.own_pages.min(demand.made_pages)
    };
    assert_eq!(needed(0), 8, "each time the same memory");
    assert_eq!(needed(2), 24);
    assert_eq!(needed(CHILDREN), 80, "so many were ever made");
}

#[test]
fn what_a_load_mapped_around_it_before_a_process_was_looked_at_may_be_there() {
    for (loads, expected) in [(true, (Some(Class::FaultAround), false)), (false, (None, true))] {
        let area = Area { start: HEAP, end: HEAP + 16 * PAGE, prot: 3, file: Some(0), ..Area::default() };
        let mut story = Story::joining(1, 0..0, vec![area], 4 * STEP_NS);
        story.file("/home/x");
        if loads {
            story.wait(2 * STEP_NS).fault(0, HEAP, READ);
        }
        let fault = story.wait(6 * STEP_NS).fault(0, HEAP + 5 * PAGE, WRITE_PRESENT);
        assert_eq!(class(&story, fault), expected);
    }
}

#[test]
fn a_root_is_the_areas_also_where_calls_filled_a_part_of_it() {
    const POPULATE_READ: u64 = 22;
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.call(0, Call::Madvise, [HEAP, 2 * PAGE, POPULATE_READ, 0, 0, 0], 0);
    story.fault(0, HEAP + 3 * PAGE, WRITE);
    story.clone_task(0, 1, 0);
    let store = story.fault(1, HEAP, WRITE_PRESENT);
    assert_eq!(class(&story, store), (None, true), "the child has the page of zeros");
}

#[test]
fn guards_let_a_child_have_what_is_mapped_beside_them() {
    const GUARD_INSTALL: u64 = 102;
    for has_guard in [true, false] {
        let mut story = Story::new(2);
        let file = story.file("/home/x");
        story.map_file(0, HEAP, 4, 3, file);
        story.fault(0, HEAP, READ);
        if has_guard {
            story.call(0, Call::Madvise, [HEAP + 2 * PAGE, PAGE, GUARD_INSTALL, 0, 0, 0], 0);
        }
        story.clone_task(0, 1, 0);
        story.fault(1, HEAP, WRITE_PRESENT);
        assert_eq!(planned(&story.done()).surprises.is_empty(), has_guard);
    }
}

#[test]
fn locked_memory_that_nobody_may_access_is_restored_without_its_pages() {
    for (prot, expected) in [(0, PageLock::LockOnFault), (3, PageLock::Lock)] {
        let runs = vec![PageRun { start: HEAP, nr_pages: 1, state: PageState::Own, is_huge: false }];
        let area = Area { start: HEAP, end: HEAP + PAGE, prot, flags: Area::LOCKED, runs, ..Area::default() };
        let mut story = Story::joining(1, 0..0, vec![area], 2 * STEP_NS);
        story.wait(3 * STEP_NS).fault(0, HEAP, READ);
        let plan = planned(&story.done());
        let last = plan.restorations[0].memory_calls.last();
        assert_eq!(last, Some(&MemoryCall::Lock { start: HEAP, len: PAGE, lock: expected }));
    }
}

#[test]
fn advice_that_says_nothing_of_pages_cuts_areas() {
    // Advice that sets a flag, and that takes it away again.
    let pairs = [(1, 0), (2, 0), (14, 15), (15, 14), (16, 17), (12, 13)];
    for (set, undone) in pairs {
        for (taken, expected) in [(&[set][..], true), (&[set, undone], set == 14 || set == 15), (&[], false)] {
            let mut story = Story::new(2);
            story.trace.threads[1].pid = 2;
            story.map(0, HEAP, 8);
            for advice in taken {
                story.call(0, Call::Madvise, [HEAP + 4 * PAGE, 4 * PAGE, *advice, 0, 0, 0], 0);
            }
            story.fault(0, HEAP, WRITE);
            story.fault(0, HEAP + 5 * PAGE, READ);
            story.clone_task(0, 1, 0);
            // What has no store of its own area's is not copied.
            let load = story.fault(1, HEAP + 5 * PAGE, READ);
            let is_known = planned(&story.done()).surprises.is_empty() && class(&story, load).0.is_none();
            assert_eq!(is_known, expected, "advice {taken:?}");
        }
    }
}

#[test]
fn a_lock_behind_a_files_end_locks_all_and_fills_what_there_is() {
    const NO_MEMORY: i64 = -12;
    const LIMIT_PAGES: u64 = 16;
    // How much is locked already, and whether the limit explains the refusal.
    for (locked_pages, is_limit) in [(4, false), (12, true)] {
        let mut story = Story::new(1);
        story.trace.header.limits.memlock_bytes = Some(LIMIT_PAGES * PAGE);
        let file = story.file("/home/x");
        story.map_file(0, HEAP, 8, 3, file);
        story.map(0, HEAP + 64 * PAGE, locked_pages);
        story.call(0, Call::Mlock, [HEAP + 64 * PAGE, locked_pages * PAGE, 0, 0, 0, 0], 0);
        story.call(0, Call::Mlock, [HEAP, 8 * PAGE, 0, 0, 0, 0], NO_MEMORY);
        let present = story.fault(0, HEAP, WRITE_PRESENT);
        let expected = if is_limit { None } else { Some(Class::Populated) };
        assert_eq!(class(&story, present).0, expected, "{locked_pages} pages locked");
        let lock = planned(&story.done()).calls.last().expect("it was called").memory_call;
        let marks = MemoryCall::Lock { start: HEAP, len: 8 * PAGE, lock: PageLock::LockOnFault };
        assert_eq!(lock, if is_limit { MemoryCall::Nothing } else { marks });
    }
}

#[test]
fn locked_memory_that_grows_behind_its_file_may_have_no_pages() {
    for is_locked in [true, false] {
        let mut story = Story::new(1);
        let file = story.file("/home/x");
        story.map_file(0, HEAP, 2, 3, file);
        if is_locked {
            story.call(0, Call::Mlock, [HEAP, 2 * PAGE, 0, 0, 0, 0], 0);
        }
        story.call(0, Call::Mremap, [HEAP, 2 * PAGE, 4 * PAGE, 1, 0, 0], (HEAP + 64 * PAGE) as i64);
        // There, and not there: neither is known.
        let faults = [(2, READ | Fault::PRESENT | Fault::WRITE), (3, READ)];
        let faults = faults.map(|(page, code)| story.fault(0, HEAP + (64 + page) * PAGE, code));
        let expected = if is_locked { Some(Class::Ambiguous) } else { None };
        assert_eq!(faults.map(|fault| class(&story, fault).0), [expected; 2], "locked: {is_locked}");
    }
}
