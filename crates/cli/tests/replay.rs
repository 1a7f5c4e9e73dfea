//! Replaying as a user does it: bad input, exit codes, formats.

mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use faultless_trace::Trace;
use support::{Place, err, faultless, is_root, out};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn replay(file: &std::path::Path, options: &[&str]) -> Output {
    faultless().arg("replay").arg(file).args(options).output().expect("the command runs")
}

/// Asserts that a replay refuses a file before it runs anything.
fn refuses(place: &Place, bytes: &[u8], word: &str) {
    fs::write(place.trace(), bytes).expect("writable");
    let output = replay(&place.trace(), &["-r", "1"]);
    assert_eq!(output.status.code(), Some(1), "{word}: {}", err(&output));
    assert!(output.stdout.is_empty(), "{word}: something was run: {}", out(&output));
    assert!(err(&output).to_lowercase().contains(word), "{word} is not in: {}", err(&output));
    assert!(!err(&output).contains("panicked"), "{}", err(&output));
}

#[test]
fn a_trace_that_is_not_whole_is_refused_before_anything_runs() {
    let place = Place::new("refused");
    let good = fs::read(example("python.trace")).expect("readable");
    refuses(&place, b"", "empty");
    refuses(&place, b"#!/bin/sh\necho this is no trace at all, but it is long enough to hold a header\n", "not a");
    refuses(&place, &good[..good.len() / 2], "cut");
    refuses(&place, &good[..good.len() - 1], "cut");
    for position in [good.len() / 3, good.len() / 2, good.len() - 9] {
        let mut bad = good.clone();
        bad[position] ^= 0x40;
        refuses(&place, &bad, "damaged");
    }
    let missing = replay(&place.path("missing.trace"), &[]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(err(&missing).contains("missing.trace"), "{}", err(&missing));
}

#[test]
fn a_trace_with_lost_records_needs_permission() {
    let place = Place::new("lost");
    let mut trace = Trace::open(&example("python.trace")).expect("a good trace");
    trace.header.lost = 3;
    trace.write(fs::File::create(place.trace()).expect("writable")).expect("written");
    let refused = replay(&place.trace(), &["-r", "1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("--allow-lost"), "{}", err(&refused));
    let allowed = replay(&place.trace(), &["-r", "1", "--allow-lost", "--format", "json"]);
    assert_eq!(allowed.status.code(), Some(0), "{}", err(&allowed));
    let report: serde_json::Value = serde_json::from_str(&out(&allowed)).expect("JSON");
    assert_eq!(report["checks"]["lost"], 3);
}

#[test]
fn unknown_names_end_with_the_list_of_those_there_are() {
    for (flag, names) in [("--design", ["mmap-sem", "spf-v11"]), ("--semaphore", ["rwsem-2012", "rwsem-v8"])] {
        let output = replay(&example("python.trace"), &[flag, "no-such-name"]);
        assert_eq!(output.status.code(), Some(2));
        let said = err(&output);
        assert!(said.contains("no-such-name") && names.iter().all(|name| said.contains(name)), "{said}");
    }
    let zero = replay(&example("python.trace"), &["--cpus", "0"]);
    assert_eq!(zero.status.code(), Some(2), "{}", err(&zero));
}

#[test]
fn a_semaphore_answers_to_its_other_name_wherever_it_is_named() {
    let python = example("python.trace");
    let replayed = replay(&python, &["--semaphore", "rwsem-v8-p8", "--design", "mmap-sem", "-r", "1"]);
    let words = ["check", "soak", "--semaphore", "rwsem-v8-p8", "--design", "mmap-sem", "--duration", "200ms"];
    let soaked = faultless().args(words).output().unwrap();
    for output in [replayed, soaked] {
        assert!(output.status.success() && out(&output).contains("rwsem-v8-no-optspin"), "{}", err(&output));
    }
}

#[test]
fn too_little_memory_is_said_with_what_is_enough() {
    for (memory, given) in [("2M", ", of 2 MiB)"), ("2500K", ", of 4 MiB)")] {
        let output = replay(&example("gcc.trace"), &["-r", "1", "--memory", memory]);
        assert_eq!(output.status.code(), Some(1), "{}", out(&output));
        let said = err(&output);
        assert!(said.contains(given), "{said}");
        assert!(said.contains("--memory") && !said.contains("panicked") && !said.contains("broken"), "{said}");
    }
}

#[test]
fn no_memory_is_refused_before_anything_runs() {
    for memory in ["0", "1M"] {
        let output = replay(&example("gcc.trace"), &["-r", "1", "--memory", memory]);
        assert_eq!(output.status.code(), Some(2), "{}", out(&output));
        let wanted = format!("{memory} is too little: a virtual memory has at least 2M");
        assert!(err(&output).contains(&wanted), "{}", err(&output));
    }
}

#[test]
fn formats_carry_every_sample() {
    let count = |format: &str| {
        let output = replay(&example("python.trace"), &["-r", "2", "--design", "spf-v11", "--format", format]);
        assert!(output.status.success(), "{}", err(&output));
        out(&output)
    };
    let json: serde_json::Value = serde_json::from_str(&count("json")).expect("JSON");
    for result in json["results"].as_array().expect("a list") {
        assert_eq!(result["samples"].as_array().map(Vec::len), Some(2), "{result}");
        // The program has one thread.
        assert_eq!((&result["design"], &result["mode"]), (&"spf-v11".into(), &"processes".into()));
    }
    let keys = [
        "events",
        "faults_recorded",
        "faults_replayed",
        "strict",
        "mismatches",
        "classified",
        "imposed",
        "skipped",
        "lost",
    ];
    keys.iter().for_each(|key| assert!(!json["checks"][key].is_null(), "{key} is missing"));
    assert!(count("csv").lines().count() > 10);
    assert!(count("markdown").contains("| "));
}

#[test]
fn what_nobody_records_replays_and_says_what_it_lacks() {
    if !is_root() {
        return;
    }
    let place = Place::new("nobody-replay");
    fs::copy(env!("CARGO_BIN_EXE_faultless"), place.path("faultless")).expect("copied");
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(place.path("faultless"));
        command.args(arguments).current_dir(&place.folder).uid(65534).gid(65534).output().expect("the command runs")
    };
    let recorded = as_nobody(&["record", "-o", "t.trace", "--", "ls", "/"]);
    if err(&recorded).contains("is not permitted") {
        println!("skipped: {}", err(&recorded).trim());
        return;
    }
    assert!(recorded.status.success(), "{}", err(&recorded));
    let replayed = as_nobody(&["replay", "t.trace", "-r", "1", "--format", "json"]);
    assert_eq!(replayed.status.code(), Some(0), "{}", err(&replayed));
    let report: serde_json::Value = serde_json::from_str(&out(&replayed)).expect("JSON");
    assert_eq!(report["checks"]["mismatches"], 0);
    let missing = report["trace"]["missing"].as_array().expect("a list");
    assert!(missing.iter().any(|what| what == "write-bit"), "{missing:?}");
}

#[test]
fn a_program_is_replayed_as_if_its_memory_started_as_a_byte() {
    let renderer = example("renderer.trace");
    let words = ["--pattern", "0xAA,128K", "--machine", "here", "--cpus", "1", "-r", "2", "--design", "faultless"];
    let json = replay(&renderer, &[&words[..], &["--format", "json"]].concat());
    assert_eq!(json.status.code(), Some(0), "{}", err(&json));
    let report: serde_json::Value = serde_json::from_str(&out(&json)).expect("JSON");
    assert_eq!((&report["checks"]["mismatches"], &report["checks"]["skipped"]), (&0.into(), &serde_json::json!({})));
    let human = out(&replay(&renderer, &words));
    let row = |arm: &str| human.lines().find(|line| line.starts_with(&format!("faultless+{arm} "))).map(str::to_owned);
    let percent = |arm: &str| {
        let row = row(arm).unwrap_or_else(|| panic!("no {arm} in {human}"));
        row.split_whitespace().nth(2).and_then(|number| number.parse::<f64>().ok()).expect("a change in percent")
    };
    // In virtual time: stores cost, and neither a reference page nor a pattern costs half of that.
    assert!(percent("memset") > 10.0, "{human}");
    assert!(percent("refpage") < percent("memset") / 2.0 && percent("pattern") < percent("memset") / 2.0, "{human}");
    assert!(row("refpage").is_some_and(|row| row.contains(" +0 ")), "no page more than plain memory: {human}");
    assert!(!human.contains("populated explains"), "{human}");
    for (pattern, word) in [("0x1AA", "no byte"), ("0xAA,", "not a size"), ("", "no byte"), ("AA", "no byte")] {
        let refused = replay(&renderer, &["--pattern", pattern]);
        assert_eq!(refused.status.code(), Some(2), "{pattern}: {}", err(&refused));
        assert!(err(&refused).contains(word), "{pattern}: {}", err(&refused));
    }
    let host = replay(&renderer, &["--pattern", "0xAA", "--design", "linux"]);
    assert_eq!(host.status.code(), Some(2), "{}", err(&host));
    assert!(err(&host).contains("design of ours"), "{}", err(&host));
}
