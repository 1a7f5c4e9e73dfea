//! Latencies, counted in buckets whose width grows with the value.
//!
//! # Guarantee
//! A percentile is at most 1/32 above the true one, and never below it; nothing is lost, up to 2^64 - 1 ns.
//!
//! ```text
//! value      0 .. 63        64 .. 127      128 .. 255     256 .. 511   ...
//! width      1              2              4              8
//! ```

const SUB_BITS: u32 = 5;
const SUBS: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUBS;

/// A histogram of nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0, sum_ns: 0 }
    }
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn note(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds another histogram's counts.
    pub fn add(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(count, more)| *count += more);
        self.total += other.total;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Returns the values that were counted, each as its bucket's largest, with how often.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(bucket, &count)| (highest(bucket), count))
    }

    /// Returns the histogram of values with how often each was counted.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut histogram = Self::default();
        for (ns, count) in pairs {
            histogram.counts[bucket(ns)] += count;
            histogram.total += count;
            histogram.sum_ns = histogram.sum_ns.saturating_add(ns.saturating_mul(count));
        }
        histogram
    }

    /// Returns how many values were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the sum of the values.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the value that `per_mille` of a thousand values do not exceed; nothing if none was counted.
    pub fn percentile(&self, per_mille: u64) -> Option<u64> {
        let rank = (u128::from(self.total) * u128::from(per_mille)).div_ceil(1000).max(1) as u64;
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        place.filter(|_| self.total > 0).map(highest)
    }
}

fn bucket(ns: u64) -> usize {
    let shift = (64 - SUB_BITS).saturating_sub(ns.leading_zeros() + 1);
    ((shift as usize) << SUB_BITS) + (ns >> shift) as usize
}

/// Returns the largest value of a bucket.
fn highest(bucket: usize) -> u64 {
    let shift = (bucket >> SUB_BITS).saturating_sub(1) as u32;
    let first = (bucket - ((shift as usize) << SUB_BITS)) as u64;
    (first << shift) + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_at_most_a_32nd_wide() {
        let mut values: Vec<u64> = (0..2000).collect();
        values.extend((0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1u64 << bit) + (1u64 << bit) / 3]));
        values.push(u64::MAX);
        for value in values {
            let top = highest(bucket(value));
            assert!(top >= value && top - value <= value / 32, "{value} is shown as {top}");
            assert_eq!(bucket(top), bucket(value));
            assert!(top == u64::MAX || bucket(top + 1) == bucket(value) + 1);
        }
    }

    #[test]
    fn percentiles_of_a_known_list() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(500), None);
        (1..=1000).for_each(|value| histogram.note(value));
        let exact = [(1, 1), (10, 10), (60, 60)];
        exact.iter().for_each(|&(per_mille, value)| assert_eq!(histogram.percentile(per_mille), Some(value)));
        for per_mille in [500, 990, 999, 1000] {
            let shown = histogram.percentile(per_mille).expect("values were counted");
            assert!(shown >= per_mille && shown <= per_mille + per_mille / 32, "{per_mille}: {shown}");
        }
        let mut twice = histogram.clone();
        twice.add(&histogram);
        assert_eq!((twice.total(), twice.sum_ns()), (2000, 1_001_000));
        assert_eq!(twice.percentile(990), histogram.percentile(990));
    }
}
