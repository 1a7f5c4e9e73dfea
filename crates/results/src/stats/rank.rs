//! Whether two lists of samples differ at all, and by what factor: the Mann-Whitney U test, two-sided, and the interval
//! that belongs to it (Hodges and Lehmann, "Estimates of location based on rank tests", 1963).
//!
//! # Guarantee
//! * I1 the test is exact for lists of up to [`EXACT`] samples without ties between them; otherwise it is the normal
//!   approximation with the correction for ties. Equal lists, and lists too short to tell anything, give 1
//! * I2 the factor is that of the medians. Its interval holds all factors that the test does not refute at 5 %, and
//!   that of the medians: if it leaves out 1, the test gives less than 5 %, where no two samples are equal. The factor
//!   of two lists is one over that of the lists exchanged, and so are its ends

use super::{Interval, median};

/// Up to this many samples a side the distribution is counted out.
const EXACT: usize = 30;

/// How often an interval may leave out the truth.
const CHANCE: f64 = 0.05;

/// Of longer lists the interval is made of so many samples, evenly chosen.
const THINNED: usize = 400;

/// Returns the probability of a difference at least as large if both lists came from the same source.
pub fn p_value(base: &[f64], head: &[f64]) -> f64 {
    if base.is_empty() || head.is_empty() {
        return 1.0;
    }
    let (below, ties) = base.iter().fold((0.0, 0), |(below, ties), one| {
        let less = head.iter().filter(|other| *other < one).count();
        let equal = head.iter().filter(|other| *other == one).count();
        (below + less as f64 + equal as f64 / 2.0, ties + equal)
    });
    if ties == 0 && base.len() <= EXACT && head.len() <= EXACT {
        exact(below as usize, base.len(), head.len())
    } else {
        normal(below, base, head)
    }
}

/// Returns how many times the median of `base` that of `head` is, and the 95 % interval (I2); nothing for lists too
/// short for one, or with a sample that is not above 0.
pub fn rank_ratio(base: &[f64], head: &[f64]) -> Option<Interval> {
    let is_usable = |list: &[f64]| list.iter().all(|sample| sample.is_finite() && *sample > 0.0);
    let beyond = refuted(base.len(), head.len()).filter(|_| is_usable(base) && is_usable(head))?;
    let share = beyond as f64 / (base.len() * head.len()) as f64;
    let (n, middle) = (base.len().min(head.len()), median(head)? / median(base)?);
    let (base, head) = (thinned(base), thinned(head));
    let mut ratios: Vec<f64> = head.iter().flat_map(|head| base.iter().map(move |base| head / base)).collect();
    ratios.sort_by(f64::total_cmp);
    let last = ratios.len() - 1;
    let lowest = (share * ratios.len() as f64).round() as usize;
    Some(Interval { low: ratios[lowest].min(middle), middle, high: ratios[last - lowest].max(middle), n })
}

/// Returns the largest statistic that the test still refutes; nothing if it refutes none.
fn refuted(n: usize, m: usize) -> Option<usize> {
    if n == 0 || m == 0 {
        return None;
    }
    if n > EXACT || m > EXACT {
        let (n, m) = (n as f64, m as f64);
        let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
        return Some((n * m / 2.0 - 1.96 * deviation - 0.5).floor())
            .filter(|most| *most >= 0.0)
            .map(|most| most as usize);
    }
    let counts = orders(n, m);
    let total: f64 = counts.iter().sum();
    let mut tail = 0.0;
    let refuted = counts.iter().take_while(|count| {
        tail += **count;
        2.0 * tail / total < CHANCE
    });
    refuted.count().checked_sub(1)
}

fn thinned(list: &[f64]) -> Vec<f64> {
    let mut sorted = list.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() <= THINNED {
        return sorted;
    }
    (0..THINNED).map(|place| sorted[(2 * place + 1) * sorted.len() / (2 * THINNED)]).collect()
}

/// Counts the orders of two lists in which the statistic is at least as far from its middle.
fn exact(below: usize, n: usize, m: usize) -> f64 {
    let counts = orders(n, m);
    let total: f64 = counts.iter().sum();
    let extreme = below.min(n * m - below);
    let tail: f64 = counts[..=extreme].iter().sum();
    (2.0 * tail / total).min(1.0)
}

/// Returns how many orders of `n` and `m` samples give each value of the statistic.
fn orders(n: usize, m: usize) -> Vec<f64> {
    // ways[k][u]: of the samples so far, k of the first list, with the statistic u.
    let mut ways = vec![vec![0.0; n * m + 1]; n + 1];
    ways[0][0] = 1.0;
    for place in 1..=n + m {
        for taken in (1..=n.min(place)).rev() {
            // The new sample is the largest so far, so all of the other list's that came before lie below it.
            let others = place - taken;
            if others > m {
                continue;
            }
            for statistic in (others..=n * m).rev() {
                let more = ways[taken - 1][statistic - others];
                ways[taken][statistic] += more;
            }
        }
    }
    ways.swap_remove(n)
}

