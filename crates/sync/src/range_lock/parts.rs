//! The parts of a range lock that are held, in a table under a spin lock.
//!
//! # Guarantee
//! Two parts of a table that two hold for writing neither overlap nor touch, and one that is held for reading overlaps
//! none that is held for writing. A part is entered under the table's lock, and taken out by its holder, by one store
//! (I2 of the module above). Several tables know nothing of each other.
//!
//! # Words first
//! `slots`: the places of a table; one whose `end` is 0 is empty, so that a part which ends at 0, of no place at all,
//! is entered as one that ends at 1. `nr_used`: how many there are from the first to the last that is held, and the
//! lock.

use crate::{McsQueue, SpinMutex, SpinMutexGuard, lock_class};
use core::ops::Range;
use faultless_platform::{Atomic, Ordering, Processor};

lock_class! {
    /// The locks of the tables of ranges.
    pub(crate) RangesLock = "map_ranges"
}

/// Parts that are held at once, unless said otherwise; one more waits.
pub(super) const CAPACITY: usize = 64;

/// A range that a writer asks for, and what else it takes. One that ends where it begins, or before, keeps nobody out
/// of any other place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// First place.
    pub start: u64,
    /// First place behind.
    pub end: u64,
    /// Things that the holder may add.
    pub nr_added: u64,
    /// Their size, at most.
    pub bytes_added: u64,
}

impl Claim {
    /// A range, and nothing else.
    pub(super) fn of(range: &Range<u64>) -> Self {
        Self { start: range.start, end: range.end, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) claim: Claim,
    pub(super) mode: Mode,
}

impl Part {
    pub(super) fn read(range: &Range<u64>) -> Self {
        Self { claim: Claim::of(range), mode: Mode::Read }
    }

    /// Says whether two parts may not be held at once.
    fn excludes(&self, other: &Self) -> bool {
        let (one, two) = (&self.claim, &other.claim);
        match (self.mode, other.mode) {
            (Mode::Read, Mode::Read) => false,
            (Mode::Write, Mode::Write) => one.start <= two.end && two.start <= one.end,
            _ => one.start < two.end && two.start < one.end,
        }
    }
}

/// The parts of a lock that are held; used by whoever has the table's lock ([`RangeLock::table`](crate::RangeLock::table)).
pub struct HeldRanges<'a, P: Processor> {
    slots: &'a [Slot<P>],
    /// How many slots there are from the first to the last that is held.
    nr_used: SpinMutexGuard<'a, P, usize, RangesLock>,
    had_to_wait: bool,
}

/// A place in the table. It is filled under the table's lock, and emptied by who holds the part.
pub(super) struct Slot<P: Processor> {
    /// 0: the place is empty.
    end: P::AtomicU64,
    start: P::AtomicU64,
    /// Twice the number of what may be added, and one more for a writer.
    nr_added_and_mode: P::AtomicU64,
    bytes_added: P::AtomicU64,
}

impl<P: Processor> Slot<P> {
    fn new() -> Self {
        let word = || P::AtomicU64::new(0);
        Self { end: word(), start: word(), nr_added_and_mode: word(), bytes_added: word() }
    }

    /// Returns what is held; under the table's lock it may be given back meanwhile, but not replaced.
    pub(super) fn read(&self) -> Option<Part> {
        let end = self.end();
        if end == 0 {
            return None;
        }
        // Relaxed: written under the table's lock.
        let word = |word: &P::AtomicU64| word.load(Ordering::Relaxed);
        let nr_added_and_mode = word(&self.nr_added_and_mode);
        let mode = if nr_added_and_mode & 1 == 0 { Mode::Read } else { Mode::Write };
        let (start, nr_added, bytes_added) = (word(&self.start), nr_added_and_mode >> 1, word(&self.bytes_added));
        Some(Part { claim: Claim { start, end, nr_added, bytes_added }, mode })
    }

    pub(super) fn end(&self) -> u64 {
        // ORDER: Acquire pairs with the Release in `empty`: who finds a part gone sees what its holder did.
        self.end.load(Ordering::Acquire)
    }

    pub(super) fn fill(&self, part: &Part) {
        let Claim { start, end, nr_added, bytes_added } = part.claim;
        // Relaxed: read under the table's lock.
        let set = |word: &P::AtomicU64, value| word.store(value, Ordering::Relaxed);
        set(&self.start, start);
        set(&self.nr_added_and_mode, nr_added << 1 | u64::from(part.mode == Mode::Write));
        set(&self.bytes_added, bytes_added);
        // 0 would say that the place is empty.
        set(&self.end, end.max(1));
    }

