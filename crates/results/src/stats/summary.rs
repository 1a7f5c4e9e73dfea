//! Mean, standard deviation, n.

/// What is said of a list of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many there are.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (n - 1 in the denominator); nothing for one sample.
    pub deviation: Option<f64>,
}

/// Sums samples up; nothing if there is none.
pub fn summarize(samples: &[f64]) -> Option<Summary> {
    let n = samples.len();
    if n == 0 {
        return None;
    }
    let mean = samples.iter().sum::<f64>() / n as f64;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let deviation = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
    Some(Summary { n, mean, deviation })
}

/// Returns the middle of the samples, or of its two middle ones; nothing if there is none.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(sorted[n / 2]),
        _ => Some(f64::midpoint(sorted[n / 2 - 1], sorted[n / 2])),
    }
}

/// Returns samples between which the median of their source lies with at least 95 %, whatever its distribution; nothing
/// with fewer than six samples, of which even the extremes don't tell.
pub fn median_interval(samples: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // The median lies below the sample in place k with the chance that at most k of n fair coins fall heads.
    let (mut chance, mut tail, mut place) = (0.5_f64.powi(n as i32), 0.0, None);
    for k in 0..n / 2 {
        tail += chance;
        if tail > 0.025 {
            break;
        }
        place = Some(k);
        chance *= (n - k) as f64 / (k + 1) as f64;
    }
    place.map(|k| (sorted[k], sorted[n - 1 - k]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_known_lists() {
        assert_eq!(summarize(&[]), None);
        assert_eq!(summarize(&[3.0]), Some(Summary { n: 1, mean: 3.0, deviation: None }));
        let summary = summarize(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).expect("there are samples");
        assert_eq!((summary.n, summary.mean), (8, 5.0));
        assert!((summary.deviation.expect("more than one") - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn intervals_of_medians_are_those_of_the_binomial_table() {
        let interval = |n: u32| median_interval(&(1..=n).map(f64::from).collect::<Vec<_>>());
        // Known ranks: none for 5, the extremes for 6 to 8, the second from the end for 9 to 11, the third for 12.
        assert_eq!(interval(0), None);
        assert_eq!(interval(5), None);
        assert_eq!(
            [6, 8, 9, 11, 12].map(interval),
            [(1.0, 6.0), (1.0, 8.0), (2.0, 8.0), (2.0, 10.0), (3.0, 10.0)].map(Some)
        );
    }

    #[test]
    fn medians_of_odd_and_even_lists() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
