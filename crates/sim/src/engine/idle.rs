//! Idle states: the longer a CPU has slept lately, the deeper it sleeps, and the later it wakes.
//!
//! # Guarantee
//! A machine whose file has no table `idle` wakes after `wake_latency_ns`, as from the first state of one that has.
//!
//! # What is modelled
//! Linux's governor `menu`, as of 3.12. It expects the CPU to be idle as long as on average, each time counting an
//! eighth; or, if the last eight times (or all but the longest one or two) were much alike, as long as those. It takes
//! the deepest state whose residency, and whose exit times a multiplier, are no longer than that. The multiplier is 11
//! if the CPU was busy at its last tick, else 1. Left out: waits for input and output; and that the kernel predicts a
//! share of the time to the next timer, in whole numbers, which never falls below 7 in 8192: a machine whose file has a
//! table `governor`, too, has that (`governor`).
//!
//! Source: drivers/cpuidle/governors/menu.c; docs/semaphores.md has what it does to the tables of 2013.

use super::governor::{Governor, NR_ALIKE, NR_RECENT};
use super::state::Engine;
use crate::machine::costs::IdleCosts;

/// Idle times are alike if they deviate by no more than this.
const DEVIATION_PS: f64 = 20e6;
/// Or by no more than this part of their mean.
const DEVIATION_SHARE: f64 = 1.0 / 6.0;
/// What a CPU that is busy makes of an exit's time.
const BUSY_MULTIPLIER: f64 = 11.0;

/// What a CPU remembers of its idle times.
#[derive(Clone, Copy, Default)]
pub(super) struct Idle {
    average_ps: f64,
    recent_ps: [f64; NR_RECENT],
    nr_times: usize,
    /// When it last stopped being idle.
    busy_since: u64,
    /// The last tick, and whether it found the CPU busy.
    tick: u64,
    was_busy: bool,
    governor: Governor,
}

impl Idle {
    /// Notes that the CPU goes idle at `clock`.
    pub(super) fn begin(&mut self, clock: u64, costs: &IdleCosts) {
        let tick = clock / costs.tick;
        if tick != self.tick {
            self.was_busy = tick * costs.tick >= self.busy_since;
            self.tick = tick;
        }
        if let Some(timer_us) = costs.timer_us {
            self.governor.predict(clock, timer_us);
        }
    }

    /// Notes that it was idle from `since` to `clock`; returns how much longer than from the first state it takes to
    /// wake it.
    pub(super) fn end(&mut self, since: u64, clock: u64, costs: &IdleCosts) -> u64 {
        let expected_ps = costs.timer_us.map_or_else(|| self.expected_ps(), |_| self.governor.predicted_ps());
        let late = costs.exit_after(expected_ps, if self.was_busy { BUSY_MULTIPLIER } else { 1.0 });
        self.governor.learn(clock.saturating_sub(since), costs.states[0].0 + late);
        let passed = clock.saturating_sub(since) as f64;
        self.average_ps += (passed - self.average_ps) / NR_RECENT as f64;
        self.recent_ps[self.nr_times % NR_RECENT] = passed;
        self.nr_times += 1;
        self.busy_since = clock;
        late
    }

    fn expected_ps(&self) -> f64 {
        self.typical_ps().map_or(self.average_ps, |typical| typical.min(self.average_ps))
    }

    /// Returns the mean of the last idle times, if they were alike.
    fn typical_ps(&self) -> Option<f64> {
        let mut sorted = self.recent_ps;
        sorted.sort_unstable_by(f64::total_cmp);
        (NR_ALIKE..=NR_RECENT).rev().find_map(|alike| mean_if_alike(&sorted[..alike]))
    }
}

fn mean_if_alike(times: &[f64]) -> Option<f64> {
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / times.len() as f64;
    let deviation = variance.sqrt();
    (deviation <= DEVIATION_PS || deviation < mean * DEVIATION_SHARE).then_some(mean)
}

