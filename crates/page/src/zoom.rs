//! Plots over time that can be looked at closely: an inner drawing that is as wide as the whole time, and buttons.
//!
//! # Guarantee
//! * I1 without a script the whole time is shown; the buttons come with the script that serves them
//! * I2 the ticks of a closer look are those of the time that it shows; its buttons are reached and pressed by keyboard

use crate::markup::{Markup, px};
use crate::plot::{Axis, Frame, Width};
use crate::scale::{Kind, Scale};

/// How wide the inner drawing is, in its own units.
pub const ACROSS: f64 = 1000.0;

/// Returns the axis of time.
pub fn time(duration_ns: f64, left: f64, width: Width) -> Scale {
    Scale { kind: Kind::Linear, ends: (0.0, duration_ns.max(1.0)), places: (left, width.pixels() - 16.0) }
}

/// Draws the axis of time, and what `inner` draws over it, [`ACROSS`] wide and as high as the frame: once for both
/// widths, under this name; `since` is what began when the time did.
pub fn draw(
    out: &mut Markup,
    frame: &Frame,
    width: Width,
    (name, since): (&str, &str),
    inner: impl FnOnce(&mut Markup),
) {
    let title = match width {
        Width::Wide => format!("time since {since} began (ns, us, ms, s)"),
        Width::Narrow => "time since it began (us, ms, s)".to_owned(),
    };
    frame.draw_lower(out, Axis { title: &title, unit: "ns" }, &frame.x.ticks(width.ticks()));
    let (left, right) = frame.x.places;
    let (bottom, top) = frame.y.places;
    let (height, across) = (px(bottom - top), px(right - left));
    let view = format!("0 0 {ACROSS} {height}");
    let attributes = [
        ("class", "inner"),
        ("x", &*px(left)),
        ("y", &*px(top)),
        ("width", &*across),
        ("height", &*height),
        ("viewBox", &*view),
        ("preserveAspectRatio", "none"),
        ("data-duration", &*frame.x.ends.1.to_string()),
    ];
    out.within("svg", &attributes, |out| match width {
        Width::Wide => out.within("g", &[("id", name)], inner),
        Width::Narrow => out.empty("use", &[("href", &format!("#{name}"))]),
    });
}

/// Writes the buttons.
pub fn write_buttons(out: &mut Markup) {
    let buttons = [
        ("in", "+", "closer"),
        ("out", "−", "further"),
        ("left", "←", "earlier"),
        ("right", "→", "later"),
        ("all", "all", "all of the time"),
    ];
    out.within(
        "div",
        &[("class", "zoom"), ("role", "group"), ("aria-label", "look closer at a part of the time"), ("hidden", "")],
        |out| {
            for (act, sign, told) in buttons {
                out.line(
                    "button",
                    &[("type", "button"), ("data-zoom", act), ("aria-label", told), ("title", told)],
                    sign,
                );
            }
            out.line("span", &[("class", "range"), ("aria-live", "polite")], "all of the time");
        },
    );
}