fn normal(below: f64, base: &[f64], head: &[f64]) -> f64 {
    let (n, m) = (base.len() as f64, head.len() as f64);
    let total = n + m;
    let mut all: Vec<f64> = base.iter().chain(head).copied().collect();
    all.sort_by(f64::total_cmp);
    let tied: f64 =
        all.chunk_by(|one, other| one == other).map(|group| group.len() as f64).map(|t| t * t * t - t).sum();
    let variance = n * m / 12.0 * (total + 1.0 - tied / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((below - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    two_tails(distance)
}

/// Returns the share of a normal distribution beyond so many deviations on both sides (Abramowitz and Stegun 7.1.26).
fn two_tails(distance: f64) -> f64 {
    let x = distance / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = series.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    (sum * (-x * x).exp()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_against_five_apart_is_one_in_126() {
        let p = p_value(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((p - 2.0 / 252.0).abs() < 1e-12, "{p}");
    }

    #[test]
    fn the_interval_of_five_against_five_leaves_out_two_ratios_at_each_end() {
        // 2 * (1 + 1 + 2) / 252 = 0.03 of all orders have a statistic up to 2; up to 3 it is 0.056.
        let base = [1.0; 5];
        let interval = rank_ratio(&base, &[2.0, 3.0, 4.0, 5.0, 6.0]).expect("enough");
        assert_eq!((interval.low, interval.high, interval.n), (2.0, 6.0, 5));
        assert!((interval.middle - 4.0).abs() < 1e-12);
        assert_eq!(refuted(5, 5), Some(2));
        assert_eq!((refuted(3, 3), refuted(4, 4), refuted(0, 9)), (None, Some(0), None));
        assert_eq!(rank_ratio(&base, &[0.0, 1.0, 1.0, 1.0, 1.0]), None);
    }

    #[test]
    fn the_interval_leaves_out_1_exactly_where_the_test_says_so() {
        let mut random = super::super::Random::new(7);
        for round in 0..400 {
            let list = |n: usize, random: &mut super::super::Random, shift: f64| -> Vec<f64> {
                (0..n).map(|_| 100.0 + shift + random.below(1_000_000) as f64 / 50_000.0).collect()
            };
            let (n, m) = (4 + round % 9, 4 + round % 7);
            let (base, head) = (list(n, &mut random, 0.0), list(m, &mut random, (round % 16) as f64));
            let interval = rank_ratio(&base, &head).expect("enough");
            let other = rank_ratio(&head, &base).expect("enough");
            let is_sure = interval.low > 1.0 || interval.high < 1.0;
            assert_eq!(is_sure, p_value(&base, &head) < CHANCE, "{base:?} {head:?} {interval:?}");
            assert!(
                (interval.middle * other.middle - 1.0).abs() < 1e-9 && (interval.low * other.high - 1.0).abs() < 1e-9
            );
        }
    }

    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_says() {
        for n in [5, 12, 40] {
            let covered = (0..400).filter(|seed| {
                let mut random = super::super::Random::new(seed * 2 + 1);
                let mut list = |times: f64| -> Vec<f64> {
                    (0..n).map(|_| times * (100.0 + random.below(1_000_000) as f64 / 50_000.0)).collect()
                };
                let interval = rank_ratio(&list(1.0), &list(1.3)).expect("enough");
                interval.low <= 1.3 && 1.3 <= interval.high
            });
            let covered = covered.count();
            assert!((370..=398).contains(&covered), "n {n}: {covered} of 400");
        }
    }

    #[test]
    fn long_lists_have_an_interval_of_a_part_of_them() {
        let list = |times: f64| (0..9000).map(|place| times * (1.0 + f64::from(place) / 9000.0)).collect::<Vec<f64>>();
        let interval = rank_ratio(&list(1.0), &list(2.0)).expect("enough");
        assert!((interval.middle - 2.0).abs() < 0.01 && interval.low > 1.97 && interval.high < 2.03, "{interval:?}");
        assert_eq!(interval.n, 9000);
    }

    #[test]
    fn known_values_of_the_exact_test() {
        // Of 20 orders of 3 and 3, the statistic is at most 1 in two, and at most 2 in four.
        assert!((p_value(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0]) - 0.2).abs() < 1e-12);
        assert!((p_value(&[1.0, 3.0, 4.0], &[2.0, 5.0, 6.0]) - 0.4).abs() < 1e-12);
        assert!((orders(4, 3).iter().sum::<f64>() - 35.0).abs() < 1e-9);
    }

    #[test]
    fn equal_and_empty_lists_do_not_differ() {
        assert!(p_value(&[1.0; 6], &[1.0; 6]) > 0.99);
        assert_eq!(p_value(&[], &[1.0]), 1.0);
        assert!(p_value(&[1.0], &[2.0]) > 0.99);
    }

    #[test]
    fn the_approximation_agrees_with_the_count() {
        let base: Vec<f64> = (0..20).map(f64::from).collect();
        let head: Vec<f64> = base.iter().map(|value| value + 5.5).collect();
        let (counted, approximate) = (p_value(&base, &head), normal(statistic(&base, &head), &base, &head));
        assert!((counted - approximate).abs() < 0.005, "{counted} {approximate}");
    }

    fn statistic(base: &[f64], head: &[f64]) -> f64 {
        base.iter().map(|one| head.iter().filter(|other| *other < one).count() as f64).sum()
    }
}
