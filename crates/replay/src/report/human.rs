//! The table for people.

use faultless_machine::info;
use std::io::{self, Write};

use super::Report;
use super::metrics::Metric;
use super::verdict;
use crate::experiment::{Checks, ReplayArmResult};
use faultless_plan::classes::Class;
use faultless_plan::{Pace, Totals};
use faultless_results::{Measured, ResultSet, Unit, columns, grouped};

/// What a cell of the table holds: the figure that the verdict and pages have.
pub(super) const SHOWN: &str = "median of the runs [least, most]; of latencies that of all runs' times together";

/// Writes the report.
pub fn write(report: &Report<'_>, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    write_head(report, out)?;
    let set = super::result_set(report);
    let (shown, folded) = folded(report, &set);
    columns::write_designs(&shown, 1, out)?;
    if !folded.is_empty() {
        writeln!(out, "{folded}")?;
    }
    super::patterned::write(report, out)?;
    writeln!(out)?;
    write_checks(&report.outcome.checks, out)?;
    write_refused(&report.outcome.totals, out)?;
    writeln!(out, "{}", verdict::text(&set))?;
    info::write_parameters(report.machine, out)
}

fn write_head(report: &Report<'_>, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let (done, most) = runs_done(&report.outcome.arms);
    let of_asked = if most == report.setup.runs { String::new() } else { format!(" (of {} asked)", report.setup.runs) };
    writeln!(out, "Replay of {}: {}", report.workload, report.header.command_line())?;
    writeln!(out, "machine   {}", report.machine)?;
    writeln!(
        out,
        "runs      {done}{of_asked} of each design, in turn, seed {}{}",
        report.setup.seed,
        if most > 1 { format!("; {SHOWN}, n {done}") } else { String::new() }
    )?;
    if report.setup.pace == Pace::None {
        writeln!(out, "pace      none: upper bound on contention: blocking not replayed")?;
    } else {
        writeln!(out, "pace      recorded: computing as on-CPU time, and wakes")?;
    }
    if !report.header.missing.is_empty() {
        let missing: Vec<&str> = report.header.missing.iter().map(|missing| missing.name()).collect();
        let is_blind = report.header.missing.iter().any(|missing| missing.is_of_faults());
        let so = if is_blind { ", so no page is strict" } else { "" };
        writeln!(out, "missing   {} (not in the recording{so})", missing.join(", "))?;
    }
    writeln!(out)
}

/// Returns how many runs the designs had, in words and at most: an interrupt leaves out the last ones.
pub(super) fn runs_done(arms: &[ReplayArmResult]) -> (String, usize) {
    let nr_runs = || arms.iter().map(|arm| arm.passes.len());
    let (least, most) = (nr_runs().min().unwrap_or(0), nr_runs().max().unwrap_or(0));
    (if least == most { most.to_string() } else { format!("{least} to {most}") }, most)
}

/// Returns the table: headings, then a row for each figure.
pub(super) fn rows(report: &Report<'_>, set: &ResultSet) -> Vec<Vec<String>> {
    let arms = &report.outcome.arms;
    let mut rows = vec![heading("design", arms, |arm| arm.arm.design.clone())];
    rows.push(heading("semaphore", arms, |arm| named(&arm.arm.semaphore)));
    rows.push(heading("CPUs", arms, |arm| arm.arm.cpus.to_string()));
    for metric in Metric::ALL {
        rows.push(heading(metric.title, arms, |arm| cell(set, metric, arm)));
    }
    rows
}

