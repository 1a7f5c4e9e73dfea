//! Counters with a limit that CPUs change without a line in common: each CPU holds credits.
//!
//! # Guarantee
//! * What a CPU has claimed it may add, and no claims together exceed the limit, whoever holds credits.
//! * After a recall the counter alone is what there is: who is refused then is refused rightly.
//! * A CPU that adds no more than it took away before, or drew, writes its own line alone; and reads no other, if its
//!   caller knows that what is charged is at most the limit.
//!
//! # Words first
//! * `charged`: what there is, and what the CPUs may add without asking.
//! * A *purse* for each CPU, on a line of its own: for each counter the CPU's *credit*, what it may add; and how much
//!   of it the CPU might keep when it last looked at what is charged.
//!
//! # Invariants
//! * I1 what there is = `charged` - all credits.
//! * I2 a credit changes by a call of its own CPU, which holds a share of something ([`RangeLock`](crate::RangeLock)'s
//!   semaphore), or by who has all of that. A CPU is a slot with one owner, who makes one call at a time.
//! * I3 a claim is granted if the credit is large enough then, and `charged` at most the limit. Sharers raise `charged`
//!   by draws alone, and never beyond the limit. So what sharers add keeps what there is at most the limit: it is at
//!   most `charged` (I1).
//! * I4 who recalls has all, so no claim is out: every credit is there to be taken back.
//!
//! # Protocol
//! ```text
//! sharer on CPU c                                          who has all, and is refused otherwise
//! claim n: charged > limit? refused                        charged -= every credit; every credit = 0
//!   credit[c] < n? charged += what is missing, and more;   charged is what there is
//!     refused if that exceeds the limit                    looks at the limit again
//! works: it may add n at most
//! adds m <= n: credit[c] -= m
//! takes away m: credit[c] += m; much? charged -= a part of it
//! ```
//! Who is refused takes all. A draw takes a part of the room beyond what is missing (one of four times as many parts as
//! there are CPUs), so that near the limit nobody draws more than it needs, or keeps anything: then `charged` is what
//! there is, up to what idle CPUs hold, and what others keep by an older look. A recall ends that, too.
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | two draws of the last room | compare-and-swap of `charged`: the second sees the first |
//! | a claim beside a recall | I4: one of them waits for the other; a claim after it draws anew |
//! | a claim that waits, and then adds | its CPU makes no other call meanwhile, and nobody else takes of its credit (I2) |
//! | a call claims, loses its CPU to another thread, and adds on a third one | each purse stays what it is: what the third one lacks is drawn, and the first one keeps the claim as a credit. Near the limit what there is may exceed it by that much: callers keep their CPU where they wait |
//! | a claim, beside who raised `charged` beyond the limit by having all | I3: refused, whatever the credit |
//! | a draw beside a claim that needs none | the draw ends at most at the limit |
//! | somebody sums while others work | wrong, unless he keeps them from it: [`Credit::total`] |
//!
//! Model: `tests/models/credit.rs`.
//!
//! Source: batches of Linux's `percpu_counter` (`lib/percpu_counter.c`), whose compare with a limit is exact only near
//! it; the credits of a limit are those of Linux's memory controller (`mm/memcontrol.c`, stocks of pages per CPU).

use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};

/// Counters of a purse.
const COUNTERS: usize = 4;
/// Words of a purse, two for each counter: a line.
const PURSE_WORDS: usize = 2 * COUNTERS;
/// A CPU keeps one of so many parts of the room for each CPU that there is.
const PARTS_PER_CPU: u64 = 4;

/// What each CPU may add, for up to four counters, in words that lie where their owner has them.
///
/// ```
/// use faultless_platform::{Atomic, Ordering, Processor, native::Native};
/// use faultless_sync::{Credit, Purses};
///
/// type Word = <Native as Processor>::AtomicU64;
/// let words: Vec<Word> = (0..2 * Purses::<Native>::WORDS_PER_CPU).map(|_| Word::new(0)).collect();
/// let (purses, charged) = (Purses::<Native>::new(&words), Word::new(0));
/// let pages: Credit<'_, Native> = purses.credit(0, &charged);
///
/// // CPU 0 maps 90 of 100 pages, and keeps a part of the room for later.
/// assert!(pages.claim(0, 90, 100));
/// pages.add(0, 90);
/// assert_eq!((pages.total(), charged.load(Ordering::Relaxed)), (90, 91));
/// assert_eq!(pages.at_most(0), 90);
/// // CPU 1 may not have ten; once the credit is recalled, it may.
/// assert!(!pages.claim(1, 10, 100));
/// pages.recall();
/// assert_eq!(pages.out(), 0);
/// assert!(pages.claim(1, 10, 100) && !pages.claim(0, 1, 100));
/// pages.add(1, 10);
/// // What goes makes room for as much.
/// pages.take_away(0, 1, u64::MAX, || 100);
/// assert!(pages.total() == 99 && pages.claim(1, 1, 100));
/// // Beyond the limit, where somebody who had all went, a credit is worth nothing.
/// charged.store(101, Ordering::Relaxed);
/// assert!(!pages.claim(1, 1, 100));
/// ```
pub struct Purses<'a, P: Processor> {
    words: &'a [P::AtomicU64],
}