    pub(super) fn empty(&self) {
        // ORDER: Release pairs with the Acquire in `end`.
        self.end.store(0, Ordering::Release);
    }
}

/// The parts of one lane that are held.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{Claim, PartTable, RangeLock, RwSemaphore, Rwsem};
///
/// let lock = RangeLock::<Native, Rwsem<Native>>::new(Rwsem::new());
/// let lanes: [PartTable<Native, 4>; 2] = core::array::from_fn(|_| PartTable::new());
/// Machine::new(1).attach(|| {
///     lock.write().divide();
///     let [low, high] = [0, 1].map(|lane| {
///         let part = Claim { start: 10 * lane + 1, end: 10 * lane + 9, ..Claim::default() };
///         lock.write_part_of(&|| lanes[lane as usize].parts(), &mut |_| Some(part)).0
///     });
///     assert!(!low.is_whole() && !high.is_whole());
///     assert!(lock.try_read_of(&|| Some(lanes[0].parts()), 2..3).is_none());
///     assert!(lanes[1].parts().lock().is_held_by_others(&(12..13), 3));
///     drop((low, high));
///     // What lies in several lanes is looked at with everything held.
///     drop(lock.read_of(&|| None, 2..12));
///     assert!(!lock.is_divided(), "until somebody has everything alone");
///     drop(lock.write_part_of(&|| lanes[0].parts(), &mut |_| Some(Claim { start: 1, end: 9, ..Claim::default() })));
///     assert!(lock.is_divided());
/// });
/// ```
pub struct PartTable<P: Processor, const PLACES: usize = CAPACITY> {
    /// Those who wait for the table's lock.
    queue: McsQueue<P>,
    /// How many slots there are from the first to the last that is held.
    nr_used: SpinMutex<P, usize, RangesLock>,
    slots: [Slot<P>; PLACES],
}

impl<P: Processor, const PLACES: usize> PartTable<P, PLACES> {
    /// Returns a table without parts.
    pub fn new() -> Self {
        Self { queue: McsQueue::new(), nr_used: SpinMutex::classed(0), slots: core::array::from_fn(|_| Slot::new()) }
    }

    /// Returns the table, however many places it has.
    #[inline]
    pub fn parts(&self) -> PartTableRef<'_, P> {
        PartTableRef { queue: &self.queue, nr_used: &self.nr_used, slots: &self.slots }
    }
}

impl<P: Processor, const PLACES: usize> Default for PartTable<P, PLACES> {
    fn default() -> Self {
        Self::new()
    }
}

/// A table of parts, of any number of places; [`PartTable::parts`] returns it.
pub struct PartTableRef<'a, P: Processor> {
    queue: &'a McsQueue<P>,
    nr_used: &'a SpinMutex<P, usize, RangesLock>,
    slots: &'a [Slot<P>],
}

impl<P: Processor> Clone for PartTableRef<'_, P> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor> Copy for PartTableRef<'_, P> {}

impl<'a, P: Processor> PartTableRef<'a, P> {
    /// Locks the table: no part of it comes or goes meanwhile. Called by who edits what the lane has, and by the lock
    /// itself.
    #[inline]
    #[track_caller]
    pub fn lock(self) -> HeldRanges<'a, P> {
        // Who comes while others wait stands behind them: each waits on a line of its own.
        self.try_lock_in_turn().unwrap_or_else(|| {
            let nr_used = self.queue.lock(|| self.nr_used.lock());
            HeldRanges { slots: self.slots, nr_used, had_to_wait: true }
        })
    }

    /// Locks the table if nobody has it locked, or waits for it.
    #[inline]
    fn try_lock_in_turn(self) -> Option<HeldRanges<'a, P>> {
        if self.queue.is_occupied() { None } else { self.try_lock() }
    }

    /// Locks the table if nobody has it locked, or waits for it, and nobody holds a part of it.
    #[inline]
    pub(super) fn try_lock_unused(self) -> Option<HeldRanges<'a, P>> {
        self.try_lock_in_turn().filter(HeldRanges::is_unused)
    }

    /// Says whether somebody waits for the table's lock, or holds a part at its first place; a hint, for whoever comes
    /// only where nobody is ([`RangeLock::write_first_of`](super::RangeLock::write_first_of)).
    #[inline]
    pub fn seems_used(self) -> bool {
        self.queue.is_occupied() || self.slots.first().is_some_and(|first| first.end() != 0)
    }

    /// Locks the table if nobody has it locked. Called by who has another table's lock.
    #[inline]
    pub fn try_lock(self) -> Option<HeldRanges<'a, P>> {
        Some(HeldRanges { slots: self.slots, nr_used: self.nr_used.try_lock()?, had_to_wait: false })
    }

    /// Returns what orders tables whose locks are taken together.
    pub(super) fn address(self) -> usize {
        core::ptr::from_ref(self.queue).addr()
    }

    /// Says whether both are one table. Asked by whoever has locked a place's table: it may be another's by then (I5).
    #[inline]
    pub fn is_same(self, other: Self) -> bool {
        core::ptr::eq(self.queue, other.queue)
    }
}

