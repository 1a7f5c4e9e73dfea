//! Text in columns, for people.
//!
//! # Guarantee
//! A table is as wide as the [screen] at most, unless two columns beside each other are wider already:
//! what does not fit is turned (its columns become rows) where that helps, then cut into blocks of whole columns, each
//! with the names in front. No cell is cut, and none is left out.

use std::io::{self, Write};

use crate::screen;

const GAP: usize = 2;

/// Writes rows with each column as wide as its widest cell: names to the left, figures to the right.
pub fn write(rows: &[Vec<String>], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    write_within(rows, 1, screen::get().columns, out)
}

/// Writes rows whose first columns, `nr_names` of them, say what a row is about; they stand before each block.
pub fn write_named(rows: &[Vec<String>], nr_names: usize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    write_within(rows, nr_names, screen::get().columns, out)
}

/// Writes rows whose columns are designs, headings first, behind `nr_names` columns of names: as they are where they
/// fit, else with a row for each design.
pub fn write_designs(rows: &[Vec<String>], nr_names: usize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    write_designs_within(rows, nr_names, screen::get().columns, out)
}

fn write_designs_within(
    rows: &[Vec<String>],
    nr_names: usize,
    room: usize,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    if total(&widths(rows)) <= room {
        return write_within(rows, nr_names, room, out);
    }
    write_within(&turned(rows), 1, room, out)
}

/// Returns a table with its columns as rows.
fn turned(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let nr_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).map_or("", |cell| cell.trim()).to_owned();
    (0..nr_columns).map(|column| rows.iter().map(|row| cell(row, column)).collect()).collect()
}

fn write_within(rows: &[Vec<String>], nr_names: usize, room: usize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let widths = widths(rows);
    for (place, block) in blocks(&widths, nr_names, room).iter().enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        let columns: Vec<usize> = (0..nr_names.min(widths.len())).chain(block.clone()).collect();
        for row in rows {
            let cell = |&column: &usize| {
                let (text, to) = (row.get(column).map_or("", String::as_str), widths[column]);
                if column == 0 { left(text, to) } else { right(text, to) }
            };
            let cells: Vec<String> = columns.iter().map(cell).collect();
            writeln!(out, "{}", cells.join("  ").trim_end())?;
        }
    }
    Ok(())
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max();
    (0..columns).map(|column| widest(column).unwrap_or(0)).collect()
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Returns which columns stand beside each other behind the names: as many as fit, at least one.
fn blocks(widths: &[usize], nr_names: usize, room: usize) -> Vec<std::ops::Range<usize>> {
    let nr_names = nr_names.min(widths.len());
    let names: usize = widths[..nr_names].iter().map(|width| width + GAP).sum();
    let mut blocks = Vec::new();
    let mut start = nr_names;
    while start < widths.len() {
        let fits = |end: &usize| names.saturating_add(total(&widths[start..*end])) <= room;
        let end = (start + 1..=widths.len()).take_while(fits).last().unwrap_or(start + 1);
        blocks.push(start..end);
        start = end;
    }
    if blocks.is_empty() && !widths.is_empty() {
        blocks.push(start..start);
    }
    blocks
}

/// Returns how many columns a text takes; what colours it takes none.
pub fn width(text: &str) -> usize {
    let mut is_escape = false;
    let is_seen = |&letter: &char| {
        let is_shown = !is_escape && letter != '\x1b';
        is_escape = !is_shown && (letter == '\x1b' || letter != 'm');
        is_shown
    };
    text.chars().filter(is_seen).count()
}

/// Fills a text up with spaces behind it.
pub fn left(text: &str, to: usize) -> String {
    format!("{text}{}", " ".repeat(to.saturating_sub(width(text))))
}

/// Fills a text up with spaces before it.
pub fn right(text: &str, to: usize) -> String {
    format!("{}{text}", " ".repeat(to.saturating_sub(width(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(nr_designs: usize, nr_rows: usize) -> Vec<Vec<String>> {
        let head = std::iter::once("design".to_owned()).chain((0..nr_designs).map(|d| format!("design-{d}")));
        let row = |r: usize| {
            let cells = (0..nr_designs).map(move |d| format!("{}.{d} ms ± {r}", r * 111));
            std::iter::once(format!("figure {r}")).chain(cells).collect()
        };
        std::iter::once(head.collect()).chain((0..nr_rows).map(row)).collect()
    }

    fn written(rows: &[Vec<String>], room: usize) -> String {
        let mut out = Vec::new();
        write_designs_within(rows, 1, room, &mut out).expect("written");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn tables_of_any_size_fit_and_lose_no_cell() {
        for (designs, rows) in [(1, 1), (2, 16), (6, 16), (9, 3), (40, 2)] {
            let table = table(designs, rows);
            for room in [80, 100, 120] {
                let text = written(&table, room);
                assert!(text.lines().all(|line| width(line) <= room), "{designs} in {room}:\n{text}");
                assert!(table.iter().flatten().all(|cell| text.contains(cell.as_str())), "{text}");
            }
        }
    }

    #[test]
    fn designs_are_rows_where_their_columns_do_not_fit() {
        let table = table(6, 2);
        assert_eq!(written(&table, 120).lines().count(), 3);
        let turned = written(&table, 60);
        assert!(turned.starts_with("design      figure 0      figure 1\ndesign-0"), "{turned}");
        assert_eq!(turned.lines().count(), 7);
    }

    #[test]
    fn colours_take_no_room() {
        assert_eq!(width("\x1b[32m+3 %\x1b[0m"), 4);
        assert_eq!(right("\x1b[32mab\x1b[0m", 4), "  \x1b[32mab\x1b[0m");
    }
}
