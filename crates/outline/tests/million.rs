//! A trace of a million events becomes a page that is written soon and is easily sent.
//!
//! # Guarantee
//! Times are those on a CPU: what else the machine does meanwhile does not count.

use std::fs;

use faultless_outline::{OUTLINE, outline};
use faultless_results::compare::Source;
use faultless_results::designs::LINES;
use faultless_results::set::DISTRIBUTION;
use faultless_results::{MachineInfo, Measured, Mode, ResultSet};
use faultless_trace::{Call, CallEnter, CallExit, Event, EventKind, Fault, Side, SwitchReason, Thread, Trace};
use serde_json::json;

/// Returns the nanoseconds that this thread has been on a CPU; nothing where the host does not tell.
fn on_cpu_ns() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

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

/// A replay's result under every design, with whole distributions.
fn replayed(trace: &Trace) -> ResultSet {
    let machine = MachineInfo { name: "native".into(), cpus: 2, ..Default::default() };
    let mut set = ResultSet::new("replay", 1, machine);
    let pairs: Vec<[u64; 2]> = (0..600).map(|step| [100 + step * step, 40_000 / (step + 1)]).collect();
    for design in LINES.iter().map(|line| line.name) {
        let figure = |metric: &str, unit: &str| Measured {
            workload: "million.trace".into(),
            mode: Mode::Threads,
            design: design.into(),
            semaphore: Some("rwsem-v8".into()),
            cpus: 2,
            workers: None,
            metric: metric.into(),
            unit: unit.into(),
            samples: vec![4e8, 4.1e8, 3.9e8, 4.2e8, 4e8],
            counters: Default::default(),
            more: [(DISTRIBUTION.to_owned(), json!(pairs))].into_iter().collect(),
        };
        set.results.extend([figure("elapsed_ns", "ns"), figure("fault_p50_ns", "ns")]);
    }
    set.more.insert(OUTLINE.into(), outline(trace));
    set
}

#[test]
fn a_page_of_a_million_events_is_there_in_five_seconds_and_has_three_megabytes_at_most() {
    let trace = million();
    let path = std::env::temp_dir().join(format!("faultless-million-{}.html", std::process::id()));
    let began = on_cpu_ns();
    let source = Source { label: "million".into(), set: replayed(&trace) };
    let page = faultless_page::of_sets(&[source]);
    fs::write(&path, &page).expect("written");
    let took = on_cpu_ns().zip(began).map(|(ended, began)| ended - began);
    fs::remove_file(&path).expect("removable");
    let outline = outline(&trace).to_string();
    println!("{} events: {} bytes of page, {} of outline, {took:?} ns", trace.events.len(), page.len(), outline.len());
    assert!(page.len() < 3 << 20, "{} bytes", page.len());
    assert!(outline.len() < 500_000, "{} bytes", outline.len());
    assert!(took.is_none_or(|ns| ns < 5_000_000_000), "{took:?} ns");
    for part in ["Which thread waits for whom", "What the program does with its memory"] {
        assert!(page.contains(part), "{part}");
    }
}
