//! What another thread's fault, call or fork beside a fault leaves open, and what it does not.

mod support;

use faultless_plan::Outcome;
use faultless_plan::classes::Class;
use faultless_plan::memory_calls::Verdict;
use faultless_trace::*;
use support::{PAGE, READ, STEP_NS, Story, WRITE, WRITE_PRESENT, class, planned, touch};

const HEAP: u64 = 0x7f00_0000_0000;

#[test]
fn a_fault_while_another_threads_is_under_way_is_raced() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    let first = story.fault(0, HEAP, WRITE);
    let second = story.at_once().wait(20_000).fault(1, HEAP, WRITE);
    assert_eq!(class(&story, first), (None, true));
    assert_eq!(class(&story, second), (Some(Class::Raced), false));
}

#[test]
fn of_two_faults_within_the_clock_error_either_may_have_been_first() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    let first = story.fault(0, HEAP, WRITE_PRESENT);
    let second = story.at_once().wait(5_000).fault(1, HEAP, READ);
    for event in [first, second] {
        assert_eq!(class(&story, event), (Some(Class::Raced), false));
    }
    let plan = planned(&story.done());
    assert_eq!((plan.totals.strict, plan.surprises.len()), (0, 0));
}

#[test]
fn a_load_that_raced_a_store_may_have_made_the_page() {
    // A store that is held up, and another thread's load, whose page of zeros a later store copies.
    let last = |is_raced: bool| {
        let mut story = Story::new(2);
        story.trace.header.pace = Pace::Stored;
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        story.fault(0, HEAP, WRITE);
        story.at_once().wait(100_000);
        if is_raced {
            story.fault(1, HEAP, READ);
        }
        let last = story.wait(30 * STEP_NS).fault(1, HEAP, WRITE_PRESENT);
        class(&story, last)
    };
    assert_eq!(last(true), (Some(Class::Ambiguous), false));
    assert_eq!(last(false), (Some(Class::Raced), false));
}

#[test]
fn what_is_not_known_of_a_page_is_not_known_after_a_refused_store() {
    let mut story = Story::new(2);
    story.trace.header.pace = Pace::Stored;
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    // The store comes before the rights go, or is refused.
    story.enter(0, Call::Mprotect, [HEAP, PAGE, 1, 0, 0, 0]);
    story.fault(1, HEAP, WRITE);
    story.exit(0, Call::Mprotect, 0);
    let refused = [30, 60].map(|steps| story.wait(steps * STEP_NS).fault(0, HEAP, WRITE));
    let load = story.wait(30 * STEP_NS).fault(0, HEAP, READ);
    for event in [refused[0], refused[1], load] {
        assert_eq!(class(&story, event), (Some(Class::Ambiguous), false));
    }
}

#[test]
fn a_fault_after_the_other_threads_next_event_is_not_raced() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    story.fault(0, HEAP, READ);
    story.fault(0, HEAP + PAGE, READ);
    let later = story.fault(1, HEAP, WRITE_PRESENT);
    assert_eq!(class(&story, later), (None, true));
}

#[test]
fn a_fault_long_after_one_without_a_next_event_is_not_raced() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    story.fault(0, HEAP, READ);
    let later = story.wait(50 * STEP_NS).fault(1, HEAP, WRITE_PRESENT);
    assert_eq!(class(&story, later), (None, true));
}

#[test]
fn an_access_may_have_come_long_before_its_record() {
    let second = |own_event_ns: Option<u64>, record_ns: u64| {
        let mut story = Story::new(2);
        story.trace.header.pace = Pace::Stored;
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        story.fault(0, HEAP, WRITE);
        story.at_once().wait(2_000).fault(0, HEAP + PAGE, WRITE);
        if let Some(ns) = own_event_ns {
            story.at_once().wait(ns).fault(1, HEAP + 2 * PAGE, WRITE);
        }
        let second = story.at_once().wait(record_ns).fault(1, HEAP, WRITE);
        class(&story, second).0
    };
    assert_eq!(second(None, 200_000), Some(Class::Raced), "the thread's CPU may have been taken away");
    assert_eq!(second(Some(100_000), 100_000), None, "it had been elsewhere since");
    assert_eq!(second(None, 900_000), None, "no fault takes so long");
}

