//! What an experiment says, for people and for machines.
//!
//! # Guarantee
//! Every figure has its spread and its number of samples; machine formats hold every sample, in base units.
//!
//! One exporter a file: [`human`], [`json`], [`csv`], [`markdown`].

pub mod csv;
pub mod human;
pub mod json;
pub mod markdown;
mod metrics;
mod verdict;

use faultless_trace::{Header, Machine};

use crate::experiment::{Outcome, Setup};

pub use metrics::{Metric, Unit};

/// An experiment with what it was about.
#[derive(Debug)]
pub struct Report<'a> {
    /// The trace's name, as the user gave it.
    pub workload: &'a str,
    /// How the trace was recorded.
    pub header: &'a Header,
    /// The machine that replayed it.
    pub machine: &'a Machine,
    /// What was asked for.
    pub setup: &'a Setup,
    /// What came out.
    pub outcome: &'a Outcome,
}

/// Returns the commit that this was built from.
pub fn commit() -> &'static str {
    env!("FAULTLESS_COMMIT")
}
