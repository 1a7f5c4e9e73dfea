//! Counts as `perf stat` prints them.

use std::io::{self, Write};

use super::locks::write_locks;
use super::{StatReport, spread};
use crate::stat::StatArmResult;
use faultless_results::columns::{left, right, width};
use faultless_results::screen;
use faultless_results::stats::{Summary, summarize};
use faultless_results::{Unit, grouped};

const COUNT_WIDTH: usize = 18;
const NAME_WIDTH: usize = 30;
const COMMENT_WIDTH: usize = 24;

/// Writes a block for each arm.
pub fn write(report: &StatReport<'_>, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    for arm in report.outcome.arms.iter().filter(|arm| !arm.runs.is_empty()) {
        if report.parts.has_events {
            write_events(report, arm, out)?;
        }
        if report.parts.has_vmstat {
            write_vmstat(report, arm, out)?;
        }
        if arm.runs.iter().any(|run| run.locks.is_some()) {
            writeln!(out, "\n Lock statistics of {}:\n", about(report, arm, "all together"))?;
            write_locks(arm, out)?;
        }
    }
    Ok(())
}

/// Returns what an arm was, how often, and what is shown of its runs.
fn about(report: &StatReport<'_>, arm: &StatArmResult, shown: &str) -> String {
    let runs = match arm.runs.len() {
        1 => String::new(),
        n => format!(" ({n} runs; {shown})"),
    };
    let kind = if report.machine.simulated { format!(", simulated on {}", report.machine.name) } else { String::new() };
    format!("'{}' under {}{kind}{runs}", report.setup.subject.name(), arm.arm)
}

fn write_events(report: &StatReport<'_>, arm: &StatArmResult, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "\n Performance counter stats for {}:\n", about(report, arm, "mean +- standard deviation"))?;
    let elapsed = summarize(&arm.runs.iter().map(|run| run.elapsed_ns as f64).collect::<Vec<f64>>());
    let faults = spread(arm.runs.iter().map(|run| run.faults)).map(|summary| summary.mean);
    let mut never = Vec::new();
    for (place, name) in report.setup.events.iter().enumerate() {
        if report.parts.folds_zeros && is_never(report, place) {
            never.push(&**name);
            continue;
        }
        let comment = |summary: &Summary| comment(name, summary.mean, faults, elapsed.map(|elapsed| elapsed.mean));
        writeln!(out, "{}", line(name, counted(arm, place), comment))?;
    }
    if !never.is_empty() {
        writeln!(out, "{}      {}", right("0", COUNT_WIDTH), never.join(", "))?;
    }
    if let Some(ops) = spread(arm.runs.iter().map(|run| run.ops)) {
        let rates: Option<Vec<f64>> = arm.runs.iter().map(|run| run.ops_per_s).collect();
        let rate = rates.and_then(|rates| summarize(&rates));
        let rate = rate.map_or(String::new(), |rate| format!("# {}", Unit::PerSecond.show(rate.mean)));
        writeln!(out, "{}", line("ops", Some(ops), |_| rate.clone()))?;
    }
    elapsed.map_or(Ok(()), |elapsed| writeln!(out, "\n{}\n", seconds(&elapsed)))
}

/// Returns whether an event was counted and happened in no run of any design.
fn is_never(report: &StatReport<'_>, place: usize) -> bool {
    let mut runs = report.outcome.arms.iter().flat_map(|arm| &arm.runs);
    runs.all(|run| run.counts[place] == Some(0))
}

fn counted(arm: &StatArmResult, place: usize) -> Option<Summary> {
    spread(arm.runs.iter().map(|run| run.counts[place]))
}

