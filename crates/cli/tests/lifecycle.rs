//! How `faultless record` begins and ends: exit codes, interrupts, outputs, what the program inherits.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use faultless_trace::*;
use support::{Place, assert_replayed, err, faultless, has_tracepoints, out};

#[test]
fn the_exit_code_is_the_programs() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("codes");
    assert_eq!(place.record(&[], &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(place.open().header.ending, Ending::Exited(7));
    assert_eq!(place.record(&[], &["sh", "-c", "kill -SEGV $$"]).status.code(), Some(128 + 11));
    assert_eq!(place.open().header.ending, Ending::Killed(11));
}

#[test]
fn what_the_program_prints_passes_through_and_the_summary_goes_to_stderr() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("prints");
    let output = place.record(&[], &["sh", "-c", "echo result; echo note >&2"]);
    assert_eq!(out(&output), "result\n");
    for part in ["note\n", "faults", "calls", "lost      0", "bytes an event"] {
        assert!(err(&output).contains(part), "{part}: {}", err(&output));
    }
    assert!(!err(&output).contains('\x1b'), "no colour where there is no terminal");
}

#[test]
fn a_missing_program_gives_127_one_that_may_not_run_126_and_neither_leaves_a_file() {
    let place = Place::new("missing");
    fs::write(place.trace(), "old").unwrap();
    fs::write(place.path("data"), "no program").unwrap();
    for (program, code) in [("no-such-program-anywhere", 127), ("./data", 126), ("./no/such/path", 127)] {
        let output = place.record(&[], &[program]);
        if err(&output).contains("is not permitted") {
            println!("skipped: {}", err(&output).trim());
            return;
        }
        assert_eq!(output.status.code(), Some(code), "{program}: {}", err(&output));
        assert!(err(&output).starts_with(&format!("error: cannot run '{program}'")), "{}", err(&output));
    }
    assert_eq!(fs::read(place.trace()).unwrap(), b"old");
    assert_eq!(place.names(), ["data", "t.trace"]);
}

#[test]
fn an_output_that_cannot_be_written_is_told_before_the_program_runs() {
    let place = Place::new("unwritable");
    let run = |target: &str| {
        let mut recorder = faultless();
        recorder.args(["record", "-o", target, "--", "touch", "ran"]).current_dir(&place.folder);
        recorder.output().unwrap()
    };
    for target in ["no/such/folder/t.trace", ".", "/"] {
        let output = run(target);
        assert_eq!(output.status.code(), Some(1), "{target}");
        assert!(err(&output).contains(&format!("cannot write '{target}'")), "{}", err(&output));
    }
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn an_existing_file_is_replaced_through_a_link() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("replace");
    fs::write(place.path("real"), "old").unwrap();
    std::os::unix::fs::symlink("real", place.trace()).unwrap();
    place.record_ok(&[], &["true"]);
    assert!(fs::symlink_metadata(place.trace()).unwrap().is_symlink(), "a link stays one");
    assert!(Trace::open(&place.path("real")).is_ok(), "what it names is replaced");
    assert_eq!(place.names(), ["real", "t.trace"], "nothing else is left");
}

/// A pipe of the test's own stands for devices too: were this broken, `-o /dev/null` as root would replace the
/// system's.
#[test]
fn what_is_no_regular_file_is_written_to_and_never_replaced() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("pipe");
    assert!(Command::new("mkfifo").arg(place.trace()).status().unwrap().success());
    let reader = Command::new("cat").arg(place.trace()).stdout(Stdio::piped()).spawn().unwrap();
    let output = place.record(&[], &["true"]);
    assert!(fs::metadata(place.trace()).unwrap().file_type().is_fifo(), "it is still a pipe");
    assert!(output.status.success(), "{}", err(&output));
    assert!(Trace::read(&reader.wait_with_output().unwrap().stdout[..]).is_ok());
}

#[test]
fn without_a_name_the_trace_is_faultless_trace() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("default");
    let output = faultless().args(["record", "--", "true"]).current_dir(&place.folder).output().unwrap();
    assert!(output.status.success());
    assert_eq!(place.names(), ["faultless.trace"]);
}

