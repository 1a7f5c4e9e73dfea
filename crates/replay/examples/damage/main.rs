//! Damages a trace in one place at a time and counts how often a replay reports it: a replay must be able to fail.
//!
//! usage: `cargo run --release -p faultless-replay --example damage -- COUNT FILE [EVENT]`
//!
//! With an event's number only that one is damaged, in each way that is possible there.
//! Prints a line of JSON for each kind of damage: how many places were `tried`; how many were `reported` (the trace is
//! refused, something is not replayed, or there is a mismatch); how many were `shown` (the report counts other accesses
//! that were refused); how many are `unseen` and why (no event of the program depends on it, [`sight`]); and what the
//! `survivors` were, by what stood there and by the classes that have more faults `then`, which excuse them.
//! `.ci/corpus --damage` reads it.

mod breaks;
mod entries;
#[cfg(test)]
mod heap;
mod sight;
#[cfg(test)]
#[path = "../../../plan/tests/support/mod.rs"]
mod story;
mod swaps;

use std::collections::BTreeMap;
use std::path::Path;

use faultless_plan::{Action, Losses, Options, Pace, Plan, plan};
use faultless_replay::{Checking, Settings, pass_natively};
use faultless_results::stats::Random;
use faultless_trace::{Call, CallExit, Event, EventKind, Trace};
use faultless_vm::PAGE;

const CPUS: usize = 2;

/// A way to damage a trace at an event; it returns whether that was possible there.
type Damage = fn(&mut Trace, usize) -> bool;

const KINDS: [(&str, Damage); 5] = [
    ("a munmap dropped", drop_unmap),
    ("a fault moved by a page", move_fault),
    ("a write bit flipped", flip_write),
    ("two calls of a thread swapped", swap_calls),
    ("a result changed", change_result),
];

fn main() {
    let mut words = std::env::args().skip(1);
    let count = words.next().and_then(|word| word.parse().ok()).expect("the first word is how many of each kind");
    let file = words.next().expect("the second word is a trace");
    let only = words.next().map(|word| word.parse().expect("the third word is an event's number"));
    let trace = Trace::open(Path::new(&file)).expect("the trace can be read");
    let whole = planned(&trace).expect("the trace can be planned");
    assert!(matches!(told(&trace, &whole), Told::Nothing), "the undamaged trace is replayed without a mismatch");
    for (kind, damage) in KINDS {
        println!("{}", judged(&trace, &whole, kind, damage, &places(&trace, only), count));
    }
}

/// Returns where to damage the trace: in one place, or in all of them in an order of their own.
fn places(trace: &Trace, only: Option<usize>) -> Vec<usize> {
    let mut places: Vec<usize> = only.map_or_else(|| (0..trace.events.len()).collect(), |only| vec![only]);
    Random::new(1).shuffle(&mut places);
    places
}

/// Damages the trace in up to `count` of the places and says what a replay made of it.
fn judged(
    trace: &Trace,
    whole: &Plan,
    kind: &str,
    damage: Damage,
    places: &[usize],
    count: usize,
) -> serde_json::Value {
    let (mut tried, mut reported, mut shown) = (0, 0, 0);
    let (mut unseen, mut survivors) = (BTreeMap::<&str, u64>::new(), BTreeMap::<String, u64>::new());
    for &place in places {
        let mut damaged = trace.clone();
        if !damage(&mut damaged, place) {
            continue;
        }
        tried += 1;
        match told(&damaged, whole) {
            Told::Reported => reported += 1,
            Told::Shown => shown += 1,
            Told::Nothing => match why_unseen(trace, &damaged, place, kind) {
                Some(why) => *unseen.entry(why).or_default() += 1,
                None => {
                    if std::env::var_os("PLACES").is_some() {
                        eprintln!("{kind}: event {place}: {:?}", trace.events[place]);
                    }
                    let what = format!("{}{}", described(trace, whole, place), excused(&damaged, whole));
                    *survivors.entry(what).or_default() += 1;
                }
            },
        }
        if tried == count {
            break;
        }
    }
    serde_json::json!({ "damage": kind, "tried": tried, "reported": reported, "shown": shown, "unseen": unseen,
                        "survivors": survivors })
}