/// Returns the table without what is 0 under all designs or has none of them, and a line that names that.
fn folded(report: &Report<'_>, set: &ResultSet) -> (Vec<Vec<String>>, String) {
    let arms = &report.outcome.arms;
    let is_told = |metric: &Metric| {
        let all: Vec<Vec<f64>> = arms.iter().filter_map(|arm| metric.samples(arm)).collect();
        let is_nothing = all.iter().flatten().all(|sample| *sample == 0.0);
        !(is_nothing && (metric.unit == Unit::Count || all.is_empty()))
    };
    let shown = rows(report, set);
    let nr_heads = shown.len() - Metric::ALL.len();
    let (heads, figures) = shown.split_at(nr_heads);
    let told = figures.iter().zip(Metric::ALL).filter(|(_, metric)| is_told(metric)).map(|(row, _)| row);
    let untold = |has_none: bool| {
        let is_one =
            |metric: &&Metric| !is_told(metric) && arms.iter().all(|arm| metric.samples(arm).is_none()) == has_none;
        Metric::ALL.iter().filter(is_one).map(|metric| metric.name).collect::<Vec<_>>().join(", ")
    };
    let lines = [("0 under all designs", untold(false)), ("not counted", untold(true))];
    let lines = lines.iter().filter(|(_, names)| !names.is_empty()).map(|(what, names)| format!("{what}: {names}"));
    (heads.iter().chain(told).cloned().collect(), lines.collect::<Vec<_>>().join("\n"))
}

fn heading(title: &str, arms: &[ReplayArmResult], cell: impl Fn(&ReplayArmResult) -> String) -> Vec<String> {
    std::iter::once(title.to_owned()).chain(arms.iter().map(cell)).collect()
}

fn cell(set: &ResultSet, metric: &Metric, arm: &ReplayArmResult) -> String {
    let ReplayArmResult { arm, .. } = arm;
    let semaphore = Some(&arm.semaphore).filter(|semaphore| !semaphore.is_empty());
    let is_it = |one: &&Measured| {
        (&*one.metric, &one.design, one.semaphore.as_ref(), one.cpus) == (metric.name, &arm.design, semaphore, arm.cpus)
    };
    let figure = set.results.iter().find(is_it);
    let Some((figure, middle)) = figure.and_then(|figure| Some((figure, set.middle(figure)?))) else {
        return "<not supported>".into();
    };
    let [least, most] = [f64::min, f64::max].map(|pick| figure.samples.iter().copied().reduce(pick).unwrap_or(middle));
    let [middle, least, most] = [middle, least, most].map(|figure| metric.unit.show(figure));
    if least == most { middle } else { format!("{middle} [{least}, {most}]") }
}

fn write_checks(checks: &Checks, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    writeln!(
        out,
        "checked   {} events, {} faults recorded and {} here; {} strict ({:.1} %); mismatches {}, passes {}",
        grouped(checks.events),
        grouped(checks.faults_recorded),
        grouped(checks.faults_replayed),
        grouped(checks.strict),
        percent(checks.strict, checks.faults_recorded),
        grouped(checks.mismatches),
        checks.passes
    )?;
    let shares = Class::ALL.map(|class| format!("{} {:.2} %", class.name(), checks.share(class) * 100.0));
    writeln!(out, "explained {}", shares.join(", "))?;
    if checks.applied > 0 {
        writeln!(out, "began     {} events in, when what stood in memory had been read", checks.applied)?;
        let (compared, applied) = (checks.faults_recorded, checks.faults_applied);
        let (all, share) = (grouped(compared + applied), percent(compared, compared + applied));
        let (compared, applied) = (grouped(compared), grouped(applied));
        writeln!(
            out,
            "compared  {compared} of {all} faults ({share:.1} %); {applied} came before and are only applied"
        )?;
    }
    write_counts("imposed  ", &checks.imposed, out)?;
    write_counts("skipped  ", &checks.skipped, out)?;
    if checks.lost > 0 {
        writeln!(out, "lost      {} records of the recording", checks.lost)?;
    }
    Ok(())
}

/// Says how many accesses Linux must have answered with a signal or EFAULT. Few programs do that on purpose, so more
/// than a few betray a recording that is not what happened.
fn write_refused(totals: &Totals, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let Totals { outside, forbidden, .. } = totals;
    if outside + forbidden == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "refused   {outside} accesses outside all areas, {forbidden} that an area forbids: a signal or EFAULT each"
    )
}

fn write_counts(title: &str, counts: &[(&'static str, u64)], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let words: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    if words.is_empty() { Ok(()) } else { writeln!(out, "{title} {}", words.join(", ")) }
}

/// The host's kernel has a semaphore of its own, without a name here.
fn named(semaphore: &str) -> String {
    if semaphore.is_empty() { "-".into() } else { semaphore.to_owned() }
}
