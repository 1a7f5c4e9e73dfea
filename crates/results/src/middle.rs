//! The one number that stands for a figure, on terminals and pages.
//!
//! # Guarantee
//! A percentile of times is that of the times of all runs together, where the set holds them. Every other figure is the
//! median of its runs.

use crate::set::{Measured, ResultSet};
use crate::stats::median;
use crate::verdict::beside;

/// How percentiles are called at the end of a metric's name; the first is the one that the set keeps all times with.
const PERCENTILES: [(&str, u64); 3] = [("_p50_ns", 500), ("_p99_ns", 990), ("_p999_ns", 999)];

impl ResultSet {
    /// Returns the number that stands for a figure of this set; nothing of one without runs.
    pub fn middle(&self, figure: &Measured) -> Option<f64> {
        self.percentile(figure).or_else(|| median(&figure.samples))
    }

    fn percentile(&self, figure: &Measured) -> Option<f64> {
        let ending = |(end, per_mille): &(&str, u64)| Some((figure.metric.strip_suffix(end)?, *per_mille));
        let (times, per_mille) = PERCENTILES.iter().find_map(ending)?;
        let all = beside(self, figure, &format!("{times}{}", PERCENTILES[0].0))?.distribution()?;
        all.percentile(per_mille).map(|ns| ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use crate::set::DISTRIBUTION;
    use crate::{MachineInfo, Measured, Mode, ResultSet};
    use serde_json::json;

    fn figure(metric: &str, samples: &[f64]) -> Measured {
        Measured {
            workload: "a".into(),
            mode: Mode::Threads,
            design: "d".into(),
            semaphore: None,
            cpus: 2,
            workers: None,
            metric: metric.into(),
            unit: "ns".into(),
            samples: samples.to_vec(),
            counters: Default::default(),
            more: Default::default(),
        }
    }

    #[test]
    fn percentiles_are_of_all_runs_together_and_all_else_is_the_median_of_runs() {
        let mut set = ResultSet::new("replay", 1, MachineInfo::default());
        let p50 = figure("fault_p50_ns", &[8.0, 20.0, 20.0]);
        let p99 = figure("fault_p99_ns", &[8.0, 30.0, 30.0]);
        let time = figure("elapsed_ns", &[3.0, 1.0, 2.0]);
        set.results = vec![p50, p99, time];
        let middles = |set: &ResultSet| set.results.iter().map(|one| set.middle(one)).collect::<Vec<_>>();
        assert_eq!(
            middles(&set),
            [Some(20.0), Some(30.0), Some(2.0)],
            "where the set has no times, the median of runs"
        );
        set.results[0].more.insert(DISTRIBUTION.into(), json!([[8, 60], [20, 30], [30, 10]]));
        assert_eq!(middles(&set), [Some(8.0), Some(30.0), Some(2.0)]);
        assert_eq!(set.middle(&figure("fault_p50_ns", &[])), Some(8.0));
        assert_eq!(set.middle(&figure("elapsed_ns", &[])), None);
    }
}