#[test]
fn a_switch_out_in_a_fault_prolongs_it() {
    let mut story = Story::new(2);
    story.trace.header.pace = Pace::Stored;
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    story.fault(0, HEAP, WRITE);
    story.at_once().wait(2_000).push(0, EventKind::SwitchOut(SwitchReason::Blocked));
    let meanwhile = story.wait(90 * STEP_NS).fault(1, HEAP, WRITE);
    story.push(0, EventKind::SwitchIn);
    let after = story.wait(STEP_NS).fault(1, HEAP + 8, WRITE);
    assert_eq!(class(&story, meanwhile).0, Some(Class::Raced));
    assert_eq!(class(&story, after).0, None);
}

#[test]
fn an_entry_that_another_thread_made_writable_is_raced_and_ones_own_is_not() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    story.fault(0, HEAP, WRITE);
    let other = story.wait(100 * STEP_NS).fault(1, HEAP, WRITE_PRESENT);
    assert_eq!(class(&story, other), (Some(Class::Raced), false));
    let own = story.wait(100 * STEP_NS).fault(1, HEAP + 8, WRITE_PRESENT);
    assert_eq!(class(&story, own), (None, true));
}

#[test]
fn an_entry_that_the_thread_made_writable_on_another_cpu_is_raced() {
    // The thread sees the entry on one CPU, copies the page on the next, and comes back, where `is_away` says so.
    let last = |is_away: [bool; 2], pace: Pace, is_forked: bool| {
        let mut story = Story::new(2);
        story.trace.header.pace = pace;
        let go_away = |story: &mut Story| {
            story.wait(STEP_NS).push(0, EventKind::SwitchOut(SwitchReason::Blocked));
            story.wait(STEP_NS).push(0, EventKind::SwitchIn);
        };
        story.map(0, HEAP, 4);
        story.fault(0, HEAP, WRITE);
        if is_forked {
            story.clone_task(0, 1, 0);
        }
        is_away[0].then(|| go_away(&mut story));
        story.fault(0, HEAP, WRITE_PRESENT);
        is_away[1].then(|| go_away(&mut story));
        let last = story.wait(100 * STEP_NS).fault(0, HEAP + 8, WRITE_PRESENT);
        class(&story, last).0
    };
    let raced = Some(Class::Raced);
    assert_eq!(last([true, true], Pace::Stored, true), raced);
    assert_eq!(last([true, true], Pace::Stored, false), None, "nothing ever forbade it");
    assert_eq!(last([true, false], Pace::Stored, true), None, "it stayed where it was");
    assert_eq!(last([false, true], Pace::Stored, true), None, "no other CPU has seen the entry");
    assert_eq!(last([false, false], Pace::Absent, true), raced, "it is not known whether it stayed");
}

#[test]
fn a_page_of_the_parents_is_no_race_of_the_childs() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.fault(0, HEAP, WRITE);
    story.at_once().wait(2_000).clone_task(0, 1, 0);
    let copy = story.at_once().wait(2_000).fault(1, HEAP, WRITE_PRESENT);
    assert_eq!(class(&story, copy), (None, true));
}

#[test]
fn a_fault_in_another_threads_call_that_an_order_explains_needs_no_class() {
    let mut story = Story::new(2);
    story.map(0, HEAP, 4);
    story.spawn(0, 1);
    story.enter(0, Call::Munmap, [HEAP, 4 * PAGE, 0, 0, 0, 0]);
    let inside = story.fault(1, HEAP, WRITE);
    story.exit(0, Call::Munmap, 0);
    assert_eq!(class(&story, inside), (None, true));
    assert_eq!(touch(&planned(&story.done()), inside).outcome, Outcome::Done);
}

#[test]
fn faults_beside_a_call_are_ambiguous_within_the_clock_error_only() {
    for (distance_ns, expected) in [(8_000, Some(Class::Ambiguous)), (30_000, None)] {
        let mut story = Story::new(2);
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        story.fault(1, HEAP, WRITE);
        story.call(0, Call::Madvise, [HEAP, PAGE, 4, 0, 0, 0], 0);
        let near = story.at_once().wait(distance_ns).fault(1, HEAP, WRITE);
        assert_eq!(class(&story, near), (expected, expected.is_none()));
        assert!(planned(&story.done()).surprises.is_empty());
    }
}

