//! Figures as plots and tables show them: middles, ends, names.

use faultless_results::stats::{median, median_interval};
use faultless_results::verdict::arm_name;
use faultless_results::{Measured, ResultSet, Unit};

/// Returns the names of all designs of a set, in its order: what styles are told apart among.
pub fn names(set: &ResultSet) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in set.results.iter().map(|result| arm_name(set, result)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The middle of samples, and between what it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Middle {
    /// The median.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Whether the ends are those of a 95 % interval; else the least and the most sample.
    pub is_interval: bool,
}

/// Returns the middle of samples; nothing if there are none.
pub fn middle(samples: &[f64]) -> Option<Middle> {
    let median = median(samples)?;
    let interval = median_interval(samples);
    let (low, high) = interval.unwrap_or_else(|| {
        samples.iter().fold((f64::MAX, f64::MIN), |(low, high), sample| (low.min(*sample), high.max(*sample)))
    });
    Some(Middle { median, low, high, is_interval: interval.is_some() })
}

/// Returns what the ends of bars are, of all these samples.
pub fn ends_are<'a>(mut samples: impl Iterator<Item = &'a Vec<f64>>) -> &'static str {
    match samples.all(|samples| median_interval(samples).is_some()) {
        true => "bars are 95 % intervals of the median",
        false => "bars go from the least run to the most",
    }
}

/// Returns samples for people: the middle and its ends.
pub fn shown(unit: &str, samples: &[f64]) -> String {
    median(samples).map_or_else(|| "not counted".into(), |median| shown_as(unit, median, samples))
}

/// Returns samples for people by what stands for them, with the ends of their middle.
pub fn shown_as(unit: &str, figure: f64, samples: &[f64]) -> String {
    let show = |figure: f64| Unit::show_named(unit, figure);
    match middle(samples) {
        Some(middle) if middle.low < middle.high => {
            format!("{} [{}, {}]", show(figure), show(middle.low), show(middle.high))
        }
        _ => show(figure),
    }
}

/// Returns the smallest and the largest number of samples.
pub fn nr_samples<'a>(arms: impl Iterator<Item = &'a Measured>) -> String {
    let counts: Vec<usize> = arms.map(|arm| arm.samples.len()).collect();
    match (counts.iter().min(), counts.iter().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (_, most) => most.copied().unwrap_or(0).to_string(),
    }
}
