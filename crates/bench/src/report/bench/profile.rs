//! Where the workers' time went on a simulated machine, as a result keeps it.
//!
//! # Guarantee
//! All runs added up: times of all workers, in ns, from their begin to their end, the warm-up included, as `ops` are.

use faultless_sim::{LineCost, Profile};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::measure::Run;

/// A name's lines of all runs.
#[derive(Default)]
struct ProfiledLines {
    all: LineCost,
    hottest: LineCost,
    /// CPUs that wrote the hottest line, in the run with the fewest.
    writers: Option<usize>,
}

/// Returns the profile of all runs together; nothing if one has none.
pub(super) fn json(runs: &[Run]) -> Option<Value> {
    let profiles: Vec<&Profile> = runs.iter().map(|run| run.profile.as_ref()).collect::<Option<_>>()?;
    let sum = |of: fn(&Profile) -> u64| profiles.iter().map(|profile| of(profile)).sum::<u64>();
    let mut waits: BTreeMap<&str, u64> = BTreeMap::new();
    let mut lines: BTreeMap<&str, ProfiledLines> = BTreeMap::new();
    for profile in &profiles {
        profile.waits.iter().for_each(|(name, ns)| *waits.entry(name).or_default() += ns);
        for named in &profile.lines {
            let sums = lines.entry(named.name).or_default();
            add(&mut sums.all, named.all);
            add(&mut sums.hottest, named.hottest);
            sums.writers = sums.writers.into_iter().chain([named.hottest_writers]).min();
        }
    }
    let waits: Vec<Value> = waits.iter().map(|(name, ns)| json!({ "for": name, "ns": ns })).collect();
    let mut lines: Vec<(&str, ProfiledLines)> = lines.into_iter().collect();
    lines.sort_by_key(|(_, lines)| std::cmp::Reverse(lines.all.wait_ns));
    let lines: Vec<Value> = lines.iter().map(|(name, lines)| line(name, lines)).collect();
    Some(json!({
        "thread_ns": sum(|profile| profile.thread_ns),
        "waits": waits,
        "lines": lines,
        "bus_ns": sum(|profile| profile.bus_ns),
        "interrupted_ns": sum(|profile| profile.interrupted_ns),
    }))
}

fn add(sum: &mut LineCost, more: LineCost) {
    sum.transfers += more.transfers;
    sum.wait_ns += more.wait_ns;
}

fn line(name: &str, lines: &ProfiledLines) -> Value {
    json!({
        "name": name,
        "transfers": lines.all.transfers,
        "ns": lines.all.wait_ns,
        "hottest": { "transfers": lines.hottest.transfers, "ns": lines.hottest.wait_ns, "writers": lines.writers },
    })
}
