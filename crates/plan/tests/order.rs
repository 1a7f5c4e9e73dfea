//! The order that waits enforce: every conflict has one, and it is the recorded one wherever that is certain.

mod support;

use std::collections::HashMap;
use std::ops::Range;

use faultless_plan::{Action, Losses, Options, Plan, Program, plan};
use faultless_trace::*;
use proptest::prelude::*;
use support::{PAGE, Story};

const HEAP: u64 = 0x7f00_0000_0000;
const THREADS: u32 = 3;

/// What a thread does next.
#[derive(Clone, Debug)]
enum Drawn {
    Fault { page: u64, is_write: bool },
    Call { which: u8, pages: Range<u64> },
    Return,
    Fork,
    Wait(u64),
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let range = (0..8u64, 1..4u64).prop_map(|(start, len)| start..start + len);
    prop_oneof![
        4 => (0..8u64, any::<bool>()).prop_map(|(page, is_write)| Drawn::Fault { page, is_write }),
        3 => (0..4u8, range).prop_map(|(which, pages)| Drawn::Call { which, pages }),
        4 => Just(Drawn::Return),
        1 => Just(Drawn::Fork),
        2 => prop_oneof![Just(3_000), Just(15_000)].prop_map(Drawn::Wait),
    ]
}

/// Tells a story of threads that share a space; calls overlap as it comes.
fn told(all_drawn: &[(u32, Drawn)]) -> Trace {
    let mut story = Story::new(THREADS + all_drawn.len() as u32);
    story.map(0, HEAP, 16);
    for thread in 1..THREADS {
        story.spawn(0, thread);
    }
    let mut open: HashMap<u32, (Call, i64)> = HashMap::new();
    let mut next_child = THREADS;
    for (thread, drawn) in all_drawn {
        // Everything happens within microseconds, so that the clock error matters.
        story.at_once();
        match drawn {
            Drawn::Wait(ns) => {
                story.wait(*ns + support::STEP_NS);
                continue;
            }
            _ if open.contains_key(thread) != matches!(drawn, Drawn::Return) => {
                story.wait(support::STEP_NS);
                continue;
            }
            Drawn::Fault { page, is_write } => {
                story.fault(*thread, HEAP + page * PAGE, if *is_write { 6 } else { 4 });
            }
            Drawn::Call { which, pages } => {
                let (call, args, result) = call_of(*which, pages);
                story.enter(*thread, call, args);
                open.insert(*thread, (call, result));
            }
            Drawn::Return => {
                let (call, result) = open.remove(thread).expect("a call is open");
                story.exit(*thread, call, result);
            }
            Drawn::Fork => {
                story.clone_task(*thread, next_child, 0);
                next_child += 1;
            }
        }
    }
    for (thread, (call, result)) in open {
        story.exit(thread, call, result);
    }
    story.done()
}

fn call_of(which: u8, pages: &Range<u64>) -> (Call, [u64; 6], i64) {
    let (start, len) = (HEAP + pages.start * PAGE, (pages.end - pages.start) * PAGE);
    match which {
        0 => (Call::Mmap, [start, len, 3, 0x32, u64::MAX, 0], start as i64),
        1 => (Call::Munmap, [start, len, 0, 0, 0, 0], 0),
        2 => (Call::Mprotect, [start, len, 1, 0, 0, 0], 0),
        _ => (Call::Madvise, [start, len, 4, 0, 0, 0], 0),
    }
}

/// What a step touches, and when it may have happened.
#[derive(Clone, Debug)]
struct Touch {
    thread: u32,
    step: usize,
    what: What,
    time_ns: Range<u64>,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Page(u64),
    Pages(Range<u64>),
    Everything,
}

impl What {
    fn conflicts_with(&self, other: &What) -> bool {
        match (self, other) {
            (What::Everything, _) | (_, What::Everything) => true,
            (What::Page(one), What::Page(other)) => one == other,
            (What::Page(page), What::Pages(pages)) | (What::Pages(pages), What::Page(page)) => pages.contains(page),
            (What::Pages(one), What::Pages(other)) => one.start < other.end && other.start < one.end,
        }
    }
}

/// Returns what the steps of the shared space's threads touch.
fn touches(trace: &Trace, plan: &Plan) -> Vec<Touch> {
    let mut found = Vec::new();
    for (thread, program) in plan.programs.iter().enumerate().take(THREADS as usize) {
        for (step, planned) in program.steps.iter().enumerate() {
            let Some(event) = trace.events.get(planned.event as usize) else { continue };
            let exit = || {
                trace.events[planned.event as usize..]
                    .iter()
                    .find(|later| later.thread == event.thread && matches!(later.kind, EventKind::CallExit(_)))
            };
            let (what, end_ns) = match (&planned.action, event.kind) {
                (Action::Access(touch), _) => (What::Page((touch.address - HEAP) / PAGE), event.time_ns),
                (Action::Call(_), EventKind::CallEnter(enter)) if enter.args[0] >= HEAP => {
                    let start = (enter.args[0] - HEAP) / PAGE;
                    (What::Pages(start..start + enter.args[1] / PAGE), exit().expect("it returns").time_ns)
                }
                (Action::Fork { .. }, _) => (What::Everything, event.time_ns),
                _ => continue,
            };
            found.push(Touch { thread: thread as u32, step, what, time_ns: event.time_ns..end_ns });
        }
    }
    found
}