#[test]
fn a_copy_on_write_before_a_fork_is_ambiguous_unless_it_is_the_forkers_own() {
    for (thread, expected) in [(1, Some(Class::Ambiguous)), (0, None)] {
        let mut story = Story::new(3);
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        story.fault(thread, HEAP, WRITE);
        story.fault(0, HEAP + PAGE, WRITE);
        let copied = story.wait(30 * STEP_NS).fault(thread, HEAP, WRITE_PRESENT);
        // However long the copying takes.
        story.wait(3_000 * STEP_NS).clone_task(0, 2, 0);
        assert_eq!(class(&story, copied), (expected, expected.is_none()));
    }
}

#[test]
fn a_fault_that_was_held_up_may_have_mapped_its_page_behind_a_fork() {
    for (is_away, thread, expected) in [(true, 1, Some(Class::Ambiguous)), (false, 1, None), (true, 0, None)] {
        let mut story = Story::new(3);
        story.trace.header.pace = Pace::Stored;
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        story.fault(thread, HEAP, WRITE);
        if is_away {
            story.at_once().wait(2_000).push(thread, EventKind::SwitchOut(SwitchReason::Preempted));
        }
        // The copying comes behind this one.
        story.fault(0, HEAP + PAGE, WRITE);
        story.clone_task(0, 2, 0);
        if is_away {
            story.push(thread, EventKind::SwitchIn);
        }
        let missing = story.fault(2, HEAP, READ);
        assert_eq!(class(&story, missing), (expected, expected.is_none()));
        assert_eq!(planned(&story.done()).surprises.is_empty(), expected.is_some());
    }
}

#[test]
fn a_fault_that_was_held_up_may_have_mapped_its_page_behind_anothers_call() {
    let (out, back) = (EventKind::SwitchOut(SwitchReason::Preempted), EventKind::SwitchIn);
    // The next fault of a third thread shows whether the page came behind the call.
    let next = |held_up: &[&EventKind], dropped_page: u64, shown: u32| {
        let mut story = Story::new(3);
        story.trace.header.pace = Pace::Stored;
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        story.spawn(0, 2);
        story.fault(1, HEAP, READ);
        if let Some(&&out) = held_up.first() {
            story.at_once().wait(2_000).push(1, out);
        }
        story.call(0, Call::Madvise, [HEAP + dropped_page * PAGE, PAGE, 4, 0, 0, 0], 0);
        if let Some(&&back) = held_up.get(1) {
            story.push(1, back);
        }
        let next = story.wait(30 * STEP_NS).fault(2, HEAP, shown);
        class(&story, next)
    };
    let ambiguous = (Some(Class::Ambiguous), false);
    assert_eq!(next(&[&out, &back], 0, WRITE_PRESENT), ambiguous, "it came behind the advice");
    assert_eq!(next(&[&out, &back], 0, WRITE), (None, true), "it came before, as recorded");
    assert_eq!(next(&[], 0, WRITE_PRESENT), (None, true), "the fault was over");
    assert_eq!(next(&[&out, &back], 1, WRITE), (None, true), "the advice is for another page");
}

#[test]
fn what_a_call_beside_a_fork_takes_is_there_in_the_child_or_not() {
    let in_child = |is_beside: bool, moves_behind: bool, shown: u32| {
        let mut story = Story::new(3);
        story.trace.header.pace = Pace::Stored;
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        story.fault(1, HEAP, WRITE);
        let args = [HEAP, 2 * PAGE, 4, 0, 0, 0];
        story.enter(1, Call::Madvise, args);
        if !is_beside {
            story.exit(1, Call::Madvise, 0);
        }
        story.fault(0, HEAP + 2 * PAGE, WRITE);
        story.clone_task(0, 2, 0);
        if moves_behind {
            // The advice comes behind all faults in its window.
            story.fault(0, HEAP + PAGE, WRITE);
        }
        if is_beside {
            story.exit(1, Call::Madvise, 0);
        }
        let child = story.fault(2, HEAP, shown);
        class(&story, child)
    };
    let (strict, ambiguous) = ((None, true), (Some(Class::Ambiguous), false));
    assert_eq!(in_child(true, true, READ), ambiguous);
    assert_eq!(in_child(true, true, WRITE_PRESENT), strict);
    assert_eq!(in_child(true, false, READ), strict);
    assert_eq!(in_child(true, false, WRITE_PRESENT), ambiguous);
    assert_eq!(in_child(false, false, READ), strict);
    let populated = (Some(Class::Populated), false);
    assert_eq!(in_child(false, false, WRITE_PRESENT), populated, "the advice was over");
}

