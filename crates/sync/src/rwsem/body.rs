//! Taking and releasing a semaphore: one read-modify-write each while nobody is in the way.

use super::limits::{Ended, WaitLimits};
use super::readers::{self, ReaderTable, Share};
use super::series::{Generation, Patches, Rules};
use super::waiters::WaitList;
use super::word::{READER, Theft, WRITER, Word};
use super::{Parts, RwSemaphore};
use crate::cna::Aside;
use crate::watch::{Wait, Wanted, released, tried};
use crate::{CnaQueue, LockStats, McsQueue, Side, SpinMutex, lock_class};
use alloc::sync::Arc;
use faultless_platform::{Atomic, AtomicInteger, Holding, Ordering, Processor, ThreadToken};

lock_class! {
    /// The locks of semaphores' queues.
    pub(super) WaitLock = "rwsem_wait"
}

/// A reader-writer semaphore of any generation.
///
/// The order of the fields is that of the line: what a reader or writer looks at stands beside the word.
#[repr(C)]
pub struct Rwsem<P: Processor> {
    /// See `word`.
    pub(super) word: P::AtomicU32,
    /// On the word's own line, which whoever asks has at hand.
    pub(super) generation: Generation,
    /// See `owner`.
    pub(super) owner: P::AtomicUsize,
    /// See `bravo`, this, the next three, and `unbiased_until_ns`.
    pub(super) readers: Option<Arc<ReaderTable<P>>>,
    pub(super) bias: P::AtomicU32,
    pub(super) nr_left: P::AtomicU32,
    pub(super) scatter: u32,
    /// See `caution`.
    pub(super) caution: P::AtomicU32,
    pub(super) unbiased_until_ns: P::AtomicU64,
    pub(super) spinners: McsQueue<P>,
    pub(super) waiters: SpinMutex<P, WaitList<P>, WaitLock>,
    pub(super) stats: Option<Arc<LockStats<P>>>,
    /// Spinners that were passed by, under [`Rules::CNA`].
    aside: Aside<P>,
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

    /// Returns where spinners that are passed by stand, under [`Rules::CNA`].
    pub(super) fn aside(&self) -> Option<&Aside<P>> {
        self.follows(Rules::CNA).then_some(&self.aside)
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

    /// Returns the name of waits for one side of the lock; see `told_name`.
    #[inline(always)]
    pub(super) fn waited_name(&self, side: Side) -> &'static str {
        match side {
            _ if self.stats.is_none() => "rwsem",
            Side::Read => "mmap_sem:read",
            Side::Write => "mmap_sem:write",
        }
    }

