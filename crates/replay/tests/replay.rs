//! Replays of traces made by hand: what must come out, and what must be noticed.

mod support;

use faultless_machine::designs::{DESIGNS, SEMAPHORES};
use faultless_plan::classes::Class;
use faultless_plan::{Action, Options, Outcome, Plan, plan};
use faultless_platform::count::Count;
use faultless_replay::{Checking, PassResult, ReplayError, Settings, pass, pass_natively};
use faultless_trace::*;
use proptest::prelude::*;
use support::{PAGE, READ, Story, WRITE, WRITE_PRESENT, planned, settings};

const HEAP: u64 = 0x7f00_0000_0000;

/// Replays a trace under every design and semaphore, on one and on two CPUs; returns the results.
fn everywhere(trace: &Trace) -> Vec<PassResult> {
    let plan = planned(trace);
    let arms = DESIGNS.iter().flat_map(|design| SEMAPHORES.iter().map(move |semaphore| (design, semaphore)));
    let arms = arms.flat_map(|arm| [1, 2].map(|cpus| (arm, cpus)));
    let run = |((design, semaphore), cpus): ((&&str, &&str), usize)| {
        pass_natively(cpus, &plan, &settings(trace, &plan, design, semaphore)).expect("the pass comes to its end")
    };
    arms.map(run).collect()
}

fn assert_clean(trace: &Trace) {
    let faults = planned(trace).totals.faults;
    for result in everywhere(trace) {
        assert_eq!(result.tally.first_mismatches, []);
        assert_eq!((result.tally.mismatches, result.tally.faulted), (0, faults));
    }
}

/// Checks that everything but the event is as recorded, under every design.
fn assert_mismatch(trace: &Trace, event: u32, what: &str) {
    for result in everywhere(trace) {
        let tally = &result.tally;
        assert!(tally.mismatches > 0, "nothing was noticed");
        let first = &tally.first_mismatches[0];
        assert!(first.event == event && first.what.contains(what), "{first:?}");
    }
}

#[test]
fn a_process_that_does_everything_comes_out_as_recorded() {
    let mut story = Story::new(3);
    let file = story.file("/lib/x.so");
    story.call(0, Call::Brk, [0; 6], 0x1000_0000);
    story.call(0, Call::Brk, [0x1000_5000, 0, 0, 0, 0, 0], 0x1000_5000);
    story.fault(0, 0x1000_1008, WRITE);
    story.call(0, Call::Brk, [0x1000_1000, 0, 0, 0, 0, 0], 0x1000_1000);
    story.fault(0, 0x1000_1008, WRITE);
    story.map(0, HEAP, 8);
    story.fault(0, HEAP + 16, READ);
    story.fault(0, HEAP + 16, WRITE_PRESENT);
    story.fault(0, HEAP + 5 * PAGE, WRITE);
    story.protect(0, HEAP, 2, 1);
    story.fault(0, HEAP + 16, WRITE_PRESENT);
    story.protect(0, HEAP, 2, 0);
    story.fault(0, HEAP + 16, READ);
    story.protect(0, HEAP, 2, 3);
    story.call(0, Call::Mremap, [HEAP + 4 * PAGE, 4 * PAGE, 8 * PAGE, 1, 0, 0], (HEAP + 64 * PAGE) as i64);
    story.fault(0, HEAP + 5 * PAGE, READ);
    story.fault(0, HEAP + 71 * PAGE, WRITE);
    story.call(0, Call::Madvise, [HEAP + 65 * PAGE, PAGE, 4, 0, 0, 0], 0);
    story.fault(0, HEAP + 65 * PAGE, READ);
    story.map_file(0, HEAP + 128 * PAGE, 4, 3, file);
    story.fault(0, HEAP + 129 * PAGE + 8, READ);
    story.fault(0, HEAP + 129 * PAGE + 8, WRITE_PRESENT);
    story.fault(0, HEAP + 130 * PAGE, WRITE);
    story.clone_task(0, 1, 0);
    story.fault(1, HEAP + 16, WRITE_PRESENT);
    story.fault(0, HEAP + 16, WRITE_PRESENT);
    story.fault(1, HEAP + 129 * PAGE, WRITE_PRESENT);
    story.call(1, Call::Munmap, [HEAP, 8 * PAGE, 0, 0, 0, 0], 0);
    story.fault(1, HEAP, READ);
    story.clone_task(0, 2, CloneTask::VM | CloneTask::VFORK);
    story.fault(2, HEAP + PAGE, WRITE);
    story.push(2, EventKind::Exec);
    story.map(2, HEAP, 1);
    story.fault(2, HEAP, WRITE);
    story.fault(0, HEAP + 2 * PAGE, WRITE);
    story.end(2);
    story.end(1);
    story.end(0);
    let trace = story.done();
    assert_eq!(planned(&trace).surprises, [] as [u32; 0]);
    assert_clean(&trace);
}

