//! Taking and releasing a semaphore: one read-modify-write each while nobody is in the way.

use super::RwSemaphore;
use super::series::{Generation, Patches, Rules};
use super::waiters::WaitList;
use super::word::{READER, Theft, WRITER, Word};
use crate::watch::{Wait, Wanted, released, tried};
use crate::{LockStats, McsQueue, SpinMutex, lock_class};
use alloc::sync::Arc;
use faultless_platform::{Atomic, AtomicInteger, Holding, Ordering, Processor};

lock_class! {
    /// The locks of semaphores' queues.
    pub(super) WaitLock = "rwsem_wait"
}

/// A reader-writer semaphore of any generation of the series.
pub struct Rwsem<P: Processor> {
    /// See `word`.
    pub(super) word: P::AtomicU32,
    /// On the word's own line, which whoever asks has at hand.
    pub(super) generation: Generation,
    /// See `owner`.
    pub(super) owner: P::AtomicUsize,
    pub(super) spinners: McsQueue<P>,
    pub(super) waiters: SpinMutex<P, WaitList<P>, WaitLock>,
    pub(super) stats: Option<Arc<LockStats<P>>>,
}

impl<P: Processor> Rwsem<P> {
    #[inline]
    pub(super) fn has(&self, patches: Patches) -> bool {
        self.generation.has(patches)
    }

    #[inline]
    pub(super) fn patience(&self) -> u32 {
        self.generation.patience()
    }

    #[inline]
    pub(super) fn follows(&self, rules: Rules) -> bool {
        self.generation.follows(rules)
    }

    pub(super) fn theft(&self) -> Theft {
        if self.follows(Rules::HANDOFF) { Theft::Uncounted } else { Theft::Counted }
    }

    #[inline]
    pub(super) fn look(&self) -> Word {
        // Relaxed: a look decides whether to try; taking the lock orders.
        Word(self.word.load(Ordering::Relaxed))
    }

    /// Exchanges `expected` for `new`, which takes the lock for somebody.
    #[inline]
    pub(super) fn try_take(&self, expected: Word, new: Word) -> Result<(), Word> {
        // ORDER: Acquire pairs with the Release of every unlock: what was done under the lock is seen.
        let taken = self.word.compare_exchange(expected.0, new.0, Ordering::Acquire, Ordering::Relaxed);
        taken.map(drop).map_err(Word)
    }

    /// Returns the name that those who watch see: one with statistics is an address space's.
    #[inline(always)]
    fn told_name(&self) -> &'static str {
        match P::WATCHED {
            true if self.stats.is_some() => "mmap_sem",
            true => "rwsem",
            false => "",
        }
    }

    #[inline(always)]
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Counts a reader in; returns what the word was.
    #[inline]
    fn knock(&self) -> Word {
        // ORDER: Acquire pairs with the Release in `release`.
        Word(self.word.fetch_add(READER, Ordering::Acquire))
    }

    fn try_to_share(&self) -> bool {
        let mut word = self.look();
        while !word.is_closed_to_readers() {
            match self.try_take(word, Word(word.0 + READER)) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    fn try_to_have(&self) -> bool {
        (!self.has(Patches::LOOK_BEFORE_TRY) || self.look() == Word(0)) && self.try_take(Word(0), Word(WRITER)).is_ok()
    }

    /// Takes `amount` from the word; returns what is left.
    #[inline]
    fn release(&self, amount: u32) -> Word {
        // ORDER: Release pairs with the Acquire of whoever takes the lock next: here, in `try_take` and in `claim_for_reader`.
        Word(self.word.fetch_sub(amount, Ordering::Release).wrapping_sub(amount))
    }
}

// SAFETY: the count's word says who has the lock; models: `sync/tests/models/rwsem.rs`.
unsafe impl<P: Processor> RwSemaphore<P> for Rwsem<P> {
    type Generation = Generation;

    fn with_stats(generation: Generation, stats: Option<Arc<LockStats<P>>>) -> Self {
        Self {
            word: P::AtomicU32::new(0),
            generation,
            owner: P::AtomicUsize::new(0),
            spinners: McsQueue::new(),
            waiters: SpinMutex::classed(WaitList::new()),
            stats,
        }
    }

    #[inline]
    #[track_caller]
    fn read_lock(&self) {
        let (wanted, mut wait) = (Wanted::<P>::begin(self.told_name()), Wait::None);
        let before = self.knock();
        if before.is_closed_to_readers() {
            self.read_slow(before);
            wait = Wait::Some;
        } else if !before.has_readers() {
            self.note_readers();
        }
        wanted.taken(self.told_name(), self.address(), Holding::Shared, wait);
    }

    #[inline]
    unsafe fn read_unlock(&self) {
        released::<P>(self.told_name(), self.address(), Holding::Shared);
        let left = self.release(READER);
        if left.has_waiters() && left.is_free() {
            self.allow_spinning();
            self.wake(left);
        }
    }

    #[track_caller]
    fn try_read_lock(&self) -> bool {
        tried::<P>(self.try_to_share(), self.told_name(), self.address(), Holding::Shared)
    }

    #[inline]
    #[track_caller]
    fn write_lock(&self) {
        let (wanted, mut wait) = (Wanted::<P>::begin(self.told_name()), Wait::None);
        if self.try_take(Word(0), Word(WRITER)).is_err() {
            self.write_slow();
            wait = Wait::Some;
        }
        self.note_owner();
        wanted.taken(self.told_name(), self.address(), Holding::Alone, wait);
    }

    #[inline]
    unsafe fn write_unlock(&self) {
        released::<P>(self.told_name(), self.address(), Holding::Alone);
        self.forget_owner();
        let left = self.release(WRITER);
        if left.has_waiters() {
            self.wake(left);
        }
    }

    #[track_caller]
    fn try_write_lock(&self) -> bool {
        let is_taken = self.try_to_have();
        if is_taken {
            self.note_owner();
        }
        tried::<P>(is_taken, self.told_name(), self.address(), Holding::Alone)
    }

    #[track_caller]
    unsafe fn downgrade(&self) {
        released::<P>(self.told_name(), self.address(), Holding::Alone);
        tried::<P>(true, self.told_name(), self.address(), Holding::Shared);
        self.forget_owner();
        self.note_readers();
        let left = self.release(WRITER.wrapping_sub(READER));
        if left.has_waiters() {
            self.wake(left);
        }
    }

    #[inline]
    fn is_contended(&self) -> bool {
        self.look().has_waiters()
    }

    #[inline]
    fn is_locked(&self) -> bool {
        !self.look().is_free()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{align_of, offset_of};
    use faultless_platform::native::Native;

    /// The lock is aligned to 8 bytes, so that what shares 8 bytes with the word shares its line.
    #[test]
    fn the_generation_lies_on_the_words_line() {
        let place = |offset: usize| offset / align_of::<Rwsem<Native>>();
        assert_eq!(align_of::<Rwsem<Native>>(), 8);
        assert_eq!(place(offset_of!(Rwsem<Native>, generation)), place(offset_of!(Rwsem<Native>, word)));
    }
}
