//! The rule of each class: what it needs to apply, and that it does not apply without it.

mod support;

use faultless_plan::classes::Class;
use faultless_plan::{Before, Outcome};
use faultless_trace::*;
use support::{PAGE, READ, Story, WRITE, WRITE_PRESENT, class, planned, touch};

const HEAP: u64 = 0x7f00_0000_0000;

/// Returns whether a fault needs no class because an earlier one maps its page in the replay too; panics if that is
/// some other page.
fn is_mapped_beside(story: &Story, by: u32, event: u32) -> bool {
    let plan = planned(&story.done());
    let (later, around) = (touch(&plan, event), touch(&plan, by).around);
    let pages = plan.arounds.get(around as usize).cloned().unwrap_or_default();
    assert!(pages.iter().all(|&page| page == later.address), "{pages:x?}");
    (later.class, later.is_strict) == (None, true) && !pages.is_empty() && !plan.surprises.contains(&event)
}

#[test]
fn fresh_private_memory_is_strict() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    let (read, write) = (story.fault(0, HEAP + 8, READ), story.fault(0, HEAP + 8, WRITE_PRESENT));
    assert_eq!(class(&story, read), (None, true));
    assert_eq!(class(&story, write), (None, true));
    let plan = planned(&story.done());
    assert_eq!((plan.totals.faults, plan.totals.strict, plan.surprises.len()), (2, 2, 0));
    assert_eq!(touch(&plan, write).before, Before::Zeros);
}

#[test]
fn a_second_fault_on_a_present_page_stays_strict_and_surprises() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.fault(0, HEAP, WRITE);
    let again = story.fault(0, HEAP, WRITE);
    assert_eq!(class(&story, again), (None, true));
    assert_eq!(planned(&story.done()).surprises, [again]);
}

#[test]
fn with_huge_pages_a_fault_as_of_small_ones_is_strict_and_another_is_huge_if_a_block_fits() {
    let mut story = Story::new(1);
    story.trace.header.huge_pages = HugePages::AsSystem;
    story.map(0, HEAP, 7);
    let (first, second) = (story.fault(0, HEAP, WRITE), story.fault(0, HEAP, WRITE_PRESENT));
    assert_eq!(class(&story, first), (None, true));
    assert_eq!(class(&story, second), (Some(Class::Huge), false));
    // The second block of four pages is not all in the area.
    let small = story.fault(0, HEAP + 5 * PAGE, WRITE_PRESENT);
    assert_eq!(class(&story, small), (None, true));
    assert_eq!(planned(&story.done()).surprises, [small]);
}

#[test]
fn a_files_page_is_mapped_around_a_neighbour_in_its_window_only() {
    let mut story = Story::new(1);
    let file = story.file("/lib/x.so");
    story.map_file(0, HEAP, 64, 3, file);
    let by = story.fault(0, HEAP + PAGE, READ);
    let (inside, outside) = (story.fault(0, HEAP, WRITE_PRESENT), story.fault(0, HEAP + 16 * PAGE, WRITE_PRESENT));
    assert!(is_mapped_beside(&story, by, inside));
    assert_eq!(class(&story, outside), (None, true));
    assert_eq!(planned(&story.done()).surprises, [outside]);
}

#[test]
fn a_neighbour_explains_no_load_of_a_page_that_is_there() {
    let mut story = Story::new(1);
    let file = story.file("/lib/x.so");
    story.map_file(0, HEAP, 64, 3, file);
    story.fault(0, HEAP + PAGE, READ);
    let load = story.fault(0, HEAP, READ | Fault::PRESENT);
    assert_eq!(class(&story, load).0, None);
    assert_eq!(planned(&story.done()).surprises, [load]);
}

