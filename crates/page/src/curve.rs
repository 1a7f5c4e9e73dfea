//! Throughput against CPUs: a line for each design, with intervals, and the ideal line.
//!
//! # Guarantee
//! The ideal line is what the command measured as linear, if it did (`--ceiling`); otherwise the best rate on the
//! fewest CPUs times their number, and the caption says which.

use faultless_results::{ResultSet, Unit};
use serde_json::Value;

use crate::arms::{Group, arm_name, cpus, ends_are, middle};
use crate::markup::{Markup, px};
use crate::plot::{About, Axis, Frame, Width, figure, fitting, legend, mark, short};
use crate::scale::Scale;

/// A line of the plot.
struct Line {
    name: String,
    style: usize,
    /// By CPUs: the median, the ends, and whether the rates had settled.
    points: Vec<(f64, f64, (f64, f64), bool)>,
}

/// Writes the plot of a group; `names` gives styles.
pub fn write(out: &mut Markup, set: &ResultSet, group: &Group<'_>, names: &[String], machine: &str) {
    let lines = lines(set, group, names);
    let (ideal, ideal_is) = ideal(group);
    let highest = cpus(group).last().copied().unwrap_or(1);
    let best = lines.iter().filter_map(|line| Some((line.points.last()?.1, &line.name)));
    let best = best.max_by(|(one, _), (other, _)| one.total_cmp(other));
    let told = best.map_or(String::new(), |(rate, name)| {
        format!("On {highest} CPUs {name} does most, {}.", Unit::PerSecond.show(rate))
    });
    let about = About {
        title: format!("{}: throughput against CPUs", group.name),
        told,
        caption: format!(
            "Marks are medians; {}. The dotted line without marks is ideal: {ideal_is}. Hollow marks: the rates had \
             not \
             settled.",
            ends_are(group.arms.iter().map(|arm| &arm.samples))
        ),
        machine,
        is_simulated: set.machine.simulated,
    };
    let draw = |out: &mut Markup, width: Width| draw(out, width, &lines, &ideal, &cpus(group));
    figure(
        out,
        &about,
        |_| 340.0,
        draw,
        |out| {
            legend(out, lines.iter().map(|line| (&*line.name, line.style)));
        },
    );
}

fn lines(set: &ResultSet, group: &Group<'_>, names: &[String]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for arm in &group.arms {
        let Some(middle) = middle(&arm.samples) else { continue };
        let name = arm_name(set, arm);
        let point = (arm.cpus as f64, middle.median, (middle.low, middle.high), arm.has_converged());
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => {
                let style = names.iter().position(|known| *known == name).unwrap_or(0);
                lines.push(Line { name, style, points: vec![point] });
            }
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|one, other| one.0.total_cmp(&other.0)));
    lines
}

/// Returns the ideal line, and what it is.
fn ideal(group: &Group<'_>) -> (Vec<(f64, f64)>, &'static str) {
    let cpus = cpus(group);
    let measured = |cpus: usize| {
        let rates = group.arms.iter().filter(|arm| arm.cpus == cpus);
        rates.filter_map(|arm| arm.more.get("linear")?.get("ops_per_s").and_then(Value::as_f64)).reduce(f64::max)
    };
    let ceiling: Option<Vec<(f64, f64)>> = cpus.iter().map(|&cpus| Some((cpus as f64, measured(cpus)?))).collect();
    if let Some(ceiling) = ceiling {
        return (ceiling, "what the machine can do at most, by one CPU's rate, its cores and its memory bus");
    }
    let fewest = cpus.first().copied().unwrap_or(1);
    let rates = group.arms.iter().filter(|arm| arm.cpus == fewest).filter_map(|arm| Some(middle(&arm.samples)?.median));
    let best = rates.fold(0.0, f64::max) / fewest as f64;
    let line = cpus.iter().map(|&cpus| (cpus as f64, best * cpus as f64)).collect();
    (line, "the best rate on the fewest CPUs, times as many CPUs")
}

