//! What all plots share: a frame with axes, titles and units, and marks that differ in shape, dash and colour.
//!
//! # Guarantee
//! * I1 every plot is drawn for two widths, a desktop's and a phone's, of which the page shows one
//! * I2 both axes have a title with a unit and ticks; a plot of simulated figures says so inside its frame
//! * I3 what colour tells, the shape of a mark or the dash of a line tells too

use faultless_results::Unit;
use faultless_results::designs::{NR_STYLES, Style};

use crate::markup::{Markup, px};
use crate::scale::{Kind, Scale};

/// A width that plots are drawn for (I1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// A desktop's.
    Wide,
    /// A phone's.
    Narrow,
}

impl Width {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Wide, Self::Narrow];

    /// Returns the plot's width in pixels.
    pub fn pixels(self) -> f64 {
        match self {
            Self::Wide => 760.0,
            Self::Narrow => 340.0,
        }
    }

    /// Returns how many letters of a label fit into so many pixels.
    pub fn letters(pixels: f64) -> usize {
        // Digits and small letters of 12 px take less than 7 px each.
        (pixels / 7.0) as usize
    }

    fn class(self) -> &'static str {
        match self {
            Self::Wide => "plot wide",
            Self::Narrow => "plot narrow",
        }
    }

    /// Returns about how many ticks fit on the lower axis.
    pub fn ticks(self) -> usize {
        match self {
            Self::Wide => 8,
            Self::Narrow => 4,
        }
    }
}

/// What a figure on the page says around its plot.
#[derive(Clone, Debug)]
pub struct About<'a> {
    /// Its title.
    pub title: String,
    /// What it shows, for who does not see it.
    pub told: String,
    /// What stands below: what marks and lines mean.
    pub caption: String,
    /// The machine, and whether it is a simulated one.
    pub machine: &'a str,
    /// Whether the figures are a simulation's.
    pub is_simulated: bool,
}

/// An axis's title, and its unit's name in result sets.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    /// What is shown, with the unit in words.
    pub title: &'a str,
    /// The unit, for the ticks.
    pub unit: &'a str,
}

/// Writes a figure: title, the plot in both widths, what `below` writes, and the caption.
pub fn figure(
    out: &mut Markup,
    about: &About<'_>,
    height: impl Fn(Width) -> f64,
    draw: impl Fn(&mut Markup, Width),
    below: impl FnOnce(&mut Markup),
) {
    out.within("figure", &[], |out| {
        out.line("h3", &[], &about.title);
        for width in Width::BOTH {
            let (across, down) = (width.pixels(), height(width));
            let view = format!("0 0 {} {}", px(across), px(down));
            let label = format!("{}. {} {}", about.title, about.told, measured_on(about));
            let attributes = [
                ("class", width.class()),
                ("viewBox", &view),
                ("role", "img"),
                ("aria-label", &label),
                ("preserveAspectRatio", "xMinYMin meet"),
            ];
            out.within("svg", &attributes, |out| {
                out.line("text", &[("class", "mark"), ("x", &px(across - 4.0)), ("y", "12")], &measured_on(about));
                draw(out, width);
            });
        }
        below(out);
        out.line("figcaption", &[], &about.caption);
    });
}

/// Says where the figures come from.
fn measured_on(about: &About<'_>) -> String {
    let how = if about.is_simulated { "SIMULATED:" } else { "measured on" };
    format!("{how} {}", about.machine)
}

/// The inner part of a plot: where figures lie.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The lower axis.
    pub x: Scale,
    /// The axis at the left.
    pub y: Scale,
}

