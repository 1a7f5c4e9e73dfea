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
    let one = " fetching one line that all 192 CPUs write: the address-space lock (its count of readers and writers), 1.80 \
               transfers an operation";
    assert!(bench.contains(one), "the line that is held is not named");
    assert!(bench.contains(" is at the memory bus: 97.0 % of what it lets through."), "the ceiling is not named");
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
    assert!(replay.contains("The program's own pauses are not replayed"), "caveats of the command");
    assert!(
        replay.contains("Longest for the address-space lock: a 3 waits for a 17, the last that held it"),
        "no takeaway"
    );
}

#[test]
fn a_replay_s_page_says_for_what_threads_wait_and_what_the_program_does_with_its_memory() {
    let replay = sets::page("replay");
    let says = |part: &str| assert!(replay.contains(part), "no {part}");
    says("an arrow (→) names the thread that ended the wait");
    says("the address-space lock, held last inside mprotect");
    says("1: munmap → 17");
    says(">anonymous, 48.8 MiB</text>");
    says(">file, 2.30 MiB</text>");
    says("Closer: the addresses of java 4711 that change most");
    says(" in all: mmap of anonymous memory 2,400 times (most often 96.0 KiB)");
    says("8,000 of the 9,000 mapped ranges begin where an earlier one began");
    says("% ready without a CPU (31 threads on a machine of 2 CPUs).");
    says(">1,000,000</td>");
    let parts = ["which design is fastest", "What was checked", "All above is about the replay.", "Which thread waits"];
    let places = parts.map(|part| replay.find(part).unwrap_or_else(|| panic!("no {part}")));
    assert!(places.is_sorted(), "the recorded program comes behind the whole replay: {places:?}");
}

#[test]
fn a_page_explains_its_words_before_they_are_needed_and_says_in_a_line_how_it_was_measured() {
    for (name, page) in sets::pages() {
        let words = page.split("Words of this page: ").nth(1).and_then(|rest| rest.split('<').next());
        let words = words.unwrap_or_else(|| panic!("{name} explains nothing"));
        assert!(words.contains("median"), "{name}: {words}");
        assert!(page.find("Words of this page") < page.find("<figure"), "{name}: words come before the pictures");
        assert!(page.contains("<summary>How: ") && page.contains("seed"), "{name} does not say how it was measured");
    }
}

/// Returns the classes of the legend's lines, by design.
fn styles(page: &str) -> std::collections::BTreeMap<String, String> {
    let items = page.split("<path class=\"l s").skip(1).filter(|part| part.contains("d=\"M1 7H33\""));
    let item = |part: &str| {
        let class = part.split('"').next()?.to_owned();
        let name = part.split("</svg>").nth(1)?.split('<').next()?.to_owned();
        Some((name, class))
    };
    items.filter_map(item).collect()
}

#[test]
fn a_design_has_the_same_colours_and_marks_on_every_page() {
    let (bench, mut few) = (styles(&sets::page("bench")), sets::default_bench());
    few.set.results.retain(|result| ["linux", "spf-v11"].contains(&&*result.design));
    few.set.results.reverse();
    let few = styles(&faultless_page::of_sets(&[few]));
    assert_eq!(few.len(), 2);
    for (name, style) in &few {
        assert_eq!(bench.get(name), Some(style), "{name}");
    }
}

#[test]
fn lines_of_a_published_table_that_differ_in_the_semaphore_alone_have_other_names() {
    let mut value = sets::reproduce();
    let lines = value["checks"]["spf-2018-ebizzy"].as_array_mut().expect("lines");
    let line = lines[0].clone();
    lines.clear();
    for semaphore in ["rwsem-steal", "rwsem-v8"] {
        let mut line = line.clone();
        (line["base"], line["head"], line["cpus"]) = ("mmap-sem".into(), "mmap-sem".into(), 1.into());
        (line["base_semaphore"], line["head_semaphore"]) = (semaphore.into(), semaphore.into());
        (line["workload"], line["head_workload"]) = ("mmap_touch".into(), "mmap_touch --mutex".into());
        lines.push(line);
    }
    let page = faultless_page::of_sets(&[sets::source("a", value)]);
    for semaphore in ["rwsem-steal", "rwsem-v8"] {
        let name = format!(">mmap_touch to mmap_touch --mutex on 1 CPU, mmap-sem over {semaphore}: rate</td>");
        assert!(page.contains(&name), "no {name}");
    }
}

#[test]
fn a_bench_s_page_says_which_rates_had_not_converged_and_what_mean_and_median_are() {
    let bench = sets::page("bench");
    let says = |part: &str| assert!(bench.contains(part), "no {part}");
    says(
        "Rates had not converged when their time was over, so judge nothing by them: mmap-sem of page_fault1 on 1 CPU.",
    );
    says("undecided: mmap-sem not converged");
    says("workers over throughput. It counts every wait, so a few long ones may lift it far above the median");
    says(">time of an operation, mean");
    says(">of a timed step, median");
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