#[test]
fn a_window_begins_with_its_area_and_stays_what_it_was_when_the_area_is_cut() {
    let mut story = Story::new(1);
    let file = story.file("/lib/x.so");
    let area = HEAP + 3 * PAGE;
    story.map_file(0, area, 64, 3, file);
    let by = story.fault(0, area + PAGE, READ);
    story.protect(0, area, 2, 1);
    story.unmap(0, area, 2);
    let last = story.fault(0, area + 15 * PAGE, WRITE_PRESENT);
    let behind = story.fault(0, area + 16 * PAGE, WRITE_PRESENT);
    assert!(is_mapped_beside(&story, by, last));
    assert_eq!(planned(&story.done()).surprises, [behind]);
}

#[test]
fn what_a_fork_or_another_threads_fault_leaves_open_stays_explained_by_a_neighbour() {
    let mut story = Story::new(2);
    let file = story.file("/lib/x.so");
    story.map_file(0, HEAP, 64, 3, file);
    story.fault(0, HEAP, READ);
    story.fault(0, HEAP + 20 * PAGE, WRITE);
    story.clone_task(0, 1, 0);
    let forked = story.fault(0, HEAP + PAGE, WRITE_PRESENT);
    assert_eq!(class(&story, forked), (Some(Class::FaultAround), false));
    let mut story = Story::new(2);
    let file = story.file("/lib/x.so");
    story.map_file(0, HEAP, 64, 3, file);
    story.spawn(0, 1);
    story.fault(1, HEAP + PAGE, READ);
    story.call(1, Call::Madvise, [HEAP + PAGE, PAGE, 4, 0, 0, 0], 0);
    story.fault(0, HEAP, READ);
    let threaded = story.fault(0, HEAP + PAGE, WRITE_PRESENT);
    assert_eq!(class(&story, threaded), (Some(Class::FaultAround), false));
}

#[test]
fn another_threads_fault_on_a_neighbour_is_awaited() {
    let mut story = Story::new(2);
    let file = story.file("/lib/x.so");
    story.map_file(0, HEAP, 64, 3, file);
    story.spawn(0, 1);
    let by = story.fault(1, HEAP, READ);
    let later = story.fault(0, HEAP + PAGE, WRITE_PRESENT);
    assert!(is_mapped_beside(&story, by, later));
    let plan = planned(&story.done());
    let step = plan.programs[0].steps.iter().find(|step| step.event == later);
    assert_eq!(step.map(|step| step.nr_waits), Some(1));
}

#[test]
fn a_neighbour_that_was_dropped_or_stored_to_maps_nothing_around() {
    for is_dropped in [true, false] {
        let mut story = Story::new(1);
        let file = story.file("/lib/x.so");
        story.map_file(0, HEAP, 16, 3, file);
        story.fault(0, HEAP, if is_dropped { READ } else { WRITE });
        if is_dropped {
            story.call(0, Call::Madvise, [HEAP, 16 * PAGE, 4, 0, 0, 0], 0);
        }
        let later = story.fault(0, HEAP + PAGE, WRITE_PRESENT);
        assert_eq!(planned(&story.done()).surprises, [later]);
    }
}

#[test]
fn since_large_folios_a_fault_reaches_as_far_as_its_table() {
    for (kernel, reaches) in [("6.18.44", true), ("6.12.1", false)] {
        let mut story = Story::new(1);
        story.trace.header.machine.kernel = kernel.into();
        let file = story.file("/lib/x.so");
        story.map_file(0, HEAP, 600, 3, file);
        let by = story.fault(0, HEAP, READ);
        let far = story.fault(0, HEAP + 511 * PAGE, WRITE_PRESENT);
        let behind = story.fault(0, HEAP + 512 * PAGE, WRITE_PRESENT);
        assert_eq!(is_mapped_beside(&story, by, far), reaches, "{kernel}");
        assert!(planned(&story.done()).surprises.contains(&behind), "{kernel}");
    }
}

