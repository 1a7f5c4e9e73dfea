//! Readers that show themselves in a table instead of the lock word: on as many CPUs as there are, none writes a line
//! of another.
//!
//! # Guarantee
//! While the lock is *biased* a reader takes a place in the table and leaves the lock word alone. A writer, once it has
//! the word, takes the bias away and waits until none of the lock's readers is in the table. Revoking costs; so the
//! bias stays away for nine times as long as revoking it took, or once, if the writer expects readers, and a reader
//! brings it back.
//!
//! # Words first
//! * a place of the table: 0, or the address of the semaphore whose reader has it; bit 0: its writer sleeps until it is
//!   left.
//! * `bias`: [`OFF`], [`ON`], or [`REVOKED`] while a writer waits for the readers in the table. It changes under the
//!   lock alone: a reader turns it on, a writer off.
//! * `nr_left`: changes when a reader has left a place that a writer sleeps for.
//!
//! # Race
//! ```text
//! reader                              writer, which has the word
//! place: 0 -> lock                    bias = REVOKED
//! fence SeqCst                        fence SeqCst
//! bias ON (Acquire)? then it is in    each place that names the lock: wait until it does not (Acquire)
//! else place = 0, and to the word
//! place = 0 (Release)
//! ```
//! Forbidden: the reader sees ON and the writer an empty place. That ON is one that a reader stored after the last
//! writer; Acquire shows what that writer did.
//! ```text
//! reader leaves                       writer sleeps
//! place: swap(0), AcqRel              seen = nr_left
//! bit 0 was set? nr_left += 1,        place: lock -> lock|1, Release; else look again
//!    unpark(nr_left)                  park while nr_left == seen
//! ```
//! Forbidden: the swap comes after the mark and the writer sleeps: `seen` was read before the mark, so it is older than
//! the addition. Models: `bravo_*` in `tests/models/rwsem.rs`.
//!
//! The table belongs to whoever makes the semaphores, an address-space instance say, and serves any number of them; a
//! reader whose place is taken goes to the word. Which place it got it keeps in its [`Share`], so it may move to
//! another CPU.
//!
//! Source: Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", 2019; there the table is one for all.

use super::body::Rwsem;
use super::limits::{Ended, WaitLimits};
use super::readers::{AWAITED, FREE, OFF, ON, REVOKED, ReaderTable, Share};
use crate::give_way::SLICE_NS;
use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};

/// For how many times the length of a revocation the bias stays away.
const PENALTY: u64 = 9;

