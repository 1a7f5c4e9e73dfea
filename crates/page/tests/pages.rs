//! What pages promise without a browser: the data comes back, names stay text, colours can be told apart, sizes are
//! bounded.

#[path = "browser/sets.rs"]
mod sets;

use faultless_results::compare::Source;
use faultless_results::{MachineInfo, Measured, Mode, ResultSet};

fn reopened(name: &str, page: &str) -> Result<Vec<Source>, String> {
    let path = std::env::temp_dir().join(format!("faultless-page-{}-{name}.html", std::process::id()));
    std::fs::write(&path, page).expect("written");
    let opened = faultless_page::open(&path).map_err(|error| error.to_string());
    std::fs::remove_file(&path).expect("removable");
    opened
}

fn set(workload: &str) -> ResultSet {
    let mut set = ResultSet::new("bench", 7, MachineInfo { name: "native".into(), cpus: 2, ..Default::default() });
    set.results.push(Measured {
        workload: workload.into(),
        mode: Mode::Threads,
        design: "mmap-sem".into(),
        semaphore: None,
        cpus: 2,
        workers: None,
        metric: "ops_per_s".into(),
        unit: "ops/s".into(),
        samples: vec![0.1, 1e18, 3.0],
        counters: [("faults".to_owned(), u64::MAX)].into(),
        more: Default::default(),
    });
    set
}

#[test]
fn what_a_page_was_made_of_is_read_back_as_it_was() {
    let name = "</script><script>alert(1)</script><!--";
    let sources = [Source { label: "one".into(), set: set(name) }, Source { label: "two".into(), set: set("b") }];
    let page = faultless_page::of_sets(&sources);
    let opened = reopened("back", &page).expect("readable");
    assert_eq!(opened.len(), 2);
    for (one, other) in sources.iter().zip(&opened) {
        assert_eq!((&one.label, &one.set), (&other.label, &other.set));
    }
    assert!(!page.contains("<script>alert"), "a workload's name is text");
}

#[test]
fn a_page_names_files_without_the_folders_of_who_wrote_it() {
    let at = |label: &str| Source { label: label.into(), set: set("a") };
    let page = faultless_page::of_sets(&[at("/home/me/secret/base.json"), at("/home/me/secret/v1.2")]);
    assert!(!page.contains("secret") && page.contains("base") && page.contains("v1.2"), "a folder is on the page");
    let page = faultless_page::of_sets(&[at("old/x.json"), at("new/x.json")]);
    let labels: Vec<String> =
        reopened("labels", &page).expect("readable").into_iter().map(|source| source.label).collect();
    assert_eq!(labels, ["old/x", "new/x"], "of files of one name the folder tells them apart");
}

#[test]
fn a_page_shows_the_verdict_before_anything_else_and_says_why() {
    let pages = sets::pages();
    let page =
        |name: &str| pages.iter().find(|(known, _)| *known == name).map(|(_, page)| page.as_str()).expect("a page");
    let bench = page("bench");
    let place = |page: &str, part: &str| page.find(part).unwrap_or_else(|| panic!("no {part}"));
    let order = ["<h1>", "SIMULATED</span>", "Who is first", "Mann-Whitney", "Keep in mind", "<svg class=\"plot"];
    assert!(order.map(|part| place(bench, part)).is_sorted(), "{:?}", order.map(|part| place(bench, part)));
    assert!(bench.contains("<b>Why: </b>An operation takes a worker "), "no reason");
    assert!(!bench.contains("certain"), "an interval is no certainty");
    let compare = page("compare");
    assert!(place(compare, "SIMULATED</span>") < place(compare, "<table"), "the machine's kind comes first");
    assert!(compare.contains("<h1>head against base: faster in "), "no headline");
    assert!(
        compare.contains(" times as fast in ") && compare.contains(" (95 % interval "),
        "no factor with its interval"
    );
    assert!(compare.contains("the slowest 1 % of operations in "), "what got worse besides is told");
    let replay = page("replay");
    assert!(replay.contains("Contention is an upper bound"), "caveats of the command");
    assert!(replay.contains("Longest inside memory calls: a 3 waits for a 17"), "no takeaway");
}

#[test]
fn what_is_no_page_is_told() {
    assert!(reopened("other", "<!doctype html><p>Hello").expect_err("no data").contains("no \"schema\""));
    assert!(reopened("neither", "Hello").expect_err("no JSON").contains("not JSON"));
    let page = faultless_page::of_sets(&[Source { label: "a".into(), set: set("a") }]);
    let cut = page.split("\"sources\"").next().expect("a part");
    assert!(reopened("cut", cut).is_err());
}

#[test]
fn a_page_of_every_kind_stays_small() {
    for (name, page) in sets::pages() {
        assert!(page.len() < 3 << 20, "{name} has {} bytes", page.len());
        assert!(!page.contains("NaN") && !page.contains(">inf"), "{name} shows what is not a number");
    }
}

#[test]
fn the_page_of_the_largest_outline_has_less_than_three_megabytes() {
    let page = sets::largest();
    assert!(page.len() < 3 << 20, "{} bytes", page.len());
}

/// Returns the nanoseconds that this thread has been on a CPU; nothing where the host does not tell.
fn on_cpu_ns() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

#[test]
fn the_page_of_a_default_bench_is_written_within_a_second() {
    let set = sets::default_bench();
    let began = on_cpu_ns();
    let page = faultless_page::of_sets(&[set]);
    let path = std::env::temp_dir().join(format!("faultless-page-{}-default.html", std::process::id()));
    std::fs::write(&path, &page).expect("written");
    let took = on_cpu_ns().zip(began).map(|(ended, began)| ended - began);
    std::fs::remove_file(&path).expect("removable");
    println!("{} bytes, {took:?} ns", page.len());
    assert!(took.is_none_or(|ns| ns < 1_000_000_000), "{took:?} ns");
}

#[test]
fn an_empty_set_has_a_page() {
    for command in ["bench", "replay", "stat", "reproduce", "what nobody knows"] {
        let mut empty = set("a");
        empty.command = command.into();
        empty.results.clear();
        let page = faultless_page::of_sets(&[Source { label: String::new(), set: empty }]);
        assert!(page.contains("<h1>"), "{command}");
    }
}
