//! What memory that starts as a byte saves or costs a recorded program: each way against plain memory and against
//! stores.
//!
//! # Guarantee
//! Ratios are of passes that were made in turn, with their 95 % interval. Sizes are the largest of all passes;
//! differences are those of medians, with the least and the most of passes made in turn where they differ.

use faultless_results::columns;
use faultless_results::stats::{Interval, median, median_ratio};
use std::io::{self, Write};

use super::Report;
use crate::experiment::ReplayArmResult;
use crate::patterned::{Way, split};

/// Seeds the intervals.
const SEED: u64 = 1;

/// Writes the table, if there is such an arm.
pub(super) fn write(report: &Report<'_>, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let arms = &report.outcome.arms;
    if arms.iter().all(|arm| split(&arm.arm.design).1.is_none()) {
        return Ok(());
    }
    writeln!(out, "\nmemory that starts as a byte: time over plain memory, and over stores; largest resident size")?;
    columns::write_designs(&rows(arms), 1, out)
}

fn rows(arms: &[ReplayArmResult]) -> Vec<Vec<String>> {
    let mut rows = vec![
        ["arm", "CPUs", "over plain", "over memset", "KiB", "more than plain", "than memset"]
            .map(String::from)
            .to_vec(),
    ];
    for plain in arms.iter().filter(|arm| split(&arm.arm.design).1.is_none()) {
        let of = |way| arms.iter().find(|arm| is_way(arm, plain, way));
        for way in Way::ALL {
            rows.extend(of(way).map(|arm| row(arm, plain, of(Way::Memset).filter(|_| way != Way::Memset))));
        }
    }
    rows
}

fn is_way(arm: &ReplayArmResult, plain: &ReplayArmResult, way: Way) -> bool {
    let beside = (&arm.arm.semaphore, arm.arm.cpus) == (&plain.arm.semaphore, plain.arm.cpus);
    beside && split(&arm.arm.design) == (plain.arm.design.as_str(), Some(way))
}

fn row(arm: &ReplayArmResult, plain: &ReplayArmResult, memset: Option<&ReplayArmResult>) -> Vec<String> {
    let kib = |arm: &ReplayArmResult| arm.passes.iter().map(|pass| pass.peak_rss_bytes / 1024).max().unwrap_or(0);
    let more = |base: &ReplayArmResult| differences(base, arm);
    let dash = || "-".to_owned();
    vec![
        arm.arm.design.clone(),
        arm.arm.cpus.to_string(),
        ratio(plain, arm),
        memset.map_or_else(dash, |memset| ratio(memset, arm)),
        kib(arm).to_string(),
        more(plain),
        memset.map_or_else(dash, more),
    ]
}

/// Returns how many KiB more one arm takes than another.
fn differences(base: &ReplayArmResult, head: &ReplayArmResult) -> String {
    let kib = |arm: &ReplayArmResult, pass: usize| arm.passes[pass].peak_rss_bytes as f64 / 1024.0;
    let nr_passes = base.passes.len().min(head.passes.len());
    let mut all: Vec<f64> = (0..nr_passes).map(|pass| kib(head, pass) - kib(base, pass)).collect();
    all.sort_by(f64::total_cmp);
    match (all.first(), median(&all), all.last()) {
        (Some(least), Some(middle), Some(most)) if least < most => format!("{middle:+} [{least:+}, {most:+}]"),
        (_, Some(middle), _) => format!("{middle:+}"),
        _ => "-".to_owned(),
    }
}

fn ratio(base: &ReplayArmResult, head: &ReplayArmResult) -> String {
    let times = |arm: &ReplayArmResult| arm.passes.iter().map(|pass| pass.elapsed_ns as f64).collect::<Vec<f64>>();
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let shown = |interval: Interval| {
        let Interval { low, middle, high, .. } = interval;
        format!("{:+.1} % [{:+.1}, {:+.1}]", percent(middle), percent(low), percent(high))
    };
    median_ratio(&times(base), &times(head), SEED).map_or_else(|| "-".to_owned(), shown)
}