#[test]
fn a_files_page_that_is_gone_is_reclaimed_and_anonymous_memory_is_not() {
    let mut story = Story::new(1);
    let file = story.file("/lib/x.so");
    story.map_file(0, HEAP, 4, 1, file);
    story.map(0, HEAP + 64 * PAGE, 4);
    story.fault(0, HEAP, READ);
    story.fault(0, HEAP + 64 * PAGE, READ);
    let (file, memory) = (story.fault(0, HEAP, READ), story.fault(0, HEAP + 64 * PAGE, READ));
    assert_eq!(class(&story, file), (Some(Class::Reclaimed), false));
    assert_eq!(class(&story, memory), (None, true));
}

#[test]
fn a_page_that_its_thread_touched_just_now_is_not_reclaimed() {
    const SHARED: u64 = 0x21;
    const SOON_NS: u64 = 4_000;
    // A page is touched twice, so long after each other, with something between: a fault elsewhere, or a call.
    let second = |is_file: bool, between: fn(&mut Story), after_ns: u64, code: u32| {
        let mut story = Story::new(1);
        let file = story.file("/lib/x.so");
        story.map(0, HEAP + 64 * PAGE, 4);
        match is_file {
            true => _ = story.map_file(0, HEAP, 4, 3, file),
            false => _ = story.call(0, Call::Mmap, [0, 4 * PAGE, 3, SHARED, u64::MAX, 0], HEAP as i64),
        }
        let first = story.fault(0, HEAP, if is_file { READ } else { WRITE }) as usize;
        between(&mut story);
        let second = story.fault(0, HEAP, code);
        let begun_ns = story.trace.events[first].time_ns;
        for (event, ns) in story.trace.events[first + 1..].iter_mut().zip(1..) {
            event.time_ns = begun_ns + ns;
        }
        story.trace.events[second as usize].time_ns = begun_ns + after_ns;
        class(&story, second)
    };
    let elsewhere = |story: &mut Story| _ = story.fault(0, HEAP + 64 * PAGE, WRITE);
    let advice = |story: &mut Story| _ = story.call(0, Call::Madvise, [HEAP + 64 * PAGE, PAGE, 4, 0, 0, 0], 0);
    let (surprise, reclaimed) = ((None, true), (Some(Class::Reclaimed), false));
    for is_file in [true, false] {
        assert_eq!(second(is_file, elsewhere, SOON_NS, READ), surprise);
        assert_eq!(second(is_file, elsewhere, 20_000, READ), reclaimed);
        assert_eq!(second(is_file, advice, SOON_NS, READ), reclaimed);
    }
    assert_eq!(second(false, elsewhere, SOON_NS, WRITE_PRESENT), surprise, "memory is not written back");
}

#[test]
fn a_files_shared_page_may_be_written_back_at_once() {
    let mut story = Story::new(1);
    let file = story.file("/data");
    story.enter(0, Call::Mmap, [0, 4 * PAGE, 3, 1, 3, 0]);
    let shared = Mapped { start: HEAP, len_bytes: 4 * PAGE, file_offset: 0, prot: 3, flags: 1, file: Some(file) };
    story.push(0, EventKind::Mapped(shared));
    story.exit(0, Call::Mmap, HEAP as i64);
    let first = story.fault(0, HEAP, WRITE) as usize;
    story.fault(0, HEAP + PAGE, WRITE);
    let second = story.fault(0, HEAP, WRITE_PRESENT);
    let begun_ns = story.trace.events[first].time_ns;
    story.trace.events[first + 1..].iter_mut().for_each(|event| event.time_ns = begun_ns + 4_000);
    assert_eq!(class(&story, second), (Some(Class::Reclaimed), false));
}

#[test]
fn lazily_freed_memory_is_reclaimed() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.fault(0, HEAP, WRITE);
    story.call(0, Call::Madvise, [HEAP, PAGE, 8, 0, 0, 0], 0);
    let again = story.fault(0, HEAP, WRITE);
    assert_eq!(class(&story, again), (Some(Class::Reclaimed), false));
}

