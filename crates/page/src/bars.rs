//! Bars beneath each other, two a row: two shares of time beside each other, or two parts of a time in one bar.
//!
//! # Guarantee
//! Bars begin at 0; the first of a row, which is waiting, is hatched as in all plots.

use crate::markup::{Markup, px};
use crate::plot::{About, Axis, Frame, Width, clipped, figure, short};
use crate::scale::{Kind, Scale};

const TOP: f64 = 22.0;
const LEFT: f64 = 12.0;

/// How the two bars of a row lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Beneath each other: two figures.
    Beside,
    /// One behind the other: two parts of a whole.
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

/// A row: a label, and the lengths of its two bars.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Whose bars they are.
    pub label: String,
    /// The lengths.
    pub lengths: [f64; 2],
}

/// Writes the plot; `names` are what the two bars of a row show.
pub fn write(out: &mut Markup, about: &About<'_>, axis: Axis<'_>, layout: Layout, names: [&str; 2], rows: &[Bars]) {
    let height = |_| TOP + layout.row() * rows.len() as f64 + 44.0;
    figure(
        out,
        about,
        height,
        |out, width| draw(out, width, axis, layout, names, rows),
        |out| {
            out.within("ul", &[("class", "legend")], |out| {
                for (place, name) in names.iter().enumerate() {
                    out.within("li", &[], |out| {
                        let sample =
                            [("width", "34"), ("height", "14"), ("viewBox", "0 0 34 14"), ("aria-hidden", "true")];
                        out.within("svg", &sample, |out| {
                            bar(out, place, (1.0, 2.0), 32.0, "");
                        });
                        out.text(name);
                    });
                }
            });
        },
    );
}

fn draw(out: &mut Markup, width: Width, axis: Axis<'_>, layout: Layout, names: [&str; 2], rows: &[Bars]) {
    let right = width.pixels() - 66.0;
    let lengths = rows.iter().flat_map(|row| match layout {
        Layout::Beside => row.lengths,
        Layout::Stacked => [row.lengths.iter().sum(); 2],
    });
    let x = Scale::around(Kind::Linear, lengths.chain([0.0]), (LEFT, right));
    let x = if x.ends.0 < 0.0 { Scale { ends: (0.0, x.ends.1), ..x } } else { x };
    let bottom = TOP + layout.row() * rows.len() as f64;
    let frame = Frame { x, y: Scale { kind: Kind::Linear, ends: (rows.len() as f64, 0.0), places: (bottom, TOP) } };
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
            Layout::Beside => draw_beside(out, &x, top, axis.unit, names, row),
            Layout::Stacked => draw_stacked(out, &x, top, axis.unit, names, row),
        }
    }
}

fn draw_beside(out: &mut Markup, x: &Scale, top: f64, unit: &str, names: [&str; 2], row: &Bars) {
    for (nth, length) in row.lengths.iter().enumerate() {
        let Some(end) = x.place(*length) else { continue };
        let top = top + 13.0 * nth as f64;
        let told = format!("{}, {}: {}", row.label, names[nth], short(unit, *length));
        bar(out, nth, (LEFT, top), end - LEFT, &told);
        figure_at(out, end, top, &short(unit, *length));
    }
}

fn draw_stacked(out: &mut Markup, x: &Scale, top: f64, unit: &str, names: [&str; 2], row: &Bars) {
    let [first, second] = row.lengths;
    let (Some(middle), Some(end)) = (x.place(first), x.place(first + second)) else { return };
    let told = |nth: usize| format!("{}, {}: {}", row.label, names[nth], short(unit, row.lengths[nth]));
    bar(out, 0, (LEFT, top), middle - LEFT, &told(0));
    bar(out, 1, (middle, top), end - middle, &told(1));
    figure_at(out, end, top, &short(unit, first + second));
}

fn figure_at(out: &mut Markup, end: f64, top: f64, figure: &str) {
    out.line("text", &[("class", "tick"), ("x", &px(end + 5.0)), ("y", &px(top + 10.0))], figure);
}

fn bar(out: &mut Markup, nth: usize, (x, y): (f64, f64), length: f64, told: &str) {
    let class = ["bar hatched s1", "bar s0"][nth.min(1)];
    let (x, y, across) = (px(x), px(y), px(length.max(0.5)));
    out.within("rect", &[("class", class), ("x", &x), ("y", &y), ("width", &across), ("height", "11")], |out| {
        if !told.is_empty() {
            out.line("title", &[], told);
        }
    });
}
