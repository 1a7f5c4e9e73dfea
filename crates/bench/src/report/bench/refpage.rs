//! The tables of the thread about reference pages: time and resident size of each variant, by the pages that are
//! touched.
//!
//! # Guarantee
//! A cell is made of what was measured. Overheads are ratios of runs that were made in turn, with their 95 % interval;
//! the saving that is expected comes from the session's own cost of a fault and of a filled page, and is printed beside
//! the one that was found.

use faultless_results::columns;
use faultless_results::stats::{Interval, median, median_ratio};
use faultless_workloads::{Access, PAGE, Refpage, Touch, Variant};
use std::io::{self, Write};

use super::BenchReport;
use crate::measure::{Arm, ArmResult};

/// Rounds that the published program makes.
const ROUNDS: f64 = 1000.0;
/// Seeds the intervals.
const SEED: u64 = 1;

/// Writes the tables, if the workload was measured.
pub(super) fn write(report: &BenchReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let arms: Vec<&ArmResult> = report.outcome.arms.iter().filter(|arm| is_refpage(&arm.arm)).collect();
    if arms.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nreference pages: {ROUNDS} rounds in s / largest resident size in KiB; over anon, with 95 % interval"
    )?;
    columns::write(&times(&arms), out)?;
    let rows = savings(&arms);
    if rows.len() > 1 {
        writeln!(
            out,
            "\nagainst memset, a round: what this session's cost of a fault and of a filled page promises, and what was found; \
             the fraction of pages touched from which memset is no dearer"
        )?;
        columns::write(&rows, out)?;
    }
    Ok(())
}

fn is_refpage(arm: &Arm) -> bool {
    arm.spec.workload.name == "refpage"
}

fn told(result: &ArmResult) -> Refpage {
    result.arm.spec.settings.refpage
}

/// Returns what tells rows apart: everything but the variant.
fn place(result: &ArmResult) -> (String, Option<String>, usize, Refpage, u64) {
    let Arm { design, semaphore, cpus, spec } = &result.arm;
    let told = Refpage { variant: Variant::Anon, ..told(result) };
    (design.clone(), semaphore.clone(), *cpus, told, spec.settings.region_bytes)
}

fn name_of(told: Refpage) -> String {
    let how = if told.access == Access::Load { "load" } else { "store" };
    let which = match told.touch {
        Touch::One => "one".to_owned(),
        Touch::Percent(percent) => format!("{percent}%"),
    };
    format!("{how} {which}{}", if told.is_reused { ", reused" } else { "" })
}

/// Returns the seconds of a round, run by run.
fn seconds(result: &ArmResult) -> Vec<f64> {
    result.runs.iter().map(|run| 1.0 / run.ops_per_s).collect()
}

fn of<'a>(arms: &[&'a ArmResult], like: &ArmResult, variant: Variant) -> Option<&'a ArmResult> {
    arms.iter().copied().find(|arm| place(arm) == place(like) && told(arm).variant == variant && !arm.runs.is_empty())
}

/// Returns one arm for each place.
fn places<'a>(arms: &[&'a ArmResult]) -> Vec<&'a ArmResult> {
    let mut first: Vec<&ArmResult> = Vec::new();
    for &arm in arms {
        if first.iter().all(|other| place(other) != place(arm)) {
            first.push(arm);
        }
    }
    first
}

fn times(arms: &[&ArmResult]) -> Vec<Vec<String>> {
    let variants = Variant::ALL.map(Variant::name).map(String::from);
    let mut rows = vec![["design", "CPUs", "touched"].map(String::from).into_iter().chain(variants).collect()];
    for like in places(arms) {
        let mut row = vec![like.arm.design.clone(), like.arm.cpus.to_string(), name_of(told(like))];
        let anon = of(arms, like, Variant::Anon).map(seconds);
        row.extend(Variant::ALL.map(|variant| match of(arms, like, variant) {
            Some(result) => cell(result, anon.as_deref().filter(|_| variant != Variant::Anon)),
            None => "-".to_owned(),
        }));
        rows.push(row);
    }
    rows
}

fn cell(result: &ArmResult, anon: Option<&[f64]>) -> String {
    let seconds = seconds(result);
    let time = median(&seconds).unwrap_or(f64::NAN) * ROUNDS;
    let kib = result
        .runs
        .iter()
        .filter_map(|run| run.peak_rss_bytes)
        .max()
        .map_or("-".into(), |bytes| (bytes / 1024).to_string());
    let over = anon.and_then(|anon| median_ratio(anon, &seconds, SEED)).map_or(String::new(), overhead);
    format!("{time:.3} / {kib}{over}")
}

fn overhead(ratio: Interval) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    format!(" {:+.1} % [{:+.1}, {:+.1}]", percent(ratio.middle), percent(ratio.low), percent(ratio.high))
}