fn planned(trace: &Trace) -> Option<Plan> {
    plan(trace, Options { pace: Pace::None, losses: Losses::Refused }).ok()
}

/// What a user of the command is told.
enum Told {
    /// That the replay is not the recorded program.
    Reported,
    /// That other accesses were refused than without the damage.
    Shown,
    Nothing,
}

fn told(damaged: &Trace, whole: &Plan) -> Told {
    let Some(plan) = damaged.check().ok().and_then(|()| planned(damaged)) else { return Told::Reported };
    let settings = Settings {
        design: "vma-lock".into(),
        semaphore: "rwsem-v8".into(),
        memory_bytes: plan.demand.bytes() as usize,
        limits: damaged.header.limits,
        checking: Checking::AtEnd,
        filling: None,
    };
    let result = pass_natively(CPUS, &plan, &settings);
    let is_other = plan.totals.skipped != whole.totals.skipped;
    let refused = |plan: &Plan| (plan.totals.outside, plan.totals.forbidden);
    match result {
        Ok(result) if !is_other && result.tally.mismatches == 0 => match refused(&plan) == refused(whole) {
            true => Told::Nothing,
            false => Told::Shown,
        },
        _ => Told::Reported,
    }
}

/// Returns why no event of the program depends on what was damaged.
fn why_unseen(trace: &Trace, damaged: &Trace, place: usize, kind: &str) -> Option<&'static str> {
    match (kind, trace.events[place].kind) {
        ("a fault moved by a page", EventKind::Fault(fault)) => sight::of_moved(trace, place, &fault),
        ("a write bit flipped", EventKind::Fault(fault)) => sight::of_flipped(trace, place, &fault),
        ("two calls of a thread swapped", _) => {
            let (exit, _) = exit_of(trace, place)?;
            let next = next_enter(trace, place, exit)?;
            swaps::of_swapped(trace, damaged, place, next, exit_of(trace, next)?.0)
        }
        // A result: as if the call had not been made.
        (_, EventKind::CallExit(_)) => {
            let enter = enter_of(trace, place)?;
            let reach = sight::reach_at(trace, enter);
            let (start, end) =
                (reach.iter().map(|range| range.start).min()?, reach.iter().map(|range| range.end).max()?);
            sight::of_range(trace, place, start..end + PAGE)
        }
        _ => sight::of_range(trace, place, sight::reach_at(trace, place).pop()?),
    }
}

fn enter_of(trace: &Trace, exit: usize) -> Option<usize> {
    let thread = trace.events[exit].thread;
    (0..exit).rev().find(|&place| {
        let event = &trace.events[place];
        event.thread == thread && matches!(event.kind, EventKind::CallEnter(_))
    })
}

/// Returns the thread's next call behind an exit.
fn next_enter(trace: &Trace, place: usize, exit: usize) -> Option<usize> {
    let thread = trace.events[place].thread;
    let is_enter = |event: &Event| event.thread == thread && matches!(event.kind, EventKind::CallEnter(_));
    trace.events.iter().skip(exit).position(is_enter).map(|place| place + exit)
}

/// Says which classes have more faults than without the damage: those excuse it.
fn excused(damaged: &Trace, whole: &Plan) -> String {
    let Some(plan) = planned(damaged) else { return String::new() };
    let of_whole = |class| whole.totals.may_differ.get(class).copied().unwrap_or(0);
    let grown = plan.totals.may_differ.iter().filter(|&(class, &count)| count > of_whole(class));
    let names: Vec<_> = grown.map(|(class, _)| class.name()).collect();
    if names.is_empty() { ", as before".into() } else { format!(", then {}", names.join(" and ")) }
}

