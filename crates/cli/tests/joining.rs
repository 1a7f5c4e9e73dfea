//! `faultless record`: descendants that outlive their parents, a beginning and an end by signal, all processes, a
//! control group, and whole CPUs where there are too few descriptors.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use faultless_trace::*;
use support::{Place, assert_replayed, err, faultless, has_tracepoints, is_root};

/// A program that is ended with its test.
struct Running(Child);

impl Running {
    /// Starts the program that works until it is ended, and waits until it does.
    fn joined(place: &Place) -> Self {
        let mut child = Command::new(place.compile("joined")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn record(place: &Place, options: &[&str]) -> Command {
    let mut recorder = faultless();
    recorder.args(["record", "-o"]).arg(place.trace()).args(options).stdout(Stdio::null());
    recorder
}

fn succeed(mut recorder: Command) -> Output {
    let output = recorder.output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    output
}

/// Returns whether a thread of this name ended in the trace.
fn has_ended(trace: &Trace, name: &str) -> bool {
    let ends = trace.events.iter().filter(|event| event.kind == EventKind::Exit);
    ends.into_iter().any(|event| trace.threads[event.thread as usize].name == name)
}

fn replays(place: &Place, options: &[&str]) {
    let mut command = faultless();
    command.args(["replay", "-r", "1"]).args(options).arg(place.trace());
    if !options.contains(&"--design") {
        command.args(["--design", "vma-lock"]);
    }
    assert_replayed(&command.output().unwrap());
}

/// Returns whether the trace has faults of a process.
fn has_faults_of(trace: &Trace, pid: &str) -> bool {
    let faults = trace.events.iter().filter(|event| matches!(event.kind, EventKind::Fault(_)));
    faults.into_iter().any(|event| trace.threads[event.thread as usize].pid.to_string() == pid)
}

#[test]
fn a_descendant_that_outlives_the_program_is_awaited_on_request() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("wait-all");
    let script = "(sleep 0.5; /bin/true) & exit 3";
    for (options, is_awaited) in [(&["--wait-all"][..], true), (&[], false)] {
        let output = record(&place, &[options, &["--", "sh", "-c", script]].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "the program's own code: {}", err(&output));
        assert_eq!(has_ended(&place.open(), "true"), is_awaited, "{options:?}: {}", err(&output));
    }
}

#[test]
fn what_still_runs_at_the_end_is_counted_in_words() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("still-running");
    // They have no output, whose end would be awaited.
    let quiet = "sleep 2 2>&- &";
    for (scripts, said) in [(vec![quiet], "1 thread still ran"), (vec![quiet; 2], "2 threads still ran")] {
        let script = format!("{} exit 0", scripts.join(" "));
        let output = record(&place, &["--", "sh", "-c", &script]).output().unwrap();
        assert!(err(&output).contains(&format!(" {said}")), "{}", err(&output));
    }
}

#[test]
fn a_descendant_that_outlives_a_joined_process_is_awaited_on_request() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("wait-joined");
    let script = "sleep 3; (sleep 0.5; /bin/true) & exit 0";
    for (options, is_awaited) in [(&["--wait-all"][..], true), (&[], false)] {
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        succeed(record(&place, &[&["-p", &shell.id().to_string()], options].concat()));
        assert_eq!(has_ended(&place.open(), "true"), is_awaited, "{options:?}");
        shell.wait().unwrap();
    }
}

#[test]
fn the_last_descendant_of_a_command_is_awaited_where_all_is_recorded() {
    if !has_tracepoints() || !is_root() {
        return;
    }
    let place = Place::new("wait-everyone");
    // A name that no other test's programs have: all of the system is recorded.
    let last = place.folder.join("last-of-all");
    std::fs::copy("/bin/true", &last).unwrap();
    let script = &format!("(sleep 0.5; {}) & exit 3", last.display());
    for (options, is_awaited) in [(&["--wait-all"][..], true), (&[], false)] {
        let command = [&["-a", "--buffer", "32M"], options, &["--", "sh", "-c", script]].concat();
        let output = record(&place, &command).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "the command's code: {}", err(&output));
        let trace = place.open();
        assert_eq!(has_ended(&trace, "last-of-all"), is_awaited, "{options:?}: {}", err(&output));
    }
}

