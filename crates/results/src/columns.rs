//! Text in columns, for people.

use std::io::{self, Write};

/// Writes rows with each column as wide as its widest cell: names to the left, figures to the right.
pub fn write(rows: &[Vec<String>], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max();
    let widths: Vec<usize> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells: Vec<String> =
            cells.map(|(place, (cell, &to))| if place == 0 { left(cell, to) } else { right(cell, to) }).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// Returns how many columns a text takes.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Fills a text up with spaces behind it.
pub fn left(text: &str, to: usize) -> String {
    format!("{text}{}", " ".repeat(to.saturating_sub(width(text))))
}

/// Fills a text up with spaces before it.
pub fn right(text: &str, to: usize) -> String {
    format!("{}{text}", " ".repeat(to.saturating_sub(width(text))))
}
