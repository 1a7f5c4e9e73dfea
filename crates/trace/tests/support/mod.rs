//! Small traces, and strategies that make arbitrary valid ones.

use faultless_trace::*;
use proptest::prelude::*;

/// Returns a header with something in every field.
pub fn header(pace: Pace) -> Header {
    Header {
        command: vec!["gcc".into(), "-O2".into(), "ä\u{0}b".into()],
        machine: Machine { cpus: 2, model: "some CPU".into(), kernel: "6.18".into(), page_size_bytes: 4096 },
        mode: Mode::Unprivileged,
        missing: vec![Missing::WriteBit, Missing::MapCalls],
        huge_pages: HugePages::AsSystem,
        pace,
        time_unit_ns: 10,
        lost: 0,
        ending: Ending::Killed(9),
        is_interrupted: true,
        clock_error_ns: 10_000,
        costs: Costs { fault_ns: 1900, fault_tracing_ns: 380, call_tracing_ns: 1400 },
        limits: Limits { overcommit: Some(0), stack_bytes: Some(8 << 20), ..Limits::default() },
    }
}

/// Returns a trace of two threads with one event of every kind.
pub fn small() -> Trace {
    let kinds = [
        (0, EventKind::Exec),
        (0, EventKind::SwitchIn),
        (0, EventKind::Mapped(mapped(Some(0)))),
        (0, fault(0x7fff_ffff_f123, 0x14, Side::User)),
        (0, EventKind::CallEnter(CallEnter { call: Call::Mmap, args: [0, 4096, 3, 0x22, u64::MAX, 0] })),
        (0, EventKind::Clone(CloneTask { child: 1, flags: CloneTask::VM | CloneTask::THREAD })),
        (1, fault(0x40_0000, 6, Side::Kernel)),
        (0, EventKind::Mapped(mapped(None))),
        (0, EventKind::CallExit(CallExit { call: Call::Mmap, result: 0x7f00_0000_0000 })),
        (0, EventKind::Wake { woken: 1 }),
        (0, EventKind::SwitchOut(SwitchReason::Preempted)),
        (1, EventKind::SwitchOut(SwitchReason::Blocked)),
        (1, EventKind::CallEnter(CallEnter { call: Call::Munlockall, args: [0; 6] })),
        (1, EventKind::CallExit(CallExit { call: Call::Munlockall, result: -1 })),
        (1, EventKind::Exit),
    ];
    let event = |(place, &(thread, kind)): (usize, &(u32, EventKind))| Event {
        thread,
        time_ns: place as u64 * 1500,
        on_cpu_ns: place as u64 % 3 * 500,
        kind,
    };
    Trace {
        header: header(Pace::Stored),
        threads: vec![thread(10), thread(11)],
        files: vec![File { inode: 7, size_bytes: Some(900), path: "/lib/x.so".into(), ..File::default() }],
        events: kinds.iter().enumerate().map(event).collect(),
        ..Trace::default()
    }
}

/// Returns the trace as a file's bytes.
pub fn bytes_of(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = trace.write(&mut bytes).expect("a valid trace is written");
    assert_eq!(written, bytes.len() as u64, "the writer counts what it wrote");
    bytes
}

/// Returns valid traces of up to `nr_events` arbitrary events.
pub fn any_trace(nr_events: usize) -> impl Strategy<Value = Trace> {
    (prop::collection::vec((any::<u8>(), any_kind(), 0u64..1 << 40, 0u64..1 << 60), 0..nr_events), any::<bool>())
        .prop_map(|(steps, has_pace)| build(steps, if has_pace { Pace::Stored } else { Pace::Absent }))
}

