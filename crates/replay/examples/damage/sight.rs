//! Whether a program could see that its trace was damaged in one place.
//!
//! # Guarantee
//! An answer "nothing shows it" rests on the events of the undamaged trace alone: none of those after the place, of the
//! process and of whatever it makes, is about the pages in question before they are unmapped or mapped over, or the one
//! that is would be the same. The planner's model has no part in it, so that what the planner overlooks is not excused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use faultless_trace::{Call, CallEnter, Event, EventKind, Fault, Trace};

const PAGE: u64 = 4096;
const MAP_FIXED: u64 = 0x10;
const MREMAP_FIXED: u64 = 2;
const DROPPING_ADVICE: [u64; 3] = [4, 9, 24];

/// What a later event does to a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It depends on what is there.
    Shows,
    /// It is the same whatever is there, and ends what was there.
    Ends,
}

/// Returns why nothing shows that a munmap, or a call with another result, did not change a range.
pub fn of_range(trace: &Trace, place: usize, range: Range<u64>) -> Option<&'static str> {
    let mut rest = vec![range];
    for (event, enter) in later(trace, place) {
        for (what, reached) in uses(event, enter) {
            match what {
                Use::Shows if rest.iter().any(|range| overlaps(range, &reached)) => return None,
                Use::Shows => {}
                Use::Ends => rest = rest.into_iter().flat_map(|range| without(&range, &reached)).collect(),
            }
        }
        if rest.is_empty() {
            return Some("the range is unmapped or mapped over before anything is about it");
        }
    }
    Some("nothing later is about the range")
}

/// Returns why nothing shows that a fault was on the next page.
pub fn of_moved(trace: &Trace, place: usize, fault: &Fault) -> Option<&'static str> {
    let page = fault.address & !(PAGE - 1);
    let pages = page..page + 2 * PAGE;
    for (event, enter) in later(trace, place) {
        match event.kind {
            EventKind::Fault(fault) if pages.contains(&fault.address) => return None,
            _ if ends(event, enter, &pages) => break,
            _ => {}
        }
    }
    let pid = |event: &Event| trace.threads[event.thread as usize].pid;
    let next = page + PAGE..page + 2 * PAGE;
    for event in trace.events[..place].iter().rev().filter(|&event| pid(event) == pid(&trace.events[place])) {
        match event.kind {
            EventKind::Fault(fault) if next.contains(&fault.address) => return None,
            EventKind::Exec => break,
            _ => {}
        }
    }
    Some("the next page could be accessed as well, and no other fault is on either")
}

/// Returns why nothing shows that a load was a store, or a store a load.
pub fn of_flipped(trace: &Trace, place: usize, fault: &Fault) -> Option<&'static str> {
    if fault.is_present() {
        return None;
    }
    if fault.error_code & Fault::WRITE != 0 {
        return Some("a page's first access may as well be a load: a later store is as it would be");
    }
    let page = fault.address & !(PAGE - 1);
    for (event, enter) in later(trace, place) {
        match event.kind {
            EventKind::Fault(fault) if (page..page + PAGE).contains(&fault.address) => return None,
            _ if ends(event, enter, &(page..page + PAGE)) => break,
            _ => {}
        }
    }
    Some("a page's only fault may as well be a store")
}

/// Returns why nothing shows that two calls came in the other order.
pub fn of_swapped(trace: &Trace, place: usize, next: usize, last: usize) -> Option<&'static str> {
    let (one, other) = (reach_at(trace, place), reach_at(trace, next));
    let is_met =
        |reached: &Range<u64>| [&one, &other].iter().any(|all| all.iter().any(|range| overlaps(range, reached)));
    if one.iter().any(|range| other.iter().any(|other| overlaps(range, other))) {
        return None;
    }
    let thread = trace.events[place].thread;
    for (event, enter) in later(trace, place).take_while(|(event, _)| event.time_ns <= trace.events[last].time_ns) {
        let is_own_call = event.thread == thread && !matches!(event.kind, EventKind::Fault(_));
        if !is_own_call && uses(event, enter).iter().any(|(_, reached)| is_met(reached)) {
            return None;
        }
    }
    Some("the two are about different pages, which nothing between them is about")
}

/// Returns the ranges that a call names, and what it made.
pub fn reach_at(trace: &Trace, place: usize) -> Vec<Range<u64>> {
    let EventKind::CallEnter(enter) = trace.events[place].kind else { return Vec::new() };
    let exit = super::exit_of(trace, place).map(|(_, exit)| exit.result);
    let made = exit.filter(|result| !(-4095..=0).contains(result)).map(|result| made(&enter, result as u64));
    named(&enter).into_iter().chain(made.flatten()).collect()
}

