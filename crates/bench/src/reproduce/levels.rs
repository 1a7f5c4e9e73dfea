//! Figures themselves, where a source prints them: a change that starts from another level is another thing.
//!
//! # Guarantee
//! Both sides are rates of all workers together, or what the line's figure is. Of drawn machines a level is
//! *reproduced* if the published one lies in the interval that holds 90 % of them; of one machine, and of rates that
//! have not settled, nothing is said.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::row::{Row, sides};
use super::tables::Figure;
use crate::spread::Interval;
use faultless_results::stats::median;
use faultless_results::{NOT_CONVERGED, Unit, columns};

/// One side's level.
struct Level {
    figure: Figure,
    published: f64,
    ours: f64,
    /// Over drawn machines.
    interval: Option<Interval>,
    has_converged: bool,
}

impl Level {
    fn of(row: &Row, side: usize) -> Option<Self> {
        let published = row.case.published_rates?[side];
        let samples = [&row.base, &row.head][side];
        let interval = row.drawn.as_ref().and_then(|_| Interval::of(samples));
        let figure = row.case.figure;
        Some(Self { figure, published, ours: median(samples)?, interval, has_converged: row.has_converged })
    }

    fn is_reproduced(&self) -> Option<bool> {
        self.interval.filter(|_| self.has_converged).map(|interval| interval.holds(self.published))
    }

    fn show(&self, level: f64) -> String {
        match self.figure {
            Figure::Rate => Unit::PerSecond.show(level),
            Figure::Sleeps => format!("{level:.2}"),
            Figure::RendererSeconds => format!("{level:.6} s"),
            Figure::ResidentKib => format!("{level:.0} KiB"),
        }
    }

    fn cells(&self) -> [String; 3] {
        let show = |level: f64| self.show(level);
        let told = self.is_reproduced().map_or(NOT_CONVERGED, |is_reproduced| if is_reproduced { "yes" } else { "NO" });
        let ours = match self.interval {
            Some(Interval { low, high, .. }) => format!("{} [{}, {}] {told}", show(self.ours), show(low), show(high)),
            None => show(self.ours),
        };
        [show(self.published), ours, format!("{:.2}", self.ours / self.published)]
    }

    fn json(&self) -> Value {
        json!({
            "published": self.published, "ours": self.ours, "ratio": self.ours / self.published,
            "interval": self.interval.map(|interval| interval.json()), "reproduced": self.is_reproduced(),
        })
    }
}

/// Returns a row's levels for the machine-readable report; nothing where none were published.
pub(super) fn json(row: &Row) -> Option<Value> {
    Some(json!({ "before": Level::of(row, 0)?.json(), "after": Level::of(row, 1)?.json() }))
}

/// Writes the levels of those rows that have published ones.
pub(super) fn write(rows: &[Row], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let with_levels = rows.iter().filter_map(|row| Some((row, Level::of(row, 0)?, Level::of(row, 1)?)));
    let lines: Vec<Vec<String>> = with_levels
        .map(|(row, before, after)| {
            let mode = if row.case.processes { "processes" } else { "threads" };
            let workload = row
                .case
                .head_workload
                .map_or_else(|| row.case.workload.to_owned(), |head| format!("{} > {head}", row.case.workload));
            let of_case = [workload, format!("{} {mode}", row.case.cpus), sides(row.case)];
            of_case.into_iter().chain(before.cells()).chain(after.cells()).collect()
        })
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nthe figures themselves, rates of all workers together; *x* is ours over the published one")?;
    let headings = ["workload", "CPUs", "designs", "before, published", "ours", "x", "after, published", "ours", "x"]
        .map(String::from);
    columns::write(&std::iter::once(headings.to_vec()).chain(lines).collect::<Vec<_>>(), out)
}

#[cfg(test)]
mod tests {
    use super::super::TABLES;
    use super::*;
    use crate::spread::Draws;
    use faultless_sim::Spec;

    fn row(base: [f64; 3], head: [f64; 3]) -> Row {
        let case = &TABLES[0].cases[0];
        let (base, head) = (base.to_vec(), head.to_vec());
        Row { case, base, head, own: Vec::new(), events: Vec::new(), has_converged: true, drawn: None }
    }

    #[test]
    fn both_sides_are_rates_of_all_workers() {
        let published = 10107.0 * 192.0;
        let told = json(&row([published; 3], [published / 2.0; 3])).expect("published levels");
        assert_eq!((&told["before"]["published"], &told["before"]["ratio"]), (&json!(published), &json!(1.0)));
        assert!(told["before"]["reproduced"].is_null(), "one machine says nothing of how sure it is");
        let mut text = Vec::new();
        write(&[row([published; 3], [published / 2.0; 3])], &mut text).expect("room");
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("1.94 M/s") && text.contains("1.00"), "{text}");
    }

    #[test]
    fn drawn_machines_hold_a_level_or_do_not() {
        let draws = Draws::new(&Spec::preset("skylake-192").expect("a preset"), 3, 1);
        let mut row = row([1.0e6, 2.0e6, 3.0e6], [1.0e6, 1.1e6, 1.2e6]);
        row.judge_by(&draws);
        let told = json(&row).expect("published levels");
        assert_eq!((&told["before"]["reproduced"], &told["after"]["reproduced"]), (&json!(true), &json!(false)));
        row.has_converged = false;
        assert!(json(&row).expect("published levels")["before"]["reproduced"].is_null(), "rates that still move");
        assert!(TABLES.iter().flat_map(|table| table.cases).any(|case| case.published_rates.is_none()));
    }
}
