//! The flags of the workload rwsem.

use clap::Args;

use crate::duration::{self, Written};

/// The flags of the workload rwsem alone.
#[derive(Args, Debug)]
pub struct RwsemArgs {
    /// Of the workload rwsem: how many sections are readers' and how many are writers'; 1:1 unless said. Example:
    /// --readers 10:1
    #[arg(long, value_name = "R:W", value_parser = parse_ratio)]
    pub(crate) readers: Option<(u32, u32)>,

    /// Of the workload rwsem: how long the lock is held; 100ns unless said. Example: --section 10us
    #[arg(long, value_name = "TIME", value_parser = duration::parse_written)]
    pub(crate) section: Option<Written>,

    /// Of the workload rwsem: threads for each CPU; one unless said. Example: --threads 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,

    /// Of the workload rwsem: readers to writers 0:1, 1:1, 10:1, 100:1 and 10000:1, each with sections of 100 ns and of
    /// 10 us and with one thread and two for each CPU; prints each semaphore's rate over that of rwsem-2012.
    #[arg(long, conflicts_with_all = ["readers", "section", "threads"])]
    pub(crate) grid: bool,
}

impl RwsemArgs {
    /// Says whether any of them was given.
    pub fn is_any(&self) -> bool {
        self.readers.is_some() || self.section.is_some() || self.threads.is_some() || self.grid
    }
}

/// Parses `R:W`.
fn parse_ratio(text: &str) -> Result<(u32, u32), String> {
    let numbers =
        text.split_once(':').and_then(|(readers, writers)| Some((readers.parse().ok()?, writers.parse().ok()?)));
    let is_good = |&(readers, writers): &(u32, u32)| {
        let most = 1_000_000;
        readers <= most && writers <= most && readers + writers > 0
    };
    numbers.filter(is_good).ok_or_else(|| format!("'{text}' is no ratio of readers to writers; write for example 10:1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_understood_or_refused() {
        assert_eq!(parse_ratio("10000:1"), Ok((10_000, 1)));
        assert_eq!(parse_ratio("0:1"), Ok((0, 1)));
        assert!(
            ["0:0", "1", ":", "1:x", "-1:1", "4000000000:4000000000"].iter().all(|text| parse_ratio(text).is_err())
        );
    }
}