#[test]
fn faults_in_another_threads_call_are_ambiguous_if_it_reaches_their_page() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.map(0, HEAP + 64 * PAGE, 4);
    story.spawn(0, 1);
    story.fault(1, HEAP, WRITE);
    story.fault(1, HEAP + 64 * PAGE, WRITE);
    story.enter(0, Call::Madvise, [HEAP, 4 * PAGE, 4, 0, 0, 0]);
    let (reached, elsewhere) = (story.fault(1, HEAP, WRITE), story.fault(1, HEAP + 64 * PAGE, WRITE));
    story.exit(0, Call::Madvise, 0);
    let next = story.fault(1, HEAP + 8, WRITE_PRESENT);
    assert_eq!(class(&story, reached), (Some(Class::Ambiguous), false));
    assert_eq!(class(&story, elsewhere), (None, true));
    assert_eq!(class(&story, next).0, Some(Class::Ambiguous), "whether the page was still there is not known either");
}

#[test]
fn memory_is_there_for_another_threads_fault_before_its_call_returned() {
    let mut story = Story::new(2);
    story.spawn(0, 1);
    story.enter(0, Call::Mmap, [0, 4 * PAGE, 3, 0x22, u64::MAX, 0]);
    let early = story.fault(1, HEAP, WRITE);
    story.exit(0, Call::Mmap, HEAP as i64);
    assert_eq!(class(&story, early), (None, true));
    assert_eq!(touch(&planned(&story.done()), early).outcome, Outcome::Done);
}

#[test]
fn memory_that_another_thread_gets_was_taken_away_before() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    story.fault(0, HEAP, WRITE);
    story.enter(0, Call::Munmap, [HEAP, 4 * PAGE, 0, 0, 0, 0]);
    story.map(1, HEAP, 4);
    let inside = story.fault(1, HEAP, WRITE);
    story.exit(0, Call::Munmap, 0);
    let after = story.fault(1, HEAP + PAGE, WRITE);
    for fresh in [inside, after] {
        assert_eq!(class(&story, fresh), (None, true));
        assert_eq!(touch(&planned(&story.done()), fresh).outcome, Outcome::Done);
    }
}

#[test]
fn a_second_try_of_the_kernel_is_ambiguous_and_one_of_the_program_is_not() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.fault(0, HEAP, 2);
    let second = story.fault(0, HEAP, 2);
    story.fault(0, HEAP + PAGE, WRITE);
    let user = story.fault(0, HEAP + PAGE, WRITE);
    assert_eq!(class(&story, second), (None, true), "what maps the page is other code than what failed");
    if let EventKind::Fault(fault) = &mut story.trace.events[second as usize].kind {
        fault.ip += 0x40;
    }
    assert_eq!(class(&story, second), (Some(Class::Ambiguous), false));
    assert_eq!(class(&story, user), (None, true));
}

#[test]
fn the_kernel_may_try_more_than_once_before_it_makes_the_page_come() {
    // As ext4's write on Linux 6.18: it copies with page faults switched off until a copy fails twice.
    let tries = |ips: [u64; 4]| {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        let events = ips.map(|ip| {
            let event = story.fault(0, HEAP, 0);
            if let EventKind::Fault(fault) = &mut story.trace.events[event as usize].kind {
                fault.ip = ip;
            }
            event
        });
        events.map(|event| class(&story, event).0)
    };
    let again = Some(Class::Ambiguous);
    assert_eq!(tries([1, 1, 1, 2]), [None, again, again, again]);
    assert_eq!(tries([1, 1, 1, 1]), [None; 4], "nothing makes it come");
    assert_eq!(tries([1, 2, 2, 2]), [None, again, None, None]);
}

#[test]
fn a_recording_that_lacks_something_has_no_strict_page() {
    let mut story = Story::new(1);
    story.trace.header.missing.push(Missing::WriteBit);
    story.map(0, HEAP, 4);
    let (first, second) = (story.fault(0, HEAP, WRITE), story.fault(0, HEAP, WRITE));
    assert_eq!(class(&story, first), (None, false));
    assert_eq!(class(&story, second), (Some(Class::Ambiguous), false));
}