#[test]
fn who_has_memory_that_a_waiting_call_gets_later_has_certain_faults() {
    let second_of_two = |flags: u64| {
        let mut story = Story::new(2);
        story.spawn(0, 1);
        story.enter(1, Call::Mmap, [HEAP, 4 * PAGE, 3, flags, u64::MAX, 0]);
        story.map(0, HEAP, 4);
        story.fault(0, HEAP, WRITE);
        let second = story.fault(0, HEAP, WRITE);
        story.unmap(0, HEAP, 4);
        story.exit(1, Call::Mmap, HEAP as i64);
        class(&story, second)
    };
    assert_eq!(second_of_two(0x22), (None, true), "the call needs free room");
    assert_eq!(second_of_two(0x32), (Some(Class::Ambiguous), false), "it may have mapped over the page in between");
}

#[test]
fn a_store_may_find_that_another_threads_load_came_first_and_fault_again() {
    let second = |is_shared: bool| {
        let mut story = Story::new(2);
        story.map(0, HEAP, 4);
        if is_shared {
            story.spawn(0, 1);
            story.fault(1, HEAP, READ);
        }
        story.at_once().wait(100).fault(0, HEAP, WRITE);
        let second = story.at_once().wait(3_000).fault(0, HEAP, WRITE_PRESENT);
        class(&story, second)
    };
    assert_eq!(second(true), (Some(Class::Ambiguous), false));
    assert_eq!(second(false), (None, true), "nobody else made the page come");
}

#[test]
fn an_instruction_may_fault_twice_in_a_row_on_a_page_that_is_there() {
    // A store behind a fork faults, and at once again: `other` is what lies between or differs.
    let second = |other: fn(&mut Story), address: u64, code: u32| {
        let mut story = Story::new(3);
        story.trace.header.pace = Pace::Stored;
        story.map(0, HEAP, 4);
        story.spawn(0, 2);
        story.fault(0, HEAP, WRITE);
        story.clone_task(0, 1, 0);
        story.fault(0, HEAP, WRITE_PRESENT);
        other(&mut story);
        let second = story.fault(0, address, code);
        class(&story, second)
    };
    let nothing = |_: &mut Story| {};
    assert_eq!(second(nothing, HEAP, WRITE_PRESENT), (Some(Class::Ambiguous), false));
    assert_eq!(second(nothing, HEAP + 8, WRITE_PRESENT), (None, true), "it is another access");
    assert_eq!(second(nothing, HEAP, WRITE), (None, true), "the page went meanwhile");
    let other_fault = |story: &mut Story| _ = story.fault(0, HEAP + PAGE, WRITE);
    assert_eq!(second(other_fault, HEAP, WRITE_PRESENT), (None, true), "the thread went on");
    let other_code = |story: &mut Story| {
        let EventKind::Fault(first) = &mut story.trace.events.last_mut().expect("there is one").kind else { panic!() };
        first.ip += 3;
    };
    assert_eq!(second(other_code, HEAP, WRITE_PRESENT), (None, true), "other code made the page come");
}

#[test]
fn a_thread_alone_in_its_space_faults_twice_in_a_row_only_if_it_was_switched_out() {
    let second = |nr_threads: u32, pace: Pace, is_switched: bool| {
        let mut story = Story::new(2);
        story.trace.header.pace = pace;
        story.map(0, HEAP, 4);
        (1..nr_threads).for_each(|thread| _ = story.spawn(0, thread));
        story.fault(0, HEAP, READ);
        story.fault(0, HEAP, WRITE_PRESENT);
        if is_switched {
            story.push(0, EventKind::SwitchOut(SwitchReason::Preempted));
            story.push(0, EventKind::SwitchIn);
        }
        let second = story.fault(0, HEAP, WRITE_PRESENT);
        (class(&story, second), planned(&story.done()).surprises.contains(&second))
    };
    let (surprise, repeated) = (((None, true), true), ((Some(Class::Ambiguous), false), false));
    assert_eq!(second(1, Pace::Stored, false), surprise);
    assert_eq!(second(1, Pace::Stored, true), repeated);
    assert_eq!(second(2, Pace::Stored, false), repeated, "another thread may have changed the entry meanwhile");
    assert_eq!(second(1, Pace::Absent, false), repeated, "it is not known whether the thread was switched out");
}