impl Frame {
    /// Returns the place of a point; nothing if it lies outside.
    pub fn point(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.x.place(x)?, self.y.place(y)?))
    }

    /// Draws the lower axis: lines across, ticks, and its title.
    pub fn draw_lower(&self, out: &mut Markup, axis: Axis<'_>, ticks: &[f64]) {
        let (top, bottom) = (self.y.places.1.min(self.y.places.0), self.y.places.0.max(self.y.places.1));
        let (left, right) = self.x.places;
        out.within("g", &[("class", "axis"), ("data-axis", "x"), ("data-unit", axis.unit)], |out| {
            let mut free = left - 40.0;
            for tick in ticks {
                let Some(at) = self.x.place(*tick) else { continue };
                let x = px(at);
                out.empty("line", &[("class", "grid"), ("x1", &x), ("x2", &x), ("y1", &px(top)), ("y2", &px(bottom))]);
                let label = short(axis.unit, *tick);
                let half = label.chars().count() as f64 * 3.6;
                let middle = at.min(right + 30.0 - half).max(half);
                if middle - half > free {
                    free = middle + half + 4.0;
                    let (x, y) = (px(middle), px(bottom + 16.0));
                    out.line("text", &[("class", "tick"), ("text-anchor", "middle"), ("x", &x), ("y", &y)], &label);
                }
            }
            let (x1, x2, y) = (px(left), px(right), px(bottom));
            out.empty("line", &[("class", "base"), ("x1", &x1), ("x2", &x2), ("y1", &y), ("y2", &y)]);
            let (x, y) = (px(f64::midpoint(left, right)), px(bottom + 34.0));
            out.line("text", &[("class", "title"), ("text-anchor", "middle"), ("x", &x), ("y", &y)], axis.title);
        });
    }

    /// Draws the axis at the left, with its title above it.
    pub fn draw_left(&self, out: &mut Markup, axis: Axis<'_>, ticks: &[f64]) {
        let (left, right) = self.x.places;
        let top = self.y.places.1;
        out.within("g", &[("class", "axis"), ("data-axis", "y"), ("data-unit", axis.unit)], |out| {
            for tick in ticks {
                let Some(at) = self.y.place(*tick) else { continue };
                let y = px(at);
                out.empty("line", &[("class", "grid"), ("x1", &px(left)), ("x2", &px(right)), ("y1", &y), ("y2", &y)]);
                let (x, y) = (px(left - 6.0), px(at + 4.0));
                let attributes = [("class", "tick"), ("text-anchor", "end"), ("x", &*x), ("y", &*y)];
                out.line("text", &attributes, &short(axis.unit, *tick));
            }
            out.line("text", &[("class", "title"), ("x", "4"), ("y", &px(top - 12.0))], axis.title);
        });
    }
}

/// Returns a figure for a tick: without digits that say nothing.
pub fn short(unit: &str, figure: f64) -> String {
    let shown = match unit {
        "" => return plain(figure),
        "share" if figure > 0.0 && figure < 0.001 => return format!("{} %", plain(figure * 100.0)),
        _ => Unit::show_named(unit, figure),
    };
    let end = shown.find(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != '-');
    let (number, rest) = shown.split_at(end.unwrap_or(shown.len()));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{rest}")
}

/// Returns a number without a unit, and without noise of its last digits.
fn plain(figure: f64) -> String {
    let text = if figure.abs() >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.4}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Returns a text as lines of so many letters at most, broken between words, or inside one that is longer than a line.
