//! The computing between a thread's events, without what recording it cost.
//!
//! # Guarantee
//! A step's work is the on-CPU time since the thread's previous event, less that event's own cost and tracing, and
//! never below zero; the time inside a call is the call's, and no work.

use faultless_trace::{Costs, EventKind, Trace};

/// Returns the work before each event.
pub(super) fn work(trace: &Trace) -> Vec<u64> {
    let mut previous: Vec<Option<EventKind>> = vec![None; trace.threads.len()];
    let mut is_inside = vec![false; trace.threads.len()];
    let mut work = Vec::with_capacity(trace.events.len());
    for event in &trace.events {
        let thread = event.thread as usize;
        let cost_ns = previous[thread].map_or(0, |kind| cost_ns(&kind, &trace.header.costs));
        let own_ns = if is_inside[thread] { 0 } else { event.on_cpu_ns.saturating_sub(cost_ns) };
        is_inside[thread] = is_inside_after(is_inside[thread], &event.kind);
        previous[thread] = Some(event.kind);
        work.push(own_ns);
    }
    work
}

fn is_inside_after(before: bool, kind: &EventKind) -> bool {
    match kind {
        EventKind::CallEnter(_) => true,
        EventKind::CallExit(_) | EventKind::Exec | EventKind::Exit => false,
        _ => before,
    }
}

/// Returns what an event itself took of the time behind it.
fn cost_ns(kind: &EventKind, costs: &Costs) -> u64 {
    match kind {
        EventKind::Fault(_) => costs.fault_ns + costs.fault_tracing_ns,
        EventKind::CallExit(_) => costs.call_tracing_ns,
        _ => 0,
    }
}

/// Returns whether the event tells of scheduling alone.
pub fn is_pace(kind: &EventKind) -> bool {
    matches!(kind, EventKind::SwitchIn | EventKind::SwitchOut(_) | EventKind::Wake { .. })
}
