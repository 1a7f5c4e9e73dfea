//! The table of the kernel's 0-day test robot.
//!
//! # Layout
//! Grouped by workload; base, change and head of each other set side by side, with the deviation as a share of the
//! mean; the metric's name last. What got worse and what got better for sure is listed once more below.

use std::io::{self, Write};

use super::{Change, ComparedGroup, Comparison, Direction, Figures, Notable, Row, Significance, Source};
use crate::columns::{self, right, width};
use crate::screen::{self, Tone, toned};

const BASE_WIDTH: usize = 16;
const CHANGE_WIDTH: usize = 12;
const HEAD_WIDTH: usize = 17;
const RULE: usize = 89;

/// Writes the comparison.
pub fn write(comparison: &Comparison, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    write_sources(comparison, out)?;
    comparison.groups.iter().try_for_each(|group| write_group(comparison, group, out))?;
    write_notable(comparison, out)?;
    write_legend(comparison, out)
}

fn write_sources(comparison: &Comparison, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "commit:")?;
    for source in &comparison.sources {
        let (set, label) = (&source.set, &source.label);
        writeln!(out, "  {} (\"{label}\": {}, seed {}; {})", set.commit, set.command, set.seed, set.machine)?;
    }
    for (dimension, values) in &comparison.about {
        writeln!(out, "{dimension}: {}", values.join(" -> "))?;
    }
    writeln!(out)
}

fn write_group(comparison: &Comparison, group: &ComparedGroup, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "{}", "=".repeat(RULE.min(screen::get().columns)))?;
    writeln!(out, "{}:\n  {}\n", group.key.names(), group.key)?;
    let names = group.rows.iter().map(|row| width(&group.key.workload) + 1 + width(&row.metric)).max().unwrap_or(0);
    let room = screen::get().columns.saturating_sub(BASE_WIDTH + 2 + names);
    let at_a_time = (room / (CHANGE_WIDTH + HEAD_WIDTH + 1)).max(1);
    let heads: Vec<usize> = (1..comparison.sources.len()).collect();
    for heads in heads.chunks(at_a_time) {
        write_heading(&comparison.sources, heads, out)?;
        for row in &group.rows {
            writeln!(out, "{}", line(&group.key.workload, row, heads))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_heading(sources: &[Source], heads: &[usize], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let (mut names, mut rules, mut titles, mut marks) = Default::default();
    let columns = |texts: [&mut String; 4], parts: [&str; 4]| {
        texts.into_iter().zip(parts).for_each(|(text, part)| text.push_str(part));
    };
    for place in std::iter::once(0).chain(heads.iter().copied()) {
        let source = &sources[place];
        let to = if place == 0 { BASE_WIDTH } else { CHANGE_WIDTH + HEAD_WIDTH };
        let space = if place == 0 { "" } else { " " };
        let parts = if place == 0 {
            [right("%stddev", to), right("\\  ", to)]
        } else {
            let half =
                |change: &str, head: &str| format!("{}{}", right(change, CHANGE_WIDTH), right(head, HEAD_WIDTH + 1));
            [half("%change", "%stddev"), half("|   ", "\\  ")]
        };
        let name = right(&shortened(&source.label, to), to);
        let texts: [&mut String; 4] = [&mut names, &mut rules, &mut titles, &mut marks];
        columns(texts, [&format!("{space}{name}"), &format!("{space}{}", "-".repeat(to)), &parts[0], &parts[1]]);
    }
    [names, rules, titles, marks].iter().try_for_each(|text| writeln!(out, "{}", text.trim_end()))
}

/// Keeps a text's end, which tells files apart, within a width.
fn shortened(text: &str, to: usize) -> String {
    let length = width(text);
    if length <= to { text.to_owned() } else { text.chars().skip(length - to).collect() }
}

fn line(workload: &str, row: &Row, heads: &[usize]) -> String {
    let heads: String = heads.iter().map(|&place| head(&row.heads[place - 1], row.direction)).collect();
    format!("{}{heads}  {workload}.{}", figures(&row.base, BASE_WIDTH), row.metric)
}

fn head(change: &Option<Change>, direction: Direction) -> String {
    match change {
        None => format!("{}{}", right("", CHANGE_WIDTH), right("<not measured>", HEAD_WIDTH + 1)),
        Some(change) => {
            format!("{} {}", right(&colored(change, direction), CHANGE_WIDTH), figures(&change.figures, HEAD_WIDTH))
        }
    }
}

/// Returns a change in the colour of what it means.
fn colored(change: &Change, direction: Direction) -> String {
    let text = percentage(change);
    match change.finding {
        _ if change.is_improvement(direction) => toned(Tone::Better, &text),
        _ if change.regression(direction).is_some() => toned(Tone::Worse, &text),
        Significance::TooFew | Significance::NotConverged => toned(Tone::Undecided, &text),
        _ => text,
    }
}

/// Returns a change for people: `~` unless it is one for sure.
pub(super) fn percentage(change: &Change) -> String {
    match change.finding {
        Significance::Differs => format!("{:+.1}%", change.share * 100.0),
        Significance::Chance | Significance::TooFew => "~".into(),
        Significance::NotConverged => "unsettled".into(),
    }
}

fn figures(figures: &Figures, to: usize) -> String {
    let spread = match figures.relative_deviation() {
        Some(share) => format!(" ±{:>3.0}%", share * 100.0),
        // One run has no deviation; its place stays empty, so that figures stand under each other.
        None => " ".repeat(6),
    };
    right(&format!("{}{spread}", number(figures.summary.mean)), to)
}

/// Returns a figure as the robot prints it.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0.00".into(),
        size if size >= 1e9 => format!("{value:.3e}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.5}"),
    }
}