impl Engine {
    /// Notes that a CPU has no owner from `clock` on.
    pub(super) fn begin_idle(&mut self, cpu: u16, clock: u64) {
        if let Some(costs) = &self.costs.idle {
            let idle = &mut self.cpus[usize::from(cpu)].idle;
            if let Some(timer_us) = costs.timer_us {
                idle.governor.set_timer(|| self.random.below(timer_us));
            }
            idle.begin(clock, costs);
        }
    }

    /// Returns when a thread that is woken at `clock` runs on an idle CPU.
    pub(super) fn end_idle(&mut self, cpu: u16, clock: u64) -> u64 {
        let record = &mut self.cpus[usize::from(cpu)];
        let late = self.costs.idle.as_ref().map_or(0, |costs| record.idle.end(record.free_at, clock, costs));
        clock + self.costs.wake_latency + late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000_000;

    fn nehalem() -> IdleCosts {
        let state = |exit_us: u64, residency_us: u64| (exit_us * US, residency_us * US);
        IdleCosts {
            tick: 1000 * US,
            timer_us: None,
            states: [state(3, 6), state(10, 20), state(20, 80), state(200, 800)],
        }
    }

    /// Idles for each of these times, in us; returns how late it woke from each, in us.
    fn late(times_us: &[u64]) -> Vec<u64> {
        late_on(&nehalem(), times_us)
    }

    fn late_on(costs: &IdleCosts, times_us: &[u64]) -> Vec<u64> {
        let (mut idle, mut clock) = (Idle::default(), US);
        let mut one = |&time_us: &u64| {
            idle.begin(clock, costs);
            let since = clock;
            clock += time_us * US;
            let late = idle.end(since, clock, costs);
            // So short a time that no tick finds it busy.
            clock += 1;
            late / US
        };
        times_us.iter().map(&mut one).collect()
    }

    #[test]
    fn who_sleeps_long_is_woken_late() {
        assert_eq!(late(&[15; 30]).last(), Some(&0), "from the first state");
        assert_eq!(late(&[50; 30]).last(), Some(&7));
        assert_eq!(late(&[500; 60]).last(), Some(&17));
        assert_eq!(late(&[5000; 60]).last(), Some(&197));
        let mut mixed = [40; 64];
        mixed.iter_mut().step_by(8).for_each(|time| *time = 9000);
        assert_eq!(late(&mixed).last(), Some(&7), "one long time in eight is left out");
        mixed.iter_mut().skip(1).step_by(3).for_each(|time| *time = 9000);
        assert_eq!(late(&mixed).last(), Some(&197), "three are not");
    }

    #[test]
    fn short_times_that_are_not_alike_end_in_the_deepest_state_by_the_governor_alone() {
        let unlike: Vec<u64> = (0..200).map(|at| [20, 260, 30, 180, 60, 200, 40, 10][at % 8]).collect();
        assert!(late(&unlike)[100..].iter().all(|&late| late <= 17), "100 us on average");
        let with_timer = |timer_us| IdleCosts { timer_us: Some(timer_us), ..nehalem() };
        assert!(late_on(&with_timer(4_000_000), &unlike)[100..].iter().all(|&late| late == 197));
        assert!(late_on(&with_timer(400_000), &unlike)[100..].iter().all(|&late| late <= 17), "7 / 8192 are 342 us");
        assert_eq!(late_on(&with_timer(4_000_000), &[15; 30]).last(), Some(&0), "alike");
    }

    #[test]
    fn a_busy_cpu_takes_no_deep_state() {
        let (costs, mut idle) = (nehalem(), Idle { average_ps: 1000.0 * US as f64, ..Idle::default() });
        idle.recent_ps = [2000.0 * US as f64, 1.0, 1.0, 1.0, 1e9, 1e9, 2e9, 2e9];
        idle.begin(1500 * US, &costs);
        assert_eq!((idle.was_busy, { idle }.end(1500 * US, 1501 * US, &costs)), (true, 17 * US));
        (idle.busy_since, idle.tick) = (2100 * US, 1);
        idle.begin(2500 * US, &costs);
        assert_eq!((idle.was_busy, idle.end(2500 * US, 2501 * US, &costs)), (false, 197 * US));
    }
}
