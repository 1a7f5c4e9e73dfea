//! Linux's governor of idle states, `menu` of 3.12, in its own whole numbers.
//!
//! # Guarantee
//! * A prediction depends on the last eight idle times, on how much of the time to the next timer used to pass, and on
//!   that time: nothing else.
//! * A CPU that never was idle for a 1024th of the time to its next timer is predicted to be idle for 7 / 8192 of it.
//!
//! # Why it is not the average of the last times
//! The kernel keeps the share of the time to the next timer that passed on average, times 8192, one for each order of
//! magnitude of that time. Each idle time takes an eighth of it away and adds its own share times 1024, rounded down:
//! nothing, if it was shorter than a 1024th. An eighth of 7 is 0, so that 7 stays ("due to rounding", says a comment).
//! With timers seconds apart that is milliseconds, and the CPU takes its deepest state, if its last idle times were not
//! alike, though it has slept for some 100 us each time.
//!
//! Each CPU has a timer of its own, at a moment that the seed draws. What other timers it has is not modelled.
//!
//! Source: drivers/cpuidle/governors/menu.c (`menu_select`, `menu_update`, `get_typical_interval`), as read in releases
//! after 3.12; in some before it the share falls to 1 / 8192. docs/log/2026-11-27-wakeups.md has that, and
//! docs/semaphores.md what it does to the tables of 2013.

/// How many of the last idle times are compared.
pub(super) const NR_RECENT: usize = 8;
/// How many of them must be alike at least.
pub(super) const NR_ALIKE: usize = 6;
/// What a share of one is.
const WHOLE: u64 = 1024 * DECAY;
/// Each idle time counts this part of the average.
const DECAY: u64 = 8;
/// Idle times from here on count as if all of the time to the next timer had passed.
const MOST_INTERESTING_US: u64 = 50_000;
/// Idle times are alike if they deviate by no more than this.
const DEVIATION_US: u64 = 20;
/// Or by less than this part of their mean.
const DEVIATION_PART: u64 = 6;
/// How many orders of magnitude are told apart: below 10 us, below 100 us, up to 100 ms and more.
const NR_ORDERS: usize = 6;
const PS_PER_US: u64 = 1_000_000;

/// What a CPU's governor remembers.
#[derive(Clone, Copy, Default)]
pub(super) struct Governor {
    /// When its timer is due, within the time between two.
    phase_us: Option<u64>,
    to_timer_us: u64,
    predicted_us: u64,
    /// The average share, times [`WHOLE`]; 0 where none is known.
    shares: [u64; NR_ORDERS],
    recent_us: [u64; NR_RECENT],
    nr_times: usize,
}

impl Governor {
    /// Sets the timer if it is not set.
    pub(super) fn set_timer(&mut self, draw_us: impl FnOnce() -> u64) {
        self.phase_us.get_or_insert_with(draw_us);
    }

    /// Predicts how long the CPU is idle that goes idle at `clock`.
    pub(super) fn predict(&mut self, clock: u64, timer_us: u64) {
        self.to_timer_us = timer_us - (clock / PS_PER_US + self.phase_us.unwrap_or(0)) % timer_us;
        let share = self.share();
        if *share == 0 {
            *share = WHOLE;
        }
        self.predicted_us = (self.to_timer_us * *self.share() + WHOLE / 2) / WHOLE;
        if let Some(typical_us) = self.typical_us().filter(|&typical_us| typical_us < self.to_timer_us) {
            self.predicted_us = typical_us;
        }
    }

    pub(super) fn predicted_ps(&self) -> f64 {
        (self.predicted_us * PS_PER_US) as f64
    }

    /// Notes that the CPU was idle for so long until it was woken, and took `exit` to wake; in ps.
    pub(super) fn learn(&mut self, idle: u64, exit: u64) {
        let idle_us = idle / PS_PER_US;
        let counted_us = idle_us.min(self.to_timer_us);
        let passed = if idle_us < MOST_INTERESTING_US { 1024 * counted_us / self.to_timer_us.max(1) } else { 1024 };
        let share = self.share();
        *share = *share - *share / DECAY + passed;
        // What the kernel compares includes the exit.
        self.recent_us[self.nr_times % NR_RECENT] = (idle + exit) / PS_PER_US;
        self.nr_times += 1;
    }

