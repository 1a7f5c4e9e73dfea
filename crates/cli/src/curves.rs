//! What workloads that are measured by themselves print alike: a line for each name against CPUs, of seeds or of drawn
//! machines, and which guessed numbers go with it.
//!
//! # Guarantee
//! A figure of drawn machines is never shown as one of seeds: it is the median, and where most of them lie.

use std::io::{self, Write};

use faultless_bench::spread::{Draws, Interval, LEVEL, strongest};
use faultless_results::stats::summarize;

/// What a table's figures are shown in.
#[derive(Clone, Copy)]
pub struct Scale {
    /// How much one is of what was measured.
    pub unit: f64,
    /// Places behind the point.
    pub places: usize,
}

/// Returns a table with a row for each name and a column for each number of CPUs, headings first.
pub fn table(
    title: &str,
    names: &[&String],
    cpus: &[usize],
    cell: impl Fn(&str, usize) -> Option<String>,
) -> Vec<Vec<String>> {
    let row = |name: &str, of: &dyn Fn(usize) -> String| {
        std::iter::once(name.to_owned()).chain(cpus.iter().map(|&cpus| of(cpus))).collect()
    };
    let head = row(title, &|cpus| format!("{cpus} CPUs"));
    let line = |name: &&String| row(name, &|cpus| cell(name, cpus).unwrap_or_else(|| "-".to_owned()));
    std::iter::once(head).chain(names.iter().map(line)).collect()
}

/// Returns the mean and the standard deviation of seeds; nothing of no figure.
pub fn of_seeds(figures: &[f64], Scale { unit, places }: Scale) -> Option<String> {
    let of = summarize(figures)?;
    let spread = of.deviation.map_or_else(String::new, |deviation| format!(" ± {:.places$}", deviation / unit));
    Some(format!("{:.places$}{spread}", of.mean / unit))
}

/// Returns the median of drawn machines, and between what most of them lie; nothing of no figure.
pub fn of_draws(figures: &[f64], Scale { unit, places }: Scale) -> Option<String> {
    let [median, low, high] =
        Interval::of(figures).map(|of| [of.median, of.low, of.high].map(|figure| figure / unit))?;
    Some(format!("{median:.places$} [{low:.places$}, {high:.places$}]"))
}

/// Writes the line that says what figures of drawn machines are, if they are.
pub fn write_draws(draws: Option<&Draws>, out: &mut dyn Write) -> io::Result<()> {
    draws.map_or(Ok(()), |draws| {
        writeln!(out, "draws     {} machines; the median, and where {:.0} % of them lie", draws.len(), LEVEL * 100.0)
    })
}

/// Writes which guessed numbers move each rate most: of names, CPUs and the rates of all draws. Of fewer rates than
/// draws nobody knows which are lacking.
pub fn write_sensitivity<'a>(
    draws: &Draws,
    rates: impl Iterator<Item = (&'a str, usize, Vec<f64>)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "\nwhich guessed number goes with each rate (rank correlation over the draws)")?;
    rates.filter(|(.., rates)| rates.len() == draws.len()).try_for_each(|(name, cpus, rates)| {
        writeln!(out, "  {name:<24} {cpus:>4} CPUs  {}", strongest(&draws.sensitivity(&rates)))
    })
}
