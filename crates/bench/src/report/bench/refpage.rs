//! The tables of the thread about reference pages: time and resident size of each variant, by the pages that are
//! touched.
//!
//! # Guarantee
//! A cell is made of what was measured. Overheads and gains are of runs that were made in turn, with the 95 % interval
//! of their median; the saving that is expected comes from the session's own cost of a fault, of a filled page and of a
//! pair of calls, which are printed beside it.
//!
//! # Tables
//! `times`: each variant's rounds and resident size. `renderer`: what each costs over plain memory where a recorded
//! renderer asks, and of what memset costs there. `savings`: gains over memset, expected and found. `break_evens`:
//! from which share of touched pages on memset is no dearer. `read_first`: from which share of loaded pages, stored to
//! later, on a pattern is no dearer than a reference page.

use faultless_results::columns;
use faultless_results::stats::{Interval, median, median_ratio};
use faultless_workloads::{Access, PAGE, Refpage, Touch, Variant, renderer_cpu_ns};
use std::fmt;
use std::io::{self, Write};

use super::BenchReport;
use crate::measure::{BenchArm, BenchArmResult};

/// Rounds that the published program makes.
const ROUNDS: f64 = 1000.0;
/// Seeds the intervals.
const SEED: u64 = 1;

/// A table under its heading: the first row names the columns.
pub(super) struct Section {
    /// What it shows.
    pub(super) heading: String,
    /// Its rows.
    pub(super) rows: Vec<Vec<String>>,
}

/// Writes the tables, if the workload was measured.
pub(super) fn write(report: &BenchReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    sections(report).iter().try_for_each(|section| {
        writeln!(out, "\n{}", section.heading)?;
        columns::write(&section.rows, out)
    })
}

/// Returns the tables that have rows.
pub(super) fn sections(report: &BenchReport<'_>) -> Vec<Section> {
    let arms: Vec<&BenchArmResult> = report.outcome.arms.iter().filter(|arm| is_refpage(&arm.arm)).collect();
    let times_of =
        format!("reference pages: {ROUNDS} rounds in s / largest resident size in KiB; over anon, with 95 % interval");
    let all = [
        (times_of.as_str(), times(&arms)),
        (
            "the recorded renderer, a pass: over anon in ms, and of the time that it computes besides; as a share of memset's, \
             with 95 % interval",
            renderer(&arms),
        ),
        (
            "against memset, a round: what this session's costs of a fault with its page, of a filled page, and of mmap and \
             munmap promise (all variants make the same calls), and what was found, with 95 % interval",
            savings(&arms),
        ),
        ("the share of pages touched from which on memset is no dearer", break_evens(&arms)),
        (
            "programs that load first: the share of loaded pages, stored to later, from which on a pattern is no dearer than a \
             reference page",
            read_first(&arms),
        ),
    ];
    let made = all.into_iter().filter(|(_, rows)| rows.len() > 1);
    made.map(|(heading, rows)| Section { heading: heading.to_owned(), rows }).collect()
}

fn is_refpage(arm: &BenchArm) -> bool {
    arm.spec.workload.name == "refpage"
}

fn told(result: &BenchArmResult) -> Refpage {
    result.arm.spec.settings.refpage
}

/// Returns what tells rows apart: everything but the variant.
fn place(result: &BenchArmResult) -> (String, Option<String>, usize, Refpage, u64) {
    let BenchArm { design, semaphore, cpus, spec } = &result.arm;
    let told = Refpage { variant: Variant::Anon, ..told(result) };
    (design.clone(), semaphore.clone(), *cpus, told, spec.settings.region_bytes)
}

fn name_of(told: Refpage) -> String {
    let which = match told.touch {
        Touch::One => "one".to_owned(),
        Touch::Percent(percent) => format!("{percent}%"),
        Touch::Renderer => return "renderer".to_owned(),
    };
    format!("{} {which}{}", how(told), if told.is_reused { ", reused" } else { "" })
}

fn how(told: Refpage) -> &'static str {
    match told.access {
        Access::Load => "load",
        Access::Store => "store",
        Access::Update => "load+store",
    }
}

/// Returns the seconds that a worker's round takes, run by run.
fn seconds(result: &BenchArmResult) -> Vec<f64> {
    result.runs.iter().map(|run| run.workers as f64 / run.ops_per_s).collect()
}