#[test]
fn threads_that_hand_memory_to_each_other_keep_their_order() {
    let mut story = Story::new(4);
    (1..4).for_each(|thread| {
        story.spawn(0, thread);
    });
    for round in 0..30u64 {
        let (mapper, user) = ((round % 4) as u32, ((round + 1) % 4) as u32);
        story.map(mapper, HEAP, 4);
        story.fault(user, HEAP + round % 4 * PAGE, WRITE);
        story.protect(mapper, HEAP, 4, 1);
        story.fault(user, HEAP + round % 4 * PAGE, WRITE_PRESENT);
        story.fault(user, HEAP + (round + 1) % 4 * PAGE, READ);
        story.unmap(mapper, HEAP, 4);
        story.fault(user, HEAP, READ);
    }
    assert_clean(&story.done());
}

#[test]
fn a_fault_too_many_is_a_mismatch_at_its_event() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.fault(0, HEAP, WRITE);
    let again = story.fault(0, HEAP, WRITE);
    story.fault(0, HEAP + PAGE, WRITE);
    assert_mismatch(&story.done(), again, "did not fault");
}

#[test]
fn a_wrong_present_bit_is_a_mismatch_at_its_event() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    let present = story.fault(0, HEAP, WRITE_PRESENT);
    assert_mismatch(&story.done(), present, "not present");
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.fault(0, HEAP, READ);
    let absent = story.fault(0, HEAP, WRITE);
    assert_mismatch(&story.done(), absent, "was present");
}

#[test]
fn the_present_bit_of_a_refused_access_counts_too() {
    for (code, is_right) in [(WRITE, true), (WRITE_PRESENT, false)] {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        story.protect(0, HEAP, 4, 1);
        let refused = story.fault(0, HEAP, code);
        match is_right {
            true => assert_clean(&story.done()),
            false => assert_mismatch(&story.done(), refused, "not present"),
        }
    }
}

#[test]
fn a_missing_call_is_noticed() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.fault(0, HEAP, WRITE);
    // Between the two the recording should have a munmap and an mmap.
    let again = story.fault(0, HEAP, READ);
    assert_mismatch(&story.done(), again, "did not fault");
}

#[test]
fn wrong_results_are_mismatches_at_their_call() {
    let cases: [(Call, [u64; 6], i64); 5] = [
        (Call::Munmap, [HEAP, 0, 0, 0, 0, 0], 0),
        (Call::Mprotect, [HEAP, 8 * PAGE, 1, 0, 0, 0], 0),
        (Call::Mmap, [HEAP, PAGE, 3, 0x10_0022, u64::MAX, 0], HEAP as i64),
        (Call::Mremap, [HEAP, 4 * PAGE, 0, 0, 0, 0], HEAP as i64),
        (Call::Madvise, [HEAP + 1, PAGE, 4, 0, 0, 0], 0),
    ];
    for (call, args, result) in cases {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        let wrong = story.call(0, call, args, result);
        assert_mismatch(&story.done(), wrong, call.name());
    }
}

#[test]
fn what_linux_found_free_must_be_free() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    // Between the two the recording should have a munmap.
    let over = story.map(0, HEAP + 3 * PAGE, 4);
    assert_mismatch(&story.done(), over, "mmap");
}

