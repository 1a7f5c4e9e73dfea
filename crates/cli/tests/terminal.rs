//! What a person sees: tables that fit a terminal, histories, and summaries.
//!
//! # Guarantee
//! No line of a result is wider than the terminal it is printed on; without UTF-8 all of it is ASCII.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use support::{Place, err, faultless, out};

fn example(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
}

/// Runs the command on a terminal of so many columns (`script` makes one); nothing if there is no such program.
fn on_terminal(columns: usize, locale: &str, color: &str, arguments: &str) -> Option<String> {
    all_on_terminal(columns, locale, color, &format!("{arguments} 2>/dev/null"))
}

/// As [`on_terminal`], with what stands on stderr: progress and warnings.
fn all_on_terminal(columns: usize, locale: &str, color: &str, arguments: &str) -> Option<String> {
    let line = format!("stty rows 24 cols {columns}; {} --color {color} {arguments}", env!("CARGO_BIN_EXE_faultless"));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("LC_ALL", locale).env("TERM", "xterm").env("SHELL", "/bin/sh");
    match script.output() {
        Err(_) => {
            eprintln!("skipped: there is no `script` to make a terminal");
            None
        }
        Ok(done) => {
            assert!(done.status.success(), "{arguments}: {}", out(&done));
            Some(out(&done).replace('\r', ""))
        }
    }
}

fn check_width(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= columns, "{} in {columns}: {line}\n{text}", line.chars().count());
    }
}

#[test]
fn results_fit_terminals_of_80_100_and_120_columns() {
    let trace = example("python.trace");
    for columns in [80, 100, 120] {
        for command in [
            format!("replay {trace} -r 1"),
            "bench malloc1 page_fault1 --cpus 1,2 -d 2ms -r 1".to_owned(),
            "stat malloc1 --design mmap-sem -d 2ms --locks -r 2".to_owned(),
        ] {
            let Some(text) = on_terminal(columns, "C.UTF-8", "never", &command) else { return };
            check_width(&text, columns);
            assert!(!text.contains("± ?") && !text.contains("fewer than 5 runs"), "{text}");
        }
    }
}

#[test]
fn a_bench_ends_with_its_verdict_in_every_format() {
    let place = Place::new("verdict");
    let bench = ["bench", "page_fault1", "--design", "mmap-sem,faultless", "--machine", "skylake-192"];
    let of = |runs: &str, more: &[&str]| {
        run(&place, &[&bench[..], &["--cpus", "1,16", "-d", "200us", "-r", runs], more].concat())
    };
    let human = out(&of("5", &[]));
    let verdict = human.split("\nVerdict (").nth(1).unwrap_or_else(|| panic!("no verdict: {human}"));
    assert!(verdict.starts_with("a simulated machine: intervals are about seeds"), "{verdict}");
    assert!(verdict.contains("* faultless wins page_fault1 on 16 CPUs: "), "{verdict}");
    assert!(verdict.contains(" times as fast as mmap-sem (95 % interval "), "{verdict}");
    assert!(verdict.contains("5 seeds each).") && verdict.contains("  First on fewer CPUs: "), "{verdict}");
    assert!(verdict.contains("  Why: An operation takes a worker "), "{verdict}");
    let json: Value = serde_json::from_str(&out(&of("5", &["--format", "json", "--color", "always"]))).expect("JSON");
    let told = json["verdict"].as_str().expect("a verdict");
    assert!(told.contains("faultless wins page_fault1 on 16 CPUs") && !told.contains('\x1b'), "{told}");
    assert!(out(&of("5", &["--format", "markdown"])).contains("* faultless wins page_fault1 on 16 CPUs"));
    let few = out(&of("1", &[]));
    assert!(few.contains("Verdict: undecided: it takes 5 runs to tell a winner (-r 5)."), "{few}");
    assert!(few.contains(": faultless is ahead.") && !few.contains(" times as fast"), "no difference is told: {few}");
}

#[test]
fn a_replay_s_terminal_and_page_have_the_same_verdict() {
    let place = Place::new("one-verdict");
    let trace = example("python.trace");
    let told = run(&place, &["replay", &trace, "--design", "mmap-sem,vma-lock", "-r", "5", "--html", "a.html"]);
    let text = out(&told);
    let first = text.lines().find(|line| line.starts_with("* ")).unwrap_or_else(|| panic!("no verdict: {text}"));
    let page = std::fs::read_to_string(place.path("a.html")).expect("a page");
    let between = |from: &str, to: &str| page.split(from).nth(1).and_then(|rest| rest.split(to).next());
    let head = between("<h1>", "</h1>").expect("a headline");
    let facts = between("<ul class=\"facts\">", "</ul>").expect("how sure it is").to_lowercase();
    let shown = first.trim_start_matches("* ").to_lowercase();
    assert!(facts.contains(&shown), "{facts}\n{shown}");
    assert!(head.len() < 90, "a headline is short: {head}");
    assert!(
        text.contains("\n* the replay is faithful: 0 mismatches in ") && facts.contains("the replay is faithful"),
        "{text}"
    );
}

