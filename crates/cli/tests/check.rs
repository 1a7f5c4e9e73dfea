//! `faultless check schedules` and `check mutants`: what is printed, and the exit codes.

use std::process::{Command, Output};

fn faultless(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_faultless")).arg("check").args(args).output().expect("the command runs")
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn sound_code_passes_and_the_same_seed_prints_the_same() {
    let args = ["schedules", "--seed", "3", "--runs", "60", "--format", "json"];
    let (first, second) = (faultless(&args), faultless(&[&args[..], &["--jobs", "1"]].concat()));
    assert_eq!((first.status.code(), second.status.code()), (Some(0), Some(0)));
    assert_eq!(first.stdout, second.stdout);
    let value: serde_json::Value = serde_json::from_slice(&first.stdout).expect("one document");
    assert_eq!(value["schema"], "faultless/1");
    assert_eq!(value["command"], "check schedules");
    assert_eq!(value["seed"], 3);
    assert_eq!(value["machine"]["simulated"], true);
    let checks = &value["checks"]["schedules"];
    let designs = checks["designs"].as_array().expect("a list").len() as u64;
    assert_eq!(checks["runs"], 60 * designs);
    assert_eq!(checks["failures"], serde_json::json!([]));
}

#[test]
fn every_format_has_a_line_for_each_cell() {
    let choice = ["schedules", "--runs", "30", "--design", "mmap-sem,spf-v11", "--world", "zap,fork"];
    for (format, lines) in [("csv", 5), ("markdown", 6)] {
        let output = faultless(&[&choice[..], &["--format", format]].concat());
        let (out, err) = texts(&output);
        assert_eq!((output.status.code(), out.lines().count()), (Some(0), lines), "{out}{err}");
    }
    let (out, _) = texts(&faultless(&choice));
    assert!(out.contains("mmap-sem") && out.contains("fork") && out.contains("seed 1: 60 explored"), "{out}");
}

#[test]
fn what_was_not_understood_is_an_error_of_usage_that_says_what() {
    let line = "schedule-1:spf-v11:rwsem-v8:zap:-:W+s0+l1_d0-1:1:0@15-1,1@33-0";
    for (args, what) in [
        (vec!["schedules", "--design", "spf-v12"], "spf-v12"),
        (vec!["schedules", "--world", "zip"], "zip"),
        (vec!["schedules", "--runs", "0"], "0"),
        (vec!["schedules", "--mutant", "gather-ignored"], "gathers-ignored"),
        (vec!["schedules", "--replay", "nonsense"], "no schedule"),
        (vec!["schedules", "--replay", &line.replace("schedule-1", "schedule-2")], "version 2"),
        (vec!["schedules", "--replay", &line.replace("+l1", "+q")], "\"q\""),
        (vec!["schedules", "--replay", &line.replace(":-:", ":no-such:")], "no mutant \"no-such\""),
        (vec!["nothing"], "nothing"),
    ] {
        let output = faultless(&args);
        let (out, err) = texts(&output);
        assert_eq!((output.status.code(), out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(what), "{args:?}: {err}");
    }
}

#[test]
fn a_schedule_can_be_replayed() {
    let line = "schedule-1:spf-v11:rwsem-v8:zap:-:W+s0+l1_d0-1:1:0@15-1,1@33-0";
    let (out, err) = texts(&faultless(&["schedules", "--replay", line]));
    assert!(out.contains("passes") && err.is_empty(), "{out}{err}");
}

/// A program that nobody would draw: more pins of one frame than its count has room for, where none is expected.
#[test]
fn a_panic_inside_says_who_did_what_and_ends_with_code_1() {
    let line = "schedule-1:mmap-sem:rwsem-2012:narrow:-:i1+i1+i1+i1+i1+i1+i1+i1+i1+i1+i1+i1+i1+i1+i1:0:";
    let output = faultless(&["schedules", "--replay", line]);
    let (out, err) = texts(&output);
    assert_eq!((output.status.code(), err.as_str()), (Some(1), ""), "{out}");
    for part in ["thread 0 on CPU 0 in ", "mapped too often", "length ", &format!("--replay {line}")] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let output = faultless(&["schedules", "--format", "json", "--replay", line]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(value["checks"]["schedules"]["failures"][0]["line"], line);
    assert_eq!(output.status.code(), Some(1));
}

#[cfg(feature = "mutants")]
#[test]
fn a_deadlock_inside_says_who_waits_where() {
    let args = ["schedules", "--mutant", "steal-forgets-line", "--runs", "1000", "--design", "mmap-sem"];
    let output = faultless(&args);
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    for part in
        ["deadlock: thread", "sleeps at", "seed      1", "shortest", "replay    faultless check schedules --replay"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
    let line = out.lines().find_map(|line| line.strip_prefix("replay    faultless check schedules --replay "));
    let again = faultless(&["schedules", "--replay", line.expect("a line")]);
    assert_eq!(again.status.code(), Some(1));
    assert!(texts(&again).0.contains("deadlock: thread"), "{}", texts(&again).0);
}

#[cfg(not(feature = "mutants"))]
#[test]
fn without_the_feature_mutants_the_command_says_how_to_build_it() {
    for args in [
        vec!["mutants"],
        vec!["schedules", "--mutant", "gathers-ignored"],
        vec!["schedules", "--replay", "schedule-1:spf-v11:rwsem-v8:zap:gathers-ignored:s0_d0-1:1:"],
    ] {
        let output = faultless(&args);
        assert_eq!(output.status.code(), Some(2));
        assert!(texts(&output).1.contains("--features mutants"), "{args:?}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn with_the_feature_a_failure_has_all_that_replays_it() {
    let output = faultless(&["mutants", "--runs", "40", "--seeds", "1", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "forty schedules do not find them all");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    let rows = value["checks"]["mutants"].as_array().expect("a list");
    assert_eq!(rows.iter().filter(|row| row["number"].is_u64()).count(), 22);
    let line = "schedule-1:vma-lock:rwsem-2012:fork:zero-page-writable:s0+s1_s2+d0-3+s0:0:";
    let output = faultless(&["schedules", "--replay", line]);
    let (out, _) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{out}");
    let output = faultless(&["schedules", "--replay", &line.replace("s0+s1_s2+d0-3+s0", "d0+l0+s0_l1")]);
    let (out, _) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(
        out.contains("zero page") && out.contains("replay    faultless check schedules --replay schedule-1:"),
        "{out}"
    );
}