#[test]
fn results_that_no_limit_explains_are_mismatches() {
    let cases: [(Call, [u64; 6], i64); 4] = [
        (Call::Munmap, [HEAP, PAGE, 0, 0, 0, 0], -12),
        (Call::Mprotect, [HEAP, PAGE, 1, 0, 0, 0], -12),
        (Call::Munlock, [HEAP, PAGE, 0, 0, 0, 0], -12),
        (Call::Brk, [0x1000_2000, 0, 0, 0, 0, 0], 0x1000_3000),
    ];
    for (call, args, result) in cases {
        let mut story = Story::new(1);
        story.call(0, Call::Brk, [0; 6], 0x1000_0000);
        story.map(0, HEAP, 4);
        let wrong = story.call(0, call, args, result);
        assert_mismatch(&story.done(), wrong, call.name());
    }
}

#[test]
fn results_that_a_limit_explains_are_imposed() {
    let mut story = Story::new(1);
    story.trace.header.limits.max_map_count = Some(4);
    story.call(0, Call::Brk, [0; 6], 0x1000_0000);
    story.call(0, Call::Brk, [0x1000_2000, 0, 0, 0, 0, 0], 0x1000_0000);
    story.map(0, HEAP, 4);
    story.call(0, Call::Munmap, [HEAP + PAGE, PAGE, 0, 0, 0, 0], -12);
    story.call(0, Call::Mprotect, [HEAP + PAGE, PAGE, 1, 0, 0, 0], -12);
    story.call(0, Call::Munlock, [HEAP + PAGE, PAGE, 0, 0, 0, 0], -12);
    story.call(0, Call::Mlock, [HEAP, PAGE, 0, 0, 0, 0], -12);
    let trace = story.done();
    let imposed: Vec<(&str, u64)> =
        planned(&trace).totals.imposed.iter().map(|(reason, &count)| (reason.name(), count)).collect();
    assert_eq!(imposed, [("limit", 5)]);
    assert_clean(&trace);
}

#[test]
fn shared_memory_that_was_cut_is_detached_whole() {
    let mut story = Story::new(1);
    let file = story.file("/SYSV00000000");
    let mapped = Mapped { start: HEAP, len_bytes: 4 * PAGE, file_offset: 0, prot: 3, flags: 1, file: Some(file) };
    let attach = |story: &mut Story| {
        story.enter(0, Call::Shmat, [7, 0, 0, 0, 0, 0]);
        story.push(0, EventKind::Mapped(mapped));
        story.exit(0, Call::Shmat, HEAP as i64);
    };
    attach(&mut story);
    story.protect(0, HEAP + PAGE, 1, 1);
    story.call(0, Call::Shmdt, [HEAP, 0, 0, 0, 0, 0], 0);
    attach(&mut story);
    story.call(0, Call::Shmdt, [HEAP + PAGE, 0, 0, 0, 0, 0], -22);
    assert_clean(&story.done());
    let wrong = story.call(0, Call::Shmdt, [HEAP, 0, 0, 0, 0, 0], -12);
    assert_mismatch(&story.done(), wrong, "shmdt");
}

#[test]
fn errors_that_the_map_determines_are_compared_and_others_imposed() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.call(0, Call::Munmap, [HEAP + 1, PAGE, 0, 0, 0, 0], -22);
    story.call(0, Call::Mprotect, [HEAP, 8 * PAGE, 1, 0, 0, 0], -12);
    story.call(0, Call::Mmap, [HEAP, PAGE, 3, 0x10_0022, u64::MAX, 0], -17);
    story.call(0, Call::Mremap, [HEAP + 64 * PAGE, PAGE, 2 * PAGE, 1, 0, 0], -14);
    story.call(0, Call::Msync, [HEAP, 8 * PAGE, 4, 0, 0, 0], -12);
    story.call(0, Call::Mmap, [0, PAGE, 3, 2, 99, 0], -9);
    story.call(0, Call::Mmap, [0, 1 << 40, 3, 0x22, u64::MAX, 0], -12);
    story.enter(0, Call::Munmap, [HEAP, 4 * PAGE, 0, 0, 0, 0]);
    let trace = story.done();
    let imposed: Vec<(&str, u64)> =
        planned(&trace).totals.imposed.iter().map(|(reason, &count)| (reason.name(), count)).collect();
    assert_eq!(imposed, [("descriptor", 1), ("limit", 1), ("in_flight", 1)]);
    assert_clean(&trace);
}

