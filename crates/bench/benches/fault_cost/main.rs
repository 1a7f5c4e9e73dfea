//! What faults and map calls cost under each design: the ratios that the project promises, each within one run.
//!
//! `cargo bench -p faultless-bench --bench fault_cost [-- PART...]`, parts `zeroing`, `alone`, `beside`, `together`
//! (all). `alone` and `beside` have two rows more: `again` is `mmap-sem` in an instance of its own, which shows how
//! sharp such a ratio is; `and locked` is that with as many locked instructions as the protocol of `spf-v9` and
//! `spf-v11` has more than it, as published.
//!
//! Each part goes through its subjects in turn, [`ROUNDS`] times, and prints the median ratio of pairs taken in the
//! same turn with its 95 % bootstrap interval, and the verdict on the promise: `holds`, `fails` or `undecided`.
//!
//! | part | promise |
//! |---|---|
//! | `zeroing` | a fault of page_fault1 costs at most twice what zeroing the same frames costs, in the same order and state of the caches (both come after a pass over the same frames); 128 MiB, as published. 8 MiB, which the caches hold and where zeroing is cheapest, are printed beside it |
//! | `alone` | one thread: no design more than 2 % slower than `mmap-sem` on page_fault1 and malloc1 |
//! | `beside` | the same beside a thread that has touched memory of the space and sleeps |
//! | `together` | two threads that go on for a while, in one space, reach 0.9 of what they reach in two spaces |
//!
//! page_fault2 and 3 are printed too; the designs of 2017 and 2018 don't speculate on files, and give up before each.

mod load;
mod subject;

use faultless_results::stats::{Interval, median, median_ratio, within};
use load::{CACHED_PAGES, FILE_LOADS, LOADS, Load, PAGES};
use subject::{Arm, Subjects};

/// Rounds that are counted, after as many as [`WARM_UP`] that are not.
const ROUNDS: usize = 41;
const WARM_UP: usize = 3;
const SEED: u64 = 1;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|part| !part.starts_with('-')).collect();
    let is_wanted = |part: &str| wanted.is_empty() || wanted.iter().any(|name| name == part);
    let subjects = Subjects::new();
    if is_wanted("zeroing") {
        zeroing(&subjects, PAGES);
        zeroing(&subjects, CACHED_PAGES);
    }
    if is_wanted("alone") {
        beside_mmap_sem(&subjects, "one thread alone", |arm, load| arm.alone(load));
    }
    if is_wanted("beside") {
        beside_mmap_sem(&subjects, "one thread beside one that sleeps in the space", |arm, load| {
            arm.beside_sleeper(load)
        });
    }
    if is_wanted("together") {
        together(&subjects);
    }
    subjects.end();
}

/// Runs `measure` on each subject in turn; returns the counted results of each.
fn in_turn<R>(arms: &[&dyn Arm], mut measure: impl FnMut(&dyn Arm, usize) -> R) -> Vec<Vec<R>> {
    let mut results: Vec<Vec<R>> = arms.iter().map(|_| Vec::new()).collect();
    for turn in 0..WARM_UP + ROUNDS {
        for (arm, results) in arms.iter().zip(&mut results) {
            let result = measure(*arm, turn);
            if turn >= WARM_UP {
                results.push(result);
            }
        }
    }
    results
}

fn zeroing(subjects: &Subjects, nr_pages: u64) {
    let mib = nr_pages / 256;
    println!("faults of {mib} MiB, one thread, and zeroing the same frames in the same order; n {ROUNDS}, seed {SEED}");
    println!("{:<12}{:>10}{:>10}   fault / zero (95 % interval), at most 2 for 128 MiB", "", "fault ns", "zero ns");
    let arms = subjects.designs();
    let results = in_turn(&arms, |arm, _| arm.zeroing(nr_pages));
    for (arm, rounds) in arms.iter().zip(&results) {
        let faults: Vec<f64> = rounds.iter().map(|round| round.fault_ns).collect();
        let zeros: Vec<f64> = rounds.iter().map(|round| round.zero_ns).collect();
        let Some(ratio) = median_ratio(&zeros, &faults, SEED) else { continue };
        let middle = |samples: &[f64]| median(samples).unwrap_or(f64::NAN);
        let limit = (nr_pages == PAGES).then_some(1.0);
        println!("{:<12}{:>10.1}{:>10.1}   {}", arm.name(), middle(&faults), middle(&zeros), said(&ratio, limit));
    }
    println!();
}

fn beside_mmap_sem(subjects: &Subjects, title: &str, measure: impl Fn(&dyn Arm, Load) -> f64) {
    println!("{title}; n {ROUNDS}, seed {SEED}");
    for load in LOADS.iter().chain(FILE_LOADS).copied() {
        println!("{:<12}{:>10}   over mmap-sem (95 % interval), at most 1.02", load.name(), "ns");
        let arms = subjects.designs_and_controls();
        let results = in_turn(&arms, |arm, _| {
            // Twice: the arms before have driven this one's memory out of the caches.
            measure(arm, load);
            measure(arm, load)
        });
        for (arm, samples) in arms.iter().zip(&results) {
            let Some(ratio) = median_ratio(&results[0], samples, SEED) else { continue };
            let limit = LOADS.contains(&load).then_some(0.02);
            println!("{:<12}{:>10.1}   {}", arm.name(), median(samples).unwrap_or(f64::NAN), said(&ratio, limit));
        }
    }
    println!();
}

fn together(subjects: &Subjects) {
    println!(
        "two threads for a while, time of an operation in one space over that in two; n {ROUNDS}, seed {SEED}; 0.9 of the throughput is 1.11"
    );
    for load in LOADS.iter().chain(FILE_LOADS).copied() {
        println!("{:<12}{:>10}{:>10}   one / two (95 % interval)", load.name(), "one ns", "two ns");
        let arms = subjects.designs();
        let results = in_turn(&arms, |arm, turn| one_and_two(arm, load, turn));
        for (arm, pairs) in arms.iter().zip(&results) {
            let (one, two): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
            let Some(ratio) = median_ratio(&two, &one, SEED) else { continue };
            let limit = load.is_promised_under(arm.name()).then_some(1.0 / 0.9 - 1.0);
            let middle = |samples: &[f64]| median(samples).unwrap_or(f64::NAN);
            println!("{:<12}{:>10.1}{:>10.1}   {}", arm.name(), middle(&one), middle(&two), said(&ratio, limit));
        }
    }
    println!();
}

/// Measures in one space and in two; which comes first changes with the turn. A run before both brings the arm's memory
/// into the caches, out of which the other arms have driven it: without it, the first one of both took up to 15 %
/// longer.
fn one_and_two(arm: &dyn Arm, load: Load, turn: usize) -> (f64, f64) {
    arm.in_two_spaces(load);
    if turn.is_multiple_of(2) {
        let one = arm.in_one_space(load);
        return (one, arm.in_two_spaces(load));
    }
    let two = arm.in_two_spaces(load);
    (arm.in_one_space(load), two)
}

/// Returns a ratio with its interval, and the verdict on a promise.
fn said(ratio: &Interval, limit: Option<f64>) -> String {
    let verdict = limit.map_or("", |limit| within(ratio, limit).name());
    format!("{:.3} ({:.3} to {:.3}) {verdict}", ratio.middle, ratio.low, ratio.high)
}
