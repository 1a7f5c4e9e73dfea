//! What is better: more of it, or less.
//!
//! # Guarantee
//! A metric that nobody has judged has no direction, and is never called a regression.

/// What is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// More.
    Higher,
    /// Less.
    Lower,
    /// It says what happened, not how well.
    Neither,
}

impl Direction {
    /// Returns the word for machine formats.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Higher => "higher",
            Direction::Lower => "lower",
            Direction::Neither => "neither",
        }
    }
}

/// Metrics whose unit does not tell.
const JUDGED: [(&str, Direction); 3] =
    [("lock_wait_share", Direction::Lower), ("peak_rss_bytes", Direction::Lower), ("shared_lines", Direction::Lower)];

/// Returns what is better of a metric.
pub fn direction(metric: &str, unit: &str) -> Direction {
    if let Some((_, judged)) = JUDGED.iter().find(|(name, _)| *name == metric) {
        return *judged;
    }
    match unit {
        _ if unit.ends_with("/s") => Direction::Higher,
        "ns" | "us" | "ms" | "s" | "ns/op" => Direction::Lower,
        _ => Direction::Neither,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_better_higher_times_lower_and_counts_neither() {
        assert_eq!(direction("per_thread_ops", "ops/s"), Direction::Higher);
        assert_eq!(direction("faults_per_s", "ops/s"), Direction::Higher);
        assert_eq!(direction("elapsed_ns", "ns"), Direction::Lower);
        assert_eq!(direction("lock_wait_share", "share"), Direction::Lower);
        assert_eq!(direction("spf", "count"), Direction::Neither);
        assert_eq!(direction("locks.mmap_lock.utilisation", "share"), Direction::Neither);
    }
}
