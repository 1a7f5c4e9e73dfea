//! Rows beneath each other on one axis: each run of a design as a mark, or figures with whiskers.
//!
//! # Guarantee
//! Every sample is drawn. Marks that would cover each other are moved up and down, never sideways. Labels and figures
//! stand whole: what has no room in a line gets another.

use faultless_results::designs::Style;

use crate::markup::{Markup, px};
use crate::plot::{About, Axis, Frame, Width, broken, figure, mark};
use crate::scale::{Kind, Scale};

/// Height of a line of text, and of the marks below it.
const LINE: f64 = 15.0;
const MARKS: f64 = 30.0;
const TOP: f64 = 22.0;
const LEFT: f64 = 12.0;

/// How far two sets of marks in a row lie apart.
const APART: f64 = 12.0;

/// A row of the plot.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// What stands above it at the left.
    pub label: String,
    /// What stands above it at the right: its figure.
    pub figure: String,
    /// Its marks.
    pub marks: Vec<Marks>,
}

/// Marks of one style.
#[derive(Clone, Debug)]
pub struct Marks {
    /// Whose they are, for who points at one.
    pub name: String,
    /// The style.
    pub style: Style,
    /// Where they lie.
    pub samples: Vec<f64>,
    /// The middle, drawn as a line down, and the ends of the bar.
    pub middle: Option<(f64, f64, f64)>,
    /// Whether they are not to be relied on.
    pub is_hollow: bool,
}

/// What all rows share.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// The lower axis.
    pub axis: Axis<'a>,
    /// How figures are spread.
    pub kind: Kind,
    /// A figure that the rows are compared with, and its name.
    pub reference: Option<(f64, &'a str)>,
    /// Whether the axis begins at 0.
    pub has_zero: bool,
}

/// A row's text as one width has it, and where the row lies.
struct Laid {
    lines: Vec<String>,
    /// Whether the figure has a line of its own.
    is_below: bool,
    top: f64,
    height: f64,
}

/// Lays rows out beneath each other; returns them and where they end.
fn lay(rows: &[Row], width: Width) -> (Vec<Laid>, f64) {
    let room = Width::letters(width.pixels() - 2.0 * LEFT);
    let mut top = TOP;
    let mut laid = Vec::new();
    for row in rows {
        let lines = broken(&row.label, room);
        let last = lines.last().map_or(0, |line| line.chars().count());
        let is_below = !row.figure.is_empty() && last + row.figure.chars().count() + 2 > room;
        let nr_lines = lines.len() + usize::from(is_below);
        let height = LINE * nr_lines as f64 + MARKS + APART * row.marks.len().saturating_sub(1) as f64;
        laid.push(Laid { lines, is_below, top, height });
        top += height;
    }
    (laid, top)
}

/// Writes the plot; `below` writes what stands between it and the caption.
pub fn write(out: &mut Markup, about: &About<'_>, shared: &Rows<'_>, rows: &[Row], below: impl FnOnce(&mut Markup)) {
    let height = |width| lay(rows, width).1 + 44.0;
    figure(out, about, height, |out, width| draw(out, width, shared, rows), below);
}

fn draw(out: &mut Markup, width: Width, shared: &Rows<'_>, rows: &[Row]) {
    let (laid, bottom) = lay(rows, width);
    let x = across(width, shared, rows);
    let frame = Frame { x, y: Scale { kind: Kind::Linear, ends: (rows.len() as f64, 0.0), places: (bottom, TOP) } };
    frame.draw_lower(out, shared.axis, &x.ticks(width.ticks()));
    if let Some((figure, name)) = shared.reference
        && let Some(at) = x.place(figure)
    {
        let (at, y1, y2) = (px(at), px(TOP), px(bottom));
        out.within("line", &[("class", "reference"), ("x1", &at), ("x2", &at), ("y1", &y1), ("y2", &y2)], |out| {
            out.line("title", &[], name);
        });
    }
    out.within("g", &[("class", "axis"), ("data-axis", "y"), ("data-unit", "name")], |out| {
        rows.iter().zip(&laid).for_each(|(row, laid)| draw_labels(out, width, laid, row));
    });
    for (row, laid) in rows.iter().zip(&laid) {
        let lowest = laid.top + laid.height - MARKS / 2.0;
        row.marks.iter().rev().enumerate().for_each(|(nth, marks)| {
            draw_marks(out, &frame, lowest - APART * nth as f64, shared.axis.unit, marks);
        });
    }
}

fn across(width: Width, shared: &Rows<'_>, rows: &[Row]) -> Scale {
    let marks = rows.iter().flat_map(|row| &row.marks);
    let figures = marks.flat_map(|marks| {
        let ends = marks.middle.into_iter().flat_map(|(low, middle, high)| [low, middle, high]);
        marks.samples.iter().copied().chain(ends)
    });
    let figures = figures.chain(shared.reference.map(|(figure, _)| figure));
    let x = Scale::around(shared.kind, figures, (LEFT, width.pixels() - 16.0));
    let x = if shared.has_zero { x.begun_at_zero() } else { x }.with_margin(0.04);
    if shared.has_zero && x.ends.0 < 0.0 && shared.kind == Kind::Linear {
        Scale { ends: (0.0, x.ends.1), ..x }
    } else {
        x
    }
}

fn draw_labels(out: &mut Markup, width: Width, laid: &Laid, row: &Row) {
    let mut y = laid.top;
    for line in &laid.lines {
        y += LINE;
        out.line("text", &[("class", "name"), ("x", &px(LEFT)), ("y", &px(y - 3.0))], line);
    }
    if row.figure.is_empty() {
        return;
    }
    let (x, anchor) = if laid.is_below { (LEFT, "start") } else { (width.pixels() - LEFT, "end") };
    let y = if laid.is_below { y + LINE } else { y };
    let attributes = [("class", "tick"), ("text-anchor", anchor), ("x", &*px(x)), ("y", &*px(y - 3.0))];
    out.line("text", &attributes, &row.figure);
}

fn draw_marks(out: &mut Markup, frame: &Frame, y: f64, unit: &str, marks: &Marks) {
    if let Some((low, _, high)) = marks.middle
        && let (Some(low), Some(high)) = (frame.x.place(low), frame.x.place(high))
    {
        let class = format!("band s{}", marks.style.color);
        let (x, y, across) = (px(low), px(y - 5.0), px((high - low).max(1.0)));
        out.empty("rect", &[("class", &class), ("x", &x), ("y", &y), ("width", &across), ("height", "10")]);
    }
    for (nth, sample) in marks.samples.iter().enumerate() {
        let Some(x) = frame.x.place(*sample) else { continue };
        let shift = if marks.samples.len() > 1 { [0.0, -3.5, 3.5][nth % 3] } else { 0.0 };
        let told = format!("{}, run {}: {}", marks.name, nth + 1, crate::plot::short(unit, *sample));
        mark(out, marks.style, (x, y + shift), marks.is_hollow, &told);
    }
    // Of one sample the middle is the sample.
    if let Some((_, middle, _)) = marks.middle.filter(|_| marks.samples.len() > 1)
        && let Some(at) = frame.x.place(middle)
    {
        let (x, y1, y2) = (px(at), px(y - 9.0), px(y + 9.0));
        out.empty("line", &[("class", "middle"), ("x1", &x), ("x2", &x), ("y1", &y1), ("y2", &y2)]);
    }
}