fn of<'a>(arms: &[&'a BenchArmResult], like: &BenchArmResult, variant: Variant) -> Option<&'a BenchArmResult> {
    arms.iter().copied().find(|arm| place(arm) == place(like) && told(arm).variant == variant && !arm.runs.is_empty())
}

/// Returns the arm that was told so, beside one in all else.
fn told_so<'a>(arms: &[&'a BenchArmResult], like: &BenchArmResult, wanted: Refpage) -> Option<&'a BenchArmResult> {
    let around = |arm: &BenchArmResult| {
        let (design, semaphore, cpus, _, region_bytes) = place(arm);
        (design, semaphore, cpus, region_bytes)
    };
    arms.iter().copied().find(|arm| told(arm) == wanted && around(arm) == around(like) && !arm.runs.is_empty())
}

/// Returns one arm for each place.
fn places<'a>(arms: &[&'a BenchArmResult]) -> Vec<&'a BenchArmResult> {
    let mut first: Vec<&BenchArmResult> = Vec::new();
    for &arm in arms {
        if first.iter().all(|other| place(other) != place(arm)) {
            first.push(arm);
        }
    }
    first
}

fn times(arms: &[&BenchArmResult]) -> Vec<Vec<String>> {
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

fn cell(result: &BenchArmResult, anon: Option<&[f64]>) -> String {
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
    let middle = percent(ratio.middle);
    match ratio.n {
        1 => format!(" {middle:+.1} %"),
        _ => format!(" {middle:+.1} % [{:+.1}, {:+.1}]", percent(ratio.low), percent(ratio.high)),
    }
}

/// Returns the interval of the median of figures that runs made in turn gave.
fn interval(figures: &[f64]) -> Option<Interval> {
    median_ratio(&vec![1.0; figures.len()], figures, SEED)
}

/// Returns an interval as a cell; of a single run there is none.
fn cell_of(interval: Option<Interval>, show: impl Fn(f64) -> String) -> String {
    let shown = |Interval { low, middle, high, n }| match n {
        1 => show(middle),
        _ => format!("{} [{}, {}]", show(middle), show(low), show(high)),
    };
    interval.map_or_else(|| "-".to_owned(), shown)
}

/// Returns the differences of runs that were made in turn.
fn differences(base: &[f64], head: &[f64]) -> Vec<f64> {
    base.iter().zip(head).map(|(base, head)| head - base).collect()
}

fn renderer(arms: &[&BenchArmResult]) -> Vec<Vec<String>> {
    let headings = ["design", "CPUs", "variant", "over anon, ms", "of its computing", "of memset's overhead"];
    let mut rows = vec![headings.map(String::from).to_vec()];
    for like in places(arms).into_iter().filter(|arm| told(arm).touch == Touch::Renderer) {
        let variants = [Variant::Memset, Variant::Refpage, Variant::Pattern];
        rows.extend(variants.into_iter().filter_map(|variant| renderer_row(arms, like, variant)));
    }
    rows
}

fn renderer_row(arms: &[&BenchArmResult], like: &BenchArmResult, variant: Variant) -> Option<Vec<String>> {
    let over = |variant| {
        let anon = seconds(of(arms, like, Variant::Anon)?);
        Some(differences(&anon, &seconds(of(arms, like, variant)?)))
    };
    let own = over(variant)?;
    let share = |memset: Vec<f64>| median_ratio(&memset, &own, SEED);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    Some(vec![
        like.arm.design.clone(),
        like.arm.cpus.to_string(),
        variant.name().to_owned(),
        cell_of(interval(&own), |seconds| format!("{:+.3}", seconds * 1e3)),
        median(&own).map_or_else(|| "-".to_owned(), |own| format!("{:+.3} %", own * 1e11 / renderer_cpu_ns() as f64)),
        cell_of(over(Variant::Memset).and_then(share), percent),
    ])
}

/// What a session knows of one design's costs, in seconds.
struct Costs {
    /// A first store, its page's zeroing included.
    fault: f64,
    /// A page filled by the program that is there already.
    fill: f64,
    /// mmap and munmap.
    calls: f64,
}

/// Returns the costs of the arms that are like one but for variant and touch: plain stores to all pages and to one, and
/// memory that is filled again where it is.
fn costs(arms: &[&BenchArmResult], like: &BenchArmResult) -> Option<Costs> {
    let time = |variant, touch, is_reused| {
        let wanted = Refpage { variant, touch, is_reused, access: Access::Store };
        told_so(arms, like, wanted).and_then(|arm| median(&seconds(arm)))
    };
    let nr_pages = nr_pages(like);
    let all = time(Variant::Anon, Touch::Percent(100), false)?;
    let one = time(Variant::Anon, Touch::One, false)?;
    let refilled = time(Variant::Memset, Touch::One, true)?;
    let fault = (all - one) / (nr_pages - 1.0);
    Some(Costs { fault, fill: refilled / nr_pages, calls: one - fault })
}

fn nr_pages(result: &BenchArmResult) -> f64 {
    (result.arm.spec.settings.region_bytes / PAGE) as f64
}

fn nr_touched(result: &BenchArmResult) -> f64 {
    told(result).touch.of(nr_pages(result) as u64) as f64
}

fn savings(arms: &[&BenchArmResult]) -> Vec<Vec<String>> {
    let headings =
        ["design", "CPUs", "touched", "variant", "fault, fill, calls", "expected", "found", "found / expected"];
    let mut rows = vec![headings.map(String::from).to_vec()];
    let is_fresh_store = |arm: &&BenchArmResult| {
        let told = told(arm);
        !told.is_reused && told.access == Access::Store && told.touch != Touch::Renderer
    };
    for like in places(arms).into_iter().filter(is_fresh_store) {
        let variants = [Variant::Refpage, Variant::Pattern];
        rows.extend(variants.into_iter().filter_map(|variant| saving(arms, like, variant)));
    }
    rows
}

fn saving(arms: &[&BenchArmResult], like: &BenchArmResult, variant: Variant) -> Option<Vec<String>> {
    let costs = costs(arms, like)?;
    let (memset, own) = (seconds(of(arms, like, Variant::Memset)?), seconds(of(arms, like, variant)?));
    // memset makes every page and fills it; the variant makes those that are touched, and fills them in place of
    // zeroing them.
    let expected = (nr_pages(like) - nr_touched(like)) * costs.fault + nr_pages(like) * costs.fill;
    let found = differences(&own, &memset);
    let shares: Vec<f64> = found.iter().map(|found| found / expected).collect();
    let us = |seconds: f64| format!("{:.2}", seconds * 1e6);
    Some(vec![
        like.arm.design.clone(),
        like.arm.cpus.to_string(),
        name_of(told(like)),
        variant.name().to_owned(),
        format!("{}, {}, {} us", us(costs.fault), us(costs.fill), us(costs.calls)),
        format!("{:.1} us", expected * 1e6),
        format!("{:.1} us", median(&found)? * 1e6),
        cell_of(interval(&shares), |share| format!("{share:.2}")),
    ])
}

fn break_evens(arms: &[&BenchArmResult]) -> Vec<Vec<String>> {
    let headings = ["design", "CPUs", "touched by", "variant", "memset no dearer from"];
    let mut rows = vec![headings.map(String::from).to_vec()];
    let mut kinds: Vec<&BenchArmResult> = Vec::new();
    for arm in places(arms).into_iter().filter(|arm| told(arm).touch != Touch::Renderer) {
        if kinds.iter().all(|kind| !is_beside(arm, kind)) {
            kinds.push(arm);
        }
    }
    for like in kinds {
        for variant in [Variant::Refpage, Variant::Pattern] {
            rows.extend(break_even(arms, like, variant).map(|even| {
                let by = format!("{}{}", how(told(like)), if told(like).is_reused { ", reused" } else { "" });
                let variant = variant.name().to_owned();
                vec![like.arm.design.clone(), like.arm.cpus.to_string(), by, variant, even.to_string()]
            }));
        }
    }
    rows
}

/// From which share of touched pages on a round of memset takes no longer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BreakEven {
    Share(f64),
    Never,
    Always,
}

