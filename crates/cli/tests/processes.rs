//! `faultless trace ps`, `trace top` and `replay --process`: who did what, and one process alone.

mod support;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use support::{err, faultless, out};

const EXAMPLES: [&str; 4] = ["gcc", "java", "python", "mapper"];

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/{name}.trace"))
}

fn trace(command: &str, name: &str, options: &[&str]) -> Output {
    let output = faultless().args(["trace", command]).args(options).arg(example(name)).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    output
}

fn json(command: &str, name: &str) -> Value {
    serde_json::from_str(&out(&trace(command, name, &["--format", "json"]))).unwrap()
}

fn sum(rows: &Value, key: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap()).sum()
}

/// Returns how many threads, calls and faults the whole trace has.
fn totals(name: &str) -> [u64; 3] {
    let info = &json("info", name)["trace"];
    let calls = info["calls"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    let faults = info["user_faults"].as_u64().unwrap() + info["kernel_faults"].as_u64().unwrap();
    [info["threads"].as_u64().unwrap(), calls, faults]
}

#[test]
fn every_thread_call_and_fault_belongs_to_one_process() {
    for name in EXAMPLES {
        let document = json("ps", name);
        assert_eq!((&document["schema"], &document["command"]), (&"faultless/1".into(), &"trace ps".into()));
        let processes = &document["processes"];
        assert_eq!(["threads", "calls", "faults"].map(|key| sum(processes, key)), totals(name), "{name}");
    }
    let processes = &json("ps", "gcc")["processes"];
    let commands: Vec<_> = processes.as_array().unwrap().iter().map(|line| line["command"].as_str().unwrap()).collect();
    assert!(commands.contains(&"cc1") && commands.contains(&"gcc"), "{commands:?}");
    assert!(out(&trace("ps", "gcc", &[])).contains("cc1"));
}

#[test]
fn every_call_and_fault_is_about_one_kind_of_memory() {
    for name in EXAMPLES {
        let rows = &json("top", name)["rows"];
        assert_eq!(["calls", "faults"].map(|key| sum(rows, key)), totals(name)[1..], "{name}");
        let unknown = rows.as_array().unwrap().iter().filter(|row| row["area"] == "unknown");
        let unknown_faults: u64 = unknown.map(|row| row["faults"].as_u64().unwrap()).sum();
        assert!(unknown_faults * 100 <= totals(name)[2], "{name}: {unknown_faults} faults at unknown places");
    }
    let rows = &json("top", "gcc")["rows"];
    let rows = rows.as_array().unwrap();
    let has = |area: &str, file: &str| {
        let is_file = |row: &Value| row["file"].as_str().unwrap_or("").ends_with(file);
        rows.iter().any(|row| row["command"] == "cc1" && row["area"] == area && is_file(row))
    };
    assert!(has("heap", "") && has("anonymous", "") && has("stack", "") && has("file", "cc1"), "{rows:#?}");
    assert!(sum(&Value::Array(rows.clone()), "kernel_ns") > 0, "the trace has a pace");
}

#[test]
fn folded_stacks_hold_the_same_counts() {
    let text = out(&trace("top", "gcc", &["--folded"]));
    let counts = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    let (mut calls, mut faults) = (0, 0);
    for (stack, count) in counts {
        let count: u64 = count.parse().unwrap();
        assert!(stack.split(';').count() >= 3, "{stack}");
        *if stack.ends_with(";fault") { &mut faults } else { &mut calls } += count;
    }
    assert_eq!([calls, faults], totals("gcc")[1..]);
    assert!(text.lines().any(|line| line.starts_with("cc1-") && line.contains(";heap;brk ")), "{text}");
}

#[test]
fn each_process_of_a_trace_replays_alone_with_its_own_faults() {
    let processes = &json("ps", "gcc")["processes"];
    for process in processes.as_array().unwrap() {
        let pid = process["pid"].to_string();
        let output = replay("gcc", &pid);
        assert!(output.status.success(), "{pid}: {}{}", out(&output), err(&output));
        let checks = &serde_json::from_str::<Value>(&out(&output)).unwrap()["checks"];
        assert_eq!(checks["mismatches"], 0, "{pid}");
        let (alone, own) = (checks["faults_recorded"].as_u64().unwrap(), process["faults"].as_u64().unwrap());
        assert!(alone >= own && alone <= totals("gcc")[2], "{pid}: {alone} of {own}");
    }
    let all: u64 = totals("gcc")[2];
    let output = replay("gcc", "cc1");
    let checks = &serde_json::from_str::<Value>(&out(&output)).unwrap()["checks"];
    assert!(checks["faults_recorded"].as_u64().unwrap() < all, "the others are left out");
    let output = replay("gcc", "emacs");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("no process 'emacs'"), "{}", err(&output));
}

fn replay(name: &str, process: &str) -> Output {
    let mut command = faultless();
    command.args(["replay", "--design", "vma-lock", "-r", "1", "--format", "json", "--process", process]);
    command.arg(example(name)).output().unwrap()
}
