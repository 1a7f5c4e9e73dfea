//! Comparing and keeping results as a user does it: layout, names, exit codes, bad input.

mod support;

use std::fs;
use std::process::Output;

use serde_json::{Value, json};
use support::{Place, err, faultless, out};

/// A result file with one workload: throughput of two workers, and a latency.
fn results(design: &str, ops: f64, nr_samples: usize) -> Value {
    let samples = |middle: f64| (0..nr_samples).map(|n| middle * (1.0 + n as f64 / 1000.0)).collect::<Vec<_>>();
    let result = |metric: &str, unit: &str, middle: f64| {
        json!({
            "workload": "malloc1", "mode": "threads", "design": design, "semaphore": "rwsem-v8", "cpus": 2,
            "metric": metric, "unit": unit, "samples": samples(middle), "counters": {},
        })
    };
    json!({
        "schema": "faultless/1", "command": "bench", "commit": "d55f34411b1b", "seed": 1,
        "machine": { "name": "native", "simulated": false, "cpus": 2, "model": "M", "kernel": "6.18" },
        "results": [result("ops_per_s", "ops/s", ops), result("op_p50_ns", "ns", 1e9 / ops)],
        "checks": {},
    })
}

fn put(place: &Place, name: &str, value: &Value) {
    fs::write(place.path(name), value.to_string()).expect("writable");
}

fn run(place: &Place, arguments: &[&str]) -> Output {
    let mut command = faultless();
    command.current_dir(&place.folder).env("FAULTLESS_RESULTS", place.path("saved"));
    command.args(arguments).output().expect("the command runs")
}

#[test]
fn the_table_is_the_robot_s_and_regressions_end_with_3() {
    let place = Place::new("compare");
    put(&place, "base.json", &results("spf-v11", 20_184.0, 5));
    put(&place, "head.json", &results("spf-v11", 16_646.0, 5));
    let shown = run(&place, &["compare", "base.json", "head.json"]);
    assert_eq!(shown.status.code(), Some(0), "{}", err(&shown));
    let text = out(&shown);
    let line = text.lines().find(|line| line.ends_with("malloc1.per_thread_ops")).expect("the metric's name is last");
    assert_eq!(line, "     10112 ±  0%      -17.5%        8340 ±  0%  malloc1.per_thread_ops", "{text}");
    assert!(["%stddev", "%change", "base.json", "head.json"].iter().all(|word| text.contains(word)), "{text}");
    for (limit, code) in [("5", 3), ("17%", 3), ("30", 0)] {
        let judged = run(&place, &["compare", "base.json", "head.json", "--fail-on-regression", limit]);
        assert_eq!(judged.status.code(), Some(code), "{limit}: {}", err(&judged));
    }
    let better = run(&place, &["compare", "head.json", "base.json", "--fail-on-regression", "5"]);
    assert_eq!(better.status.code(), Some(0), "faster is no regression: {}", err(&better));
    let other = run(&place, &["compare", "base.json", "head.json", "--style", "benchstat"]);
    assert!(out(&other).contains("vs base") && out(&other).contains("(p=0.008 n=5)"), "{}", out(&other));
}

#[test]
fn nothing_is_claimed_with_four_samples() {
    let place = Place::new("compare-few");
    put(&place, "base.json", &results("spf-v11", 20_000.0, 4));
    put(&place, "head.json", &results("spf-v11", 10_000.0, 4));
    let shown = run(&place, &["compare", "base.json", "head.json", "--fail-on-regression", "1"]);
    assert_eq!(shown.status.code(), Some(0));
    assert!(out(&shown).contains(" ~ ") && !out(&shown).contains("-50"), "{}", out(&shown));
    assert!(err(&shown).contains("fewer than 5 samples"), "{}", err(&shown));
}

