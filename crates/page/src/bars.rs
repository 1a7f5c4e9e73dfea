//! Bars beneath each other, two a row: a share of time and another.
//!
//! # Guarantee
//! Bars begin at 0; the second of a row is hatched, so that colour alone does not tell them apart.

use crate::markup::{Markup, px};
use crate::plot::{About, Axis, Frame, Width, clipped, figure, short};
use crate::scale::{Kind, Scale};

const ROW: f64 = 46.0;
const TOP: f64 = 22.0;
const LEFT: f64 = 12.0;

/// A row: a label, and the lengths of its two bars.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Whose bars they are.
    pub label: String,
    /// The lengths.
    pub lengths: [f64; 2],
}

/// Writes the plot; `names` are what the two bars of a row show.
pub fn write(out: &mut Markup, about: &About<'_>, axis: Axis<'_>, names: [&str; 2], rows: &[Bars]) {
    let height = |_| TOP + ROW * rows.len() as f64 + 44.0;
    figure(
        out,
        about,
        height,
        |out, width| draw(out, width, axis, names, rows),
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

fn draw(out: &mut Markup, width: Width, axis: Axis<'_>, names: [&str; 2], rows: &[Bars]) {
    let right = width.pixels() - 60.0;
    let lengths = rows.iter().flat_map(|row| row.lengths);
    let x = Scale::around(Kind::Linear, lengths.chain([0.0]), (LEFT, right));
    let x = if x.ends.0 < 0.0 { Scale { ends: (0.0, x.ends.1), ..x } } else { x };
    let bottom = TOP + ROW * rows.len() as f64;
    let frame = Frame { x, y: Scale { kind: Kind::Linear, ends: (rows.len() as f64, 0.0), places: (bottom, TOP) } };
    frame.draw_lower(out, axis, &x.ticks(width.ticks()));
    out.within("g", &[("class", "axis"), ("data-axis", "y"), ("data-unit", "name")], |out| {
        for (place, row) in rows.iter().enumerate() {
            let y = px(TOP + ROW * place as f64 + 13.0);
            let label = clipped(&row.label, Width::letters(width.pixels() - 2.0 * LEFT));
            out.line("text", &[("class", "name"), ("x", &px(LEFT)), ("y", &y)], &label);
        }
    });
    for (place, row) in rows.iter().enumerate() {
        for (nth, length) in row.lengths.iter().enumerate() {
            let Some(end) = x.place(*length) else { continue };
            let top = TOP + ROW * place as f64 + 17.0 + 13.0 * nth as f64;
            let told = format!("{}, {}: {}", row.label, names[nth], short(axis.unit, *length));
            bar(out, nth, (LEFT, top), end - LEFT, &told);
            let (x, y) = (px(end + 5.0), px(top + 10.0));
            out.line("text", &[("class", "tick"), ("x", &x), ("y", &y)], &short(axis.unit, *length));
        }
    }
}

fn bar(out: &mut Markup, nth: usize, (x, y): (f64, f64), length: f64, told: &str) {
    let class = ["bar s0", "bar hatched s1"][nth.min(1)];
    let (x, y, across) = (px(x), px(y), px(length.max(0.5)));
    out.within("rect", &[("class", class), ("x", &x), ("y", &y), ("width", &across), ("height", "11")], |out| {
        if !told.is_empty() {
            out.line("title", &[], told);
        }
    });
}