#[test]
fn calls_that_are_not_modelled_are_counted_by_name() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.call(0, Call::Prctl, [35, 14, HEAP, 0, 0, 0], 0);
    // Flags that Linux 6.18 does not know, accepted or not.
    story.call(0, Call::Mlock2, [HEAP, PAGE, 2, 0, 0, 0], 0);
    story.call(0, Call::Mlock2, [HEAP, PAGE, 2, 0, 0, 0], -22);
    let skipped: Vec<_> = planned(&story.done()).totals.skipped.into_iter().collect();
    assert_eq!(skipped, [("mlock2", 1), ("prctl", 1)]);
}

#[test]
fn guards_refuse_accesses_until_they_are_removed_wherever_they_go() {
    let (install, remove, drop_pages) = (102, 103, 4);
    let mut story = Story::new(2);
    story.map(0, HEAP, 16);
    (0..8).for_each(|page| drop_number(story.fault(0, HEAP + page * PAGE, WRITE)));
    story.call(0, Call::Madvise, [HEAP + 2 * PAGE, 4 * PAGE, install, 0, 0, 0], 0);
    let refused = [story.fault(0, HEAP + 2 * PAGE, WRITE), story.fault(0, HEAP + 5 * PAGE, READ)];
    story.call(0, Call::Madvise, [HEAP, 8 * PAGE, drop_pages, 0, 0, 0], 0);
    story.fault(0, HEAP + PAGE, WRITE);
    let kept = story.fault(0, HEAP + 3 * PAGE, WRITE);
    story.call(0, Call::Madvise, [HEAP + 2 * PAGE, PAGE, remove, 0, 0, 0], 0);
    story.fault(0, HEAP + 2 * PAGE, WRITE);
    story.call(0, Call::Mremap, [HEAP, 8 * PAGE, 8 * PAGE, 3, HEAP + 64 * PAGE, 0], (HEAP + 64 * PAGE) as i64);
    let moved = story.fault(0, HEAP + 67 * PAGE, WRITE);
    story.clone_task(0, 1, 0);
    let copied = story.fault(1, HEAP + 67 * PAGE, READ);
    story.unmap(0, HEAP + 64 * PAGE, 8);
    story.map(0, HEAP + 64 * PAGE, 8);
    story.fault(0, HEAP + 67 * PAGE, WRITE);
    let trace = story.done();
    let plan = planned(&trace);
    let outcomes = plan.programs.iter().flat_map(|program| &program.steps).filter_map(|step| match step.action {
        Action::Access(touch) if touch.outcome == Outcome::Refused => Some(step.event),
        _ => None,
    });
    assert_eq!(outcomes.collect::<Vec<u32>>(), [&refused[..], &[kept, moved, copied]].concat());
    assert_clean(&trace);
}

#[test]
fn a_kept_sources_hint_is_checked_even_where_it_is_refused() {
    let (keeps, there) = (1 | 4, HEAP + 64 * PAGE);
    let mut story = Story::new(1);
    story.map(0, HEAP, 16);
    story.fault(0, HEAP, WRITE);
    for hint in [there + 1, 1 << 60, HEAP + PAGE] {
        story.call(0, Call::Mremap, [HEAP, 4 * PAGE, 4 * PAGE, keeps, hint, 0], -22);
    }
    story.call(0, Call::Mremap, [HEAP, 4 * PAGE, 4 * PAGE, keeps, there, 0], there as i64);
    story.fault(0, HEAP, WRITE);
    story.call(0, Call::Mremap, [HEAP, 4 * PAGE, 4 * PAGE, keeps, there, 0], (HEAP + 128 * PAGE) as i64);
    story.fault(0, HEAP, WRITE);
    assert_clean(&story.done());
}