#[test]
fn a_descendant_is_awaited_where_whole_cpus_are_watched() {
    if !has_tracepoints() || !is_root() {
        return;
    }
    let place = Place::new("wait-cpus");
    // A stranger that is inside a long memory call nearly always: its calls are no part of this.
    let populate = "import mmap\nwhile True: mmap.mmap(-1, 1 << 29, flags=0x8022).close()";
    let _stranger = Running(Command::new("python3").args(["-c", populate]).spawn().unwrap());
    let script = "read line; (sleep 0.5; /bin/true) & exit 0";
    for (options, is_awaited) in [(&["--wait-all"][..], true), (&[], false)] {
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let recorder = record(&place, &[&["--no-bpf", "-p", &shell.id().to_string()], options].concat());
        let recorder = with_few_descriptors(recorder, 7).stderr(Stdio::piped()).spawn().unwrap();
        place.await_joined(recorder.id());
        // Of a process that is made within 10 ms after joining the trace tells its end alone (docs/attach.md).
        std::thread::sleep(Duration::from_millis(100));
        shell.stdin.take().unwrap().write_all(b"\n").unwrap();
        let output = recorder.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        assert_eq!(has_ended(&place.open(), "true"), is_awaited, "{options:?}");
        shell.wait().unwrap();
    }
}

#[test]
fn a_call_that_a_thread_was_held_in_before_it_was_joined_begins_with_its_arguments() {
    if !has_tracepoints() || !is_root() {
        return;
    }
    let place = Place::new("held");
    let mut program = Command::new(place.compile("held")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let Ok(address) = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16) else {
        assert_eq!(program.wait().unwrap().code(), Some(77));
        println!("skipped: userfaultfd is not permitted");
        return;
    };
    std::thread::sleep(Duration::from_millis(300));
    let recorder = record(&place, &["-p", &program.id().to_string()]).stderr(Stdio::piped()).spawn().unwrap();
    place.await_joined(recorder.id());
    let mut input = program.stdin.take().unwrap();
    input.write_all(b"\n\n").unwrap();
    assert!(program.wait().unwrap().success());
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let trace = place.open();
    let of_madvise = trace.events.iter().filter_map(|event| match event.kind {
        EventKind::CallEnter(CallEnter { call: Call::Madvise, args }) => Some((event.thread, Some(args))),
        EventKind::CallExit(CallExit { call: Call::Madvise, .. }) => Some((event.thread, None)),
        _ => None,
    });
    let of_madvise: Vec<_> = of_madvise.take(2).collect();
    const POPULATE_WRITE: u64 = 23;
    let entered = Some([address, 8 * 4096, POPULATE_WRITE, 0, 0, 0]);
    assert_eq!(of_madvise.len(), 2, "{of_madvise:x?}");
    assert_eq!((of_madvise[0].1, of_madvise[1]), (entered, (of_madvise[0].0, None)), "{of_madvise:x?}");
}

