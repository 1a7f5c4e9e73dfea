//! What `faultless record -p` catches of processes that run already, and that it replays.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use faultless_trace::*;
use support::{Place, err, faultless, has_tracepoints, out};

/// A program that works until the test ends.
struct Running {
    child: Child,
}

impl Running {
    /// Starts one of the programs beside these tests and waits until it says that it is ready.
    fn start(place: &Place, name: &str) -> Self {
        Self::wait_for(&mut Command::new(place.compile(name)))
    }

    fn wait_for(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Joins a process with these options.
fn join(place: &Place, pid: &str, options: &[&str]) -> Output {
    faultless().args(["record", "-p", pid, "-o"]).arg(place.trace()).args(options).output().unwrap()
}

/// Replays the usual trace once; returns its checks.
fn replay(place: &Place) -> String {
    let output = faultless()
        .args(["replay", "--design", "vma-lock", "--pace", "none", "-r", "1"])
        .arg(place.trace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", out(&output), err(&output));
    out(&output)
}

#[test]
fn a_process_at_work_is_joined_left_running_and_replayed_without_a_mismatch() {
    if !has_tracepoints() {
        return;
    }
    for (name, means) in [("joined", &[][..]), ("joined-by-events", &["--no-bpf"])] {
        is_joined_at_work(&Place::new(name), means);
    }
}

fn is_joined_at_work(place: &Place, means: &[&str]) {
    let mut program = Running::start(place, "joined");
    let output = join(place, &program.pid(), &[&["--duration", "500ms"], means].concat());
    assert!(output.status.success(), "{}", err(&output));
    assert!(program.is_running(), "it is left alone");
    let trace = place.open();
    assert_eq!(trace.header.lost, 0, "{}", err(&output));
    let space = &trace.snapshot.spaces[0];
    assert!(space.threads.len() >= 6, "main and five others: {:?}", space.threads);
    assert!(space.heap.end > space.heap.start, "malloc was used");
    let faulted = |thread: &u32| {
        let faults = trace.events.iter().filter(|event| matches!(event.kind, EventKind::Fault(_)));
        faults.filter(|event| event.thread == *thread).count() > 0
    };
    assert!(space.threads.iter().filter(|thread| faulted(thread)).count() >= 5, "each thread is watched");
    let verdict = replay(place);
    assert!(verdict.contains("mismatches 0"), "{verdict}");
}

/// So many faults, memory calls, and bytes sent to a thread and back.
const DEEDS: usize = 500;

#[test]
fn programs_in_the_kernel_miss_nothing_and_invent_nothing() {
    if !has_tracepoints() {
        return;
    }
    for means in [&[][..], &["--no-bpf"]] {
        let place = Place::new(if means.is_empty() { "counted" } else { "counted-by-events" });
        let mut program = Command::new(place.compile("counted"));
        let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let recorder = join_later(&place, program.id(), means);
        place.await_joined(recorder.id());
        std::thread::sleep(Duration::from_millis(100));
        program.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(program.wait().unwrap().success());
        let output = recorder.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        let trace = place.open();
        assert_eq!(trace.header.lost, 0);
        let count =
            |is_one: &dyn Fn(&EventKind) -> bool| trace.events.iter().filter(|event| is_one(&event.kind)).count();
        let is_advice = |kind: &EventKind| matches!(kind, EventKind::CallEnter(enter) if enter.call == Call::Madvise);
        let is_result = |kind: &EventKind| matches!(kind, EventKind::CallExit(exit) if exit.call == Call::Madvise);
        assert_eq!((count(&is_advice), count(&is_result)), (DEEDS, DEEDS), "{means:?}");
        let in_area = |kind: &EventKind| matches!(kind, EventKind::Fault(fault) if AREA.contains(&fault.address));
        assert_eq!(count(&in_area), DEEDS, "{means:?}");
        // On one CPU a thread that is sent a byte wakes, or the other one blocks until it has run on.
        let least = DEEDS * 9 / 10;
        let wakes = count(&|kind| matches!(kind, EventKind::Wake { .. }));
        assert!((least..3 * DEEDS).contains(&wakes), "{means:?}: {wakes}");
        let blocked = count(&|kind| matches!(kind, EventKind::SwitchOut(SwitchReason::Blocked)));
        assert!((least..3 * DEEDS).contains(&blocked), "{means:?}: {blocked}");
        let (begun, ended) = (
            count(&|kind| matches!(kind, EventKind::SwitchIn)),
            count(&|kind| matches!(kind, EventKind::SwitchOut(_))),
        );
        assert!(begun >= least && begun.abs_diff(ended) <= 4, "{means:?}: {begun} {ended}");
    }
}

/// Where the program of [`DEEDS`] has its memory.
const AREA: std::ops::Range<u64> = 0x6000_0000_0000..0x6000_1000_0000;

fn join_later(place: &Place, pid: u32, means: &[&str]) -> Child {
    let mut recorder = faultless();
    recorder.args(["record", "-p", &pid.to_string(), "-o"]).arg(place.trace()).args(means);
    recorder.stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn whoever_can_not_be_joined_is_told_why_and_nothing_is_written() {
    let place = Place::new("unjoinable");
    let mut sleeper = Command::new("sleep").arg("0").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let own = std::process::id().to_string();
    let ended = sleeper.id().to_string();
    for (pid, why) in [("2147483647", "no such process"), ("2", "kernel thread"), (ended.as_str(), "has ended")] {
        let output = join(&place, pid, &["--duration", "10ms"]);
        // Some containers have no kernel threads to see.
        if pid == "2" && !err(&output).contains(why) {
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{pid}: {}", err(&output));
        assert!(err(&output).contains(why), "{pid}: {}", err(&output));
        assert!(place.names().is_empty(), "{:?}", place.names());
    }
    let output = faultless().args(["record", "-p", &own, "--thp"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "huge pages can't be switched off from outside: {}", err(&output));
    sleeper.wait().unwrap();
}

#[test]
fn an_interrupt_and_a_size_end_a_recording_and_keep_it() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("join-ends");
    let program = Running::start(&place, "joined");
    let output = join(&place, &program.pid(), &["--max-size", "64K"]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(!place.open().events.is_empty());
    let mut recorder = support::interruptible();
    recorder.args(["record", "-p", &program.pid(), "-o"]).arg(place.trace());
    let recorder = recorder.stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let pid = recorder.id() as i32;
    // SAFETY: the child is ours and not yet waited for.
    unsafe { libc::kill(pid, libc::SIGINT) };
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let trace = place.open();
    assert!(trace.header.is_interrupted && !trace.events.is_empty());
}

#[test]
fn a_frozen_process_runs_on_and_the_command_beside_it_gives_the_exit_code() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("join-frozen");
    let mut program = Running::start(&place, "joined");
    let output = join(&place, &program.pid(), &["--snapshot", "frozen", "--", "sh", "-c", "sleep 0.3; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", err(&output));
    assert!(err(&output).contains("while what was in memory was read"), "{}", err(&output));
    let trace = place.open();
    let (began_ns, ended_ns) = (trace.snapshot.spaces[0].window.began_ns, trace.snapshot.ended_ns());
    let is_work = |event: &Event| matches!(event.kind, EventKind::Fault(_) | EventKind::CallEnter(_));
    let meanwhile =
        trace.events.iter().filter(|event| (began_ns..=ended_ns).contains(&event.time_ns) && is_work(event)).count();
    assert_eq!(meanwhile, 0, "nobody ran while memory was read");
    assert!(trace.events.len() > 100, "they ran afterwards");
    assert!(program.is_running());
    replay(&place);
}

#[test]
fn running_children_are_joined_on_request_and_later_ones_in_any_case() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("join-children");
    place.compile("joined");
    let mut shell = Command::new("sh");
    shell.args(["-c", "./joined & echo $! > pid; wait"]).current_dir(&place.folder);
    let shell = Running::wait_for(&mut shell);
    for (options, nr_spaces) in [(&["--children"][..], 2), (&[], 1)] {
        let output = join(&place, &shell.pid(), &[options, &["--duration", "300ms"]].concat());
        assert!(output.status.success(), "{}", err(&output));
        assert_eq!(place.open().snapshot.spaces.len(), nr_spaces, "{options:?}");
        // Where the shell alone is watched, it only waits.
        assert_eq!(err(&output).contains("recorded with --children"), nr_spaces == 1, "{}", err(&output));
        if nr_spaces == 2 {
            let trace = place.open();
            let nr_forks = trace.events.iter().filter(|event| matches!(event.kind, EventKind::Clone(_))).count();
            assert!(nr_forks > 10, "its threads and children are watched: {nr_forks}");
            replay(&place);
        }
    }
    let pid: i32 = std::fs::read_to_string(place.path("pid")).unwrap().trim().parse().unwrap();
    // SAFETY: the shell that started it still waits for it, so the number is its own.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}
