//! Medians, spreads, and the interval of a median by bootstrap.

/// Returns the median.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Returns the mean.
pub(crate) fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// Returns the standard deviation of a sample.
pub(crate) fn deviation(samples: &[f64]) -> f64 {
    let mean = mean(samples);
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (squares / (samples.len() as f64 - 1.0).max(1.0)).sqrt()
}

/// The median of some samples, and how sure it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Estimate {
    pub median: f64,
    /// The 95 % interval.
    pub low: f64,
    pub high: f64,
    /// The standard error.
    pub error: f64,
    pub runs: usize,
}

/// Estimates the median by drawing the samples again, 2,000 times, from a fixed seed.
pub(crate) fn bootstrap(samples: &[f64]) -> Estimate {
    const ROUNDS: usize = 2_000;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut medians: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let drawn = samples.iter().map(|_| samples[random.below(samples.len())]);
            median(&drawn.collect::<Vec<_>>())
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Estimate {
        median: median(samples),
        low: medians[ROUNDS / 40],
        high: medians[ROUNDS - 1 - ROUNDS / 40],
        error: deviation(&medians),
        runs: samples.len(),
    }
}

/// A small generator of numbers, the same in every run.
pub(crate) struct Random(pub u64);

impl Random {
    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}
