//! A lock of ranges: calls about different ranges are inside at once, one about everything is alone.
//!
//! # Guarantee
//! * Two parts that two hold for writing neither overlap nor touch. One that is held for reading overlaps none that is
//!   held for writing.
//! * What a writer holds is chosen under the table's lock, in the state in which it is entered: what was chosen before
//!   a wait is chosen anew.
//! * Who holds everything waits for all parts, and lets nobody in.
//!
//! # Words first
//! `semaphore`: shared by whoever holds a part, alone by who holds everything. `state`: [`UNDIVIDED`], no part was ever
//! given out; [`DIVIDED`], they are; [`WHOLE`], somebody has everything, or had it for looking. `slots`: the parts of a
//! table; a place whose `end` is 0 is empty.
//!
//! # Several tables
//! The lock has one table. Who cuts its thing into lanes keeps a [`PartTable`] for each, and says with each part which
//! one it belongs to ([`RangeLock::write_part_of`]): then two parts of different lanes have no line in common but the
//! semaphore's, and with a semaphore whose readers stand in a table, none.
//!
//! # Invariants
//! * I1 `state` is changed by who has everything alone; so a share sees one value. Unless it is `DIVIDED` no part is
//!   entered, and a share alone keeps writers out. Who lets others look beside itself at everything leaves `WHOLE`, and
//!   the next one who has everything alone puts `DIVIDED` back.
//! * I2 a part is entered under its table's lock, and taken out by its holder, by one store; both have a share. So
//!   under the table's lock places only become empty.
//! * I3 nobody waits for anything else of this lock while it holds a part; so holders of parts leave, and a wait for
//!   everything ends.
//! * I4 parts that overlap, or touch while one is held for writing, are of one table, or one holder's: what is not
//!   wholly inside a lane is no part, and has everything, unless it is two that touch where their lanes meet
//!   ([`Choice::Two`]). The caller of `write_parts_of` sees to that.
//! * I5 a place goes from one table to another under the lock of the first, and while nobody holds a part of it there.
//!   So who has a table's lock asks once more whose table it is, and what it finds then stays while it has the lock, or
//!   a part.
//!
//! # Protocol
//! ```text
//! writer of a part                               writer of everything          reader of a part
//! shares the semaphore; divided? else right      takes the semaphore alone     shares the semaphore
//! its table's lock: chooses; nothing in the      was divided? now it is not    divided? else that is enough
//!   way? enters; else waits for one to leave,    works                         table lock: nothing in the way?
//!   chooses again; after a while right           divided again                   enters; else waits; after a while
//! works                                          releases it                     everything, enters, shares
//! takes the part out                                                           takes the part out
//! gives the share back                                                         gives the share back
//! ```
//! A wait is awake and short; after that the semaphore's queue is where one sleeps, and where nobody is overtaken for
//! ever. Where somebody sleeps there already, whoever meets a part in his way, or had to wait for the table's lock,
//! comes behind him at once and asks again, a few times. Model: `tests/models/range_lock.rs`.
//!
//! Source: a table of ranges under a spin lock is the shape of Linux's proposed range locks (Jan Kara 2013, Davidlohr
//! Bueso 2018), whose tree pays off beyond a few dozen holders.

use crate::{McsQueue, ReadGuard, RwSemaphore, SpinMutex, SpinMutexGuard, WriteGuard, lock_class};
use core::mem::ManuallyDrop;
use core::ops::Range;
use faultless_platform::{Atomic, CachePadded, Ordering, Processor, mutant};

lock_class! {
    /// The locks of the tables of ranges.
    pub(crate) RangesLock = "map_ranges"
}

/// Parts that are held at once, unless said otherwise; one more waits.
const CAPACITY: usize = 64;
/// No part was ever given out.
const UNDIVIDED: u32 = 0;
/// Parts are given out.
const DIVIDED: u32 = 1;
/// Parts were given out, and somebody has everything.
const WHOLE: u32 = 2;
/// How long somebody waits awake for a part, at least.
const LEAST_PATIENCE_NS: u64 = 20_000;
/// How long for each CPU: who takes everything instead puts all others to sleep, and each takes its time to wake.
const PATIENCE_OF_A_CPU_NS: u64 = 5_000;