pub fn broken(text: &str, letters: usize) -> Vec<String> {
    let letters = letters.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_inclusive([' ', '/', '-']) {
        let length = |text: &str| text.chars().count();
        let line = lines.last_mut().expect("never empty");
        if !line.is_empty() && length(line) + length(word.trim_end()) > letters {
            lines.push(String::new());
        }
        for letter in word.chars() {
            if length(lines.last().expect("never empty")) >= letters && letter != ' ' {
                lines.push(String::new());
            }
            lines.last_mut().expect("never empty").push(letter);
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns a text of so many letters at most.
pub fn clipped(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}

/// Returns the class of a line: its colour and its dash.
pub fn line_class(style: Style) -> String {
    format!("l s{} d{}", style.color, style.mark)
}

/// Draws a mark of a style, hollow if its figure is not to be relied on, with what a pointer over it is told.
pub fn mark(out: &mut Markup, style: Style, (x, y): (f64, f64), is_hollow: bool, told: &str) {
    let fill = if is_hollow { " hollow" } else { "" };
    let class = format!("m s{}{fill}", style.color);
    let shape = shape(style.mark, x, y, 4.5);
    out.within("path", &[("class", &class), ("d", &shape)], |out| {
        if !told.is_empty() {
            out.line("title", &[], told);
        }
    });
}

/// Returns the path of a mark (I3).
fn shape(mark: usize, x: f64, y: f64, r: f64) -> String {
    let at = |points: &[(f64, f64)]| -> String {
        let places: Vec<String> =
            points.iter().map(|(dx, dy)| format!("{} {}", px(x + r * dx), px(y + r * dy))).collect();
        format!("M{}Z", places.join("L"))
    };
    match mark % NR_STYLES {
        0 => {
            let (left, r2, d) = (px(x - r), px(r), px(2.0 * r));
            format!("M{left} {}a{r2} {r2} 0 1 0 {d} 0a{r2} {r2} 0 1 0 -{d} 0Z", px(y))
        }
        1 => at(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => at(&[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)]),
        3 => at(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        4 => at(&[(0.0, 1.2), (1.1, -0.9), (-1.1, -0.9)]),
        5 => at(&PLUS),
        6 => at(&PLUS.map(|(dx, dy)| ((dx - dy) * 0.75, (dx + dy) * 0.75))),
        _ => at(&[(-1.2, 0.0), (-0.5, -1.1), (0.5, -1.1), (1.2, 0.0), (0.5, 1.1), (-0.5, 1.1)]),
    }
}

const PLUS: [(f64, f64); 12] = [
    (-0.4, -1.3),
    (0.4, -1.3),
    (0.4, -0.4),
    (1.3, -0.4),
    (1.3, 0.4),
    (0.4, 0.4),
    (0.4, 1.3),
    (-0.4, 1.3),
    (-0.4, 0.4),
    (-1.3, 0.4),
    (-1.3, -0.4),
    (-0.4, -0.4),
];

/// Writes the list of names with their marks and dashes.
pub fn legend<'a>(out: &mut Markup, names: impl Iterator<Item = (&'a str, Style)>) {
    out.within("ul", &[("class", "legend")], |out| {
        for (name, style) in names {
            out.within("li", &[], |out| {
                let sample = [("width", "34"), ("height", "14"), ("viewBox", "0 0 34 14"), ("aria-hidden", "true")];
                out.within("svg", &sample, |out| {
                    let class = line_class(style);
                    out.empty("path", &[("class", &class), ("d", "M1 7H33")]);
                    mark(out, style, (17.0, 7.0), false, "");
                });
                out.text(name);
            });
        }
    });
}

/// Returns whether figures are spread so far that ratios tell more than differences.
pub fn fitting(figures: impl Iterator<Item = f64>, ratio: f64) -> Kind {
    let (low, high) = figures.fold((f64::MAX, 0f64), |(low, high), figure| (low.min(figure), high.max(figure)));
    if low > 0.0 && high / low > ratio { Kind::Log } else { Kind::Linear }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_no_digits_that_say_nothing() {
        let shown = [("ops/s", 2e6), ("ns", 1500.0), ("share", 0.1), ("share", 0.0001), ("", 64.0), ("count", 100.0)];
        let shown = shown.map(|(unit, figure)| short(unit, figure));
        assert_eq!(shown, ["2 M/s", "1.5 us", "10 %", "0.01 %", "64", "100"]);
    }

    #[test]
    fn every_style_has_a_shape_of_its_own() {
        let shapes: std::collections::BTreeSet<String> =
            (0..NR_STYLES).map(|mark| shape(mark, 0.0, 0.0, 5.0)).collect();
        assert_eq!(shapes.len(), NR_STYLES);
    }

    #[test]
    fn long_names_get_more_lines_and_lose_no_letter() {
        assert_eq!(broken("page_fault1, 64 CPUs", 12), ["page_fault1,", "64 CPUs"]);
        assert_eq!(broken("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!((broken("", 3), broken("ab", 0).len()), (vec![String::new()], 2));
        let long = "a rather long name/with-parts 12345678901234567890";
        for letters in 1..60 {
            let lines = broken(long, letters);
            assert!(lines.iter().all(|line| line.chars().count() <= letters), "{lines:?}");
            let whole: String = lines.concat().chars().filter(|letter| *letter != ' ').collect();
            assert_eq!(whole, long.replace(' ', ""));
        }
    }

    #[test]
    fn long_names_are_clipped() {
        assert_eq!((clipped("abc", 3), clipped("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
    }
}
