//! A simulated result as an interval: over machines that differ in what was guessed of them.
//!
//! # Guarantee
//! * The draws are a Latin hypercube: of N machines each guessed number has one value in each N-th of its range.
//! * Draws depend on the machine, their number and the seed alone; each has a seed of its own for its runs, too.
//! * Nothing published is read here: ranges come from the machine's file.

use faultless_results::stats::{Random, median};
use faultless_sim::Spec;
use serde_json::{Value, json};

/// The share of the draws that an interval holds.
pub const LEVEL: f64 = 0.9;

/// Machines that a file may stand for.
#[derive(Clone, Debug)]
pub struct Draws {
    spec: Spec,
    /// Each drawn number, and where in its range each draw has it.
    quantiles: Vec<(String, Vec<f64>)>,
    nr_draws: usize,
}

impl Draws {
    /// Draws so many machines.
    pub fn new(spec: &Spec, nr_draws: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let quantiles = spec.drawn_keys().into_iter().map(|key| (key, strata(nr_draws, &mut random))).collect();
        Self { spec: spec.clone(), quantiles, nr_draws }
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.nr_draws
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nr_draws == 0
    }

    /// Returns the machine of a draw, counted from 0.
    pub fn machine(&self, draw: usize) -> Spec {
        let of = |key: &str| self.quantiles.iter().find(|(known, _)| known == key);
        self.spec.drawn(&mut |key| of(key).and_then(|(_, places)| places.get(draw)).copied().unwrap_or(0.5))
    }

    /// Returns how the drawn numbers go with what came out, draw by draw: Spearman's rank correlation, the strongest
    /// first. A draw without a result is NaN and left out.
    pub fn sensitivity(&self, results: &[f64]) -> Vec<(String, f64)> {
        let known: Vec<usize> = (0..results.len().min(self.nr_draws)).filter(|&draw| !results[draw].is_nan()).collect();
        let picked = |all: &[f64]| known.iter().map(|&draw| all[draw]).collect::<Vec<f64>>();
        let outcome = ranks(&picked(results));
        let of = |(key, places): &(String, Vec<f64>)| {
            correlation(&ranks(&picked(places)), &outcome).map(|rho| (key.clone(), rho))
        };
        let mut all: Vec<(String, f64)> = self.quantiles.iter().filter_map(of).collect();
        all.sort_by(|one, other| other.1.abs().total_cmp(&one.1.abs()));
        all
    }
}

/// Returns [`Draws::sensitivity`] for the machine-readable report.
pub fn sensitivity_json(sensitivity: &[(String, f64)]) -> Value {
    sensitivity.iter().map(|(key, rho)| json!({ "number": key, "rank_correlation": rho })).collect()
}

/// How many of the numbers that move a result most are shown.
const NR_SHOWN: usize = 3;

/// Returns the first few of [`Draws::sensitivity`], for people.
pub fn strongest(sensitivity: &[(String, f64)]) -> String {
    let shown = sensitivity.iter().take(NR_SHOWN);
    shown.map(|(key, rho)| format!("{key} {rho:+.2}")).collect::<Vec<_>>().join(", ")
}

/// Returns one place in each stratum, in random order.
fn strata(nr_draws: usize, random: &mut Random) -> Vec<f64> {
    let mut order: Vec<usize> = (0..nr_draws).collect();
    random.shuffle(&mut order);
    let within = |random: &mut Random| random.number() as f64 / (u64::MAX as f64 + 1.0);
    order.into_iter().map(|stratum| ((stratum as f64 + within(random)) / nr_draws as f64).min(1.0)).collect()
}

/// Returns each value's rank; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|&&other| other < value).count() as f64;
    let equal = |value: f64| values.iter().filter(|&&other| other == value).count() as f64;
    values.iter().map(|&value| below(value) + (equal(value) - 1.0) / 2.0).collect()
}

/// Returns Pearson's correlation; nothing where one side never changes.
fn correlation(one: &[f64], other: &[f64]) -> Option<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_one, mean_other) = (mean(one), mean(other));
    let pairs = || one.iter().zip(other).map(|(a, b)| (a - mean_one, b - mean_other));
    let (both, first, second) =
        pairs().fold((0.0, 0.0, 0.0), |(both, first, second), (a, b)| (both + a * b, first + a * a, second + b * b));
    (first > 0.0 && second > 0.0).then(|| both / (first * second).sqrt())
}

