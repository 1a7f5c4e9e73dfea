//! How well the simulation of this machine agrees with it: the same runs on both, cell by cell.

use faultless_linux::space::has_interrupt;
use std::fmt;
use std::io::{self, Write};

use faultless_platform::native::{Machine, Native};
use faultless_workloads::Spec as Workload;
use serde_json::{Map, Value, json};

use super::fit::{distance_ns, is_same_distance, with_transfers};
use crate::measure::{
    HostSite, Job, Length, MeasureError, Mode, Pinning, PlacementPolicy, once, once_simulated, shrunk,
};
use faultless_machine::designs::DEFAULT_SEMAPHORE;
use faultless_machine::simulated::{HERE, Spec};
use faultless_pass::Replayer;
use faultless_results::columns;
use faultless_results::stats::median;

/// A cell agrees if it is within this share of the real one.
pub const CELL_WITHIN: f64 = 0.25;
/// So many of the cells have to.
pub const CELLS_LEAST: f64 = 0.90;
/// And their geometric mean has to be within this share.
pub const MEAN_WITHIN: f64 = 0.10;
/// From so many sleeps for each operation on, a cell measures the host's wake-ups, which have two speeds in a virtual
/// machine.
const SLEEPS: f64 = 0.01;
/// Seeds of each simulated cell.
const SEEDS: u64 = 3;
/// How often a row is measured again when the CPUs were moved meanwhile.
const TRIES: usize = 4;

/// What stands above the fields of a cell.
pub const HEADINGS: [&str; 9] =
    ["workload", "design", "cpus", "native_ops_per_s", "simulated_ops_per_s", "ratio", "line_ns", "apart", "agrees"];

/// What to compare.
#[derive(Clone, Debug)]
pub struct CalibrationSetup {
    /// The simulated machine.
    pub machine: Spec,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Designs.
    pub designs: Vec<String>,
    /// Numbers of CPUs.
    pub cpus: Vec<usize>,
    /// Runs of each cell on this machine.
    pub runs: usize,
    /// How long each of them is.
    pub duration_ns: u64,
    /// Who replays recordings.
    pub replayer: &'static dyn Replayer,
}

/// One workload under one design on so many CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The workload.
    pub workload: String,
    /// The design.
    pub design: String,
    /// CPUs.
    pub cpus: usize,
    /// Operations in a second on this machine, the median.
    pub native: f64,
    /// Operations in a second of the simulation, the median.
    pub simulated: f64,
    /// How often a thread slept, for each operation.
    pub sleeps: f64,
    /// What a dirty line took from one CPU to the other beside the real runs; nothing on one CPU.
    pub line_ns: Option<f64>,
}

impl Cell {
    /// Returns the simulated rate over the real one.
    pub fn ratio(&self) -> f64 {
        self.simulated / self.native
    }

    /// Says whether it sleeps so much that it is told apart.
    pub fn is_apart(&self) -> bool {
        self.sleeps > SLEEPS
    }

    fn agrees(&self) -> bool {
        let ratio = self.ratio();
        (1.0 / (1.0 + CELL_WITHIN)..=1.0 + CELL_WITHIN).contains(&ratio)
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// All cells.
    pub cells: Vec<Cell>,
}

impl Agreement {
    fn counted(&self) -> impl Iterator<Item = &Cell> + Clone {
        self.cells.iter().filter(|cell| !cell.is_apart())
    }

    /// Returns the share of the cells that agree; nothing if there is none.
    pub fn share(&self) -> Option<f64> {
        let all = self.counted().count();
        (all > 0).then(|| self.counted().filter(|cell| cell.agrees()).count() as f64 / all as f64)
    }

    /// Returns the geometric mean of the ratios; nothing without cells.
    pub fn mean(&self) -> Option<f64> {
        let all = self.counted().count();
        (all > 0).then(|| (self.counted().map(|cell| cell.ratio().ln()).sum::<f64>() / all as f64).exp())
    }

