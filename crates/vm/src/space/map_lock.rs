//! Who waits for whom: how the calls of a space exclude each other.
//!
//! # The seam
//! Calls say which addresses they are about and whether they look or change; [`MapLock`] decides who waits for whom.
//! The published designs lock the whole space ([`WholeSpace`]), whatever the range. A lock that *divides* it
//! ([`MapLock::DIVIDES`]) lets calls that name their part in side by side; `ranges` has what else that takes.

use super::lane_rooms::LaneRooms;
use super::left_over::LeftOver;
use crate::addr::VirtAddr;
use crate::system::System;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_sync::{Choose, HeldRanges, PartTableRef, ReadGuard, RwSemaphore, WriteGuard};

/// How the calls of a space exclude each other, and the faults that lock as they do.
///
/// A range says what the caller is about. What it does reaches farther: it joins and cuts the areas that meet the
/// range, frees tables that span more of the hole around it, and edits the space's one index and its counters. A lock
/// that lets two writers in at once keeps all of that apart: [`Ranges`](super::Ranges) does.
///
/// # Safety
/// While a guard for writing lives, there is no other guard that permits to look at, or change, what its holder does.
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | calls that change a space | `write`, and `downgrade` once only tables are left to change |
/// | calls that look, faults that lock | `read`; `try_read` where a fault would rather tell its design than wait |
/// | a long unmapping, to give way | `is_contended` |
/// | calls that name their part, of a lock that divides the space | `DIVIDES`, `write_part`, `write_first`, `edit_first`, `is_whole` |
/// | those of them that edit the index, or free tables | `is_divided`, `edit`, `left_over` |
/// | those of them that get a lane made | `is_edited_by`, `edit_rest` |
/// | those of them that reach a lane's bound | `parts_at`, `is_edited_by` |
/// | those of them that are about a space without lanes | `common_parts` |
/// | whoever looks for areas | `lanes` |
/// | a second user of a space | `set_lanes`, `divide` |
/// | a new space | `new`, `set_lanes` |
pub unsafe trait MapLock<P: System>: Send + Sync + Sized + 'static {
    /// The semaphore that it is made of.
    type Semaphore: RwSemaphore<P>;
    /// Keeps areas and tables of a range as they are.
    type Read<'a>;
    /// Permits to change them.
    type Write<'a>;

    /// Makes the lock of a new space.
    fn new(semaphore: Self::Semaphore) -> Self;
    /// Tells the lock where each lane has a table of its own, once; the caller has everything, and no part was given
    /// out.
    fn set_lanes(&self, _lanes: NonNull<LaneRooms<P>>) {}
    /// Returns what [`MapLock::set_lanes`] said.
    #[inline]
    fn lanes(&self) -> Option<&LaneRooms<P>> {
        None
    }
    /// Locks a range for looking.
    #[track_caller]
    fn read(&self, range: Range<VirtAddr>) -> Self::Read<'_>;
    /// As [`MapLock::read`], if that takes no waiting.
    #[track_caller]
    fn try_read(&self, range: Range<VirtAddr>) -> Option<Self::Read<'_>>;
    /// Locks a range for changing it.
    #[track_caller]
    fn write(&self, range: Range<VirtAddr>) -> Self::Write<'_>;
    /// Lets others look, with no writer in between.
    fn downgrade<'a>(&'a self, write: Self::Write<'a>) -> Self::Read<'a>;
    /// Says whether somebody sleeps in line.
    fn is_contended(&self) -> bool;

    /// Whether several may be inside at once who change different parts.
    const DIVIDES: bool = false;

    /// Lets such in from now on; the caller has everything.
    fn divide(_everything: &mut Self::Write<'_>) {}
    /// Says whether such may be inside beside the caller, who has something.
    #[inline]
    fn is_divided(&self) -> bool {
        false
    }
    /// Says whether such were ever let in, never where there are none; a hint, but to who has something.
    #[inline]
    fn may_be_divided(&self) -> bool {
        false
    }
    /// Locks what `choose` says, which is called under the lock of [`MapLock::edit`]: no part that is not inside the
    /// lane of `near`. With a part comes that lock. `choose` is handed another lane's, if it asked for that
    /// ([`Choice::Again`](faultless_sync::Choice)), or takes it there.
    #[track_caller]
    fn write_part<'a>(
        &'a self,
        _near: VirtAddr,
        _choose: &mut Choose<'_, 'a, P>,
    ) -> (Self::Write<'a>, Option<EditGuard<'a, P>>) {
        (self.write(crate::addr::EVERYTHING), None)
    }
    /// As [`MapLock::write_part`], of a table of which nobody holds a part. `choose` is handed the table's lock, and
    /// says a part of that table alone. Nothing comes of it if somebody holds a part, or has that lock, or if `choose`
    /// says nothing.
    #[inline(always)]
    #[track_caller]
    fn write_first<'a>(
        &'a self,
        _parts: PartTableRef<'a, P>,
        _choose: impl FnOnce(&EditGuard<'a, P>) -> Option<Range<u64>>,
    ) -> Option<(Self::Write<'a>, EditGuard<'a, P>)> {
        None
    }
    /// As [`MapLock::write_first`], without a part: for a call that has done everything when it drops the table's lock,
    /// and keeps the share until then.
    #[inline(always)]
    #[track_caller]
    fn edit_first<'a>(&'a self, _parts: PartTableRef<'a, P>) -> Option<(Self::Read<'a>, EditGuard<'a, P>)> {
        None
    }
    /// Says whether a writer has everything.
    #[inline]
    fn is_whole(_write: &Self::Write<'_>) -> bool {
        true
    }
    /// Keeps others from editing the index, the counters and what is held, of the lane of `near`; nothing where nobody
    /// could.
    #[inline]
    #[track_caller]
    fn edit(&self, _near: VirtAddr) -> Option<EditGuard<'_, P>> {
        None
    }
    /// Returns the table of what lies in no lane, of a lock that divides the space.
    fn common_parts(&self) -> Option<PartTableRef<'_, P>> {
        None
    }
    /// Returns the table whose lock [`MapLock::edit`] takes.
    fn parts_at(&self, _near: VirtAddr) -> Option<PartTableRef<'_, P>> {
        None
    }
    /// Says whether a lock of edits is that of the lane of `near`.
    #[inline]
    fn is_edited_by(&self, _near: VirtAddr, _held: &HeldRanges<'_, P>) -> bool {
        false
    }
    /// As [`MapLock::edit`], of what lies in no lane.
    #[track_caller]
    fn edit_rest(&self) -> Option<EditGuard<'_, P>> {
        None
    }
    /// Returns where page tables are noted that a holder of a part left standing.
    #[inline]
    fn left_over(&self) -> Option<&LeftOver<P>> {
        None
    }
}

