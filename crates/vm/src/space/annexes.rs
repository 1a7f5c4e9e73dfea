//! Annexes: lanes outside the CPUs' ranges, for what names its own place.
//!
//! # Guarantee
//! Calls about addresses that no CPU's range has don't queue for one table of parts, if they lie apart: as soon as one
//! has had to wait, what a call is about gets a lane, with what is free around it.
//!
//! # Words first
//! * An *annex* is a range of the rest with a [`LaneRoom`](super::lane_rooms) of its own. A *piece* of the rest lies
//!   between two annexes, or beside one.
//! * `nr`: how many came; `bounds`: theirs, in that order. `granules`: for a granule of 1 MiB, by its number modulo the
//!   table's length, 0 or one more than the number of the annex that has it.
//!
//! # Invariants
//! * A1 annexes are disjoint, made of whole granules, and lie in the rest. They come and grow under the lock of the
//!   rest's table, or by who has everything; growing takes that of the annex as well, first. They never shrink. One
//!   goes by who has everything, when an area has come to cross its bound that can't be cut there: then what lies there
//!   is the rest's again, and its number is used up, until all go, and larger ones come in their place.
//! * A2 under the lock of the rest's table, addresses come into an annex while nobody else holds a part of them, or of
//!   what touches them; while one area at most lies there, and none touches them. So no part, and no area, meets a
//!   bound that comes. Who has everything cuts the areas that cross such a bound (`seams`).
//! * A3 an area that lies in an annex is in its index (N1): one that is there already is added to it, then the annex is
//!   to be seen, and then the area leaves the common index, all under that lock, or with everything held.
//! * A4 a place of `granules` is one annex's. None comes or grows over a granule whose place is another's.
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | a call waits for the rest's table, and its address comes into an annex meanwhile | it asks again whose its address is when it has the lock (I5 of `sync::RangeLock`) |
//! | two calls make an annex, or let one grow | one after the other (A1) |
//! | a call in a piece, beside an annex that comes there | its part stays in the piece (A2); what it looks at beyond its part is no part of it |
//! | a lookup without a lock does not see the annex, or looks in the common index when its area has left | it misses the area, and goes on under the lock, as after every miss (N4) |
//! | a fault looks for neighbours whose root it may share, beside a move | the area that moves has none (A2) |
//! | an annex goes beside a lookup without a lock | its areas are added to the common index first, and leave its own when faults have ended that may look there; other lookups may miss, as above |
//! | an annex grows beside a lookup in it | bounds that are one step old: what it has more is free |
//! | a table spans the bound of an annex | as at every bound: it waits for who has everything (R4 of `ranges`). Where an annex goes, who lets it go frees them. Where one grows, they serve what is mapped then, which has the old bound; a mapping that fails frees them with everything held |
//! | two annexes meet, or an area comes to cross a bound | who lets an area cross has everything (N2), and cuts it there; if not, the next call about it does, or lets the annexes go |
//! | a number is given to another annex, beside a lookup without a lock that has the old one's bounds or index | it finds an address of neither, or misses, and goes on under the lock |
//! | a shootdown or a wait for faults, beside an annex that comes | whom they ask does not depend on annexes (`translations::lanes`) |
//!
//! # Memory
//! For each CPU 16 to 31 granules of 8 bytes, and four annexes at most, of 512 bytes and two words each.

use crate::system::System;
use core::ops::Range;
use faultless_platform::{Atomic, AtomicInteger, Ordering};

