//! Result sets of every kind, as the commands write them.

use faultless_page::{of_comparison, of_sets};
use faultless_results::ResultSet;
use faultless_results::compare::{Source, compare};
use serde_json::{Value, json};

const DESIGNS: [&str; 6] = ["mmap-sem", "spf-srcu", "spf-v9", "spf-v11", "faultless", "linux"];

pub fn source(label: &str, value: Value) -> Source {
    let set: ResultSet = serde_json::from_value(value).expect("a result set");
    Source { label: label.into(), set }
}

fn machine(is_simulated: bool) -> Value {
    match is_simulated {
        true => json!({ "name": "skylake-192", "simulated": true, "cpus": 192, "model": "4 x 24 cores x 2 threads",
                        "parameters": { "l1_ns": { "value": 1.2, "source": "guessed" } } }),
        false => {
            json!({ "name": "native", "simulated": false, "cpus": 2, "model": "A Processor With A Long Name @ 2.10GHz",
                         "kernel": "6.18.0-a-very-long-release-name" })
        }
    }
}

fn set(command: &str, is_simulated: bool, results: Vec<Value>) -> Value {
    json!({ "schema": "faultless/1", "command": command, "commit": "0123456789ab", "seed": 1,
            "machine": machine(is_simulated), "results": results, "checks": {} })
}

/// Five figures around a middle, each another.
fn around(middle: f64) -> Vec<f64> {
    [0.97, 1.01, 1.0, 1.02, 0.99].map(|share| share * middle).into()
}

fn figure(workload: &str, design: &str, cpus: usize, metric: (&str, &str), samples: Vec<f64>) -> Value {
    json!({ "workload": workload, "mode": "threads", "design": design, "cpus": cpus, "metric": metric.0, "unit": metric.1,
            "semaphore": if design == "linux" { Value::Null } else { json!("rwsem-v8") }, "samples": samples, "counters": {} })
}

/// A figure with what was counted meanwhile.
fn counted(mut figure: Value, place: usize) -> Value {
    figure["ops"] = json!([1000, 1000, 1000, 1000, 1000]);
    figure["counters"] = json!({ "faults": 5000, "spf": 900 * place, "tlb_shootdown": 5000 / (place + 1) });
    figure
}

/// A design's figures of one workload.
fn arm(workload: &str, place: usize, design: &str, cpus: usize) -> Vec<Value> {
    let rate = 1e6 * cpus as f64 / (1.0 + cpus as f64 / 4.0 / (place + 1) as f64);
    let wait = 0.9 * (1.0 - 1.0 / cpus as f64) / (place + 1) as f64;
    let ns = 300.0 * (place + 1) as f64;
    vec![
        counted(figure(workload, design, cpus, ("ops_per_s", "ops/s"), around(rate)), place),
        figure(workload, design, cpus, ("op_p50_ns", "ns"), around(ns)),
        figure(workload, design, cpus, ("op_p99_ns", "ns"), around(ns * 20.0)),
        figure(workload, design, cpus, ("op_p999_ns", "ns"), around(ns * 900.0)),
        figure(workload, design, cpus, ("lock_wait_share", "share"), around(wait)),
    ]
}

fn bench(is_simulated: bool, cpus: &[usize]) -> Value {
    let mut results = Vec::new();
    for workload in ["page_fault1", "ebizzy -mTt 16 with a rather long list of flags"] {
        for (place, design) in DESIGNS.into_iter().enumerate() {
            cpus.iter().for_each(|&cpus| results.extend(arm(workload, place, design, cpus)));
        }
    }
    results[0]["converged"] = json!([true, false, true, true, true]);
    if is_simulated {
        results.iter_mut().filter(|result| result["metric"] == "ops_per_s").for_each(keep_books);
    }
    set("bench", is_simulated, results)
}

/// A bench whose rates are so far apart that the lowest tick of the axis stands at its very end.
fn far_apart() -> Value {
    let mut set = bench(false, &[2]);
    for result in set["results"].as_array_mut().expect("results") {
        let place = DESIGNS.iter().position(|design| result["design"] == *design).expect("a design");
        if result["metric"] == "ops_per_s" {
            result["samples"] = json!(vec![1430.0 * 7000_f64.powf(place as f64 / 5.0); 5]);
        }
    }
    set
}