/// Where most of the draws lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median of all draws.
    pub median: f64,
    /// So many of a hundred draws, half of what [`LEVEL`] leaves out, are below.
    pub low: f64,
    /// As many are above.
    pub high: f64,
    /// How many draws there are.
    pub draws: usize,
}

impl Interval {
    /// Returns the interval of some draws' results; nothing if there are none.
    pub fn of(results: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = results.iter().copied().filter(|result| result.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let median = median(&sorted)?;
        let tail = (1.0 - LEVEL) / 2.0;
        Some(Self { median, low: quantile(&sorted, tail), high: quantile(&sorted, 1.0 - tail), draws: sorted.len() })
    }

    /// Says whether it holds a value.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns it for the machine-readable report.
    pub fn json(&self) -> Value {
        json!({ "low": self.low, "high": self.high, "level": LEVEL, "draws": self.draws })
    }
}

/// Returns a quantile of sorted values, which are not none, between neighbours in proportion.
fn quantile(sorted: &[f64], at: f64) -> f64 {
    let place = at * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        Spec::preset("epyc-384").expect("a preset")
    }

    #[test]
    fn each_number_has_a_value_in_each_part_of_its_range() {
        let draws = Draws::new(&spec(), 8, 3);
        assert!(draws.quantiles.len() > 15);
        for (key, places) in &draws.quantiles {
            let mut parts: Vec<usize> = places.iter().map(|place| (place * 8.0) as usize).collect();
            parts.sort_unstable();
            assert_eq!(parts, (0..8).collect::<Vec<_>>(), "{key}");
        }
        let orders: std::collections::BTreeSet<String> =
            draws.quantiles.iter().map(|(_, places)| format!("{places:.0?}")).collect();
        assert!(orders.len() > 1, "the numbers are drawn apart");
    }

    #[test]
    fn the_same_seed_draws_the_same_machines_and_another_one_others() {
        let machine = |seed, draw| Draws::new(&spec(), 4, seed).machine(draw);
        assert_eq!(machine(1, 2), machine(1, 2));
        assert_ne!(machine(1, 2), machine(2, 2));
        assert_ne!(machine(1, 2), machine(1, 3));
        assert_eq!(machine(1, 2).number("cpu.rmw_ns"), spec().number("cpu.rmw_ns"), "nobody guessed it");
    }

    #[test]
    fn the_number_that_moves_the_result_is_found() {
        let draws = Draws::new(&spec(), 32, 1);
        let clock = |draw| draws.machine(draw).number("cpu.clock_ns").expect("a key");
        let results: Vec<f64> = (0..32).map(|draw| 1.0 / clock(draw)).collect();
        let found = draws.sensitivity(&results);
        assert_eq!(found[0].0, "cpu.clock_ns");
        assert!((found[0].1 + 1.0).abs() < 1e-9, "{found:?}");
        assert!(found[1].1.abs() < 0.7, "{found:?}");
        let half: Vec<f64> =
            results.iter().enumerate().map(|(draw, &r)| if draw < 16 { r } else { f64::NAN }).collect();
        assert_eq!(draws.sensitivity(&half)[0].0, "cpu.clock_ns");
        assert!(draws.sensitivity(&[1.0; 32]).is_empty(), "nothing moves what never changes");
    }

    #[test]
    fn an_interval_leaves_out_a_twentieth_at_each_end() {
        let results: Vec<f64> = (0..=100).map(f64::from).collect();
        let interval = Interval::of(&results).expect("draws");
        assert_eq!((interval.median, interval.draws), (50.0, 101));
        assert!((interval.low - 5.0).abs() < 1e-9 && (interval.high - 95.0).abs() < 1e-9, "{interval:?}");
        assert!(interval.holds(50.0) && !interval.holds(96.0));
        assert_eq!(Interval::of(&[2.0]), Some(Interval { median: 2.0, low: 2.0, high: 2.0, draws: 1 }));
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&[f64::NAN]), None);
    }
}