/// Annexes are made of such pieces.
pub(super) const GRANULE_BYTES: u64 = 1 << 20;
/// Annexes for each CPU, at most.
const PER_CPU: usize = 4;
/// Granules for each CPU, at least.
const GRANULES_PER_CPU: usize = 16;
/// What an annex has at most: then one call about a large hole does not use the places of others' granules up.
pub(super) const MOST_GRANULES: u64 = 64;
/// So many annexes may go before none comes any more, unless four times as many came.
const MOST_GONE: u64 = 4;
/// So many calls in a row may lie too near to others before no annex comes any more.
const MOST_REFUSED: u64 = 256;
/// Words in front, on a line of their own: `nr`; whether any is wanted; how many are gone; how many calls in a row were
/// refused one; how many seams there are; how many calls waited where no more may come; how often all began anew;
/// whether somebody is about to make room.
const HEAD_WORDS: usize = 8;
const NR: usize = 0;
const WANTED: usize = 1;
const GONE: usize = 2;
const REFUSED: usize = 3;
const SEAMS: usize = 4;
const CROWDED: usize = 5;
const CLASS: usize = 6;
const FITTING: usize = 7;
/// What an annex has that comes where nothing lies, once there are many.
const ROOMY_BYTES: u64 = 4 * GRANULE_BYTES;
/// What an annex has at least that is carved out of areas, at first.
const LEAST_CARVED: u64 = GRANULE_BYTES;
/// So many calls wait for the rest's table before annexes begin anew, where no more may come.
const MOST_CROWDED: u64 = 64;
/// So many times annexes begin anew, four times as large each time.
const MOST_CLASSES: u64 = 3;

/// Returns how many annexes there are at most on so many CPUs: more than CPUs, because calls at random places meet in
/// some of as many lanes as CPUs.
pub(super) const fn most(nr_cpus: usize) -> usize {
    PER_CPU * nr_cpus
}

const fn nr_granules(nr_cpus: usize) -> usize {
    (GRANULES_PER_CPU * nr_cpus).next_power_of_two()
}

/// Returns how many words the annexes of so many CPUs need.
pub(super) const fn nr_words(nr_cpus: usize) -> usize {
    HEAD_WORDS + 2 * most(nr_cpus) + nr_granules(nr_cpus)
}

/// Where a space's annexes lie; see the module.
pub(super) struct Annexes<'a, P: System> {
    words: &'a [P::AtomicU64],
}

impl<P: System> Clone for Annexes<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System> Copy for Annexes<'_, P> {}

impl<'a, P: System> Annexes<'a, P> {
    /// Returns the annexes that have these words, `nr_words` of the number of CPUs, and zero at first.
    #[inline]
    pub(super) const fn new(words: &'a [P::AtomicU64]) -> Self {
        Self { words }
    }

