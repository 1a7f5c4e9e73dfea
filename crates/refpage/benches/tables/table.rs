//! Tables on stdout, for readers and for spreadsheets.

use crate::statistics::{deviation, median};

/// How tables are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Human,
    Markdown,
    Csv,
}

impl Format {
    /// Parses the option's value.
    pub fn parse(word: &str) -> Result<Format, String> {
        match word {
            "human" => Ok(Format::Human),
            "markdown" => Ok(Format::Markdown),
            "csv" => Ok(Format::Csv),
            other => Err(format!("--format {other}: want human, markdown or csv")),
        }
    }
}

/// Prints a title, a head and rows of the same number of cells.
pub(crate) fn print(format: Format, title: &str, head: &[&str], rows: &[Vec<String>]) {
    let lines: Vec<Vec<String>> =
        std::iter::once(head.iter().map(|cell| cell.to_string()).collect()).chain(rows.iter().cloned()).collect();
    match format {
        Format::Csv => print_csv(title, &lines),
        _ => print_aligned(format, title, &lines),
    }
    println!();
}

fn print_csv(title: &str, lines: &[Vec<String>]) {
    println!("# {title}");
    for line in lines {
        let quoted: Vec<_> = line.iter().map(|cell| format!("\"{cell}\"")).collect();
        println!("{}", quoted.join(","));
    }
}

fn print_aligned(format: Format, title: &str, lines: &[Vec<String>]) {
    println!("{}{title}\n", if format == Format::Markdown { "### " } else { "" });
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..lines[0].len()).filter_map(width).collect();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<_> =
            line.iter().zip(&widths).enumerate().map(|(i, (cell, width))| pad(cell, *width, i)).collect();
        match format {
            Format::Markdown => println!("| {} |", cells.join(" | ")),
            _ => println!("{}", cells.join("  ").trim_end()),
        }
        if index == 0 && format == Format::Markdown {
            let rules: Vec<_> = widths.iter().enumerate().map(|(i, w)| rule(*w, i)).collect();
            println!("|{}|", rules.join("|"));
        }
    }
}

/// Words to the left, in the first column, numbers to the right.
fn pad(cell: &str, width: usize, column: usize) -> String {
    if column == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
}

fn rule(width: usize, column: usize) -> String {
    if column == 0 { "-".repeat(width + 2) } else { format!("{}:", "-".repeat(width + 1)) }
}

/// Three significant digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "-".into(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The median and the standard deviation.
pub(crate) fn spread(samples: &[f64]) -> String {
    format!("{} ±{}", digits(median(samples)), digits(deviation(samples)))
}
