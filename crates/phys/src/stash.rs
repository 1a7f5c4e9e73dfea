//! A CPU's own stack of free things, from which others can take when they run short.
//!
//! # Guarantee
//! The owner, whoever owns the CPU slot, pushes and pops newest first without a read-modify-write while two or more
//! things are in; others take the oldest. Each thing comes out exactly once, to one of them.
//!
//! # Words first
//! `bottom`: one past the newest thing; the owner alone writes it. `top`: the oldest thing; it only grows, by
//! compare-and-swap. Thing `n` stands in entry `n % capacity`; the stack holds `top..bottom`. `nr_pushed` counts what
//! the owner put in one at a time, so that a search through all stashes can tell that nothing was put where it had
//! looked. `nr_batched` counts what it put in otherwise: each thing that the owner pops lowers `bottom`, so that the
//! difference says how many it has popped.
//!
//! # Invariants
//! * I1 `bottom - top` is at most the capacity, so that the entry of a thing in `top..bottom` isn't written again.
//! * I2 thing `n` goes to the one who moves `top` past `n`, or to the owner if it sees `top < n` after lowering
//!   `bottom` to `n`.
//!
//! # The owner pops while another steals: two columns
//! ```text
//! owner: pop                              thief: steal
//! bottom = n                              t = top
//! fence                                   fence
//! t = top                                 b = bottom
//! t < n: thing n is mine                  t < b: thing t is mine if CAS(top, t, t + 1)
//! t = n: mine if CAS(top, n, n + 1)
//! ```
//! Forbidden: the owner takes `n` having seen `t < n`, and a thief moves `top` from `n` to `n + 1`. That thief saw `top
//! = n` before its fence and `bottom > n` after it. If the owner's fence comes first, the thief sees `bottom = n` and
//! takes nothing; if the thief's comes first, the owner sees `top = n` and competes by compare-and-swap. Model:
//! `model_tests`.
//!
//! Source: Chase and Lev 2005, with the orders of Lê, Pop, Cohen and Zappa Nardelli 2013. The ring's size is fixed;
//! each store to `bottom` releases, where theirs lean on a fence in `push`.

use alloc::boxed::Box;
use faultless_platform::{Atomic, CachePadded, Ordering, Processor};

/// The most things that go in or out at once.
pub(crate) const BATCH_MAX: usize = 64;
/// The most things that a stash may be asked to keep.
pub(crate) const HIGH_MAX: usize = 192;

/// Things on their way between a stash and what feeds it.
pub(crate) struct Batch {
    things: [usize; BATCH_MAX],
    first: usize,
    end: usize,
}