/// What a writer asks for, under the lock of its table ([`RangeLock::write_parts_of`]).
pub enum Choice<'a, P: Processor> {
    /// Everything.
    Everything,
    /// A part.
    Part(Claim),
    /// A part, and a range of another table, whose lock the chooser had handed or has put there; both or none. Without
    /// that lock, everything.
    Two(Claim, Range<u64>),
    /// To be asked again with another table's lock as well, which is somebody's.
    Again(PartTableRef<'a, P>),
    /// To be asked again behind somebody who is about to take everything.
    Behind,
}

/// Says what a writer asks for: called by [`RangeLock::write_parts_of`] under the lock of the writer's table, and with
/// another table's lock if it chose [`Choice::Again`] before.
pub type Choose<'c, 'a, P> = dyn FnMut(&HeldRanges<'_, P>, &mut Option<HeldRanges<'a, P>>) -> Choice<'a, P> + 'c;

/// So many times a call waits for a part that long; then all its further waits do together, unless it comes behind.
const MOST_WAITS: u32 = 8;
/// So many times a call comes behind somebody else; then it waits awake, or takes everything if it has to make room.
const MOST_BEHIND: u32 = 8;

/// A range that a writer asks for, and what else it takes.
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
    fn of(range: &Range<u64>) -> Self {
        Self { start: range.start, end: range.end, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    claim: Claim,
    mode: Mode,
}

impl Part {
    fn read(range: &Range<u64>) -> Self {
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

/// The parts of a lock that are held; used by whoever has the table's lock ([`RangeLock::table`]).
pub struct HeldRanges<'a, P: Processor> {
    slots: &'a [Slot<P>],
    /// How many slots there are from the first to the last that is held.
    nr_used: SpinMutexGuard<'a, P, usize, RangesLock>,
    had_to_wait: bool,
}

/// A place in the table. It is filled under the table's lock, and emptied by who holds the part.
struct Slot<P: Processor> {
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
    fn read(&self) -> Option<Part> {
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

    fn end(&self) -> u64 {
        // ORDER: Acquire pairs with the Release in `empty`: who finds a part gone sees what its holder did.
        self.end.load(Ordering::Acquire)
    }

    fn fill(&self, part: &Part) {
        let Claim { start, end, nr_added, bytes_added } = part.claim;
        // Relaxed: read under the table's lock.
        let set = |word: &P::AtomicU64, value| word.store(value, Ordering::Relaxed);
        set(&self.start, start);
        set(&self.nr_added_and_mode, nr_added << 1 | u64::from(part.mode == Mode::Write));
        set(&self.bytes_added, bytes_added);
        set(&self.end, end);
    }

    fn empty(&self) {
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
        let lock = if self.queue.is_occupied() { None } else { self.nr_used.try_lock() };
        let had_to_wait = lock.is_none();
        let nr_used = lock.unwrap_or_else(|| self.queue.lock(|| self.nr_used.lock()));
        HeldRanges { slots: self.slots, nr_used, had_to_wait }
    }

    /// Locks the table if nobody has it locked. Called by who has another table's lock.
    pub fn try_lock(self) -> Option<HeldRanges<'a, P>> {
        Some(HeldRanges { slots: self.slots, nr_used: self.nr_used.try_lock()?, had_to_wait: false })
    }

    /// Says whether both are one table. Asked by whoever has locked a place's table: it may be another's by then (I5).
    #[inline]
    pub fn is_same(self, other: Self) -> bool {
        core::ptr::eq(self.queue, other.queue)
    }
}

/// Where a holder's parts are.
struct Places<'a, P: Processor> {
    own: &'a Slot<P>,
    /// In another table.
    beyond: Option<&'a Slot<P>>,
}

impl<P: Processor> Clone for Places<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor> Copy for Places<'_, P> {}

/// A part that is in the way of another, or the first of so many that there is no place left; and where it ends.
struct InTheWay<'a, P: Processor>(&'a Slot<P>, u64);