impl<P: Processor> Clone for Purses<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor> Copy for Purses<'_, P> {}

impl<'a, P: Processor> Purses<'a, P> {
    /// How many words a CPU needs.
    pub const WORDS_PER_CPU: usize = PURSE_WORDS;

    /// Returns the purses that have these words, so many for each CPU, and zero at first.
    pub const fn new(words: &'a [P::AtomicU64]) -> Self {
        Self { words }
    }

    /// Returns one of the counters, by its number, with its exact word.
    ///
    /// # Panics
    /// If `number` is not below 4.
    #[inline]
    pub fn credit(self, number: usize, charged: &'a P::AtomicU64) -> Credit<'a, P> {
        assert!(number < COUNTERS, "a purse has {COUNTERS} credits");
        Credit { charged, purses: self, number }
    }

    /// Returns a CPU's own.
    ///
    /// # Panics
    /// If there is no such CPU.
    #[inline(always)]
    pub fn of(self, cpu: usize) -> Purse<'a, P> {
        let words = self.words[cpu * PURSE_WORDS..].first_chunk().expect("each CPU has a purse");
        Purse { words }
    }

    fn nr_cpus(self) -> usize {
        self.words.len() / PURSE_WORDS
    }
}

/// One CPU's purse, for calls that change all counters at once where nothing is out of the ordinary.
/// [`Purses::of`] returns it; [`Credit`] says who may change what.
///
/// ```
/// use faultless_platform::{Atomic, Processor, native::Native};
/// use faultless_sync::Purses;
///
/// type Word = <Native as Processor>::AtomicU64;
/// let words: Vec<Word> = (0..Purses::<Native>::WORDS_PER_CPU).map(|_| Word::new(0)).collect();
/// let (purses, charged) = (Purses::<Native>::new(&words), [Word::new(0), Word::new(0)]);
/// assert!(purses.credit(0, &charged[0]).claim(0, 2, 100) && purses.credit(1, &charged[1]).claim(0, 4096, 1 << 20));
/// let purse = purses.of(0);
/// assert!(purse.has_all([1, 4096, 0, 0]) && !purse.has_all([1, 4096, 1, 0]));
/// assert!(purse.add_all([1, 4096, 0, 0]) && !purse.add_all([1, 1 << 20, 0, 0]));
/// // What goes is kept, unless the purse holds twice as much as it might keep.
/// assert!(purse.take_all([1, 0, 0, 0]) && !purse.take_all([100, 0, 0, 0]));
/// assert_eq!(purses.credit(0, &charged[0]).total(), 0);
/// ```
pub struct Purse<'a, P: Processor> {
    words: &'a [P::AtomicU64; PURSE_WORDS],
}