#[test]
fn what_the_map_forbids_must_be_refused() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.protect(0, HEAP, 1, 1);
    story.protect(0, HEAP + PAGE, 1, 0);
    let faults = [
        (story.fault(0, HEAP, WRITE), Outcome::Refused),
        (story.fault(0, HEAP, READ), Outcome::Done),
        (story.fault(0, HEAP + PAGE, READ), Outcome::Refused),
        (story.fault(0, HEAP + 2 * PAGE, 0x15), Outcome::Refused),
        (story.fault(0, HEAP + 3 * PAGE, WRITE), Outcome::Done),
        (story.fault(0, 8, READ), Outcome::Refused),
    ];
    let plan = planned(&story.done());
    for (event, outcome) in faults {
        assert_eq!(touch(&plan, event).outcome, outcome, "event {event}");
    }
    assert_eq!((plan.totals.outside, plan.totals.forbidden), (1, 3));
}

#[test]
fn what_a_page_holds_is_known_across_fork_and_remap() {
    let mut story = Story::new(2);
    let file = story.file("/lib/x.so");
    story.map(0, HEAP, 4);
    let store = story.fault(0, HEAP + 40, WRITE);
    story.call(0, Call::Mremap, [HEAP, 4 * PAGE, 8 * PAGE, 1, 0, 0], (HEAP + 64 * PAGE) as i64);
    story.clone_task(0, 1, 0);
    let child = story.fault(1, HEAP + 64 * PAGE, WRITE_PRESENT);
    let parent = story.fault(0, HEAP + 64 * PAGE, WRITE_PRESENT);
    story.call(0, Call::Madvise, [HEAP + 64 * PAGE, PAGE, 4, 0, 0, 0], 0);
    let dropped = story.fault(0, HEAP + 64 * PAGE, READ);
    story.map_file(0, HEAP, 4, 3, file);
    let content = story.fault(0, HEAP + 2 * PAGE, WRITE);
    let plan = planned(&story.done());
    assert_eq!(touch(&plan, child).before, Before::Token { event: store, word: 5 });
    assert_eq!(touch(&plan, parent).before, Before::Token { event: store, word: 5 });
    assert_eq!(touch(&plan, dropped).before, Before::Zeros);
    assert_eq!(touch(&plan, content).before, Before::Content { object: 0, page_index: 2, is_ordered: true });
    assert!(plan.surprises.is_empty());
}

#[test]
fn a_child_gets_no_page_of_a_file_that_nobody_wrote_even_beside_one_that_was() {
    let mut story = Story::new(2);
    let file = story.file("/bin/sh");
    let (text, data) = (HEAP, HEAP + 4 * PAGE);
    story.map_file(0, text, 4, 1, file);
    let enter = story.enter(0, Call::Mmap, [data, 4 * PAGE, 3, 0x12, 3, 4 * PAGE]);
    let mapped =
        Mapped { start: data, len_bytes: 4 * PAGE, file_offset: 4 * PAGE, prot: 3, flags: 2, file: Some(file) };
    story.push(0, EventKind::Mapped(mapped));
    story.exit(0, Call::Mmap, data as i64);
    story.fault(0, text, READ);
    story.fault(0, data, WRITE);
    story.protect(0, data, 4, 1);
    story.clone_task(0, 1, 0);
    let again = story.fault(1, text, READ);
    assert_eq!(class(&story, again), (None, true));
    assert!(planned(&story.done()).surprises.is_empty(), "the two never became one region: {enter}");
}