#[test]
fn calls_that_meet_leave_open_what_is_mapped_until_it_is_mapped_anew() {
    let all = [HEAP, 4 * PAGE];
    let (unmap, protect) = ((Call::Munmap, [HEAP, PAGE, 0]), (Call::Mprotect, [all[0], all[1], 1]));
    let drop = (Call::Madvise, [all[0], all[1], 4]);
    // Thread 0 makes one call, and thread 1 another one: at the same time, or afterwards.
    let met = |one: (Call, [u64; 3]), other: (Call, [u64; 3]), is_beside: bool, then: fn(&mut Story)| {
        let mut story = Story::new(2);
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        let args = |[a, b, c]: [u64; 3]| [a, b, c, 0, 0, 0];
        story.enter(0, one.0, args(one.1));
        if !is_beside {
            story.exit(0, one.0, 0);
        }
        story.enter(1, other.0, args(other.1));
        story.exit(1, other.0, 0);
        if is_beside {
            story.exit(0, one.0, 0);
        }
        then(&mut story);
        let fault = story.wait(30 * STEP_NS).fault(1, HEAP, READ);
        let verdicts = planned(&story.done()).calls.iter().map(|call| call.verdict).collect::<Vec<Verdict>>();
        (class(&story, fault), verdicts[1], verdicts[2])
    };
    let (open, certain) = ((Some(Class::Ambiguous), false), (None, true));
    let (either, compared) = (Verdict::Either(0), Verdict::Compared(0));
    let nothing = |_: &mut Story| {};
    assert_eq!(met(unmap, protect, true, nothing), (open, either, either));
    assert_eq!(met(drop, drop, true, nothing), (certain, compared, compared), "either order comes to the same");
    assert_eq!(met(drop, protect, true, nothing), (certain, compared, compared));
    assert_eq!(met(protect, drop, false, nothing), (certain, compared, compared), "the order is known");
    let fixed = |story: &mut Story| _ = story.call(1, Call::Mmap, [HEAP, PAGE, 3, 0x32, u64::MAX, 0], HEAP as i64);
    assert_eq!(met(unmap, protect, true, fixed), (certain, either, either), "what was there before does not matter");
    // Nobody knows of a new mapping before it is there.
    let mut story = Story::new(2);
    story.spawn(0, 1);
    story.enter(0, Call::Mmap, [0, 4 * PAGE, 3, 0x22, u64::MAX, 0]);
    story.exit(0, Call::Mmap, HEAP as i64);
    story.at_once().wait(2_000).protect(1, HEAP, 4, 1);
    let told = story.wait(30 * STEP_NS).fault(1, HEAP, READ);
    assert_eq!(class(&story, told), certain);
    // What is not known takes what depends on it along.
    let moved = |story: &mut Story| {
        let (from, to) = (HEAP + 0x10_0000, HEAP);
        story.call(1, Call::Mremap, [HEAP, PAGE, PAGE, 3, from, 0], from as i64);
        story.call(1, Call::Mremap, [from, PAGE, PAGE, 3, to, 0], to as i64);
    };
    assert_eq!(met(unmap, protect, true, moved), (open, either, either));
}

#[test]
fn a_call_that_maps_beside_a_fork_leaves_open_what_the_child_has_mapped() {
    let in_child = |is_beside: bool| {
        let mut story = Story::new(3);
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        let args = [HEAP, PAGE, 3, 0x32, u64::MAX, 0];
        story.enter(1, Call::Mmap, args);
        if !is_beside {
            story.exit(1, Call::Mmap, HEAP as i64);
        }
        story.fault(0, HEAP + 2 * PAGE, WRITE);
        story.clone_task(0, 2, 0);
        if is_beside {
            story.exit(1, Call::Mmap, HEAP as i64);
        }
        let (child, parent) = (story.fault(2, HEAP, READ), story.wait(30 * STEP_NS).fault(0, HEAP, READ));
        (class(&story, child), class(&story, parent))
    };
    let certain = (None, true);
    assert_eq!(in_child(true), ((Some(Class::Ambiguous), false), certain));
    assert_eq!(in_child(false), (certain, certain));
}

