//! Calls of several threads that overlap in time: their results say which came first.

mod support;

use faultless_machine::designs::DESIGNS;
use faultless_plan::{Action, Options, Plan, plan};
use faultless_replay::{Checking, Settings, pass_natively};
use faultless_trace::*;
use support::{PAGE, Story, WRITE, settings};

const HEAP: u64 = 0x7f00_0000_0000;
const BREAK: u64 = 0x1000_0000;

fn planned(trace: &Trace) -> Plan {
    plan(trace, Options::default()).expect("the trace can be planned")
}

/// Replays a story under every design; nothing may differ, and no fault may need a class.
fn assert_clean(story: &Story) {
    let trace = story.done();
    let plan = planned(&trace);
    assert_eq!((plan.surprises.as_slice(), plan.totals.outside), (&[][..], 0));
    for design in DESIGNS {
        let settings = Settings { checking: Checking::AtEnd, ..settings(&trace, &plan, design, "rwsem-v8") };
        let tally = pass_natively(2, &plan, &settings).expect("it comes to its end").tally;
        assert_eq!((tally.first_mismatches.as_slice(), tally.mismatches), (&[][..], 0), "{design}");
    }
}

/// Returns the events of the calls in the plan's order of one step after the other, as far as waits give one.
fn order(plan: &Plan, events: &[u32]) -> Vec<u32> {
    let mut places = vec![(0, 0); plan.programs.len()];
    let (mut is_open, mut found) = (vec![false; plan.nr_gates as usize], Vec::new());
    // Whoever comes last in the list of threads goes first: only waits keep the recorded order.
    while let Some(thread) = (0..places.len()).rev().find(|&thread| {
        let (program, (step, waits)) = (&plan.programs[thread], places[thread]);
        let next = program.steps.get(step);
        next.is_some_and(|next| {
            program.waits[waits..][..next.nr_waits as usize].iter().all(|&gate| is_open[gate as usize])
        })
    }) {
        let step = &plan.programs[thread].steps[places[thread].0];
        places[thread] = (places[thread].0 + 1, places[thread].1 + step.nr_waits as usize);
        step.gate.iter().for_each(|&gate| is_open[gate as usize] = true);
        found.extend((matches!(step.action, Action::Call(_)) && events.contains(&step.event)).then_some(step.event));
    }
    found
}

/// Two threads of one space.
fn threads(count: u32) -> Story {
    let mut story = Story::new(count);
    (1..count).for_each(|thread| {
        story.spawn(0, thread);
    });
    story
}

#[test]
fn a_mapping_grows_into_room_that_an_overlapping_move_left() {
    for is_mover_entered_first in [true, false] {
        let mut story = threads(2);
        story.map(0, HEAP, 8);
        story.fault(0, HEAP + 4 * PAGE, WRITE);
        let grow = [HEAP, 4 * PAGE, 8 * PAGE, 0, 0, 0];
        let move_away = [HEAP + 4 * PAGE, 4 * PAGE, 4 * PAGE, 3, HEAP + 64 * PAGE, 0];
        if is_mover_entered_first {
            story.enter(1, Call::Mremap, move_away);
        }
        story.enter(0, Call::Mremap, grow);
        if !is_mover_entered_first {
            story.enter(1, Call::Mremap, move_away);
        }
        story.exit(0, Call::Mremap, HEAP as i64);
        story.exit(1, Call::Mremap, (HEAP + 64 * PAGE) as i64);
        story.fault(0, HEAP + 4 * PAGE, WRITE);
        assert_clean(&story);
    }
}

#[test]
fn a_chain_of_overlapping_moves_has_the_order_of_its_rooms() {
    // Each of three mappings moves to where the one behind it was; the last leaves.
    let mut story = threads(3);
    story.map(0, HEAP, 12);
    let place = |number: u64| HEAP + number * 4 * PAGE;
    let grow = |number: u64| [place(number), 4 * PAGE, 8 * PAGE, 0, 0, 0];
    story.enter(0, Call::Mremap, grow(0));
    story.enter(1, Call::Mremap, [place(1), 4 * PAGE, 4 * PAGE, 1, 0, 0]);
    story.enter(2, Call::Munmap, [place(2), 4 * PAGE, 0, 0, 0, 0]);
    story.exit(0, Call::Mremap, HEAP as i64);
    story.exit(1, Call::Mremap, place(2) as i64);
    story.exit(2, Call::Munmap, 0);
    story.fault(0, HEAP + 5 * PAGE, WRITE);
    story.fault(1, place(2), WRITE);
    assert_clean(&story);
}

#[test]
fn memory_that_was_given_before_its_old_mapping_went_comes_after_it() {
    let mut story = threads(3);
    story.map(0, HEAP, 4);
    story.enter(0, Call::Munmap, [HEAP, 4 * PAGE, 0, 0, 0, 0]);
    story.fault(2, HEAP, WRITE);
    story.enter(1, Call::Mmap, [0, 4 * PAGE, 3, 0x22, u64::MAX, 0]);
    story.fault(2, HEAP + PAGE, WRITE);
    story.exit(0, Call::Munmap, 0);
    story.exit(1, Call::Mmap, HEAP as i64);
    story.fault(1, HEAP + 2 * PAGE, WRITE);
    assert_clean(&story);
}

