//! The second half of an unmapping: translations go under the shared semaphore, so that readers in line get it.
//!
//! # Guarantee
//! To everybody else an unmapping is one step, although it gives its lock away half way: whoever misses an area while a
//! removal is under way waits until that has ended, and looks again. (Linux turns its lock into a share, too, since
//! 4.20, and doesn't wait: there an access may fail while another one to the same mapping still succeeds.)
//!
//! # Race
//! ```text
//! remover                                        reader (classic fault, madvise, mincore, truncate ...)
//! semaphore alone: areas leave the index
//! a table is empty, and somebody sleeps in line:
//! is_removing = true
//! semaphore shared                               shares the semaphore
//! empties the other tables, shoots down          finds an area: it stays as it is, for no writer comes in
//! lets go of tables and areas                    misses one, is_removing (Acquire): gives the share back, waits for
//! is_removing = false  (Release)                   the semaphore alone, which the remover's share keeps, and looks again
//! gives its share back                           misses one, not is_removing: all of the above has happened
//! ```
//! Forbidden: an access fails, or a call answers, as though something were unmapped, and a translation of it is used
//! later. The mutant `removal-unawaited` is this without the reader's wait.
//!
//! A removal of one table's pages is over before anybody wakes; and while readers hold the semaphore, no writer spins
//! for it. So only those of more tables share it: sharing before the second table looked through, empty or not, cost
//! `vma-lock` a quarter of its malloc1 with 192 threads (simulated).
//!
//! A reader finds no entry of a table that goes: those that an area spans stay (I4 of `table`), and areas come and go
//! under the semaphore alone. For the same reason there is one removal at a time.

use super::change::{Change, RemovedAreas};
use super::permit::{SpaceWriteGuard, WritePermit};
use super::{EVERYTHING, Space, SpaceReadGuard};
use crate::addr::{PageRange, VirtAddr};
use crate::design::Design;
use crate::system::System;
use core::ops::Range;
use faultless_platform::mutant;
use faultless_platform::{Atomic, Ordering};

/// What is left to do when areas have left the index: their translations, and they themselves.
#[must_use = "what a range held stays until the removal is finished"]
pub(super) struct Removal<'a, P: System, D: Design<P>> {
    removed: RemovedAreas<'a, P, D>,
    range: PageRange,
    /// What was free around it, and it, when it left the index, if that is known.
    hole: Option<Range<u64>>,
}

impl<'a, P: System, D: Design<P>> Removal<'a, P, D> {
    /// Returns what is left to do about a range that has left the index.
    #[inline]
    pub(super) fn new(removed: RemovedAreas<'a, P, D>, range: PageRange, hole: Option<Range<u64>>) -> Self {
        Self { removed, range, hole }
    }

    /// Finishes it. `pause` is called between one page table that holds pages and the next.
    #[inline(always)]
    pub(super) fn finish(self, space: &Space<P, D>, pause: &mut dyn FnMut()) {
        space.zap_and_prune(self.range, self.hole, pause);
        drop(self.removed);
    }
}

impl<'a, P: System, D: Design<P>> Change<'a, P, D> {
    /// As [`Change::commit`], for a change that takes `range` away and adds nothing: what stays of its areas serves
    /// faults again at once, since its bounds leave out what the removal takes away.
    #[inline(always)]
    pub(super) fn commit_removal(&mut self, range: PageRange) -> Removal<'a, P, D> {
        let hole = self.hole();
        Removal::new(self.commit_and_hold().let_in(), range, hole)
    }
}

/// The space's semaphore, in the hands of a remover.
struct Lock<'a, P: System, D: Design<P>> {
    space: &'a Space<P, D>,
    alone: Option<SpaceWriteGuard<'a, P, D>>,
    shared: Option<SpaceReadGuard<'a, P, D>>,
}

impl<P: System, D: Design<P>> Lock<'_, P, D> {
    /// Lets readers in if somebody sleeps in line.
    fn share(&mut self) {
        if self.space.is_contended()
            && let Some(alone) = self.alone.take_if(|alone| alone.is_whole())
        {
            // Relaxed: the downgrade releases it to whoever shares the semaphore.
            self.space.is_removing.store(true, Ordering::Relaxed);
            self.shared = Some(alone.downgrade());
        }
    }
}

impl<P: System, D: Design<P>> Drop for Lock<'_, P, D> {
    fn drop(&mut self) {
        if self.shared.is_some() {
            // ORDER: Release pairs with the Acquire in `is_removing`: who sees no removal sees all that it did.
            self.space.is_removing.store(false, Ordering::Release);
        }
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// As [`Space::with_write`], for a call that may end with a removal.
    #[track_caller]
    pub(super) fn with_write_to_remove<R>(
        &self,
        range: Range<VirtAddr>,
        act: impl for<'g> FnOnce(WritePermit<'g, P, D>) -> (R, Option<Removal<'g, P, D>>),
    ) -> R {
        self.remove_with(self.write_settled(range), act)
    }

    /// As [`Space::with_write_to_remove`], with what is locked; `act` keeps nothing of the permit but the removal.
    #[inline]
    pub(super) fn remove_with<'a, R>(
        &'a self,
        write: SpaceWriteGuard<'a, P, D>,
        act: impl FnOnce(WritePermit<'a, P, D>) -> (R, Option<Removal<'a, P, D>>),
    ) -> R {
        let result = {
            let mut lock = Lock { space: self, alone: Some(write), shared: None };
            // SAFETY: `lock` has the range alone, and then shares it until the removal is finished.
            let (result, removal) = act(unsafe { WritePermit::assume(self) });
            if let Some(removal) = removal {
                removal.finish(self, &mut || lock.share());
            }
            result
        };
        self.prune_left_over();
        self.poll_deferred();
        result
    }

    /// Says whether a removal is under way that shares the semaphore; the caller shares it, too.
    #[inline]
    pub(crate) fn is_removing(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `Lock`'s drop.
        mutant!(RemovalUnawaited, self.is_removing.load(Ordering::Acquire) => false)
    }

    /// Waits until what is being unmapped is gone; called without the semaphore.
    #[cold]
    pub(crate) fn await_removal(&self) {
        drop(self.write(EVERYTHING));
        if D::REMOVES_APART {
            self.await_departures();
        }
    }

    /// Shares the semaphore while no removal is under way, and nothing of the range leaves, so that a hole is one.
    #[track_caller]
    pub(crate) fn read_settled(&self, range: Range<VirtAddr>) -> SpaceReadGuard<'_, P, D> {
        loop {
            let read = self.read(range.clone());
            if !self.is_removing() && !read.permit().meets_departure(&range) {
                return read;
            }
            drop(read);
            self.await_removal();
        }
    }

    /// Locks a range for changing it, of which nothing leaves.
    #[inline]
    #[track_caller]
    pub(super) fn write_settled(&self, range: Range<VirtAddr>) -> SpaceWriteGuard<'_, P, D> {
        loop {
            let write = self.write(range.clone());
            if !write.permit().meets_departure(&range) {
                self.join_seams(&write, &range);
                return write;
            }
            drop(write);
            self.await_departures();
        }
    }
}
