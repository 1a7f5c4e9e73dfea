//! Two or more result sets, the first of which is what the others are measured against.
//!
//! # Guarantee
//! * I1 a difference is claimed only with five samples a side and a probability below 5 % that it is chance
//!   (Mann-Whitney U, two-sided), and none between runs of which one had not settled; nothing else is printed as a
//!   change
//! * I2 what is in one set alone is named, not dropped
//!
//! # What is compared with what
//! Figures of the same workload, mode, design, semaphore, CPUs and metric. A dimension (design, semaphore, CPUs) of
//! which every set has one value, but not all the same, is what the sets are about: `mmap-sem` in one file and
//! `spf-v11` in the other are compared with each other.
//!
//! # Rooms
//! `pairing` finds what belongs together; `direction` knows what is better; [`lkp`], [`benchstat`], [`json`], [`csv`]
//! and [`markdown`] print.

pub mod benchstat;
pub mod csv;
mod direction;
pub mod json;
pub mod lkp;
pub mod markdown;
mod pairing;

use std::fmt;

use crate::ResultSet;
use crate::stats::{Summary, p_value, summarize};

pub use direction::{Direction, direction};
pub use pairing::{Dimension, Key};

/// The fewest samples a side that show a difference (I1).
pub const LEAST_SAMPLES: usize = 5;
/// What a difference may owe to chance (I1).
pub const CHANCE: f64 = 0.05;

/// A result set, and what to call it.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file, or the name it was saved under.
    pub label: String,
    /// What it holds.
    pub set: ResultSet,
}

/// What became of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The base, then the others.
    pub sources: Vec<Source>,
    /// The dimensions that tell the sets apart, with each set's value.
    pub about: Vec<(Dimension, Vec<String>)>,
    /// Figures by workload.
    pub groups: Vec<ComparedGroup>,
    /// For each source, the keys that no other shares (I2).
    pub alone: Vec<Vec<String>>,
}

/// The figures of one workload, one way.
#[derive(Clone, Debug)]
pub struct ComparedGroup {
    /// Which.
    pub key: Key,
    /// Metric by metric.
    pub rows: Vec<Row>,
}

/// One metric in all sets.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// What is better.
    pub direction: Direction,
    /// The base's figures.
    pub base: Figures,
    /// The other sets' figures; nothing where a set lacks them.
    pub heads: Vec<Option<Change>>,
}

/// Samples and their spread.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The samples.
    pub samples: Vec<f64>,
    /// Their mean, deviation and number.
    pub summary: Summary,
    /// Whether the rates of all runs had settled, where they were to.
    pub has_converged: bool,
}

/// Figures of a set against those of the base.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The figures.
    pub figures: Figures,
    /// The difference of the means as a share of the base's; infinite if that is 0.
    pub share: f64,
    /// How probable such a difference is by chance.
    pub p: f64,
    /// What may be said.
    pub finding: Significance,
}

/// What may be said of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Significance {
    /// It is there.
    Differs,
    /// It may be chance.
    Chance,
    /// There are fewer than [`LEAST_SAMPLES`] samples on a side.
    TooFew,
    /// A run's rates had not settled when its time was over.
    NotConverged,
}

impl Significance {
    /// Returns the word for machine formats.
    pub fn name(self) -> &'static str {
        match self {
            Significance::Differs => "differs",
            Significance::Chance => "chance",
            Significance::TooFew => "too-few-samples",
            Significance::NotConverged => "not-converged",
        }
    }
}

/// Why sets can't be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareError {
    /// A set has no figures at all.
    Empty(String),
    /// A set shares no figure with the base.
    NothingInCommon {
        /// The base.
        base: String,
        /// What it has.
        base_has: Vec<String>,
        /// The set.
        head: String,
        /// What that has.
        head_has: Vec<String>,
    },
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(label) => write!(f, "{label} holds no results"),
            Self::NothingInCommon { base, base_has, head, head_has } => {
                write!(f, "{base} and {head} have nothing in common: ")?;
                write!(f, "{base} has {}; {head} has {}", some(base_has), some(head_has))
            }
        }
    }
}

impl std::error::Error for CompareError {}

/// Returns the first few of a list, and how many more there are.
pub fn some(list: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = list.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if list.len() > SHOWN { format!("{shown} and {} more", list.len() - SHOWN) } else { shown }
}

