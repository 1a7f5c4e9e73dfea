//! The table of Go's benchstat.
//!
//! # Layout
//! One table for each metric: a row for each workload, the median and its distribution-free 95 % interval, the change
//! with its p and n, and the geometric mean below. An interval needs six samples; with fewer it is `± ∞`.

use std::io::{self, Write};

use super::{Change, Comparison, Figures, Row, Significance};
use crate::columns::{self, left, right, width};
use crate::screen;
use crate::stats::{median, median_interval};
use crate::{NOT_CONVERGED, Unit};

/// A line of a table: a name and a cell for each set.
type Line = (String, Vec<[String; 3]>);

/// Writes the comparison.
pub fn write(comparison: &Comparison, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    for source in &comparison.sources {
        writeln!(out, "{}: {} at {}; {}", source.label, source.set.command, source.set.commit, source.set.machine)?;
    }
    for (dimension, values) in &comparison.about {
        writeln!(out, "{dimension}: {}", values.join(" -> "))?;
    }
    for (metric, unit) in metrics(comparison) {
        writeln!(out)?;
        write_metric(comparison, &metric, &unit, out)?;
    }
    if comparison.nr_too_few() > 0 {
        writeln!(out, "\n¹ need >= 5 samples a side to show a difference")?;
    }
    Ok(())
}

fn metrics(comparison: &Comparison) -> Vec<(String, String)> {
    let mut metrics: Vec<(String, String)> = Vec::new();
    for row in comparison.groups.iter().flat_map(|group| &group.rows) {
        let name = (row.metric.clone(), row.unit.clone());
        if !metrics.contains(&name) {
            metrics.push(name);
        }
    }
    metrics
}

fn write_metric(comparison: &Comparison, metric: &str, unit: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let groups = comparison.groups.iter();
    let found = groups
        .filter_map(|group| Some((group, group.rows.iter().find(|row| row.metric == metric && row.unit == unit)?)));
    let rows: Vec<(String, &Row)> = found.map(|(group, row)| (group.key.to_string(), row)).collect();
    let mut lines: Vec<Line> = rows.iter().map(|(name, row)| (name.clone(), cells(row))).collect();
    if rows.len() > 1 {
        lines.push(("geomean".into(), geomeans(comparison, &rows)));
    }
    write_lines(comparison, metric, &lines, out)
}

/// Returns for each set: the median, its interval, and the change.
fn cells(row: &Row) -> Vec<[String; 3]> {
    let of = |figures: &Figures, change: String| {
        let middle = median(&figures.samples).unwrap_or(f64::NAN);
        [Unit::show_named(&row.unit, middle), interval(&figures.samples, middle), change]
    };
    let heads = row.heads.iter().map(|head| match head {
        None => ["<not measured>".into(), String::new(), String::new()],
        Some(change) => of(&change.figures, versus(&row.base, change)),
    });
    std::iter::once(of(&row.base, String::new())).chain(heads).collect()
}

fn interval(samples: &[f64], middle: f64) -> String {
    match median_interval(samples) {
        None if samples.len() < 2 => String::new(),
        None => "± ∞".into(),
        Some((low, high)) if middle != 0.0 => {
            format!("± {:.0}%", ((high - middle).max(middle - low) / middle.abs() * 100.0).abs())
        }
        Some((low, high)) => format!("± {:.3}", (high - middle).max(middle - low)),
    }
}

fn versus(base: &Figures, change: &Change) -> String {
    let (before, after) = (base.summary.n, change.figures.summary.n);
    let n = if before == after { format!("n={before}") } else { format!("n={before}+{after}") };
    match change.finding {
        Significance::Differs => format!("{:+.2}% (p={:.3} {n})", shift(base, change) * 100.0, change.p),
        Significance::Chance => format!("~ (p={:.3} {n})", change.p),
        Significance::TooFew => format!("~ (p={:.3} {n}) ¹", change.p),
        Significance::NotConverged => format!("~ ({NOT_CONVERGED})"),
    }
}

/// Returns the difference of the medians as a share of the base's.
fn shift(base: &Figures, change: &Change) -> f64 {
    let (before, after) = (median(&base.samples).unwrap_or(0.0), median(&change.figures.samples).unwrap_or(0.0));
    (after - before) / before.abs()
}

