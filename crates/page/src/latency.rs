//! How many operations, or faults, take longer than a time: a line for each design, both axes logarithmic.
//!
//! # Guarantee
//! Lines come from the whole distribution where the result set holds it, otherwise from its
//! percentiles, and the caption says which. A table beneath has the percentiles in figures: lines may cover each other,
//! figures don't.

use faultless_results::designs::Style;
use faultless_results::stats::{Histogram, median};
use faultless_results::verdict::{Group, arm_name, beside};
use faultless_results::{Measured, ResultSet, Unit};

use crate::markup::{Markup, px};
use crate::plot::{About, Axis, Frame, Width, figure, legend, line_class, mark, short};
use crate::scale::{Kind, Scale};
use crate::table::{self, Cell};

/// The least share of operations that a line goes down to.
const RAREST: f64 = 1e-5;

struct LatencyLine {
    name: String,
    style: Style,
    /// Nanoseconds, and the share that takes longer.
    points: Vec<(f64, f64)>,
    /// The percentiles among them, which get marks.
    marks: Vec<(f64, f64)>,
}

/// What a plot is of: the metrics of its percentiles begin so.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// `op`, `fault`.
    pub prefix: &'a str,
    /// Words for several of them.
    pub many: &'a str,
}

/// Writes the plot of a group's designs on so many CPUs, if there is anything to plot.
pub fn write(
    out: &mut Markup,
    set: &ResultSet,
    group: &Group<'_>,
    cpus: usize,
    of: Of<'_>,
    names: &[String],
    machine: &str,
) {
    let arms: Vec<&Measured> = group.arms.iter().copied().filter(|arm| arm.cpus == cpus).collect();
    let lines: Vec<LatencyLine> = arms.iter().filter_map(|arm| line(set, arm, of, names)).collect();
    if lines.is_empty() {
        return;
    }
    let is_whole = lines.iter().any(|line| line.points.len() > line.marks.len());
    let source =
        if is_whole { "the whole distribution of all runs" } else { "the medians over runs of three percentiles" };
    let slowest = lines.iter().filter_map(|line| Some((line.marks.last()?.0, &line.name)));
    let slowest = slowest.max_by(|(one, _), (other, _)| one.total_cmp(other));
    let about = About {
        title: format!("{}: how long {} take on {cpus} CPUs", group.name, of.many),
        told: slowest.map_or(String::new(), |(ns, name)| {
            format!("The slowest thousandth takes longest under {name}, {}.", short("ns", ns))
        }),
        caption: format!(
            "How many of a hundred {} take longer than the time below: further left is better. Marks only tell the \
             lines apart. From {source}; both axes are logarithmic.",
            of.many
        ),
        machine,
        is_simulated: set.machine.simulated,
    };
    figure(
        out,
        &about,
        |_| 320.0,
        |out, width| draw(out, width, &lines, of),
        |out| {
            legend(out, lines.iter().map(|line| (&*line.name, line.style)));
        },
    );
    let together = if is_whole { ", all runs together" } else { ", medians of the runs" };
    write_table(out, &lines, &format!("{}{together}", about.title));
}

/// The percentiles that have names: the share that takes longer, its metric's end, and words.
const NAMED: [(f64, &str, &str); 3] =
    [(0.5, "p50", "median"), (0.01, "p99", "1 % take longer than"), (0.001, "p999", "0.1 % take longer than")];

fn write_table(out: &mut Markup, lines: &[LatencyLine], title: &str) {
    let cell = |line: &LatencyLine, wanted: f64| {
        let found = line.marks.iter().find(|(_, share)| *share == wanted);
        found.map_or_else(|| Cell::text("-"), |(ns, _)| Cell::figure(*ns, Unit::Ns.show(*ns)))
    };
    let row = |line: &LatencyLine| {
        let cells = NAMED.iter().map(|(share, ..)| cell(line, *share));
        std::iter::once(Cell::text(&*line.name)).chain(cells).collect()
    };
    let headings: Vec<&str> = std::iter::once("design").chain(NAMED.iter().map(|(.., words)| *words)).collect();
    out.within("details", &[], |out| {
        out.line("summary", &[], "In figures: median, slowest 1 % and 0.1 %");
        table::write(out, title, &headings, &lines.iter().map(row).collect::<Vec<Vec<Cell>>>());
    });
}