/// Adds what a simulated machine's books say: of one line that all write, of lines, of waits, of the memory bus.
fn keep_books(result: &mut Value) {
    let writers = result["cpus"].clone();
    let line = |name: &str, ns: u64, one: u64| json!({ "name": name, "transfers": 9000, "ns": ns, "hottest": { "transfers": 8000, "ns": one, "writers": writers } });
    result["linear"] = json!({ "ops_per_s": 1e9, "set_by": "memory bus", "reached": 0.97 });
    result["profile"] = json!({
        "thread_ns": 10_000_000, "bus_ns": 1_000_000, "interrupted_ns": 200_000,
        "waits": [
            { "for": "mmap_sem:write", "ns": 3_000_000 }, { "for": "mmap_sem:read", "ns": 100_000 },
            { "for": "sim:shootdown", "ns": 700_000 }, { "for": "page_table", "ns": 100_000 },
        ],
        "lines": [
            line("the address-space lock (its count of readers and writers)", 2_000_000, 1_990_000),
            line("entries of a page table", 300_000, 1000), line("", 100_000, 50),
        ],
    });
}

fn replay() -> Value {
    let mut results = Vec::new();
    for (place, design) in DESIGNS.into_iter().enumerate() {
        let ns = 4e8 / (place + 1) as f64;
        results.push(figure("mapper.trace", design, 2, ("elapsed_ns", "ns"), around(ns)));
        results.push(figure("mapper.trace", design, 2, ("lock_wait_share", "share"), around(0.5 / (place + 1) as f64)));
        let mut median = figure("mapper.trace", design, 2, ("fault_p50_ns", "ns"), around(500.0));
        let pairs: Vec<(u64, u64)> = (0..200).map(|step| (100 + step * step * 3, 40_000 / (step + 1))).collect();
        median["distribution_ns"] = json!(pairs);
        results.push(median);
    }
    let mut set = set("replay", false, results);
    set["outline"] = outline();
    set["verdict"] = json!("Verdict:\n* linux wins mapper.trace on 2 CPUs.\n* the replay is faithful: 0 mismatches.");
    set["caveats"] = json!([
        "the program's own pauses are not replayed, so threads wait for locks more than it did: an upper bound"
    ]);
    set["checks"] = json!({ "events": 1_000_000, "faults_recorded": 900_000, "mismatches": 0, "skipped": {}, "lost": 0,
                            "classified": { "prefault": 3, "reclaim": 0 } });
    set
}

fn stat() -> Value {
    let lock = |name: &str, caller: Value, share: f64| {
        json!({ "lock": name, "caller": caller, "utilisation": share * 1.4, "contention": share, "hold_mean_ns": 812.0,
                "hold_max_ns": 90_000.0, "wait_mean_ns": 4_100.0, "wait_max_ns": 812_000.0, "cpu_share": share, "total": 12_345.0,
                "nowait": 12_000, "waited": 345, "rejected": 0 })
    };
    let mut locks = vec![lock("mmap_sem (write)", Value::Null, 0.61)];
    locks.push(lock("mmap_sem (write)", json!("crates/vm/src/space/a_long_file_name.rs:120"), 0.3));
    (0..16).for_each(|place| {
        locks.push(lock(&format!("page table lock {place}"), Value::Null, 0.01 / (place + 1) as f64))
    });
    let mut busy = lock("mmap_sem (write)", json!("vm/fault/anonymous.rs:389"), 2.63);
    (busy["total"], busy["wait_mean_ns"], busy["hold_mean_ns"]) = (json!(238_000_123), json!(52_800), json!(38_123));
    locks.push(busy);
    let results = DESIGNS.map(|design| figure("malloc1", design, 2, ("faults", "count"), around(1e6)));
    let mut set = set("stat", true, results.into());
    set["locks"] =
        json!([{ "workload": "malloc1", "design": "mmap-sem", "semaphore": "rwsem-v8", "cpus": 2, "locks": locks }]);
    set
}

pub fn reproduce() -> Value {
    let line = |workload: &str, published: f64, ours: f64| {
        json!({ "workload": workload, "cpus": 80, "mode": "threads", "machine": "haswell-80", "base": "mmap-sem", "head": "spf-v11",
                "figure": "rate", "published_percent": published, "published_as": "x", "ours_percent": ours, "converged": true,
                "ratio_of_changes": (100.0 + ours) / (100.0 + published), "sign_agrees": published * ours > 0.0,
                "base_samples": around(1000.0), "head_samples": around(10.0 * (100.0 + ours)), "events_per_100_faults": {} })
    };
    let mut set = set("reproduce", true, vec![]);
    set["checks"] = json!({ "spf-2018-ebizzy": [line("ebizzy -mTt 80", 350.0, 280.0), line("malloc1", -3.0, -40.0)] });
    set
}