#[test]
fn the_program_inherits_nothing_of_the_recorders() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("inherits");
    let script = "grep -E '^(Sig[BI]|Cap)' /proc/self/status; ulimit -n; ls /proc/self/fd | wc -l; nice";
    let recorded = place.record(&[], &["sh", "-c", script]);
    let plain = Command::new("sh").args(["-c", script]).current_dir(&place.folder).output().unwrap();
    assert_eq!(out(&recorded), out(&plain));
}

#[test]
fn an_interrupt_from_the_terminal_leaves_a_valid_trace() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("interrupt");
    let (mut recorder, _) = start(&place, "echo ready; exec sleep 30");
    signal(-(recorder.id() as i32), libc::SIGINT);
    assert_eq!(end(&mut recorder), Some(130));
    let trace = place.open();
    assert!(trace.header.is_interrupted);
    assert_eq!(trace.header.ending, Ending::Killed(2));
    assert!(trace.events.len() > 50);
    assert_eq!(place.names(), ["t.trace"]);
}

#[test]
fn interrupts_while_the_trace_is_written_change_nothing() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("impatient");
    place.compile("flood");
    let (mut recorder, _) = start(&place, "./flood 1 >count; echo ready");
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut interrupts = 0;
    let status = loop {
        if let Some(status) = recorder.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "the recorder did not end");
        signal(recorder.id() as i32, libc::SIGINT);
        interrupts += 1;
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(interrupts > 2, "writing takes a while");
    // The last one may have met a recorder that had written its trace, and was about to end.
    let is_late = status.signal() == Some(libc::SIGINT);
    assert!(is_late || matches!(status.code(), Some(0 | 130)), "{status}");
    assert_eq!(place.open().header.lost, 0);
    assert_eq!(place.names(), ["count", "flood", "t.trace"]);
}

#[test]
fn a_signal_to_the_recorder_alone_is_passed_on() {
    if !has_tracepoints() {
        return;
    }
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let place = Place::new("alone");
        let (mut recorder, program) = start(&place, "ulimit -c 0; echo $$; exec sleep 30");
        signal(recorder.id() as i32, number);
        assert_eq!(end(&mut recorder), Some(128 + number));
        assert!(!is_running(&program), "the program has ended");
        assert!(place.open().header.is_interrupted);
    }
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("nohup");
    let trace = place.trace();
    let script = "trap '' HUP; \"$0\" record -o \"$1\" -- sh -c 'echo ready; sleep 1; exit 3'; echo $?";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_faultless")]).arg(&trace).process_group(0);
    let mut shell = shell.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    signal(-(shell.id() as i32), libc::SIGHUP);
    assert_eq!(lines.next().unwrap(), "3", "the program ends by itself");
    shell.wait().unwrap();
    assert!(!place.open().header.is_interrupted);
}

#[test]
fn a_program_that_ignores_the_interrupt_runs_on_unrecorded() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("ignores");
    let (mut recorder, program) = start(&place, "trap '' INT; echo $$; exec sleep 30");
    let begun = Instant::now();
    signal(recorder.id() as i32, libc::SIGINT);
    assert_eq!(end(&mut recorder), Some(130));
    assert!(begun.elapsed() >= Duration::from_secs(1), "it has a second to end");
    assert!(is_running(&program), "it runs on");
    signal(program.parse().unwrap(), libc::SIGKILL);
    let trace = place.open();
    assert!(trace.header.is_interrupted);
    assert_eq!(trace.header.ending, Ending::Unknown);
    assert!(!trace.events.iter().any(|event| event.kind == EventKind::Exit && event.thread == 0));
}

#[test]
fn a_program_goes_on_unrecorded_where_the_recording_has_its_time_or_its_size() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("bounded");
    for (option, bound) in [("--duration", "400ms"), ("--max-size", "300K")] {
        let (mut recorder, program) = start_with(&place, &[option, bound], "echo $$; while :; do (:); done");
        assert_eq!(end(&mut recorder), Some(0), "{option}");
        assert!(is_running(&program), "{option}: it runs on");
        signal(program.parse().unwrap(), libc::SIGKILL);
        let trace = place.open();
        assert_eq!((trace.header.is_interrupted, trace.header.ending), (true, Ending::Unknown), "{option}");
        let span_ns = trace.events.last().unwrap().time_ns - trace.events[0].time_ns;
        assert!(option == "--max-size" || (200_000_000..5_000_000_000).contains(&span_ns), "{span_ns} ns");
        let mut replay = faultless();
        let replayed = replay.args(["replay", "--design", "vma-lock", "-r", "1"]).arg(place.trace()).output().unwrap();
        assert_replayed(&replayed);
    }
}

