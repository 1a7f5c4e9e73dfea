//! A set of small numbers, in which runs are claimed without a lock.
//!
//! # Guarantee
//! A run that `claim` returned belongs to one claimer until `release`. A thread that dies half-way
//! (its process forked) leaves numbers claimed, never doubly claimed.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bits of a word.
const WORD: usize = u64::BITS as usize;
const WORDS: usize = 256;
/// How many numbers a set has.
pub(crate) const LEN: usize = WORDS * WORD;

/// A set of the numbers from 0 to `LEN`.
#[derive(Debug)]
pub(crate) struct Bits([AtomicU64; WORDS]);

impl Bits {
    /// Returns an empty set.
    pub(crate) const fn new() -> Bits {
        Bits([const { AtomicU64::new(0) }; WORDS])
    }

    /// Claims the first run of `len` numbers below `end` that are not in the set, and that begins
    /// at a multiple of `step`.
    pub(crate) fn claim_first(&self, len: usize, end: usize, step: usize) -> Option<Range<usize>> {
        let mut start = 0;
        while start + len <= end {
            match self.last_in(start..start + len) {
                Some(taken) => start = (taken + 1).next_multiple_of(step),
                None if self.claim(start..start + len) => return Some(start..start + len),
                None => {}
            }
        }
        None
    }

    /// Adds a run, unless a number of it is in the set already.
    pub(crate) fn claim(&self, run: Range<usize>) -> bool {
        for (index, mask) in masks(&run) {
            let is_free = |word: u64| (word & mask == 0).then_some(word | mask);
            // ORDER: Acquire pairs with the Release in `release`: whoever had the run has done with
            // it. Relaxed on failure: nothing was claimed.
            let claimed = self.0[index].fetch_update(Ordering::Acquire, Ordering::Relaxed, is_free);
            if claimed.is_err() {
                self.release(run.start..(index * WORD).max(run.start));
                return false;
            }
        }
        true
    }

    /// Removes a run.
    pub(crate) fn release(&self, run: Range<usize>) {
        for (index, mask) in masks(&run) {
            // ORDER: Release pairs with the Acquire in `claim`.
            self.0[index].fetch_and(!mask, Ordering::Release);
        }
    }

    /// Adds a run and returns how many numbers of it are new.
    pub(crate) fn insert(&self, run: Range<usize>) -> usize {
        let added = |(index, mask): (usize, u64)| {
            // Relaxed: only who has claimed the run elsewhere calls this.
            mask & !self.0[index].fetch_or(mask, Ordering::Relaxed)
        };
        masks(&run).map(added).map(|bits| bits.count_ones() as usize).sum()
    }

    /// Removes a run and returns how many numbers of it were there.
    pub(crate) fn remove(&self, run: Range<usize>) -> usize {
        let removed = |(index, mask): (usize, u64)| {
            // Relaxed: as in `insert`.
            mask & self.0[index].fetch_and(!mask, Ordering::Relaxed)
        };
        masks(&run).map(removed).map(|bits| bits.count_ones() as usize).sum()
    }

    /// Cuts a run into parts of which all numbers are in the set, or none, and says which.
    pub(crate) fn parts(&self, run: Range<usize>) -> impl Iterator<Item = (Range<usize>, bool)> {
        let mut start = run.start;
        std::iter::from_fn(move || {
            let is_in = start < run.end && self.first_in(start..start + 1).is_some();
            let end = match is_in {
                true => self.first_out(start..run.end),
                false => self.first_in(start..run.end),
            };
            let part = start..end.unwrap_or(run.end);
            start = part.end;
            (!part.is_empty()).then_some((part, is_in))
        })
    }

    fn first_in(&self, run: Range<usize>) -> Option<usize> {
        self.first_where(run, |word| word)
    }

    fn first_out(&self, run: Range<usize>) -> Option<usize> {
        self.first_where(run, |word| !word)
    }

    fn first_where(&self, run: Range<usize>, select: impl Fn(u64) -> u64) -> Option<usize> {
        let found = |(index, mask): (usize, u64)| {
            let word = select(self.load(index)) & mask;
            (word != 0).then(|| index * WORD + word.trailing_zeros() as usize)
        };
        masks(&run).find_map(found)
    }

    fn last_in(&self, run: Range<usize>) -> Option<usize> {
        let found = |(index, mask): (usize, u64)| {
            let word = self.load(index) & mask;
            (word != 0).then(|| index * WORD + WORD - 1 - word.leading_zeros() as usize)
        };
        masks(&run).rev().find_map(found)
    }

    fn load(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed) // Relaxed: `claim` decides
    }
}

/// Returns the words that a run touches, each with its bits.
fn masks(run: &Range<usize>) -> impl DoubleEndedIterator<Item = (usize, u64)> + use<> {
    let run = run.clone();
    (run.start / WORD..run.end.div_ceil(WORD)).map(move |index| {
        let from = run.start.saturating_sub(index * WORD);
        let to = (run.end - index * WORD).min(WORD);
        let below = |bit: usize| if bit == WORD { u64::MAX } else { (1 << bit) - 1 };
        (index, below(to) & !below(from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_are_first_fit_and_disjoint() {
        let bits = Bits::new();
        assert_eq!(bits.claim_first(100, LEN, 1), Some(0..100));
        assert_eq!(bits.claim_first(60, LEN, 1), Some(100..160));
        bits.release(10..90);
        assert_eq!(bits.claim_first(81, LEN, 1), Some(160..241));
        assert_eq!(bits.claim_first(78, LEN, 3), Some(12..90));
        assert_eq!(bits.claim_first(LEN, LEN, 1), None);
        assert!(!bits.claim(239..300));
        assert!(bits.claim(241..300));
    }

    #[test]
    fn a_claim_that_fails_leaves_nothing() {
        let bits = Bits::new();
        assert!(bits.claim(200..201));
        assert!(!bits.claim(10..300));
        let parts: Vec<_> = bits.parts(0..LEN).collect();
        assert_eq!(parts, [(0..200, false), (200..201, true), (201..LEN, false)]);
    }

    #[test]
    fn sets_agree_with_a_plain_model() {
        let (bits, mut model) = (Bits::new(), BTreeSet::new());
        let mut seed = 1_u64;
        for _ in 0..2_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = (seed >> 33) as usize % 500;
            let run = start..start + (seed >> 50) as usize % 200;
            let before = model.len();
            if seed >> 63 == 0 {
                model.extend(run.clone());
                assert_eq!(bits.insert(run), model.len() - before);
            } else {
                model.retain(|number| !run.contains(number));
                assert_eq!(bits.remove(run), before - model.len());
            }
            let mut at = 100;
            for (part, is_in) in bits.parts(100..650) {
                assert_eq!(part.start, at);
                assert!(part.clone().all(|number| model.contains(&number) == is_in));
                at = part.end;
            }
            assert_eq!(at, 650);
        }
    }

    #[test]
    fn threads_never_share_a_run() {
        static BITS: Bits = Bits::new();
        static OWNERS: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let len = 1 + (round * thread) % 150;
                        let Some(run) = BITS.claim_first(len, 512, 1) else { continue };
                        let owners = &OWNERS[run.clone()];
                        for owner in owners {
                            assert_eq!(owner.swap(thread as u64, Ordering::Relaxed), 0);
                        }
                        owners.iter().for_each(|owner| owner.store(0, Ordering::Relaxed));
                        BITS.release(run);
                    }
                });
            }
        });
    }
}