fn line(name: &str, summary: Option<Summary>, comment: impl Fn(&Summary) -> String) -> String {
    let Some(summary) = summary else { return format!("{}      {name}", right("<not supported>", COUNT_WIDTH)) };
    let count = right(&grouped(summary.mean.round() as u64), COUNT_WIDTH);
    let comment = left(&comment(&summary), COMMENT_WIDTH);
    let text = format!("{count}      {}{comment}{}", left(name, NAME_WIDTH), deviation(&summary));
    let text = text.trim_end();
    if width(text) <= screen::get().columns {
        return text.to_owned();
    }
    // Without the columns' room, which a narrow screen has not got.
    let parts = [count.trim(), name, comment.trim(), &deviation(&summary)].map(str::to_owned);
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ")
}

/// Returns the standard deviation as a share of the mean; nothing for one run.
fn deviation(summary: &Summary) -> String {
    match summary.deviation {
        None => String::new(),
        Some(deviation) if summary.mean == 0.0 => format!("( +-{deviation:>7.2} )"),
        Some(deviation) => format!("( +-{:>6.2}% )", deviation / summary.mean * 100.0),
    }
}

/// Returns what a count means: of the faults, its share; of everything else, its rate.
fn comment(name: &str, count: f64, faults: Option<f64>, elapsed_ns: Option<f64>) -> String {
    let is_part = name == "spf" || name == "spf-failed" || name.starts_with("pagefault:");
    match (faults, elapsed_ns) {
        (Some(faults), _) if is_part && faults > 0.0 => format!("# {:>6.2}% of faults", count / faults * 100.0),
        _ if is_part => String::new(),
        // A size, not something that happens.
        _ if name == "rss" => "# pages, at most".into(),
        (_, Some(elapsed_ns)) if elapsed_ns > 0.0 && count > 0.0 => {
            format!("# {}", Unit::PerSecond.show(count * 1e9 / elapsed_ns))
        }
        _ => String::new(),
    }
}

fn seconds(elapsed: &Summary) -> String {
    let mean = elapsed.mean / 1e9;
    match elapsed.deviation {
        None => format!("{} seconds time elapsed", right(&format!("{mean:.9}"), COUNT_WIDTH)),
        Some(deviation) => format!(
            "{} +- {:.9} seconds time elapsed  {}",
            right(&format!("{mean:.9}"), COUNT_WIDTH),
            deviation / 1e9,
            self::deviation(elapsed)
        ),
    }
}

/// Writes the counters of all runs together, a name and a number a line.
fn write_vmstat(report: &StatReport<'_>, arm: &StatArmResult, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let has_several = report.outcome.arms.len() > 1 || report.parts.has_events;
    if has_several {
        writeln!(out, "# '{}' under {}, runs: {}", report.setup.subject.name(), arm.arm, arm.runs.len())?;
    }
    for (name, count) in sums(arm) {
        writeln!(out, "{name} {count}")?;
    }
    Ok(())
}

/// Adds up the counters of all runs, in their order.
pub(super) fn sums(arm: &StatArmResult) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for (name, count) in arm.runs.iter().flat_map(|run| &run.vmstat) {
        match sums.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name.clone(), *count)),
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_count_the_name_the_share_and_the_spread() {
        let summary = summarize(&[30_588.0, 30_590.0]);
        let share = |summary: &Summary| comment("pagefault:spf_vma_changed", summary.mean, Some(1_706_379.0), None);
        assert_eq!(
            line("pagefault:spf_vma_changed", summary, share),
            "            30,589      pagefault:spf_vma_changed     #   1.79% of faults     ( +-  0.00% )"
        );
        let none = line("spf", None, |_| unreachable!());
        assert_eq!(none, "   <not supported>      spf");
        assert_eq!(comment("cow", 2e6, Some(9.0), Some(1e9)), "# 2.00 M/s");
        assert_eq!(comment("spf", 0.0, Some(0.0), Some(1e9)), "");
    }

    #[test]
    fn elapsed_time_is_in_seconds() {
        assert_eq!(seconds(&summarize(&[2e8]).expect("one")), "       0.200000000 seconds time elapsed");
        let two = summarize(&[1e9, 3e9]).expect("two");
        assert_eq!(seconds(&two), "       2.000000000 +- 1.414213562 seconds time elapsed  ( +- 70.71% )");
    }
}
