//! `faultless bench rwsem --grid`: every semaphore beside one of 2012, over twenty loads.
//!
//! # Guarantee
//! * I1 a ratio is the median over pairs of runs: of one seed, one drawn machine or one round
//! * I2 a semaphore loses a cell if the whole 95 % interval of its ratio (by bootstrap) lies below [`LIMIT`]; the cell
//!   is undecided if the interval holds it

use std::io::{self, Write};

use faultless_bench::rwsem::{RwsemArm, RwsemLoad, Taken};
use faultless_bench::spread::Draws;
use faultless_results::stats::{Interval, median_ratio, summarize};
use faultless_results::{ResultSet, columns};

use crate::curves;
use crate::duration::Written;
use crate::rwsem::{Measurement, p999s, rates};

/// What others are compared with, if it is measured; else the first.
const BASE: &str = "rwsem-2012";
/// A rate below that share of the base's is a loss.
const LIMIT: f64 = 0.95;

const RATIOS: [(u32, u32); 5] = [(0, 1), (1, 1), (10, 1), (100, 1), (10_000, 1)];
const SECTIONS_NS: [u64; 2] = [100, 10_000];
const THREADS_PER_CPU: [usize; 2] = [1, 2];

/// Returns how long the grid holds a lock at most.
pub fn longest_section() -> Written {
    Written { text: "10us".into(), ns: SECTIONS_NS[1] }
}

/// Returns the loads of the grid.
pub fn loads(duration_ns: u64) -> Vec<RwsemLoad> {
    let mut loads = Vec::new();
    for section_ns in SECTIONS_NS {
        for threads_per_cpu in THREADS_PER_CPU {
            loads.extend(RATIOS.map(|(readers, writers)| RwsemLoad {
                readers,
                writers,
                section_ns,
                threads_per_cpu,
                duration_ns,
            }));
        }
    }
    loads
}

/// What a ratio says of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Keeps,
    Undecided,
    Loses,
}

impl Cell {
    fn of(ratio: &Interval) -> Self {
        match ratio {
            _ if ratio.high < LIMIT => Self::Loses,
            _ if ratio.low < LIMIT => Self::Undecided,
            _ => Self::Keeps,
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Self::Keeps => "",
            Self::Undecided => " ?",
            Self::Loses => " !",
        }
    }
}

/// Writes ratios, a line for each load; what writers waited; and how many cells each semaphore loses.
pub fn write(
    set: &ResultSet,
    draws: Option<&Draws>,
    measured: &[Measurement<'_>],
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(first) = measured.first() else { return Ok(()) };
    let mut names: Vec<&str> = first.rows.iter().map(|(arm, _)| arm.semaphore.as_str()).collect();
    names.dedup();
    let base = names.iter().copied().find(|&name| name == BASE).or(names.first().copied()).unwrap_or(BASE);
    names.retain(|&name| name != base);
    writeln!(out, "machine   {}", set.machine)?;
    curves::write_draws(draws, out)?;
    writeln!(out, "\nM sections/s of {base}, and over it the others: median [95 % interval] over pairs")?;
    let ratios = |load: &Measurement<'_>, cpus: usize| -> Vec<String> {
        let base_rates = runs_of(load, base, cpus).map(rates).unwrap_or_default();
        let mean = summarize(&base_rates).map_or_else(|| "-".to_owned(), |of| format!("{:.3}", of.mean / 1e6));
        std::iter::once(mean).chain(names.iter().map(|name| shown(ratio(load, (base, *name), cpus)))).collect()
    };
    columns::write_named(&table(measured, base, &names, ratios), NAMES.len(), out)?;
    writeln!(out, "! loses: the whole interval lies below {LIMIT}   ? undecided: the interval holds it")?;
    writeln!(out, "\na writer's p99.9 wait, us")?;
    let waits = |load: &Measurement<'_>, cpus: usize| -> Vec<String> {
        let wait = |name: &str| runs_of(load, name, cpus).and_then(|runs| summarize(&p999s(runs)));
        let text = |name: &str| wait(name).map_or_else(|| "-".to_owned(), |of| format!("{:.1}", of.mean / 1e3));
        std::iter::once(base).chain(names.iter().copied()).map(text).collect()
    };
    columns::write_named(&table(measured, base, &names, waits), NAMES.len(), out)?;
    writeln!(out)?;
    columns::write(&verdicts(measured, base, &names), out)
}

const NAMES: [&str; 4] = ["readers:writers", "section, ns", "threads a CPU", "CPUs"];