fn build(steps: Vec<(u8, EventKind, u64, u64)>, pace: Pace) -> Trace {
    let mut trace = Trace { header: header(pace), threads: vec![thread(1)], ..Trace::default() };
    trace.files = vec![File::default(); 4];
    trace.events.push(Event { thread: 0, time_ns: 0, on_cpu_ns: 0, kind: EventKind::Exec });
    let mut open: Vec<Option<Call>> = vec![None];
    for (who, kind, wait, on_cpu) in steps {
        let thread = u32::from(who) % open.len() as u32;
        let Some(kind) = fitted(kind, &mut open, thread as usize, pace) else { continue };
        let time_ns = trace.events.last().map_or(0, |event| event.time_ns) + wait * 10;
        let on_cpu_ns = if pace == Pace::Stored { on_cpu * 10 } else { 0 };
        trace.events.push(Event { thread, time_ns, on_cpu_ns, kind });
    }
    trace.threads = (0..open.len() as u32).map(thread).collect();
    trace
}

/// Returns `kind` changed so that it may stand next, or `None` if it may not.
fn fitted(kind: EventKind, open: &mut Vec<Option<Call>>, thread: usize, pace: Pace) -> Option<EventKind> {
    let is_pace = matches!(kind, EventKind::SwitchIn | EventKind::SwitchOut(_) | EventKind::Wake { .. });
    if is_pace && pace == Pace::Absent {
        return None;
    }
    match kind {
        EventKind::Clone(clone) => {
            open.push(None);
            Some(EventKind::Clone(CloneTask { child: open.len() as u32 - 1, ..clone }))
        }
        EventKind::Wake { woken } => Some(EventKind::Wake { woken: woken % open.len() as u32 }),
        EventKind::CallEnter(enter) if open[thread].is_none() => {
            open[thread] = Some(enter.call);
            Some(kind)
        }
        EventKind::CallExit(exit) => open[thread].take().map(|call| EventKind::CallExit(CallExit { call, ..exit })),
        EventKind::CallEnter(_) | EventKind::Exit => None,
        other => Some(other),
    }
}

fn any_kind() -> impl Strategy<Value = EventKind> {
    let any_call = (0..Call::ALL.len()).prop_map(|place| Call::ALL[place]);
    let enter = (any_call.clone(), any::<[u64; 6]>()).prop_map(|(call, mut args)| {
        args[call.arity()..].fill(0);
        EventKind::CallEnter(CallEnter { call, args })
    });
    let side = prop_oneof![Just(Side::User), Just(Side::Kernel)];
    let any_fault = (any::<i64>(), any::<u64>(), any::<u32>(), side).prop_map(|(address, ip, error_code, side)| {
        EventKind::Fault(Fault { address: (address >> 7) as u64, ip, error_code, side })
    });
    let any_mapped = (any::<[u32; 5]>(), prop::option::of(0u32..4)).prop_map(|(word, file)| {
        let start = u64::from(word[0]) << 24;
        let (len_bytes, file_offset) = (u64::from(word[1]), u64::from(word[2]));
        EventKind::Mapped(Mapped { start, len_bytes, file_offset, prot: word[3], flags: word[4], file })
    });
    prop_oneof![
        4 => any_fault,
        4 => enter,
        4 => any::<i64>().prop_map(|result| EventKind::CallExit(CallExit { call: Call::Mmap, result })),
        2 => any_mapped,
        1 => any::<u64>().prop_map(|flags| EventKind::Clone(CloneTask { child: 0, flags })),
        1 => any::<u32>().prop_map(|woken| EventKind::Wake { woken }),
        1 => Just(EventKind::SwitchIn),
        1 => Just(EventKind::SwitchOut(SwitchReason::Blocked)),
        1 => Just(EventKind::SwitchOut(SwitchReason::Preempted)),
        1 => Just(EventKind::Exec),
    ]
}

fn thread(tid: u32) -> Thread {
    Thread { pid: 10, tid, name: format!("thread {tid}") }
}

fn fault(address: u64, error_code: u32, side: Side) -> EventKind {
    EventKind::Fault(Fault { address, ip: address + 5, error_code, side })
}

fn mapped(file: Option<u32>) -> Mapped {
    Mapped { start: 0x40_0000, len_bytes: 8192, file_offset: 4096, prot: 5, flags: 2, file }
}