/// Returns the geometric means of the medians, and of the ratios, over rows that all sets have.
fn geomeans(comparison: &Comparison, rows: &[(String, &Row)]) -> Vec<[String; 3]> {
    let column = |row: &Row, place: usize| match place {
        0 => median(&row.base.samples),
        _ => row.heads[place - 1].as_ref().and_then(|change| median(&change.figures.samples)),
    };
    let whole: Vec<&Row> = rows.iter().map(|(_, row)| *row).filter(|row| row.heads.iter().all(is_judged)).collect();
    let mean = |place: usize| geomean(&whole.iter().filter_map(|row| column(row, place)).collect::<Vec<f64>>());
    let base = mean(0);
    let unit = rows.first().map_or("", |(_, row)| &row.unit);
    let cell = |place: usize| match (mean(place), base) {
        (Some(value), Some(base)) => {
            let change = if place == 0 { String::new() } else { format!("{:+.2}%", (value / base - 1.0) * 100.0) };
            [Unit::show_named(unit, value), String::new(), change]
        }
        _ => ["-".into(), String::new(), String::new()],
    };
    (0..comparison.sources.len()).map(cell).collect()
}

/// Says whether a set has the figure, and it was not measured before rates had settled.
fn is_judged(change: &Option<Change>) -> bool {
    change.as_ref().is_some_and(|change| change.finding != Significance::NotConverged)
}

/// Returns the geometric mean; nothing if a value is not positive.
fn geomean(values: &[f64]) -> Option<f64> {
    let is_defined = !values.is_empty() && values.iter().all(|value| *value > 0.0);
    is_defined.then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

fn write_lines(
    comparison: &Comparison,
    metric: &str,
    lines: &[Line],
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let names = lines.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let nr_sets = comparison.sources.len();
    let widest = |set: usize, part: usize| lines.iter().map(|(_, cells)| width(&cells[set][part])).max().unwrap_or(0);
    let inner: Vec<[usize; 3]> = (0..nr_sets).map(|set| std::array::from_fn(|part| widest(set, part))).collect();
    let titles: Vec<String> =
        (0..nr_sets).map(|set| if set == 0 { metric.to_owned() } else { format!("{metric}  vs base") }).collect();
    let room = |set: usize| {
        let cell = inner[set].iter().sum::<usize>() + if set == 0 { 1 } else { 3 };
        cell.max(width(&titles[set])).max(width(&comparison.sources[set].label))
    };
    let rooms: Vec<usize> = (0..nr_sets).map(room).collect();
    let heading = |texts: Vec<&str>| {
        let cells: String = texts.iter().zip(&rooms).map(|(text, &to)| format!(" │ {}", centred(text, to))).collect();
        format!("{}{cells} │", left("", names))
    };
    let total = names + rooms.iter().map(|room| room + 3).sum::<usize>() + 2;
    if total > screen::get().columns {
        return write_apart(comparison, metric, lines, out);
    }
    writeln!(out, "{}", heading(comparison.sources.iter().map(|source| source.label.as_str()).collect()))?;
    writeln!(out, "{}", heading(titles.iter().map(String::as_str).collect()))?;
    for (name, cells) in lines {
        let texts = cells
            .iter()
            .zip(&inner)
            .zip(&rooms)
            .map(|((cell, parts), &to)| format!("   {}", left(&joined(cell, parts), to)));
        writeln!(out, "{}", format!("{}{}", left(name, names), texts.collect::<String>()).trim_end())?;
    }
    Ok(())
}

/// Writes what is too wide to stand side by side: in blocks that fit, each with the names in front.
fn write_apart(
    comparison: &Comparison,
    metric: &str,
    lines: &[Line],
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let heads = comparison.sources.iter().enumerate().flat_map(|(place, source)| {
        let versus = if place == 0 { None } else { Some("vs base".to_owned()) };
        std::iter::once(source.label.clone()).chain(versus)
    });
    let mut rows: Vec<Vec<String>> = vec![std::iter::once(metric.to_owned()).chain(heads).collect()];
    for (name, cells) in lines {
        let cells = cells.iter().enumerate().flat_map(|(place, [middle, interval, change])| {
            let figure = format!("{middle} {interval}").trim_end().to_owned();
            std::iter::once(figure).chain((place > 0).then(|| change.clone()))
        });
        rows.push(std::iter::once(name.clone()).chain(cells).collect());
    }
    columns::write(&rows, out)
}

fn joined(cell: &[String; 3], parts: &[usize; 3]) -> String {
    let figures = format!("{} {}", right(&cell[0], parts[0]), left(&cell[1], parts[1]));
    if parts[2] == 0 { figures } else { format!("{figures}  {}", left(&cell[2], parts[2])) }
}

fn centred(text: &str, to: usize) -> String {
    let space = to.saturating_sub(width(text));
    format!("{}{text}{}", " ".repeat(space / 2), " ".repeat(space - space / 2))
}
