//! What of a program's command and texts comes into a trace and onto the terminal, and where a trace may go.

mod support;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use faultless_trace::{Missing, Trace};
use support::{Place, err, faultless, has_tracepoints, out};

#[test]
fn a_program_needs_no_dashes_before_its_own_options() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("dashes");
    let mut recorder = faultless();
    recorder.args(["record", "--no-pace", "ls", "-l", "-o", "--redact"]).current_dir(&place.folder);
    let output = recorder.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "ls does not know --redact: {}", err(&output));
    let trace = Trace::open(&place.path("faultless.trace")).unwrap();
    assert_eq!(trace.header.command, ["ls", "-l", "-o", "--redact"]);
}

#[test]
fn arguments_are_left_out_on_request() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("redact");
    let trace = place.record_ok(&["--redact"], &["sh", "-c", "true", "secret-token"]);
    assert_eq!(trace.header.command, ["sh"]);
    assert_eq!(trace.header.missing, [Missing::Arguments]);
    let info = faultless().args(["trace", "info"]).arg(place.trace()).output().unwrap();
    assert!(out(&info).contains("arguments left out"), "{}", out(&info));
    let dump = faultless().args(["trace", "dump"]).arg(place.trace()).output().unwrap();
    assert!(!out(&dump).contains("secret") && !out(&info).contains("secret"));
    let replay = faultless().args(["replay", "-r", "1", "--design", "mmap-sem"]).arg(place.trace()).output().unwrap();
    let strict = out(&replay).lines().find(|line| line.starts_with("checked")).unwrap_or_default().to_owned();
    assert!(!strict.contains("0 strict (0.0 %)"), "arguments say nothing about faults: {strict}");
}

#[test]
fn what_a_command_holds_does_not_steer_the_terminal_and_can_be_pasted() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("steer");
    let odd = "it's \x1b]0;owned\x07 $HOME\n\u{202e}";
    let trace = place.record_ok(&[], &["sh", "-c", "true", odd]);
    assert_eq!(trace.header.command[3], odd, "the trace keeps it as it was");
    for args in [&["trace", "info"][..], &["replay", "-r", "1", "--design", "mmap-sem"]] {
        let output = faultless().args(args).arg(place.trace()).output().unwrap();
        let shown = out(&output);
        assert!(!shown.contains(['\x1b', '\x07', '\u{202e}']), "{shown:?}");
        let line = r"sh -c true $'it\'s \x1b]0;owned\x07 $HOME\n\u202e'";
        assert!(shown.contains(line), "{shown}");
    }
}

#[test]
fn names_of_files_do_not_steer_the_terminal() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("names");
    let odd = place.path("tr\x1b[2Jue");
    fs::copy("/bin/true", &odd).unwrap();
    place.record_ok(&[], &[odd.to_str().unwrap()]);
    let dump = faultless().args(["trace", "dump"]).arg(place.trace()).output().unwrap();
    assert!(out(&dump).contains(r"tr\x1b[2Jue") && !out(&dump).contains('\x1b'));
}

#[test]
fn a_trace_goes_to_standard_output_and_what_the_program_prints_to_standard_error() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("stdout");
    let mut recorder = faultless();
    recorder.args(["record", "-o", "-", "echo", "printed"]).current_dir(&place.folder);
    let output = recorder.output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let trace = Trace::read(&output.stdout[..]).expect("standard output is a trace and nothing else");
    assert_eq!(trace.header.command, ["echo", "printed"]);
    assert!(err(&output).starts_with("printed\n"), "{}", err(&output));
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn standard_output_that_the_program_shares_is_refused() {
    let place = Place::new("shared");
    for redirection in ["2>&1", "3>&1 2>err", "3>>both 2>err"] {
        let script = format!("\"$0\" record -o - touch ran >both {redirection}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_faultless")]).current_dir(&place.folder);
        let status = shell.stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(1), "{redirection}");
        let said = ["both", "err"].map(|name| fs::read_to_string(place.path(name)).unwrap_or_default()).concat();
        assert!(said.contains("standard output is also descriptor"), "{redirection}: {said}");
        assert!(!place.path("ran").exists(), "the program did not run");
    }
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert!(full.as_raw_fd() >= 0);
    for args in [&["--help"][..], &["record", "--help"], &["--version"]] {
        let output = faultless().args(args).stdout(full.try_clone().unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(err(&output).contains("No space left"), "{args:?}: {}", err(&output));
    }
    let output = faultless().args(["record", "--help"]).output().unwrap();
    assert!(output.status.success());
    let help = out(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["64 bytes a fault", ".raw", "trace recover", "--redact"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}
