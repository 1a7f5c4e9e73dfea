//! `--spread`: machines drawn from the ranges of what was guessed.

use std::process::{Command, Output};

use serde_json::Value;

const BENCH: [&str; 13] = [
    "bench",
    "mmap1",
    "--machine",
    "skylake-192",
    "--cpus",
    "4",
    "--design",
    "mmap-sem",
    "-d",
    "200us",
    "--processes",
    "--spread",
    "8",
];

fn faultless(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_faultless")).args(words).output().expect("the command runs")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&stdout(&faultless(&[words, &["--format", "json"]].concat()))).expect("JSON")
}

fn rate(set: &Value) -> &Value {
    let results = set["results"].as_array().expect("results");
    results.iter().find(|result| result["metric"] == "ops_per_s").expect("a rate")
}

#[test]
fn a_rate_has_an_interval_over_machines_that_the_seed_draws() {
    let set = json(&BENCH);
    let (interval, samples) = (&rate(&set)["interval"], rate(&set)["samples"].as_array().expect("samples"));
    assert_eq!((&interval["draws"], &interval["level"], samples.len()), (&8.into(), &0.9.into(), 8));
    let (low, high) = (interval["low"].as_f64().expect("a number"), interval["high"].as_f64().expect("a number"));
    assert!(low * 1.1 < high, "what was guessed moves the rate: {low} to {high}");
    let inside = samples.iter().filter(|sample| (low..=high).contains(&sample.as_f64().expect("a number"))).count();
    assert_eq!(inside, 6, "the ends lie between the outermost draws and their neighbours");
    assert_eq!(json(&[&BENCH[..], &["--jobs", "1"]].concat())["results"], set["results"], "the same draws again");
    assert_ne!(json(&[&BENCH[..], &["--seed", "2"]].concat())["results"], set["results"]);
    let sensitivity = rate(&set)["sensitivity"].as_array().expect("numbers");
    assert!(sensitivity.iter().any(|moved| moved["number"] == "cpu.instructions_ns"));
    let human = stdout(&faultless(&[&BENCH[..], &["--sensitivity"]].concat()));
    for part in ["median [5 %, 95 %] of the machines drawn", "a machine of its own draw", "rank correlation", "cpu."] {
        assert!(human.contains(part), "{part:?} is missing in\n{human}");
    }
}

#[test]
fn a_semaphore_by_itself_has_an_interval_too() {
    let words = ["bench", "rwsem", "--machine", "xeon-40", "--cpus", "4", "--semaphore", "rwsem-steal,handoff"];
    let words = [&words[..], &["-d", "200us", "--spread", "4", "--sensitivity"]].concat();
    let set = json(&words);
    let (interval, sensitivity) = (&rate(&set)["interval"], &rate(&set)["sensitivity"]);
    assert_eq!((&interval["draws"], &interval["level"]), (&4.into(), &0.9.into()));
    assert!(interval["low"].as_f64() < interval["high"].as_f64(), "{interval}");
    assert!(sensitivity.as_array().is_some_and(|all| all.iter().any(|one| one["number"] == "scheduler.wake_ns")));
    assert_eq!(json(&[&words[..], &["--jobs", "1"]].concat())["results"], set["results"], "the same draws again");
    let human = stdout(&faultless(&words));
    for part in ["4 machines", "rank correlation", "rwsem-steal", "["] {
        assert!(human.contains(part), "{part:?} is missing in\n{human}");
    }
}

#[test]
fn a_machine_of_which_nothing_was_guessed_can_not_be_drawn() {
    let words = ["bench", "mmap1", "-d", "1ms", "-r", "1"];
    let native = faultless(&["bench", "mmap1", "--spread", "2"]);
    assert_eq!(native.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&native.stderr).contains("simulated machines"), "{native:?}");
    assert!(stdout(&faultless(&words)).contains("mean"), "without the flag it runs");
    let file = stdout(&faultless(&["machines", "numaq-16", "--file"]));
    let plain: String = file
        .lines()
        .map(|line| match line.split_once(", range") {
            Some((number, _)) => format!("{number} }}\n"),
            None => format!("{line}\n"),
        })
        .collect();
    let path = std::env::temp_dir().join(format!("faultless-spread-{}.toml", std::process::id()));
    std::fs::write(&path, plain).expect("room");
    let path_text = path.to_str().expect("a path");
    let refused = faultless(&["bench", "mmap1", "--machine", path_text, "--cpus", "2", "--spread", "2"]);
    std::fs::remove_file(&path).expect("it was written");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no number of the machine"), "{refused:?}");
}

#[test]
fn a_published_line_has_an_interval_and_a_verdict() {
    let words = ["reproduce", "refpage-v5", "--spread", "2", "--sensitivity"];
    let set = json(&words);
    let row = &set["checks"]["refpage-v5"][0];
    assert_eq!(row["interval"]["draws"], 2);
    let number = |value: &Value| value.as_f64().expect("a number");
    let published = 1.0 + number(&row["published_percent"]) / 100.0;
    assert!((number(&row["published"]) - published).abs() < 1e-9);
    assert!(number(&row["interval"]["low"]) <= number(&row["interval"]["high"]));
    assert!(row["reproduced"].is_boolean() || row["converged"] == false, "{row}");
    let human = stdout(&faultless(&words));
    assert!(human.contains("90 % of draws") && human.contains("rank correlation"), "{human}");
    assert!(human.contains("published change of at least 10 % are reproduced"), "{human}");
}
