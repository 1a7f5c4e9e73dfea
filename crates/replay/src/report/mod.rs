//! The report of a replay: a column for each design, what was checked, and one sentence that says what it means.

pub mod human;
pub mod markdown;
mod metrics;
mod patterned;
mod set;
mod verdict;

use faultless_trace::Header;

use crate::experiment::{ReplayOutcome, ReplaySetup};
use faultless_results::MachineInfo;

pub use metrics::Metric;
pub use set::result_set;

/// An experiment with what it was about.
#[derive(Debug)]
pub struct Report<'a> {
    /// The trace's name, as the user gave it.
    pub workload: &'a str,
    /// How the trace was recorded.
    pub header: &'a Header,
    /// The machine that replayed it.
    pub machine: &'a MachineInfo,
    /// What was asked for.
    pub setup: &'a ReplaySetup,
    /// What came out.
    pub outcome: &'a ReplayOutcome,
}
