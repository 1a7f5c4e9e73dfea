//! The promises of the issue, judged by what was measured.
//!
//! A ratio is that of each pair of interleaved runs; its median has a bootstrap 95 % interval. A
//! target holds if the interval's worse end keeps the limit, fails if its better end breaks it, and
//! is undecided otherwise, or with fewer than 30 pairs.

use crate::cells::{Cell, JUDGED_RUNS, is_judged};
use crate::child::{Access, Cost, Variant};
use crate::program::{Measured, Mode, Run};
use crate::statistics::{Estimate, bootstrap, median};
use crate::{Plan, table};

/// One promise, and what came of it.
pub(crate) struct Verdict {
    what: String,
    wanted: String,
    found: String,
    answer: Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Holds,
    Fails,
    Undecided,
}

impl Verdict {
    /// Returns whether the promise is broken.
    pub fn has_failed(&self) -> bool {
        self.answer == Answer::Fails
    }
}

/// Judges the memory tables.
pub(crate) fn of_memory(cells: &[Cell]) -> Vec<Verdict> {
    cells.iter().filter(|cell| is_judged(&cell.work)).flat_map(of_cell).collect()
}

fn of_cell(cell: &Cell) -> Vec<Verdict> {
    let pattern = format!("pattern of {} byte(s)", cell.work.pattern_len);
    let time = |cost: &Cost| cost.time_ms;
    let gain = ratio(cell, Variant::Memset, Variant::Refpage, time);
    let size = |cost: &Cost| (cost.pss_kib + cost.tile_kib) / 1024.0;
    let pss = |cost: &Cost| cost.pss_kib / 1024.0;
    match (cell.work.access, cell.work.stride) {
        (Access::WriteFirst, 16) => vec![
            at_least(format!("stores to every 16th page, {pattern}: memset's time over ours"), gain, 8.0),
            at_most(
                "the same: our memory, with the memfd, over plain's and 1 MiB of process".into(),
                memory_ratio(cell, size),
                1.15,
            ),
        ],
        (Access::Read, 1) => vec![
            at_least(format!("reads of every page, {pattern}: memset's time over ours"), gain, 10.0),
            at_most("the same: our memory in MiB".into(), judged(&cell.samples(Variant::Refpage, pss)), 4.0),
        ],
        _ => vec![at_most(
            format!("stores to every page, {pattern}: our time over memset's"),
            ratio(cell, Variant::Refpage, Variant::Memset, time),
            1.10,
        )],
    }
}

/// The ratio of two variants, pair by pair.
fn ratio(cell: &Cell, over: Variant, under: Variant, number: fn(&Cost) -> f64) -> Option<Estimate> {
    let (over, under) = (cell.samples(over, number), cell.samples(under, number));
    let ratios: Vec<f64> = over.iter().zip(&under).map(|(over, under)| over / under).collect();
    judged(&ratios)
}

fn memory_ratio(cell: &Cell, size: impl Fn(&Cost) -> f64) -> Option<Estimate> {
    // The 17 MiB of plain memory are 16 MiB of pages and a process of 1 MiB.
    let sizes = |variant| cell.samples(variant, &size).into_iter().map(|size| size + 1.0);
    let pairs = sizes(Variant::Refpage).zip(sizes(Variant::Anon));
    judged(&pairs.map(|(ours, plain)| ours / plain).collect::<Vec<_>>())
}

fn judged(samples: &[f64]) -> Option<Estimate> {
    (!samples.is_empty()).then(|| bootstrap(samples))
}

fn at_least(what: String, found: Option<Estimate>, limit: f64) -> Verdict {
    let keeps = |value: f64| value >= limit;
    verdict(what, format!("at least {limit}"), found, |found| (keeps(found.low), keeps(found.high)))
}

fn at_most(what: String, found: Option<Estimate>, limit: f64) -> Verdict {
    let keeps = |value: f64| value <= limit;
    verdict(what, format!("at most {limit}"), found, |found| (keeps(found.high), keeps(found.low)))
}

/// `ends` says whether the worse and the better end of the interval keep the limit.
fn verdict(what: String, wanted: String, found: Option<Estimate>, ends: impl Fn(&Estimate) -> (bool, bool)) -> Verdict {
    let Some(found) = found else {
        let found = "<not supported>".to_owned();
        return Verdict { what, wanted, found, answer: Answer::Undecided };
    };
    let answer = match ends(&found) {
        _ if found.runs < JUDGED_RUNS => Answer::Undecided,
        (true, _) => Answer::Holds,
        (_, false) => Answer::Fails,
        _ => Answer::Undecided,
    };
    Verdict { what, wanted, found: describe(&found), answer }
}

fn describe(found: &Estimate) -> String {
    let [median, low, high] = [found.median, found.low, found.high].map(table::digits);
    format!("{median} [{low}, {high}], n={}", found.runs)
}

/// Judges the real program.
pub(crate) fn of_program(measured: &Measured) -> Vec<Verdict> {
    let counters = &measured.counters;
    let share = 100.0 * counters.patterned_bytes / counters.allocated_bytes;
    let size = |mode: Mode| {
        let sizes = measured.sizes.iter().find(|(other, _)| *other == mode);
        sizes.map_or(f64::NAN, |(_, sizes)| median(sizes))
    };
    let growth = size(Mode::Refpage) / size(Mode::Plain);
    vec![
        exact("pdftoppm: patterned share of allocated bytes, %", ">= 50", share, share >= 50.0),
        overhead(measured, "real time", |run| run.time_ms),
        overhead(measured, "CPU time", |run| run.cpu_ms),
        exact("pdftoppm: largest PSS over plain's", "0.95 to 1.05", growth, (growth - 1.0).abs() <= 0.05),
    ]
}

fn exact(what: &str, wanted: &str, found: f64, keeps: bool) -> Verdict {
    let answer = if keeps { Answer::Holds } else { Answer::Fails };
    Verdict { what: what.into(), wanted: wanted.into(), found: table::digits(found), answer }
}

/// Ours is at most half of memset's where that differs from 0 by three standard errors, else at
/// most 1 %.
fn overhead(measured: &Measured, name: &str, number: fn(&Run) -> f64) -> Verdict {
    let plain = measured.samples(Mode::Plain, number);
    let over = |mode: Mode| {
        let runs = measured.samples(mode, number);
        let ratios = runs.iter().zip(&plain).map(|(run, plain)| 100.0 * (run / plain - 1.0));
        bootstrap(&ratios.collect::<Vec<_>>())
    };
    let (memset, ours) = (over(Mode::Memset), over(Mode::Refpage));
    let is_seen = memset.median > 3.0 * memset.error;
    let limit = if is_seen { memset.median / 2.0 } else { 1.0 };
    let mut verdict = at_most(format!("pdftoppm: overhead in {name}, %"), Some(ours), limit);
    let relation = if is_seen { "seen" } else { "not seen" };
    verdict.wanted = format!(
        "at most {} (memset's {} ±{} is {relation})",
        table::digits(limit),
        table::digits(memset.median),
        table::digits(memset.error)
    );
    verdict
}

/// Prints the verdicts.
pub(crate) fn print(plan: &Plan, verdicts: &[Verdict]) {
    let head = ["target", "wanted", "found", "verdict"];
    let rows: Vec<_> = verdicts
        .iter()
        .map(|verdict| {
            let answer = format!("{:?}", verdict.answer).to_lowercase();
            vec![verdict.what.clone(), verdict.wanted.clone(), verdict.found.clone(), answer]
        })
        .collect();
    table::print(plan.format, "Targets: median [95 % interval]", &head, &rows);
}