fn write_notable(comparison: &Comparison, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let worse: Vec<_> = comparison.regressions(0.0);
    let better: Vec<_> = comparison.changes().filter(|one| one.change.is_improvement(one.row.direction)).collect();
    for (place, (title, list)) in [("Regressions", worse), ("Improvements", better)].into_iter().enumerate() {
        writeln!(out, "{}. {title}:", place + 1)?;
        let rows: Vec<[String; 5]> = list.iter().map(|one| cells(comparison, one)).collect();
        if rows.is_empty() {
            writeln!(out, "none that is more than chance\n")?;
        } else {
            write_cells(&rows, out)?;
        }
    }
    Ok(())
}

fn cells(comparison: &Comparison, one: &Notable<'_>) -> [String; 5] {
    let testcase =
        if comparison.sources.len() > 2 { format!("{} ({})", one.key, one.head) } else { one.key.to_string() };
    let (base, head) = (number(one.row.base.summary.mean), number(one.change.figures.summary.mean));
    [testcase, base, percentage(one.change), head, format!("{}.{}", one.key.workload, one.row.metric)]
}

fn write_cells(rows: &[[String; 5]], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let headings = ["testcase", "base", "change", "head", "metric"].map(str::to_owned);
    let all: Vec<&[String; 5]> = std::iter::once(&headings).chain(rows).collect();
    let widest = |column: usize| all.iter().map(|row| width(&row[column])).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(widest);
    if widths.iter().sum::<usize>() + 8 > screen::get().columns {
        columns::write(&all.iter().map(|row| row.to_vec()).collect::<Vec<_>>(), out)?;
        return writeln!(out);
    }
    for row in &all {
        let figures: String = (1..4).map(|column| format!("  {}", right(&row[column], widths[column]))).collect();
        writeln!(out, "{}{figures}  {}", columns::left(&row[0], widths[0]), row[4])?;
    }
    writeln!(out)
}

fn write_legend(comparison: &Comparison, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let numbers = comparison.groups.iter().flat_map(|group| &group.rows).flat_map(|row| {
        let heads = row.heads.iter().flatten().map(|change| change.figures.summary.n);
        std::iter::once(row.base.summary.n).chain(heads)
    });
    let mut numbers: Vec<usize> = numbers.collect();
    numbers.sort_unstable();
    let (least, most) = (numbers.first().unwrap_or(&0), numbers.last().unwrap_or(&0));
    let n = if least == most { least.to_string() } else { format!("{least} to {most}") };
    writeln!(
        out,
        "mean ± standard deviation in % of it, n {n} a side; ~ is no difference: p >= 0.05 (Mann-Whitney U), or fewer than 5 \
         samples a side"
    )
}