    fn share(&mut self) -> &mut u64 {
        let order = match self.to_timer_us {
            0..10 => 0,
            10..100 => 1,
            100..1000 => 2,
            1000..10_000 => 3,
            10_000..100_000 => 4,
            _ => 5,
        };
        &mut self.shares[order]
    }

    /// Returns the mean of the last idle times, or of all but the longest one or two, if they were alike.
    fn typical_us(&self) -> Option<u64> {
        let mut sorted = self.recent_us;
        sorted.sort_unstable();
        (NR_ALIKE..=NR_RECENT).rev().find_map(|alike| mean_if_alike(&sorted[..alike]))
    }
}

fn mean_if_alike(times_us: &[u64]) -> Option<u64> {
    let nr = times_us.len() as u64;
    let mean = times_us.iter().sum::<u64>() / nr;
    let variance = times_us.iter().map(|time| time.abs_diff(mean).pow(2)).sum::<u64>() / nr;
    let deviation = variance.isqrt();
    (deviation <= DEVIATION_US || mean > DEVIATION_PART * deviation).then_some(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    /// Idles for each of these times beside a timer that is `to_timer_us` away each time; returns what was predicted.
    fn predicted_us(governor: &mut Governor, to_timer_us: u64, times_us: &[u64]) -> Vec<u64> {
        let mut one = |&time_us: &u64| {
            governor.predict(0, to_timer_us);
            governor.learn(time_us * PS_PER_US, 0);
            governor.predicted_us
        };
        times_us.iter().map(&mut one).collect()
    }

    /// Idle times of 100 us on average that are not alike.
    fn unlike(nr: usize) -> Vec<u64> {
        (0..nr).map(|at| [20, 260, 30, 180, 60, 200, 40, 10][at % 8]).collect()
    }

    #[test]
    fn idle_times_that_are_not_alike_are_predicted_by_the_timer_however_short() {
        for (to_timer_us, least_us) in [(4 * SECOND_US, 3418), (SECOND_US, 854), (SECOND_US / 2, 427)] {
            let predicted = predicted_us(&mut Governor::default(), to_timer_us, &unlike(200));
            let known = &predicted[NR_RECENT..];
            assert!(known.is_sorted_by(|a, b| a >= b), "{known:?}");
            assert_eq!((known[0] > to_timer_us / 4, known.last()), (true, Some(&least_us)));
        }
        // A 1024th of 50 ms is 48 us: these times count, and are predicted on average.
        let near = predicted_us(&mut Governor::default(), 50_000, &unlike(200))[199];
        assert!((50..200).contains(&near), "{near} us");
    }

    #[test]
    fn idle_times_that_are_alike_are_predicted_by_themselves() {
        let mut governor = Governor::default();
        assert_eq!(predicted_us(&mut governor, 4 * SECOND_US, &[100; 9]).last(), Some(&100));
        assert_eq!(predicted_us(&mut governor, 4 * SECOND_US, &[9000, 100, 9000, 100]).last(), Some(&100), "but two");
        let after_three = predicted_us(&mut governor, 4 * SECOND_US, &[9000, 100]).last().copied();
        assert!(after_three > Some(3418), "three are not left out: {after_three:?}");
        assert_eq!(predicted_us(&mut governor, 60, &[100; 9]).last(), Some(&60), "the timer comes first");
    }

    #[test]
    fn what_the_exit_took_is_part_of_the_times_that_are_compared() {
        let mut governor = Governor::default();
        for _ in 0..8 {
            governor.predict(0, SECOND_US);
            governor.learn(100 * PS_PER_US, 200 * PS_PER_US);
        }
        governor.predict(0, SECOND_US);
        assert_eq!(governor.predicted_us, 300);
    }

    #[test]
    fn the_timer_comes_once_in_its_time() {
        let mut governor = Governor::default();
        governor.set_timer(|| 300);
        governor.set_timer(|| 700);
        let mut to_timer = |clock_us: u64| {
            governor.predict(clock_us * PS_PER_US, 1000);
            governor.to_timer_us
        };
        assert_eq!([0, 699, 700, 1700].map(&mut to_timer), [700, 1, 1000, 1000]);
    }
}
