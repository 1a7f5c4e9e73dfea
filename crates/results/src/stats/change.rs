//! Where a series changes: Pettitt's test (A. N. Pettitt, "A non-parametric approach to the change-point problem",
//! Applied Statistics 28, 1979), on ranks, so that no distribution is assumed.
//!
//! # Guarantee
//! The probability is that of permutations (all figures of a series that does not change are equally likely in every
//! order), so it holds for short series too, where Pettitt's formula does not; the same series gives the same result.

use super::Random;

/// Of how many drawn orders the probability is made.
pub const ORDERS: usize = 9_999;
/// What a change may owe to chance.
pub const CHANCE: f64 = 0.05;
/// The shortest series that can show a change below 0.05: four figures before it and four after.
pub const LEAST_POINTS: usize = 8;

const SEED: u64 = 1;

/// A place at which a series changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// The first figure after the change.
    pub at: usize,
    /// The probability that such a place is there by chance.
    pub p: f64,
}

/// Returns where a series changes, the earliest first: the likeliest place, then those of the parts before and behind.
pub fn change_points(series: &[f64]) -> Vec<ChangePoint> {
    let Some(found) = pettitt(series).filter(|found| found.p < CHANCE) else { return Vec::new() };
    let (before, after) = series.split_at(found.at);
    let later = change_points(after).into_iter().map(|change| ChangePoint { at: change.at + found.at, ..change });
    change_points(before).into_iter().chain([found]).chain(later).collect()
}

/// Returns the likeliest place of a change, and the probability of such a one; nothing for fewer than two figures.
pub fn pettitt(series: &[f64]) -> Option<ChangePoint> {
    let (at, most) = statistic(series)?;
    let mut random = Random::new(SEED);
    let mut order = series.to_vec();
    let mut as_far = 0;
    for _ in 0..ORDERS {
        random.shuffle(&mut order);
        as_far += usize::from(statistic(&order).is_some_and(|(_, reached)| reached >= most));
    }
    // The order that was found is one of them.
    Some(ChangePoint { at, p: (as_far + 1) as f64 / (ORDERS + 1) as f64 })
}

/// Returns the place where those before are most unlike those behind in rank, and Pettitt's K.
fn statistic(series: &[f64]) -> Option<(usize, i64)> {
    let compare = |one: f64, other: f64| one.partial_cmp(&other).map_or(0, |order| order as i64);
    let step = |place: usize| series.iter().map(|&other| compare(series[place], other)).sum::<i64>();
    let mut sum = 0;
    let reached = (0..series.len().checked_sub(1)?).map(|place| {
        sum += step(place);
        (place + 1, sum.abs())
    });
    // Of equal places the first.
    reached.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, length: usize, level: f64) -> Vec<f64> {
        let mut random = Random::new(seed);
        (0..length).map(|_| level + random.below(1000) as f64 / 1000.0).collect()
    }

    #[test]
    fn the_statistic_is_pettitt_s() {
        // U by hand: 1: -2, 2: -2 - 0 = -2, so K = 2 after the first.
        assert_eq!(statistic(&[1.0, 2.0, 3.0]), Some((1, 2)));
        assert_eq!(statistic(&[1.0, 1.0, 5.0, 5.0]), Some((2, 4)));
        assert_eq!(statistic(&[1.0]), None);
    }

    #[test]
    fn one_step_is_found_where_it_is() {
        let series = [noise(1, 6, 10.0), noise(2, 7, 12.0)].concat();
        let found = change_points(&series);
        assert_eq!(found.iter().map(|change| change.at).collect::<Vec<_>>(), [6]);
        assert!(found[0].p < 0.01, "{found:?}");
    }

    #[test]
    fn two_steps_are_found() {
        let series = [noise(1, 10, 10.0), noise(2, 10, 14.0), noise(3, 10, 8.0)].concat();
        assert_eq!(change_points(&series).iter().map(|change| change.at).collect::<Vec<_>>(), [10, 20]);
    }

    #[test]
    fn the_shortest_series_that_shows_a_change_has_eight_figures() {
        let step = |n: usize| (0..n).map(move |place| place as f64 + if place < n / 2 { 0.0 } else { 99.0 }).rev();
        assert!(change_points(&step(LEAST_POINTS).collect::<Vec<_>>()).len() == 1);
        assert!(change_points(&step(LEAST_POINTS - 2).collect::<Vec<_>>()).is_empty());
    }

    #[test]
    fn a_series_that_does_not_change_is_called_changed_in_a_twentieth_of_cases() {
        let called = (0..200).filter(|&seed| !change_points(&noise(seed + 100, 12, 1.0)).is_empty()).count();
        assert!((2..=20).contains(&called), "{called} of 200");
        assert!(change_points(&[3.0; 20]).is_empty() && change_points(&[]).is_empty());
    }
}
