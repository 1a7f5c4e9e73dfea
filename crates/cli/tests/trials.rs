//! `check soak`, `check fuzz` and `check all` as a user runs them, briefly.

use std::process::{Command, Output};

fn faultless(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_faultless")).args(words).output().expect("the command runs")
}

fn report(output: &Output) -> serde_json::Value {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("a report")
}

#[test]
fn soak_reports_each_design_with_and_without_shortages() {
    let report = report(&faultless(&["check", "soak", "--duration", "300ms", "--format", "json"]));
    let runs = report["checks"]["soak"]["runs"].as_array().expect("runs");
    let nr_designs = faultless_results::designs::LINES.len() - 1;
    assert_eq!(runs.len(), 2 * nr_designs, "each design but the host's kernel, twice");
    for run in runs {
        assert!(run["report"]["rounds"].as_u64() > Some(0), "{run}");
        let is_injected = run["shortages"] == "injected";
        assert_eq!(run["report"]["shortages"].as_u64() > Some(0), is_injected, "{run}");
    }
}

#[test]
fn fuzz_tries_as_many_inputs_as_asked() {
    let words = ["check", "fuzz", "--target", "traces,machines,results,api", "--inputs", "40", "--format", "json"];
    let report = report(&faultless(&words));
    for run in report["checks"]["fuzz"]["runs"].as_array().expect("runs") {
        assert_eq!(run["inputs"], 40, "{run}");
    }
}

#[test]
fn a_target_that_nobody_knows_is_refused() {
    let output = faultless(&["check", "fuzz", "--target", "trace"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("traces"), "{output:?}");
}

#[test]
fn all_judges_take_turns_and_the_run_ends_with_what_may_be_believed() {
    let folder = std::env::temp_dir().join(format!("faultless-all-{}", std::process::id()));
    let keep = folder.to_str().expect("a path");
    let words = ["check", "all", "--duration", "5s", "--design", "vma-lock", "--keep", keep, "--format", "json"];
    let report = report(&faultless(&words));
    for judge in report["checks"]["all"]["judges"].as_array().expect("judges") {
        assert!(judge["tried"].as_u64() > Some(0), "{judge}");
    }
    assert!(report["checks"]["all"]["verdict"].as_str().is_some_and(|verdict| verdict.contains("you may believe")));
    assert_eq!(std::fs::read_to_string(folder.join("found.sh")).expect("a file"), "", "nothing was found");
    std::fs::remove_dir_all(&folder).expect("ours");
}
