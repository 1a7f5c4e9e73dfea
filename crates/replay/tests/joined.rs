//! Plans that begin in the midst of a running process: what is restored, what is known, what may differ.

mod support;

use faultless_machine::designs::DESIGNS;
use faultless_machine::info;
use faultless_machine::simulated::MachineChoice;
use faultless_plan::classes::Class;
use faultless_plan::memory_calls::Reason;
use faultless_plan::{Action, Losses, Options, Outcome, Plan, Touch, plan};
use faultless_replay::experiment::{self, ReplaySetup};
use faultless_replay::report::{self, Report};
use faultless_replay::{Checking, PassResult, pass_natively, pass_on_host};
use faultless_trace::*;
use support::{PAGE, READ, STEP_NS, Story, WRITE, WRITE_PRESENT, settings};

const HEAP: u64 = 0x55_5555_5000;
const MAPS: u64 = 0x7f00_0000_0000;
const READ_PRESENT: u32 = 5;

fn area(start: u64, pages: u64, prot: u32, runs: &[(u64, u64, PageState)]) -> Area {
    let run = |&(page, nr_pages, state): &(u64, u64, PageState)| PageRun {
        start: start + page * PAGE,
        nr_pages,
        state,
        is_huge: false,
    };
    let runs = runs.iter().map(run).collect();
    Area { start, end: start + pages * PAGE, prot, flags: Area::ACCOUNTED, runs, ..Area::default() }
}

fn planned(story: &Story) -> Plan {
    plan(&story.done(), Options::default()).expect("the trace can be planned")
}

fn find(plan: &Plan, event: u32) -> Option<Touch> {
    let mut steps = plan.programs.iter().flat_map(|program| &program.steps);
    steps.find_map(|step| match step.action {
        Action::Access(touch) if step.event == event => Some(touch),
        _ => None,
    })
}

fn touch(story: &Story, event: u32) -> Touch {
    find(&planned(story), event).expect("the event is an access")
}

/// Replays under every design, on one and on two CPUs.
fn replayed(story: &Story) -> Vec<PassResult> {
    let (trace, plan) = (story.done(), planned(story));
    let run = |(design, cpus): (&&str, usize)| {
        let settings = settings(&trace, &plan, design, "rwsem-v8");
        pass_natively(cpus, &plan, &settings).expect("the pass comes to its end")
    };
    DESIGNS.iter().flat_map(|design| [(design, 1), (design, 2)]).map(run).collect()
}

fn assert_clean(story: &Story) {
    for result in replayed(story) {
        assert_eq!(result.tally.first_mismatches, []);
    }
}

/// A process of two threads: a heap, memory in all states, a stack.
fn process() -> Vec<Area> {
    let stack = Area { flags: Area::GROWS_DOWN, ..area(MAPS + (1 << 30), 4, 3, &[(3, 1, PageState::Own)]) };
    vec![
        area(HEAP, 4, 3, &[(0, 2, PageState::Own)]),
        area(MAPS, 8, 3, &[(0, 2, PageState::Own), (2, 1, PageState::Zero), (4, 1, PageState::Swapped)]),
        area(MAPS + 8 * PAGE, 4, 1, &[(1, 2, PageState::Own)]),
        area(MAPS + 12 * PAGE, 2, 0, &[(0, 1, PageState::Own)]),
        stack,
    ]
}

fn joined() -> Story {
    let mut story = Story::joining(2, HEAP..HEAP + 4 * PAGE, process(), 2 * STEP_NS);
    story.wait(3 * STEP_NS);
    story
}

#[test]
fn what_was_absent_is_strict_and_what_was_there_may_differ_once() {
    let mut story = joined();
    let absent = story.fault(0, MAPS + 3 * PAGE, WRITE);
    let zero = story.fault(1, MAPS + 2 * PAGE, WRITE_PRESENT);
    let own = story.fault(1, MAPS, WRITE_PRESENT);
    let again = story.fault(1, MAPS + 8, WRITE_PRESENT);
    let forbidden = story.fault(0, MAPS + 12 * PAGE, READ);
    let class = |event| (touch(&story, event).class, touch(&story, event).is_strict);
    assert_eq!(class(absent), (None, true));
    assert_eq!(class(zero), (None, true), "the zero page is always copied");
    assert_eq!(class(own), (Some(Class::Inherited), false), "the entry may have been write-protected");
    assert_eq!(class(again), (None, true), "and is known since");
    assert_eq!(touch(&story, forbidden).outcome, Outcome::Refused);
    assert_eq!(planned(&story).surprises, [again]);
}

