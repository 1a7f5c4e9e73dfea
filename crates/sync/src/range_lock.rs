//! A lock of ranges: calls about different ranges are inside at once, one about everything is alone.
//!
//! # Guarantee
//! * Two parts that are held for writing neither overlap nor touch. One that is held for reading overlaps none that is
//!   held for writing.
//! * What a writer holds is chosen under the table's lock, in the state in which it is entered: what was chosen before
//!   a wait is chosen anew.
//! * Who holds everything waits for all parts, and lets nobody in.
//!
//! # Words first
//! `semaphore`: shared by whoever holds a part, alone by who holds everything. `state`: [`UNDIVIDED`], no part was ever
//! given out; [`DIVIDED`], they are; [`WHOLE`], somebody has everything, and puts `DIVIDED` back. `slots`: the parts; a
//! place whose `end` is 0 is empty.
//!
//! # Invariants
//! * I1 `state` is changed by who has everything alone; so a share sees one value. While it is `UNDIVIDED` no part is
//!   entered, and a share alone keeps writers out.
//! * I2 a part is entered under the table's lock, and taken out by its holder, by one store; both have a share. So
//!   under the table's lock places only become empty.
//! * I3 nobody waits for anything else of this lock while it holds a part; so holders of parts leave, and a wait for
//!   everything ends.
//!
//! # Protocol
//! ```text
//! writer of a part                               writer of everything          reader of a part
//! shares the semaphore; divided? else right      takes the semaphore alone     shares the semaphore
//! table lock: chooses; nothing in the way?       was divided? now it is not    divided? else that is enough
//!   enters; else waits for one to leave,         works                         table lock: nothing in the way?
//!   chooses again; after a while right           divided again                   enters; else waits; after a while
//! works                                          releases it                     everything, enters, shares
//! takes the part out                                                           takes the part out
//! gives the share back                                                         gives the share back
//! ```
//! A wait is awake and short; after that the semaphore's queue is where one sleeps, and where nobody is overtaken for
//! ever. Model: `tests/models/range_lock.rs`.
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

/// Parts that are held at once, unless said otherwise; one more takes everything.
const CAPACITY: usize = 64;
/// No part was ever given out.
const UNDIVIDED: u32 = 0;
/// Parts are given out.
const DIVIDED: u32 = 1;
/// Parts were given out, and somebody has everything.
const WHOLE: u32 = 2;
/// How long somebody waits awake for a part.
const PATIENCE_NS: u64 = 20_000;

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
        Self { claim: Claim { start: range.start, end: range.end, ..Claim::default() }, mode: Mode::Read }
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

/// What is in the way of a part.
enum InTheWay<'a, P: Processor> {
    /// A part, which ends there.
    Part(&'a Slot<P>, u64),
    /// There is no place left.
    Crowd,
}

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

    /// Says whether anybody but the writer who holds `own` holds a part of `range`. Asked by whoever would free what
    /// spans the range.
    pub fn is_held_by_others(&self, range: &Range<u64>, own: u64) -> bool {
        self.held().any(|Part { claim, mode }| {
            let is_own = mode == Mode::Write && (claim.start..claim.end).contains(&own);
            !is_own && claim.start < range.end && range.start < claim.end
        })
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
                Some(held) if held.excludes(part) => return Err(InTheWay::Part(slot, held.claim.end)),
                Some(_) => nr_used = place + 1,
            }
        }
        let place = free.unwrap_or(nr_used);
        let slot = self.slots.get(place).ok_or(InTheWay::Crowd)?;
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
///     assert!(lock.is_divided());
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
    /// Those who wait for the table's lock.
    queue: McsQueue<P>,
    table: SpinMutex<P, usize, RangesLock>,
    slots: [Slot<P>; PLACES],
}

impl<P: Processor, S: RwSemaphore<P>, const PLACES: usize> RangeLock<P, S, PLACES> {
    /// Returns a free lock that gives out no parts yet.
    pub fn new(semaphore: S) -> Self {
        Self {
            semaphore: CachePadded::new(semaphore),
            state: CachePadded::new(P::AtomicU32::new(UNDIVIDED)),
            queue: McsQueue::new(),
            table: SpinMutex::classed(0),
            slots: core::array::from_fn(|_| Slot::new()),
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
    fn may_be_divided(&self) -> bool {
        // Relaxed: who needs to know looks again under the semaphore.
        self.state.load(Ordering::Relaxed) != UNDIVIDED
    }

    /// Locks the table: no part comes or goes meanwhile.
    #[inline]
    #[track_caller]
    pub fn table(&self) -> HeldRanges<'_, P> {
        // Who comes while others wait stands behind them: each waits on a line of its own.
        let lock = if self.queue.is_occupied() { None } else { self.table.try_lock() };
        HeldRanges { slots: &self.slots, nr_used: lock.unwrap_or_else(|| self.queue.lock(|| self.table.lock())) }
    }

    /// Locks everything.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RangeWriteGuard<'_, P, S> {
        mutant!(PartsUnawaited => if self.is_divided() {
            return RangeWriteGuard { state: &self.state, part: None, was_divided: false, guard: Guard::Share(self.semaphore.read()) };
        });
        let alone = self.semaphore.write();
        let was_divided = self.is_divided();
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
        if !self.may_be_divided() {
            return (self.write(), None);
        }
        match self.soon_entered(&mut |held| Some(Part { claim: choose(held)?, mode: Mode::Write })) {
            Some(Entered { slot, share, table }) => {
                let guard = Guard::Share(share);
                (RangeWriteGuard { state: &self.state, part: Some(slot), was_divided: false, guard }, Some(table))
            }
            None => (self.write(), None),
        }
    }