fn line(set: &ResultSet, arm: &Measured, of: Of<'_>, names: &[String]) -> Option<LatencyLine> {
    let name = arm_name(set, arm);
    let percentile = |end: &str| beside(set, arm, &format!("{}_{end}_ns", of.prefix));
    let marks: Vec<(f64, f64)> = NAMED
        .iter()
        .filter_map(|(share, end, _)| Some((median(&percentile(end)?.samples)?, *share)))
        .filter(|(ns, _)| *ns > 0.0)
        .collect();
    let whole = percentile("p50").and_then(Measured::distribution);
    let style = Style::of(&name, names);
    let (points, marks) = match whole {
        Some(histogram) => {
            let exact = NAMED.iter().filter_map(|(share, ..)| {
                Some((histogram.percentile(1000 - (share * 1000.0).round() as u64)? as f64, *share))
            });
            (longer(&histogram), exact.filter(|(ns, _)| *ns > 0.0).collect())
        }
        None => (marks.clone(), marks),
    };
    (!points.is_empty()).then_some(LatencyLine { name, style, points, marks })
}

/// Returns the share that takes longer, for each time of a histogram.
fn longer(histogram: &Histogram) -> Vec<(f64, f64)> {
    let total = histogram.total() as f64;
    let mut left = histogram.total();
    let mut points = Vec::new();
    for (ns, count) in histogram.pairs() {
        let ns = (ns as f64).max(1.0);
        points.push((ns, left as f64 / total));
        left -= count;
        points.push((ns, left as f64 / total));
    }
    points.retain(|(_, share)| *share >= RAREST);
    points
}

fn draw(out: &mut Markup, width: Width, lines: &[LatencyLine], of: Of<'_>) {
    let points = || lines.iter().flat_map(|line| line.points.iter().chain(&line.marks));
    let x = Scale::around(Kind::Log, points().map(|point| point.0), (62.0, width.pixels() - 18.0)).with_margin(0.03);
    let lowest = points().map(|point| point.1).fold(0.001, f64::min);
    let y = Scale { kind: Kind::Log, ends: (lowest * 0.8, 1.0), places: (270.0, 46.0) };
    let frame = Frame { x, y };
    let title = format!("share of {} that take longer (%)", of.many);
    frame.draw_left(out, Axis { title: &title, unit: "share" }, &[1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001]);
    frame.draw_lower(out, Axis { title: "time (ns, us, ms), logarithmic", unit: "ns" }, &x.ticks(width.ticks()));
    for (place, line) in lines.iter().enumerate() {
        let places = line.points.iter().filter_map(|&(x, y)| frame.point(x, y));
        let places: Vec<String> = places.map(|(x, y)| format!("{} {}", px(x), px(y))).collect();
        let class = line_class(line.style);
        out.empty("path", &[("class", &class), ("d", &format!("M{}", places.join("L")))]);
        for (ns, share) in signs(line, place, lines.len()) {
            if let Some(at) = frame.point(ns, share) {
                let told = format!("{}: {} take longer than {}", line.name, short("share", share), short("ns", ns));
                mark(out, line.style, at, false, &told);
            }
        }
    }
}

/// Returns where a line is marked: one place in each power of ten of shares, another for each line, so that marks of
/// lines that lie on each other don't.
fn signs(line: &LatencyLine, place: usize, many: usize) -> Vec<(f64, f64)> {
    if line.points.len() <= line.marks.len() {
        return line.marks.clone();
    }
    let step = (place as f64 + 0.5) / many.max(1) as f64;
    let shares = (0..4).map(|decade| 10f64.powf(-f64::from(decade) - step));
    // The first point at or below a share is where the line falls to it.
    let at = |share: f64| line.points.iter().find(|point| point.1 <= share).map(|point| (point.0, share));
    shares.filter_map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_takes_longer_falls_from_all_to_none() {
        let histogram = Histogram::from_pairs([(10, 90), (20, 9), (40, 1)]);
        let points = longer(&histogram);
        assert_eq!(points.first(), Some(&(10.0, 1.0)));
        assert!(points.is_sorted_by(|one, other| one.0 <= other.0 && one.1 >= other.1), "{points:?}");
        assert!((points.last().expect("some").1 - 0.01).abs() < 1e-9);
    }
}
