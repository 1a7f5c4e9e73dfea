use super::*;
use crate::{MachineInfo, Measured, Mode};

fn measured(workload: &str, design: &str, metric: &str, unit: &str, samples: &[f64]) -> Measured {
    Measured {
        workload: workload.into(),
        mode: Mode::Threads,
        design: design.into(),
        semaphore: Some("rwsem-v8".into()),
        cpus: 2,
        workers: None,
        metric: metric.into(),
        unit: unit.into(),
        samples: samples.into(),
        counters: Default::default(),
        more: Default::default(),
    }
}

fn source(label: &str, results: Vec<Measured>) -> Source {
    let mut set = ResultSet::new("bench", 1, MachineInfo { name: "native".into(), cpus: 2, ..Default::default() });
    set.commit = "d55f34411b1b".into();
    set.results = results;
    Source { label: label.into(), set }
}

fn around(middle: f64) -> [f64; 5] {
    [-0.02, -0.01, 0.0, 0.01, 0.02].map(|share| middle * (1.0 + share))
}

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("memory");
    String::from_utf8(out).expect("text")
}

/// The table of seed 1: two workloads that lose, one that gains, one that stays.
fn published() -> Comparison {
    let results = |values: [f64; 4]| {
        let names = ["page_fault3", "brk1", "malloc1", "read2"];
        names
            .iter()
            .zip(values)
            .map(|(name, value)| measured(name, "spf-v11", "ops_per_s", "ops/s", &around(value * 2.0)))
            .collect::<Vec<_>>()
    };
    let base = source("base.json", results([10092.0, 957.67, 66.33, 58934.0]));
    let head = source("head.json", results([8323.0, 885.0, 383.67, 58940.0]));
    compare(vec![base, head]).expect("comparable")
}

#[test]
fn the_robots_table_has_its_layout() {
    let shown = text(|out| lkp::write(&published(), out));
    let wanted = "\
=========================================================================================
testcase/mode/design/semaphore/cpus:
  page_fault3/threads/spf-v11/rwsem-v8/2

       base.json                     head.json
---------------- -----------------------------
         %stddev     %change           %stddev
             \\          |                  \\
     10092 ±  2%      -17.5%        8323 ±  2%  page_fault3.per_thread_ops
";
    assert!(shown.contains(wanted), "{shown}");
    let summary = "\
1. Regressions:
testcase                                  base  change    head  metric
page_fault3/threads/spf-v11/rwsem-v8/2   10092  -17.5%    8323  page_fault3.per_thread_ops
brk1/threads/spf-v11/rwsem-v8/2         957.67   -7.6%  885.00  brk1.per_thread_ops

2. Improvements:
testcase                             base   change    head  metric
malloc1/threads/spf-v11/rwsem-v8/2  66.33  +478.4%  383.67  malloc1.per_thread_ops
";
    assert!(shown.contains(summary), "{shown}");
    let stays = shown.lines().find(|line| line.ends_with("read2.per_thread_ops")).expect("a line");
    assert_eq!(stays, "     58934 ±  2%           ~       58940 ±  2%  read2.per_thread_ops");
}

#[test]
fn a_change_is_claimed_only_where_there_is_one() {
    let of = |base: &[f64], head: &[f64]| {
        let set = |samples| vec![measured("brk1", "spf-v11", "elapsed_ns", "ns", samples)];
        let comparison = compare(vec![source("a", set(base)), source("b", set(head))]).expect("comparable");
        let change = comparison.groups[0].rows[0].heads[0].clone().expect("both have it");
        (change.finding, comparison.regressions(0.0).len())
    };
    assert_eq!(of(&around(100.0), &around(200.0)), (Significance::Differs, 1));
    assert_eq!(of(&around(200.0), &around(100.0)), (Significance::Differs, 0), "less time is better");
    assert_eq!(of(&around(100.0)[..4], &around(200.0)), (Significance::TooFew, 0));
    assert_eq!(of(&around(100.0), &around(200.0)[..4]), (Significance::TooFew, 0));
    assert_eq!(of(&[1.0, 5.0, 9.0, 2.0, 8.0], &[3.0, 7.0, 4.0, 6.0, 5.5]), (Significance::Chance, 0));
    assert_eq!(of(&[0.0; 5], &[0.0; 5]), (Significance::Chance, 0));
    assert_eq!(of(&[0.0; 5], &around(1.0)), (Significance::Differs, 1), "from nothing to something");
}

#[test]
fn nothing_is_claimed_of_runs_that_had_not_settled() {
    let of = |converged: [bool; 2]| {
        let mut head = measured("brk1", "spf-v11", "ops_per_s", "ops/s", &around(100.0));
        head.more.insert("converged".into(), converged.to_vec().into());
        let base = vec![measured("brk1", "spf-v11", "ops_per_s", "ops/s", &around(200.0))];
        let comparison = compare(vec![source("a", base), source("b", vec![head])]).expect("comparable");
        let change = comparison.groups[0].rows[0].heads[0].clone().expect("both have it");
        (change.finding, comparison.regressions(0.0).len(), comparison.nr_not_converged())
    };
    assert_eq!(of([true, true]), (Significance::Differs, 1, 0));
    assert_eq!(of([true, false]), (Significance::NotConverged, 0, 1));
}