/// An outline as the command makes it of a recorded program.
fn outline() -> Value {
    let states = |shift: usize| (0..600).map(|at| b"ccmWwr"[(at / 20 + shift) % 6] as char).collect::<String>();
    let lanes = (0..30).map(
        |lane| json!({ "name": format!("a thread with a long name {lane}"), "states": states(lane), "events": 9 }),
    );
    let cell = |row: usize| (0..240).map(|at| b"hsafmvu."[(at / 30 + row / 15) % 8] as char).collect::<String>();
    let kinds = [
        ("heap", "h"),
        ("stack", "s"),
        ("anonymous", "a"),
        ("file", "f"),
        ("shared", "m"),
        ("special", "v"),
        ("unknown", "u"),
    ];
    let kinds =
        kinds.map(|(kind, letter)| json!({ "kind": kind, "letter": letter, "peak_bytes": 1 << 20, "faults": 900 }));
    let faults: Vec<[usize; 3]> = (0..3000).map(|nth| [nth % 240, nth * 7 % 119, nth % 50 + 1]).collect();
    let regions = (0..8).map(|nth| json!({ "start": format!("{:#x}", 0x7f00_0000_0000_u64 - nth * 0x1000_0000), "bytes": 4096, "row": nth * 15, "rows": 14,
                        "kinds": [{ "kind": "anonymous", "peak_bytes": 51_170_508 }, { "kind": "file", "peak_bytes": 2_411_724 }] }));
    let space = json!({ "name": "java 4711", "began_ns": 1_000, "duration_ns": 999_000_000, "rows": 120, "kinds": kinds, "changes": 12_345, "faults_total": 900_000, "nr_forks": 2,
                        "cells": (0..120).map(cell).collect::<Vec<_>>(), "faults": faults, "forks": [1_000_000_u64, 700_000_000],
                        "regions": regions.collect::<Vec<_>>(), "calls": calls(), "again": [9000, 8000], "closer": closer() });
    json!({
        "duration_ns": 1_000_000_000, "events": 1_000_000, "cpus": 2,
        "threads": { "count": 31, "columns": 600, "has_pace": true, "lanes": lanes.collect::<Vec<_>>(), "nr_waits": 1,
                     "waits": [[1_000_000, 400_000_000, 3, 17, "munmap", "mprotect", "lock"], [600_000_000, 700_000_000, 4, null, "mmap", null, "call"],
                               [600_000_000, 640_000_000, 5, 6, null, null, "end"], [500_000_000, 501_000_000, 3, 7, null, null, "other"]],
                     "pairs": [{ "waiter": "a 3", "waker": "a 17", "count": 3, "ns": 5_000_000, "what": "lock" },
                               { "waiter": "a 3", "waker": null, "count": 1, "ns": 6_000_000, "what": "other" }] },
        "spaces": { "count": 9, "columns": 240, "list": [space, worst()] },
    })
}

/// What a program asks of its map.
fn calls() -> Value {
    let names = ["mmap", "munmap", "mprotect", "mremap", "madvise", "brk"];
    let line = |name: &str| {
        json!({ "call": name, "kind": "anonymous", "count": 2400, "usual_bytes": 98_304, "usual_count": 2000, "least_bytes": 4096,
                "most_bytes": 1 << 30, "bytes": 5_000_000_000_u64, "kernel_ns": 12_000_000 })
    };
    let counts = |name: &&str| ((*name).to_owned(), (0..240).map(|at| json!(at * name.len() % 97)).collect());
    let columns: serde_json::Map<String, Value> = names.iter().map(counts).collect();
    json!({ "lines": names.map(line), "columns": columns })
}

/// The addresses of a space that change most.
fn closer() -> Value {
    let cell = |row: usize| (0..240).map(|at| b"aa.f"[(at / 3 + row) % 4] as char).collect::<String>();
    json!({ "rows": 48, "changes": 12_000, "faults_total": 30_000, "cells": (0..48).map(cell).collect::<Vec<_>>(), "faults": [[3, 4, 5]],
            "regions": [{ "start": "0x7f0000000000", "bytes": 1 << 20, "row": 0, "rows": 48, "kinds": [{ "kind": "anonymous", "peak_bytes": 1 << 19 }] }] })
}