/// Visits the events after a place of its process and of whatever those make, each exit with its enter.
fn later(trace: &Trace, place: usize) -> impl Iterator<Item = (&Event, Option<CallEnter>)> {
    let pid = |thread: u32| trace.threads[thread as usize].pid;
    let home = pid(trace.events[place].thread);
    let mut threads: BTreeSet<u32> = (0..trace.threads.len() as u32).filter(|&thread| pid(thread) == home).collect();
    let mut open = BTreeMap::<u32, CallEnter>::new();
    // The damaged call itself does not count.
    let skipped = match trace.events[place].kind {
        EventKind::CallEnter(_) => super::exit_of(trace, place).map(|(exit, _)| exit),
        _ => None,
    };
    trace.events.iter().enumerate().skip(place + 1).filter_map(move |(at, event)| {
        if !threads.contains(&event.thread) || Some(at) == skipped {
            return None;
        }
        match event.kind {
            EventKind::Clone(clone) => {
                threads.insert(clone.child);
            }
            EventKind::Exec => threads.retain(|&thread| pid(thread) != pid(event.thread)),
            EventKind::CallEnter(enter) => {
                open.insert(event.thread, enter);
            }
            EventKind::CallExit(_) => return Some((event, open.remove(&event.thread))),
            _ => {}
        }
        Some((event, None))
    })
}

/// Returns what an event does to which addresses.
fn uses(event: &Event, enter: Option<CallEnter>) -> Vec<(Use, Range<u64>)> {
    match (event.kind, enter) {
        (EventKind::Fault(fault), _) => vec![(Use::Shows, fault.address..fault.address + 1)],
        (EventKind::CallExit(exit), Some(enter)) => {
            let mut all: Vec<_> = named(&enter).into_iter().map(|range| (use_of(&enter), range)).collect();
            let is_fixed = enter.call == Call::Mmap && enter.args[3] & MAP_FIXED != 0
                || enter.call == Call::Mremap && enter.args[3] & MREMAP_FIXED != 0;
            if !(-4095..=0).contains(&exit.result) {
                let what = if is_fixed { Use::Ends } else { Use::Shows };
                all.extend(made(&enter, exit.result as u64).map(|range| (what, range)));
            }
            all
        }
        _ => Vec::new(),
    }
}

fn use_of(enter: &CallEnter) -> Use {
    match enter.call {
        Call::Munmap => Use::Ends,
        _ => Use::Shows,
    }
}

/// Returns whether pages in the range are new after the event.
fn ends(event: &Event, enter: Option<CallEnter>, range: &Range<u64>) -> bool {
    let drops = enter.is_some_and(|enter| enter.call == Call::Madvise && DROPPING_ADVICE.contains(&enter.args[2]));
    let is_whole = |reached: &Range<u64>| reached.start <= range.start && range.end <= reached.end;
    uses(event, enter).iter().any(|(what, reached)| is_whole(reached) && (drops || *what == Use::Ends))
}

/// Returns the range that a call is asked to change or to tell of.
fn named(enter: &CallEnter) -> Option<Range<u64>> {
    let [start, len, ..] = enter.args;
    let is_ranged = matches!(
        enter.call,
        Call::Munmap
            | Call::Mprotect
            | Call::PkeyMprotect
            | Call::Madvise
            | Call::Mremap
            | Call::Mlock
            | Call::Mlock2
            | Call::Munlock
            | Call::Msync
            | Call::Mincore
    );
    is_ranged.then(|| span(start, len))
}

/// Returns the range that a successful call gave.
fn made(enter: &CallEnter, result: u64) -> Option<Range<u64>> {
    match enter.call {
        Call::Mmap => Some(span(result, enter.args[1])),
        Call::Mremap => Some(span(result, enter.args[2])),
        Call::Shmat => Some(span(result, PAGE)),
        // Where it began is not known: the last page tells whether the heap is meant.
        Call::Brk => Some(span(result.saturating_sub(PAGE), PAGE)),
        _ => None,
    }
}

fn span(start: u64, len: u64) -> Range<u64> {
    start & !(PAGE - 1)..start.saturating_add(len).saturating_add(PAGE - 1) & !(PAGE - 1)
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn without(range: &Range<u64>, taken: &Range<u64>) -> Vec<Range<u64>> {
    let parts = [range.start..taken.start.min(range.end), taken.end.max(range.start)..range.end];
    parts.into_iter().filter(|part| part.start < part.end).collect()
}