#[test]
fn a_child_that_outlives_the_program_does_not_hold_up_the_recording() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("outlives");
    let begun = Instant::now();
    let output = place.record(&[], &["sh", "-c", "sleep 5 >/dev/null 2>&1 & exit 0"]);
    assert!(output.status.success());
    assert!(begun.elapsed() < Duration::from_secs(4));
    assert!(err(&output).contains("still ran"), "{}", err(&output));
    place.open();
}

#[test]
fn a_refused_mode_says_what_to_set() {
    let place = Place::new("refused");
    fs::copy(env!("CARGO_BIN_EXE_faultless"), place.path("faultless")).unwrap();
    // SAFETY: the call only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: not root");
        return;
    }
    let mut recorder = Command::new(place.path("faultless"));
    recorder.args(["record", "--mode", "privileged", "--", "touch", "ran"]).current_dir(&place.folder);
    let output = recorder.uid(65534).gid(65534).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    for part in ["is not permitted", "kernel.perf_event_paranoid", "CAP_PERFMON"] {
        assert!(err(&output).contains(part), "{part}: {}", err(&output));
    }
    assert_eq!(place.names(), ["faultless"]);
}

#[test]
fn where_nothing_may_be_watched_the_message_says_what_to_allow() {
    let place = Place::new("forbidden");
    let mut recorder = faultless();
    recorder.args(["record", "--", "touch", "ran"]).current_dir(&place.folder);
    // SAFETY: between fork and exec only system calls are made, on memory of this frame.
    unsafe { recorder.pre_exec(|| forbid(libc::SYS_perf_event_open)) };
    let output = recorder.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    for part in ["watching page faults is not permitted", "perf_event_paranoid", "perf_event_open"] {
        assert!(err(&output).contains(part), "{part}: {}", err(&output));
    }
    assert!(place.names().is_empty(), "the program did not run: {:?}", place.names());
}

/// Makes a system call fail with EPERM from now on, as a container does.
fn forbid(number: i64) -> std::io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program and its steps live until the calls return.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
    };
    if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
fn what_is_not_understood_gives_2() {
    for args in [
        &["record"][..],
        &["record", "--buffer", "3K", "--", "true"],
        &["record", "--buffer", "many", "--", "true"],
        &["record", "--mode", "root", "--", "true"],
        &["frobnicate"],
        &["trace", "dump"],
        &["trace", "dump", "--format", "xml", "f"],
        &[],
    ] {
        let output = faultless().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

/// Starts a recording of a shell script in a process group of its own; returns when the script has printed a line.
fn start(place: &Place, script: &str) -> (Child, String) {
    start_with(place, &[], script)
}

fn start_with(place: &Place, options: &[&str], script: &str) -> (Child, String) {
    let mut recorder = faultless();
    recorder.arg("record").args(options).arg("-o").arg(place.trace()).args(["--", "sh", "-c", script]);
    recorder.current_dir(&place.folder).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    // SAFETY: between fork and exec only system calls are made.
    unsafe { recorder.pre_exec(heed) };
    let mut recorder = recorder.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (recorder, line.trim().to_owned())
}

/// Lets signals act that whoever runs the tests ignores, as a shell does for what it runs in the background.
fn heed() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: the default action needs no handler of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

/// Waits for the recorder, at most ten seconds; returns its exit code.
fn end(recorder: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if let Some(status) = recorder.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    recorder.kill().unwrap();
    panic!("the recorder did not end");
}

fn signal(process: i32, number: i32) {
    // SAFETY: the call takes integers only; the numbers are those of processes that this test began.
    assert_eq!(unsafe { libc::kill(process, number) }, 0);
}

fn is_running(process: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(process).join("status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}