impl Batch {
    pub(crate) const fn new() -> Self {
        Self { things: [0; BATCH_MAX], first: 0, end: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.first
    }

    /// Adds things from `source` until there are `most`, or no more.
    pub(crate) fn fill(&mut self, most: usize, mut source: impl FnMut() -> Option<usize>) {
        while self.end < most.min(BATCH_MAX)
            && let Some(thing) = source()
        {
            self.things[self.end] = thing;
            self.end += 1;
        }
    }

    /// Takes the first one added out.
    pub(crate) fn take_first(&mut self) -> Option<usize> {
        let thing = *self.as_slice().first()?;
        self.first += 1;
        Some(thing)
    }

    /// Turns the order round.
    pub(crate) fn reverse(&mut self) {
        self.things[self.first..self.end].reverse();
    }

    pub(crate) fn as_slice(&self) -> &[usize] {
        &self.things[self.first..self.end]
    }
}

/// A bounded stack of words with one owner and any number of thieves.
pub(crate) struct Stash<P: Processor> {
    bottom: P::AtomicU64,
    nr_pushed: P::AtomicU64,
    nr_batched: P::AtomicU64,
    nr_moves: P::AtomicU64,
    /// A power of two of them.
    entries: Box<[P::AtomicUsize]>,
    top: CachePadded<P::AtomicU64>,
}

impl<P: Processor> Stash<P> {
    /// Returns an empty stash with room for at least `room` things.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            bottom: P::AtomicU64::new(0),
            nr_pushed: P::AtomicU64::new(0),
            nr_batched: P::AtomicU64::new(0),
            nr_moves: P::AtomicU64::new(0),
            entries: (0..room.next_power_of_two()).map(|_| P::AtomicUsize::new(0)).collect(),
            top: CachePadded::new(P::AtomicU64::new(0)),
        }
    }

    #[inline(always)]
    fn entry(&self, thing: u64) -> &P::AtomicUsize {
        &self.entries[thing as usize & (self.entries.len() - 1)]
    }

    /// Returns how many things are in; exact for the owner while nobody steals.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: a snapshot. A thief or the owner may be half way, so that the difference can be -1.
        self.bottom.load(Ordering::Relaxed).saturating_sub(self.top.load(Ordering::Relaxed)) as usize
    }

    /// Returns how many things `push` has put in so far.
    pub(crate) fn nr_pushed(&self) -> u64 {
        // Relaxed: whoever saw an effect of the push through `bottom` sees the count.
        self.nr_pushed.load(Ordering::Relaxed)
    }

    /// Returns how many things the owner has popped so far; exact while it does nothing.
    pub(crate) fn nr_popped(&self) -> u64 {
        // Relaxed: a snapshot of the owner's numbers.
        let nr_in = self.nr_pushed() + self.nr_batched.load(Ordering::Relaxed);
        nr_in.saturating_sub(self.bottom.load(Ordering::Relaxed))
    }

    fn count_batched(&self, nr_things: u64) {
        // Relaxed: only the owner writes it.
        self.nr_batched.store(self.nr_batched.load(Ordering::Relaxed) + nr_things, Ordering::Relaxed);
    }

    /// Begins to move things between the stash and another place that a search looks at; on their way they are in
    /// neither. The owner's. Until the move ends the owner waits for no searcher of this kind, because they wait for
    /// it: it takes no lock that one of them holds.
    #[must_use = "the move ends when this is dropped"]
    pub(crate) fn begin_move(&self) -> Move<'_, P> {
        // Relaxed: what takes the things away releases (`claim`, `Reserve::take`, the lock of what feeds the stash),
        // so that
        // whoever misses them sees this.
        self.nr_moves.store(self.nr_moves.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Move(self)
    }

    /// Waits for the end of a move; returns what changes with each push and each begin of a move.
    fn nr_gains(&self) -> u64 {
        let mut nr_moves = 0;
        P::spin_until(|| {
            // ORDER: Acquire pairs with the Release in `Move`'s drop: the things are seen where they went.
            nr_moves = self.nr_moves.load(Ordering::Acquire);
            nr_moves.is_multiple_of(2)
        });
        nr_moves.wrapping_add(self.nr_pushed())
    }

    /// Puts a thing in; returns how many are in now. The owner's; there is room (I1).
    #[inline(always)]
    pub(crate) fn push(&self, thing: usize) -> usize {
        // Relaxed: only the owner writes it.
        let bottom = self.bottom.load(Ordering::Relaxed);
        // ORDER: Acquire pairs with the Release in `claim`: the thief has read the entry that is written here. (The
        // checker
        // can't show it: it delays no load past a later store. Processors other than x86 do.)
        let top = self.top.load(Ordering::Acquire);
        debug_assert!(bottom - top < self.entries.len() as u64, "I1: the stash is full");
        self.entry(bottom).store(thing, Ordering::Relaxed);
        self.nr_pushed.store(self.nr_pushed() + 1, Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire of `bottom` in `steal`: the thief sees the entry, and the thing whole.
        self.bottom.store(bottom + 1, Ordering::Release);
        (bottom + 1 - top) as usize
    }

    /// Puts things in so that they come out in the batch's order. The owner's, while it keeps searchers out.
    pub(crate) fn push_batch(&self, batch: &Batch) {
        let mut things = batch.as_slice().iter();
        self.push_all(batch.len(), || things.next().copied().unwrap_or_default());
    }

    /// Puts `nr_things` of a source in so that they come out in the source's order. The owner's, while it keeps
    /// searchers out.
    #[inline]
    pub(crate) fn push_all(&self, nr_things: usize, mut source: impl FnMut() -> usize) {
        let bottom = self.bottom.load(Ordering::Relaxed);
        // ORDER: Acquire as in `push`.
        let top = self.top.load(Ordering::Acquire);
        debug_assert!((bottom - top) as usize + nr_things <= self.entries.len(), "I1: the stash is full");
        let end = bottom + nr_things as u64;
        for place in (bottom..end).rev() {
            self.entry(place).store(source(), Ordering::Relaxed);
        }
        self.count_batched(nr_things as u64);
        // ORDER: Release as in `push`.
        self.bottom.store(end, Ordering::Release);
    }

    /// Takes the newest thing unless it is the last: that would cost a read-modify-write. The owner's.
    #[inline(always)]
    pub(crate) fn pop_hot(&self) -> Option<usize> {
        self.pop_if(2)
    }

    /// Takes the newest thing. The owner's.
    pub(crate) fn pop(&self) -> Option<usize> {
        self.pop_if(1)
    }

    #[inline(always)]
    fn pop_if(&self, least: u64) -> Option<usize> {
        let bottom = self.bottom.load(Ordering::Relaxed);
        // Relaxed: `top` only grows, so that an old value shows too many; the second look below decides.
        if bottom < self.top.load(Ordering::Relaxed) + least {
            return None;
        }
        let newest = bottom - 1;
        // ORDER: Release as in `push`: a thief that reads this value takes things that were pushed before.
        self.bottom.store(newest, Ordering::Release);
        // ORDER: pairs with the fence in `steal`; forbids that both take thing `newest` (module table, `model_tests`).
        P::fence(Ordering::SeqCst);
        let top = self.top.load(Ordering::Relaxed);
        if top < newest {
            return Some(self.entry(newest).load(Ordering::Relaxed));
        }
        self.pop_last(newest, top)
    }

    /// Competes for the last thing; the stash is empty afterwards.
    #[cold]
    fn pop_last(&self, newest: u64, top: u64) -> Option<usize> {
        let thing = self.entry(newest).load(Ordering::Relaxed);
        let is_mine = top == newest && self.claim(top, 1);
        // Relaxed: the stash is empty, so that a thief who sees this takes nothing on the strength of it.
        self.bottom.store(newest + 1, Ordering::Relaxed);
        if is_mine {
            // `top` tells of this one, and not `bottom`.
            self.count_batched(1);
        }
        is_mine.then_some(thing)
    }

    /// Takes up to `most` of the oldest things, oldest first. The owner's, who puts nothing in before it has had them
    /// all.
    pub(crate) fn shed(&self, most: usize) -> impl Iterator<Item = usize> + '_ {
        let bottom = self.bottom.load(Ordering::Relaxed);
        loop {
            let top = self.top.load(Ordering::Relaxed);
            let end = bottom.min(top + most as u64);
            if self.claim(top, end - top) {
                // The owner's entries: nobody else writes one.
                return (top..end).map(|place| self.entry(place).load(Ordering::Relaxed));
            }
        }
    }

    /// Takes the oldest thing. Anybody's.
    pub(crate) fn steal(&self) -> Option<usize> {
        loop {
            // Relaxed: the compare-and-swap fails if it is old; the fence orders it before the load of `bottom`.
            let top = self.top.load(Ordering::Relaxed);
            // ORDER: pairs with the fence in `pop_if`; forbids that both take one thing (module table, `model_tests`).
            P::fence(Ordering::SeqCst);
            // ORDER: Acquire pairs with the Release in `push`.
            let bottom = self.bottom.load(Ordering::Acquire);
            if top >= bottom {
                return None;
            }
            let thing = self.entry(top).load(Ordering::Relaxed);
            if self.claim(top, 1) {
                return Some(thing);
            }
        }
    }

    /// Moves `top` on if it still is `top`: the things passed over are the caller's (I2).
    fn claim(&self, top: u64, count: u64) -> bool {
        // ORDER: Release pairs with the Acquire of `top` in `push`: the entries were read before they are written
        // again. And
        // with the fence in `steal`: a searcher that finds things gone sees that a move has begun.
        self.top.compare_exchange(top, top + count, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

/// Things on their way, until dropped.
pub(crate) struct Move<'a, P: Processor>(&'a Stash<P>);

impl<P: Processor> Drop for Move<'_, P> {
    fn drop(&mut self) {
        let nr_moves = &self.0.nr_moves;
        // ORDER: Release pairs with the Acquire in `nr_gains`.
        nr_moves.store(nr_moves.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// Takes a thing from `elsewhere` or from any of `stashes`; fails only if at some instant during the call all were
/// empty.
///
/// Things come to a stash, or from there to elsewhere, by `push` and by moves alone, which are counted; the caller
/// keeps other sources shut. The counts are added up before and after everything has been tried. Each only grows: equal
/// sums mean that no place gained a thing between the two looks at its count, so that one found empty in between was
/// empty when the last was tried. Ends: those who push and move without their lists being filled again run out of
/// things.
pub(crate) fn search<'a, P: Processor, I: Iterator<Item = &'a Stash<P>>>(
    stashes: impl Fn() -> I,
    mut elsewhere: impl FnMut() -> Option<usize>,
) -> Option<usize> {
    let nr_gains = || stashes().fold(0, |sum: u64, stash| sum.wrapping_add(stash.nr_gains()));
    loop {
        let before = nr_gains();
        let found = elsewhere().or_else(|| stashes().find_map(Stash::steal));
        if found.is_some() || nr_gains() == before {
            return found;
        }
    }
}

// Not under Miri, which knows no coroutines: the models run on those of loom.
#[cfg(all(test, not(miri)))]
mod model_tests;
#[cfg(all(test, not(miri)))]
mod orders;
#[cfg(test)]
mod tests;