#[test]
fn files_that_cant_be_compared_are_named() {
    let place = Place::new("compare-bad");
    put(&place, "base.json", &results("spf-v11", 1.0, 5));
    let mut other = results("spf-v11", 1.0, 5);
    other["schema"] = "faultless/2".into();
    put(&place, "schema.json", &other);
    let mut alien = results("spf-v11", 1.0, 5);
    alien["results"].as_array_mut().expect("a list").iter_mut().for_each(|result| result["workload"] = "brk1".into());
    put(&place, "alien.json", &alien);
    put(&place, "no.json", &json!({ "results": [] }));
    fs::write(place.path("text.json"), "hello").expect("writable");
    let cases = [
        ("schema.json", "faultless/2"),
        ("alien.json", "nothing in common"),
        ("no.json", "names no \"schema\""),
        ("text.json", "not JSON"),
        ("./missing.json", "missing.json"),
        ("missing", "no saved result 'missing'"),
    ];
    for (file, word) in cases {
        let refused = run(&place, &["compare", "base.json", file]);
        assert_eq!(refused.status.code(), Some(1), "{file}");
        assert!(err(&refused).contains(word) && out(&refused).is_empty(), "{file}: {}", err(&refused));
    }
    let alone = run(&place, &["compare", "base.json", "alien.json"]);
    assert!(err(&alone).contains("malloc1/threads") && err(&alone).contains("brk1/threads"), "{}", err(&alone));
    for wrong in [&["compare", "base.json"][..], &["compare", "a", "b", "--fail-on-regression", "-1"]] {
        assert_eq!(run(&place, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn what_is_saved_is_listed_printed_and_compared_by_name() {
    let place = Place::new("saved");
    let example = format!("{}/../../examples/python.trace", env!("CARGO_MANIFEST_DIR"));
    for (name, design) in [("before", "mmap-sem"), ("after", "spf-v11"), ("after", "spf-v11")] {
        let replayed = run(&place, &["replay", &example, "--design", design, "--save", name]);
        assert_eq!(replayed.status.code(), Some(0), "{}", err(&replayed));
        assert!(err(&replayed).contains(&format!("saved as {name}")), "{}", err(&replayed));
    }
    let list = run(&place, &["report", "--format", "csv"]);
    let names: Vec<String> =
        out(&list).lines().skip(1).filter_map(|line| line.split(',').next().map(str::to_owned)).collect();
    assert_eq!(names, ["after", "after~", "before"], "{}", out(&list));
    let compared = run(&place, &["compare", "before", "after", "--format", "json"]);
    let document: Value = serde_json::from_str(&out(&compared)).expect("JSON");
    assert_eq!(document["about"]["design"], json!(["mmap-sem", "spf-v11"]), "{}", err(&compared));
    let first = &document["comparisons"][0];
    assert_eq!((&first["metric"], first["base_figures"]["n"].as_u64()), (&"elapsed_ns".into(), Some(5)));
    for format in ["human", "json", "csv", "markdown"] {
        let printed = run(&place, &["report", "before", "--format", format]);
        assert!(printed.status.success() && out(&printed).contains("elapsed_ns"), "{format}: {}", err(&printed));
    }
    let mistyped = run(&place, &["compare", "befor", "after"]);
    assert!(err(&mistyped).contains("did you mean before?"), "{}", err(&mistyped));
    let bad = run(&place, &["replay", &example, "--save", "../x"]);
    assert_eq!(bad.status.code(), Some(2), "{}", err(&bad));
}

#[test]
fn a_folder_that_cant_be_written_is_known_before_anything_runs() {
    let place = Place::new("unsaved");
    fs::write(place.path("saved"), "a file, not a folder").expect("writable");
    let example = format!("{}/../../examples/python.trace", env!("CARGO_MANIFEST_DIR"));
    let refused = run(&place, &["replay", &example, "--save", "x"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(out(&refused).is_empty() && err(&refused).contains("saved"), "{}", err(&refused));
}

#[test]
fn a_program_with_two_threads_a_cpu_is_compared_across_cpus_and_unlike_runs_are_named() {
    let place = Place::new("unlike");
    let of = |cpus: usize, watched: bool, duration_ns: u64| {
        let mut set = results("spf-v11", 20_000.0, 5);
        set["watched"] = watched.into();
        set["duration_ns"] = duration_ns.into();
        for result in set["results"].as_array_mut().expect("a list") {
            result["cpus"] = cpus.into();
            result["workers"] = (2 * cpus).into();
        }
        let mut faults = set["results"][0].clone();
        faults["metric"] = "faults".into();
        faults["unit"] = "count".into();
        set["results"].as_array_mut().expect("a list").push(faults);
        set
    };
    put(&place, "one.json", &of(1, false, 1000));
    put(&place, "two.json", &of(2, true, 4000));
    let output = run(&place, &["compare", "one.json", "two.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("malloc1.per_thread_ops"), "{}", out(&output));
    assert!(err(&output).contains("two.json was watched"), "{}", err(&output));
    assert!(err(&output).contains("ran for different times"), "{}", err(&output));
}
