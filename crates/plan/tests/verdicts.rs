//! Which results are compared, and which are taken from the recording because the map does not decide them.

mod support;

use faultless_abi::MapFlags;
use faultless_plan::Outcome;
use faultless_plan::classes::Class;
use faultless_plan::memory_calls::{Mapping, MemoryCall, Place, Reason, Verdict};
use faultless_trace::{Call, EventKind, Mapped};
use support::{PAGE, Story, planned, touch};

const HEAP: u64 = 0x7f00_0000_0000;
const NO_MEMORY: i64 = -12;
const BAD_ADDRESS: i64 = -14;
const INVALID: i64 = -22;
const READ: u64 = 1;
const READ_WRITE: u64 = 3;
const NORMAL: u64 = 0;
const DONT_NEED: u64 = 4;
const FREE: u64 = 8;
const POPULATE_WRITE: u64 = 23;
const GUARD_INSTALL: u64 = 102;

/// What happens before the call that is asked about.
type Before<'a> = &'a dyn Fn(&mut Story) -> u32;
/// Of how many pages advice is taken, and with what result; nothing if it is left out.
type Taken = Option<(u64, i64)>;

/// Returns the verdict on a story's only call of a kind.
fn verdict_on(story: &Story, call: Call) -> Verdict {
    let plan = planned(&story.done());
    plan.calls.iter().find(|plan| plan.call == Some(call)).expect("it was called").verdict
}

#[test]
fn advice_that_lacks_memory_where_all_is_mapped_is_imposed_only_if_it_allocates() {
    let (imposed, compared) = (Verdict::Imposed(Reason::Limit), Verdict::Compared(NO_MEMORY));
    for (advice, expected) in
        [(NORMAL, compared), (DONT_NEED, compared), (POPULATE_WRITE, imposed), (GUARD_INSTALL, imposed)]
    {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        story.call(0, Call::Madvise, [HEAP, 4 * PAGE, advice, 0, 0, 0], NO_MEMORY);
        assert_eq!(verdict_on(&story, Call::Madvise), expected, "advice {advice}");
    }
}

#[test]
fn advice_beside_another_threads_call_may_have_found_a_hole() {
    // The other thread's call ends so long before the advice, or begins so long behind it.
    let beside = |before_ns: u64, behind_ns: u64| {
        let mut story = Story::new(2);
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        story.unmap(1, HEAP + 64 * PAGE, 1);
        story.wait(before_ns);
        story.call(0, Call::Madvise, [HEAP, 4 * PAGE, DONT_NEED, 0, 0, 0], NO_MEMORY);
        story.wait(behind_ns);
        story.unmap(1, HEAP + 64 * PAGE, 1);
        let trace = &mut story.trace;
        let is_advice = |kind: &EventKind| matches!(kind, EventKind::CallEnter(enter) if enter.call == Call::Madvise);
        let enter = trace.events.iter().position(|event| is_advice(&event.kind)).expect("there is one");
        // Steps are far longer than the clock error: the neighbours move up to it.
        let (first_ns, last_ns) = (trace.events[enter].time_ns, trace.events[enter + 1].time_ns);
        trace.events[enter - 1].time_ns = first_ns - before_ns;
        trace.events[enter + 2].time_ns = last_ns + behind_ns;
        verdict_on(&story, Call::Madvise)
    };
    let (imposed, compared) = (Verdict::Imposed(Reason::Limit), Verdict::Compared(NO_MEMORY));
    assert_eq!(beside(20_000, 20_000), compared);
    assert_eq!(beside(5_000, 20_000), imposed);
    assert_eq!(beside(20_000, 5_000), imposed);

    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    story.enter(1, Call::Munmap, [HEAP + 64 * PAGE, PAGE, 0, 0, 0, 0]);
    story.call(0, Call::Madvise, [HEAP, 4 * PAGE, DONT_NEED, 0, 0, 0], NO_MEMORY);
    story.exit(1, Call::Munmap, 0);
    assert_eq!(verdict_on(&story, Call::Madvise), imposed, "the other call was under way all the time");
}

