//! Damaged result files: refused, or read so that every format and every comparison of them can be written.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::damage;
use fastrand::Rng;
use faultless_results::compare::{
    Source, benchstat, compare, csv as compared_csv, json as compared_json, lkp, markdown as compared_markdown,
};
use faultless_results::{MachineInfo, Measured, Mode, ResultSet, csv, json, markdown, parse};

pub(super) fn start() -> impl FnMut(&mut Rng) {
    let good = good();
    let text = written(&good);
    move |random: &mut Rng| try_text(&good, &damage::text(random, &text))
}

/// A set with what sets have.
fn good() -> ResultSet {
    let mut set = ResultSet::new("bench", 1, MachineInfo { name: "native".into(), cpus: 2, ..MachineInfo::default() });
    for (design, metric, unit) in
        [("mmap-sem", "ops_per_s", "ops/s"), ("vma-lock", "ops_per_s", "ops/s"), ("vma-lock", "latency_ns", "ns")]
    {
        set.results.push(Measured {
            workload: "page_fault1".into(),
            mode: Mode::Threads,
            design: design.into(),
            semaphore: Some("rwsem-v8".into()),
            cpus: 2,
            workers: Some(2),
            metric: metric.into(),
            unit: unit.into(),
            samples: vec![1.5e6, 2e6, 1.75e6, 1.6e6, 1.9e6],
            counters: BTreeMap::from([("faults".to_owned(), 12)]),
            more: serde_json::Map::new(),
        });
    }
    set
}

fn written(set: &ResultSet) -> String {
    let mut text = Vec::new();
    json::write(set, &mut text).unwrap_or_else(|error| panic!("{error}"));
    String::from_utf8_lossy(&text).into_owned()
}

pub(super) fn try_alone(text: &str) {
    try_text(&good(), text);
}

fn try_text(good: &ResultSet, text: &str) {
    let Ok(set) = parse(Path::new("damaged.json"), text.as_bytes()) else { return };
    let again = parse(Path::new("again.json"), written(&set).as_bytes());
    let again = again.unwrap_or_else(|error| panic!("what was written is refused: {error}"));
    assert!(again == set, "what was written and read again differs");
    let done = csv::write(&set, &mut io::sink()).and_then(|()| markdown::write(&set, &mut io::sink()));
    done.unwrap_or_else(|error| panic!("{error}"));
    let source = |label: &str, set: &ResultSet| Source { label: label.into(), set: set.clone() };
    for pair in [[source("good", good), source("bad", &set)], [source("bad", &set), source("good", good)]] {
        let Ok(comparison) = compare(pair.into()) else { continue };
        let done = lkp::write(&comparison, &mut io::sink())
            .and_then(|()| benchstat::write(&comparison, &mut io::sink()))
            .and_then(|()| compared_json::write(&comparison, &mut io::sink()))
            .and_then(|()| compared_csv::write(&comparison, &mut io::sink()))
            .and_then(|()| compared_markdown::write(&comparison, &mut io::sink()));
        done.unwrap_or_else(|error| panic!("{error}"));
    }
}