/// For each step the set of steps that are over when it begins, by number.
struct Before {
    numbers: HashMap<(u32, usize), usize>,
    sets: Vec<Vec<bool>>,
}

impl Before {
    fn of(plan: &Plan) -> Self {
        let mut numbers = HashMap::new();
        for (thread, program) in plan.programs.iter().enumerate() {
            (0..program.steps.len()).for_each(|step| {
                let number = numbers.len();
                numbers.insert((thread as u32, step), number);
            });
        }
        let mut edges = vec![Vec::new(); numbers.len()];
        for (thread, program) in plan.programs.iter().enumerate() {
            add_edges(plan, thread as u32, program, &numbers, &mut edges);
        }
        Self { sets: closed(&edges), numbers }
    }

    fn is_before(&self, one: &Touch, other: &Touch) -> bool {
        let (one, other) = (self.numbers[&(one.thread, one.step)], self.numbers[&(other.thread, other.step)]);
        self.sets[other][one]
    }
}

/// Notes which steps each step of a program directly follows.
fn add_edges(
    plan: &Plan,
    thread: u32,
    program: &Program,
    numbers: &HashMap<(u32, usize), usize>,
    edges: &mut [Vec<usize>],
) {
    let opener = |gate: u32| {
        let steps = plan.programs.iter().enumerate();
        steps
            .flat_map(|(thread, program)| {
                program.steps.iter().enumerate().map(move |(step, planned)| (thread, step, planned))
            })
            .find(|(_, _, planned)| planned.gate == Some(gate))
            .map(|(thread, step, _)| numbers[&(thread as u32, step)])
            .expect("every gate is opened by a step")
    };
    let mut waits = program.waits.iter();
    for (step, planned) in program.steps.iter().enumerate() {
        let number = numbers[&(thread, step)];
        edges[number].extend(waits.by_ref().take(planned.nr_waits as usize).map(|&gate| opener(gate)));
        edges[number].extend(step.checked_sub(1).map(|before| numbers[&(thread, before)]));
        if let Action::Fork { child, .. } | Action::Spawn { child } = planned.action {
            edges[numbers[&(child, 0)]].push(number);
        }
    }
    assert!(waits.next().is_none(), "every wait belongs to a step");
}

/// Returns for each step all that it follows; panics if a step follows itself.
fn closed(edges: &[Vec<usize>]) -> Vec<Vec<bool>> {
    let count = edges.len();
    let mut sets = vec![vec![false; count]; count];
    edges.iter().enumerate().for_each(|(number, before)| before.iter().for_each(|&other| sets[number][other] = true));
    for middle in 0..count {
        let reached = sets[middle].clone();
        for set in &mut sets {
            if set[middle] {
                set.iter_mut().zip(&reached).for_each(|(mine, theirs)| *mine |= theirs);
            }
        }
    }
    assert!((0..count).all(|number| !sets[number][number]), "a step waits for itself");
    sets
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn every_conflict_has_an_order_and_a_certain_one_keeps_it(all_drawn in prop::collection::vec((0..THREADS, drawn()), 1..50)) {
        let trace = told(&all_drawn);
        let plan = plan(&trace, Options { losses: Losses::Allowed, ..Options::default() }).expect("it can be planned");
        let (touches, before) = (touches(&trace, &plan), Before::of(&plan));
        for program in &plan.programs {
            prop_assert!(program.steps.is_sorted_by_key(|step| step.event), "a thread's own order is the recorded one");
        }
        let error_ns = trace.header.clock_error_ns;
        for (place, one) in touches.iter().enumerate() {
            for other in &touches[place + 1..] {
                if one.thread == other.thread || !one.what.conflicts_with(&other.what) {
                    continue;
                }
                let (forth, back) = (before.is_before(one, other), before.is_before(other, one));
                prop_assert!(forth != back, "{one:?} and {other:?} have no order");
                if one.time_ns.end + error_ns < other.time_ns.start {
                    prop_assert!(forth, "{one:?} comes after {other:?}");
                }
                if other.time_ns.end + error_ns < one.time_ns.start {
                    prop_assert!(back, "{other:?} comes after {one:?}");
                }
            }
        }
    }

    #[test]
    fn steps_that_do_not_conflict_wait_for_nothing(pages in prop::collection::vec(0..8u64, 1..20)) {
        // Each thread has its own pages.
        let all_drawn: Vec<(u32, Drawn)> = pages
            .iter()
            .enumerate()
            .map(|(place, &page)| (1 + place as u32 % 2, Drawn::Fault { page: page / 2 * 2 + place as u64 % 2, is_write: true }))
            .collect();
        let plan = plan(&told(&all_drawn), Options::default()).expect("it can be planned");
        // The first map call is known to all, since it came before they began; the last to leave waits for the others.
        let steps: Vec<_> = plan.programs.iter().flat_map(|program| &program.steps).filter(|step| matches!(step.action, Action::Access(_))).collect();
        prop_assert_eq!(steps.len(), all_drawn.len());
        prop_assert!(steps.iter().all(|step| step.nr_waits == 0));
    }
}
