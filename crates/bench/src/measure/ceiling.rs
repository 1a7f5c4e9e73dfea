//! What a simulated machine can do at most, measured by what it does on one CPU.
//!
//! # Guarantee
//! The ceiling is arithmetic: what one CPU does, times the cores, times 2 / `sibling_slowdown` where both threads of a
//! core run; or what the memory buses let through, if that is less. It takes no workload to share nothing: that is what
//! it is compared with.

use super::job::Run;
use super::session::{BenchArmResult, BenchOutcome, BenchSetup};
use faultless_results::stats::median;

/// The most that an arm can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// Operations in a second.
    pub ops_per_s: f64,
    /// What sets it.
    pub set_by: SetBy,
}

/// What sets a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetBy {
    /// The cores.
    Cores,
    /// The memory buses.
    MemoryBus,
}

impl SetBy {
    /// Returns the word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::MemoryBus => "memory bus",
        }
    }
}

/// Returns an arm's ceiling; nothing if it was not asked for, the machine is not simulated, or one CPU's rate is not
/// known or not settled.
pub fn ceiling(setup: &BenchSetup, outcome: &BenchOutcome, arm: &BenchArmResult) -> Option<Ceiling> {
    let machine = setup.machine.simulated().filter(|_| setup.has_ceiling)?;
    let alone = outcome.arms.iter().find(|other| other.arm.cpus == 1 && other.arm.is_like(&arm.arm))?;
    if !alone.runs.iter().all(Run::has_converged) {
        return None;
    }
    let one = median(&alone.runs.iter().map(|run| run.ops_per_s).collect::<Vec<_>>())?;
    let cores = one * machine.linear_factor(arm.arm.cpus);
    let bus = machine.pages_moved_per_s(arm.arm.cpus) / pages_moved_each(alone);
    match bus < cores {
        true => Some(Ceiling { ops_per_s: bus, set_by: SetBy::MemoryBus }),
        false => Some(Ceiling { ops_per_s: cores, set_by: SetBy::Cores }),
    }
}

impl BenchArmResult {
    /// Returns the part of a ceiling that was reached; nothing if there is no run, or one that has not settled.
    pub fn reached(&self, ceiling: &Ceiling) -> Option<f64> {
        let rates: Vec<f64> = self.runs.iter().map(|run| run.ops_per_s).collect();
        let has_converged = self.runs.iter().all(Run::has_converged);
        Some(median(&rates).filter(|_| has_converged)? / ceiling.ops_per_s)
    }
}

/// Returns how many pages an operation moves through the memory bus.
fn pages_moved_each(arm: &BenchArmResult) -> f64 {
    let sum = |of: &dyn Fn(&Run) -> u64| arm.runs.iter().map(of).sum::<u64>() as f64;
    sum(&|run| run.pages.map_or(0, |pages| pages.moved)) / sum(&|run| run.ops).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{BenchArm, Length, Mode, Pages, Pinning, Run, Settled};
    use faultless_machine::simulated::{MachineChoice, Spec};
    use faultless_results::stats::Histogram;

    fn run(cpus: usize, ops_per_s: f64, pages_moved: u64) -> Run {
        Run {
            elapsed_ns: 1,
            ops: 100,
            workers: cpus,
            cpus,
            ops_per_s,
            latency: Histogram::default(),
            counters: Vec::new(),
            lock_wait_ns: None,
            peak_rss_bytes: None,
            run_delay_ns: None,
            settled: None,
            pages: Some(Pages { filled: pages_moved, missed: pages_moved, moved: pages_moved }),
            profile: None,
        }
    }

    /// Returns the ceiling of 384 CPUs, and the part that was reached, where one CPU did so.
    fn of(alone: Run) -> Option<(Ceiling, Option<f64>)> {
        let spec = faultless_workloads::Spec::parse("mmap1").expect("a workload");
        let arm = |cpus| BenchArm { spec: spec.clone(), design: "mmap-sem".into(), semaphore: None, cpus };
        let setup = BenchSetup {
            machine: MachineChoice::Simulated(Box::new(Spec::preset("epyc-384").expect("a preset"))),
            jobs: 1,
            specs: vec![spec.clone()],
            designs: vec!["mmap-sem".into()],
            semaphores: Vec::new(),
            cpus: vec![1, 384],
            mode: Mode::Processes,
            runs: 1,
            warm_ups: 0,
            length: Length::Fixed(1),
            seed: 1,
            pinning: Pinning::Never,
            memory_bytes: None,
            placement: None,
            has_ceiling: true,
            draws: None,
            has_sensitivity: false,
            replayer: &faultless_replay::AllDesigns,
        };
        let arms =
            vec![BenchArmResult::of(arm(1), vec![alone]), BenchArmResult::of(arm(384), vec![run(384, 120e6, 0)])];
        let outcome = BenchOutcome { arms, was_interrupted: false };
        let ceiling = ceiling(&setup, &outcome, &outcome.arms[1])?;
        Some((ceiling, outcome.arms[1].reached(&ceiling)))
    }

    #[test]
    fn cores_or_the_memory_bus_set_it() {
        let cores = Ceiling { ops_per_s: 240e6, set_by: SetBy::Cores };
        assert_eq!(of(run(1, 1e6, 0)), Some((cores, Some(0.5))));
        let (bus, _) = of(run(1, 1e6, 100)).expect("a ceiling");
        assert_eq!((bus.set_by, (bus.ops_per_s / 1e6).round()), (SetBy::MemoryBus, 225.0), "a page each");
    }

    #[test]
    fn there_is_none_where_one_cpus_rate_has_not_settled() {
        let settled = Settled { warm_up_ns: 1, window_ns: 2, halves: [1.0, 2.0], ops_per_s: 1.0, has_converged: false };
        assert_eq!(of(Run { settled: Some(settled), ..run(1, 1e6, 0) }), None);
    }
}
