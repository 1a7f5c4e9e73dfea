//! A line of a table, measured.

use super::drawn::Drawn;
use super::tables::Case;
use faultless_results::stats::median;

/// A case with what came out.
#[derive(Debug)]
pub struct Row {
    /// The case.
    pub case: &'static Case,
    /// The base's figure under each seed.
    pub base: Vec<f64>,
    /// The head's figure under each seed.
    pub head: Vec<f64>,
    /// That of what the head is to be compared with on its own kernel, where the base is another kernel's.
    pub own: Vec<f64>,
    /// Events of the head's runs: name, and how many of a hundred faults.
    pub events: Vec<(&'static str, f64)>,
    /// Whether the rates of all runs had settled; else nothing is said of the sign.
    pub has_converged: bool,
    /// What drawn machines say, if each seed had one of its own.
    pub drawn: Option<Drawn>,
}

impl Row {
    /// Returns our change in percent; nothing if the base did nothing.
    pub fn change(&self) -> Option<f64> {
        let (base, head) = (median(&self.base)?, median(&self.head)?);
        (base > 0.0).then(|| (head / base - 1.0) * 100.0)
    }

    /// Returns the least and the most of the changes under the same seed.
    pub(super) fn range(&self) -> Option<(f64, f64)> {
        let changes = self.base.iter().zip(&self.head).map(|(base, head)| (head / base - 1.0) * 100.0);
        let (least, most) =
            changes.fold((f64::MAX, f64::MIN), |(least, most), change| (least.min(change), most.max(change)));
        (least <= most).then_some((least, most))
    }

    /// Returns the ratio of the factors: ours over the published one.
    pub(super) fn ratio(&self) -> Option<f64> {
        Some((1.0 + self.change()? / 100.0) / (1.0 + self.case.published_percent / 100.0))
    }

    /// Says whether both changes go the same way; less than 1 % is no way. Nothing is said of rates that have not
    /// settled.
    pub(super) fn sign_agrees(&self) -> Option<bool> {
        if !self.has_converged {
            return None;
        }
        let way = |percent: f64| if percent.abs() < 1.0 { 0 } else { percent.signum() as i32 };
        Some(way(self.change()?) == way(self.case.published_percent))
    }
}

/// Returns what stands on both sides: designs, or the semaphores beneath one design.
pub(super) fn sides(case: &Case) -> String {
    if case.base == case.head && !case.workload.starts_with("refpage") {
        format!("{} > {}", case.base_semaphore, case.head_semaphore)
    } else {
        format!("{} > {}", case.base, case.head)
    }
}
