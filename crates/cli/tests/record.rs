//! What `faultless record` catches of real programs, held against what the kernel and strace count.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use faultless_trace::*;
use support::{Place, err, faultless, has_tracepoints, is_root, out};

#[test]
fn faults_of_gcc_are_those_that_the_kernel_counts() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("usage");
    place.compile("usage");
    let source = place.path("big.c");
    fs::write(&source, generated_source(400)).unwrap();
    let trace = place.record_ok(&[], &["./usage", "count", "gcc", "-O2", "-c", "big.c"]);
    let counted: f64 = fs::read_to_string(place.path("count")).unwrap().trim().parse().unwrap();
    let recorded = faults(&trace).filter(|event| event.thread != 0).count() as f64;
    println!("recorded {recorded} faults, the kernel counts {counted}");
    assert!(counted > 5000.0, "gcc does real work");
    assert!((recorded / counted - 1.0).abs() < 0.02, "recorded {recorded}, counted {counted}");
    let by_kernel =
        faults(&trace).filter(|event| matches!(event.kind, EventKind::Fault(Fault { side: Side::Kernel, .. })));
    assert!(by_kernel.count() > 10, "gcc's reads and writes take some");
    assert_eq!(trace.header.lost, 0);
    assert!(trace.header.missing.is_empty());
}

#[test]
fn an_event_of_gcc_takes_five_bytes_without_pace_and_eight_with() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("size");
    fs::write(place.path("big.c"), generated_source(400)).unwrap();
    for (options, limit) in [(&["--no-pace"][..], 5.0), (&[][..], 8.0)] {
        let trace = place.record_ok(options, &["gcc", "-O2", "-c", "big.c"]);
        let each = fs::metadata(place.trace()).unwrap().len() as f64 / trace.events.len() as f64;
        println!("{options:?}: {each:.2} bytes an event, {} events", trace.events.len());
        assert!(each <= limit, "{options:?}: {each:.2} bytes an event");
    }
}

#[test]
fn calls_by_name_are_those_that_strace_counts() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("strace");
    place.compile("calls");
    let trace = place.record_ok(&[], &["./calls"]);
    let mut counted = strace_counts(&strace(&place, &["-f", "-c"]));
    let log = strace(&place, &["-f"]);
    for (name, number) in [("map_shadow_stack", "syscall_0x1c5("), ("mseal", "syscall_0x1ce(")] {
        // An older strace knows these by number only, and leaves them out of its table.
        let seen = log.matches(number).count() as u64;
        counted.entry(name.into()).or_insert(seen);
    }
    assert_eq!(counted.get("prctl"), Some(&2), "the program makes two");
    counted.insert("prctl".into(), 1); // Only PR_SET_MM is a memory call.
    counted.insert("clone".into(), 1); // Only one that makes nothing is told of.
    // Only those that cut a file or pin memory.
    counted.insert("open".into(), 1);
    counted.insert("openat".into(), 1);
    let recorded = calls(&trace);
    for call in Call::ALL {
        assert_eq!(recorded.get(call.name()), counted.get(call.name()), "{}", call.name());
        assert!(recorded.contains_key(call.name()), "the program makes {}", call.name());
    }
}

#[test]
fn nothing_is_lost_when_two_threads_fault_as_fast_as_they_can() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("flood");
    place.compile("flood");
    let output = place.record(&["--no-pace"], &["./flood", "1"]);
    assert!(output.status.success(), "{}", err(&output));
    let touched: u64 = out(&output).trim().parse().unwrap();
    let trace = place.open();
    println!("{touched} faults/s recorded");
    assert_eq!(trace.header.lost, 0, "{}", err(&output));
    let in_threads = faults(&trace).filter(|event| event.thread != 0).count() as u64;
    assert!(in_threads >= touched && in_threads < touched + 200, "{in_threads} recorded, {touched} touched");
}

#[test]
fn a_tiny_buffer_loses_records_and_the_trace_says_so_for_ever() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("tiny");
    place.compile("flood");
    let output = place.record(&["--buffer", "4K"], &["./flood", "0.5"]);
    assert!(output.status.success());
    assert!(err(&output).contains("records were lost"), "{}", err(&output));
    assert!(place.open().header.lost > 1000, "nearly all of them");
    let info = faultless().args(["trace", "info"]).arg(place.trace()).output().unwrap();
    let lost = out(&info).lines().find(|line| line.starts_with("lost ")).unwrap().to_owned();
    assert!(!lost.ends_with(" 0"), "{lost}");
}

