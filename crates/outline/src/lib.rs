//! A recorded program in outline: what its threads did over time and who waited for whom, and what its address spaces
//! held.
//!
//! # Guarantee
//! * I1 an outline of a trace of any length has a few hundred kilobytes of JSON at most: time is cut into
//!   [`threads::COLUMNS`] columns, threads and spaces beyond the busiest are left out, and what was left out is counted
//! * I2 nothing is invented: without pace data no thread is said to wait
//!
//! # Rooms
//! [`areas`] follows what is mapped; [`threads`] and [`spaces`] draw.

#![forbid(unsafe_code)]

pub mod areas;
pub mod spaces;
pub mod threads;

use faultless_trace::Trace;
use serde_json::{Value, json};

/// The key of an outline in a result set.
pub const OUTLINE: &str = "outline";

/// Returns a trace's outline, for a page.
pub fn outline(trace: &Trace) -> Value {
    json!({
        "duration_ns": trace.events.last().map_or(0, |event| event.time_ns),
        "events": trace.events.len(),
        "threads": threads::outline(trace),
        "spaces": spaces::outline(trace),
    })
}

/// Returns which column a time falls into.
fn column(time_ns: u64, duration_ns: u64, columns: usize) -> usize {
    let place = u128::from(time_ns) * columns as u128 / u128::from(duration_ns.max(1));
    (place as usize).min(columns - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_trace::{Call, CallEnter, CallExit, Event, EventKind, Fault, Side, SwitchReason, Thread};

    /// A million events of 64 threads that map, fault, unmap, wait and wake each other.
    fn million() -> Trace {
        let threads = (1..=64).map(|tid| Thread { pid: 1, tid, name: "worker".into() });
        let mut events = vec![Event { thread: 0, time_ns: 0, on_cpu_ns: 0, kind: EventKind::Exec }];
        let mut push = |thread: usize, kind: EventKind| {
            let time_ns = events.len() as u64 * 1000;
            events.push(Event { thread: thread as u32, time_ns, on_cpu_ns: 0, kind });
        };
        for round in 0..1_000_000 / 8 {
            let (thread, start) = (round % 64, 0x7f00_0000_0000 + (round as u64 * 7919 % 5000) * 0x40_0000);
            push(thread, EventKind::CallEnter(CallEnter { call: Call::Mmap, args: [0, 0x20_0000, 3, 0x22, 0, 0] }));
            push(thread, EventKind::CallExit(CallExit { call: Call::Mmap, result: start as i64 }));
            let touch = |place: u64| Fault { address: start + place * 0x1000, ip: 0, error_code: 6, side: Side::User };
            push(thread, EventKind::Fault(touch(round as u64 % 512)));
            push(thread, EventKind::CallEnter(CallEnter { call: Call::Munmap, args: [start, 0x20_0000, 0, 0, 0, 0] }));
            push(thread, EventKind::SwitchOut(SwitchReason::Blocked));
            push((thread + 1) % 64, EventKind::Wake { woken: thread as u32 });
            push(thread, EventKind::SwitchIn);
            push(thread, EventKind::CallExit(CallExit { call: Call::Munmap, result: 0 }));
        }
        Trace { threads: threads.collect(), events, ..Trace::default() }
    }

    #[test]
    fn a_million_events_have_a_small_outline() {
        let trace = million();
        let began = std::time::Instant::now();
        let text = outline(&trace).to_string();
        eprintln!("{} events: {} bytes in {:?}", trace.events.len(), text.len(), began.elapsed());
        assert!(text.len() < 500_000, "{} bytes", text.len());
    }
}