#[test]
fn an_explained_difference_is_counted_in_its_class() {
    let mut story = Story::new(2);
    let file = story.file("/lib/x.so");
    story.map_file(0, HEAP, 16, 3, file);
    story.fault(0, HEAP, READ);
    // Whether it mapped the next page before the fork or after is not told.
    story.clone_task(0, 1, 0);
    story.fault(0, HEAP + PAGE, WRITE_PRESENT);
    for result in everywhere(&story.done()) {
        assert_eq!(result.tally.mismatches, 0);
        assert_eq!(result.tally.classified[Class::FaultAround as usize], 1);
        assert_eq!(result.tally.classified.iter().sum::<u64>(), 1);
    }
}

#[test]
fn a_page_that_a_neighbours_fault_mapped_is_there_in_the_replay_too() {
    let mut story = Story::new(2);
    let file = story.file("/lib/x.so");
    story.map_file(0, HEAP, 16, 3, file);
    story.spawn(0, 1);
    story.fault(1, HEAP, READ);
    story.fault(0, HEAP + PAGE, WRITE_PRESENT);
    story.fault(1, HEAP + 3 * PAGE, WRITE_PRESENT);
    for result in everywhere(&story.done()) {
        assert_eq!((result.tally.mismatches, result.tally.classified.iter().sum::<u64>()), (0, 0));
    }
}

#[test]
fn what_a_process_stored_into_shared_memory_is_read_back_by_another() {
    let mut story = Story::new(2);
    story.call(0, Call::Mmap, [HEAP, 8 * PAGE, 3, 0x31, u64::MAX, 0], HEAP as i64);
    story.clone_task(0, 1, 0);
    for page in 0..8 {
        let (one, other) = (page % 2, 1 - page % 2);
        story.fault(one as u32, HEAP + page * PAGE + 24, WRITE);
        story.fault(other as u32, HEAP + page * PAGE + 64, READ);
    }
    for result in everywhere(&story.done()) {
        assert_eq!((result.tally.mismatches, result.tally.faulted), (0, 16));
        assert!(result.tally.read_back >= 8, "{}", result.tally.read_back);
    }
}

#[test]
fn tokens_zeros_and_files_content_are_read_back() {
    let mut story = Story::new(2);
    let file = story.file("/lib/x.so");
    story.map_file(0, HEAP + 64 * PAGE, 4, 1, file);
    story.map(0, HEAP, 4);
    story.fault(0, HEAP + 64 * PAGE + 24, READ);
    story.fault(0, HEAP + 24, READ);
    story.fault(0, HEAP + 24, WRITE_PRESENT);
    story.clone_task(0, 1, 0);
    story.fault(1, HEAP + 32, WRITE_PRESENT);
    for result in everywhere(&story.done()) {
        assert_eq!((result.tally.mismatches, result.tally.read_back), (0, 4));
    }
}

/// A parent of two threads that touches some pages, and a child that copies them all.
fn family(pages: u64) -> Trace {
    let mut story = Story::new(3);
    story.map(0, HEAP, pages);
    story.spawn(0, 1);
    (0..pages).for_each(|page| drop_number(story.fault((page % 2) as u32, HEAP + page * PAGE, WRITE)));
    story.clone_task(0, 2, 0);
    (0..pages).for_each(|page| drop_number(story.fault(2, HEAP + page * PAGE, WRITE_PRESENT)));
    story.end(2);
    story.done()
}

