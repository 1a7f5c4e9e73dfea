//! Whether two lists of samples differ at all: the Mann-Whitney U test, two-sided.
//!
//! # Guarantee
//! Exact for lists of up to [`EXACT`] samples without ties between them; otherwise the normal approximation with the
//! correction for ties. Equal lists, and lists too short to tell anything, give 1.

/// Up to this many samples a side the distribution is counted out.
const EXACT: usize = 30;

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