    /// Says whether both limits are kept.
    pub fn holds(&self) -> bool {
        let is_near = |mean: f64| (1.0 / (1.0 + MEAN_WITHIN)..=1.0 + MEAN_WITHIN).contains(&mean);
        self.share().is_some_and(|share| share >= CELLS_LEAST) && self.mean().is_some_and(is_near)
    }

    /// Returns the cells' fields under [`HEADINGS`], in plain numbers.
    pub fn fields(&self) -> Vec<Vec<String>> {
        let word = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
        let field = |cell: &Cell| {
            vec![
                cell.workload.clone(),
                cell.design.clone(),
                cell.cpus.to_string(),
                cell.native.to_string(),
                cell.simulated.to_string(),
                cell.ratio().to_string(),
                cell.line_ns.map_or_else(String::new, |ns| ns.to_string()),
                word(cell.is_apart()),
                word(cell.agrees()),
            ]
        };
        self.cells.iter().map(field).collect()
    }

    /// Writes the table.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut rows =
            vec![["workload", "design", "CPUs", "native", "simulated", "ratio", "line", ""].map(String::from).to_vec()];
        rows.extend(self.cells.iter().map(row));
        columns::write(&rows, out)?;
        writeln!(out, "\n{self}")
    }

    /// Returns the figures for the machine-readable report.
    pub fn checks(&self) -> Map<String, Value> {
        let cell = |cell: &Cell| {
            json!({
                "workload": cell.workload, "design": cell.design, "cpus": cell.cpus, "native": cell.native,
                "simulated": cell.simulated, "ratio": cell.ratio(), "sleeps_per_op": cell.sleeps,
                "line_ns": cell.line_ns,
                "apart": cell.is_apart(), "agrees": cell.agrees(),
            })
        };
        let all = json!({
            "cells": self.cells.iter().map(cell).collect::<Vec<_>>(),
            "share_within_25_percent": self.share(),
            "geometric_mean": self.mean(),
            "holds": self.holds(),
        });
        Map::from_iter([("calibration".to_owned(), all)])
    }
}

fn row(cell: &Cell) -> Vec<String> {
    let remark = match (cell.is_apart(), cell.agrees()) {
        (true, _) => "sleeps: apart",
        (false, true) => "",
        (false, false) => "outside",
    };
    let rate = |value: f64| faultless_results::Unit::PerSecond.show(value);
    vec![
        cell.workload.clone(),
        cell.design.clone(),
        cell.cpus.to_string(),
        rate(cell.native),
        rate(cell.simulated),
        format!("{:.2}", cell.ratio()),
        cell.line_ns.map_or(String::new(), |ns| format!("{ns:.0} ns")),
        remark.to_owned(),
    ]
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(share), Some(mean)) = (self.share(), self.mean()) else { return write!(f, "no cell to compare") };
        let verdict = if self.holds() { "holds" } else { "fails" };
        let apart = self.cells.iter().filter(|cell| cell.is_apart()).count();
        write!(
            f,
            "{:.0} % of {} cells within 25 % (90 % wanted), geometric mean {mean:.3} (0.909 to 1.100 wanted), {apart} cells that sleep apart: {verdict}",
            share * 100.0,
            self.counted().count(),
        )
    }
}

/// Compares; `progress` is told which cell comes. An interrupt ends it with the cells that are complete.
pub fn agreement(setup: &CalibrationSetup, progress: &dyn Fn(&str)) -> Result<Agreement, MeasureError> {
    let mut cells = Vec::new();
    for workload in &setup.workloads {
        for &cpus in &setup.cpus {
            if has_interrupt() {
                return Ok(Agreement { cells });
            }
            progress(&format!("{} on {cpus} CPUs", workload.name));
            cells.extend(row_of(setup, workload, cpus)?);
        }
    }
    Ok(Agreement { cells })
}