#[test]
fn regressions_follow_the_metrics_direction_and_the_limit() {
    let comparison = published();
    let worse =
        |limit: f64| comparison.regressions(limit).iter().map(|one| one.key.workload.clone()).collect::<Vec<_>>();
    assert_eq!(worse(0.0), ["page_fault3", "brk1"]);
    assert_eq!(worse(0.10), ["page_fault3"]);
    assert_eq!(worse(0.18), Vec::<String>::new());
    let counts = |value: f64| vec![measured("brk1", "spf-v11", "spf", "count", &around(value))];
    let neutral = compare(vec![source("a", counts(10.0)), source("b", counts(99.0))]).expect("comparable");
    assert!(neutral.regressions(0.0).is_empty(), "a count is neither good nor bad");
}

#[test]
fn throughput_is_that_of_each_worker() {
    let mut wide = measured("ebizzy", "spf-v11", "ops_per_s", "ops/s", &around(160.0));
    wide.workers = Some(16);
    let mut apart = measured("ebizzy", "spf-v11", "ops_per_s", "ops/s", &around(40.0));
    apart.mode = Mode::Processes;
    let set = vec![wide, apart];
    let comparison = compare(vec![source("a", set.clone()), source("b", set)]).expect("comparable");
    let found = comparison.groups.iter().map(|group| (&*group.rows[0].metric, group.rows[0].base.summary.mean));
    let found: Vec<_> = found.collect();
    assert_eq!(found, [("per_thread_ops", 10.0), ("per_process_ops", 20.0)]);
}

#[test]
fn designs_of_one_file_each_are_compared_with_each_other() {
    let one = |design: &str, value: f64| vec![measured("malloc1", design, "ops_per_s", "ops/s", &around(value))];
    let sets = vec![source("a", one("mmap-sem", 10.0)), source("b", one("spf-v11", 20.0))];
    let comparison = compare(sets).expect("comparable");
    assert_eq!(comparison.about, [(Dimension::Design, vec!["mmap-sem".to_owned(), "spf-v11".to_owned()])]);
    assert_eq!(comparison.groups[0].key.to_string(), "malloc1/threads/rwsem-v8/2");
    let both = [one("mmap-sem", 10.0), one("spf-v11", 20.0)].concat();
    let comparison = compare(vec![source("a", both), source("b", one("spf-v11", 20.0))]).expect("comparable");
    assert!(comparison.about.is_empty());
    assert_eq!(comparison.alone, [vec!["malloc1/threads/mmap-sem/rwsem-v8/2 per_thread_ops".to_owned()], vec![]]);
}

#[test]
fn sets_without_anything_in_common_are_named() {
    let one = |workload: &str| vec![measured(workload, "spf-v11", "ops_per_s", "ops/s", &around(1.0))];
    let sets = vec![source("a", one("brk1")), source("b", one("brk1")), source("c", one("read1"))];
    let error = compare(sets).expect_err("c shares nothing").to_string();
    assert!(error.starts_with("a and c have nothing in common") && error.contains("read1/threads"), "{error}");
    let error = compare(vec![source("a", one("brk1")), source("b", vec![])]).expect_err("empty").to_string();
    assert_eq!(error, "b holds no results");
    let mut other = one("brk1");
    other[0].metric = "elapsed_ns".into();
    assert!(compare(vec![source("a", one("brk1")), source("b", other)]).is_err(), "another metric is not in common");
}

#[test]
fn three_sets_stand_side_by_side() {
    let one = |value: f64| vec![measured("brk1", "spf-v11", "ops_per_s", "ops/s", &around(value))];
    let sets = vec![source("a", one(200.0)), source("b", one(100.0)), source("c", one(300.0))];
    let comparison = compare(sets).expect("comparable");
    let shown = text(|out| lkp::write(&comparison, out));
    let line = shown.lines().find(|line| line.ends_with("  brk1.per_thread_ops")).expect("a line");
    assert_eq!(
        line,
        "    100.00 ±  2%      -50.0%       50.00 ±  2%      +50.0%      150.00 ±  2%  brk1.per_thread_ops"
    );
    assert_eq!(comparison.regressions(0.4).iter().map(|one| one.head).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn the_other_style_says_median_interval_and_p() {
    let shown = text(|out| benchstat::write(&published(), out));
    let wanted = [
        "│ per_thread_ops │",
        "per_thread_ops  vs base",
        "10.1 k/s ± ∞",
        "-17.53% (p=0.008 n=5)",
        "~ (p=0.690 n=5)",
        "geomean",
    ];
    wanted.iter().for_each(|part| assert!(shown.contains(part), "{part} is missing:\n{shown}"));
}

#[test]
fn machine_formats_carry_samples_and_findings() {
    let document: serde_json::Value =
        serde_json::from_str(&text(|out| json::write(&published(), out))).expect("one document");
    let first = &document["comparisons"][0];
    assert_eq!((&first["metric"], &first["finding"]), (&"per_thread_ops".into(), &"differs".into()));
    assert_eq!(first["base_figures"]["samples"].as_array().map(Vec::len), Some(5));
    let rows = text(|out| csv::write(&published(), out));
    let columns: Vec<usize> = rows.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, [18; 5]);
    assert_eq!(text(|out| markdown::write(&published(), out)).matches("\n| ").count(), 6);
}