/// Says what stood in the undamaged trace at a place, so that survivors can be counted by kind.
fn described(trace: &Trace, whole: &Plan, place: usize) -> String {
    let kind = trace.events[place].kind;
    let mut steps = whole.programs.iter().flat_map(|program| &program.steps);
    match (kind, steps.find(|step| step.event as usize == place).map(|step| step.action)) {
        (EventKind::CallEnter(enter), _) => enter.call.name().into(),
        (EventKind::CallExit(exit), _) => format!("{} that returned {}", exit.call.name(), sort_of(exit.result)),
        (_, Some(Action::Access(touch))) => match (touch.class, touch.is_strict) {
            (Some(class), _) => format!("fault explained as {}", class.name()),
            (None, true) => "strict fault".into(),
            (None, false) => "fault on a page of an object, or of memory that the kernel filled".into(),
        },
        _ => "other".into(),
    }
}

fn sort_of(result: i64) -> &'static str {
    match result {
        0 => "0",
        -4095..0 => "an error",
        _ => "an address",
    }
}

/// Returns the exit of the call that is entered at a place.
fn exit_of(trace: &Trace, enter: usize) -> Option<(usize, CallExit)> {
    let thread = trace.events[enter].thread;
    let later = trace.events.iter().enumerate().skip(enter + 1).filter(|(_, event)| event.thread == thread);
    let mut ends = later.filter_map(|(place, event)| match event.kind {
        EventKind::CallExit(exit) => Some(Some((place, exit))),
        EventKind::CallEnter(_) | EventKind::Exec | EventKind::Exit => Some(None),
        _ => None,
    });
    ends.next().flatten()
}

fn drop_unmap(trace: &mut Trace, place: usize) -> bool {
    let EventKind::CallEnter(enter) = trace.events[place].kind else { return false };
    let Some((exit, CallExit { result: 0, .. })) = exit_of(trace, place).filter(|_| enter.call == Call::Munmap) else {
        return false;
    };
    trace.events.remove(exit);
    trace.events.remove(place);
    true
}

fn move_fault(trace: &mut Trace, place: usize) -> bool {
    let EventKind::Fault(fault) = &mut trace.events[place].kind else { return false };
    fault.address = fault.address.wrapping_add(PAGE);
    true
}

fn flip_write(trace: &mut Trace, place: usize) -> bool {
    const WRITE: u32 = 2;
    let EventKind::Fault(fault) = &mut trace.events[place].kind else { return false };
    fault.error_code ^= WRITE;
    true
}

/// Swaps a call with the next one of its thread: what was asked, and what came of it.
fn swap_calls(trace: &mut Trace, place: usize) -> bool {
    let (EventKind::CallEnter(_), Some((exit, _))) = (trace.events[place].kind, exit_of(trace, place)) else {
        return false;
    };
    let thread = trace.events[place].thread;
    let Some(next) = next_enter(trace, place, exit) else { return false };
    let Some((next_exit, _)) = exit_of(trace, next) else { return false };
    // What the kernel told inside a call would be told inside the other.
    let tells = |range: std::ops::Range<usize>| {
        trace.events[range].iter().any(|event| event.thread == thread && matches!(event.kind, EventKind::Mapped(_)))
    };
    if tells(place..exit) || tells(next..next_exit) || trace.events[place].kind == trace.events[next].kind {
        return false;
    }
    for (one, other) in [(place, next), (exit, next_exit)] {
        let kind = trace.events[one].kind;
        trace.events[one].kind = std::mem::replace(&mut trace.events[other].kind, kind);
    }
    true
}

fn change_result(trace: &mut Trace, place: usize) -> bool {
    const NO_MEMORY: i64 = -12;
    let EventKind::CallExit(exit) = &mut trace.events[place].kind else { return false };
    exit.result = match exit.result {
        0 => NO_MEMORY,
        -4095..0 => 0,
        address => address + PAGE as i64,
    };
    true
}