#[test]
fn a_space_is_restored_under_every_design_and_nothing_else_is_there() {
    let mut story = joined();
    story.fault(0, MAPS + 3 * PAGE, WRITE);
    story.fault(1, MAPS + 2 * PAGE, WRITE_PRESENT);
    story.fault(1, MAPS + 9 * PAGE, WRITE_PRESENT);
    story.fault(0, MAPS + 12 * PAGE, READ_PRESENT);
    story.fault(0, MAPS + 4 * PAGE, READ);
    story.fault(1, MAPS + (1 << 30) - PAGE, WRITE);
    story.fault(1, MAPS + 14 * PAGE, READ);
    story.call(0, Call::Brk, [0; 6], (HEAP + 4 * PAGE - 100) as i64);
    story.call(0, Call::Brk, [HEAP + 5 * PAGE, 0, 0, 0, 0, 0], (HEAP + 5 * PAGE) as i64);
    story.fault(0, HEAP + 4 * PAGE, WRITE);
    story.unmap(1, MAPS, 4);
    story.protect(0, MAPS + 12 * PAGE, 2, 3);
    assert_clean(&story);
    let result = pass_on_host(&planned(&story), 2).expect("the host replays it");
    assert_eq!(result.tally.first_mismatches, []);
}

#[test]
fn events_until_the_snapshot_was_complete_are_applied_and_not_replayed() {
    let mut story = Story::joining(2, 0..0, process(), 20 * STEP_NS);
    let early = story.fault(0, MAPS + 3 * PAGE, WRITE);
    story.unmap(0, MAPS + 5 * PAGE, 1);
    story.map(1, MAPS + 20 * PAGE, 2);
    story.fault(1, MAPS + 20 * PAGE, WRITE);
    story.protect(0, MAPS, 2, 1);
    story.wait(30 * STEP_NS);
    let again = story.fault(0, MAPS + 3 * PAGE, WRITE);
    let gone = story.fault(0, MAPS + 5 * PAGE, WRITE);
    let fresh = story.fault(0, MAPS + 21 * PAGE, WRITE);
    let protected = story.fault(0, MAPS, WRITE_PRESENT);
    let plan = planned(&story);
    assert!(find(&plan, early).is_none());
    assert_eq!(find(&plan, again).map(|touch| touch.class), Some(Some(Class::Inherited)));
    assert_eq!(find(&plan, gone).map(|touch| touch.outcome), Some(Outcome::Refused));
    assert_eq!(find(&plan, fresh).map(|touch| (touch.class, touch.is_strict)), Some((None, true)));
    assert_eq!(find(&plan, protected).map(|touch| touch.outcome), Some(Outcome::Refused));
    assert_clean(&story);
    assert_eq!((plan.totals.faults_applied, plan.totals.faults), (2, 4));
}

#[test]
fn a_report_says_how_many_faults_were_compared_and_how_many_only_applied() {
    let mut story = Story::joining(2, 0..0, process(), 20 * STEP_NS);
    story.fault(0, MAPS + 3 * PAGE, WRITE);
    story.wait(30 * STEP_NS);
    story.map(0, MAPS + 20 * PAGE, 3);
    (20..23).for_each(|page| _ = story.fault(0, MAPS + page * PAGE, WRITE));
    let trace = story.done();
    let setup = ReplaySetup {
        designs: vec!["mmap-sem".into()],
        semaphores: Vec::new(),
        cpus: vec![2],
        runs: 1,
        seed: 1,
        machine: MachineChoice::Native,
        jobs: 1,
        pace: faultless_plan::Pace::None,
        losses: Losses::Refused,
        memory_bytes: None,
        checking: Checking::AtEnd,
        pattern: None,
    };
    let outcome = experiment::run(&trace, &setup, &|_| ()).expect("it is replayed");
    let machine = info::of(&setup.machine);
    let report =
        Report { workload: "joined", header: &trace.header, machine: &machine, setup: &setup, outcome: &outcome };
    let checks = report::result_set(&report).checks;
    assert_eq!((&checks["faults_recorded"], &checks["faults_applied"]), (&3.into(), &1.into()));
    assert_eq!(checks["faults_compared_share"], 0.75);
    let mut out = Vec::new();
    report::human::write(&report, &mut out).expect("into memory");
    let told = String::from_utf8(out).expect("text");
    assert!(told.contains("compared  3 of 4 faults (75.0 %); 1 came before and are only applied"), "{told}");
    assert!(told.contains("Keep in mind: 75.0 % of the faults were compared"), "{told}");
}

#[test]
fn a_move_that_the_snapshot_saw_the_end_of_leaves_its_target_alone() {
    let mut story = Story::joining(1, 0..0, process(), 20 * STEP_NS);
    // It came from where nothing is any more; page 0 was there, page 7 was not.
    let args = [MAPS + 100 * PAGE, 8 * PAGE, 8 * PAGE, 3, MAPS, 0];
    story.call(0, Call::Mremap, args, MAPS as i64);
    story.wait(30 * STEP_NS);
    let there = story.fault(0, MAPS, WRITE_PRESENT);
    let absent = story.fault(0, MAPS + 7 * PAGE, WRITE);
    assert_eq!(touch(&story, there).class, Some(Class::Inherited));
    assert_eq!((touch(&story, absent).class, touch(&story, absent).is_strict), (None, true));
    assert_clean(&story);
}