#[test]
fn a_memory_too_small_ends_in_a_clear_error_wherever_it_runs_out() {
    let mut outcomes = [0, 0];
    for pages in (300..1100).step_by(13) {
        let trace = family(pages);
        let plan = planned(&trace);
        for design in DESIGNS {
            let checking = Checking::AtEnd;
            let settings = Settings { memory_bytes: 4 << 20, checking, ..settings(&trace, &plan, design, "rwsem-v8") };
            match pass_natively(2, &plan, &settings) {
                Ok(result) => {
                    assert_eq!(result.tally.mismatches, 0);
                    outcomes[0] += 1;
                }
                Err(error @ ReplayError::OutOfMemory { .. }) => {
                    assert!(error.to_string().contains("--memory"), "{error}");
                    outcomes[1] += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(outcomes.iter().all(|&count| count > 4), "{outcomes:?}");
}

fn drop_number(_: u32) {}

#[test]
fn the_demand_is_enough() {
    let mut story = Story::new(40);
    story.map(0, HEAP, 4096);
    (0..500).for_each(|page| drop_number(story.fault(0, HEAP + page * PAGE, WRITE)));
    for child in 1..40 {
        story.clone_task(0, child, 0);
        (0..500).for_each(|page| drop_number(story.fault(child, HEAP + page * PAGE, WRITE_PRESENT)));
    }
    let trace = story.done();
    let plan = planned(&trace);
    let settings = Settings { checking: Checking::AtEnd, ..settings(&trace, &plan, "spf-v11", "rwsem-2012") };
    pass_natively(4, &plan, &settings).expect("the memory is enough");
}

#[test]
fn the_recorded_pace_takes_its_time_and_keeps_its_wakes() {
    let mut story = Story::new(2);
    story.trace.header.pace = Pace::Stored;
    story.spawn(0, 1);
    story.push(1, EventKind::SwitchOut(SwitchReason::Blocked));
    let busy = story.push(0, EventKind::Wake { woken: 1 });
    story.push(1, EventKind::SwitchIn);
    let last = story.push(1, EventKind::Exit);
    story.trace.events[busy as usize].on_cpu_ns = 30_000_000;
    story.trace.events[last as usize].on_cpu_ns = 20_000_000;
    let trace = story.done();
    for (pace, least_ns, most_ns) in
        [(faultless_plan::Pace::Recorded, 50_000_000, u64::MAX), (faultless_plan::Pace::None, 0, 40_000_000)]
    {
        let plan = plan(&trace, Options { pace, ..Options::default() }).expect("the trace can be planned");
        let settings = settings(&trace, &plan, "mmap-sem", "rwsem-v8");
        let elapsed_ns = pass_natively(2, &plan, &settings).expect("it can be replayed").elapsed_ns;
        assert!((least_ns..most_ns).contains(&elapsed_ns), "{pace:?} took {elapsed_ns} ns");
    }
}

#[test]
fn a_replay_runs_on_the_counting_platform_too() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    story.fault(1, HEAP, WRITE);
    story.unmap(0, HEAP, 4);
    let trace = story.done();
    let plan = planned(&trace);
    let settings = settings(&trace, &plan, "spf-v11", "rwsem-v8");
    let machine = faultless_platform::count::Machine::new(2);
    let result = pass::<Count>(&machine, 2, &plan, &settings).expect("it can be replayed");
    assert_eq!((result.tally.mismatches, result.tally.faulted), (0, 1));
}

#[test]
fn names_that_nobody_knows_are_errors() {
    let trace = Story::new(1).done();
    let plan = planned(&trace);
    for (design, semaphore) in [("foo", "rwsem-v8"), ("mmap-sem", "foo")] {
        let result = pass_natively(1, &plan, &settings(&trace, &plan, design, semaphore));
        assert!(matches!(result, Err(ReplayError::Unknown(_))));
    }
}

/// Numbers near which something changes.
fn odd_number() -> impl Strategy<Value = u64> {
    let places = vec![0, 1, PAGE, HEAP, 0x1000_0000, 0x7fff_ffff_f000, 1 << 47, 1 << 63, u64::MAX - PAGE, u64::MAX];
    (prop::sample::select(places), -3..4i64, prop::sample::select(vec![1, 7, 4096]))
        .prop_map(|(place, steps, size)| place.wrapping_add((steps * size).cast_unsigned()))
}

/// An event of a thread, whatever it means.
fn odd_event() -> impl Strategy<Value = (u32, EventKind)> {
    let fault = (odd_number(), 0..32u32, any::<bool>()).prop_map(|(address, error_code, is_user)| {
        let address = ((address as i64) << 7 >> 7).cast_unsigned();
        let side = if is_user { Side::User } else { Side::Kernel };
        EventKind::Fault(Fault { address, ip: 0, error_code, side })
    });
    let enter = (prop::sample::select(Call::ALL), prop::array::uniform6(odd_number())).prop_map(|(call, mut args)| {
        args[call.arity()..].fill(0);
        EventKind::CallEnter(CallEnter { call, args })
    });
    let exit = (
        prop::sample::select(Call::ALL),
        prop_oneof![Just(0), Just(-12), Just(-22), odd_number().prop_map(|n| n as i64)],
    )
        .prop_map(|(call, result)| EventKind::CallExit(CallExit { call, result }));
    let mapped = (odd_number(), 1..20u64, 0..8u32, any::<bool>()).prop_map(|(start, pages, prot, has_file)| {
        let (start, file) = (start.min(u64::MAX - 100 * PAGE), has_file.then_some(0));
        EventKind::Mapped(Mapped { start, len_bytes: pages * PAGE, file_offset: 0, prot, flags: 2, file })
    });
    let clone = (0..4u32, prop::sample::select(vec![0, 0x100, 0x4100, 0x1_0100]))
        .prop_map(|(child, flags)| EventKind::Clone(CloneTask { child, flags }));
    let kind = prop_oneof![4 => fault, 4 => enter, 3 => exit, 2 => mapped, 1 => clone, 1 => Just(EventKind::Exec), 1 => Just(EventKind::Exit)];
    (0..4u32, kind)
}

/// Returns the threads that never come to their end, if every step takes no time.
fn stuck(plan: &Plan) -> Vec<usize> {
    let mut places = vec![(0, 0); plan.programs.len()];
    let mut has_begun: Vec<bool> = (0..plan.programs.len() as u32).map(|thread| plan.roots.contains(&thread)).collect();
    let mut is_open = vec![false; plan.nr_gates as usize];
    let has_space = |thread: &usize| {
        let program = &plan.programs[*thread];
        program.home.is_some()
            || matches!(program.steps.first().map(|step| step.action), None | Some(Action::Renew { .. }))
    };
    assert!((0..plan.programs.len()).all(|thread| has_space(&thread)), "a thread begins without a space");
    let mut is_moving = true;
    while std::mem::take(&mut is_moving) {
        for thread in 0..plan.programs.len() {
            let (program, (step, waits)) = (&plan.programs[thread], &mut places[thread]);
            let Some(next) = program.steps.get(*step).filter(|_| has_begun[thread]) else { continue };
            let needed = &program.waits[*waits..*waits + next.nr_waits as usize];
            if !needed.iter().all(|&gate| is_open[gate as usize]) {
                continue;
            }
            (*step, *waits, is_moving) = (*step + 1, *waits + needed.len(), true);
            next.gate.iter().for_each(|&gate| is_open[gate as usize] = true);
            if let Action::Fork { child, .. } | Action::Spawn { child } = next.action {
                assert!(!std::mem::replace(&mut has_begun[child as usize], true), "thread {child} begins twice");
            }
        }
    }
    (0..places.len()).filter(|&thread| places[thread].0 < plan.programs[thread].steps.len()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Whatever a readable trace says, a replay ends with a result or an error that blames the trace or the memory.
    #[test]
    fn no_trace_breaks_a_replay(events in prop::collection::vec(odd_event(), 1..60), lost in 0..2u64) {
        let mut story = Story::new(4);
        story.trace.header.lost = lost;
        story.file("/lib/x.so");
        for (thread, kind) in events {
            let before = story.trace.events.len();
            story.push(thread, kind);
            if story.trace.check().is_err() {
                story.trace.events.truncate(before);
            }
        }
        if lost > 0 {
            story.trace.events.remove(0);
        }
        let trace = story.done();
        let plan = planned(&trace);
        prop_assert_eq!(stuck(&plan), [] as [usize; 0]);
        let settings = Settings { memory_bytes: 64 << 20, ..settings(&trace, &plan, "spf-v11", "rwsem-2012") };
        match pass_natively(2, &plan, &settings) {
            Ok(_) | Err(ReplayError::OutOfMemory { .. }) => {}
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
