//! Whether a writer waits awake for few readers, under hand-off: as long as such waits end well.
//!
//! A writer that waits for readers bets that they leave at once. Where many run on many CPUs that pays. Where few do,
//! nobody knows beforehand: on three CPUs with half writers nearly every such wait ends with the lock; on one CPU the
//! reader was let in asleep and needs the spinner's CPU, and on two the same reader comes again and again before the
//! spinner sees the lock free. So a semaphore remembers how the last such waits ended.
//!
//! # Guarantee
//! After the n-th wait for fewer than [`FEW_READERS`] readers that ended without the lock, `2^n - 1` writers (127 at
//! most) go to the line at once where they would wait for so few; a wait that ends with the lock halves n and lets all
//! wait again. Waits for more readers, and for a writer, are neither counted nor left out.
//!
//! # Word
//! | bits | name | meaning |
//! |---|---|---|
//! | 0..8 | level | the n above, 7 at most |
//! | 8.. | rest | how many writers still go to the line at once |
//!
//! All of it is Relaxed, loads and stores: a hint, of which a lost change costs one wait more or less.

use super::body::Rwsem;
use super::series::Rules;
use super::word::Word;
use faultless_platform::{Atomic, Ordering, Processor};

/// So many readers are not few: some of them leave while a writer looks.
pub(super) const FEW_READERS: u32 = 4;
const MAX_LEVEL: u32 = 7;
const LEVEL: u32 = 0xff;
const ONE_LESS: u32 = LEVEL + 1;

/// How a wait for readers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// With the lock.
    Taken,
    /// Without it.
    InVain,
}

/// Returns the caution after a wait that ended so.
fn after(caution: u32, ending: Ending) -> u32 {
    let level = caution & LEVEL;
    match ending {
        Ending::Taken => level / 2,
        Ending::InVain => {
            let level = (level + 1).min(MAX_LEVEL);
            level + ((1 << level) - 1) * ONE_LESS
        }
    }
}

impl<P: Processor> Rwsem<P> {
    /// Says whether a writer that comes now goes to the line at once; counts it if so.
    pub(super) fn is_cautious(&self) -> bool {
        if !self.follows(Rules::HANDOFF) || !is_held_by_few(self.look()) {
            return false;
        }
        // Relaxed: a hint (module).
        let caution = self.caution.load(Ordering::Relaxed);
        if caution < ONE_LESS {
            return false;
        }
        self.caution.store(caution - ONE_LESS, Ordering::Relaxed);
        true
    }

    /// Notes how a wait ended in which readers had the lock; in vain counts only if they are few still.
    pub(super) fn note_wait_for_readers(&self, ending: Ending) {
        if ending == Ending::InVain && !is_held_by_few(self.look()) {
            return;
        }
        // Relaxed: a hint (module).
        let caution = self.caution.load(Ordering::Relaxed);
        let now = after(caution, ending);
        if now != caution {
            self.caution.store(now, Ordering::Relaxed);
        }
    }
}

fn is_held_by_few(word: Word) -> bool {
    word.is_held_by_readers() && word.nr_readers() < FEW_READERS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, RwSemaphore, WaitLimits};
    use alloc::vec::Vec;
    use faultless_platform::native::{Machine, Native};

    #[test]
    fn waits_in_vain_double_what_is_left_out_and_one_that_is_not_ends_that() {
        let mut caution = 0;
        let rests: Vec<u32> = (0..9)
            .map(|_| {
                caution = after(caution, Ending::InVain);
                caution / ONE_LESS
            })
            .collect();
        assert_eq!(rests, [1, 3, 7, 15, 31, 63, 127, 127, 127]);
        assert_eq!(after(caution, Ending::Taken), 3, "nobody is sent to the line, and half the level is left");
        assert_eq!(after(1, Ending::Taken), 0);
    }

    /// Each call that spins is one that takes a reader's patience of ten microseconds.
    #[test]
    fn writers_wait_for_few_readers_ever_more_seldom_and_for_many_always() {
        let lock = Rwsem::<Native>::of(Generation::HANDOFF);
        Machine::new(1).attach(|| {
            let caution = || lock.caution.load(Ordering::Relaxed);
            let tries = || {
                lock.allow_spinning();
                assert!(!lock.spin_for_write(&WaitLimits::NONE), "the reader is there to stay");
            };
            let few = lock.read();
            // It spins, leaves one out, spins, leaves three out.
            for (level, rest) in [(1, 1), (1, 0), (2, 3), (2, 2), (2, 1), (2, 0)] {
                tries();
                assert_eq!((caution() & LEVEL, caution() / ONE_LESS), (level, rest));
            }
            let before = after(caution(), Ending::InVain);
            lock.caution.store(before, Ordering::Relaxed);
            let many: [_; FEW_READERS as usize] = core::array::from_fn(|_| lock.read());
            tries();
            assert_eq!(caution(), before, "waits for many are neither left out nor counted");
            drop((few, many));
        });
    }
}
