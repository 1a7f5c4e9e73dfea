//! Tables that sort.
//!
//! # Guarantee
//! A column of figures is sorted by the figures, not by their text, and each heading is a button: it works by keyboard.
//! On a narrow page each row is a card whose lines name their columns, so that no column is hidden.

use crate::markup::Markup;

/// Longer words may be broken anywhere, so that the columns behind them stay on the page.
const LONG: usize = 24;

/// Texts of so many letters are not broken: names of designs have hyphens.
const SHORT: usize = 16;

/// Tables of more columns have less room between them.
const ROOMY: usize = 6;

/// Tables of more rows keep their headings, to sort by, where rows are cards.
const MANY: usize = 8;

/// A cell: what is read, and what it is sorted by if that is a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    text: String,
    figure: Option<f64>,
    /// The class of what it says: better, worse, open.
    tone: &'static str,
}

impl Cell {
    /// Returns a cell of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), figure: None, tone: "" }
    }

    /// Returns a cell of a figure, as people read it; a line ends between figures alone, not before a unit.
    pub fn figure(figure: f64, text: impl Into<String>) -> Self {
        let text = text.into().replace(' ', "\u{a0}").replace("\u{a0}[", " [").replace(",\u{a0}", ", ");
        Self { text, figure: Some(figure), tone: "" }
    }

    /// Returns the cell as one that says something good, bad or undecided; a word inside says it too.
    pub fn toned(self, tone: &'static str) -> Self {
        Self { tone, ..self }
    }

    /// Returns the class of a cell of text: by what it says, otherwise by how it may be broken.
    fn text_class(&self) -> &'static str {
        match self.text.len() {
            _ if !self.tone.is_empty() => self.tone,
            // Where rows are cards, nothing is not worth a line.
            1 if self.text == "-" => "none",
            letters if letters <= SHORT => "short",
            _ if self.text.split(' ').any(|word| word.len() > LONG) => "long",
            _ => "",
        }
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
    let rows_class = if rows.len() > MANY { "many" } else { "few" };
    let class = if headings.len() > ROOMY { format!("{rows_class} dense") } else { rows_class.to_owned() };
    // Roles are said, because cards are no table for a browser.
    out.within("div", &region, |out| {
        out.within("table", &[("aria-label", caption), ("role", "table"), ("class", &*class)], |out| {
            out.within("thead", &[("role", "rowgroup")], |out| {
                out.within("tr", &[("role", "row")], |out| write_headings(out, headings, rows));
            });
            out.within("tbody", &[("role", "rowgroup")], |out| {
                rows.iter().for_each(|row| write_row(out, headings, row));
            });
        });
    });
}

fn write_headings(out: &mut Markup, headings: &[&str], rows: &[Vec<Cell>]) {
    for (place, heading) in headings.iter().enumerate() {
        let is_figure = rows.iter().any(|row| row.get(place).is_some_and(|cell| cell.figure.is_some()));
        let class = if is_figure { "figure" } else { "" };
        let attributes = [("scope", "col"), ("role", "columnheader"), ("class", class), ("aria-sort", "none")];
        out.within("th", &attributes, |out| {
            out.within("button", &[("type", "button")], |out| {
                out.text(heading);
                out.line("span", &[("class", "order"), ("aria-hidden", "true")], "");
            });
        });
    }
}

fn write_row(out: &mut Markup, headings: &[&str], row: &[Cell]) {
    out.within("tr", &[("role", "row")], |out| {
        for (cell, heading) in row.iter().zip(headings) {
            let shared = [("role", "cell"), ("data-label", *heading)];
            let Some(figure) = cell.figure else {
                out.line("td", &[shared[0], shared[1], ("class", cell.text_class())], &cell.text);
                continue;
            };
            let class = format!("figure {}", cell.tone);
            let figure = figure.to_string();
            out.line("td", &[shared[0], shared[1], ("class", class.trim_end()), ("data-figure", &figure)], &cell.text);
        }
    });
}