/// The largest space that an outline can hold: no two cells alike beside each other, all faults that fit.
fn worst() -> Value {
    let cell = |row: usize| (0..240).map(|at| b"hsafmvu"[(at * 5 + row) % 7] as char).collect::<String>();
    let kinds = [
        ("heap", "h"),
        ("stack", "s"),
        ("anonymous", "a"),
        ("file", "f"),
        ("shared", "m"),
        ("special", "v"),
        ("unknown", "u"),
    ];
    let kinds =
        kinds.map(|(kind, letter)| json!({ "kind": kind, "letter": letter, "peak_bytes": 1 << 20, "faults": 900 }));
    let faults: Vec<[usize; 3]> = (0..6000).map(|nth| [nth % 240, nth * 7 % 119, nth % 50 + 1]).collect();
    json!({ "name": "worst 1", "began_ns": 0, "duration_ns": 1_000_000_000, "rows": 120, "kinds": kinds, "changes": 12_345, "faults_total": 900_000, "nr_forks": 0, "forks": [],
            "cells": (0..120).map(cell).collect::<Vec<_>>(), "faults": faults,
            "regions": [{ "start": "0x1000", "bytes": 4096, "row": 0, "rows": 120 }], "calls": calls(), "again": [9000, 8000],
            "closer": closer() })
}

/// Returns the largest page of a recorded program: four of the largest spaces, forty lanes that change in every column.
#[allow(dead_code, reason = "one of two programs that share this file uses it")]
pub fn largest() -> String {
    let mut set = replay();
    let states = (0..600).map(|at| b"cmWwr"[at % 5] as char).collect::<String>();
    let lane = json!({ "name": "a thread with a rather long name 1234567", "states": states, "events": 9 });
    let pair = json!({ "waiter": "a thread with a name 3", "waker": "another thread 17", "count": 3, "ns": 5_000_000, "what": "lock" });
    let threads = &mut set["outline"]["threads"];
    threads["lanes"] = json!(vec![lane; 40]);
    threads["waits"] = (0..150)
        .map(|nth| json!([nth, nth * 1_000_000, nth % 40, (nth + 7) % 40, "munmap", "mprotect", "lock"]))
        .collect();
    threads["pairs"] = json!(vec![pair; 100]);
    set["outline"]["spaces"]["list"] = json!(vec![worst(); 4]);
    of_sets(&[source("a result", set)])
}

/// Returns a set as large as that of `faultless bench` as it comes: six workloads, six designs, three numbers of CPUs,
/// each with its distribution.
#[allow(dead_code, reason = "one of two programs that share this file uses it")]
pub fn default_bench() -> Source {
    let pairs: Vec<(u64, u64)> = (0..500).map(|step| (100 + step * step * 3, 40_000 / (step + 1))).collect();
    let mut results = Vec::new();
    for workload in ["page_fault1", "page_fault2", "malloc1", "mmap1", "tlb_flush2", "ebizzy -mT"] {
        for (place, design) in DESIGNS.into_iter().enumerate() {
            [1, 2, 4].into_iter().for_each(|cpus| results.extend(arm(workload, place, design, cpus)));
        }
    }
    let is_spread = |result: &&mut Value| result["metric"] == "op_p50_ns";
    results.iter_mut().filter(is_spread).for_each(|result| result["distribution_ns"] = json!(pairs));
    source("default", set("bench", false, results))
}

/// Returns the page of a kind.
#[allow(dead_code, reason = "one of two programs that share this file uses it")]
pub fn page(name: &str) -> String {
    pages().into_iter().find(|(known, _)| *known == name).expect("a kind").1
}

/// Returns a page of each kind.
pub fn pages() -> Vec<(&'static str, String)> {
    let alone = |value: Value| of_sets(&[source("a result", value)]);
    let head = |share: f64| {
        let mut head = bench(true, &[1, 64]);
        for result in head["results"].as_array_mut().expect("results") {
            let samples = result["samples"].as_array_mut().expect("samples");
            samples.iter_mut().for_each(|sample| *sample = json!(sample.as_f64().expect("a figure") * share));
        }
        head
    };
    let sides = vec![source("base", bench(true, &[1, 64])), source("head", head(1.3)), source("worse", head(0.8))];
    let compared = of_comparison(&compare(sides).expect("comparable"));
    let several = of_sets(&[source("one", bench(true, &[2])), source("two", replay())]);
    vec![
        ("bench", alone(bench(true, &[1, 4, 16, 64, 192]))),
        ("bench-native", alone(bench(false, &[2]))),
        ("bench-two", alone(bench(false, &[1, 2]))),
        ("bench-far", alone(far_apart())),
        ("replay", alone(replay())),
        ("stat", alone(stat())),
        ("reproduce", alone(reproduce())),
        ("compare", compared),
        ("report", several),
    ]
}