    /// Tells watchers that a wait ended without the lock.
    #[inline(always)]
    #[track_caller]
    fn tell_if_ended<T>(&self, had: &Result<T, Ended>, holding: Holding) {
        if had.is_err() {
            tried::<P>(false, self.told_name(), self.address(), holding);
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

    /// Shares the lock; also says whether that took waiting.
    #[inline]
    fn share(&self, limits: &WaitLimits<'_, P>) -> Result<(Share, Wait), Ended> {
        if let Some(share) = self.enter_table() {
            return Ok((share, Wait::None));
        }
        let before = self.knock();
        let mut wait = Wait::None;
        if before.is_closed_to_readers() {
            self.read_slow(before, limits)?;
            wait = Wait::Some;
        } else if !before.has_readers() {
            self.note_readers();
        }
        self.turn_bias_on();
        Ok((Share::COUNTED, wait))
    }

    fn try_to_share(&self) -> Option<Share> {
        if let Some(share) = self.enter_table() {
            return Some(share);
        }
        let mut word = self.look();
        while !word.is_closed_to_readers() {
            match self.try_take(word, Word(word.0 + READER)) {
                Ok(()) => {
                    if !word.has_readers() {
                        self.note_readers();
                    }
                    return Some(Share::COUNTED);
                }
                Err(now) => word = now,
            }
        }
        None
    }

    /// Takes the lock alone; says whether that took waiting.
    #[inline]
    fn have(&self, limits: &WaitLimits<'_, P>) -> Result<Wait, Ended> {
        let mut wait = Wait::None;
        if self.try_take(Word(0), Word(WRITER)).is_err() {
            self.write_slow(limits)?;
            wait = Wait::Some;
        }
        self.note_owner();
        self.revoke(limits)?;
        Ok(wait)
    }

    /// Releases the word that a writer has.
    #[inline]
    pub(super) fn let_go(&self) {
        self.forget_owner();
        let left = self.release(WRITER);
        if left.has_waiters() {
            self.wake(left);
        }
    }

    /// Gives a share back that the word counts.
    #[inline]
    pub(super) fn let_go_of_share(&self) {
        let left = self.release(READER);
        if left.has_waiters() && left.is_free() {
            self.allow_spinning();
            self.wake(left);
        }
    }

    fn try_to_have(&self) -> bool {
        let is_taken = (!self.has(Patches::LOOK_BEFORE_TRY) || self.look() == Word(0))
            && self.try_take(Word(0), Word(WRITER)).is_ok();
        if !is_taken {
            return false;
        }
        self.note_owner();
        let is_alone = self.try_to_revoke();
        if !is_alone {
            self.let_go();
        }
        is_alone
    }

    /// Takes `amount` from the word; returns what is left.
    #[inline]
    fn release(&self, amount: u32) -> Word {
        // ORDER: Release pairs with the Acquire of whoever takes the lock next: here, in `try_take` and in
        // `claim_for_reader`.
        Word(self.word.fetch_sub(amount, Ordering::Release).wrapping_sub(amount))
    }
}

// SAFETY: the count's word says who has the lock; models: `sync/tests/models/rwsem.rs`.
unsafe impl<P: Processor> RwSemaphore<P> for Rwsem<P> {
    type Generation = Generation;

    fn with_parts(generation: Generation, parts: Parts<P>) -> Self {
        let readers = parts.readers.filter(|_| generation.follows(Rules::BRAVO));
        Self {
            word: P::AtomicU32::new(0),
            generation,
            owner: P::AtomicUsize::new(0),
            spinners: McsQueue::new(),
            waiters: SpinMutex::classed(WaitList::new()),
            scatter: readers.as_ref().map_or(0, |readers| readers.draw_scatter()),
            readers,
            caution: P::AtomicU32::new(0),
            bias: P::AtomicU32::new(readers::OFF),
            nr_left: P::AtomicU32::new(0),
            unbiased_until_ns: P::AtomicU64::new(0),
            stats: parts.stats,
            aside: Aside::new(CnaQueue::<P>::PASSES),
        }
    }

    fn reader_table(generation: Generation, nr_places: usize) -> Option<Arc<ReaderTable<P>>> {
        generation.follows(Rules::BRAVO).then(|| Arc::new(ReaderTable::new(nr_places)))
    }

    #[inline]
    #[track_caller]
    fn read_lock(&self) -> Share {
        let wanted = Wanted::<P>::begin(self.told_name());
        let (share, wait) = endless(self.share(&WaitLimits::NONE));
        wanted.taken(self.told_name(), self.address(), Holding::Shared, wait);
        share
    }

    #[track_caller]
    fn read_lock_within(&self, limits: &WaitLimits<'_, P>) -> Result<Share, Ended> {
        let wanted = Wanted::<P>::begin(self.told_name());
        let shared = self.share(limits);
        self.tell_if_ended(&shared, Holding::Shared);
        let (share, wait) = shared?;
        wanted.taken(self.told_name(), self.address(), Holding::Shared, wait);
        Ok(share)
    }

    #[inline]
    unsafe fn read_unlock(&self, share: Share) {
        released::<P>(self.told_name(), self.address(), Holding::Shared);
        match share.place() {
            None => self.let_go_of_share(),
            Some(place) => self.leave_table(place),
        }
    }

    #[track_caller]
    fn try_read_lock(&self) -> Option<Share> {
        let share = self.try_to_share();
        tried::<P>(share.is_some(), self.told_name(), self.address(), Holding::Shared);
        share
    }

    #[inline]
    #[track_caller]
    fn write_lock(&self) {
        let wanted = Wanted::<P>::begin(self.told_name());
        let wait = endless(self.have(&WaitLimits::NONE));
        wanted.taken(self.told_name(), self.address(), Holding::Alone, wait);
    }

    #[track_caller]
    fn write_lock_within(&self, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        let wanted = Wanted::<P>::begin(self.told_name());
        let had = self.have(limits);
        self.tell_if_ended(&had, Holding::Alone);
        wanted.taken(self.told_name(), self.address(), Holding::Alone, had?);
        Ok(())
    }

    #[inline]
    unsafe fn write_unlock(&self) {
        released::<P>(self.told_name(), self.address(), Holding::Alone);
        self.let_go();
    }

    #[track_caller]
    fn try_write_lock(&self) -> bool {
        tried::<P>(self.try_to_have(), self.told_name(), self.address(), Holding::Alone)
    }

    #[track_caller]
    unsafe fn downgrade(&self) -> Share {
        released::<P>(self.told_name(), self.address(), Holding::Alone);
        tried::<P>(true, self.told_name(), self.address(), Holding::Shared);
        self.forget_owner();
        self.note_readers();
        let left = self.release(WRITER.wrapping_sub(READER));
        if left.has_waiters() {
            self.wake(left);
        }
        Share::COUNTED
    }

    fn expect_readers(&self) {
        self.shorten_penalty();
    }

    #[inline]
    fn is_contended(&self) -> bool {
        // Relaxed: a hint.
        self.look().has_waiters() || self.readers.is_some() && self.bias.load(Ordering::Relaxed) == readers::REVOKED
    }

    #[inline]
    fn is_locked(&self) -> bool {
        !self.look().is_free() || self.is_in_table()
    }

    fn owner(&self) -> Option<ThreadToken> {
        Some(self.look_at_owner().writer()).filter(|&writer| writer != ThreadToken::NONE)
    }
}

/// Returns what a wait without limits has ended with.
#[inline(always)]
fn endless<T>(had: Result<T, Ended>) -> T {
    match had {
        Ok(had) => had,
        Err(ended) => unreachable!("I5: {ended}, and nobody set a limit"),
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