#[test]
fn rights_that_lack_memory_where_all_is_mapped_are_imposed_only_if_a_store_becomes_allowed() {
    let (imposed, compared) = (Verdict::Imposed(Reason::Limit), Verdict::Compared(NO_MEMORY));
    // The kernel tells of so many pages during the call.
    let cases = [(READ, READ_WRITE, 0, imposed), (READ, READ_WRITE, 3, imposed), (READ, READ_WRITE, 4, compared)];
    let others = [(READ_WRITE, READ_WRITE, 0, compared), (READ_WRITE, READ, 0, compared)];
    for (before, after, told_pages, expected) in cases.into_iter().chain(others) {
        let mut story = Story::new(1);
        story.call(0, Call::Mmap, [0, 4 * PAGE, before, 0x22, u64::MAX, 0], HEAP as i64);
        story.enter(0, Call::Mprotect, [HEAP, 4 * PAGE, after, 0, 0, 0]);
        if told_pages > 0 {
            story.push(0, told(HEAP, told_pages));
        }
        story.exit(0, Call::Mprotect, NO_MEMORY);
        assert_eq!(verdict_on(&story, Call::Mprotect), expected, "{before} to {after}, told of {told_pages}");
    }
}

fn told(start: u64, pages: u64) -> EventKind {
    let (prot, flags) = (READ_WRITE as u32, 2);
    EventKind::Mapped(Mapped { start, len_bytes: pages * PAGE, file_offset: 0, prot, flags, file: None })
}

#[test]
fn a_mapping_is_where_the_kernel_told_of_it() {
    // The kernel merges a new mapping with its neighbours, and tells of the whole.
    for (told_start, told_pages, expected) in
        [(HEAP, 4, HEAP), (HEAP - PAGE, 6, HEAP), (HEAP - PAGE, 4, HEAP - PAGE), (HEAP, 2, HEAP)]
    {
        let mut story = Story::new(1);
        story.enter(0, Call::Mmap, [0, 4 * PAGE - 100, READ_WRITE, 0x22, u64::MAX, 0]);
        story.push(0, told(told_start, told_pages));
        story.exit(0, Call::Mmap, HEAP as i64);
        let plan = planned(&story.done());
        let MemoryCall::Map(mapping) = plan.calls[0].memory_call else { panic!("it maps") };
        assert_eq!(plan.calls[0].verdict, Verdict::Compared(HEAP as i64));
        assert_eq!(mapping.place, Place::Searched { hint: 0, placed: expected }, "told of {told_pages}");
    }
}

#[test]
fn a_prctl_changes_the_map_only_if_it_says_where_the_heap_is() {
    const SET_MM: u64 = 35;
    const ARG_START: u64 = 8;
    const MAP: u64 = 14;
    for (what, expected) in
        [(ARG_START, Verdict::Imposed(Reason::Process)), (MAP, Verdict::NotModelled(Call::Prctl.name()))]
    {
        let mut story = Story::new(1);
        story.call(0, Call::Prctl, [SET_MM, what, HEAP, 0, 0, 0], 0);
        assert_eq!(verdict_on(&story, Call::Prctl), expected, "option {what}");
    }
}

#[test]
fn a_ring_for_asynchronous_io_is_where_the_kernel_told_of_it() {
    const AIO: &str = "/[aio] (deleted)";
    let mut story = Story::new(1);
    let file = Some(story.file(AIO));
    story.enter(0, Call::IoSetup, [64, HEAP + 64 * PAGE, 0, 0, 0, 0]);
    story.push(
        0,
        EventKind::Mapped(Mapped { start: HEAP, len_bytes: 2 * PAGE, file_offset: 0, prot: 3, flags: 1, file }),
    );
    story.exit(0, Call::IoSetup, 0);
    let load = story.fault(0, HEAP, support::READ);
    story.call(0, Call::IoDestroy, [HEAP, 0, 0, 0, 0, 0], 0);
    let behind = story.fault(0, HEAP, support::READ);
    let plan = planned(&story.done());
    assert_eq!(plan.totals.skipped.len(), 0);
    let outcomes = [load, behind].map(|event| support::touch(&plan, event).outcome);
    assert_eq!(outcomes, [Outcome::Done, Outcome::Refused]);
}

