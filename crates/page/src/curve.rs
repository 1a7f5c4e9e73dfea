//! Throughput against CPUs: a line for each design, with intervals, and the ideal line.
//!
//! # Guarantee
//! * I1 the ideal line is what the command measured as linear, if it did (`--ceiling`); otherwise the best rate on the
//!   fewest CPUs times their number, and the caption says which
//! * I2 no mark hides another: those of one number of CPUs stand beside each other, in the order of the legend

use faultless_results::designs::Style;
use faultless_results::verdict::{Group, arm_name, cpus};
use faultless_results::{ResultSet, Unit};
use serde_json::Value;

use crate::arms::{ends_are, middle};
use crate::markup::{Markup, px};
use crate::plot::{About, Axis, Frame, Width, figure, fitting, legend, line_class, mark, short};
use crate::scale::{Kind, Scale};

/// A line of the plot.
struct CurveLine {
    name: String,
    style: Style,
    /// By CPUs: the median, the ends, and whether the rates had converged.
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
    let is_settled = lines.iter().flat_map(|line| &line.points).all(|point| point.3);
    let about = About {
        title: format!("{}: throughput against CPUs", group.name),
        told,
        caption: format!(
            "Higher is better. Marks are medians, upright {}. Marks of one number of CPUs stand beside each other, so \
             that none hides another. Dotted, without marks: ideal, {ideal_is}.{}",
            ends_are(group.arms.iter().map(|arm| &arm.samples)),
            if is_settled { "" } else { " Hollow marks: the rates had not converged." }
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

fn lines(set: &ResultSet, group: &Group<'_>, names: &[String]) -> Vec<CurveLine> {
    let mut lines: Vec<CurveLine> = Vec::new();
    for arm in &group.arms {
        let Some(middle) = middle(&arm.samples) else { continue };
        let name = arm_name(set, arm);
        let point = (arm.cpus as f64, middle.median, (middle.low, middle.high), arm.has_converged());
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => {
                let style = Style::of(&name, names);
                lines.push(CurveLine { name, style, points: vec![point] });
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

/// How far marks that stand beside each other are apart.
fn apart(width: Width, many: usize) -> f64 {
    let room = if width == Width::Wide { 40.0 } else { 24.0 };
    (room / many.max(1) as f64).min(7.0)
}

fn draw(out: &mut Markup, width: Width, lines: &[CurveLine], ideal: &[(f64, f64)], cpus: &[usize]) {
    let points = || lines.iter().flat_map(|line| &line.points);
    let right = width.pixels() - if width == Width::Wide { 122.0 } else { 24.0 };
    let across = cpus.iter().map(|&cpus| cpus as f64);
    let x = Scale::around(fitting(across.clone(), 6.0), across.clone(), (74.0, right));
    let rates = points().flat_map(|point| [point.1, point.2.0, point.2.1]).chain(ideal.iter().map(|point| point.1));
    let y = Scale::around(fitting(rates.clone(), 30.0), rates, (290.0, 46.0))
        .begun_at_zero()
        .with_margin(0.03)
        .begun_at_zero();
    let y = if y.ends.0 < 0.0 { Scale { ends: (0.0, y.ends.1), ..y } } else { y };
    let frame = Frame { x: x.with_margin(0.05), y };
    let title = match y.kind {
        Kind::Linear => "operations in a second, all workers, from 0",
        Kind::Log => "operations in a second, all workers, logarithmic",
    };
    frame.draw_left(out, Axis { title, unit: "ops/s" }, &y.ticks(6));
    frame.draw_lower(out, Axis { title: "CPUs (number)", unit: "" }, &across.collect::<Vec<_>>());
    let path = path(ideal.iter().filter_map(|&(x, y)| frame.point(x, y)));
    out.empty("path", &[("class", "ideal"), ("d", &path)]);
    let many = lines.len();
    // Below the marks, since the ties to names pass under them.
    if width == Width::Wide {
        draw_names(out, &frame, lines, ideal, apart(width, many));
    }
    for (place, line) in lines.iter().enumerate() {
        let shift = (place as f64 - (many - 1) as f64 / 2.0) * apart(width, many);
        draw_line(out, &frame, line, shift);
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let places = points.map(|(x, y)| format!("{} {}", px(x), px(y)));
    format!("M{}", places.collect::<Vec<_>>().join("L"))
}

fn draw_line(out: &mut Markup, frame: &Frame, line: &CurveLine, shift: f64) {
    let point = |cpus: f64, rate: f64| frame.point(cpus, rate).map(|(x, y)| (x + shift, y));
    let class = line_class(line.style);
    let along = path(line.points.iter().filter_map(|at| point(at.0, at.1)));
    out.empty("path", &[("class", &class), ("d", &along)]);
    for &(cpus, median, (low, high), has_converged) in &line.points {
        if let (Some((x, bottom)), Some((_, top))) = (point(cpus, low), point(cpus, high)) {
            let (x, y1, y2) = (px(x), px(bottom), px(top));
            let class = format!("whisker s{}", line.style.color);
            out.empty("line", &[("class", &class), ("x1", &x), ("x2", &x), ("y1", &y1), ("y2", &y2)]);
        }
        if let Some(at) = point(cpus, median) {
            let show = |figure: f64| short("ops/s", figure);
            let told = format!("{}, {cpus} CPUs: {} [{}, {}]", line.name, show(median), show(low), show(high));
            mark(out, line.style, at, !has_converged, &told);
        }
    }
}

/// Writes the names at the lines' right ends, moved apart where they would cover each other, each tied to its end.
fn draw_names<'a>(out: &mut Markup, frame: &Frame, lines: &'a [CurveLine], ideal: &[(f64, f64)], apart: f64) {
    let many = lines.len();
    let end = |points: Option<(f64, f64)>| points.and_then(|(x, y)| frame.point(x, y));
    let of_line = |(place, line): (usize, &'a CurveLine)| {
        let (x, y) = end(line.points.last().map(|point| (point.0, point.1)))?;
        Some((y, x + (place as f64 - (many - 1) as f64 / 2.0) * apart, line.name.as_str()))
    };
    let of_ideal = end(ideal.last().copied()).map(|(x, y)| (y, x + 3.0, "ideal"));
    let mut names: Vec<(f64, f64, &str)> = lines.iter().enumerate().filter_map(of_line).chain(of_ideal).collect();
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let beyond = frame.x.places.1 + 6.0;
    let mut free = 20.0;
    // What is left below must have room for all that still come.
    let many = names.len();
    for (place, (y, end, name)) in names.into_iter().enumerate() {
        let most = frame.y.places.0 - (many - 1 - place) as f64 * 14.0;
        let at = y.max(free).min(most);
        free = at + 14.0;
        let x = frame.x.places.1 + 22.0;
        let tie = format!("M{} {}H{}L{} {}", px(end), px(y), px(beyond.max(end)), px(x - 3.0), px(at));
        out.empty("path", &[("class", "tie"), ("d", &tie)]);
        let (x, y) = (px(x), px(at + 4.0));
        let attributes = [("class", "name"), ("x", &*x), ("y", &*y)];
        out.line("text", &attributes, &crate::plot::clipped(name, Width::letters(100.0)));
    }
}