fn table(
    measured: &[Measurement<'_>],
    base: &str,
    names: &[&str],
    cells: impl Fn(&Measurement<'_>, usize) -> Vec<String>,
) -> Vec<Vec<String>> {
    let head: Vec<String> = NAMES.iter().chain([&base]).chain(names).map(|&name| name.to_owned()).collect();
    let line = |of: &Measurement<'_>, cpus: usize| -> Vec<String> {
        let RwsemLoad { readers, writers, section_ns, threads_per_cpu, .. } = of.load;
        let names =
            [format!("{readers}:{writers}"), section_ns.to_string(), threads_per_cpu.to_string(), cpus.to_string()];
        names.into_iter().chain(cells(of, cpus)).collect()
    };
    let lines = measured.iter().flat_map(|of| cpus_of(of).into_iter().map(move |cpus| line(of, cpus)));
    std::iter::once(head).chain(lines).collect()
}

/// Returns how many cells each semaphore loses, how many are undecided, and its least and its largest ratio.
fn verdicts(measured: &[Measurement<'_>], base: &str, names: &[&str]) -> Vec<Vec<String>> {
    let head: Vec<String> = ["", "cells", "loses", "undecided", "least", "largest"].map(str::to_owned).into();
    let line = |name: &&str| {
        let all =
            measured.iter().flat_map(|of| cpus_of(of).into_iter().map(move |cpus| ratio(of, (base, *name), cpus)));
        let ratios: Vec<Interval> = all.flatten().collect();
        let count = |cell| ratios.iter().filter(|ratio| Cell::of(ratio) == cell).count().to_string();
        let end = |pick: fn(f64, f64) -> f64| {
            ratios.iter().map(|ratio| ratio.middle).reduce(pick).map_or_else(String::new, |of| format!("{of:.2}"))
        };
        let (loses, undecided) = (count(Cell::Loses), count(Cell::Undecided));
        vec![(*name).to_owned(), ratios.len().to_string(), loses, undecided, end(f64::min), end(f64::max)]
    };
    std::iter::once(head).chain(names.iter().map(line)).collect()
}

fn cpus_of(measured: &Measurement<'_>) -> Vec<usize> {
    let mut cpus: Vec<usize> = measured.rows.iter().map(|(arm, _)| arm.cpus).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn runs_of<'a>(measured: &'a Measurement<'_>, semaphore: &str, cpus: usize) -> Option<&'a [Taken]> {
    let is_it = |arm: &RwsemArm| arm.semaphore == semaphore && arm.cpus == cpus;
    measured.rows.iter().find(|(arm, _)| is_it(arm)).map(|(_, runs)| runs.as_slice())
}

fn ratio(measured: &Measurement<'_>, (base, name): (&str, &str), cpus: usize) -> Option<Interval> {
    let [base, of] = [base, name].map(|name| runs_of(measured, name, cpus).map(rates));
    median_ratio(&base?, &of?, 1)
}

fn shown(ratio: Option<Interval>) -> String {
    let Some(ratio) = ratio else { return "-".to_owned() };
    format!("{:.2} [{:.2}, {:.2}]{}", ratio.middle, ratio.low, ratio.high, Cell::of(&ratio).mark())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_lost_if_its_whole_interval_is_low() {
        let cell = |low, high| Cell::of(&Interval { low, middle: low, high, n: 5 });
        assert_eq!(cell(0.5, 0.94), Cell::Loses);
        assert_eq!(cell(0.5, 0.95), Cell::Undecided);
        assert_eq!(cell(0.95, 0.96), Cell::Keeps);
    }

    #[test]
    fn the_grid_has_twenty_loads_that_differ() {
        let loads = loads(1);
        assert_eq!(loads.len(), RATIOS.len() * SECTIONS_NS.len() * THREADS_PER_CPU.len());
        assert!(loads.iter().enumerate().all(|(place, load)| !loads[..place].contains(load)));
    }

    #[test]
    fn losses_are_counted_against_the_semaphore_of_2012() {
        let load = loads(1)[0];
        let arm = |semaphore: &str| RwsemArm { semaphore: semaphore.into(), cpus: 2 };
        let runs = |rate: f64| [rate, rate * 1.01].map(|ops_per_s| Taken { ops_per_s, ..Taken::default() }).to_vec();
        let arms = [arm("slow"), arm(BASE), arm("quick")];
        let rows = arms.iter().zip([runs(5.0), runs(10.0), runs(20.0)]).collect();
        let measured = [Measurement { load: &load, rows }];
        let lines = verdicts(&measured, BASE, &["slow", "quick"]);
        assert_eq!(lines[1], ["slow", "1", "1", "0", "0.50", "0.50"]);
        assert_eq!(lines[2], ["quick", "1", "0", "0", "2.00", "2.00"]);
    }
}