#[test]
fn what_a_load_beside_advice_mapped_around_it_may_be_there() {
    let store = |is_beside: bool| {
        let mut story = Story::new(2);
        let file = story.file("/home/x");
        story.map_file(0, HEAP, 16, 3, file);
        story.spawn(0, 1);
        let args = [HEAP, 16 * PAGE, 4, 0, 0, 0];
        if is_beside {
            story.enter(1, Call::Madvise, args);
        }
        story.fault(0, HEAP, READ);
        match is_beside {
            true => story.exit(1, Call::Madvise, 0),
            false => story.wait(30 * STEP_NS).call(1, Call::Madvise, args, 0),
        };
        let store = story.wait(30 * STEP_NS).fault(0, HEAP + 5 * PAGE, WRITE_PRESENT);
        class(&story, store)
    };
    assert_eq!(store(true), (Some(Class::FaultAround), false));
    assert_eq!(store(false), (None, true), "it was over before the advice");
}

#[test]
fn a_load_that_was_held_up_may_have_mapped_what_was_mapped_meanwhile() {
    let store = |is_held_up: bool| {
        let mut story = Story::new(2);
        story.trace.header.pace = Pace::Stored;
        let file = story.file("/home/x");
        story.map(0, HEAP, 16);
        story.spawn(0, 1);
        story.fault(1, HEAP, READ);
        if is_held_up {
            story.at_once().wait(2_000).push(1, EventKind::SwitchOut(SwitchReason::Blocked));
        }
        // Whatever comes between takes what is known of the pages with it.
        story.unmap(0, HEAP, 16);
        story.map_file(0, HEAP, 16, 3, file);
        if is_held_up {
            story.push(1, EventKind::SwitchIn);
        }
        let around = story.wait(30 * STEP_NS).fault(0, HEAP + 5 * PAGE, WRITE_PRESENT);
        let own = story.fault(0, HEAP, WRITE_PRESENT);
        (class(&story, around), class(&story, own))
    };
    let (around, ambiguous) = ((Some(Class::FaultAround), false), (Some(Class::Ambiguous), false));
    assert_eq!(store(true), (around, ambiguous));
    assert_eq!(store(false), ((None, true), (None, true)));
}

#[test]
fn a_store_beside_a_fork_leaves_open_whether_the_areas_tables_are_copied() {
    let missing = |is_beside: bool| {
        let mut story = Story::new(3);
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        if !is_beside {
            story.fault(1, HEAP + PAGE, WRITE);
            story.fault(1, HEAP + 2 * PAGE, READ);
        }
        story.fault(0, HEAP, READ);
        if is_beside {
            story.fault(1, HEAP + PAGE, WRITE);
        }
        story.clone_task(0, 2, 0);
        let missing = story.wait(30 * STEP_NS).fault(2, HEAP, READ);
        class(&story, missing)
    };
    assert_eq!(missing(true), (Some(Class::Ambiguous), false));
    assert_eq!(missing(false), (None, true), "the store was before the copying, and nothing explains it");
}

#[test]
fn a_page_that_another_thread_fills_may_be_absent_for_a_moment() {
    const POPULATE_WRITE: u64 = 23;
    let load = |is_beside: bool| {
        let mut story = Story::new(2);
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        story.fault(0, HEAP, READ);
        let args = [HEAP, 4 * PAGE, POPULATE_WRITE, 0, 0, 0];
        story.wait(30 * STEP_NS).enter(1, Call::Madvise, args);
        if !is_beside {
            story.exit(1, Call::Madvise, 0);
        }
        let load = story.fault(0, HEAP, READ);
        if is_beside {
            story.exit(1, Call::Madvise, 0);
        }
        class(&story, load).0
    };
    assert_eq!(load(true), Some(Class::Ambiguous));
    assert_eq!(load(false), Some(Class::Populated));
}