impl<'a, P: Processor> HeldRanges<'a, P> {
    fn held(&self) -> impl Iterator<Item = Part> + '_ {
        self.slots[..*self.nr_used].iter().filter_map(Slot::read)
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
    fn enter_both(
        &mut self,
        part: &Part,
        (other, part_there): (&mut Self, Part),
    ) -> Result<Places<'a, P>, InTheWay<'a, P>> {
        let own = self.enter(part)?;
        let beyond = other.enter(&part_there).inspect_err(|_| own.empty())?;
        Ok(Places { own, beyond: Some(beyond) })
    }

    /// Enters a part unless something is in the way; returns its place.
    fn enter(&mut self, part: &Part) -> Result<&'a Slot<P>, InTheWay<'a, P>> {
        debug_assert!(part.claim.end != 0, "it would look like none");
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

/// See the module.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{Claim, RangeLock, RangeReadGuard, RangeWriteGuard, RwSemaphore, Rwsem};
///
/// let lock = RangeLock::<Native, Rwsem<Native>>::new(Rwsem::new());
/// Machine::new(1).attach(|| {
///     let mut all: RangeWriteGuard<'_, Native, _> = lock.write();
///     assert!(all.is_whole() && lock.try_read(0..1).is_none());
///     all.divide();
///     drop(all);
///     assert!(lock.is_divided() && lock.may_be_divided());
///
///     let (low, _) = lock.write_part(&mut |_| Some(Claim { start: 0, end: 4, nr_added: 1, bytes_added: 4 }));
///     let (high, table) = lock.write_part(&mut |held| {
///         assert_eq!(held.claimed(), (1, 4));
///         Some(Claim { start: 5, end: 8, ..Claim::default() })
///     });
///     assert!(!low.is_whole() && !high.is_whole() && table.is_some());
///     drop(table);
///     assert!(lock.try_read(3..5).is_none());
///     let read: RangeReadGuard<'_, Native, _> = lock.try_read(4..5).expect("between both");
///     assert!(lock.table().is_held_by_others(&(4..5), 3));
///     drop((low, high, read));
///     // Who chooses nothing has everything.
///     assert!(lock.write_part(&mut |_| None).0.is_whole());
///     drop(lock.read(0..8));
///     drop(lock.downgrade(lock.write()));
///     assert!(!lock.semaphore().is_locked());
/// });
/// ```
pub struct RangeLock<P: Processor, S, const PLACES: usize = CAPACITY> {
    semaphore: CachePadded<S>,
    /// Read by many, written by few.
    state: CachePadded<P::AtomicU32>,
    table: PartTable<P, PLACES>,
}

impl<P: Processor, S: RwSemaphore<P>, const PLACES: usize> RangeLock<P, S, PLACES> {
    /// Returns a free lock that gives out no parts yet.
    pub fn new(semaphore: S) -> Self {
        Self {
            semaphore: CachePadded::new(semaphore),
            state: CachePadded::new(P::AtomicU32::new(UNDIVIDED)),
            table: PartTable::new(),
        }
    }

    /// Returns the semaphore beneath.
    pub fn semaphore(&self) -> &S {
        &self.semaphore
    }

    /// Says whether others may hold parts beside the caller, who holds something; to others it is a hint.
    #[inline]
    pub fn is_divided(&self) -> bool {
        // Relaxed: changed by who has the semaphore alone (I1).
        self.state.load(Ordering::Relaxed) == DIVIDED
    }

    /// Says whether parts were ever given out; a hint, but to who holds something.
    #[inline]
    pub fn may_be_divided(&self) -> bool {
        // Relaxed: who needs to know looks again under the semaphore.
        self.state.load(Ordering::Relaxed) != UNDIVIDED
    }

    /// Locks the table: no part comes or goes meanwhile.
    #[inline]
    #[track_caller]
    pub fn table(&self) -> HeldRanges<'_, P> {
        self.parts().lock()
    }

    /// Returns the lock's own table.
    #[inline]
    pub fn parts(&self) -> PartTableRef<'_, P> {
        self.table.parts()
    }

