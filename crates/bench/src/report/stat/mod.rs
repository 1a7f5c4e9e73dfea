//! What was counted: as `perf stat` prints it, in vmstat's form, as a lock meter's table, and as a result set.

pub mod human;
mod locks;
pub mod markdown;
mod set;

use crate::stat::{StatOutcome, StatSetup};
use faultless_results::set::MachineInfo;
use faultless_results::stats::{Summary, summarize};

pub use set::result_set;

/// Which parts are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The chosen events, as `perf stat` does.
    pub has_events: bool,
    /// Whether events that never happened share a line; those that were asked for by name don't.
    pub folds_zeros: bool,
    /// All counters, in vmstat's form.
    pub has_vmstat: bool,
}

/// Counts, with what they were about.
#[derive(Debug)]
pub struct StatReport<'a> {
    /// The machine.
    pub machine: &'a MachineInfo,
    /// What was asked for.
    pub setup: &'a StatSetup,
    /// What came out.
    pub outcome: &'a StatOutcome,
    /// Whether locks or events were watched, which takes time.
    pub is_watched: bool,
    /// What of it is printed for people.
    pub parts: Parts,
}

/// Returns the spread of counts; nothing if a run lacks one.
fn spread(counts: impl Iterator<Item = Option<u64>>) -> Option<Summary> {
    let counts: Option<Vec<f64>> = counts.map(|count| count.map(|count| count as f64)).collect();
    summarize(&counts?)
}