#[test]
fn a_files_page_is_strict_unless_the_kernel_filled_it() {
    let mut story = Story::new(1);
    let file = story.file("/lib/x.so");
    story.map_file(0, HEAP, 8, 3, file);
    let (read, copy) = (story.fault(0, HEAP, READ), story.fault(0, HEAP, WRITE_PRESENT));
    let around = story.fault(0, HEAP + 3 * PAGE, WRITE_PRESENT);
    story.call(0, Call::Mlock, [HEAP + 4 * PAGE, PAGE, 0, 0, 0, 0], 0);
    let filled = story.fault(0, HEAP + 4 * PAGE, WRITE_PRESENT);
    assert_eq!(class(&story, read), (None, true));
    assert_eq!(class(&story, copy), (None, true));
    assert!(is_mapped_beside(&story, read, around));
    assert!(!class(&story, filled).1);
}

/// Maps shared memory, and makes a second process that shares it.
fn two_processes() -> (Story, u64) {
    let mut story = Story::new(2);
    story.call(0, Call::Mmap, [HEAP, 8 * PAGE, 3, 0x31, u64::MAX, 0], HEAP as i64);
    story.clone_task(0, 1, 0);
    (story, HEAP)
}

#[test]
fn what_one_process_stores_into_shared_memory_is_what_the_other_must_find() {
    let (mut story, shared) = two_processes();
    let untouched = story.fault(1, shared + PAGE, READ);
    let first = story.fault(0, shared + 40, WRITE);
    let behind = story.fault(0, shared + PAGE, WRITE);
    let elsewhere = story.fault(1, shared + 2 * PAGE, READ);
    let over = story.fault(1, shared + 80, WRITE);
    story.unmap(0, shared, 1);
    let plan = planned(&story.done());
    let content = |page_index| Before::Content { object: 0, page_index, is_ordered: true };
    assert_eq!([untouched, elsewhere].map(|event| touch(&plan, event).before), [content(1), content(2)]);
    assert_eq!(touch(&plan, over).before, Before::Token { event: first, word: 5 });
    let is_strict = [untouched, first, behind, elsewhere, over].map(|event| touch(&plan, event).is_strict);
    assert_eq!(is_strict, [true; 5]);
    let waits = |event: u32| {
        let mut steps = plan.programs.iter().flat_map(|program| &program.steps);
        steps.find(|step| step.event == event).map(|step| step.nr_waits)
    };
    assert_eq!(waits(behind), Some(1), "who looked at the page before must have seen what was there");
    assert_eq!(waits(over), Some(1), "the store before must be over");
    assert_eq!([first, elsewhere].map(waits), [Some(0), Some(0)], "nobody stored into those pages, or looked at them");
}

#[test]
fn a_private_view_of_a_stored_page_holds_the_store_until_it_is_a_copy() {
    let mut story = Story::new(1);
    let file = story.file("/data/x");
    let enter = story.enter(0, Call::Mmap, [HEAP, 4 * PAGE, 3, 1, 3, 0]);
    let mapped = |start, flags| Mapped { start, len_bytes: 4 * PAGE, file_offset: 0, prot: 3, flags, file: Some(file) };
    story.push(0, EventKind::Mapped(mapped(HEAP, 1)));
    story.exit(0, Call::Mmap, HEAP as i64);
    let view = HEAP + 64 * PAGE;
    story.map_file(0, view, 4, 3, file);
    let store = story.fault(0, HEAP + PAGE + 16, WRITE);
    let seen = story.fault(0, view + PAGE, READ);
    let copy = story.fault(0, view + PAGE + 24, WRITE_PRESENT);
    let again = story.fault(0, HEAP + PAGE + 16, WRITE_PRESENT);
    story.protect(0, view, 4, 1);
    let plan = planned(&story.done());
    let token = Before::Token { event: store, word: 2 };
    assert_eq!([seen, copy, again].map(|event| touch(&plan, event).before), [token; 3], "mapped by {enter}");
    assert_eq!(touch(&plan, seen).class, None);
}