#[test]
fn without_utf8_everything_is_ascii() {
    let trace = example("python.trace");
    let Some(text) = on_terminal(100, "C", "never", "bench malloc1 --cpus 1 -d 2ms -r 2") else { return };
    assert!(text.is_ascii() && text.contains("+-"), "{text}");
    let Some(text) = on_terminal(100, "C", "never", &format!("replay {trace} -r 2")) else { return };
    assert!(text.is_ascii(), "{text}");
    let Some(all) = all_on_terminal(100, "C", "never", &format!("replay {trace} -r 2")) else { return };
    assert!(all.is_ascii() && all.contains("decoding ["), "progress is plain too: {all}");
    let Some(all) = all_on_terminal(100, "C.UTF-8", "never", &format!("replay {trace} -r 2")) else { return };
    assert!(!all.is_ascii(), "and has symbols where there are some: {all}");
}

#[test]
fn counters_that_are_0_everywhere_share_a_line_and_json_has_them() {
    let trace = example("python.trace");
    let replay =
        |format: &str| faultless().args(["replay", &trace, "-r", "1", "--format", format]).output().expect("runs");
    let text = out(&replay("human"));
    assert!(text.contains("0 under all designs: "), "{text}");
    let json: Value = serde_json::from_str(&out(&replay("json"))).expect("JSON");
    let has = |name: &str| json["results"].as_array().expect("results").iter().any(|one| one["metric"] == name);
    assert!(has("spf_vma_changed") && has("elapsed_ns"), "JSON keeps what is 0");
}

/// Writes a result of malloc1 on this machine, of one commit.
fn write_result(place: &Place, name: &str, commit: &str, rate: f64) {
    let samples: Vec<f64> = (0..6).map(|run| rate * (1.0 + 0.001 * f64::from(run))).collect();
    let result = json!({
        "schema": "faultless/1", "command": "bench", "commit": commit, "seed": 1,
        "machine": { "name": "native", "simulated": false, "cpus": 2 },
        "results": [{
            "workload": "malloc1", "mode": "threads", "design": "mmap-sem", "semaphore": "rwsem-v8", "cpus": 2,
            "metric": "ops_per_s", "unit": "ops/s", "samples": samples,
        }],
    });
    fs::write(place.path(name), result.to_string()).expect("written");
}

fn run(place: &Place, arguments: &[&str]) -> Output {
    let mut command = faultless();
    command.current_dir(&place.folder).env("FAULTLESS_RESULTS", place.path("saved"));
    command.args(arguments).output().expect("the command runs")
}

#[test]
fn a_trend_names_the_commit_from_which_on_it_changed() {
    let place = Place::new("trend");
    let names: Vec<String> = (0..12).map(|nr| format!("r{nr}.json")).collect();
    for (nr, name) in names.iter().enumerate() {
        let level = if nr < 7 { 1e6 } else { 8e5 };
        write_result(&place, name, &format!("commit{nr}"), level + (nr * 37 % 11) as f64 * 1e3);
    }
    let mut arguments = vec!["report", "--trend", "ops_per_s"];
    arguments.extend(names.iter().map(String::as_str));
    let text = out(&run(&place, &arguments));
    assert!(text.contains("worse: -19") || text.contains("worse: -20"), "{text}");
    assert!(text.contains("from r7.json on (commit7); Pettitt's test, p = 0.00"), "{text}");
    let json: Value =
        serde_json::from_str(&out(&run(&place, &[&arguments[..], &["--format", "json"]].concat()))).expect("JSON");
    assert_eq!(json["series"][0]["changes"][0]["at"], 7);
    let markdown = out(&run(&place, &[&arguments[..], &["--format", "markdown"]].concat()));
    assert!(markdown.contains("<details><summary>malloc1"), "{markdown}");
    let few = out(&run(&place, &arguments[..6]));
    assert!(few.contains("3 results: fewer than 8 can't show a change"), "{few}");
    let unknown = run(&place, &["report", "--trend", "ops_per_sec", "r0.json"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(err(&unknown).contains("did you mean ops_per_s?"), "{}", err(&unknown));
}

#[test]
fn a_summary_for_a_pull_request_says_first_what_got_worse() {
    let place = Place::new("summary");
    write_result(&place, "base.json", "a", 1e6);
    write_result(&place, "head.json", "b", 9e5);
    let done = run(&place, &["compare", "base.json", "head.json", "--summary", "s.md"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let text = fs::read_to_string(place.path("s.md")).expect("a summary");
    assert!(text.starts_with("### 1 figure worse, none better, of 1\n"), "{text}");
    assert!(text.contains("-10.0 %") && text.contains("<details><summary>All figures</summary>"), "{text}");
}