    /// Locks everything.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RangeWriteGuard<'_, P, S> {
        mutant!(PartsUnawaited => if self.is_divided() {
            return RangeWriteGuard { state: &self.state, part: None, was_divided: false, guard: Guard::Share(self.semaphore.read()) };
        });
        let alone = self.semaphore.write();
        let was_divided = self.may_be_divided();
        if was_divided {
            // Relaxed: I1.
            self.state.store(WHOLE, Ordering::Relaxed);
        }
        RangeWriteGuard { state: &self.state, part: None, was_divided, guard: Guard::Alone(alone) }
    }

    /// Locks what `choose` says, under the table's lock, in the state in which it is entered; everything if that is
    /// nothing, if no parts are given out yet, or if the wait is long. `choose` may be called several times.
    ///
    /// With a part comes the table's lock, for what is better done before others look.
    #[track_caller]
    pub fn write_part(
        &self,
        choose: &mut dyn FnMut(&HeldRanges<'_, P>) -> Option<Claim>,
    ) -> (RangeWriteGuard<'_, P, S>, Option<HeldRanges<'_, P>>) {
        self.write_part_of(&|| self.parts(), choose)
    }

    /// As [`RangeLock::write_part`], of a table that is not the lock's own (I4, I5): `place` says which one.
    #[track_caller]
    pub fn write_part_of<'a>(
        &'a self,
        place: &impl Fn() -> PartTableRef<'a, P>,
        choose: &mut dyn FnMut(&HeldRanges<'_, P>) -> Option<Claim>,
    ) -> (RangeWriteGuard<'a, P, S>, Option<HeldRanges<'a, P>>) {
        self.write_parts_of(place, &mut |held, _| choose(held).map_or(Choice::Everything, Choice::Part))
    }

    /// As [`RangeLock::write_part_of`], of one table or of two whose lanes meet. Whoever chose [`Choice::Again`] gets
    /// that lock handed; it is taken before the own one or after, so that nobody waits in a circle. Whoever waits for
    /// locks of several tables beside this one takes the lock's own table last.
    ///
    /// ```
    /// use faultless_platform::native::{Machine, Native};
    /// use faultless_sync::{Choice, Claim, PartTable, RangeLock, RwSemaphore, Rwsem};
    ///
    /// let lock = RangeLock::<Native, Rwsem<Native>>::new(Rwsem::new());
    /// let [low, high]: [PartTable<Native, 4>; 2] = core::array::from_fn(|_| PartTable::new());
    /// Machine::new(1).attach(|| {
    ///     lock.write().divide();
    ///     // The lanes meet at 10.
    ///     let (both, _) = lock.write_parts_of(&|| low.parts(), &mut |_, beyond| {
    ///         *beyond = beyond.take().or_else(|| high.parts().try_lock());
    ///         match beyond {
    ///             Some(_) => Choice::Two(Claim { start: 8, end: 10, ..Claim::default() }, 10..12),
    ///             None => Choice::Again(high.parts()),
    ///         }
    ///     });
    ///     assert!(!both.is_whole());
    ///     assert!(lock.try_read_of(&|| Some(low.parts()), 9..10).is_none());
    ///     assert!(lock.try_read_of(&|| Some(high.parts()), 10..11).is_none());
    ///     drop(both);
    ///     assert!(lock.try_read_of(&|| Some(high.parts()), 10..11).is_some());
    /// });
    /// ```
    #[track_caller]
    pub fn write_parts_of<'a>(
        &'a self,
        place: &impl Fn() -> PartTableRef<'a, P>,
        choose: &mut Choose<'_, 'a, P>,
    ) -> (RangeWriteGuard<'a, P, S>, Option<HeldRanges<'a, P>>) {
        if !self.may_be_divided() {
            return (self.write(), None);
        }
        match self.soon_entered(&|| Some(place()), Mode::Write, choose) {
            Ok(Entered { parts, places, share, table }) => {
                let guard = Guard::Share(share);
                let part = Some((parts, places));
                (RangeWriteGuard { state: &self.state, part, was_divided: false, guard }, Some(table))
            }
            Err(share) => {
                drop(share);
                (self.write(), None)
            }
        }
    }

    /// Locks a range for looking.
    #[inline]
    #[track_caller]
    pub fn read(&self, range: Range<u64>) -> RangeReadGuard<'_, P, S> {
        self.read_of(&|| Some(self.parts()), range)
    }

    /// As [`RangeLock::read`], of a range of the table that `place` says; of one that is of several, if it says none:
    /// it takes everything, and then lets others look.
    #[inline]
    #[track_caller]
    pub fn read_of<'a>(
        &'a self,
        place: &impl Fn() -> Option<PartTableRef<'a, P>>,
        range: Range<u64>,
    ) -> RangeReadGuard<'a, P, S> {
        if !self.may_be_divided() {
            let share = self.semaphore.read();
            if !self.is_divided() {
                return RangeReadGuard { part: None, _share: share };
            }
        }
        self.read_part(place, range)
    }

    #[cold]
    #[track_caller]
    fn read_part<'a>(
        &'a self,
        place: &impl Fn() -> Option<PartTableRef<'a, P>>,
        range: Range<u64>,
    ) -> RangeReadGuard<'a, P, S> {
        match self.soon_entered(place, Mode::Read, &mut |_, _| Choice::Part(Claim::of(&range))) {
            Ok(Entered { places, share, .. }) => RangeReadGuard { part: Some(places.own), _share: share },
            // It is not divided, and so a share is enough.
            Err(Some(share)) => RangeReadGuard { part: None, _share: share },
            Err(None) => {
                let write = self.write();
                self.downgrade_to(write, place().map(|parts| (parts, range)))
            }
        }
    }

    /// As [`RangeLock::read`], if that takes no waiting.
    #[inline]
    #[track_caller]
    pub fn try_read(&self, range: Range<u64>) -> Option<RangeReadGuard<'_, P, S>> {
        self.try_read_of(&|| Some(self.parts()), range)
    }

    /// As [`RangeLock::read_of`], if that takes no waiting.
    #[inline]
    #[track_caller]
    pub fn try_read_of<'a>(
        &'a self,
        place: &impl Fn() -> Option<PartTableRef<'a, P>>,
        range: Range<u64>,
    ) -> Option<RangeReadGuard<'a, P, S>> {
        let share = self.semaphore.try_read()?;
        if !self.is_divided() {
            return Some(RangeReadGuard { part: None, _share: share });
        }
        let parts = place()?;
        let mut table = parts.lock();
        if !is_still(place, parts) {
            return None;
        }
        let part = table.enter(&Part::read(&range)).ok()?;
        Some(RangeReadGuard { part: Some(part), _share: share })
    }

    /// Lets others look, with no writer in between.
    #[track_caller]
    pub fn downgrade<'a>(&'a self, write: RangeWriteGuard<'a, P, S>) -> RangeReadGuard<'a, P, S> {
        self.downgrade_to(write, None)
    }

    /// As [`RangeLock::downgrade`]; who has everything keeps a part alone, if that is named.
    #[track_caller]
    fn downgrade_to<'a>(
        &'a self,
        write: RangeWriteGuard<'a, P, S>,
        kept: Option<(PartTableRef<'a, P>, Range<u64>)>,
    ) -> RangeReadGuard<'a, P, S> {
        let (held, was_divided, guard) = write.into_parts();
        let mut part = None;
        if let Some((parts, Places { own, beyond })) = held {
            let _table = parts.lock();
            let Part { claim, .. } = own.read().expect("I2: it is held");
            own.fill(&Part::read(&(claim.start..claim.end)));
            // Where the lanes meet nothing is changed any more.
            beyond.inspect(|slot| slot.empty());
            part = Some(own);
        } else if was_divided {
            part = kept.and_then(|(parts, range)| parts.lock().enter(&Part::read(&range)).ok());
            let state = if part.is_some() { DIVIDED } else { WHOLE };
            // Relaxed: I1; the downgrade releases it.
            self.state.store(state, Ordering::Relaxed);
        }
        let share = match guard {
            Guard::Alone(alone) => alone.downgrade(),
            Guard::Share(share) => share,
        };
        RangeReadGuard { part, _share: share }
    }

    /// Shares the semaphore and enters what is wanted; the share alone if no parts are given out; nothing if the part
    /// is of no one table, or not to be had soon.
    #[track_caller]
    fn soon_entered<'a>(
        &'a self,
        place: &impl Fn() -> Option<PartTableRef<'a, P>>,
        mode: Mode,
        choose: &mut Choose<'_, 'a, P>,
    ) -> Result<Entered<'a, P, S>, Option<ReadGuard<'a, P, S>>> {
        let mut share = self.semaphore.read();
        if !self.is_divided() {
            return Err(Some(share));
        }
        let mut deadline_ns = None;
        let mut chosen = None;
        let (mut other, mut nr_behind, mut nr_waits) = (None, 0, 0);
        loop {
            let parts = place().ok_or(None)?;
            let (mut table, mut beside) = self.locked(parts, other.take());
            let comes_behind = || nr_behind < MOST_BEHIND && self.is_contended();
            if table.had_to_wait() && comes_behind() {
                // Those who have parts need this lock to get ready.
                drop((table, beside));
                share = self.behind(share, &mut nr_behind)?;
                (chosen, deadline_ns) = (None, None);
                continue;
            }
            if mutant!(ChosenBeforeTheWait, true => chosen.is_none()) {
                chosen = Some(choose(&table, &mut beside));
            }
            // The choice may have moved its place to another table, as somebody else may have before we had the lock.
            if !mutant!(TableOfBefore, is_still(place, parts) => true) {
                chosen = None;
                continue;
            }
            let entered = match (&chosen, &mut beside) {
                (None | Some(Choice::Everything), _) | (Some(Choice::Two(..)), None) => return Err(None),
                (Some(Choice::Part(claim)), _) => {
                    table.enter(&Part { claim: *claim, mode }).map(|own| Places { own, beyond: None })
                }
                (Some(Choice::Two(claim, range)), Some(beyond)) => {
                    table.enter_both(&Part { claim: *claim, mode }, (beyond, Part { claim: Claim::of(range), mode }))
                }
                (Some(Choice::Again(wanted)), _) => {
                    other = Some(*wanted);
                    chosen = None;
                    continue;
                }
                (Some(Choice::Behind), _) => {
                    drop((table, beside));
                    share = self.behind(share, &mut nr_behind)?;
                    // Whoever slept has not been waiting awake.
                    deadline_ns = None;
                    continue;
                }
            };
            let InTheWay(slot, end) = match entered {
                Ok(places) => return Ok(Entered { parts, places, share, table }),
                Err(in_the_way) => in_the_way,
            };
            drop((table, beside));
            // Without the other table's lock, if there was one.
            chosen = mutant!(ChosenBeforeTheWait, None => chosen.filter(|choice| matches!(choice, Choice::Part(_))));
            let until_ns = *deadline_ns.get_or_insert_with(|| P::now() + patience_ns::<P>());
            if !comes_behind() {
                if P::spin_until_deadline(until_ns, || slot.end() != end) {
                    nr_waits += 1;
                    // Where many come and go, another may be in the way by now.
                    deadline_ns = deadline_ns.filter(|_| nr_waits >= MOST_WAITS);
                    continue;
                }
                if !comes_behind() {
                    return Err(None);
                }
            }
            // One who has everything is enough: what was in the way is gone then.
            share = self.behind(share, &mut nr_behind)?;
            (chosen, deadline_ns) = (None, None);
        }
    }

    /// Lets somebody have everything who waits for that, and shares the semaphore again; the share alone if no parts
    /// are given out then, and nothing if it is the caller's turn to have everything.
    #[cold]
    #[track_caller]
    fn behind<'a>(
        &'a self,
        share: ReadGuard<'a, P, S>,
        nr_behind: &mut u32,
    ) -> Result<ReadGuard<'a, P, S>, Option<ReadGuard<'a, P, S>>> {
        drop(share);
        let share = self.semaphore.read();
        *nr_behind += 1;
        if !self.is_divided() {
            return Err(Some(share));
        }
        if *nr_behind > MOST_BEHIND { Err(None) } else { Ok(share) }
    }

    /// Locks a table, and another one if that is named: in the order of their addresses, but the lock's own last.
    #[inline]
    #[track_caller]
    fn locked<'a>(
        &'a self,
        parts: PartTableRef<'a, P>,
        other: Option<PartTableRef<'a, P>>,
    ) -> (HeldRanges<'a, P>, Option<HeldRanges<'a, P>>) {
        let Some(other) = other.filter(|other| !other.is_same(parts)) else { return (parts.lock(), None) };
        let order = |table: PartTableRef<'a, P>| (table.is_same(self.parts()), core::ptr::from_ref(table.queue).addr());
        if order(parts) < order(other) {
            let own = parts.lock();
            (own, Some(other.lock()))
        } else {
            let other = other.lock();
            (parts.lock(), Some(other))
        }
    }

    /// Says whether somebody sleeps in line. Asked by whoever may share what it has alone.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.semaphore.is_contended()
    }
}