#[test]
fn a_fork_that_failed_may_have_taken_the_right_to_store() {
    const AGAIN: i64 = -11;
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.fault(0, HEAP, WRITE);
    story.call(0, Call::Clone, [0; 6], AGAIN);
    story.fault(0, HEAP + PAGE, WRITE);
    let [first, elsewhere] = [HEAP, HEAP + PAGE].map(|page| story.fault(0, page, WRITE_PRESENT));
    story.fault(0, HEAP + 2 * PAGE, WRITE);
    let second = story.fault(0, HEAP, WRITE_PRESENT);
    assert_eq!(class(&story, first), (Some(Class::Ambiguous), false));
    assert_eq!(class(&story, elsewhere), (None, true), "the page came later");
    assert_eq!(class(&story, second), (None, true), "it has the right again");
}

#[test]
fn what_lies_between_areas_that_move_together_stays() {
    const TARGET: u64 = HEAP + 0x10_0000;
    let mut story = Story::new(1);
    // Pages 0 and 2 of 4 are mapped, and of the target pages 1 and 2.
    story.map(0, HEAP, 1);
    story.map(0, HEAP + 2 * PAGE, 1);
    story.map(0, TARGET + PAGE, 2);
    let at_first = [1, 2].map(|page| story.fault(0, TARGET + page * PAGE, WRITE));
    let source = story.fault(0, HEAP + 2 * PAGE, WRITE);
    story.call(0, Call::Mremap, [HEAP, 4 * PAGE, 4 * PAGE, 3, TARGET, 0], TARGET as i64);
    let later = [1, 2, 3].map(|page| story.fault(0, TARGET + page * PAGE, WRITE));
    let gone = story.fault(0, HEAP + 2 * PAGE, WRITE);
    let plan = planned(&story.done());
    let outcomes = |events: &[u32]| events.iter().map(|&event| touch(&plan, event).outcome).collect::<Vec<_>>();
    let (done, refused) = (Outcome::Done, Outcome::Refused);
    assert_eq!(outcomes(&at_first), [done, done]);
    assert_eq!(outcomes(&[source, gone]), [done, refused]);
    assert_eq!(outcomes(&later), [done, done, refused], "nothing is mapped at the end");
    // Page 1 is still there, and page 2 came from the source, so that neither would fault.
    assert_eq!(plan.surprises.len(), 2);
}

#[test]
fn guards_are_put_on_both_sides_of_a_hole() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 1);
    story.map(0, HEAP + 2 * PAGE, 2);
    const NO_MEMORY: i64 = -12;
    story.call(0, Call::Madvise, [HEAP, 3 * PAGE, 102, 0, 0, 0], NO_MEMORY);
    let faults = [0, 2, 3].map(|page| story.fault(0, HEAP + page * PAGE, WRITE));
    let plan = planned(&story.done());
    let outcomes = faults.map(|event| touch(&plan, event).outcome);
    assert_eq!(outcomes, [Outcome::Refused, Outcome::Refused, Outcome::Done]);
}

#[test]
fn a_fetch_where_nothing_may_be_fetched_makes_the_page_before_it_is_refused() {
    const FETCH: u32 = Fault::USER | Fault::FETCH;
    const READ_ALONE: u64 = 1;
    const EXECUTE: u64 = 5;
    // With which rights, and as what the first fault is replayed.
    for (rights, expected) in
        [(READ_ALONE, Access::Read), (3, Access::Read), (EXECUTE, Access::Fetch), (0, Access::Fetch)]
    {
        let mut story = Story::new(1);
        story.call(0, Call::Mmap, [0, 4 * PAGE, rights, 0x22, u64::MAX, 0], HEAP as i64);
        let first = story.fault(0, HEAP, FETCH);
        let plan = planned(&story.done());
        assert_eq!(touch(&plan, first).access, expected, "rights {rights}");
        if expected == Access::Read {
            let second = story.fault(0, HEAP, FETCH | Fault::PRESENT);
            let plan = planned(&story.done());
            let outcomes = [first, second].map(|fault| touch(&plan, fault).outcome);
            assert_eq!(outcomes, [Outcome::Done, Outcome::Refused], "rights {rights}");
            assert_eq!(touch(&plan, second).access, Access::Fetch);
            assert!(plan.surprises.is_empty());
        }
    }
}
