//! What is left of a recording when its recorder is killed, when the trace can't be written, and when Linux stops
//! watching.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use faultless_trace::{EventKind, Missing, Trace};
use support::{Place, assert_replayed, err, faultless, has_tracepoints, is_root, out};

/// A shell that tells its number, does a hundred programs' work, tells so, and waits.
const BUSY: &str = "echo $$; i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; echo done; exec sleep 30";

/// A recording that is ended with all its programs.
struct Recording {
    recorder: Child,
    program: i32,
}

impl Recording {
    /// Records [`BUSY`] until it has worked, and half a second more.
    fn of_busy(place: &Place, output: &str) -> Self {
        let mut recorder = faultless();
        recorder.args(["record", "-o", output, "sh", "-c", BUSY]).current_dir(&place.folder);
        let mut recorder = recorder.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(recorder.stdout.take().unwrap()).lines().map(Result::unwrap);
        let program = lines.next().unwrap().parse().unwrap();
        assert_eq!(lines.next().unwrap(), "done");
        std::thread::sleep(Duration::from_millis(500));
        Self { recorder, program }
    }

    fn kill(&mut self) {
        self.recorder.kill().unwrap();
        self.recorder.wait().unwrap();
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: the call takes integers only; the program is this test's own and sleeps.
        unsafe { libc::kill(self.program, libc::SIGKILL) };
    }
}

fn recover(place: &Place, folder: &str) -> std::process::Output {
    faultless().args(["trace", "recover", "-o", "t.trace", folder]).current_dir(&place.folder).output().unwrap()
}

fn raw_folder(place: &Place) -> String {
    place.names().into_iter().find(|name| name.ends_with(".raw")).expect("raw records are there")
}

#[test]
fn a_killed_recorder_leaves_what_a_trace_is_made_of() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("killed");
    let mut recording = Recording::of_busy(&place, "t.trace");
    let folder = raw_folder(&place);
    assert_eq!(folder, format!("t.trace.{}.raw", recording.recorder.id()));
    let early = recover(&place, &folder);
    assert_eq!(early.status.code(), Some(1));
    assert!(err(&early).contains("still being recorded"), "{}", err(&early));
    recording.kill();
    let output = recover(&place, &folder);
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(place.names(), ["t.trace", &folder], "the raw records stay");
    let trace = place.open();
    assert!(trace.header.is_interrupted && trace.header.missing == [Missing::LastMoments]);
    assert_eq!((trace.header.lost, trace.header.command[0].as_str()), (0, "sh"));
    let execs = trace.events.iter().filter(|event| event.kind == EventKind::Exec).count();
    assert_eq!(execs, 102, "the shell, a hundred programs, and the sleep");
    let replayed = faultless().args(["replay", "-r", "1", "--design", "mmap-sem"]).arg(place.trace()).output().unwrap();
    assert!(replayed.status.success(), "{}", err(&replayed));
    assert!(out(&replayed).contains("last-moments"), "{}", out(&replayed));
}

#[test]
fn a_killed_recorder_of_joined_processes_leaves_what_a_trace_is_made_of() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("killed-joined");
    let mut program = Command::new(place.compile("joined")).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = program.id().to_string();
    let mut recorder = faultless();
    recorder.args(["record", "-o", "t.trace", "--stacks=dwarf,1024", "-p", &pid]).current_dir(&place.folder);
    let mut recorder = recorder.stderr(Stdio::null()).spawn().unwrap();
    place.await_joined(recorder.id());
    std::thread::sleep(Duration::from_secs(2));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    let folder = raw_folder(&place);
    let output = recover(&place, &folder);
    assert!(output.status.success(), "{}", err(&output));
    let trace = place.open();
    assert_eq!((trace.header.lost, &trace.header.missing[..]), (0, &[Missing::LastMoments][..]));
    assert!(!trace.snapshot.is_empty() && trace.header.command[0].ends_with("joined"));
    let faults = trace.events.iter().filter(|event| matches!(event.kind, EventKind::Fault(_))).count();
    assert!(faults > 1000, "{faults}");
    let named = trace.stacks.frames.iter().filter_map(|frame| frame.function.as_deref());
    assert!(named.into_iter().any(|name| name == "protector"), "its calls have their functions");
    let replayed = faultless().args(["replay", "-r", "1", "--design", "vma-lock"]).arg(place.trace()).output().unwrap();
    assert_replayed(&replayed);
}