#[test]
fn threads_and_processes_made_before_the_snapshot_was_complete_go_on() {
    let mut story = Story::joining(2, HEAP..HEAP + 4 * PAGE, process(), 20 * STEP_NS);
    story.trace.threads.extend((2..5).map(|tid| Thread { pid: 9, tid, name: String::new() }));
    story.spawn(0, 2);
    story.clone_task(1, 3, 0);
    story.push(3, EventKind::Exec);
    story.clone_task(1, 4, 0);
    story.end(1);
    story.wait(30 * STEP_NS);
    story.fault(2, MAPS + 3 * PAGE, WRITE);
    story.map(3, MAPS + 30 * PAGE, 1);
    story.fault(3, MAPS + 30 * PAGE, WRITE);
    story.fault(4, MAPS, WRITE_PRESENT);
    story.call(4, Call::Brk, [HEAP + 6 * PAGE, 0, 0, 0, 0, 0], (HEAP + 6 * PAGE) as i64);
    story.end(4);
    assert_clean(&story);
}

#[test]
fn a_call_that_was_under_way_is_counted_as_such() {
    let mut story = joined();
    story.exit(0, Call::Munmap, 0);
    story.fault(1, MAPS + 3 * PAGE, WRITE);
    assert_eq!(planned(&story).totals.imposed.get(&Reason::InFlight), Some(&1));
    assert_clean(&story);
}

#[test]
fn copies_of_a_joined_process_restore_spaces_of_their_own() {
    let mut story = joined();
    story.fault(0, MAPS + 3 * PAGE, WRITE);
    let plan = planned(&story).repeated(3);
    let spaces: Vec<_> = plan.restorations.iter().map(|restoration| restoration.space).collect();
    assert_eq!(spaces, [0, 1, 2]);
}

#[test]
fn guards_that_stood_before_the_recording_refuse_until_they_are_removed() {
    let memory = area(MAPS, 8, 3, &[(0, 2, PageState::Own), (2, 3, PageState::Guard)]);
    let mut story = Story::joining(1, 0..0, vec![memory], 2 * STEP_NS);
    story.wait(3 * STEP_NS);
    let refused = story.fault(0, MAPS + 3 * PAGE, WRITE);
    let beside = story.fault(0, MAPS + 5 * PAGE, WRITE);
    const GUARD_REMOVE: u64 = 103;
    story.call(0, Call::Madvise, [MAPS + 2 * PAGE, 3 * PAGE, GUARD_REMOVE, 0, 0, 0], 0);
    let removed = story.fault(0, MAPS + 3 * PAGE, WRITE);
    let outcomes =
        [refused, beside, removed].map(|event| touch(&story, event)).map(|touch| (touch.outcome, touch.class));
    assert_eq!(outcomes, [(Outcome::Refused, None), (Outcome::Done, None), (Outcome::Done, None)]);
    assert_clean(&story);
}

/// A process that was joined later: thread 2 alone, at the same addresses as the others' memory.
fn join_later(story: &mut Story, joined_ns: u64, ended_ns: u64) {
    let mut areas = process();
    areas.iter_mut().for_each(|area| area.window = Window { began_ns: joined_ns, ended_ns });
    let window = Window { began_ns: joined_ns, ended_ns: joined_ns };
    let late = SpaceState { threads: vec![2], heap: HEAP..HEAP + 4 * PAGE, joined_ns, window, areas };
    story.trace.threads.extend((2..5).map(|tid| Thread { pid: tid, tid, name: String::new() }));
    story.trace.snapshot.spaces.push(late);
}

#[test]
fn a_process_that_was_joined_later_has_a_look_of_its_own() {
    let mut story = joined();
    join_later(&mut story, 20 * STEP_NS, 30 * STEP_NS);
    // While the others are replayed already, what the newcomer does is still applied to what was seen of it.
    let first = story.fault(0, MAPS + 3 * PAGE, WRITE);
    story.wait(20 * STEP_NS);
    let applied = story.fault(2, MAPS + 3 * PAGE, WRITE);
    let replayed = story.fault(1, MAPS + 5 * PAGE, WRITE);
    story.unmap(2, MAPS + 5 * PAGE, 1);
    story.clone_task(2, 3, 0);
    let childs = story.fault(3, MAPS + 6 * PAGE, WRITE);
    story.wait(20 * STEP_NS);
    let again = story.fault(2, MAPS + 3 * PAGE, WRITE);
    let gone = story.fault(2, MAPS + 5 * PAGE, WRITE);
    let fresh = story.fault(2, MAPS + 6 * PAGE, WRITE);
    story.clone_task(2, 4, 0);
    let copied = story.fault(4, MAPS + 6 * PAGE, WRITE_PRESENT);
    let plan = planned(&story);
    let class = |event| find(&plan, event).map(|touch| (touch.class, touch.is_strict));
    assert_eq!([first, replayed].map(class), [Some((None, true)); 2]);
    assert_eq!([applied, childs].map(class), [None; 2], "they came before the look was over");
    assert_eq!(class(again), Some((Some(Class::Inherited), false)));
    assert_eq!(find(&plan, gone).map(|touch| touch.outcome), Some(Outcome::Refused));
    assert_eq!([fresh, copied].map(class), [Some((None, true)); 2]);
    assert_eq!(plan.totals.applied, 4, "two faults, one call, one fork");
    assert_clean(&story);
}
