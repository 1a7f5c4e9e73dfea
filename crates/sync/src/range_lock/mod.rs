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
//! given out; [`DIVIDED`], they are; [`WHOLE`], somebody has everything, or had it for looking. The file
//! `parts` has the tables, and `wait` how somebody comes to a part.
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
//!   ([`Choice::Two`]). The callers of `write_parts_of`, `write_first_of` and `edit_first_of` see to that.
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

mod parts;
mod wait;

pub use parts::{Claim, HeldRanges, PartTable, PartTableRef};

use crate::{ReadGuard, RwSemaphore, WriteGuard};
use core::mem::ManuallyDrop;
use core::ops::Range;
use faultless_platform::{Atomic, CachePadded, Ordering, Processor, mutant};
use parts::{CAPACITY, Mode, Part, Places, Slot};
use wait::Entered;

/// No part was ever given out.
const UNDIVIDED: u32 = 0;
/// Parts are given out.
const DIVIDED: u32 = 1;
/// Parts were given out, and somebody has everything.
const WHOLE: u32 = 2;

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

    /// Locks the range that `choose` says, under the lock of a table that nobody else holds a part of: for calls that
    /// mostly are alone there, and that go another way if this takes waiting for others of the table. With the part
    /// comes the table's lock, as from [`RangeLock::write_part`]. `choose` is handed that lock, asks whose table it is,
    /// and says nothing if it is another's: with the lock had, no place leaves the table (I5).
    ///
    /// Nothing comes of it if somebody has that lock or a part, if no parts are given out, or if `choose` says nothing.
    ///
    /// ```
    /// use faultless_platform::native::{Machine, Native};
    /// use faultless_sync::{RangeLock, RwSemaphore, Rwsem};
    ///
    /// let lock = RangeLock::<Native, Rwsem<Native>>::new(Rwsem::new());
    /// Machine::new(1).attach(|| {
    ///     assert!(lock.write_first_of(lock.parts(), |_| Some(0..4)).is_none(), "no parts are given out");
    ///     lock.write().divide();
    ///     assert!(lock.write_first_of(lock.parts(), |_| None).is_none());
    ///     let (first, table) = lock.write_first_of(lock.parts(), |_| Some(0..4)).expect("nobody is there");
    ///     drop(table);
    ///     assert!(!first.is_whole() && lock.write_first_of(lock.parts(), |_| Some(5..9)).is_none());
    /// });
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn write_first_of<'a>(
        &'a self,
        parts: PartTableRef<'a, P>,
        choose: impl FnOnce(&HeldRanges<'a, P>) -> Option<Range<u64>>,
    ) -> Option<(RangeWriteGuard<'a, P, S>, HeldRanges<'a, P>)> {
        let (share, mut table) = self.unused_of(parts)?;
        let claim = Claim::of(&choose(&table)?);
        let own = table.enter_first(&Part { claim, mode: Mode::Write });
        let part = Some((parts, Places { own, beyond: None }));
        Some((RangeWriteGuard { state: &self.state, part, was_divided: false, guard: Guard::Share(share) }, table))
    }

    /// Locks a table that nobody holds a part of, without a part of it: for edits that are over before the table's lock
    /// is dropped, so that nobody comes to hold one meanwhile. As with [`RangeLock::write_first_of`] the caller then
    /// asks whose table it is; and it keeps the share, which keeps those out who take everything, until it has dropped
    /// the lock.
    ///
    /// Nothing comes of it if somebody has that lock or a part, or if no parts are given out.
    ///
    /// ```
    /// use faultless_platform::native::{Machine, Native};
    /// use faultless_sync::{RangeLock, RwSemaphore, Rwsem};
    ///
    /// let lock = RangeLock::<Native, Rwsem<Native>>::new(Rwsem::new());
    /// Machine::new(1).attach(|| {
    ///     assert!(lock.edit_first_of(lock.parts()).is_none(), "no parts are given out");
    ///     lock.write().divide();
    ///     let (share, table) = lock.edit_first_of(lock.parts()).expect("nobody is there");
    ///     assert!(lock.edit_first_of(lock.parts()).is_none(), "the table is locked");
    ///     drop(table);
    ///     drop(share);
    /// });
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn edit_first_of<'a>(
        &'a self,
        parts: PartTableRef<'a, P>,
    ) -> Option<(RangeReadGuard<'a, P, S>, HeldRanges<'a, P>)> {
        let (share, table) = self.unused_of(parts)?;
        Some((RangeReadGuard { part: None, _share: share }, table))
    }

    /// Shares the semaphore and locks a table that nobody holds a part of.
    #[inline(always)]
    #[track_caller]
    fn unused_of<'a>(&'a self, parts: PartTableRef<'a, P>) -> Option<(ReadGuard<'a, P, S>, HeldRanges<'a, P>)> {
        let share = self.semaphore.read();
        if !self.is_divided() {
            return None;
        }
        Some((share, parts.try_lock_unused()?))
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

    /// Says whether somebody sleeps in line. Asked by whoever may share what it has alone.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.semaphore.is_contended()
    }
}

/// Says whether a part is still one of a table, which is locked (I5).
#[inline]
fn is_still<'a, P: Processor>(place: &impl Fn() -> Option<PartTableRef<'a, P>>, parts: PartTableRef<'a, P>) -> bool {
    place().is_some_and(|now| now.is_same(parts))
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