#[test]
fn threads_processes_and_programs_are_followed() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("family");
    place.compile("family");
    let trace = place.record_ok(&[], &["./family"]);
    let clones = trace.events.iter().filter_map(|event| match event.kind {
        EventKind::Clone(clone) => Some(clone),
        _ => None,
    });
    let clones: Vec<_> = clones.collect();
    let shapes: Vec<_> = clones.iter().map(|clone| (clone.shares_memory(), clone.is_vfork())).collect();
    assert_eq!(shapes, [(true, false), (false, false), (true, true), (true, false)]);
    let exec_threads: Vec<_> =
        trace.events.iter().filter(|event| event.kind == EventKind::Exec).map(|event| event.thread).collect();
    assert_eq!(exec_threads, [0, 3, 4], "the program's own, the vforked child's, the second thread's");
    for thread in 0..5 {
        let ended = trace.events.iter().any(|event| event.thread == thread && event.kind == EventKind::Exit);
        assert!(ended, "thread {thread} ends");
        let faults = faults(&trace).filter(|event| event.thread == thread).count();
        assert!(faults > 0, "thread {thread} faults");
    }
    assert_eq!(trace.header.lost, 0);
    assert_eq!(trace.threads[4].name, "true");
}

#[test]
fn waiting_is_told_from_computing_and_wakes_are_seen() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("pace");
    place.compile("pingpong");
    let trace = place.record_ok(&[], &["./pingpong"]);
    let on_cpu_ns: u64 = trace.events.iter().map(|event| event.on_cpu_ns).sum();
    assert!((290_000_000..600_000_000).contains(&on_cpu_ns), "computes 0.3 s: {on_cpu_ns} ns");
    let wakes = |woken| trace.events.iter().filter(|event| event.kind == EventKind::Wake { woken }).count();
    // Who wakes whom how often is the scheduler's choice: a thread that is only preempted needs no waking.
    assert!(wakes(0) + wakes(1) > 100, "they wake each other: {} and {}", wakes(0), wakes(1));
    for thread in 0..2 {
        check_switches(&trace, thread);
    }
    let sleeping = place.record_ok(&[], &["sleep", "0.5"]);
    let on_cpu_ns: u64 = sleeping.events.iter().map(|event| event.on_cpu_ns).sum();
    assert!(on_cpu_ns < 100_000_000, "sleeping is no computing: {on_cpu_ns} ns");
    assert!(sleeping.events.last().unwrap().time_ns > 500_000_000);
}

/// Checks that a thread's CPU time never exceeds what elapsed, and that it leaves and gets its CPU in turn.
fn check_switches(trace: &Trace, thread: u32) {
    let mut last: Option<Event> = None;
    let mut last_switch = None;
    for event in trace.events.iter().filter(|event| event.thread == thread) {
        if let Some(last) = last {
            assert!(event.on_cpu_ns <= event.time_ns - last.time_ns, "{event:?} after {last:?}");
        }
        let switch = match event.kind {
            EventKind::SwitchIn => Some("in"),
            EventKind::SwitchOut(_) => Some("out"),
            _ => None,
        };
        if switch.is_some() {
            assert_ne!(switch, last_switch, "{event:?}");
            last_switch = switch;
        }
        last = Some(*event);
    }
}

#[test]
fn without_pace_no_trace_of_the_scheduler_is_stored() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("nopace");
    let trace = place.record_ok(&["--no-pace"], &["sleep", "0.01"]);
    assert_eq!(trace.header.pace, Pace::Absent);
    assert!(trace.events.iter().all(|event| event.on_cpu_ns == 0));
}

#[test]
fn the_header_tells_machine_costs_and_limits() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("header");
    let header = place.record_ok(&[], &["true"]).header;
    assert_eq!(header.command, ["true"]);
    assert_eq!(header.mode, Mode::Privileged);
    assert_eq!(header.ending, Ending::Exited(0));
    assert!(!header.is_interrupted);
    assert!((200..100_000).contains(&header.costs.fault_ns), "{:?}", header.costs);
    assert!((100..100_000).contains(&header.costs.fault_tracing_ns), "{:?}", header.costs);
    assert!((200..100_000).contains(&header.costs.call_tracing_ns), "{:?}", header.costs);
    let read = |path: &str| fs::read_to_string(path).unwrap().trim().to_owned();
    assert_eq!(header.machine.kernel, read("/proc/sys/kernel/osrelease"));
    assert_eq!(header.limits.max_map_count, read("/proc/sys/vm/max_map_count").parse().ok());
    assert!(header.machine.cpus > 0 && !header.machine.model.is_empty());
}