#[test]
fn advice_that_an_area_refuses_is_taken_for_what_lies_before() {
    let (locks, file_at, hole_at) = (2, 3, 1);
    // What refuses it, where that begins, and the result of the same advice about what lies before.
    let locked = |story: &mut Story| story.call(0, Call::Mlock, [HEAP + locks * PAGE, PAGE, 0, 0, 0, 0], 0);
    let file = |story: &mut Story| {
        let file = story.file("/home/x");
        story.map_file(0, HEAP + file_at * PAGE, 1, READ_WRITE, file)
    };
    let with_hole = |story: &mut Story| {
        locked(story);
        story.unmap(0, HEAP + hole_at * PAGE, 1)
    };
    let nothing = |_: &mut Story| 0;
    let cases: [(Before<'_>, u64, Taken); 6] = [
        (&locked, DONT_NEED, Some((locks, 0))),
        (&locked, GUARD_INSTALL, Some((locks, 0))),
        (&with_hole, DONT_NEED, Some((locks, NO_MEMORY))),
        (&file, FREE, Some((file_at, 0))),
        (&nothing, DONT_NEED, None),
        (&locked, NORMAL, None),
    ];
    for (place, (before, advice, expected)) in cases.into_iter().enumerate() {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        before(&mut story);
        story.call(0, Call::Madvise, [HEAP, 4 * PAGE, advice, 0, 0, 0], INVALID);
        let plan = planned(&story.done());
        let call = plan.calls.iter().find(|plan| plan.call == Some(Call::Madvise)).expect("it was called");
        let expected = match expected {
            Some((pages, result)) => {
                (MemoryCall::Advise { start: HEAP, len: pages * PAGE, advice }, Verdict::Compared(result))
            }
            None => (MemoryCall::Nothing, Verdict::Imposed(Reason::Device)),
        };
        assert_eq!((call.memory_call, call.verdict), expected, "case {place}");
    }
}

#[test]
fn advice_to_fill_a_guarded_page_fails_there() {
    for (has_guard, expected) in [(true, Verdict::Compared(BAD_ADDRESS)), (false, Verdict::Imposed(Reason::Device))] {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        if has_guard {
            story.call(0, Call::Madvise, [HEAP + 2 * PAGE, PAGE, GUARD_INSTALL, 0, 0, 0], 0);
        }
        story.call(0, Call::Madvise, [HEAP, 4 * PAGE, POPULATE_WRITE, 0, 0, 0], BAD_ADDRESS);
        let plan = planned(&story.done());
        let last = plan.calls.iter().rfind(|plan| plan.call == Some(Call::Madvise)).expect("it was called");
        assert_eq!(last.verdict, expected);
    }
}

#[test]
fn a_lock_that_the_map_refuses_is_compared_and_one_that_a_limit_refuses_is_not() {
    let (compared, imposed) = (Verdict::Compared(NO_MEMORY), Verdict::Imposed(Reason::Limit));
    let hole = |story: &mut Story| story.unmap(0, HEAP + PAGE, 1);
    let barred = |story: &mut Story| story.protect(0, HEAP + PAGE, 1, 0);
    let guarded = |story: &mut Story| story.call(0, Call::Madvise, [HEAP + PAGE, PAGE, GUARD_INSTALL, 0, 0, 0], 0);
    let nothing = |_: &mut Story| 0;
    let cases: [(Before<'_>, Call, Verdict); 6] = [
        (&hole, Call::Mlock, compared),
        (&barred, Call::Mlock, compared),
        (&guarded, Call::Mlock2, compared),
        (&nothing, Call::Mlock, imposed),
        (&hole, Call::Munlock, compared),
        // Nothing that a replay has explains it.
        (&nothing, Call::Munlock, compared),
    ];
    for (place, (before, call, expected)) in cases.into_iter().enumerate() {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        before(&mut story);
        story.call(0, call, [HEAP, 4 * PAGE, 0, 0, 0, 0], NO_MEMORY);
        assert_eq!(verdict_on(&story, call), expected, "case {place}");
    }
}

#[test]
fn a_question_about_a_range_that_wraps_around_is_imposed() {
    for (start, expected) in
        [(u64::MAX - PAGE + 1, Verdict::Imposed(Reason::Device)), (HEAP, Verdict::Compared(NO_MEMORY))]
    {
        let mut story = Story::new(1);
        story.call(0, Call::Msync, [start, 2 * PAGE, 1, 0, 0, 0], NO_MEMORY);
        assert_eq!(verdict_on(&story, Call::Msync), expected);
    }
}

#[test]
fn a_call_whose_process_is_killed_while_it_waits_has_done_nothing() {
    const INTERRUPTED: i64 = -4;
    let remap = [HEAP, PAGE, 2 * PAGE, 1, 0, 0];
    for (call, arguments) in [
        (Call::Munmap, [HEAP, PAGE, 0, 0, 0, 0]),
        (Call::Mprotect, [HEAP, PAGE, READ, 0, 0, 0]),
        (Call::Mremap, remap),
        (Call::Brk, [HEAP, 0, 0, 0, 0, 0]),
    ] {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        story.call(0, call, arguments, INTERRUPTED);
        let plan = planned(&story.done());
        let planned = plan.calls.iter().find(|plan| plan.call == Some(call)).expect("it was called");
        assert_eq!(
            (planned.verdict, &planned.memory_call),
            (Verdict::Imposed(Reason::Signal), &MemoryCall::Nothing),
            "{call:?}"
        );
    }
}

#[test]
fn rights_on_a_range_that_wraps_around_stay_as_they_were() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.call(0, Call::Mprotect, [HEAP, HEAP.wrapping_neg(), READ, 0, 0, 0], NO_MEMORY);
    let store = story.fault(0, HEAP, support::WRITE);
    assert_eq!(touch(&planned(&story.done()), store).outcome, Outcome::Done);
}

#[test]
fn huge_pages_that_the_host_lacks_are_its_own_affair() {
    const HUGETLB: u64 = 0x4_0000;
    const PRIVATE_ANONYMOUS: u64 = 0x22;
    for (flags, expected) in [(HUGETLB, Verdict::Imposed(Reason::Device)), (0, Verdict::Compared(INVALID))] {
        let mut story = Story::new(1);
        story.call(0, Call::Mmap, [0, PAGE, READ_WRITE, PRIVATE_ANONYMOUS | flags, u64::MAX, 0], INVALID);
        assert_eq!(verdict_on(&story, Call::Mmap), expected, "flags {flags:#x}");
    }
}

#[test]
fn a_stack_beyond_its_limit_grows_where_the_kernel_tells_of_it() {
    const GROWS_DOWN: u64 = 0x122;
    let (limit, end) = (8 << 20, HEAP + 4 * PAGE);
    for (below, is_told, expected) in
        [(limit, true, Outcome::Done), (limit, false, Outcome::Refused), (64 * PAGE, false, Outcome::Done)]
    {
        let mut story = Story::new(1);
        story.call(0, Call::Mmap, [0, 4 * PAGE, READ_WRITE, GROWS_DOWN, u64::MAX, 0], HEAP as i64);
        let fault = story.fault(0, HEAP - below, support::WRITE);
        if is_told {
            story.push(0, told(HEAP - below, 4 + below / PAGE));
        }
        let plan = planned(&story.done());
        assert_eq!(touch(&plan, fault).outcome, expected, "{below} bytes below, told: {is_told}");
        let grown = if expected == Outcome::Done { end - (HEAP - below) } else { 0 };
        assert_eq!(plan.stack_bytes, grown, "{below} bytes below, told: {is_told}");
    }
}

#[test]
fn calls_that_a_seal_stops_have_changed_what_lies_before() {
    const NOT_PERMITTED: i64 = -1;
    let sealed_at = |page: u64, rights: u64| {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        story.protect(0, HEAP + page * PAGE, 1, rights);
        story.call(0, Call::Mseal, [HEAP + page * PAGE, PAGE, 0, 0, 0, 0], 0);
        story
    };
    for (page, expected) in [(2, Verdict::Compared(0)), (0, Verdict::Imposed(Reason::Limit))] {
        let mut story = sealed_at(page, READ);
        story.call(0, Call::Mprotect, [HEAP, 4 * PAGE, 0, 0, 0, 0], NOT_PERMITTED);
        let (before, behind) = (story.fault(0, HEAP, support::READ), story.fault(0, HEAP + 3 * PAGE, support::READ));
        let plan = planned(&story.done());
        let call = plan.calls.iter().rfind(|plan| plan.call == Some(Call::Mprotect)).expect("it was called");
        assert_eq!(call.verdict, expected, "page {page}");
        let is_barred = if page == 0 { Outcome::Done } else { Outcome::Refused };
        assert_eq!([before, behind].map(|event| touch(&plan, event).outcome), [is_barred, Outcome::Done]);
    }
    // Whoever may store may as well drop.
    for (rights, expected) in [(READ, Verdict::Compared(0)), (READ_WRITE, Verdict::Imposed(Reason::Device))] {
        let mut story = sealed_at(2, rights);
        story.call(0, Call::Madvise, [HEAP, 4 * PAGE, DONT_NEED, 0, 0, 0], NOT_PERMITTED);
        assert_eq!(verdict_on(&story, Call::Madvise), expected, "rights {rights}");
    }
}

#[test]
fn remap_file_pages_fills_what_it_maps_unless_it_is_asked_not_to() {
    const SHARED: u64 = 1;
    const NONBLOCK: u64 = 0x1_0000;
    for (asked, expected) in [(0, true), (NONBLOCK, false)] {
        let mut story = Story::new(1);
        let file = story.file("/home/x");
        story.enter(0, Call::Mmap, [0, 4 * PAGE, READ_WRITE, SHARED, 3, 0]);
        let len_bytes = 4 * PAGE;
        story.push(
            0,
            EventKind::Mapped(Mapped { start: HEAP, len_bytes, file_offset: 0, prot: 3, flags: 1, file: Some(file) }),
        );
        story.exit(0, Call::Mmap, HEAP as i64);
        story.call(0, Call::RemapFilePages, [HEAP, PAGE, 0, 2, asked, 0], 0);
        let store = story.fault(0, HEAP, support::WRITE_PRESENT);
        let plan = planned(&story.done());
        assert_eq!(plan.surprises.is_empty(), expected, "asked for {asked:#x}");
        assert_eq!(touch(&plan, store).class, None);
    }
}

/// Returns the last mapping that a story's plan makes.
fn last_mapping(story: &Story) -> Mapping {
    let plan = planned(&story.done());
    let mut mappings = plan.calls.iter().filter_map(|call| match call.memory_call {
        MemoryCall::Map(mapping) => Some(mapping),
        _ => None,
    });
    mappings.next_back().expect("something is mapped")
}

#[test]
fn what_is_locked_in_future_is_so_as_asked_for_and_not_in_a_child() {
    const FUTURE: u64 = 2;
    const ON_FAULT: u64 = 4;
    const DROPPABLE: u64 = 0x28;
    // How it is asked for, what is mapped then, and whether it is locked at once, or as pages come.
    let cases = [
        (FUTURE, 0x22, (true, false)),
        (FUTURE | ON_FAULT, 0x22, (false, true)),
        (FUTURE, DROPPABLE, (false, false)),
        (FUTURE | ON_FAULT, DROPPABLE, (false, false)),
    ];
    for (asked, flags, expected) in cases {
        let mut story = Story::new(2);
        story.trace.threads[1].pid = 2;
        story.call(0, Call::Mlockall, [asked, 0, 0, 0, 0, 0], 0);
        story.call(0, Call::Mmap, [0, 4 * PAGE, READ_WRITE, flags, u64::MAX, 0], HEAP as i64);
        let is_locked = |mapping: Mapping| (mapping.flags.contains(MapFlags::LOCKED), mapping.is_locked_on_fault);
        assert_eq!(is_locked(last_mapping(&story)), expected, "{asked} {flags:#x}");
        story.clone_task(0, 1, 0);
        story.map(1, HEAP + 64 * PAGE, 4);
        assert_eq!(is_locked(last_mapping(&story)), (false, false), "{asked} {flags:#x}, in a child");
    }
}

#[test]
fn rights_that_a_file_refuses_are_given_to_what_the_kernel_told_of() {
    const NO_ACCESS: i64 = -13;
    for (told_pages, expected) in [(2, Verdict::Compared(0)), (0, Verdict::Imposed(Reason::Descriptor))] {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        story.protect(0, HEAP, 4, READ);
        story.enter(0, Call::Mprotect, [HEAP, 4 * PAGE, READ_WRITE, 0, 0, 0]);
        if told_pages > 0 {
            story.push(0, told(HEAP, told_pages));
        }
        story.exit(0, Call::Mprotect, NO_ACCESS);
        let stores = [1, 2].map(|page| story.fault(0, HEAP + page * PAGE, support::WRITE));
        let plan = planned(&story.done());
        let call = plan.calls.iter().rfind(|plan| plan.call == Some(Call::Mprotect)).expect("it was called");
        assert_eq!(call.verdict, expected, "told of {told_pages}");
        let first = if told_pages > 0 { Outcome::Done } else { Outcome::Refused };
        assert_eq!(stores.map(|store| touch(&plan, store).outcome), [first, Outcome::Refused]);
    }
}

#[test]
fn advice_to_fill_ends_somewhere_in_a_file() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    let file = story.file("/home/x");
    story.map_file(0, HEAP + 2 * PAGE, 2, READ_WRITE, file);
    story.call(0, Call::Madvise, [HEAP, 4 * PAGE, POPULATE_WRITE, 0, 0, 0], BAD_ADDRESS);
    let in_file = story.fault(0, HEAP + 2 * PAGE, support::WRITE_PRESENT);
    let plan = planned(&story.done());
    let call = plan.calls.iter().find(|plan| plan.call == Some(Call::Madvise)).expect("it was called");
    let (len, advice) = (2 * PAGE, POPULATE_WRITE);
    let expected = (MemoryCall::Advise { start: HEAP, len, advice }, Verdict::Compared(0));
    assert_eq!((call.memory_call, call.verdict), expected);
    assert_eq!(touch(&plan, in_file).class, Some(Class::Populated));
}

