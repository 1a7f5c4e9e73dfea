//! Who goes on: replayed, at random, or by priorities.
//!
//! # Priorities
//! The thread with the highest priority runs whenever it can. At each of a few steps drawn beforehand the running
//! thread's priority drops below all that were drawn so far. A bug that needs d orderings is found by some choice of d
//! - 1 such steps. A thread that waits awake drops to the very end, so that what it waits for can happen.

use super::schedule::Switch;

/// A set of threads by number.
pub(super) type ThreadMask = u64;

/// Who runs when.
#[derive(Clone, Debug)]
pub enum Policy {
    /// These switches, as far as the threads named can run; otherwise each thread runs until it stops, and the next one
    /// by number goes on.
    Replay {
        /// Who begins.
        first: usize,
        /// When to switch.
        switches: Vec<Switch>,
    },
    /// A switch to any thread after every 1 to 2 x `period` - 1 steps.
    Random {
        /// Draws them.
        seed: u64,
        /// Steps between two switches, on average.
        period: u64,
    },
    /// The highest priority first.
    Priorities {
        /// The threads, highest priority first; those that are not named come last.
        order: Vec<usize>,
        /// A thread and its own step at which its priority drops.
        drops: Vec<(usize, u64)>,
    },
}

impl Policy {
    /// Returns the policy without any switch that is not forced.
    pub fn in_turn(first: usize) -> Self {
        Self::Replay { first, switches: Vec::new() }
    }
}

/// A small generator (xorshift64*): the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the generator of a seed.
    pub fn new(seed: u64) -> Self {
        // Mixed, so that neighbouring seeds have nothing in common (splitmix64).
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((state ^ (state >> 31)) | 1)
    }

    /// Returns a number below `limit`, or 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        drawn.checked_rem(limit).unwrap_or(0)
    }

    /// Returns one of `items`.
    ///
    /// # Panics
    /// If there is none.
    pub fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// Says whether one of `times` chances came true.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Puts items in any order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// A policy at work.
pub(super) struct Chooser {
    policy: Policy,
    random: Random,
    /// Of `Priorities`: higher runs first; threads that came later have none yet.
    priorities: Vec<i64>,
    lowest: i64,
}

impl Chooser {
    pub(super) fn new(policy: Policy) -> Self {
        let seed = if let Policy::Random { seed, .. } = policy { seed } else { 0 };
        let mut priorities = Vec::new();
        if let Policy::Priorities { order, .. } = &policy {
            priorities = vec![0; order.iter().max().map_or(0, |max| max + 1)];
            order.iter().rev().zip(1..).for_each(|(&thread, priority)| priorities[thread] = priority);
        }
        Self { policy, random: Random::new(seed), priorities, lowest: 0 }
    }

    /// Says whether a thread that can go on again may take the place of the running one at once.
    pub(super) fn is_eager(&self) -> bool {
        matches!(self.policy, Policy::Priorities { .. })
    }

    /// Returns the thread's own step, behind `step`, at which `event` must be asked.
    pub(super) fn next_event(&mut self, thread: usize, step: u64) -> u64 {
        match &self.policy {
            Policy::Replay { switches, .. } => {
                let own = switches.iter().filter(|switch| switch.from == thread && switch.step > step);
                own.map(|switch| switch.step).min().unwrap_or(u64::MAX)
            }
            Policy::Random { period, .. } => step + 1 + self.random.below(2 * period - 1),
            Policy::Priorities { drops, .. } => {
                let own = drops.iter().filter(|drop| drop.0 == thread && drop.1 > step);
                own.map(|drop| drop.1).min().unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns who goes on when `thread`, which could, has come to `step`.
    pub(super) fn event(&mut self, thread: usize, step: u64, runnable: ThreadMask) -> usize {
        match &self.policy {
            Policy::Replay { .. } => self.replayed(thread, step, runnable).unwrap_or(thread),
            Policy::Random { .. } => self.any(runnable),
            Policy::Priorities { drops, .. } => {
                if drops.contains(&(thread, step)) {
                    self.demote(thread);
                }
                self.highest(runnable)
            }
        }
    }

    /// Returns who goes on when `thread` can't. Somebody can.
    pub(super) fn stopped(&mut self, thread: usize, step: u64, runnable: ThreadMask) -> usize {
        match &self.policy {
            Policy::Replay { .. } => {
                self.replayed(thread, step, runnable).unwrap_or_else(|| next_behind(thread, runnable))
            }
            Policy::Random { .. } => self.any(runnable),
            Policy::Priorities { .. } => self.highest(runnable),
        }
    }

    /// Returns who begins.
    pub(super) fn first(&mut self, runnable: ThreadMask) -> usize {
        match self.policy {
            Policy::Replay { first, .. } if runnable >> first & 1 != 0 => first,
            Policy::Replay { .. } => runnable.trailing_zeros() as usize,
            Policy::Random { .. } => self.any(runnable),
            Policy::Priorities { .. } => self.highest(runnable),
        }
    }

    /// Notes that a thread waits awake.
    pub(super) fn waits_awake(&mut self, thread: usize) {
        if self.is_eager() {
            self.demote(thread);
        }
    }

    fn demote(&mut self, thread: usize) {
        self.lowest -= 1;
        let lowest = self.lowest;
        *self.priority(thread) = lowest;
    }

    fn priority(&mut self, thread: usize) -> &mut i64 {
        if self.priorities.len() <= thread {
            self.priorities.resize(thread + 1, 0);
        }
        &mut self.priorities[thread]
    }

    fn replayed(&self, thread: usize, step: u64, runnable: ThreadMask) -> Option<usize> {
        let Policy::Replay { switches, .. } = &self.policy else { return None };
        let here = switches.iter().find(|switch| switch.from == thread && switch.step == step);
        here.map(|switch| switch.to).filter(|&to| to < 64 && runnable >> to & 1 != 0)
    }

    fn any(&mut self, runnable: ThreadMask) -> usize {
        let place = self.random.below(u64::from(runnable.count_ones()));
        members(runnable).nth(place as usize).unwrap_or(0)
    }

    fn highest(&self, runnable: ThreadMask) -> usize {
        let priority = |thread: usize| self.priorities.get(thread).copied().unwrap_or(0);
        members(runnable).max_by_key(|&thread| (priority(thread), usize::MAX - thread)).unwrap_or(0)
    }
}

fn members(mask: ThreadMask) -> impl Iterator<Item = usize> {
    (0..64).filter(move |thread| mask >> thread & 1 != 0)
}

/// Returns who goes on behind a thread that has stopped, unless something else is said.
pub(super) fn next_behind(thread: usize, runnable: ThreadMask) -> usize {
    members(runnable).find(|&other| other > thread).or_else(|| members(runnable).next()).unwrap_or(0)
}