    fn bound(self, annex: usize, side: usize) -> &'a P::AtomicU64 {
        &self.words[HEAD_WORDS + 2 * annex + side]
    }

    fn granule(self, address: u64) -> &'a P::AtomicU64 {
        let granules = &self.words[HEAD_WORDS + 2 * most(P::nr_cpus())..];
        &granules[(address / GRANULE_BYTES) as usize & (granules.len() - 1)]
    }

    /// Returns how many there are.
    #[inline]
    pub(super) fn nr(self) -> usize {
        // ORDER: Acquire pairs with the Release in `publish`: their bounds are there.
        self.words[NR].load(Ordering::Acquire) as usize
    }

    pub(super) fn bounds(self, annex: usize) -> Range<u64> {
        // Relaxed: ordered by what named the annex; bounds that grow meanwhile are right both ways.
        let [start, end] = [0, 1].map(|side| self.bound(annex, side).load(Ordering::Relaxed));
        start..end
    }

    /// Returns the annex that an address of the rest lies in.
    #[inline]
    pub(super) fn at(self, address: u64) -> Option<usize> {
        self.around(address).map(|(annex, _)| annex)
    }

    /// As [`Annexes::at`], with its bounds.
    #[inline]
    pub(super) fn around(self, address: u64) -> Option<(usize, Range<u64>)> {
        // ORDER: Acquire pairs with the Release in `publish`: the annex's bounds and its index are there.
        let annex = (self.granule(address).load(Ordering::Acquire) as usize).checked_sub(1)?;
        Some((annex, self.bounds(annex))).filter(|(_, bounds)| bounds.contains(&address))
    }

    /// Returns all, with their bounds.
    pub(super) fn each(self) -> impl Iterator<Item = (usize, Range<u64>)> + use<'a, P> {
        let nr = self.nr();
        // Relaxed: who sees none gone looks at bounds that hold nothing.
        let are_all_gone = nr == 0 || self.words[GONE].load(Ordering::Relaxed) == nr as u64;
        (0..if are_all_gone { 0 } else { nr }).map(move |annex| (annex, self.bounds(annex)))
    }

    /// Returns the bounds that lie in a range or at its ends; one between two annexes twice.
    pub(super) fn bounds_reached(self, range: &Range<u64>) -> impl Iterator<Item = u64> + use<'a, P> {
        let Range { start, end } = *range;
        let bounds = self.each().flat_map(|(_, bounds)| [bounds.start, bounds.end]);
        bounds.filter(move |&bound| start <= bound && bound <= end)
    }

    /// Returns what of `rest` lies around an address that no annex has.
    pub(super) fn piece(self, address: u64, rest: Range<u64>) -> Range<u64> {
        self.each().fold(rest, |piece, (_, annex)| {
            if annex.end <= address {
                piece.start.max(annex.end)..piece.end
            } else if annex.start > address {
                piece.start..piece.end.min(annex.start)
            } else {
                piece
            }
        })
    }

    /// Says whether calls that lie apart should get annexes, and there may be more.
    #[inline]
    pub(super) fn are_wanted(self) -> bool {
        // Relaxed: a hint.
        self.words[WANTED].load(Ordering::Relaxed) != 0 && self.may_come()
    }

    /// Says whether the caller is to take everything to make room ([`Annexes::end_fitting`]), because nobody else is
    /// about to.
    pub(super) fn begin_fitting(self) -> bool {
        // Relaxed, both: a hint; whoever comes behind looks again under the semaphore.
        let word = &self.words[FITTING];
        word.load(Ordering::Relaxed) == 0 && word.swap(1, Ordering::Relaxed) == 0
    }

    /// Notes that there is room, or none to be had.
    pub(super) fn end_fitting(self) {
        // Relaxed: as above.
        self.words[FITTING].store(0, Ordering::Relaxed);
    }

    /// Says whether there are as many as there may be.
    pub(super) fn are_used_up(self) -> bool {
        self.nr() >= most(P::nr_cpus())
    }

    /// Returns how long an annex is at least that is carved out of areas.
    pub(super) fn least_bytes(self) -> u64 {
        // Relaxed: changed by who has everything.
        LEAST_CARVED << (2 * self.words[CLASS].load(Ordering::Relaxed))
    }

    /// Returns how long an annex is that is made where nothing else lies: longer once there are more than CPUs, or
    /// were, because then calls are anywhere. Not as long as what is carved, so that no few of them have all granules.
    pub(super) fn roomy_bytes(self) -> u64 {
        let are_many = self.nr() >= P::nr_cpus() || self.least_bytes() > LEAST_CARVED;
        if are_many { ROOMY_BYTES } else { GRANULE_BYTES }
    }

    /// Notes that somebody waited for the rest's table where no annex may come any more; says whether it is time to
    /// begin anew. Under the lock of the rest's table.
    pub(super) fn note_crowd(self) -> bool {
        // Relaxed, both: under that lock.
        let nr = self.words[CROWDED].load(Ordering::Relaxed) + 1;
        self.words[CROWDED].store(nr, Ordering::Relaxed);
        nr.is_power_of_two() && nr >= MOST_CROWDED && self.may_begin_anew()
    }

    /// Says whether all may go for larger ones.
    pub(super) fn may_begin_anew(self) -> bool {
        // Relaxed: changed by who has everything.
        self.words[CLASS].load(Ordering::Relaxed) < MOST_CLASSES
    }

    /// Notes that all were given back, or not all could be; the next ones are larger. The caller has everything.
    pub(super) fn note_anew(self, are_gone: bool) {
        // Relaxed, all: as in `retire`.
        let class = self.words[CLASS].load(Ordering::Relaxed);
        self.words[CLASS].store(class + 1, Ordering::Relaxed);
        self.words[CROWDED].store(0, Ordering::Relaxed);
        if are_gone {
            for word in [NR, GONE, REFUSED] {
                self.words[word].store(0, Ordering::Relaxed);
            }
            self.words[WANTED].store(1, Ordering::Relaxed);
        }
    }

    fn may_come(self) -> bool {
        // Relaxed, both: hints.
        let [nr_gone, nr_refused] = [GONE, REFUSED].map(|word: usize| self.words[word].load(Ordering::Relaxed));
        let nr = self.nr();
        nr < most(P::nr_cpus()) && nr_refused < MOST_REFUSED && (nr_gone < MOST_GONE || nr_gone * 4 < nr as u64)
    }

    /// Notes whether a call got an annex that lay there apart; under the lock of the rest's table.
    pub(super) fn note_asked(self, is_made: bool) {
        // Relaxed, all: under that lock.
        let nr_refused = if is_made { 0 } else { self.words[REFUSED].load(Ordering::Relaxed) + 1 };
        self.words[REFUSED].store(nr_refused, Ordering::Relaxed);
        if !self.may_come() {
            self.words[WANTED].store(0, Ordering::Relaxed);
        }
    }

    /// Says whether an annex's bound is a seam; to who has everything.
    #[inline]
    pub(super) fn have_seams(self) -> bool {
        // Relaxed: S1 of `seams`.
        self.words[SEAMS].load(Ordering::Relaxed) != 0
    }

    /// Notes that there are so many more, or fewer.
    pub(super) fn note_seams(self, added: i64) {
        // Relaxed: read by who has everything; holders of parts change it side by side.
        self.words[SEAMS].fetch_add(added.cast_unsigned(), Ordering::Relaxed);
    }

    /// Has annexes made from now on.
    pub(super) fn want(self) {
        // Relaxed, both: a hint.
        if self.words[WANTED].load(Ordering::Relaxed) == 0 && self.may_come() {
            self.words[WANTED].store(1, Ordering::Relaxed);
        }
    }

    /// Says whether a range's granules are nobody's (A4).
    pub(super) fn are_free(self, range: &Range<u64>) -> bool {
        let nr = (range.end - range.start) / GRANULE_BYTES;
        let is_free = |number: u64| {
            // Relaxed: set under the lock that the caller has.
            self.granule(range.start + number * GRANULE_BYTES).load(Ordering::Relaxed) == 0
        };
        nr <= MOST_GRANULES.min(nr_granules(P::nr_cpus()) as u64) && (0..nr).all(is_free)
    }

    /// Gives an annex its bounds, which hold those that it had, and lets everybody see them.
    pub(super) fn publish(self, annex: usize, bounds: &Range<u64>) {
        let before = if annex < self.nr() { self.bounds(annex) } else { bounds.start..bounds.start };
        // Relaxed: `nr` and the granules release them.
        self.bound(annex, 0).store(bounds.start, Ordering::Relaxed);
        self.bound(annex, 1).store(bounds.end, Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire in `nr`.
        self.words[NR].store(self.nr().max(annex + 1) as u64, Ordering::Release);
        for granule in [bounds.start..before.start, before.end..bounds.end] {
            let mut address = granule.start;
            while address < granule.end {
                // ORDER: Release pairs with the Acquire in `at`.
                self.granule(address).store(annex as u64 + 1, Ordering::Release);
                address += GRANULE_BYTES;
            }
        }
    }
}

impl<P: System> Annexes<'_, P> {
    /// Gives what an annex has back to the rest; the caller has everything.
    pub(super) fn retire(self, annex: usize) {
        let bounds = self.bounds(annex);
        for address in bounds.step_by(GRANULE_BYTES as usize) {
            // Relaxed: who does not see it finds no bounds, or an index whose areas are still there.
            self.granule(address).store(0, Ordering::Relaxed);
        }
        for side in [0, 1] {
            // Relaxed: as above.
            self.bound(annex, side).store(0, Ordering::Relaxed);
        }
        // Relaxed: a hint.
        self.words[GONE].store(self.words[GONE].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if !self.may_come() {
            self.words[WANTED].store(0, Ordering::Relaxed);
        }
    }
}

pub(super) const fn granule_below(address: u64) -> u64 {
    address.saturating_sub(1) / GRANULE_BYTES * GRANULE_BYTES
}

pub(super) const fn granule_above(address: u64) -> u64 {
    (address / GRANULE_BYTES + 1) * GRANULE_BYTES
}