impl<P: Processor> Purse<'_, P> {
    /// Returns each counter's credit. Relaxed, here and below: I2.
    #[inline(always)]
    fn credits(&self) -> [u64; COUNTERS] {
        core::array::from_fn(|number| self.words[number].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn keep(&self, credits: [u64; COUNTERS]) {
        for (number, credit) in credits.into_iter().enumerate() {
            self.words[number].store(credit, Ordering::Relaxed);
        }
    }

    /// As [`Credit::has`] of every counter.
    #[inline(always)]
    #[must_use = "nothing may be added that was not claimed"]
    pub fn has_all(&self, amounts: [u64; COUNTERS]) -> bool {
        are_all(|number| amounts[number] <= self.words[number].load(Ordering::Relaxed))
    }

    /// As [`Credit::add`] of every counter, if the purse lacks nothing; else nothing has changed.
    #[inline(always)]
    #[must_use = "each counter is asked for itself otherwise"]
    pub fn add_all(&self, amounts: [u64; COUNTERS]) -> bool {
        let credits = self.credits();
        let is_there = are_all(|number| amounts[number] <= credits[number]);
        if is_there {
            self.keep(core::array::from_fn(|number| credits[number] - amounts[number]));
        }
        is_there
    }

    /// As [`Credit::take_away`] of every counter, if the purse has too much of none then; else nothing has changed.
    #[inline(always)]
    #[must_use = "each counter is asked for itself otherwise"]
    pub fn take_all(&self, amounts: [u64; COUNTERS]) -> bool {
        let credits = self.credits();
        let after = core::array::from_fn(|number| credits[number] + amounts[number]);
        let kept = |number: usize| self.words[COUNTERS + number].load(Ordering::Relaxed);
        let are_kept = are_all(|number| (amounts[number] == 0) | (after[number] / 2 < kept(number)));
        if are_kept {
            self.keep(after);
        }
        are_kept
    }
}

/// Says whether something is so of every counter; asks of each, which takes fewer steps than to stop early.
#[inline(always)]
fn are_all(is_so: impl Fn(usize) -> bool) -> bool {
    is_so(0) & is_so(1) & is_so(2) & is_so(3)
}

/// A counter with a limit, of which each CPU holds credits; see the module. [`Purses::credit`] returns it.
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | who has a share | `has` or `claim`, and then `add` and `take_away` |
/// | who has all, before it says no | `recall` |
/// | who has all, and notes whether a limit is exceeded | `charged` |
/// | checks of a limit | `at_most` |
/// | who keeps others from counting, and the checker | `total`, `out` |
pub struct Credit<'a, P: Processor> {
    charged: &'a P::AtomicU64,
    purses: Purses<'a, P>,
    number: usize,
}

impl<P: Processor> Clone for Credit<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor> Copy for Credit<'_, P> {}