/// What a session knows of one design's costs, in seconds.
struct Costs {
    /// A first store, its page's zeroing included.
    fault: f64,
    /// A page filled by the program that is there already.
    fill: f64,
}

/// Returns the costs of the arms that are like one but for variant and touch: plain stores to all pages and to one, and
/// memory that is filled again where it is.
fn costs(arms: &[&ArmResult], like: &ArmResult) -> Option<Costs> {
    let time = |variant, touch, is_reused| {
        let wanted = Refpage { variant, touch, is_reused, access: Access::Store };
        let (design, semaphore, cpus, _, region) = place(like);
        let found = arms.iter().find(|arm| {
            let (other, other_semaphore, other_cpus, _, other_region) = place(arm);
            told(arm) == wanted
                && (other, other_semaphore, other_cpus, other_region)
                    == (design.clone(), semaphore.clone(), cpus, region)
        });
        found.and_then(|arm| median(&seconds(arm)))
    };
    let nr_pages = nr_pages(like);
    let all = time(Variant::Anon, Touch::Percent(100), false)?;
    let one = time(Variant::Anon, Touch::One, false)?;
    let refilled = time(Variant::Memset, Touch::One, true)?;
    Some(Costs { fault: (all - one) / (nr_pages - 1.0), fill: refilled / nr_pages })
}

fn nr_pages(result: &ArmResult) -> f64 {
    (result.arm.spec.settings.region_bytes / PAGE) as f64
}

fn nr_touched(result: &ArmResult) -> f64 {
    match told(result).touch {
        Touch::One => 1.0,
        Touch::Percent(percent) => (nr_pages(result) * percent as f64 / 100.0).floor(),
    }
}

fn savings(arms: &[&ArmResult]) -> Vec<Vec<String>> {
    let headings = ["design", "CPUs", "touched", "variant", "expected", "found", "found / expected", "breaks even at"];
    let mut rows = vec![headings.map(String::from).to_vec()];
    let is_fresh_store = |arm: &&&ArmResult| !told(arm).is_reused && told(arm).access == Access::Store;
    for like in places(arms).iter().filter(is_fresh_store) {
        for variant in [Variant::Refpage, Variant::Pattern] {
            rows.extend(saving(arms, like, variant));
        }
    }
    rows
}

fn saving(arms: &[&ArmResult], like: &ArmResult, variant: Variant) -> Option<Vec<String>> {
    let costs = costs(arms, like)?;
    let memset = median(&seconds(of(arms, like, Variant::Memset)?))?;
    let own = median(&seconds(of(arms, like, variant)?))?;
    // memset makes every page and fills it; the variant makes those that are touched, and fills them in place of
    // zeroing them.
    let expected = (nr_pages(like) - nr_touched(like)) * costs.fault + nr_pages(like) * costs.fill;
    let found = memset - own;
    let even = break_even(arms, like, variant);
    Some(vec![
        like.arm.design.clone(),
        like.arm.cpus.to_string(),
        name_of(told(like)),
        variant.name().to_owned(),
        format!("{:.1} us", expected * 1e6),
        format!("{:.1} us", found * 1e6),
        format!("{:.2}", found / expected),
        even.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
    ])
}

/// Returns the share of pages from which on a round of memset takes no longer, by the line through one page and all of
/// them; above 1 there is none.
fn break_even(arms: &[&ArmResult], like: &ArmResult, variant: Variant) -> Option<f64> {
    let line = |variant| {
        let at = |touch| {
            let of_touch = |arm: &&&ArmResult| told(arm).touch == touch && is_beside(arm, like);
            let found = arms.iter().find(|arm| of_touch(arm) && told(arm).variant == variant)?;
            median(&seconds(found))
        };
        let (one, all) = (at(Touch::One)?, at(Touch::Percent(100))?);
        Some((one, all - one))
    };
    let (memset, own) = (line(Variant::Memset)?, line(variant)?);
    Some((memset.0 - own.0) / (own.1 - memset.1)).filter(|share| share.is_finite() && *share >= 0.0)
}

/// Says whether two arms differ in variant and touch alone.
fn is_beside(arm: &ArmResult, like: &ArmResult) -> bool {
    let (mut one, mut other) = (place(arm), place(like));
    (one.3.touch, other.3.touch) = (Touch::One, Touch::One);
    one == other
}

#[cfg(test)]
mod tests {
    use super::{Access, Refpage, Touch, Variant, name_of};

    #[test]
    fn rows_say_what_is_touched_and_how() {
        let told = Refpage { variant: Variant::Anon, touch: Touch::Percent(50), access: Access::Load, is_reused: true };
        assert_eq!(name_of(told), "load 50%, reused");
        assert_eq!(name_of(Refpage::default()), "store one");
    }
}