impl BreakEven {
    /// Where two lines cross that each have a time without a touch, and what touching all pages adds.
    fn of(memset: (f64, f64), own: (f64, f64)) -> Self {
        let (gain_at_none, loss_by_all) = (memset.0 - own.0, own.1 - memset.1);
        match gain_at_none / loss_by_all {
            _ if gain_at_none <= 0.0 => Self::Always,
            share if loss_by_all > 0.0 && share <= 1.0 => Self::Share(share),
            _ => Self::Never,
        }
    }
}

impl fmt::Display for BreakEven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{:.0} %", share * 100.0),
            Self::Never => f.write_str("never"),
            Self::Always => f.write_str("0 %"),
        }
    }
}

/// Returns where a variant breaks even, by the line through the fewest and the most pages that were touched so.
fn break_even(arms: &[&BenchArmResult], like: &BenchArmResult, variant: Variant) -> Option<BreakEven> {
    let line = |variant| {
        let is_of =
            |arm: &&BenchArmResult| told(arm).variant == variant && !arm.runs.is_empty() && is_beside(arm, like);
        let mut points: Vec<(f64, f64)> = arms
            .iter()
            .copied()
            .filter(is_of)
            .filter_map(|arm| Some((nr_touched(arm) / nr_pages(arm), median(&seconds(arm))?)))
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let ((least, at_least), (most, at_most)) = (*points.first()?, *points.last()?);
        let slope = (at_most - at_least) / (most - least);
        slope.is_finite().then_some((at_least - slope * least, slope))
    };
    Some(BreakEven::of(line(Variant::Memset)?, line(variant)?))
}

