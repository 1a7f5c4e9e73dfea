//! Who has the lock, in one word with what spinners should know: a hint for them, never what decides.
//!
//! # Word first
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | `READERS` | readers have the lock, or had it last; under [`Rules::HANDOFF`](super::series::Rules::HANDOFF) alone |
//! | 1 | `NO_SPIN` | a spinner has waited for readers too long: others sleep at once. Beside `READERS` alone |
//! | 2.. | owner | the token of the writer that has the lock; 0 while nobody has it, or for a moment |
//!
//! A writer that comes or goes stores the whole word, so that both flags end with the readers that they speak of.
//! All of it is Relaxed: who reads it decides whether to wait awake, and whether to go ahead of those asleep.

use super::body::Rwsem;
use super::series::{Patches, Rules};
use faultless_platform::mutant;
use faultless_platform::{Atomic, Ordering, Processor, ThreadToken};

const READERS: usize = 1;
const NO_SPIN: usize = 2;
const FLAG_BITS: u32 = 2;

/// The owner word, as it was at some moment.
#[derive(Clone, Copy)]
pub(super) struct Owner(usize);

impl Owner {
    pub(super) fn writer(self) -> ThreadToken {
        ThreadToken::from_bits(self.0 >> FLAG_BITS)
    }

    pub(super) fn is_readers(self) -> bool {
        self.0 & READERS != 0
    }

    pub(super) fn forbids_spinning(self) -> bool {
        self.0 & NO_SPIN != 0
    }
}

impl<P: Processor> Rwsem<P> {
    #[inline]
    pub(super) fn look_at_owner(&self) -> Owner {
        // Relaxed: a hint.
        Owner(self.owner.load(Ordering::Relaxed))
    }

    #[inline]
    fn set_owner(&self, word: usize) {
        // Relaxed: a hint.
        self.owner.store(word, Ordering::Relaxed);
    }

    /// Says whether writers note that they have the lock: for those who spin, and since there are phases, for whoever
    /// asks.
    #[inline]
    fn keeps_owner(&self) -> bool {
        self.has(Patches::OPTIMISTIC_SPIN) || self.follows(Rules::PHASE_FAIR)
    }

    /// Says that the calling thread owns the write lock.
    #[inline]
    pub(super) fn note_owner(&self) {
        if self.keeps_owner() {
            self.set_owner(P::current().bits() << FLAG_BITS);
        }
    }

    /// Says that no writer owns the lock.
    #[inline]
    pub(super) fn forget_owner(&self) {
        if mutant!(OwnerStale, self.keeps_owner() => false) {
            self.set_owner(0);
        }
    }

    /// Says that readers have the lock, to those who would go ahead of a sleeper.
    #[inline]
    pub(super) fn note_readers(&self) {
        if self.follows(Rules::HANDOFF) && !self.look_at_owner().is_readers() {
            self.set_owner(READERS);
        }
    }

    /// Sends spinners to sleep until the readers have gone that are inside.
    pub(super) fn forbid_spinning(&self) {
        // Relaxed: a hint; it fails if a writer has come meanwhile.
        let _ = self.owner.compare_exchange(READERS, READERS | NO_SPIN, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Lets spinners spin again: the last reader has left.
    #[inline]
    pub(super) fn allow_spinning(&self) {
        if self.follows(Rules::HANDOFF) && self.look_at_owner().forbids_spinning() {
            // Relaxed: as in `forbid_spinning`.
            let _ = self.owner.compare_exchange(READERS | NO_SPIN, READERS, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}