#[test]
fn files_are_known_by_inode_and_size() {
    if !has_tracepoints() {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let place = Place::new("files");
    let trace = place.record_ok(&[], &["/bin/true"]);
    let found = fs::metadata("/bin/true").unwrap();
    let file = trace.files.iter().find(|file| file.inode == found.ino()).expect("the program itself was mapped");
    assert_eq!(file.size_bytes, Some(found.len()));
    assert!(file.path.ends_with("/true"), "{}", file.path);
}

#[test]
fn huge_pages_are_off_unless_asked_for() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("thp");
    let shown = |options: &[&str]| {
        let output = place.record(options, &["grep", "THP_enabled", "/proc/self/status"]);
        (out(&output), place.open().header.huge_pages)
    };
    assert_eq!(shown(&[]), ("THP_enabled:\t0\n".into(), HugePages::Off));
    assert_eq!(shown(&["--thp"]), ("THP_enabled:\t1\n".into(), HugePages::AsSystem));
}

#[test]
fn nobody_records_less_and_the_trace_says_what() {
    if !is_root() {
        return;
    }
    let place = Place::new("nobody");
    fs::copy(env!("CARGO_BIN_EXE_faultless"), place.path("faultless")).unwrap();
    place.compile("flood");
    let mut recorder = Command::new(place.path("faultless"));
    recorder.args(["record", "-o", "t.trace", "--", "./flood", "0.2"]).current_dir(&place.folder);
    let output = recorder.uid(65534).gid(65534).output().unwrap();
    if err(&output).contains("is not permitted") {
        println!("skipped: {}", err(&output).trim());
        return;
    }
    assert!(output.status.success(), "{}", err(&output));
    assert!(err(&output).contains("lacks write-bit"), "{}", err(&output));
    let trace = place.open();
    assert_eq!(trace.header.mode, Mode::Unprivileged);
    let missing = [Missing::WriteBit, Missing::KernelFaults, Missing::CloneFlags, Missing::MapCalls, Missing::Wakes];
    assert_eq!(trace.header.missing, missing);
    if trace.header.lost == 0 {
        let touched: usize = out(&output).trim().parse().unwrap();
        let in_threads = faults(&trace).filter(|event| event.thread != 0).count();
        assert!(in_threads >= touched && in_threads < touched + 200, "{in_threads} recorded, {touched} touched");
    }
    assert!(trace.events.iter().any(|event| matches!(event.kind, EventKind::Mapped(_))));
    assert!(trace.events.iter().any(|event| matches!(event.kind, EventKind::Clone(_))));
    assert!(calls(&trace).is_empty());
}

#[test]
fn root_can_record_without_privilege_and_guesses_nearly_all_accesses() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("guess");
    fs::write(place.path("big.c"), generated_source(50)).unwrap();
    let gcc = ["gcc", "-O2", "-c", "big.c"];
    let guessed = place.record_ok(&["--mode", "unprivileged"], &gcc);
    let known = place.record_ok(&[], &gcc);
    assert_eq!(guessed.header.mode, Mode::Unprivileged);
    let counts = |trace: &Trace| {
        let mut counts = BTreeMap::new();
        for event in faults(trace) {
            if let EventKind::Fault(fault @ Fault { side: Side::User, .. }) = event.kind {
                *counts.entry(fault.access()).or_insert(0i64) += 1;
            }
        }
        counts
    };
    let (guessed, known) = (counts(&guessed), counts(&known));
    let wrong: i64 = known.iter().map(|(access, count)| (count - guessed.get(access).unwrap_or(&0)).abs()).sum();
    let total: i64 = known.values().sum();
    println!("guessed {guessed:?}, known {known:?}");
    assert!(wrong * 10 <= total, "guessed {guessed:?}, known {known:?}");
}

fn faults(trace: &Trace) -> impl Iterator<Item = &Event> {
    trace.events.iter().filter(|event| matches!(event.kind, EventKind::Fault(_)))
}

fn calls(trace: &Trace) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for event in &trace.events {
        if let EventKind::CallEnter(enter) = event.kind {
            *counts.entry(enter.call.name().to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Parses strace's table: share, seconds, microseconds a call, calls, errors (often empty), name.
fn strace_counts(table: &str) -> BTreeMap<String, u64> {
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter_map(|words| Some((words.last()?.to_string(), words.get(3)?.parse().ok()?))).collect()
}

/// Runs `./calls` under strace; returns what strace wrote.
fn strace(place: &Place, options: &[&str]) -> String {
    let mut strace = Command::new("strace");
    strace.args(options).args(["-o", "log", "./calls"]).current_dir(&place.folder);
    assert!(strace.status().expect("strace is installed").success());
    fs::read_to_string(place.path("log")).unwrap()
}

/// Returns C source that keeps gcc busy for a while.
fn generated_source(functions: usize) -> String {
    let function = |n: usize| {
        format!(
            "int f{n}(int *a, int n) {{ int s = {n}; for (int i = 0; i < n; i++) {{ a[i] = a[i] * {n} + s; \
             if (a[i] % {} == 0) s ^= a[i]; else s += a[n - i - 1]; }} return s; }}\n",
            n + 2
        )
    };
    (0..functions).map(function).collect()
}