/// Compares one workload on so many CPUs under all designs.
///
/// The machine of this name is simulated with the distance of its CPUs measured beside the row: the host of a virtual
/// machine moves them, and a line then takes several times as long. A row during which they moved is measured again.
fn row_of(setup: &CalibrationSetup, workload: &Workload, cpus: usize) -> Result<Vec<Cell>, MeasureError> {
    let jobs: Vec<Job> = setup.designs.iter().map(|design| job(setup, workload, design, cpus)).collect();
    if cpus == 1 || setup.machine.name() != HERE {
        return cells(&setup.machine, &jobs, native(setup, &jobs, cpus)?, None);
    }
    let mut tries = TRIES;
    loop {
        let machine = with_transfers(&setup.machine).map_err(|error| MeasureError::Message(error.to_string()))?;
        let line_ns = machine.number("read.complex_ns").unwrap_or(0.0);
        let samples = native(setup, &jobs, cpus)?;
        tries -= 1;
        if tries == 0 || is_same_distance(line_ns, distance_ns()) {
            return cells(&machine, &jobs, samples, Some(line_ns));
        }
    }
}

/// Runs the jobs on this machine in turn; returns the rates of each.
fn native(setup: &CalibrationSetup, jobs: &[Job], cpus: usize) -> Result<Vec<Vec<f64>>, MeasureError> {
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); jobs.len()];
    for run in 0..=setup.runs {
        for (job, rates) in jobs.iter().zip(&mut rates) {
            let site = HostSite::new(Pinning::IfEnough, cpus);
            let result = once::<Native>(&Machine::new(cpus), job, &site, &|| false)?;
            // The first one warms up.
            if run > 0 {
                rates.push(result.ops_per_s);
            }
        }
    }
    Ok(rates)
}

fn cells(machine: &Spec, jobs: &[Job], native: Vec<Vec<f64>>, line_ns: Option<f64>) -> Result<Vec<Cell>, MeasureError> {
    jobs.iter().zip(native).map(|(job, rates)| cell(machine, job, &rates, line_ns)).collect()
}

fn job(setup: &CalibrationSetup, workload: &Workload, design: &str, cpus: usize) -> Job {
    Job {
        spec: shrunk(workload.clone()),
        design: design.to_owned(),
        semaphore: DEFAULT_SEMAPHORE.to_owned(),
        cpus,
        mode: Mode::Threads,
        length: Length::Fixed(setup.duration_ns),
        memory_bytes: None,
        placement: PlacementPolicy::Linux,
        replayer: Some(setup.replayer),
    }
}

fn cell(machine: &Spec, job: &Job, native: &[f64], line_ns: Option<f64>) -> Result<Cell, MeasureError> {
    let mut rates = Vec::new();
    let mut sleeps = 0.0;
    for seed in 1..=SEEDS {
        let (run, figures) = once_simulated(machine, job, seed, &|| false)?;
        rates.push(run.ops_per_s);
        sleeps += figures.sleeps as f64 / run.ops.max(1) as f64 / SEEDS as f64;
    }
    Ok(Cell {
        workload: job.spec.name.clone(),
        design: job.design.clone(),
        cpus: job.cpus,
        native: median(native).unwrap_or(0.0),
        simulated: median(&rates).unwrap_or(0.0),
        sleeps,
        line_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(ratio: f64, sleeps: f64) -> Cell {
        Cell {
            workload: "w".into(),
            design: "d".into(),
            cpus: 1,
            native: 1e6,
            simulated: ratio * 1e6,
            sleeps,
            line_ns: None,
        }
    }

    #[test]
    fn the_limits_hold_for_cells_and_mean_and_sleepers_stand_apart() {
        let all = |ratios: &[f64]| Agreement { cells: ratios.iter().map(|&ratio| cell(ratio, 0.0)).collect() };
        assert!(all(&[1.24, 0.81, 1.0]).holds());
        assert!(!all(&[1.24, 1.2, 1.2]).holds(), "the mean is too high");
        assert!(!all(&[1.3, 0.8, 1.0, 1.0]).holds(), "too many cells are outside");
        assert!(!all(&[]).holds());
        let mut with_sleeper = all(&[1.0, 1.0]);
        with_sleeper.cells.push(cell(9.0, 0.5));
        assert!(with_sleeper.holds());
        assert!(with_sleeper.to_string().contains("1 cells that sleep apart: holds"), "{with_sleeper}");
    }
}
