//! Limits without a line that all CPUs write: what a space counts, where its CPUs hold credits.
//!
//! # Guarantee
//! A call answers as if there were one counter of each kind. Credits are there where parts of a space are changed side
//! by side and mappings are spread (`translations::lanes`); elsewhere a counter is one word.
//!
//! # Words first
//! For each quantity a word says what is *charged*: what there is, and what CPUs hold as credits (`sync::Credit`, I1).
//! Those of a space without credits are its `counts`. Else they lie on a line of their own, because draws write them
//! while all CPUs read what else the space has. A word beside them says whether any purse may hold something (*credits
//! are out*), and of which quantities more may be charged than their limits allow.
//!
//! # Invariants
//! * C1 a purse changes by a call of its own CPU that has a part, which keeps that CPU while it waits for faults, or
//!   for memory ([`Space::keep_slot`]), or by who has everything. Calls that have everything count in the charged words
//!   themselves.
//! * C2 who has a part has claimed what it may add, to each limit ([`Space::claim`]); so none of its checks says no.
//! * C3 a limit says no only to who has everything and has recalled all credits ([`Space::is_allowed`]).
//! * C4 while no credits are out all purses are empty. Who claims says that some are, and a recall that none are.
//! * C5 who is refused a part recalls all when it has everything: so a space that is far below a limit, whose credits
//!   lie where they are not needed, gives out parts again.
//! * C6 what is charged exceeds a limit only where the space says that it may: who has everything says so when it has
//!   counted, and draws never exceed a limit. So a claim that a purse can serve reads no line that others write.
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | two claims near a limit; a claim beside a recall | `sync::Credit` |
//! | a check with a part, beside draws of others | it compares what is charged, less the own credit, which holds what the call adds: at most the limit, whatever others draw |
//! | a check of who has everything, while credits are out | what is charged is at least what there is: a yes is right, and a no is asked again after a recall (C3) |
//! | a limit is lowered while credits are out | limits stay ([`Space::limits`]); what mremap goes on counting as locked lowers that one, with everything held, and by as much as it takes off the counter |
//! | somebody sums up (map_count of `/proc`, the checker) | with everything held |
//! | a second user comes, and parts are given out from then on | purses are empty, and what was counted is charged, with everything held: who reads meanwhile finds the words of before, or waits for that |
//! | fork | the child has purses of its own, empty; the parent is had as a whole |
//! | the space ends | its purses go with it; limits are a space's own, so nothing is owed to anybody |
//!
//! Committed memory has no counter: under the heuristic overcommit that is modelled (vm.overcommit_memory 0) each
//! demand is judged by itself, against a number that stays ([`Space::check_commit`]). So it writes no line at all.
//!
//! # Memory
//! A line for each CPU and two more, behind the sets of the lanes; nothing on one CPU or under Linux's placement.

use super::change::{Counted, Sizes};
use super::map_lock::MapLock;
use super::quantity::Quantity;
use super::ranges::Additions;
use super::{EVERYTHING, Space};
use crate::design::Design;
use crate::limits::Privileges;
use crate::system::System;
use faultless_phys::FrameSource;
use faultless_platform::{Atomic, Ordering, Tracepoint};
use faultless_sync::{Credit, Purses, SlotKept};

/// Some credits may be out (C4).
const OUT: u64 = 1;
/// What is charged of the first quantity may exceed its limit, and of the others with the bits behind (C6).
const FIRST_OVER: u64 = 2;

/// Returns how much of a quantity a call may still add that has claimed it, at most.
const fn most_claimed(quantity: Quantity) -> u64 {
    match quantity {
        Quantity::Areas => Additions::MOST_AREAS_OF_A_CALL,
        _ => u64::MAX,
    }
}

/// Says by the state whether what is charged of a quantity may exceed its limit.
const fn is_over(state: u64, quantity: Quantity) -> bool {
    state & (FIRST_OVER << quantity as u32) != 0
}

/// The purses of a space's CPUs, if they hold credits: in words that lie beside its lanes.
pub(super) struct Row<'a, P: System> {
    purses: Purses<'a, P>,
    /// By quantity.
    charged: &'a [P::AtomicU64],
    /// [`OUT`] and [`FIRST_OVER`]. On a line that is written seldom.
    state: &'a P::AtomicU64,
}