fn send(child: &Child, signal: i32) {
    // SAFETY: the child is ours and not yet waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Starts a recorder that waits for its signal.
fn paused(place: &Place, pid: &str) -> (Child, BufReader<ChildStderr>) {
    let mut recorder = record(place, &["-p", pid, "--paused"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(recorder.stderr.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.starts_with("paused: kill -USR1"), "{line}");
    (recorder, lines)
}

#[test]
fn a_paused_recording_begins_and_ends_with_its_signals() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("paused");
    let program = Running::joined(&place);
    let (mut recorder, _lines) = paused(&place, &program.pid());
    std::thread::sleep(Duration::from_millis(300));
    assert!(place.names().iter().all(|name| name != "t.trace"), "nothing was recorded yet");
    send(&recorder, libc::SIGUSR1);
    std::thread::sleep(Duration::from_secs(1));
    send(&recorder, libc::SIGUSR2);
    assert!(recorder.wait().unwrap().success());
    let trace = place.open();
    assert!(!trace.header.is_interrupted && has_faults_of(&trace, &program.pid()));
    let (mut recorder, _lines) = paused(&place, &program.pid());
    fs::remove_file(place.trace()).unwrap();
    send(&recorder, libc::SIGUSR2);
    assert_eq!(recorder.wait().unwrap().code(), Some(1), "it had not begun");
    assert!(!place.trace().exists());
}

#[test]
fn the_whole_system_is_recorded_and_one_of_its_processes_replayed() {
    if !has_tracepoints() || !is_root() {
        return;
    }
    let place = Place::new("whole-system");
    let programs = [Running::joined(&place), Running::joined(&place)];
    succeed(record(&place, &["-a", "--buffer", "32M", "--", "sh", "-c", "sleep 0.3; /bin/true; sleep 0.5"]));
    let trace = place.open();
    assert_eq!(trace.header.lost, 0);
    assert!(has_ended(&trace, "true"), "the command beside it is recorded");
    for program in &programs {
        assert!(has_faults_of(&trace, &program.pid()));
        replays(&place, &["--process", &program.pid()]);
    }
}

#[test]
fn a_system_in_which_programs_come_and_go_all_the_time_is_joined() {
    if !has_tracepoints() || !is_root() {
        return;
    }
    let place = Place::new("busy-system");
    let mut shell = Command::new("sh");
    shell.args(["-c", "while :; do /bin/true; done"]);
    let _programs = Running(shell.spawn().unwrap());
    succeed(record(&place, &["-a", "--buffer", "32M", "--duration", "300ms"]));
    let trace = place.open();
    assert_eq!(trace.header.lost, 0);
    assert!(has_ended(&trace, "true"));
}

/// A control group of this test's own, with nobody in it.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        let root = roots.iter().map(Path::new).find(|root| root.join("cgroup.procs").exists())?;
        let group = root.join(format!("faultless-test-{}", std::process::id()));
        fs::create_dir_all(group.join("below")).ok()?;
        Some(Self(group))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.0.join("below"));
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_control_group_is_recorded_with_the_groups_below_and_nobody_else() {
    if !has_tracepoints() || !is_root() {
        return;
    }
    let Some(group) = Group::new() else {
        println!("skipped: no control group can be made");
        return;
    };
    let place = Place::new("control-group");
    let (inside, outside) = (Running::joined(&place), Running::joined(&place));
    fs::write(group.0.join("below/cgroup.procs"), inside.pid()).unwrap();
    let below_root = group.0.strip_prefix("/sys/fs/cgroup").unwrap().to_str().unwrap();
    for path in [group.0.to_str().unwrap(), below_root] {
        succeed(record(&place, &["--cgroup", path, "--duration", "300ms"]));
        let trace = place.open();
        assert!(has_faults_of(&trace, &inside.pid()) && !has_faults_of(&trace, &outside.pid()));
        assert_eq!(trace.header.lost, 0);
    }
    replays(&place, &[]);
    drop(inside);
    let output = record(&place, &["--cgroup", below_root]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("no process is in it"), "{}", err(&output));
}

/// Gives a recorder descriptors for the CPUs, and for so many events more on each.
fn with_few_descriptors(mut recorder: Command, nr_events: u64) -> Command {
    let nr_cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let most = nr_cpus * 9 + 64 + nr_cpus * nr_events;
    // SAFETY: the call is safe between fork and exec, and takes a whole structure.
    unsafe {
        recorder.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
    recorder
}

/// Records a group in which one program works and into which another is moved; `act` sees the recorder then.
fn with_newcomer(place: &Place, options: &[&str], act: impl FnOnce(Child) -> Output) -> Option<(Output, [String; 3])> {
    let Some(group) = Group::new() else {
        println!("skipped: no control group can be made");
        return None;
    };
    let programs = [(); 3].map(|()| Running::joined(place));
    let [inside, later, outside] = programs.each_ref().map(Running::pid);
    let procs = group.0.join("cgroup.procs");
    fs::write(&procs, &inside).unwrap();
    let options = [&["--cgroup", group.0.to_str().unwrap()], options].concat();
    let recorder = record(place, &options).stderr(Stdio::piped()).spawn().unwrap();
    place.await_joined(recorder.id());
    fs::write(&procs, &later).unwrap();
    let output = act(recorder);
    drop(programs);
    Some((output, [inside, later, outside]))
}

#[test]
fn who_is_moved_into_a_control_group_later_is_recorded_from_then_on() {
    if !has_tracepoints() || !is_root() {
        return;
    }
    let place = Place::new("newcomers");
    for options in [&[][..], &["--no-bpf"], &["--stacks=fp"], &["--snapshot", "frozen"]] {
        let options = [options, &["--duration", "1s"]].concat();
        let ended = |recorder: Child| recorder.wait_with_output().unwrap();
        let Some((output, [inside, later, outside])) = with_newcomer(&place, &options, ended) else { return };
        assert!(output.status.success() && !err(&output).contains("moved into"), "{options:?}: {}", err(&output));
        let trace = place.open();
        assert_eq!(trace.header.lost, 0, "{options:?}");
        let late: Vec<_> = trace.snapshot.spaces.iter().filter(|space| space.is_late()).collect();
        let pids = late.iter().map(|space| trace.threads[space.threads[0] as usize].pid.to_string());
        assert_eq!(
            pids.collect::<Vec<_>>(),
            core::slice::from_ref(&later),
            "{options:?}: children are recorded by their making"
        );
        for (pid, is_there) in [(&inside, true), (&later, true), (&outside, false)] {
            assert_eq!(has_faults_of(&trace, pid), is_there, "{options:?}: {pid}");
        }
        replays(&place, &["--design", "vma-lock,linux"]);
        replays(&place, &["--process", &later]);
    }
}

#[test]
fn a_killed_recorder_leaves_what_is_needed_of_who_came_later() {
    if !has_tracepoints() || !is_root() {
        return;
    }
    let place = Place::new("late-salvage");
    let killed = |mut recorder: Child| {
        let folder = place.path(&format!("t.trace.{}.raw", recorder.id()));
        let deadline = Instant::now() + Duration::from_secs(60);
        while !folder.join("late-0-joined").exists() {
            assert!(Instant::now() < deadline, "nobody is joined later");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_secs(1));
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        faultless().args(["trace", "recover", "-o"]).arg(place.trace()).arg(folder).output().unwrap()
    };
    let Some((output, [_, later, _])) = with_newcomer(&place, &[], killed) else { return };
    assert!(output.status.success(), "{}", err(&output));
    assert!(has_faults_of(&place.open(), &later));
    replays(&place, &[]);
}

#[test]
fn whole_cpus_are_watched_where_descriptors_would_run_out() {
    if !has_tracepoints() || !is_root() {
        return;
    }
    let place = Place::new("few-descriptors");
    let (program, other) = (Running::joined(&place), Running::joined(&place));
    // Enough for two of the seven threads.
    succeed(with_few_descriptors(record(&place, &["-p", &program.pid(), "--no-bpf", "--duration", "300ms"]), 14));
    let trace = place.open();
    assert_eq!(trace.header.lost, 0);
    assert!(has_faults_of(&trace, &program.pid()) && !has_faults_of(&trace, &other.pid()));
    replays(&place, &[]);
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let place = Place::new("exclusive");
    for options in [
        &["-a", "-p", "1"][..],
        &["-a", "--snapshot", "frozen"],
        &["-a", "--wait-all"],
        &["-p", "1", "--cgroup", "x"],
        &["--paused", "--", "true"],
        &["--no-bpf", "--", "true"],
        &[],
    ] {
        let output = record(&place, options).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", err(&output));
    }
}
