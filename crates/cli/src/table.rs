//! Rows under headings, as text for people, CSV, or Markdown.
//!
//! # Guarantee
//! Fields come out as they went in: what would break a format's rows is quoted or escaped.

use std::io::{self, Write};

use faultless_results::columns;

/// Formats for rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text for people.
    Human,
    /// JSON.
    Json,
    /// Comma-separated values, with a line of headings.
    Csv,
    /// A Markdown table.
    Markdown,
}

/// Writes rows under headings, in columns for people.
pub fn write_columns<R: AsRef<[String]>>(
    out: &mut (impl Write + ?Sized),
    headings: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> io::Result<()> {
    let head = headings.iter().map(|&heading| heading.to_owned()).collect();
    let rows = rows.into_iter().map(|row| row.as_ref().to_vec());
    columns::write(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), out)
}

/// Writes rows under headings as CSV.
pub fn write_csv<R: AsRef<[String]>>(
    out: &mut (impl Write + ?Sized),
    headings: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> io::Result<()> {
    csv_row(out, headings.iter().copied())?;
    rows.into_iter().try_for_each(|row| csv_row(out, row.as_ref().iter().map(String::as_str)))
}

/// Writes rows under headings as a Markdown table.
pub fn write_markdown<R: AsRef<[String]>>(
    out: &mut (impl Write + ?Sized),
    headings: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> io::Result<()> {
    markdown_head(out, headings)?;
    rows.into_iter().try_for_each(|row| markdown_row(out, row.as_ref().iter().map(String::as_str)))
}

/// Writes one CSV row.
pub fn csv_row<'a>(out: &mut (impl Write + ?Sized), fields: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
    let quoted: Vec<_> = fields.into_iter().map(csv_field).collect();
    writeln!(out, "{}", quoted.join(","))
}

/// Writes one row of a Markdown table.
pub fn markdown_row<'a>(out: &mut (impl Write + ?Sized), fields: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
    let escaped: Vec<_> = fields.into_iter().map(|field| field.replace('|', "\\|").replace('\n', " ")).collect();
    writeln!(out, "| {} |", escaped.join(" | "))
}

/// Writes the headings of a Markdown table.
pub fn markdown_head(out: &mut (impl Write + ?Sized), headings: &[&str]) -> io::Result<()> {
    markdown_row(out, headings.iter().copied())?;
    markdown_row(out, headings.iter().map(|_| "---"))
}

fn csv_field(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_would_break_a_row_are_kept_whole() {
        let mut out = Vec::new();
        csv_row(&mut out, ["a", "b,c", "d\"e"]).unwrap();
        markdown_row(&mut out, ["a|b", "c\nd"]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a,\"b,c\",\"d\"\"e\"\n| a\\|b | c d |\n");
    }
}