/// Compares sets with the first of them.
pub fn compare(sources: Vec<Source>) -> Result<Comparison, CompareError> {
    if let Some(empty) = sources.iter().find(|source| source.set.results.is_empty()) {
        return Err(CompareError::Empty(empty.label.clone()));
    }
    let about = pairing::differing(&sources);
    let ignored: Vec<Dimension> = about.iter().map(|(dimension, _)| *dimension).collect();
    let tables: Vec<pairing::Table> = sources.iter().map(|source| pairing::table(&source.set, &ignored)).collect();
    pairing::check(&sources, &tables)?;
    let groups = pairing::groups(&tables);
    let alone = pairing::alone(&tables);
    Ok(Comparison { sources, about, groups, alone })
}

impl Figures {
    fn new(samples: Vec<f64>, has_converged: bool) -> Option<Self> {
        let summary = summarize(&samples)?;
        Some(Self { samples, summary, has_converged })
    }

    /// Returns the standard deviation as a share of the mean; nothing for one sample.
    pub fn relative_deviation(&self) -> Option<f64> {
        let deviation = self.summary.deviation?;
        if deviation == 0.0 { Some(0.0) } else { Some((deviation / self.summary.mean).abs()) }
    }
}

impl Change {
    fn new(base: &Figures, figures: Figures) -> Self {
        let (before, after) = (base.summary.mean, figures.summary.mean);
        let share = if before == after { 0.0 } else { (after - before) / before.abs() };
        let p = p_value(&base.samples, &figures.samples);
        let finding = match () {
            () if !(base.has_converged && figures.has_converged) => Significance::NotConverged,
            () if base.summary.n.min(figures.summary.n) < LEAST_SAMPLES => Significance::TooFew,
            () if p < CHANCE => Significance::Differs,
            () => Significance::Chance,
        };
        Self { figures, share, p, finding }
    }

    /// Returns by how much the set is worse, as a share of the base; nothing if it isn't, or nobody can tell.
    pub fn regression(&self, direction: Direction) -> Option<f64> {
        let worse = match direction {
            Direction::Higher => -self.share,
            Direction::Lower => self.share,
            Direction::Neither => 0.0,
        };
        (self.finding == Significance::Differs && worse > 0.0).then_some(worse)
    }

    /// Returns whether the set is better for sure.
    pub fn is_improvement(&self, direction: Direction) -> bool {
        let better = match direction {
            Direction::Higher => self.share,
            Direction::Lower => -self.share,
            Direction::Neither => 0.0,
        };
        self.finding == Significance::Differs && better > 0.0
    }
}

/// A figure of a set that stands out.
#[derive(Clone, Copy, Debug)]
pub struct Notable<'a> {
    /// The set's label.
    pub head: &'a str,
    /// The workload.
    pub key: &'a Key,
    /// The metric, with the base's figures.
    pub row: &'a Row,
    /// The set's figures.
    pub change: &'a Change,
}

impl Comparison {
    /// Returns all changes with where they stand.
    pub fn changes(&self) -> impl Iterator<Item = Notable<'_>> {
        let rows = self.groups.iter().flat_map(|group| group.rows.iter().map(move |row| (&group.key, row)));
        rows.flat_map(|(key, row)| {
            let heads = self.sources[1..].iter().zip(&row.heads);
            heads.filter_map(move |(source, change)| {
                Some(Notable { head: &source.label, key, row, change: change.as_ref()? })
            })
        })
    }

    /// Returns the figures that are worse by at least `limit`, a share, for sure.
    pub fn regressions(&self, limit: f64) -> Vec<Notable<'_>> {
        let is_worse = |one: &Notable<'_>| one.change.regression(one.row.direction).is_some_and(|worse| worse >= limit);
        self.changes().filter(is_worse).collect()
    }

    /// Returns how many figures are of runs that had not settled.
    pub fn nr_not_converged(&self) -> usize {
        self.changes().filter(|one| one.change.finding == Significance::NotConverged).count()
    }

    /// Returns how many figures have too few samples to tell anything.
    pub fn nr_too_few(&self) -> usize {
        self.changes().filter(|one| one.change.finding == Significance::TooFew).count()
    }
}

#[cfg(test)]
mod tests;