fn draw(out: &mut Markup, width: Width, lines: &[Line], ideal: &[(f64, f64)], cpus: &[usize]) {
    let points = || lines.iter().flat_map(|line| &line.points);
    let right = width.pixels() - if width == Width::Wide { 110.0 } else { 16.0 };
    let across = cpus.iter().map(|&cpus| cpus as f64);
    let x = Scale::around(fitting(across.clone(), 6.0), across.clone(), (66.0, right));
    let rates = points().flat_map(|point| [point.1, point.2.0, point.2.1]).chain(ideal.iter().map(|point| point.1));
    let y = Scale::around(fitting(rates.clone(), 30.0), rates, (290.0, 46.0))
        .begun_at_zero()
        .with_margin(0.03)
        .begun_at_zero();
    let y = if y.ends.0 < 0.0 { Scale { ends: (0.0, y.ends.1), ..y } } else { y };
    let frame = Frame { x: x.with_margin(0.03), y };
    frame.draw_left(out, Axis { title: "operations in a second, all workers", unit: "ops/s" }, &y.ticks(6));
    frame.draw_lower(out, Axis { title: "CPUs (number)", unit: "" }, &across.collect::<Vec<_>>());
    let path = path(&frame, ideal.iter().copied());
    out.empty("path", &[("class", "ideal"), ("d", &path)]);
    for line in lines {
        draw_line(out, &frame, line);
    }
    if width == Width::Wide {
        draw_names(out, &frame, lines, ideal);
    }
}

fn path(frame: &Frame, points: impl Iterator<Item = (f64, f64)>) -> String {
    let places = points.filter_map(|(x, y)| frame.point(x, y)).map(|(x, y)| format!("{} {}", px(x), px(y)));
    format!("M{}", places.collect::<Vec<_>>().join("L"))
}

fn draw_line(out: &mut Markup, frame: &Frame, line: &Line) {
    let class = format!("l s{}", line.style % crate::plot::STYLES);
    let along = path(frame, line.points.iter().map(|point| (point.0, point.1)));
    out.empty("path", &[("class", &class), ("d", &along)]);
    for &(cpus, median, (low, high), has_converged) in &line.points {
        if let (Some((x, bottom)), Some((_, top))) = (frame.point(cpus, low), frame.point(cpus, high)) {
            let (x, y1, y2) = (px(x), px(bottom), px(top));
            let class = format!("whisker s{}", line.style % crate::plot::STYLES);
            out.empty("line", &[("class", &class), ("x1", &x), ("x2", &x), ("y1", &y1), ("y2", &y2)]);
        }
        if let Some(at) = frame.point(cpus, median) {
            let show = |figure: f64| short("ops/s", figure);
            let told = format!("{}, {cpus} CPUs: {} [{}, {}]", line.name, show(median), show(low), show(high));
            mark(out, line.style, at, !has_converged, &told);
        }
    }
}

/// Writes the names at the lines' right ends, moved apart where they would cover each other.
fn draw_names(out: &mut Markup, frame: &Frame, lines: &[Line], ideal: &[(f64, f64)]) {
    let end = |points: Option<(f64, f64)>| points.and_then(|(x, y)| frame.point(x, y));
    let mut names: Vec<(f64, &str)> = lines
        .iter()
        .filter_map(|line| Some((end(line.points.last().map(|point| (point.0, point.1)))?.1, &*line.name)))
        .chain(end(ideal.last().copied()).map(|(_, y)| (y, "ideal")))
        .collect();
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = 20.0;
    // What is left below must have room for all that still come.
    let many = names.len();
    for (place, (y, name)) in names.into_iter().enumerate() {
        let most = frame.y.places.0 - (many - 1 - place) as f64 * 14.0;
        let at = y.max(free).min(most);
        free = at + 14.0;
        let (x, y) = (px(frame.x.places.1 + 8.0), px(at + 4.0));
        out.line(
            "text",
            &[("class", "name"), ("x", &x), ("y", &y)],
            &crate::plot::clipped(name, Width::letters(100.0)),
        );
    }
}