fn read_first(arms: &[&BenchArmResult]) -> Vec<Vec<String>> {
    let mut rows = vec![["design", "CPUs", "touched", "pattern no dearer from"].map(String::from).to_vec()];
    for like in places(arms).into_iter().filter(|arm| told(arm).access == Access::Load) {
        let line = |variant| {
            let of_access = |access| {
                let wanted = Refpage { access, variant, ..told(like) };
                told_so(arms, like, wanted).and_then(|arm| median(&seconds(arm)))
            };
            let (loaded, updated) = (of_access(Access::Load)?, of_access(Access::Update)?);
            Some((loaded, updated - loaded))
        };
        if let (Some(refpage), Some(pattern)) = (line(Variant::Refpage), line(Variant::Pattern)) {
            let even = BreakEven::of(pattern, refpage).to_string();
            rows.push(vec![like.arm.design.clone(), like.arm.cpus.to_string(), name_of(told(like)), even]);
        }
    }
    rows
}

/// Says whether two arms differ in variant and the number of touched pages alone.
fn is_beside(arm: &BenchArmResult, like: &BenchArmResult) -> bool {
    if [arm, like].iter().any(|arm| told(arm).touch == Touch::Renderer) {
        return false;
    }
    let (mut one, mut other) = (place(arm), place(like));
    (one.3.touch, other.3.touch) = (Touch::One, Touch::One);
    one == other
}

#[cfg(test)]
mod tests {
    use super::{Access, BreakEven, Refpage, Touch, Variant, name_of};

    #[test]
    fn rows_say_what_is_touched_and_how() {
        let told = Refpage { variant: Variant::Anon, touch: Touch::Percent(50), access: Access::Load, is_reused: true };
        assert_eq!(name_of(told), "load 50%, reused");
        assert_eq!(name_of(Refpage::default()), "store one");
        let updated = Refpage { access: Access::Update, ..Refpage::default() };
        assert_eq!(name_of(updated), "load+store one");
        assert_eq!(name_of(Refpage { touch: Touch::Renderer, ..updated }), "renderer");
    }

    #[test]
    fn memset_is_no_dearer_from_where_the_lines_cross() {
        assert_eq!(BreakEven::of((10.0, 0.0), (0.0, 20.0)), BreakEven::Share(0.5));
        assert_eq!(BreakEven::of((10.0, 0.0), (0.0, 9.0)), BreakEven::Never, "cheaper even at all");
        assert_eq!(BreakEven::of((10.0, 5.0), (1.0, 1.0)), BreakEven::Never, "the lines part");
        assert_eq!(BreakEven::of((1.0, 0.0), (2.0, 1.0)), BreakEven::Always);
        assert_eq!(BreakEven::Share(0.25).to_string(), "25 %");
    }
}
