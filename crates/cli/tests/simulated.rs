//! Simulated machines under `bench`, `replay` and `stat`: the same bytes for the same seed, whatever runs beside, and clear errors.

use std::process::{Command, Output};

fn faultless(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(words);
    command
}

fn output(mut command: Command) -> Output {
    command.output().expect("the command runs")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&stdout(output)).expect("JSON")
}

const BENCH: &[&str] = &[
    "bench",
    "page_fault1",
    "malloc1",
    "ebizzy -mTt 64",
    "--machine",
    "skylake-192",
    "--cpus",
    "1,48",
    "--design",
    "mmap-sem,spf-v11,vma-lock",
    "-r",
    "2",
    "-d",
    "300us",
    "--format",
    "json",
    "--seed",
    "5",
];

#[test]
fn a_seed_gives_the_same_bytes_in_any_process_and_beside_any_other_run() {
    let first = output({
        let mut command = faultless(BENCH);
        command.args(["--jobs", "1"]);
        command
    });
    // Another environment moves the stack, and other frees come before.
    let second = output({
        let mut command = faultless(BENCH);
        command.args(["--jobs", "3"]).env("FAULTLESS_UNUSED", "x".repeat(5000));
        command
    });
    assert_eq!(stdout(&first), stdout(&second));
    let other = output({
        let mut command = faultless(&BENCH[..BENCH.len() - 1]);
        command.arg("6");
        command
    });
    assert_ne!(json(&first)["results"], json(&other)["results"]);
}

#[test]
fn results_say_that_they_are_simulated_and_with_which_parameters() {
    let words = ["bench", "mmap1", "--machine", "epyc-384", "--cpus", "2", "--design", "mmap-sem", "-d", "100us"];
    let human = stdout(&output(faultless(&words)));
    for part in ["epyc-384 (simulated)", "seeds 1 to 5", "median [least, most]", "rmw_ns 6.5,", "wake_ns 1000.0*"] {
        assert!(human.contains(part), "{part:?} is missing in\n{human}");
    }
    let machine = &json(&output({
        let mut command = faultless(&words);
        command.args(["--format", "json"]);
        command
    }))["machine"];
    assert_eq!((&machine["simulated"], &machine["cpus"]), (&true.into(), &384.into()));
    assert!(machine["parameters"]["read.remote_ns"]["source"].as_str().is_some_and(|source| !source.is_empty()));
}

#[test]
fn a_recorded_program_replays_on_a_machine_with_more_cpus_than_this_one() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/mapper.trace");
    let words = ["replay", trace, "--machine", "power8-80", "--cpus", "64", "-r", "1", "--format", "json"];
    let result = json(&output(faultless(&words)));
    assert_eq!(result["machine"]["simulated"], true);
    assert_eq!(result["checks"]["mismatches"], 0);
    assert_eq!(result["checks"]["faults_recorded"], result["checks"]["faults_replayed"]);
}

#[test]
fn stat_counts_on_a_simulated_machine() {
    let words =
        ["stat", "-e", "faults,spf", "page_fault1", "--machine", "xeon-40", "--cpus", "40", "--locks", "-d", "500us"];
    let human = stdout(&output(faultless(&words)));
    assert!(human.contains("simulated on xeon-40") && human.contains("Lock statistics"), "{human}");
}

#[test]
fn what_does_not_fit_a_machine_is_told_with_the_number() {
    let too_many = output(faultless(&["bench", "mmap1", "--machine", "xeon-40", "--cpus", "8,41"]));
    assert_eq!(too_many.status.code(), Some(2));
    assert!(stderr(&too_many).contains("41 CPUs were asked for: machine xeon-40 has 1 to 40"), "{}", stderr(&too_many));
    let unknown = output(faultless(&["replay", "x.trace", "--machine", "xeon-4O"]));
    assert_eq!(unknown.status.code(), Some(1), "the trace is looked for first");
    let unknown = output(faultless(&["bench", "mmap1", "--machine", "xeon-4O"]));
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("did you mean xeon-40?"), "{}", stderr(&unknown));
    let host = output(faultless(&["bench", "mmap1", "--machine", "xeon-40", "--design", "linux", "--cpus", "1"]));
    assert_eq!(host.status.code(), Some(2), "{}", stderr(&host));
}

#[test]
fn a_wrong_machine_file_is_told_with_key_and_value() {
    let path = std::env::temp_dir().join(format!("faultless-wrong-{}.toml", std::process::id()));
    let good = stdout(&output(faultless(&["machines", "xeon-40", "--file"])));
    let name = path.to_str().expect("plain");
    for (from, to, words) in [
        ("sockets = { value = 4", "sockets = { value = 0", "topology.sockets = 0"),
        ("[scheduler]", "[sheduler]", "sheduler"),
        ("local_ns = { value = 110", "local_ns = { value = -1", "memory.local_ns = -1"),
    ] {
        assert!(good.contains(from), "{good}");
        std::fs::write(&path, good.replacen(from, to, 1)).expect("a file");
        let wrong = output(faultless(&["bench", "mmap1", "--machine", name]));
        assert_eq!(wrong.status.code(), Some(2));
        assert!(stderr(&wrong).contains(words) && stderr(&wrong).contains(name), "{}", stderr(&wrong));
    }
    std::fs::write(&path, good).expect("a file");
    let words = ["bench", "mmap1", "--machine", name, "--cpus", "2", "-d", "50us", "-r", "1", "--design", "mmap-sem"];
    stdout(&output(faultless(&words)));
    std::fs::remove_file(&path).expect("removed");
}

#[test]
fn published_tables_are_listed_and_found_by_their_beginning() {
    let list = stdout(&output(faultless(&["reproduce", "--list"])));
    assert!(list.contains("spf-2018-lkp-v9") && list.contains("spf-2017-ebizzy"), "{list}");
    let unknown = output(faultless(&["reproduce", "spf-2019"]));
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("spf-2018-ebizzy"), "{}", stderr(&unknown));
}