#[test]
fn memory_that_was_given_within_the_clock_error_after_its_old_mapping_went_comes_after_it() {
    // (enter of mmap, exit of munmap, exit of mmap, fault), each in ns after the event before it.
    for waits in [[1_200, 20_000, 6_000, 2_500], [1_200, 2_000, 1_000, 500], [8_000, 30_000, 200, 300]] {
        let mut story = threads(2);
        story.map(0, HEAP, 4);
        story.at_once().wait(3_800).fault(0, HEAP, WRITE);
        story.at_once().wait(6_200).enter(0, Call::Munmap, [HEAP, 4 * PAGE, 0, 0, 0, 0]);
        story.at_once().wait(waits[0]).enter(1, Call::Mmap, [0, 4 * PAGE, 3, 0x22, u64::MAX, 0]);
        story.at_once().wait(waits[1]).exit(0, Call::Munmap, 0);
        story.at_once().wait(waits[2]).exit(1, Call::Mmap, HEAP as i64);
        story.at_once().wait(waits[3]).fault(1, HEAP, WRITE);
        story.fault(1, HEAP + PAGE, WRITE);
        assert_clean(&story);
    }
}

#[test]
fn a_range_with_a_hole_is_unmapped_without_waiting_for_the_next_user_of_its_place() {
    let mut story = threads(2);
    story.map(0, HEAP, 8);
    story.unmap(0, HEAP + 2 * PAGE, 2);
    story.enter(1, Call::Mmap, [0, 8 * PAGE, 3, 0x22, u64::MAX, 0]);
    story.unmap(0, HEAP, 8);
    story.exit(1, Call::Mmap, HEAP as i64);
    story.fault(1, HEAP + 3 * PAGE, WRITE);
    story.call(1, Call::Madvise, [HEAP, 8 * PAGE, 4, 0, 0, 0], 0);
    story.fault(1, HEAP + 3 * PAGE, WRITE);
    assert_clean(&story);
}

#[test]
fn advice_that_found_nothing_comes_before_the_next_mapping_of_its_place() {
    const MERGEABLE: u64 = 12;
    let mut story = threads(2);
    let mut calls = Vec::new();
    for round in 0..10u32 {
        let (first, second) = (round % 2, (round + 1) % 2);
        calls.push(story.call(first, Call::Mmap, [0, PAGE, 3, 0x22, u64::MAX, 0], HEAP as i64));
        calls.push(story.call(second, Call::Madvise, [HEAP, PAGE, MERGEABLE, 0, 0, 0], 0));
        calls.push(story.call(first, Call::Munmap, [HEAP, PAGE, 0, 0, 0, 0], 0));
        calls.push(story.call(second, Call::Madvise, [HEAP, PAGE, 0, 0, 0, 0], -12));
    }
    assert_eq!(order(&planned(&story.done()), &calls), calls);
    assert_clean(&story);
}

#[test]
fn memory_that_was_unlocked_while_a_lock_still_fetched_pages_is_not_locked_afterwards() {
    const DONTNEED: u64 = 4;
    const EINVAL: i64 = -22;
    let advice = [HEAP, PAGE, DONTNEED, 0, 0, 0];
    let range = [HEAP, PAGE, 0, 0, 0, 0];
    for is_last in [false, true] {
        let mut story = threads(2);
        story.map(0, HEAP, 4);
        story.enter(0, Call::Mlock, range);
        story.call(1, Call::Mlock, range, 0);
        story.call(1, Call::Madvise, advice, EINVAL);
        story.call(1, Call::Munlock, range, 0);
        story.exit(0, Call::Mlock, 0);
        story.call(0, Call::Madvise, advice, if is_last { EINVAL } else { 0 });
        story.call(0, Call::Munlock, range, 0);
        story.call(0, Call::Madvise, advice, 0);
        assert_clean(&story);
    }
    // Who is told so before the call has returned.
    let mut story = threads(2);
    story.map(0, HEAP, 4);
    story.enter(0, Call::Mlock, range);
    story.call(1, Call::Madvise, advice, EINVAL);
    story.exit(0, Call::Mlock, 0);
    story.enter(0, Call::Munlock, range);
    story.call(1, Call::Madvise, advice, 0);
    story.exit(0, Call::Munlock, 0);
    assert_clean(&story);
}

#[test]
fn breaks_of_several_threads_keep_their_order() {
    let mut story = threads(4);
    story.call(0, Call::Brk, [0; 6], BREAK as i64);
    let mut calls = Vec::new();
    for round in 1..20u64 {
        let (thread, wanted) = ((round % 4) as u32, BREAK + round * 2 * PAGE);
        calls.push(story.call(thread, Call::Brk, [wanted, 0, 0, 0, 0, 0], wanted as i64));
        story.fault(thread, wanted - 8, WRITE);
    }
    assert_eq!(order(&planned(&story.done()), &calls), calls);
    assert_clean(&story);
}

#[test]
fn of_overlapping_breaks_the_lower_one_comes_first() {
    let mut story = threads(2);
    story.call(0, Call::Brk, [0; 6], BREAK as i64);
    let (low, high) = (BREAK + 2 * PAGE, BREAK + 8 * PAGE);
    let lower = story.enter(0, Call::Brk, [low, 0, 0, 0, 0, 0]);
    let higher = story.call(1, Call::Brk, [high, 0, 0, 0, 0, 0], high as i64);
    story.exit(0, Call::Brk, low as i64);
    story.fault(1, high - 8, WRITE);
    assert_eq!(order(&planned(&story.done()), &[lower, higher]), [lower, higher]);
    assert_clean(&story);
}
