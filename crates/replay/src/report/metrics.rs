//! What is measured of a pass, by name, unit and what smaller or larger means.

use crate::PassResult;
use crate::experiment::ReplayArmResult;
use crate::patterned::split;
use faultless_machine::designs::HOST_DESIGN;
use faultless_machine::events;
use faultless_results::Unit;

/// A figure of a pass.
#[derive(Clone, Copy)]
pub struct Metric {
    /// The name in machine formats.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Whether only designs that speculate have it.
    pub is_of_speculation: bool,
    of: fn(&PassResult) -> Option<f64>,
}

impl std::fmt::Debug for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Metric({})", self.name)
    }
}

const fn metric(name: &'static str, title: &'static str, unit: Unit, of: fn(&PassResult) -> Option<f64>) -> Metric {
    Metric { name, title, unit, is_of_speculation: false, of }
}

const fn speculative(name: &'static str, title: &'static str, of: fn(&PassResult) -> Option<f64>) -> Metric {
    Metric { name, title, unit: Unit::Count, is_of_speculation: true, of }
}

impl Metric {
    /// All of them, in the order of reports.
    pub const ALL: &'static [Metric] = &[
        metric("elapsed_ns", "time", Unit::Ns, |pass| Some(pass.elapsed_ns as f64)),
        metric("faults_per_s", "faults/s", Unit::PerSecond, faults_per_s),
        metric("fault_p50_ns", "fault latency p50", Unit::Ns, |pass| fault_ns(pass, 500)),
        metric("fault_p99_ns", "fault latency p99", Unit::Ns, |pass| fault_ns(pass, 990)),
        metric("fault_p999_ns", "fault latency p99.9", Unit::Ns, |pass| fault_ns(pass, 999)),
        metric("call_p50_ns", "map-call latency p50", Unit::Ns, |pass| call_ns(pass, 500)),
        metric("call_p99_ns", "map-call latency p99", Unit::Ns, |pass| call_ns(pass, 990)),
        metric("lock_wait_share", "waiting for the address-space lock", Unit::Share, lock_wait_share),
        speculative("spf", "faults handled speculatively", |pass| counter(pass, "spf")),
        speculative("spf_vma_changed", "  given up: spf_vma_changed", |pass| give_up(pass, "vma_changed")),
        speculative("spf_vma_noanon", "  given up: spf_vma_noanon", |pass| give_up(pass, "vma_noanon")),
        speculative("spf_vma_notsup", "  given up: spf_vma_notsup", |pass| give_up(pass, "vma_notsup")),
        speculative("spf_vma_access", "  given up: spf_vma_access", |pass| give_up(pass, "vma_access")),
        speculative("spf_pmd_changed", "  given up: spf_pmd_changed", |pass| give_up(pass, "pmd_changed")),
        speculative("spf_pte_lock", "  given up: spf_pte_lock", |pass| give_up(pass, "pte_lock")),
        metric("peak_rss_bytes", "peak resident size", Unit::Bytes, |pass| Some(pass.peak_rss_bytes as f64)),
    ];

    /// Returns the arm's samples, one for each pass that has the figure; nothing if its design has no such thing.
    pub fn samples(&self, arm: &ReplayArmResult) -> Option<Vec<f64>> {
        let is_kept_from_us = arm.arm.design == HOST_DESIGN && HOST_KEEPS.contains(&self.name);
        if self.is_of_speculation && !self.is_counted(&arm.arm.design) || is_kept_from_us {
            return None;
        }
        let samples: Vec<f64> = arm.passes.iter().filter_map(self.of).collect();
        (!samples.is_empty()).then_some(samples)
    }
}

impl Metric {
    /// Says whether a design counts this part of speculation.
    fn is_counted(&self, design: &str) -> bool {
        let is_there = |event: &str| design != HOST_DESIGN && events::is_counted(split(design).0, event);
        if self.name == "spf" { is_there("spf") } else { is_there(&format!("pagefault:{}", self.name)) }
    }
}

/// What the host's kernel does not tell.
const HOST_KEEPS: [&str; 2] = ["lock_wait_share", "peak_rss_bytes"];

fn faults_per_s(pass: &PassResult) -> Option<f64> {
    (pass.elapsed_ns > 0).then(|| pass.tally.faulted as f64 * 1e9 / pass.elapsed_ns as f64)
}

fn fault_ns(pass: &PassResult, per_mille: u64) -> Option<f64> {
    pass.tally.fault_ns.percentile(per_mille).map(|ns| ns as f64)
}

fn call_ns(pass: &PassResult, per_mille: u64) -> Option<f64> {
    pass.tally.call_ns.percentile(per_mille).map(|ns| ns as f64)
}

/// Of the time that threads spent in faults and map calls, what they waited for the address-space lock.
fn lock_wait_share(pass: &PassResult) -> Option<f64> {
    let busy_ns = pass.tally.fault_ns.sum_ns() + pass.tally.call_ns.sum_ns();
    (busy_ns > 0).then(|| pass.lock_wait_ns as f64 / busy_ns as f64)
}

fn give_up(pass: &PassResult, reason: &str) -> Option<f64> {
    let is_it = |name: &str| name.strip_prefix("pagefault:spf_").is_some_and(|end| end == reason);
    pass.counters.iter().find(|(name, _)| is_it(name)).map(|&(_, count)| count as f64)
}

fn counter(pass: &PassResult, wanted: &str) -> Option<f64> {
    pass.counters.iter().find(|(name, _)| *name == wanted).map(|&(_, count)| count as f64)
}