impl<P: System> Clone for Row<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System> Copy for Row<'_, P> {}

/// Returns how many words a space of this design needs whose mappings are spread.
pub(super) fn nr_words<P: System, D: Design<P>>() -> usize {
    if D::Lock::DIVIDES { (P::nr_cpus() + 2) * Purses::<P>::WORDS_PER_CPU } else { 0 }
}

impl<'a, P: System> Row<'a, P> {
    fn credit(&self, quantity: Quantity) -> Credit<'a, P> {
        self.purses.credit(quantity as usize, &self.charged[quantity as usize])
    }

    /// Notes that credits may be out; returns the state.
    #[inline]
    pub(super) fn note_out(&self) -> u64 {
        // Relaxed, both: all else in it changes by who has everything, which excludes those who set this.
        let state = self.state.load(Ordering::Relaxed);
        if state & OUT == 0 {
            self.state.store(state | OUT, Ordering::Relaxed);
        }
        state
    }

    /// Says whether any purse may hold something (C4).
    fn are_out(&self) -> bool {
        // Relaxed: asked with everything held.
        self.state.load(Ordering::Relaxed) & OUT != 0
    }

    /// Says whether what is charged may exceed its limit (C6).
    fn may_be_over(&self, quantity: Quantity) -> bool {
        // Relaxed: written by who has everything.
        is_over(self.state.load(Ordering::Relaxed), quantity)
    }

    /// Says whether this CPU's purse has so many more, so that no limit forbids them (C6): without a look at what is
    /// charged, which others write. If it has not, a limit may allow them all the same.
    #[inline]
    pub(super) fn has_credit(&self, quantity: Quantity, added: u64) -> bool {
        !self.may_be_over(quantity) && self.credit(quantity).has(P::cpu(), added)
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns the word of what is charged.
    #[inline]
    pub(crate) fn charged(&self, quantity: Quantity) -> &P::AtomicU64 {
        &self.row().map_or(&self.counts[..], |row| row.charged)[quantity as usize]
    }

    /// Returns the purses of this space's CPUs, if they hold credits: then who has a part claims what it may add.
    #[inline(always)]
    pub(super) fn row(&self) -> Option<Row<'_, P>> {
        if !D::Lock::DIVIDES {
            return None;
        }
        let words = self.lanes().own_words()?;
        let (common, purses) = words.split_at(2 * Purses::<P>::WORDS_PER_CPU);
        let (charged, rest) = common.split_at(Purses::<P>::WORDS_PER_CPU);
        let purses = &purses[..self.lanes().nr_ranges() * Purses::<P>::WORDS_PER_CPU];
        Some(Row { purses: Purses::new(purses), charged, state: &rest[0] })
    }

    /// Charges what was counted before CPUs could hold credits; the caller has everything.
    pub(super) fn charge_counted(&self) {
        let Some(row) = self.row() else { return };
        for (charged, counted) in row.charged.iter().zip(&self.counts) {
            // Relaxed, both: read and written by who holds something, or for a bound of a moment.
            charged.store(counted.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        if P::WATCHED {
            P::trace(Tracepoint::named_row("the address space's counts", row.charged));
        }
        self.note_over();
    }

    /// Returns up to how much may be claimed: what every call may add that has a part.
    fn most(&self, quantity: Quantity) -> u64 {
        let limits = &self.limits;
        match quantity {
            // Some calls answer otherwise one below the limit.
            Quantity::Areas => limits.max_map_count.saturating_sub(2),
            Quantity::Bytes => limits.address_space_bytes,
            Quantity::DataBytes => limits.mapped_data_bytes(),
            Quantity::LockedBytes if limits.privileges.contains(Privileges::UNLIMITED_LOCKS) => u64::MAX,
            // Relaxed: written by who has everything.
            Quantity::LockedBytes => limits.lock_bytes.saturating_sub(self.lost_lock_bytes.load(Ordering::Relaxed)),
        }
    }

    /// Says whether the CPUs of this space hold credits, so that who has a part claims what it may add.
    #[inline]
    pub(super) fn has_credits(&self) -> bool {
        D::Lock::DIVIDES && self.lanes().own_words().is_some()
    }

    /// Keeps the CPU while the caller, who may have a part, gets memory: what it has claimed is in that CPU's purse
    /// (C1).
    #[inline]
    pub(crate) fn keep_slot(&self) -> Option<SlotKept<'_, P>> {
        (self.has_credits() && self.lock.is_divided()).then(|| self.memory().rcu().keep_slot())
    }

    /// Claims what a call may add to each limit (C2); under a table's lock. Says whether it may.
    #[inline(always)]
    pub(super) fn claim_credits(&self, row: &Row<'_, P>, added: &Additions) -> bool {
        let state = row.note_out();
        let is_served = state & !OUT == 0 && row.purses.of(P::cpu()).has_all(added.by_quantity());
        is_served || self.claim_each(row, state, added)
    }

    #[inline(never)]
    fn claim_each(&self, row: &Row<'_, P>, state: u64, added: &Additions) -> bool {
        let cpu = P::cpu();
        self.claim_credit((row, cpu, state), Quantity::Areas, added.areas)
            && self.claim_credit((row, cpu, state), Quantity::Bytes, added.bytes)
            && self.claim_credit((row, cpu, state), Quantity::DataBytes, added.bytes)
            && self.claim_credit((row, cpu, state), Quantity::LockedBytes, added.locked_bytes)
    }

    fn claim_credit(&self, (row, cpu, state): (&Row<'_, P>, usize, u64), quantity: Quantity, amount: u64) -> bool {
        let credit = row.credit(quantity);
        let is_served = !is_over(state, quantity) && credit.has(cpu, amount);
        amount == 0 || is_served || credit.claim(cpu, amount, self.most(quantity))
    }

    /// Counts a change: out of this CPU's purse, if the caller has a part and CPUs hold credits.
    #[inline]
    pub(super) fn count(&self, counted: &Counted) {
        match self.row() {
            None => count_in(&self.counts, counted),
            Some(row) => self.count_beside_purses(&row, counted),
        }
    }

    /// As [`Space::count`], where CPUs hold credits.
    #[inline(never)]
    fn count_beside_purses(&self, row: &Row<'_, P>, counted: &Counted) {
        if !self.lock.is_divided() {
            count_in(row.charged, counted);
            return self.note_over();
        }
        self.count_in_purses(row, counted);
    }

    /// Counts a change out of this CPU's purse; the caller has a part.
    #[inline(always)]
    pub(super) fn count_in_purses(&self, row: &Row<'_, P>, counted: &Counted) {
        let Counted { before, after } = counted;
        let purse = row.purses.of(P::cpu());
        let is_counted = match (*before == Sizes::default(), *after == Sizes::default()) {
            (true, _) => purse.add_all(after.by_quantity()),
            (_, true) => purse.take_all(before.by_quantity()),
            _ => false,
        };
        if !is_counted {
            self.count_each_in_purses(row, counted);
        }
    }

    /// As above, whatever the purse has.
    #[inline(never)]
    fn count_each_in_purses(&self, row: &Row<'_, P>, counted: &Counted) {
        let cpu = P::cpu();
        let Counted { before, after } = counted;
        self.count_in_purse((row, cpu), Quantity::Areas, (before.areas, after.areas));
        self.count_in_purse((row, cpu), Quantity::Bytes, (before.bytes, after.bytes));
        self.count_in_purse((row, cpu), Quantity::DataBytes, (before.data_bytes, after.data_bytes));
        self.count_in_purse((row, cpu), Quantity::LockedBytes, (before.locked_bytes, after.locked_bytes));
    }

    fn count_in_purse(&self, (row, cpu): (&Row<'_, P>, usize), quantity: Quantity, (before, after): (u64, u64)) {
        match after.checked_sub(before) {
            Some(0) => {}
            Some(added) => row.credit(quantity).add(cpu, added),
            None => row.credit(quantity).take_away(cpu, before - after, most_claimed(quantity), || self.most(quantity)),
        }
    }

    /// Takes bytes off what counts as locked; the caller has everything.
    pub(super) fn uncount_locked(&self, bytes: u64) {
        let locked = self.charged(Quantity::LockedBytes);
        // Relaxed: the caller alone writes it.
        let bytes = bytes.min(locked.load(Ordering::Relaxed));
        change(locked, bytes, 0);
        // Their limit has changed, too.
        self.note_over();
    }

    /// Takes all credits back if the caller has everything and any may be out; says whether it did.
    #[cold]
    pub(super) fn recall_credits(&self) -> bool {
        let Some(row) = self.row().filter(|_| !self.lock.is_divided()) else { return false };
        if !row.are_out() {
            return false;
        }
        for quantity in Quantity::ALL {
            row.credit(quantity).recall();
        }
        // Relaxed: the caller has everything.
        row.state.store(0, Ordering::Relaxed);
        self.note_over();
        true
    }

    /// Notes of which quantities more may be charged than their limits allow (C6); the caller has everything.
    fn note_over(&self) {
        let Some(row) = self.row() else { return };
        let over = |quantity: Quantity| {
            let is_over = row.credit(quantity).charged() > self.most(quantity);
            if is_over { FIRST_OVER << quantity as u32 } else { 0 }
        };
        let state = Quantity::ALL.into_iter().map(over).fold(u64::from(row.are_out()) * OUT, |state, bit| state | bit);
        // Relaxed, both: the caller has everything.
        if row.state.load(Ordering::Relaxed) != state {
            row.state.store(state, Ordering::Relaxed);
        }
    }

    /// Says whether a limit, which `check` compares bounds with ([`Space::at_most`]), allows something (C3).
    #[inline(always)]
    pub(super) fn is_allowed(&self, check: impl Fn() -> bool) -> bool {
        check() || (self.recall_credits() && check())
    }

    /// Returns a bound of what there is; exact where no credits are out.
    #[inline]
    pub(super) fn at_most(&self, quantity: Quantity) -> u64 {
        match self.row() {
            Some(row) => at_most_beside_purses(&row, quantity),
            None => self.counted(quantity),
        }
    }

    /// Returns what there is, where CPUs hold no credits.
    #[inline]
    pub(super) fn counted(&self, quantity: Quantity) -> u64 {
        // Relaxed: exact under the semaphore, and where several have a part of that, under the lock of edits.
        self.counts[quantity as usize].load(Ordering::Relaxed)
    }

    /// Returns what there is at some instant during the call; the caller has nothing locked.
    #[inline]
    pub(super) fn total(&self, quantity: Quantity) -> u64 {
        match self.row() {
            Some(row) => {
                // Purses change where parts are had, and each under its lane's lock.
                let _kept = self.write(EVERYTHING);
                row.credit(quantity).total()
            }
            None => self.counted(quantity),
        }
    }

    /// Returns what CPUs hold while none may hold anything: nothing, if C4 is kept. The checker asks.
    pub(crate) fn stray_credits(&self) -> u64 {
        let Some(row) = self.row().filter(|row| !row.are_out()) else { return 0 };
        Quantity::ALL.into_iter().map(|quantity| row.credit(quantity).out()).fold(0, u64::saturating_add)
    }
}

/// As [`Space::at_most`], where CPUs hold credits; apart, so that the checks of a space without them are inlined.
#[inline(never)]
fn at_most_beside_purses<P: System>(row: &Row<'_, P>, quantity: Quantity) -> u64 {
    row.credit(quantity).at_most(P::cpu())
}

/// Counts a change in the words of all quantities.
#[inline]
fn count_in(words: &[impl Atomic<Value = u64>], counted: &Counted) {
    for (word, quantity) in words.iter().zip(Quantity::ALL) {
        change(word, counted.before.of(quantity), counted.after.of(quantity));
    }
}

/// Changes a counter by `after - before`.
#[inline]
fn change(counter: &impl Atomic<Value = u64>, before: u64, after: u64) {
    if before == after {
        return;
    }
    // Relaxed: written under the write lock, and where several have a part of that, under the lock of edits.
    let now = counter.load(Ordering::Relaxed).wrapping_add(after).wrapping_sub(before);
    counter.store(now, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