    /// Locks a range for looking.
    #[inline]
    #[track_caller]
    pub fn read(&self, range: Range<u64>) -> RangeReadGuard<'_, P, S> {
        if !self.may_be_divided() {
            let share = self.semaphore.read();
            if !self.is_divided() {
                return RangeReadGuard { part: None, _share: share };
            }
        }
        self.read_part(range)
    }

    #[cold]
    #[track_caller]
    fn read_part(&self, range: Range<u64>) -> RangeReadGuard<'_, P, S> {
        match self.soon_entered(&mut |_| Some(Part::read(&range))) {
            Some(Entered { slot, share, .. }) => RangeReadGuard { part: Some(slot), _share: share },
            None => self.downgrade_to(self.write(), range),
        }
    }

    /// As [`RangeLock::read`], if that takes no waiting.
    #[inline]
    #[track_caller]
    pub fn try_read(&self, range: Range<u64>) -> Option<RangeReadGuard<'_, P, S>> {
        let share = self.semaphore.try_read()?;
        if !self.is_divided() {
            return Some(RangeReadGuard { part: None, _share: share });
        }
        let part = self.table().enter(&Part::read(&range)).ok()?;
        Some(RangeReadGuard { part: Some(part), _share: share })
    }

    /// Lets others look, with no writer in between.
    #[track_caller]
    pub fn downgrade<'a>(&'a self, write: RangeWriteGuard<'a, P, S>) -> RangeReadGuard<'a, P, S> {
        let part = write.part.and_then(Slot::read);
        self.downgrade_to(write, part.map_or(0..u64::MAX, |part| part.claim.start..part.claim.end))
    }

    #[track_caller]
    fn downgrade_to<'a>(&'a self, write: RangeWriteGuard<'a, P, S>, range: Range<u64>) -> RangeReadGuard<'a, P, S> {
        let (held, was_divided, guard) = write.into_parts();
        let mut part = None;
        if was_divided {
            part = self.table().enter(&Part::read(&range)).ok();
            debug_assert!(part.is_some(), "nobody else is inside");
            // Relaxed: I1; the downgrade releases it.
            self.state.store(DIVIDED, Ordering::Relaxed);
        } else if let Some(held) = held {
            let _table = self.table();
            held.fill(&Part::read(&range));
            part = Some(held);
        }
        let share = match guard {
            Guard::Alone(alone) => alone.downgrade(),
            Guard::Share(share) => share,
        };
        RangeReadGuard { part, _share: share }
    }

    /// Shares the semaphore and enters what is wanted; nothing if that is not to be had soon.
    #[track_caller]
    fn soon_entered(&self, wanted: &mut dyn FnMut(&HeldRanges<'_, P>) -> Option<Part>) -> Option<Entered<'_, P, S>> {
        let share = self.semaphore.read();
        if !self.is_divided() {
            return None;
        }
        let mut deadline_ns = None;
        let mut chosen = None;
        loop {
            let mut table = self.table();
            if mutant!(ChosenBeforeTheWait, true => chosen.is_none()) {
                chosen = wanted(&table);
            }
            let (slot, end) = match table.enter(&chosen?) {
                Ok(slot) => return Some(Entered { slot, share, table }),
                Err(InTheWay::Part(slot, end)) => (slot, end),
                Err(InTheWay::Crowd) => return None,
            };
            drop(table);
            let deadline_ns = *deadline_ns.get_or_insert_with(|| P::now() + PATIENCE_NS);
            if !P::spin_until_deadline(deadline_ns, || slot.end() != end) {
                return None;
            }
        }
    }

    /// Says whether somebody sleeps in line. Asked by whoever may share what it has alone.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.semaphore.is_contended()
    }
}

/// A part that was just entered; the table is locked still.
struct Entered<'a, P: Processor, S: RwSemaphore<P>> {
    slot: &'a Slot<P>,
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
    part: Option<&'a Slot<P>>,
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

    fn into_parts(self) -> (Option<&'a Slot<P>>, bool, Guard<'a, P, S>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once, and the original is not dropped.
        (this.part, this.was_divided, unsafe { core::ptr::read(&this.guard) })
    }
}

impl<P: Processor, S: RwSemaphore<P>> Drop for RangeWriteGuard<'_, P, S> {
    #[inline]
    fn drop(&mut self) {
        if let Some(part) = self.part {
            part.empty();
        } else if self.was_divided {
            // Relaxed: I1; the semaphore, which is released next, orders it.
            self.state.store(DIVIDED, Ordering::Relaxed);
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
