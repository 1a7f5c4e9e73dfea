//! What is measured of a pass, by name, unit and what smaller or larger means.

use crate::experiment::ArmResult;
use crate::replay::PassResult;

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Events in a second.
    PerSecond,
    /// A share of 1.
    Share,
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// Returns the name used in machine formats.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::PerSecond => "ops/s",
            Unit::Share => "share",
            Unit::Count => "count",
            Unit::Bytes => "bytes",
        }
    }

    /// Returns a value for people, with three digits.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Ns => scaled(value, 1000.0, &[" ns", " us", " ms", " s"]),
            Unit::PerSecond => scaled(value, 1000.0, &["/s", " k/s", " M/s", " G/s"]),
            Unit::Share => format!("{} %", digits(value * 100.0)),
            Unit::Count => scaled(value, 1000.0, &["", " k", " M", " G"]),
            Unit::Bytes => scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"]),
        }
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    // Half a unit in the third digit would show as a thousand of them.
    while value.abs() >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    format!("{}{}", digits(value), units[unit])
}

/// Returns a number with three significant digits.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 0.995 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A figure of a pass.
#[derive(Clone, Copy)]
pub struct Metric {
    /// The name in machine formats.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Whether designs that never speculate have it.
    pub needs_speculation: bool,
    of: fn(&PassResult) -> Option<f64>,
}

impl std::fmt::Debug for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Metric({})", self.name)
    }
}

const fn metric(name: &'static str, title: &'static str, unit: Unit, of: fn(&PassResult) -> Option<f64>) -> Metric {
    Metric { name, title, unit, needs_speculation: false, of }
}

const fn speculative(name: &'static str, title: &'static str, of: fn(&PassResult) -> Option<f64>) -> Metric {
    Metric { name, title, unit: Unit::Count, needs_speculation: true, of }
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
    pub fn samples(&self, arm: &ArmResult) -> Option<Vec<f64>> {
        if self.needs_speculation && !speculates(&arm.arm.design) {
            return None;
        }
        let samples: Vec<f64> = arm.passes.iter().filter_map(self.of).collect();
        (!samples.is_empty()).then_some(samples)
    }
}

/// Returns whether a design ever handles a fault without the address-space lock.
fn speculates(design: &str) -> bool {
    design != "mmap-sem"
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_for_people_have_three_digits_and_a_unit() {
        let ns: Vec<String> = [0.0, 1.0, 12.34, 999.4, 999.6, 1234.0, 12_345_678.0].map(|v| Unit::Ns.show(v)).into();
        assert_eq!(ns, ["0 ns", "1.00 ns", "12.3 ns", "999 ns", "1.00 us", "1.23 us", "12.3 ms"]);
        assert_eq!(Unit::Share.show(0.1234), "12.3 %");
        assert_eq!(Unit::Share.show(0.00001), "0.001 %");
        assert_eq!(Unit::Bytes.show(7_340_032.0), "7.00 MiB");
        assert_eq!(Unit::PerSecond.show(1_234_567.0), "1.23 M/s");
        assert_eq!(Unit::Count.show(2265.0), "2.27 k");
    }
}