/// Keeps other holders of parts from editing what all share; [`MapLock::edit`]
/// returns it, and so does [`MapLock::write_part`].
pub type EditGuard<'a, P> = HeldRanges<'a, P>;

/// One semaphore around each call, whatever its range.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::{RwSemaphore, Rwsem};
/// use faultless_vm::VirtAddr;
/// use faultless_vm::design::{MapLock, WholeSpace};
///
/// let lock: WholeSpace<Rwsem<Native>> = MapLock::<Native>::new(Rwsem::<Native>::new());
/// let (low, high) = (VirtAddr::new(0)..VirtAddr::new(4096), VirtAddr::new(4096)..VirtAddr::new(8192));
/// let writer = MapLock::<Native>::write(&lock, low);
/// assert!(MapLock::<Native>::try_read(&lock, high).is_none(), "whatever the range");
/// drop(writer);
/// ```
pub struct WholeSpace<S>(S);

// SAFETY: a writer has the semaphore alone.
unsafe impl<P: System, S: RwSemaphore<P>> MapLock<P> for WholeSpace<S> {
    type Semaphore = S;
    type Read<'a> = ReadGuard<'a, P, S>;
    type Write<'a> = WriteGuard<'a, P, S>;

    fn new(semaphore: S) -> Self {
        Self(semaphore)
    }

    #[inline]
    #[track_caller]
    fn read(&self, _: Range<VirtAddr>) -> ReadGuard<'_, P, S> {
        self.0.read()
    }

    #[inline]
    #[track_caller]
    fn try_read(&self, _: Range<VirtAddr>) -> Option<ReadGuard<'_, P, S>> {
        self.0.try_read()
    }

    #[inline]
    #[track_caller]
    fn write(&self, _: Range<VirtAddr>) -> WriteGuard<'_, P, S> {
        self.0.write()
    }

    #[inline]
    fn downgrade<'a>(&'a self, write: WriteGuard<'a, P, S>) -> ReadGuard<'a, P, S> {
        write.downgrade()
    }

    #[inline]
    fn is_contended(&self) -> bool {
        self.0.is_contended()
    }
}
