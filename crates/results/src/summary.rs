//! A comparison in a pull request: GitHub's Markdown, the verdict first, the figures folded away.
//!
//! # Guarantee
//! The first line says whether anything got worse for sure; a figure of which nobody can tell is counted as undecided,
//! not as unchanged.

use std::io::{self, Write};

use crate::Unit;
use crate::compare::{Change, Comparison, Notable, Significance, markdown as table};
use crate::markdown::{escaped, head, row};

/// The most rows that stand in the open; the rest is in the table that is folded away.
const SHOWN: usize = 20;

/// Writes the summary.
pub fn write(comparison: &Comparison, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let worse = comparison.regressions(0.0);
    let better: Vec<Notable<'_>> =
        comparison.changes().filter(|one| one.change.is_improvement(one.row.direction)).collect();
    writeln!(out, "### {}\n", headline(comparison, worse.len(), better.len()))?;
    for source in &comparison.sources {
        let (set, label) = (&source.set, &source.label);
        let said = format!("{}: {} at {}, seed {}; {}", label, set.command, set.commit, set.seed, set.machine);
        writeln!(out, "* {}", escaped(&said))?;
    }
    write_changes("Worse", ":red_circle:", &worse, out)?;
    write_changes("Better", ":green_circle:", &better, out)?;
    writeln!(out, "\n<details><summary>All figures</summary>\n")?;
    table::write(comparison, out)?;
    writeln!(out, "\n</details>\n")?;
    writeln!(
        out,
        "A difference is one with five samples a side and p < 0.05 (Mann-Whitney U). {}",
        doubts(comparison).join(" ")
    )
}

fn headline(comparison: &Comparison, worse: usize, better: usize) -> String {
    let all = comparison.changes().count();
    let figures = |many: usize| if many == 1 { "1 figure".to_owned() } else { format!("{many} figures") };
    let open = comparison.nr_too_few() + comparison.nr_not_converged();
    let rest = if open > 0 { format!(", {open} undecided") } else { String::new() };
    let first = match (worse, better) {
        (0, 0) if open == all => return format!("Undecided: none of {} can be judged", figures(all)),
        (0, 0) => "No difference".to_owned(),
        (0, better) => format!("{} better, none worse", figures(better)),
        (worse, 0) => format!("{} worse, none better", figures(worse)),
        (worse, better) => format!("{} worse, {better} better", figures(worse)),
    };
    format!("{first}, of {all}{rest}")
}

fn write_changes(title: &str, sign: &str, list: &[Notable<'_>], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{sign} **{title}**\n")?;
    head(&["workload", "metric", "base", "change", "head", "p"], out)?;
    for one in list.iter().take(SHOWN) {
        row(&cells(one), out)?;
    }
    match list.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "\nand {more} more, below"),
    }
}

fn cells(one: &Notable<'_>) -> [String; 6] {
    let show = |value: f64| Unit::show_named(&one.row.unit, value);
    [
        format!("{} ({})", one.key, one.head),
        one.row.metric.clone(),
        show(one.row.base.summary.mean),
        percentage(one.change),
        show(one.change.figures.summary.mean),
        format!("{:.3}", one.change.p),
    ]
}

fn percentage(change: &Change) -> String {
    if change.finding == Significance::Differs { format!("{:+.1} %", change.share * 100.0) } else { "~".into() }
}

fn doubts(comparison: &Comparison) -> Vec<String> {
    let machine = &comparison.sources[0].set.machine;
    let is_other = comparison.sources.iter().any(|source| source.set.machine != *machine);
    let alone = comparison.alone.iter().map(Vec::len).sum::<usize>();
    let said = [
        is_other.then(|| "The machines are not the same.".to_owned()),
        machine.simulated.then(|| "The machine is simulated.".to_owned()),
        (alone > 0).then(|| format!("{alone} figures are in one result alone.")),
    ];
    said.into_iter().flatten().collect()
}