#[test]
fn a_stack_grows_up_to_another() {
    const GROWS_DOWN: u64 = 0x122;
    for (flags, expected) in [(GROWS_DOWN, Outcome::Done), (0x22, Outcome::Refused)] {
        let mut story = Story::new(1);
        story.call(0, Call::Mmap, [0, PAGE, READ_WRITE, GROWS_DOWN, u64::MAX, 0], HEAP as i64);
        let below = HEAP - 64 * PAGE;
        story.call(0, Call::Mmap, [0, PAGE, READ_WRITE, flags, u64::MAX, 0], below as i64);
        let fault = story.fault(0, HEAP - 8 * PAGE, support::WRITE);
        assert_eq!(touch(&planned(&story.done()), fault).outcome, expected, "{flags:#x}");
    }
}

#[test]
fn rights_of_a_stack_begin_with_the_first_area_behind() {
    const GROWS_DOWN: u64 = 0x0100_0000;
    let mut story = Story::new(1);
    story.call(0, Call::Mmap, [0, 2 * PAGE, READ_WRITE, 0x122, u64::MAX, 0], HEAP as i64);
    let hole = HEAP - 4 * PAGE;
    story.call(0, Call::Mprotect, [hole, 6 * PAGE, READ | GROWS_DOWN, 0, 0, 0], 0);
    story.call(0, Call::Mprotect, [hole, 16 * PAGE, READ_WRITE | GROWS_DOWN, 0, 0, 0], NO_MEMORY);
    let store = story.fault(0, HEAP + PAGE, support::WRITE);
    assert_eq!(touch(&planned(&story.done()), store).outcome, Outcome::Done, "up to the hole behind it");
}

