//! Tables that sort.
//!
//! # Guarantee
//! A column of figures is sorted by the figures, not by their text, and each heading is a button: it works by keyboard.
//! A table that is wider than the page scrolls by itself.

use crate::markup::Markup;

/// Longer texts are broken between words, so that the columns behind them stay on the page.
const LONG: usize = 36;

/// A cell: what is read, and what it is sorted by if that is a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    text: String,
    figure: Option<f64>,
}

impl Cell {
    /// Returns a cell of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), figure: None }
    }

    /// Returns a cell of a figure, as people read it.
    pub fn figure(figure: f64, text: impl Into<String>) -> Self {
        Self { text: text.into(), figure: Some(figure) }
    }

    /// Returns what is read.
    pub fn as_text(&self) -> &str {
        &self.text
    }

    /// Returns a cell of a number.
    pub fn number(number: usize) -> Self {
        Self::figure(number as f64, number.to_string())
    }
}

/// Writes a table under a caption.
pub fn write(out: &mut Markup, caption: &str, headings: &[&str], rows: &[Vec<Cell>]) {
    let region = [("class", "scroll"), ("tabindex", "0"), ("role", "region"), ("aria-label", caption)];
    // A caption inside would scroll away with the table.
    out.line("p", &[("class", "caption"), ("aria-hidden", "true")], caption);
    out.within("div", &region, |out| {
        out.within("table", &[("aria-label", caption)], |out| {
            out.within("thead", &[], |out| out.within("tr", &[], |out| write_headings(out, headings, rows)));
            out.within("tbody", &[], |out| rows.iter().for_each(|row| write_row(out, row)));
        });
    });
}

fn write_headings(out: &mut Markup, headings: &[&str], rows: &[Vec<Cell>]) {
    for (place, heading) in headings.iter().enumerate() {
        let is_figure = rows.iter().any(|row| row.get(place).is_some_and(|cell| cell.figure.is_some()));
        let class = if is_figure { "figure" } else { "" };
        out.within("th", &[("scope", "col"), ("class", class), ("aria-sort", "none")], |out| {
            out.within("button", &[("type", "button")], |out| {
                out.text(heading);
                out.line("span", &[("class", "order"), ("aria-hidden", "true")], "");
            });
        });
    }
}

fn write_row(out: &mut Markup, row: &[Cell]) {
    out.within("tr", &[], |out| {
        for cell in row {
            match cell.figure {
                Some(figure) => {
                    out.line("td", &[("class", "figure"), ("data-figure", &figure.to_string())], &cell.text);
                }
                None => {
                    let class = if cell.text.len() > LONG { "long" } else { "" };
                    out.line("td", &[("class", class)], &cell.text);
                }
            }
        }
    });
}
