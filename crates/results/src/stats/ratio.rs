//! "Within x %": interleaved pairs, the ratio of each, a bootstrap interval of the median ratio.
//!
//! # Guarantee
//! A claim holds if the interval's worse end keeps the limit, fails if its better end breaks it, and is undecided
//! otherwise, also with fewer than [`LEAST_PAIRS`] pairs.

use super::{Random, median};

/// The fewest pairs that decide anything.
pub const LEAST_PAIRS: usize = 30;

const RESAMPLES: usize = 10_000;

/// A 95 % interval of a median, and the median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// The median of the samples.
    pub middle: f64,
    /// Its upper end.
    pub high: f64,
    /// The number of pairs; of lists that are not paired, the length of the shorter one.
    pub n: usize,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is true.
    Holds,
    /// It is false.
    Fails,
    /// The samples do not tell.
    Undecided,
}

impl Verdict {
    /// Returns the word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::Undecided => "undecided",
        }
    }
}

/// Returns the interval of the median of `head / base` over pairs; nothing without pairs, or if a base is 0.
pub fn median_ratio(base: &[f64], head: &[f64], seed: u64) -> Option<Interval> {
    let ratios: Vec<f64> = base.iter().zip(head).map(|(base, head)| head / base).collect();
    let middle = median(&ratios).filter(|_| ratios.iter().all(|ratio| ratio.is_finite()))?;
    let mut random = Random::new(seed);
    let mut medians: Vec<f64> = (0..RESAMPLES).filter_map(|_| resampled_median(&ratios, &mut random)).collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share).round() as usize];
    Some(Interval { low: at(0.025), middle, high: at(0.975), n: ratios.len() })
}

fn resampled_median(ratios: &[f64], random: &mut Random) -> Option<f64> {
    let drawn: Vec<f64> = ratios.iter().map(|_| ratios[random.below(ratios.len())]).collect();
    median(&drawn)
}

/// Decides whether the ratio is at most `1 + limit`, smaller being better.
pub fn within(interval: &Interval, limit: f64) -> Verdict {
    match interval {
        _ if interval.n < LEAST_PAIRS => Verdict::Undecided,
        _ if interval.high <= 1.0 + limit => Verdict::Holds,
        _ if interval.low > 1.0 + limit => Verdict::Fails,
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noisy(center: f64, spread: f64, n: usize, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed);
        (0..n).map(|_| center + spread * (random.below(2001) as f64 / 1000.0 - 1.0)).collect()
    }

    fn verdict(head: f64, spread: f64, n: usize) -> Verdict {
        let interval = median_ratio(&noisy(100.0, spread, n, 1), &noisy(head, spread, n, 2), 3).expect("pairs exist");
        assert!(interval.low <= interval.middle && interval.middle <= interval.high);
        within(&interval, 0.02)
    }

    #[test]
    fn claims_hold_fail_or_stay_undecided() {
        assert_eq!(verdict(100.0, 0.5, 30), Verdict::Holds);
        assert_eq!(verdict(110.0, 0.5, 30), Verdict::Fails);
        assert_eq!(verdict(102.0, 20.0, 30), Verdict::Undecided);
        assert_eq!(verdict(100.0, 0.5, 29), Verdict::Undecided);
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let covers = |seed: u64| {
            let base = noisy(100.0, 5.0, 31, seed * 2);
            let head = noisy(103.0, 5.0, 31, seed * 2 + 1);
            let interval = median_ratio(&base, &head, seed).expect("pairs exist");
            interval.low <= 1.03 && 1.03 <= interval.high
        };
        let covered = (0..60).filter(|&seed| covers(seed)).count();
        assert!(covered >= 51, "{covered} of 60");
    }

    #[test]
    fn without_pairs_or_with_a_zero_there_is_no_interval() {
        assert_eq!(median_ratio(&[], &[], 1), None);
        assert_eq!(median_ratio(&[0.0], &[1.0], 1), None);
        assert_eq!(median_ratio(&[1.0, 2.0], &[2.0, 4.0], 1).map(|interval| interval.middle), Some(2.0));
    }
}