#[test]
fn of_shared_memory_with_guards_a_child_may_have_the_pages() {
    const GUARD_INSTALL: u64 = 102;
    for (has_guard, expected) in [(true, (Some(Class::Ambiguous), false)), (false, (None, true))] {
        let mut story = Story::new(2);
        story.call(0, Call::Mmap, [0, 4 * PAGE, 3, 0x21, u64::MAX, 0], HEAP as i64);
        if has_guard {
            story.call(0, Call::Madvise, [HEAP + PAGE, PAGE, GUARD_INSTALL, 0, 0, 0], 0);
        }
        story.fault(0, HEAP, WRITE);
        story.protect(0, HEAP, 4, 1);
        story.clone_task(0, 1, 0);
        let refused = story.fault(1, HEAP, WRITE_PRESENT);
        assert_eq!(class(&story, refused), expected, "{has_guard}");
    }
}

#[test]
fn a_call_beside_a_fork_that_joins_areas_leaves_their_tables_open() {
    let in_child = |is_beside: bool| {
        let mut story = Story::new(3);
        // Between an area without a root and one with there is a hole, which the call fills.
        story.map(0, HEAP, 2);
        story.map(0, HEAP + 3 * PAGE, 2);
        story.spawn(0, 1);
        story.fault(0, HEAP + 4 * PAGE, WRITE);
        story.fault(0, HEAP, READ);
        let (args, placed) = ([HEAP + 2 * PAGE, PAGE, 3, 0x32, u64::MAX, 0], (HEAP + 2 * PAGE) as i64);
        story.enter(1, Call::Mmap, args);
        if !is_beside {
            story.exit(1, Call::Mmap, placed);
        }
        story.fault(0, HEAP + 2 * PAGE, READ);
        story.clone_task(0, 2, 0);
        if is_beside {
            story.exit(1, Call::Mmap, placed);
        }
        let missing = story.wait(30 * STEP_NS).fault(2, HEAP, READ);
        class(&story, missing)
    };
    assert_eq!(in_child(true), (Some(Class::Ambiguous), false));
    assert_eq!(in_child(false), (None, true), "they were one area by then, and nothing explains it");
}

#[test]
fn a_lock_that_meets_advice_leaves_open_what_was_dropped() {
    let fault = |is_met: bool| {
        let mut story = Story::new(2);
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        let args = [HEAP, 2 * PAGE, 0, 0, 0, 0];
        story.enter(0, Call::Mlock, args);
        if !is_met {
            story.exit(0, Call::Mlock, 0);
        }
        story.call(1, Call::Madvise, [HEAP, 4 * PAGE, 4, 0, 0, 0], if is_met { 0 } else { -22 });
        if is_met {
            story.exit(0, Call::Mlock, 0);
        }
        let fault = story.wait(30 * STEP_NS).fault(1, HEAP, WRITE);
        class(&story, fault).0
    };
    assert_eq!(fault(true), Some(Class::Ambiguous));
    assert_eq!(fault(false), Some(Class::Populated));
}

#[test]
fn memory_that_comes_and_goes_under_other_names_has_an_order_too() {
    // Thread 0's detaching has begun when thread 1 gets the same address.
    let memory = "/SYSV00000000 (deleted)";
    let calls = [(Call::Shmat, Call::Shmdt, memory), (Call::IoSetup, Call::IoDestroy, "/[aio] (deleted)")];
    for (attach, detach, name) in calls {
        let mut story = Story::new(2);
        let file = Some(story.file(name));
        let told = Mapped { start: HEAP, len_bytes: PAGE, file_offset: 0, prot: 3, flags: 1, file };
        let result = if attach == Call::Shmat { HEAP as i64 } else { 0 };
        let take = |story: &mut Story, thread: u32| {
            story.enter(thread, attach, [0; 6]);
            story.push(thread, EventKind::Mapped(told));
            story.exit(thread, attach, result);
        };
        story.spawn(0, 1);
        take(&mut story, 0);
        story.enter(0, detach, [HEAP, 0, 0, 0, 0, 0]);
        take(&mut story, 1);
        let inside = story.fault(1, HEAP, WRITE);
        story.exit(0, detach, 0);
        let behind = story.fault(1, HEAP, READ | Fault::PRESENT);
        let plan = planned(&story.done());
        for fault in [inside, behind] {
            assert_eq!(touch(&plan, fault).outcome, Outcome::Done, "{}", detach.name());
        }
        assert_eq!(plan.totals.skipped.len(), 0);
    }
}