impl<'a, P: Processor> Credit<'a, P> {
    fn of(self, cpu: usize) -> &'a P::AtomicU64 {
        &self.purses.words[cpu * PURSE_WORDS + self.number]
    }

    /// Returns the word of what a CPU might keep when it last looked.
    fn kept_by(self, cpu: usize) -> &'a P::AtomicU64 {
        &self.purses.words[cpu * PURSE_WORDS + COUNTERS + self.number]
    }

    fn all(self) -> impl Iterator<Item = &'a P::AtomicU64> {
        (0..self.purses.nr_cpus()).map(move |cpu| self.of(cpu))
    }

    /// Returns how much of a room a CPU may keep without need.
    fn part(self, room: u64) -> u64 {
        room / (PARTS_PER_CPU * self.purses.nr_cpus() as u64)
    }

    /// Says whether this CPU's credit is so large already; as good as a claim to a caller who holds a share, and knows
    /// that what is charged is at most the limit (I3).
    #[inline]
    #[must_use = "nothing may be added that was not claimed"]
    pub fn has(self, cpu: usize, amount: u64) -> bool {
        // Relaxed: I2.
        self.of(cpu).load(Ordering::Relaxed) >= amount
    }

    /// Returns what is charged, at some instant during the call.
    /// Called by who has all, who notes whether a limit is exceeded.
    pub fn charged(self) -> u64 {
        // Relaxed: exact to who has all.
        self.charged.load(Ordering::Relaxed)
    }

    /// Raises this CPU's credit to `amount` at least, if the limit allows that; says whether it is so large now. The
    /// caller holds a share.
    #[must_use = "nothing may be added that was not claimed"]
    pub fn claim(self, cpu: usize, amount: u64, limit: u64) -> bool {
        let own = self.of(cpu);
        // Relaxed, here and below: who had all before orders what it did by giving that up (I2); draws exclude each
        // other by their compare-and-swap.
        let credit = own.load(Ordering::Relaxed);
        let missing = amount.saturating_sub(credit);
        let mut charged = self.charged.load(Ordering::Relaxed);
        loop {
            let Some(room) = limit.checked_sub(charged).and_then(|room| room.checked_sub(missing)) else {
                return false;
            };
            if missing == 0 {
                return true;
            }
            let kept = self.part(room);
            let drawn = missing + kept;
            match self.charged.compare_exchange(charged, charged + drawn, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    own.store(credit + drawn, Ordering::Relaxed);
                    self.kept_by(cpu).store(kept, Ordering::Relaxed);
                    return true;
                }
                Err(now) => charged = now,
            }
        }
    }

    /// Adds to what there is, no more than the CPU has claimed. What a purse lacks is drawn, whatever the limit is:
    /// where a call claimed, and then came back on another CPU.
    #[inline]
    pub fn add(self, cpu: usize, amount: u64) {
        let own = self.of(cpu);
        // Relaxed: I2.
        let credit = own.load(Ordering::Relaxed);
        let Some(left) = credit.checked_sub(amount) else {
            // Relaxed: as for a draw.
            self.charged.fetch_add(amount - credit, Ordering::Relaxed);
            return own.store(0, Ordering::Relaxed);
        };
        own.store(left, Ordering::Relaxed);
    }

    /// Takes away from what there is; the CPU may add as much again, or gives most of it back. The caller holds a
    /// share, may still add `claimed` of what it has claimed, and says the limit if it is asked.
    #[inline]
    pub fn take_away(self, cpu: usize, amount: u64, claimed: u64, limit: impl FnOnce() -> u64) {
        let own = self.of(cpu);
        // Relaxed: I2; what others draw meanwhile decides how much is kept, and nothing else.
        let credit = own.load(Ordering::Relaxed) + amount;
        let last_kept = self.kept_by(cpu);
        if credit / 2 < last_kept.load(Ordering::Relaxed) {
            return own.store(credit, Ordering::Relaxed);
        }
        let kept = self.part(limit().saturating_sub(self.charged.load(Ordering::Relaxed)));
        // What goes was not claimed, nor is what the call will not add any more.
        let free = amount.max(credit.saturating_sub(claimed));
        let excess = if credit > 2 * kept { (credit - kept).min(free) } else { 0 };
        own.store(credit - excess, Ordering::Relaxed);
        last_kept.store(kept, Ordering::Relaxed);
        if excess != 0 {
            // Relaxed: as for a draw.
            self.charged.fetch_sub(excess, Ordering::Relaxed);
        }
    }

    /// Takes all credits back, so that the counter's own word is what there is. The caller has all.
    pub fn recall(self) {
        // Relaxed: I4.
        let mut charged = self.charged.load(Ordering::Relaxed);
        (0..self.purses.nr_cpus()).for_each(|cpu| self.kept_by(cpu).store(0, Ordering::Relaxed));
        for credit in self.all() {
            let out = credit.load(Ordering::Relaxed);
            if out != 0 {
                credit.store(0, Ordering::Relaxed);
                charged = charged.wrapping_sub(out);
            }
        }
        self.charged.store(charged, Ordering::Relaxed);
    }

    /// Returns all credits together; exact while nobody changes them.
    pub fn out(self) -> u64 {
        // Relaxed: the caller keeps others from changing them.
        self.all().fold(0, |out, credit| out.wrapping_add(credit.load(Ordering::Relaxed)))
    }

    /// Returns what there is; exact while nobody changes it.
    pub fn total(self) -> u64 {
        // Relaxed: as in `out`.
        self.charged.load(Ordering::Relaxed).wrapping_sub(self.out())
    }

    /// Returns a bound of what there is, which only rises by draws; without a look at other CPUs' purses. What the
    /// caller has claimed fits between it and the limit.
    pub fn at_most(self, cpu: usize) -> u64 {
        // Relaxed: I1, I2.
        self.charged.load(Ordering::Relaxed).wrapping_sub(self.of(cpu).load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use faultless_platform::native::Native;
    use std::vec::Vec;

    type Word = <Native as Processor>::AtomicU64;

    #[test]
    fn what_goes_takes_nothing_of_what_is_claimed_for_the_same_call() {
        const LIMIT: u64 = 30;
        let words: Vec<Word> = (0..4 * PURSE_WORDS).map(|_| Word::new(0)).collect();
        let (purses, charged) = (Purses::<Native>::new(&words), Word::new(20));
        let areas = purses.credit(0, &charged);
        // A call that joins two areas, and then cuts another one twice. So little is free that a CPU keeps nothing.
        assert!(areas.claim(0, 2, LIMIT));
        areas.take_away(0, 1, 2, || LIMIT);
        areas.add(0, 2);
        assert_eq!((areas.total(), areas.out()), (21, 0));
        // What was claimed by another CPU's number is drawn once more, and no purse falls below nothing.
        areas.add(1, 3);
        areas.take_away(1, 3, 0, || LIMIT);
        assert_eq!((areas.total(), areas.out()), (21, 0));
        // What is left of a claim goes with what goes later.
        assert!(areas.claim(0, 2, LIMIT));
        areas.take_away(0, 3, 2, || LIMIT);
        assert_eq!((areas.total(), areas.out()), (18, 2));
        // All that a purse has too much of goes at once, not as slowly as it came.
        areas.take_away(0, 1, 1, || LIMIT);
        assert_eq!((areas.total(), areas.out()), (17, 1));
    }
}
