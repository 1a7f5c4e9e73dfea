//! Numbers about numbers: spread, latency histograms, and what "within x %" means.
//!
//! # Guarantee
//! Nothing is discarded, every figure is defined for every input (an empty one gives nothing, not a NaN), and the
//! same samples and seed give the same result.

mod change;
mod histogram;
mod rank;
mod ratio;
mod summary;

pub use change::{ChangePoint, LEAST_POINTS, change_points, pettitt};
pub use histogram::Histogram;
pub use rank::{p_value, rank_ratio};
pub use ratio::{Interval, LEAST_PAIRS, Verdict, median_ratio, within};
pub use summary::{Summary, median, median_interval, summarize};

/// A small generator of pseudo-random numbers (Weyl sequence, mixed as in splitmix64), for resampling and shuffling.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.number()) * end as u128) >> 64) as usize
    }

    /// Puts a list in random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_keeps_everything_and_follows_the_seed() {
        let shuffled = |seed| {
            let mut list: Vec<u32> = (0..50).collect();
            Random::new(seed).shuffle(&mut list);
            list
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(3);
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..50));
    }
}