fn patience_ns<P: Processor>() -> u64 {
    LEAST_PATIENCE_NS.max(PATIENCE_OF_A_CPU_NS * P::nr_cpus() as u64)
}

/// Says whether a part is still one of a table, which is locked (I5).
#[inline]
fn is_still<'a, P: Processor>(place: &impl Fn() -> Option<PartTableRef<'a, P>>, parts: PartTableRef<'a, P>) -> bool {
    place().is_some_and(|now| now.is_same(parts))
}

/// A part that was just entered; the table is locked still.
struct Entered<'a, P: Processor, S: RwSemaphore<P>> {
    parts: PartTableRef<'a, P>,
    places: Places<'a, P>,
    share: ReadGuard<'a, P, S>,
    table: HeldRanges<'a, P>,
}

enum Guard<'a, P: Processor, S: RwSemaphore<P>> {
    Share(ReadGuard<'a, P, S>),
    Alone(WriteGuard<'a, P, S>),
}

/// Holds everything or a part, for changing it.
#[must_use = "the range is unlocked as soon as the guard is dropped"]
pub struct RangeWriteGuard<'a, P: Processor, S: RwSemaphore<P>> {
    state: &'a P::AtomicU32,
    part: Option<(PartTableRef<'a, P>, Places<'a, P>)>,
    was_divided: bool,
    guard: Guard<'a, P, S>,
}

