//! A published line beside what drawn machines say.
//!
//! # Guarantee
//! A line is *reproduced* if what was published lies in the interval of the draws; a change of less than 10 %, if all
//! of the interval lies within 10 points of it. Where a run's rate had not settled, nothing is said.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::row::{Row, sides};
use crate::spread::{Draws, Interval, LEVEL, sensitivity_json, strongest};
use faultless_results::{NOT_CONVERGED, columns};

/// A smaller published change may be noise.
const SMALL: f64 = 0.1;

/// What drawn machines say of a line.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The published figure after the change, divided by the one before.
    pub published: f64,
    /// Of ours.
    pub interval: Interval,
    /// Whether the line is reproduced.
    pub is_reproduced: Option<bool>,
    /// Which drawn number goes with the result, and how: rank correlation, the strongest first.
    pub sensitivity: Vec<(String, f64)>,
}

impl Row {
    /// Takes each seed of the row for a draw, in order.
    pub fn judge_by(&mut self, draws: &Draws) {
        let factors: Vec<f64> = self.base.iter().zip(&self.head).map(|(base, head)| head / base).collect();
        let published = 1.0 + self.case.published_percent / 100.0;
        self.drawn = Drawn::of(published, &factors, self.has_converged, draws);
    }
}

fn is_reproduced(published: f64, interval: &Interval) -> bool {
    if (published - 1.0).abs() >= SMALL {
        return interval.holds(published);
    }
    [interval.low, interval.high].iter().all(|end| (end - published).abs() <= SMALL)
}

impl Drawn {
    /// Returns what a factor of each draw says of the published one; nothing if there is none.
    pub(super) fn of(published: f64, factors: &[f64], has_converged: bool, draws: &Draws) -> Option<Self> {
        let interval = Interval::of(factors)?;
        let is_reproduced = has_converged.then(|| is_reproduced(published, &interval));
        // A row that was interrupted doesn't say which draws it lacks.
        let sensitivity = if factors.len() == draws.len() { draws.sensitivity(factors) } else { Vec::new() };
        Some(Self { published, interval, is_reproduced, sensitivity })
    }

    /// Returns what stands above [`Drawn::cells`].
    pub(super) fn headings() -> [String; 4] {
        ["median".into(), format!("{:.0} % of draws", LEVEL * 100.0), "draws".into(), "reproduced".into()]
    }

    /// Returns a table's cells.
    pub(super) fn cells(&self) -> [String; 4] {
        let percent = |factor: f64| (factor - 1.0) * 100.0;
        let Interval { median, low, high, draws } = self.interval;
        [
            format!("{:+.1} %", percent(median)),
            format!("[{:+.1}, {:+.1}]", percent(low), percent(high)),
            draws.to_string(),
            self.verdict(),
        ]
    }

    /// Returns what stands in a row's last fields.
    pub(super) fn fields(drawn: Option<&Self>) -> [String; 4] {
        drawn.map_or_else(Default::default, |drawn| {
            let percent = |factor: f64| ((factor - 1.0) * 100.0).to_string();
            let told = drawn.is_reproduced.map_or("", |is| if is { "yes" } else { "no" });
            let Interval { low, high, draws, .. } = drawn.interval;
            [percent(low), percent(high), draws.to_string(), told.to_owned()]
        })
    }

    /// Adds it to a row's object.
    pub(super) fn add_to(&self, row: &mut Value) {
        row["published"] = json!(self.published);
        row["median"] = json!(self.interval.median);
        row["interval"] = self.interval.json();
        row["reproduced"] = json!(self.is_reproduced);
        row["sensitivity"] = sensitivity_json(&self.sensitivity);
    }

    fn verdict(&self) -> String {
        match self.is_reproduced {
            Some(true) => "yes".to_owned(),
            Some(false) => "NO".to_owned(),
            None => NOT_CONVERGED.to_owned(),
        }
    }
}

/// Writes the rows that have been judged, and how many are reproduced.
pub(super) fn write(rows: &[Row], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let headings = ["workload", "CPUs", "machine (simulated)", "designs", "published"].map(String::from);
    let mut cells = vec![headings.into_iter().chain(Drawn::headings()).collect::<Vec<String>>()];
    let judged = || rows.iter().filter_map(|row| Some((row, row.drawn.as_ref()?)));
    for (row, drawn) in judged() {
        let case = row.case;
        let mode = if case.processes { "processes" } else { "threads" };
        let published = format!("{:+.1} %", (drawn.published - 1.0) * 100.0);
        let of_case =
            [case.workload.to_owned(), format!("{} {mode}", case.cpus), case.machine.into(), sides(case), published];
        cells.push(of_case.into_iter().chain(drawn.cells()).collect());
    }
    columns::write(&cells, out)?;
    let large = || judged().filter(|(_, drawn)| (drawn.published - 1.0).abs() >= SMALL);
    let nr_reproduced = large().filter(|(_, drawn)| drawn.is_reproduced == Some(true)).count();
    writeln!(
        out,
        "\n{nr_reproduced} of {} lines with a published change of at least 10 % are reproduced",
        large().count()
    )
}

/// Writes which guessed numbers move each line most.
pub fn write_sensitivity(rows: &[Row], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "\nwhich guessed number goes with each line (rank correlation over the draws):")?;
    for (row, drawn) in rows.iter().filter_map(|row| Some((row, row.drawn.as_ref()?))) {
        writeln!(out, "  {:<32} {:>4} CPUs  {}", row.case.workload, row.case.cpus, strongest(&drawn.sensitivity))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::TABLES;
    use super::*;
    use faultless_sim::Spec;

    #[test]
    fn large_changes_must_lie_in_the_interval_and_small_ones_near_all_of_it() {
        let interval = |low, high| Interval { median: low, low, high, draws: 32 };
        assert!(is_reproduced(1.5, &interval(1.2, 1.6)) && !is_reproduced(1.7, &interval(1.2, 1.6)));
        assert!(is_reproduced(1.02, &interval(0.95, 1.1)) && !is_reproduced(1.02, &interval(0.9, 1.1)));
        assert!(is_reproduced(1.02, &interval(1.05, 1.06)), "near, though it is not inside");
    }

    #[test]
    fn a_row_of_draws_says_what_was_published_and_where_ours_lies() {
        let case = &TABLES[0].cases[0];
        let draws = Draws::new(&Spec::preset("skylake-192").expect("a preset"), 3, 1);
        let mut row = Row {
            case,
            base: vec![1.0, 2.0, 4.0],
            head: vec![1.0, 4.0, 12.0],
            own: Vec::new(),
            events: Vec::new(),
            has_converged: true,
            drawn: None,
        };
        assert!(row.json().get("interval").is_none());
        row.judge_by(&draws);
        let told = row.json();
        assert_eq!(told["interval"]["draws"], 3);
        assert_eq!(told["interval"]["level"], 0.9);
        assert_eq!(told["median"], 2.0);
        assert!((told["interval"]["low"].as_f64().expect("a number") - 1.1).abs() < 1e-9);
        assert!((told["published"].as_f64().expect("a number") - 1.0 - case.published_percent / 100.0).abs() < 1e-9);
        assert!(told["reproduced"].is_boolean());
        row.has_converged = false;
        row.judge_by(&draws);
        assert!(row.json()["reproduced"].is_null(), "nothing is said of rates that move");
    }
}
