//! Whether the runs of a design are one story: a median in the middle of far-apart runs is nobody's figure.
//!
//! # Guarantee
//! Runs are called scattered from a range of [`WIDE`] on. They are said to fall into two groups only if each group has
//! two runs and the gap between them is more than half of the range.

use super::{Finding, Place, Ranking, Samples, listed};
use crate::Unit;

/// The factor between the least and the most run from which on that is told.
const WIDE: f64 = 1.5;

/// The most designs that are named.
const NAMED: usize = 3;

/// Says how far runs are apart, behind a design's name; nothing of runs that are near each other.
fn told(samples: &[f64], unit: &str) -> Option<String> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (&[low, ..], &[.., high]) = (sorted.as_slice(), sorted.as_slice()) else { return None };
    if low <= 0.0 || high / low < WIDE {
        return None;
    }
    let show = |figure: f64| Unit::show_named(unit, figure);
    let between = |runs: &[f64]| format!("{} to {}", show(runs[0]), show(runs[runs.len() - 1]));
    Some(match halves(&sorted) {
        Some((below, above)) => {
            format!("two groups, {} from {} and {} from {}", below.len(), between(below), above.len(), between(above))
        }
        None => format!("from {}", between(&sorted)),
    })
}

/// Returns the two groups that sorted runs fall into, if they do.
fn halves(sorted: &[f64]) -> Option<(&[f64], &[f64])> {
    let gap = |place: &usize| sorted[*place] - sorted[place - 1];
    let widest = (1..sorted.len()).max_by(|one, other| gap(one).total_cmp(&gap(other)))?;
    let (below, above) = sorted.split_at(widest);
    let range = sorted[sorted.len() - 1] - sorted[0];
    (below.len() > 1 && above.len() > 1 && gap(&widest) > range / 2.0).then_some((below, above))
}

impl Ranking {
    /// Says whose runs are scattered, in a sentence without its end; nothing if no design's are, of machines that were
    /// drawn, which differ because they were meant to, and where *why* says it already.
    pub fn scattered(&self) -> Option<String> {
        let is_told =
            matches!(self.finding, Finding::Level(many) if many == self.places.len()) && self.noise().is_some();
        let is_split = |place: &Place| told(&place.runs, &self.unit).is_some_and(|told| told.starts_with("two"));
        if self.samples == Samples::Draws || is_told && !self.places.iter().any(is_split) {
            return None;
        }
        let clause = |place: &Place| Some(format!("{} ({})", place.name, told(&place.runs, &self.unit)?));
        let mut clauses: Vec<String> = self.places.iter().filter_map(clause).collect();
        let rest = clauses.len().saturating_sub(NAMED);
        clauses.truncate(NAMED);
        clauses.extend((rest > 0).then(|| format!("{rest} more")));
        (!clauses.is_empty())
            .then(|| format!("runs are far apart, so that their median says little, under {}", listed(&clauses)))
    }
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn runs_in_two_states_are_told_as_two_groups() {
        let two = told(&[4.4e6, 1.9e6, 4.1e6, 2.0e6, 1.95e6], "ops/s").expect("they are far apart");
        assert_eq!(two, "two groups, 3 from 1.90 M/s to 2.00 M/s and 2 from 4.10 M/s to 4.40 M/s");
        let one = told(&[1.9e6, 1.95e6, 2.0e6, 4.4e6], "ops/s").expect("one is far off");
        assert_eq!(one, "from 1.90 M/s to 4.40 M/s", "one run is no group");
        let even = told(&[1.0, 2.0, 3.0, 4.0], "ns").expect("wide");
        assert_eq!(even, "from 1.00 ns to 4.00 ns");
        assert_eq!(told(&[1.0, 1.2, 1.49], "ns"), None);
        assert_eq!(told(&[1.0], "ns"), None);
        assert_eq!(told(&[], "ns"), None);
        assert_eq!(told(&[0.0, 0.0, 5.0, 5.0], "ns"), None, "0 has no factor");
    }
}