impl<'a, P: Processor, S: RwSemaphore<P>> RangeWriteGuard<'a, P, S> {
    /// Says whether everything is held.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.part.is_none()
    }

    /// Has parts given out from now on; everything is held.
    pub fn divide(&mut self) {
        debug_assert!(self.is_whole(), "I1");
        self.was_divided = true;
    }

    #[expect(clippy::type_complexity, reason = "the guard's fields")]
    fn into_parts(self) -> (Option<(PartTableRef<'a, P>, Places<'a, P>)>, bool, Guard<'a, P, S>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once, and the original is not dropped.
        (this.part, this.was_divided, unsafe { core::ptr::read(&this.guard) })
    }
}

impl<P: Processor, S: RwSemaphore<P>> Drop for RangeWriteGuard<'_, P, S> {
    #[inline]
    fn drop(&mut self) {
        if let Some((_, Places { own, beyond })) = self.part {
            own.empty();
            beyond.inspect(|slot| slot.empty());
        } else if self.was_divided {
            // Relaxed: I1; the semaphore, which is released next, orders it.
            self.state.store(DIVIDED, Ordering::Relaxed);
            if let Guard::Alone(alone) = &self.guard {
                // Holders of parts share it.
                alone.expect_readers();
            }
        }
    }
}

/// Holds a range for looking.
#[must_use = "the range is unlocked as soon as the guard is dropped"]
pub struct RangeReadGuard<'a, P: Processor, S: RwSemaphore<P>> {
    part: Option<&'a Slot<P>>,
    _share: ReadGuard<'a, P, S>,
}

impl<P: Processor, S: RwSemaphore<P>> Drop for RangeReadGuard<'_, P, S> {
    #[inline]
    fn drop(&mut self) {
        if let Some(part) = self.part {
            part.empty();
        }
    }
}