impl<P: Processor> Rwsem<P> {
    fn name(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Shares a biased lock through the table.
    #[inline]
    pub(super) fn enter_table(&self) -> Option<Share> {
        let table = self.readers.as_deref()?;
        // Relaxed: looked at again by `enter_place`.
        if self.bias.load(Ordering::Relaxed) == ON { self.enter_place(table) } else { None }
    }

    /// Takes the reader's place in the table, if it is free and the lock is biased still.
    #[inline(never)]
    fn enter_place(&self, table: &ReaderTable<P>) -> Option<Share> {
        let place = table.guess(self.scatter);
        // Relaxed: the fence and the second look order it.
        table.places[place].word.compare_exchange(FREE, self.name(), Ordering::Relaxed, Ordering::Relaxed).ok()?;
        // ORDER: pairs with the fence in `take_bias`; forbids that the writer misses us and we miss it (module table).
        P::fence_after_rmw();
        // ORDER: Acquire pairs with the Release in `turn_bias_on_if_due`: what the last writer did is seen, also if the
        // bias went and came back since the first look.
        if self.bias.load(Ordering::Acquire) == ON {
            return Some(Share(place as u32 + 1));
        }
        self.leave_table(place);
        None
    }

    pub(super) fn leave_table(&self, place: usize) {
        let Some(table) = self.readers.as_deref() else { return };
        // ORDER: Release pairs with the Acquire in `is_in`: the reader is done; Acquire pairs with the Release in
        // `wait_for`: the addition is newer than what the writer has seen.
        if table.places[place].word.swap(FREE, Ordering::AcqRel) & AWAITED != 0 {
            // Relaxed: it only tells the sleeper to look again.
            self.nr_left.fetch_add(1, Ordering::Relaxed);
            P::unpark(&self.nr_left, 1);
        }
    }

    /// Lets readers use the table from now on; the caller shares the lock by its word.
    #[inline]
    pub(super) fn turn_bias_on(&self) {
        // Relaxed: only those who share the lock turn it on, and then it is on.
        if self.readers.is_some() && self.bias.load(Ordering::Relaxed) == OFF {
            self.turn_bias_on_if_due();
        }
    }

    #[cold]
    fn turn_bias_on_if_due(&self) {
        // Relaxed: written by writers before us, whom the lock orders.
        if P::now() >= self.unbiased_until_ns.load(Ordering::Relaxed) {
            // ORDER: Release pairs with the Acquire in `enter_table`: what writers did is seen by readers that never
            // touch the word.
            self.bias.store(ON, Ordering::Release);
        }
    }

    /// Takes the bias away, if there is any; the caller has the word alone.
    fn take_bias(&self) -> Option<&ReaderTable<P>> {
        let table = self.readers.as_deref()?;
        // Relaxed: whoever turned it on has shared the lock before us.
        if self.bias.load(Ordering::Relaxed) != ON {
            return None;
        }
        // Relaxed: the fence orders it.
        self.bias.store(REVOKED, Ordering::Relaxed);
        // ORDER: pairs with the fence in `enter_table`; forbids that a reader misses the change and we miss the reader.
        P::fence(Ordering::SeqCst);
        Some(table)
    }

    /// Says whether a reader of ours is in a place.
    fn is_in(&self, place: &P::AtomicUsize) -> bool {
        // ORDER: Acquire pairs with the Release in `leave_table`.
        place.load(Ordering::Acquire) & !AWAITED == self.name()
    }

    /// Takes the bias away if no reader is in the table; the caller has the word alone.
    pub(super) fn try_to_revoke(&self) -> bool {
        let Some(table) = self.take_bias() else { return true };
        let is_empty = !table.places.iter().any(|place| self.is_in(&place.word));
        if is_empty {
            self.end_bias(0);
        } else {
            self.give_bias_back();
        }
        is_empty
    }

    /// Takes the bias away and waits for the readers in the table. The caller has the word alone; after an error it is
    /// released.
    #[inline]
    pub(super) fn revoke(&self, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        if self.readers.is_none() { Ok(()) } else { self.revoke_slow(limits) }
    }

    fn revoke_slow(&self, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        let Some(table) = self.take_bias() else { return Ok(()) };
        let undo = Revoking(self);
        let begin_ns = P::now();
        for place in &table.places {
            self.wait_for(&place.word, limits)?;
        }
        core::mem::forget(undo);
        self.end_bias(P::now().saturating_sub(begin_ns));
        Ok(())
    }

    fn wait_for(&self, place: &P::AtomicUsize, limits: &WaitLimits<'_, P>) -> Result<(), Ended> {
        let is_left = || !self.is_in(place);
        while !P::spin_until_deadline(P::now().saturating_add(SLICE_NS), is_left) {
            // Relaxed: the mark orders it (module table).
            let seen = self.nr_left.load(Ordering::Relaxed);
            // ORDER: Release pairs with the Acquire in `leave_table`. It fails if the place is marked, or was left.
            let marked =
                place.compare_exchange(self.name(), self.name() | AWAITED, Ordering::Release, Ordering::Relaxed);
            if marked.is_ok() || marked == Err(self.name() | AWAITED) {
                limits.sleep_while(&self.nr_left, seen)?;
            }
        }
        Ok(())
    }

    fn end_bias(&self, revoking_ns: u64) {
        let until_ns = P::now().saturating_add(revoking_ns.saturating_mul(PENALTY));
        // Relaxed: both are read by those who share the lock after us.
        self.unbiased_until_ns.store(until_ns, Ordering::Relaxed);
        self.bias.store(OFF, Ordering::Relaxed);
    }

    /// Lets the bias stay away no longer than revoking it took; the caller has the lock alone.
    pub(super) fn shorten_penalty(&self) {
        if self.readers.is_some() {
            // Relaxed, both: as in `end_bias`.
            let until_ns = self.unbiased_until_ns.load(Ordering::Relaxed);
            let now_ns = P::now();
            let left_ns = until_ns.saturating_sub(now_ns) / PENALTY;
            self.unbiased_until_ns.store(now_ns.saturating_add(left_ns), Ordering::Relaxed);
        }
    }

    fn give_bias_back(&self) {
        // Relaxed: the fence in `take_bias` has released what writers before us did, and we have changed nothing since.
        self.bias.store(ON, Ordering::Relaxed);
    }

    /// Says whether a reader of ours is in the table.
    pub(super) fn is_in_table(&self) -> bool {
        self.readers.as_deref().is_some_and(|table| table.places.iter().any(|place| self.is_in(&place.word)))
    }
}

/// A writer that has the word and waits for readers in the table. Dropped if it gives up, or by a panic of the wait.
struct Revoking<'a, P: Processor>(&'a Rwsem<P>);

impl<P: Processor> Drop for Revoking<'_, P> {
    fn drop(&mut self) {
        self.0.give_bias_back();
        self.0.let_go();
    }
}