/// Where a holder's parts are.
pub(super) struct Places<'a, P: Processor> {
    pub(super) own: &'a Slot<P>,
    /// In another table.
    pub(super) beyond: Option<&'a Slot<P>>,
}

impl<P: Processor> Clone for Places<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor> Copy for Places<'_, P> {}

/// A part that is in the way of another, or the first of so many that there is no place left; and where it ends.
pub(super) struct InTheWay<'a, P: Processor>(pub(super) &'a Slot<P>, pub(super) u64);

impl<'a, P: Processor> HeldRanges<'a, P> {
    fn held(&self) -> impl Iterator<Item = Part> + '_ {
        self.slots[..*self.nr_used].iter().filter_map(Slot::read)
    }

    fn is_unused(&self) -> bool {
        self.slots[..*self.nr_used].iter().all(|slot| slot.end() == 0)
    }

    /// Enters a part of a table that nobody holds a part of; returns its place.
    #[inline]
    pub(super) fn enter_first(&mut self, part: &Part) -> &'a Slot<P> {
        let first = &self.slots[0];
        first.fill(part);
        *self.nr_used = 1;
        first
    }

    /// Returns what the holders of parts may add together: things, and their size. Asked by whoever chooses a part
    /// near a limit.
    pub fn claimed(&self) -> (u64, u64) {
        let add = |(nr, bytes): (u64, u64), Part { claim, .. }: Part| {
            (nr.saturating_add(claim.nr_added), bytes.saturating_add(claim.bytes_added))
        };
        self.held().fold((0, 0), add)
    }

    /// Says whether they are those of a table. Asked by whoever chooses a part.
    #[inline]
    pub fn is_of(&self, parts: PartTableRef<'_, P>) -> bool {
        core::ptr::eq(self.slots, parts.slots)
    }

    /// Says whether the table's lock was somebody else's when the caller came. Asked by whoever could have a table of
    /// his own.
    #[inline]
    pub fn had_to_wait(&self) -> bool {
        self.had_to_wait
    }

    /// Says whether anybody but the writer who holds `own` holds a part of `range`. Asked by whoever would free what
    /// spans the range.
    pub fn is_held_by_others(&self, range: &Range<u64>, own: u64) -> bool {
        self.held().any(|Part { claim, mode }| {
            let is_own = mode == Mode::Write && (claim.start..claim.end).contains(&own);
            !is_own && claim.start < range.end && range.start < claim.end
        })
    }

    /// Enters a part, and another one into another table; both or none.
    pub(super) fn enter_both(
        &mut self,
        part: &Part,
        (other, part_there): (&mut Self, Part),
    ) -> Result<Places<'a, P>, InTheWay<'a, P>> {
        let own = self.enter(part)?;
        let beyond = other.enter(&part_there).inspect_err(|_| own.empty())?;
        Ok(Places { own, beyond: Some(beyond) })
    }

    /// Enters a part unless something is in the way; returns its place.
    pub(super) fn enter(&mut self, part: &Part) -> Result<&'a Slot<P>, InTheWay<'a, P>> {
        let (mut free, mut nr_used) = (None, 0);
        for (place, slot) in self.slots[..*self.nr_used].iter().enumerate() {
            match slot.read() {
                None => {
                    free.get_or_insert(place);
                }
                Some(held) if held.excludes(part) => return Err(InTheWay(slot, held.claim.end)),
                Some(_) => nr_used = place + 1,
            }
        }
        let place = free.unwrap_or(nr_used);
        let Some(slot) = self.slots.get(place) else {
            let first = &self.slots[0];
            let end = first.end();
            if end != 0 {
                return Err(InTheWay(first, end));
            }
            // Given back just now.
            first.fill(part);
            return Ok(first);
        };
        slot.fill(part);
        *self.nr_used = nr_used.max(place + 1);
        Ok(slot)
    }
}