#[test]
fn what_can_not_be_cut_is_the_machines_affair() {
    const HUGE: u64 = 0x4_0022;
    let (imposed, compared) = (Verdict::Imposed(Reason::Device), Verdict::Compared(INVALID));
    for (flags, start, expected) in
        [(HUGE, HEAP + PAGE, imposed), (HUGE, HEAP + 1, compared), (0x22, HEAP + PAGE, compared)]
    {
        let mut story = Story::new(1);
        story.call(0, Call::Mmap, [0, 512 * PAGE, READ_WRITE, flags, u64::MAX, 0], HEAP as i64);
        story.call(0, Call::Munmap, [start, PAGE, 0, 0, 0, 0], INVALID);
        assert_eq!(verdict_on(&story, Call::Munmap), expected, "{flags:#x} {start:#x}");
    }
}

#[test]
fn mincore_looks_at_its_addresses_first() {
    const KERNEL: u64 = 1 << 47;
    for (start, len, expected) in [
        (KERNEL, 0, Verdict::Imposed(Reason::Device)),
        (HEAP, u64::MAX - HEAP, Verdict::Imposed(Reason::Device)),
        (HEAP, 2 * PAGE, Verdict::Compared(NO_MEMORY)),
    ] {
        let mut story = Story::new(1);
        story.map(0, HEAP, 1);
        story.call(0, Call::Mincore, [start, len, 0, 0, 0, 0], NO_MEMORY);
        assert_eq!(verdict_on(&story, Call::Mincore), expected, "{start:#x} {len:#x}");
    }
}
