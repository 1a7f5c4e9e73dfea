//! What memory that starts as a byte saves or costs a recorded program: each way against plain memory and against
//! stores.
//!
//! # Guarantee
//! Ratios are those of the verdict beneath the table, with their 95 % interval; of too few passes they have none.
//! Sizes are the largest of all passes; differences are those of medians, with the least and the most of passes made in
//! turn where they differ.

use faultless_results::columns;
use faultless_results::stats::{Interval, median};
use faultless_results::verdict;
use std::io::{self, Write};

use super::Report;
use crate::experiment::ReplayArmResult;
use crate::patterned::{Way, split};

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
    shown_ratio(&times(base), &times(head))
}

/// Returns how much more time one arm takes than another; for too few passes without an interval.
fn shown_ratio(base: &[f64], head: &[f64]) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    if let Some(Interval { low, middle, high, .. }) = verdict::times(base, head) {
        return format!("{:+.1} % [{:+.1}, {:+.1}]", percent(middle), percent(low), percent(high));
    }
    let nr_runs = base.len().min(head.len());
    let ratio = median(head).zip(median(base)).map(|(head, base)| head / base).filter(|ratio| ratio.is_finite());
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:+.1} % (n {nr_runs})", percent(ratio)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_that_of_the_medians_as_in_the_verdict() {
        let (base, head) = ([100.0, 102.0, 104.0, 106.0, 108.0, 110.0], [160.0, 108.0, 150.0, 107.0, 140.0, 130.0]);
        let Interval { low, middle, high, .. } = verdict::times(&base, &head).expect("enough");
        assert!((middle - 135.0 / 105.0).abs() < 1e-9, "the median of the pairs' ratios is another one");
        let [low, high] = [low, high].map(|ratio| (ratio - 1.0) * 100.0);
        assert_eq!(shown_ratio(&base, &head), format!("+28.6 % [{low:+.1}, {high:+.1}]"));
        assert_eq!(shown_ratio(&base[..4], &head[..4]), "+25.2 % (n 4)", "too few have no interval");
    }
}
