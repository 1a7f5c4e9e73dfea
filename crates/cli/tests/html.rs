//! Pages, completions and manual pages, as a user makes them.
//!
//! # Guarantee
//! `--html` of each command that has it writes a page with the result inside, and `report` and `compare` read it back.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use support::{Place, err, faultless, out};

fn run(place: &Place, arguments: &[&str]) -> Output {
    let mut command = faultless();
    command.current_dir(&place.folder).env("FAULTLESS_RESULTS", place.path("saved"));
    command.args(arguments).output().expect("the command runs")
}

fn example(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
}

/// Runs a command that writes a page; returns the page.
fn page(place: &Place, arguments: &[&str], file: &str) -> String {
    let done = run(place, &[arguments, &["--html", file]].concat());
    assert_eq!(done.status.code(), Some(0), "{arguments:?}: {}", err(&done));
    assert!(err(&done).contains(&format!("a page with pictures is in {file}")), "{}", err(&done));
    fs::read_to_string(place.path(file)).expect("a page")
}

const BENCH: [&str; 10] = ["bench", "malloc1", "--design", "mmap-sem,vma-lock", "--cpus", "1", "-d", "5ms", "-r", "5"];

#[test]
fn a_bench_s_page_holds_its_result_and_is_read_back() {
    let place = Place::new("html-bench");
    let json = run(&place, &[&BENCH[..], &["--format", "json", "--out", "a.json", "--html", "a.html"]].concat());
    assert_eq!(json.status.code(), Some(0), "{}", err(&json));
    let text = fs::read_to_string(place.path("a.html")).expect("a page");
    assert!(text.starts_with("<!doctype html>") && text.contains("malloc1: throughput of each design"), "no plot");
    let again = run(&place, &["report", "a.html", "--format", "json"]);
    let [kept, read]: [Value; 2] = [fs::read_to_string(place.path("a.json")).expect("a result"), out(&again)]
        .map(|text| serde_json::from_str(&text).expect("JSON"));
    assert_eq!(kept, read, "what is in the page is what was measured");
    let compared = page(&place, &["compare", "a.html", "a.json"], "c.html");
    assert!(compared.contains("no difference shown in malloc1"), "the same result does not differ from itself");
    let both = page(&place, &["report", "a.json", "c.html"], "r.html");
    assert!(both.contains("<h1>3 results</h1>"), "a page of two results and a file are three");
    let two = run(&place, &["compare", "c.html", "a.json"]);
    assert!(err(&two).contains("c.html is a page of 2 results, and one is wanted"), "{}", err(&two));
}

#[test]
fn the_page_of_a_replay_shows_threads_and_memory_over_time() {
    let place = Place::new("html-replay");
    let trace = example("mapper.trace");
    let text = page(&place, &["replay", &trace, "--design", "mmap-sem,vma-lock", "-r", "2"], "a.html");
    for part in [
        "Which thread waits for whom",
        "What the program does with its memory",
        "the replay is faithful",
        "What was checked",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let stat = page(&place, &["stat", "--locks", &trace, "--design", "mmap-sem"], "b.html");
    assert!(stat.contains("What each lock costs under mmap-sem"));
}

#[test]
fn a_page_that_can_t_be_written_is_told_before_anything_is_measured() {
    let place = Place::new("html-nowhere");
    let done = run(&place, &[&BENCH[..], &["--html", "no/such/folder/a.html"]].concat());
    assert_eq!(done.status.code(), Some(1));
    assert!(err(&done).contains("cannot write no/such/folder/a.html") && out(&done).is_empty(), "{}", err(&done));
}

#[test]
fn shells_and_man_know_every_subcommand() {
    let place = Place::new("install");
    for shell in ["bash", "zsh", "fish"] {
        let text = out(&run(&place, &["completions", shell]));
        assert!(["bench", "replay", "completions", "html"].iter().all(|word| text.contains(word)), "{shell}");
    }
    assert!(out(&run(&place, &["man"])).contains(".TH faultless 1"));
    let done = run(&place, &["man", "--dir", "man"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    for name in ["faultless.1", "faultless-bench.1", "faultless-trace-dump.1"] {
        let text = fs::read_to_string(place.path("man").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(text.contains(&format!(".TH {}", name.trim_end_matches(".1"))), "{name}: {}", &text[..200]);
    }
}

#[test]
fn one_run_has_no_spread() {
    let place = Place::new("html-one");
    let text = out(&run(&place, &["bench", "malloc1", "--design", "mmap-sem", "--cpus", "1", "-d", "5ms", "-r", "1"]));
    assert!(text.contains("/s") && !text.contains("± ?"), "{text}");
}
