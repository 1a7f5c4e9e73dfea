//! Bars beneath each other: shares of time beside each other, or the parts of a time in one bar.
//!
//! # Guarantee
//! Bars begin at 0; the first of a row, which is waiting, is hatched as in all plots, and no two of a row differ in
//! colour alone.

use crate::markup::{Markup, px};
use crate::plot::{About, Axis, Frame, Width, clipped, figure, short};
use crate::scale::{Kind as Spread, Scale};

const TOP: f64 = 22.0;
const LEFT: f64 = 12.0;

/// How the bars of a row lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Beneath each other: a figure each.
    Beside,
    /// One behind the other: parts of a whole.
    Stacked,
}

impl Layout {
    /// Returns the height of a row.
    fn row(self) -> f64 {
        match self {
            Self::Beside => 46.0,
            Self::Stacked => 34.0,
        }
    }
}

/// The style of a bar, and what it shows.
pub type BarKind<'a> = (&'static str, &'a str);

/// The style of what is waited for; see [`BarKind`].
pub const WAITED: &str = "bar hatched s1";
/// Of lines that move between CPUs.
pub const LINES: &str = "bar dotted s3";
/// Of other waits.
pub const OTHERS: &str = "bar barred s4";
/// Of the rest.
pub const REST: &str = "bar s0";

/// A row: a label, and the lengths of its bars.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Whose bars they are.
    pub label: String,
    /// The lengths.
    pub lengths: Vec<f64>,
}

/// Writes the plot; `kinds` are what the bars of a row show.
pub fn write(
    out: &mut Markup,
    about: &About<'_>,
    axis: Axis<'_>,
    layout: Layout,
    kinds: &[BarKind<'_>],
    rows: &[Bars],
) {
    let height = |_| TOP + layout.row() * rows.len() as f64 + 44.0;
    figure(
        out,
        about,
        height,
        |out, width| draw(out, width, axis, layout, kinds, rows),
        |out| {
            out.within("ul", &[("class", "legend")], |out| {
                for (class, name) in kinds {
                    out.within("li", &[], |out| {
                        let sample =
                            [("width", "34"), ("height", "14"), ("viewBox", "0 0 34 14"), ("aria-hidden", "true")];
                        out.within("svg", &sample, |out| {
                            bar(out, class, (1.0, 2.0), 32.0, "");
                        });
                        out.text(name);
                    });
                }
            });
        },
    );
}

fn draw(out: &mut Markup, width: Width, axis: Axis<'_>, layout: Layout, kinds: &[BarKind<'_>], rows: &[Bars]) {
    let right = width.pixels() - 66.0;
    let lengths = rows.iter().flat_map(|row| match layout {
        Layout::Beside => row.lengths.clone(),
        Layout::Stacked => vec![row.lengths.iter().sum()],
    });
    let x = Scale::around(Spread::Linear, lengths.chain([0.0]), (LEFT, right));
    let x = if x.ends.0 < 0.0 { Scale { ends: (0.0, x.ends.1), ..x } } else { x };
    let bottom = TOP + layout.row() * rows.len() as f64;
    let frame = Frame { x, y: Scale { kind: Spread::Linear, ends: (rows.len() as f64, 0.0), places: (bottom, TOP) } };
    frame.draw_lower(out, axis, &x.ticks(width.ticks()));
    out.within("g", &[("class", "axis"), ("data-axis", "y"), ("data-unit", "name")], |out| {
        for (place, row) in rows.iter().enumerate() {
            let y = px(TOP + layout.row() * place as f64 + 13.0);
            let label = clipped(&row.label, Width::letters(width.pixels() - 2.0 * LEFT));
            out.line("text", &[("class", "name"), ("x", &px(LEFT)), ("y", &y)], &label);
        }
    });
    for (place, row) in rows.iter().enumerate() {
        let top = TOP + layout.row() * place as f64 + 17.0;
        match layout {
            Layout::Beside => draw_beside(out, &x, top, axis.unit, kinds, row),
            Layout::Stacked => draw_stacked(out, &x, top, axis.unit, kinds, row),
        }
    }
}

fn draw_beside(out: &mut Markup, x: &Scale, top: f64, unit: &str, kinds: &[BarKind<'_>], row: &Bars) {
    for (nth, (length, (class, name))) in row.lengths.iter().zip(kinds).enumerate() {
        let Some(end) = x.place(*length) else { continue };
        let top = top + 13.0 * nth as f64;
        let told = format!("{}, {name}: {}", row.label, short(unit, *length));
        bar(out, class, (LEFT, top), end - LEFT, &told);
        figure_at(out, end, top, &short(unit, *length));
    }
}

fn draw_stacked(out: &mut Markup, x: &Scale, top: f64, unit: &str, kinds: &[BarKind<'_>], row: &Bars) {
    let (mut from, mut sum) = (LEFT, 0.0);
    for (length, (class, name)) in row.lengths.iter().zip(kinds) {
        sum += length;
        let Some(end) = x.place(sum) else { return };
        if *length > 0.0 {
            bar(out, class, (from, top), end - from, &format!("{}, {name}: {}", row.label, short(unit, *length)));
        }
        from = end;
    }
    figure_at(out, from, top, &short(unit, sum));
}

fn figure_at(out: &mut Markup, end: f64, top: f64, figure: &str) {
    out.line("text", &[("class", "tick"), ("x", &px(end + 5.0)), ("y", &px(top + 10.0))], figure);
}

fn bar(out: &mut Markup, class: &str, (x, y): (f64, f64), length: f64, told: &str) {
    let (x, y, across) = (px(x), px(y), px(length.max(0.5)));
    out.within("rect", &[("class", class), ("x", &*x), ("y", &y), ("width", &across), ("height", "11")], |out| {
        if !told.is_empty() {
            out.line("title", &[], told);
        }
    });
}