#[test]
fn a_forks_own_descriptor_is_stored_behind_the_copying() {
    const KERNELS_STORE: u32 = Fault::WRITE;
    for (flags, expected) in [(CloneTask::PIDFD, (Some(Class::Ambiguous), false)), (0, (None, true))] {
        let mut story = Story::new(2);
        story.trace.threads[1].pid = 2;
        story.map(0, HEAP, 4);
        story.fault(0, HEAP + PAGE, WRITE);
        story.fault(0, HEAP, KERNELS_STORE);
        story.clone_task(0, 1, flags);
        let childs = story.fault(1, HEAP, WRITE);
        let (class, is_strict) = class(&story, childs);
        let plan = planned(&story.done());
        let is_surprise = plan.surprises.contains(&childs);
        assert_eq!((class, is_strict), expected, "{flags:#x}");
        assert_eq!(is_surprise, flags == 0, "{flags:#x}");
        let other = touch(&plan, childs);
        assert_eq!(other.outcome, Outcome::Done);
    }
}

/// A call of thread 0 beside one of thread 1, which is under way all the time.
fn beside(inner: (Call, [u64; 6], i64), outer: (Call, [u64; 6], i64)) -> Verdict {
    let mut story = Story::new(2);
    story.spawn(0, 1);
    story.map(0, HEAP, 4);
    story.enter(1, outer.0, outer.1);
    story.call(0, inner.0, inner.1, inner.2);
    story.exit(1, outer.0, outer.2);
    let plan = planned(&story.done());
    plan.calls.iter().rfind(|plan| plan.call == Some(inner.0)).expect("it was called").verdict
}

#[test]
fn a_call_that_is_refused_beside_another_may_have_been_refused_for_its_sake() {
    const EXISTS: i64 = -17;
    const NO_MEMORY: i64 = -12;
    const INVALID: i64 = -22;
    const FIXED_NOREPLACE: u64 = 0x10_0022;
    let (page, other) = (HEAP, HEAP + 16 * PAGE);
    let munmap = |place| (Call::Munmap, [place, PAGE, 0, 0, 0, 0], 0);
    let mmap = (Call::Mmap, [0, PAGE, 3, 0x22, u64::MAX, 0], other as i64);
    // What is refused, beside what, and whether the order decides it.
    let cases = [
        ((Call::Mmap, [page, PAGE, 3, FIXED_NOREPLACE, u64::MAX, 0], EXISTS), munmap(page), true),
        ((Call::Mmap, [page, PAGE, 3, FIXED_NOREPLACE, u64::MAX, 0], EXISTS), munmap(other), false),
        ((Call::Mremap, [page, 0, PAGE, 3, other, 0], INVALID), munmap(page), true),
        ((Call::Mincore, [page, 2 * PAGE, 0, 0, 0, 0], NO_MEMORY), munmap(page), true),
        // Who was told of free room comes later; who guessed it may have come before.
        ((Call::Mincore, [other, PAGE, 0, 0, 0, 0], NO_MEMORY), mmap, true),
        ((Call::Mincore, [other, PAGE, 0, 0, 0, 0], 0), mmap, false),
    ];
    for (inner, outer, expected) in cases {
        let is_open = matches!(beside(inner, outer), Verdict::Either(_));
        assert_eq!(is_open, expected, "{inner:x?} beside {outer:x?}");
    }
}

#[test]
fn a_stack_that_one_thread_maps_grows_for_another_behind_it() {
    const GROWS_DOWN: u64 = 0x122;
    let mut story = Story::new(2);
    story.spawn(0, 1);
    let mapping = story.call(0, Call::Mmap, [0, PAGE, 3, GROWS_DOWN, u64::MAX, 0], HEAP as i64);
    let growth = story.fault(1, HEAP - 8 * PAGE, WRITE);
    let change = story.call(0, Call::Mprotect, [HEAP - 6 * PAGE, PAGE, 1, 0, 0, 0], 0);
    let plan = planned(&story.done());
    // The growth waits for the mapping, and what changes a part of it for the growth.
    let waits_of = |event: u32| {
        let steps = plan.programs.iter().flat_map(|program| &program.steps);
        steps.clone().find(|step| step.event == event).map_or(0, |step| step.nr_waits)
    };
    assert_eq!([mapping, growth, change].map(waits_of), [0, 1, 1]);
}
