//! What an interrupt leaves of a replay, of a published table and of a check: what was measured, marked as a part.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{err, interruptible, out};

/// Runs a command, and interrupts it once it has worked a while under its own handler.
fn interrupted(args: &[&str]) -> Output {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gcc.trace");
    let args = args.iter().map(|&arg| if arg == "TRACE" { example.to_str().unwrap() } else { arg });
    let mut command = interruptible();
    let child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_handler(&child);
    wait_for_work(&child);
    // SAFETY: the call takes integers only; the process is this test's own and was not waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    output
}

/// Waits until the process catches SIGINT.
fn wait_for_handler(child: &Child) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let catches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
        u64::from_str_radix(caught, 16).unwrap_or(0) >> (libc::SIGINT - 1) & 1 == 1
    };
    while !catches() {
        assert!(Instant::now() < deadline, "it never catches SIGINT");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the process has had a CPU for a second; on a busy machine that takes longer.
fn wait_for_work(child: &Child) {
    let deadline = Instant::now() + Duration::from_secs(120);
    // Behind the name, which ends with the last parenthesis, user and system time are the 12th and 13th field, in
    // hundredths.
    let worked = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>()
    };
    while worked() < 100 {
        assert!(Instant::now() < deadline, "it has had a CPU for {} hundredths of a second", worked());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&out(output)).unwrap_or_else(|error| panic!("{error}: {}", out(output)))
}

const REPLAY: [&str; 6] = ["replay", "TRACE", "-r", "100000", "--design", "mmap-sem,vma-lock"];

#[test]
fn a_replay_keeps_its_whole_passes_in_every_format() {
    let with = |format: &'static str| interrupted(&[&REPLAY[..], &["--format", format]].concat());
    for format in ["human", "markdown"] {
        let output = with(format);
        let shown = out(&output);
        assert!(shown.contains("Verdict:"), "{shown}");
        assert!(shown.contains("Partial: interrupted after ") && shown.contains(" of 200000 passes"), "{shown}");
        let is_counted = if format == "human" {
            shown.contains(" (of 100000 asked) of each design")
        } else {
            !shown.contains("n 100000")
        };
        assert!(is_counted, "the head names the runs that were made: {shown}");
    }
    let set = json(&with("json"));
    assert_eq!(set["interrupted"], true, "{set}");
    let samples = set["results"][0]["samples"].as_array().unwrap().len();
    assert!((1..100_000).contains(&samples) && set["checks"]["mismatches"] == 0, "{set}");
    let csv = out(&with("csv"));
    assert!(csv.lines().count() > 10 && csv.lines().skip(1).all(|line| line.ends_with(",yes")), "{csv}");
}

#[test]
fn a_simulated_bench_begins_no_run_behind_an_interrupt() {
    let line = "bench malloc1 --design mmap-sem --machine skylake-192 --cpus 8 -r 4000 -d 100us --jobs 2 --format json";
    let set = json(&interrupted(&line.split(' ').collect::<Vec<_>>()));
    assert_eq!(set["interrupted"], true, "{set}");
    let samples = set["results"][0]["samples"].as_array().unwrap().len();
    assert!((1..4000).contains(&samples), "{samples} runs were measured");
}

#[test]
fn a_simulated_replay_keeps_its_whole_passes() {
    let args = ["--machine", "skylake-192", "--cpus", "2", "--jobs", "2", "--format", "json"];
    let set = json(&interrupted(&[&REPLAY[..], &args].concat()));
    assert_eq!(set["interrupted"], true, "{set}");
    let counts: Vec<usize> = ["mmap-sem", "vma-lock"].map(|design| samples_of(&set, design)).to_vec();
    assert!(counts[0].abs_diff(counts[1]) <= 1, "seeds stand beside each other: {counts:?}");
}

fn samples_of(set: &Value, design: &str) -> usize {
    let results = set["results"].as_array().unwrap().iter();
    let mut own = results.filter(|result| result["design"] == design && result["metric"] == "elapsed_ns");
    own.next().map_or(0, |result| result["samples"].as_array().unwrap().len())
}

#[test]
fn published_tables_are_partial() {
    let set = json(&interrupted(&["reproduce", "spf-2018-ebizzy", "-r", "1000", "--format", "json"]));
    assert_eq!(set["interrupted"], true, "{set}");
    let csv = interrupted(&["reproduce", "spf-2018-ebizzy", "-r", "1000", "--format", "csv"]);
    assert!(out(&csv).starts_with("table,workload,cpus,") && out(&csv).lines().next().unwrap().ends_with(",partial"));
    assert!(out(&csv).lines().skip(1).all(|line| line.ends_with(",yes")), "{}", out(&csv));
}

#[test]
fn checks_print_what_they_explored() {
    let set = json(&interrupted(&["check", "schedules", "--runs", "1000000000", "--format", "json"]));
    let runs = set["checks"]["schedules"]["runs"].as_u64().unwrap();
    assert!(set["interrupted"] == true && (1..1_000_000_000).contains(&runs), "{set}");
    let human = out(&interrupted(&["check", "schedules", "--runs", "1000000000"]));
    assert!(human.contains("Partial: interrupted after "), "{human}");
    let oracle = ["check", "oracle", "--sequences", "1000000000", "--design", "mmap-sem", "--format", "json"];
    let set = json(&interrupted(&oracle));
    let sequences = set["checks"]["sequences"].as_u64().unwrap();
    assert!(set["interrupted"] == true && (1..1_000_000_000).contains(&sequences), "{set}");
    assert_eq!(set["checks"]["differences"], 0, "{set}");
}

#[test]
fn a_published_table_as_csv_has_a_row_for_each_line() {
    let run = |format: &str| {
        let mut command = interruptible();
        command.args(["reproduce", "spf-2018-ebizzy", "-r", "1", "--format", format]).output().unwrap()
    };
    let csv = run("csv");
    assert!(csv.status.success(), "{}", err(&csv));
    let set = json(&run("json"));
    let (name, lines) = set["checks"].as_object().unwrap().iter().next().expect("one table");
    let text = out(&csv);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), lines.as_array().unwrap().len() + 1, "{text}");
    assert!(rows.len() > 1 && rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
    let ours = rows[0].iter().position(|&heading| heading == "ours_percent").unwrap();
    for (row, line) in rows[1..].iter().zip(lines.as_array().unwrap()) {
        assert_eq!((row[0], *row.last().unwrap()), (name.as_str(), "no"));
        let (in_csv, in_json) = (row[ours].parse::<f64>().unwrap(), line["ours_percent"].as_f64().unwrap());
        // Reading JSON may round the last digit.
        assert!((in_csv - in_json).abs() <= 1e-12 * in_json.abs(), "{in_csv} {in_json}: {text}");
    }
}