#[test]
fn raw_records_that_end_anywhere_make_a_trace_up_to_the_mark() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("torn");
    let begun = Instant::now();
    let mut recording = Recording::of_busy(&place, "t.trace");
    recording.kill();
    // The first quarter of the recording has its first program in any case.
    let cut_off_ns = begun.elapsed().as_nanos() as u64 / 4;
    let folder = raw_folder(&place);
    // As if the recorder had been killed inside a write, behind a mark that lies earlier.
    let ring = place.path(&format!("{folder}/cpu-0"));
    let mut bytes = fs::read(&ring).unwrap();
    bytes.extend([9, 0, 0, 0, 0, 0, 200, 0, 1, 2, 3]);
    fs::write(&ring, bytes).unwrap();
    let mark = place.path(&format!("{folder}/mark"));
    let mut words = fs::read(&mark).unwrap();
    let until_ns = u64::from_ne_bytes(words[..8].try_into().unwrap()) - cut_off_ns;
    words[..8].copy_from_slice(&until_ns.to_ne_bytes());
    fs::write(&mark, words).unwrap();
    let output = recover(&place, &folder);
    assert!(output.status.success(), "{}", err(&output));
    let cut = place.open();
    assert_eq!(cut.header.lost, 0);
    let execs = cut.events.iter().filter(|event| event.kind == EventKind::Exec).count();
    assert!((1..=102).contains(&execs), "{execs}");
    fs::write(&mark, [0; 16]).unwrap();
    let nothing = recover(&place, &folder);
    assert_eq!(nothing.status.code(), Some(1), "nothing was looked at before a mark of 0");
}

#[test]
fn what_is_no_folder_of_raw_records_is_refused_by_name() {
    let place = Place::new("notraw");
    fs::create_dir(place.path("x.raw")).unwrap();
    fs::create_dir(place.path("y.raw")).unwrap();
    fs::write(place.path("y.raw/head"), "no trace").unwrap();
    for (folder, what) in [("x.raw", "its file 'head'"), ("nowhere", "its file 'head'"), ("y.raw", "'head'")] {
        let output = recover(&place, folder);
        assert_eq!(output.status.code(), Some(1));
        assert!(err(&output).contains(what) && err(&output).contains(folder), "{}", err(&output));
    }
    assert_eq!(place.names(), ["x.raw", "y.raw"], "no trace is left");
}

#[test]
fn a_trace_that_cannot_be_written_leaves_its_raw_records() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("full");
    let mut recorder = faultless();
    recorder.args(["record", "-o", "/dev/full", "true"]).env("TMPDIR", &place.folder);
    let output = recorder.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let folder = raw_folder(&place);
    assert!(folder.starts_with("faultless."), "{folder}");
    assert!(
        err(&output).contains(&format!("faultless trace recover {}", place.path(&folder).display())),
        "{}",
        err(&output)
    );
    let output = recover(&place, &folder);
    assert!(output.status.success(), "{}", err(&output));
    assert!(place.open().events.iter().any(|event| event.kind == EventKind::Exit), "the whole story");
}

#[test]
fn a_setuid_program_is_said_to_be_unwatched_and_its_empty_trace_is_no_success() {
    if !is_root() {
        return;
    }
    let place = Place::new("setuid");
    fs::copy(env!("CARGO_BIN_EXE_faultless"), place.path("faultless")).unwrap();
    // The test's folder may lie where set-user-ID bits count for nothing; then there is nothing to see.
    fs::copy("/bin/true", place.path("elevated")).unwrap();
    fs::set_permissions(place.path("elevated"), fs::Permissions::from_mode(0o4755)).unwrap();
    let record = |command: &[&str]| {
        let mut recorder = Command::new(place.path("faultless"));
        recorder.args(["record", "-o", "t.trace", "--"]).args(command).current_dir(&place.folder);
        recorder.uid(65534).gid(65534).output().unwrap()
    };
    let output = record(&["./elevated"]);
    if err(&output).contains("is not permitted") {
        println!("skipped: {}", err(&output).trim());
        return;
    }
    let trace = place.open();
    if trace.events.len() > 2 {
        println!("skipped: set-user-ID programs get no rights here");
        return;
    }
    assert!(err(&output).contains("watching ended at the exec"), "{}", err(&output));
    assert!(trace.header.missing.contains(&Missing::ElevatedPrograms));
    let info = faultless().args(["trace", "info"]).arg(place.trace()).output().unwrap();
    assert!(out(&info).contains("watching ended at the exec"), "{}", out(&info));
    let replayed = faultless().arg("replay").arg(place.trace()).output().unwrap();
    assert_eq!(replayed.status.code(), Some(1));
    assert!(
        err(&replayed).contains("no page fault") && err(&replayed).contains("watching ended"),
        "{}",
        err(&replayed)
    );
    let output = record(&["sh", "-c", "./elevated; ls >/dev/null; exit 0"]);
    assert!(output.status.success() && err(&output).contains("watching ended"), "{}", err(&output));
    let output = record(&["sh", "-c", "ls >/dev/null; exit 0"]);
    assert!(!err(&output).contains("watching ended"), "{}", err(&output));
    assert!(!place.open().header.missing.contains(&Missing::ElevatedPrograms));
}

#[test]
fn nothing_is_left_of_a_recording_that_ends_in_order() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("orderly");
    let begun = Instant::now();
    place.record_ok(&[], &["true"]);
    assert_eq!(place.names(), ["t.trace"]);
    assert!(Trace::open(&place.trace()).is_ok() && begun.elapsed() < Duration::from_secs(20));
}
