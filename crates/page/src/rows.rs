//! Rows beneath each other on one axis: each run of a design as a mark, or figures with whiskers.
//!
//! # Guarantee
//! Every sample is drawn. Marks that would cover each other are moved up and down, never sideways.

use crate::markup::{Markup, px};
use crate::plot::{About, Axis, Frame, STYLES, Width, clipped, figure, mark};
use crate::scale::{Kind, Scale};

/// Height of a row: its label above its marks.
const ROW: f64 = 44.0;
const TOP: f64 = 22.0;
const LEFT: f64 = 12.0;

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
    pub style: usize,
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

/// Writes the plot; `below` writes what stands between it and the caption.
pub fn write(out: &mut Markup, about: &About<'_>, shared: &Rows<'_>, rows: &[Row], below: impl FnOnce(&mut Markup)) {
    let height = |_| TOP + ROW * rows.len() as f64 + 44.0;
    figure(out, about, height, |out, width| draw(out, width, shared, rows), below);
}

fn draw(out: &mut Markup, width: Width, shared: &Rows<'_>, rows: &[Row]) {
    let right = width.pixels() - 16.0;
    let marks = rows.iter().flat_map(|row| &row.marks);
    let figures = marks.flat_map(|marks| {
        marks
            .samples
            .iter()
            .copied()
            .chain(marks.middle.into_iter().flat_map(|(low, middle, high)| [low, middle, high]))
    });
    let figures = figures.chain(shared.reference.map(|(figure, _)| figure));
    let x = Scale::around(shared.kind, figures, (LEFT, right));
    let x = if shared.has_zero { x.begun_at_zero() } else { x }.with_margin(0.04);
    let x = if shared.has_zero && x.ends.0 < 0.0 && shared.kind == Kind::Linear {
        Scale { ends: (0.0, x.ends.1), ..x }
    } else {
        x
    };
    let bottom = TOP + ROW * rows.len() as f64;
    let frame = Frame { x, y: Scale { kind: Kind::Linear, ends: (rows.len() as f64, 0.0), places: (bottom, TOP) } };
    frame.draw_lower(out, shared.axis, &x.ticks(width.ticks()));
    if let Some((figure, name)) = shared.reference
        && let Some(at) = x.place(figure)
    {
        let at = px(at);
        out.within(
            "line",
            &[("class", "reference"), ("x1", &at), ("x2", &at), ("y1", &px(TOP)), ("y2", &px(bottom))],
            |out| {
                out.line("title", &[], name);
            },
        );
    }
    out.within("g", &[("class", "axis"), ("data-axis", "y"), ("data-unit", "name")], |out| {
        for (place, row) in rows.iter().enumerate() {
            draw_labels(out, width, TOP + ROW * place as f64, row);
        }
    });
    for (place, row) in rows.iter().enumerate() {
        row.marks.iter().enumerate().for_each(|(nth, marks)| {
            // Two sets of marks in a row lie above each other.
            let shift = (nth as f64 - (row.marks.len() - 1) as f64 / 2.0) * 11.0;
            draw_marks(out, &frame, TOP + ROW * place as f64 + 29.0 + shift, shared.axis.unit, marks);
        });
    }
}

fn draw_labels(out: &mut Markup, width: Width, top: f64, row: &Row) {
    let room = width.pixels() - 2.0 * LEFT - 8.0;
    let figure = clipped(&row.figure, Width::letters(room * 0.62));
    let left = Width::letters(room - 7.0 * figure.chars().count() as f64);
    let y = px(top + 12.0);
    out.line("text", &[("class", "name"), ("x", &px(LEFT)), ("y", &y)], &clipped(&row.label, left));
    let attributes = [("class", "tick"), ("text-anchor", "end"), ("x", &*px(width.pixels() - LEFT)), ("y", &*y)];
    out.line("text", &attributes, &figure);
}

fn draw_marks(out: &mut Markup, frame: &Frame, y: f64, unit: &str, marks: &Marks) {
    let style = marks.style % STYLES;
    if let Some((low, middle, high)) = marks.middle {
        if let (Some(low), Some(high)) = (frame.x.place(low), frame.x.place(high)) {
            let class = format!("band s{style}");
            let (x, y, across) = (px(low), px(y - 5.0), px((high - low).max(1.0)));
            out.empty("rect", &[("class", &class), ("x", &x), ("y", &y), ("width", &across), ("height", "10")]);
        }
        if let Some(at) = frame.x.place(middle) {
            let (x, y1, y2) = (px(at), px(y - 9.0), px(y + 9.0));
            out.empty("line", &[("class", "middle"), ("x1", &x), ("x2", &x), ("y1", &y1), ("y2", &y2)]);
        }
    }
    for (nth, sample) in marks.samples.iter().enumerate() {
        let Some(x) = frame.x.place(*sample) else { continue };
        let shift = if marks.samples.len() > 1 { [0.0, -3.5, 3.5][nth % 3] } else { 0.0 };
        let told = format!("{}, run {}: {}", marks.name, nth + 1, crate::plot::short(unit, *sample));
        mark(out, marks.style, (x, y + shift), marks.is_hollow, &told);
    }
}
