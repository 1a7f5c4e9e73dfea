//! The place that edits the area list, but for edits that need no plan (`ordinary`).
//!
//! # Guarantee
//! [`Change::fill`] allocates everything; [`Change::commit`] can't fail. So a call that runs out of memory or hits
//! the limit of areas has changed nothing.
//!
//! # What a change is
//! ```text
//! before    LLLLLLL CC DDDD RRRRRR      L sticks out to the left, R to the right, C and D are covered
//! range         [............)
//! after     LLLLNNNNNNNNNNNNNRRRRR      N is new, or nothing; it is joined with L and R where they allow it
//! ```
//! If L and R are one area, R becomes an area of its own.
//!
//! # Rooms
//! | room | what it does |
//! |---|---|
//! | `plan` | finds what stays and what comes, allocates it, prepares the index's edit |
//! | `commit` | announces the change, puts it in force, lets faults in again, lets go of what was removed |
//! | `in_place` | gives a whole area other flags, which needs neither a new area nor an edit |
//! | `reserve` | memory set aside, for a change that may not fail or is planned under a spin lock |
//! | `wide` | edits several indexes, where lanes have their own |
//! | `sizes` | how much there is of what a space counts, and what a change makes of it |

mod commit;
mod in_place;
mod plan;
mod reserve;
mod sizes;
mod wide;

pub(super) use commit::{Departing, RemovedAreas, release_area};
pub(super) use plan::{Grown, grown, write_area};
pub(super) use reserve::Reserve;
pub(super) use sizes::Counted;
pub use sizes::Sizes;

use super::editing::Editing;
use super::map_lock::MapLock;
use super::permit::WritePermit;
use super::{AreaAt, Space};
use crate::addr::{PageRange, VirtAddr};
use crate::area::{Area, AreaView};
use crate::content::Behind;
use crate::design::Design;
use crate::error::CallError;
use crate::index::{Edit, IndexEntry, Spare};
use crate::system::System;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_platform::mutant;

/// An area that stays or comes, with what it shall be.
struct Piece<P: System, D: Design<P>> {
    area: NonNull<Area<P, D>>,
    view: AreaView<P>,
    is_fresh: bool,
}

impl<P: System, D: Design<P>> Clone for Piece<P, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System, D: Design<P>> Copy for Piece<P, D> {}

impl<P: System, D: Design<P>> Piece<P, D> {
    fn entry(&self) -> IndexEntry<Area<P, D>> {
        IndexEntry { start: self.view.start.get(), end: self.view.end.get(), area: self.area }
    }

    fn area(&self) -> &Area<P, D> {
        // SAFETY: the write lock, or the change that made it, keeps the area.
        unsafe { self.area.as_ref() }
    }
}

/// A new area, before it is one.
pub(super) struct NewArea<P: System> {
    pub(super) view: AreaView<P>,
    pub(super) behind: Behind<P>,
    pub(super) join: Join,
}

/// Whether a new area may become part of its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// It may.
    Allowed,
    /// It stays by itself, as a forked one does.
    Never,
    /// With the area above it only, as a stack that grows.
    Above,
    /// With the area below it only, with which it was one but for a seam (`space::seams`).
    Below,
    /// It stays by itself, but is one with the area below it, which it is cut off from.
    Seam,
}

/// Which areas a change is announced to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnnouncedTo {
    /// Every area that takes part.
    All,
    /// All but those that are removed: a known bug.
    #[cfg(feature = "mutants")]
    Staying,
    /// Nobody: a known bug.
    #[cfg(feature = "mutants")]
    Nobody,
}

impl AnnouncedTo {
    /// Says whether an area is told that takes part, and is removed or not.
    fn reaches(self, _is_removed: bool) -> bool {
        match self {
            Self::All => true,
            #[cfg(feature = "mutants")]
            Self::Staying => !_is_removed,
            #[cfg(feature = "mutants")]
            Self::Nobody => false,
        }
    }
}

/// Returns what areas are told that a change of `range` is about.
pub(super) fn announced_range(range: PageRange) -> Range<VirtAddr> {
    mutant!(RangeTooShort, range.addresses() => range.start()..range.start() + crate::PAGE)
}

/// A prepared change; see the module.
#[must_use = "a change that is dropped changes nothing"]
pub(super) struct Change<'a, P: System, D: Design<P>> {
    space: WritePermit<'a, P, D>,
    /// `All`, but where a known bug is put back.
    announced: AnnouncedTo,
    reserve: Option<Reserve<'a, P, D>>,
    edit: Option<Edit<'a, P>>,
    /// Instead of an edit of one index: what edits of several are made of, one after the other.
    wide: Option<Spare<'a, P>>,
    /// Keeps others from editing the index and the counters, from the edit's preparation until they are changed, where
    /// others could (R3 of `ranges`).
    edit_guard: Option<Editing<'a, P, D>>,
    /// Left, new, right: in order, as far as they exist.
    pieces: [Option<Piece<P, D>>; 3],
    /// The range that changes; outside it only areas' bounds move.
    range: PageRange,
    /// All areas that start in here take part.
    span: (u64, u64),
    /// What is free around the range, and it: from the area below to the one above; nothing if others may have edited
    /// the index since it was looked up.
    hole: Option<Range<u64>>,
    /// Whether nothing is mapped in the range; nothing if one look at the index did not find that.
    fills_a_hole: Option<bool>,
    /// Whether other CPUs may be using what the change, in force, has taken away.
    may_be_in_use: bool,
    /// Whether each address is of a like area before and after it, and only bounds move: then faults go on beside it,
    /// and none is waited for (I5 of `area`).
    moves_bounds_alone: bool,
    /// Whether its call relies on the absence of roots no longer when the change ends (I4 of `area`).
    is_the_calls_last: bool,
    /// Whether its call goes on to rely on that: what it makes is pinned from its beginning.
    is_followed: bool,
    /// Whether what comes may be joined with what it touches.
    may_join: bool,
    /// The one area that takes part, if it is one.
    only: Option<AreaAt<'a, P, D>>,
    before: Sizes,
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// As [`WritePermit::prepare_change`] without a new area, out of memory that was set aside: it can't fail.
    pub(super) fn prepare_removal(
        self,
        range: PageRange,
        reserve: Reserve<'g, P, D>,
    ) -> Result<Change<'g, P, D>, CallError> {
        self.prepare(range, None, Some(reserve))
    }

    /// Prepares to take away the area that leaves; out of memory that was set aside, as far as that goes.
    pub(super) fn prepare_arrival(
        self,
        range: PageRange,
        reserve: Option<Reserve<'g, P, D>>,
    ) -> Result<Change<'g, P, D>, CallError> {
        self.prepare(range, None, reserve)
    }

    /// Cuts the area that holds `address` in two there.
    pub(super) fn split_at(self, address: VirtAddr) -> Result<(), CallError> {
        let unmapped = CallError::Unmapped { address };
        let entry = self.containing(address).ok_or(unmapped)?;
        if let Some(mut change) = self.prepare_split(&entry, address, Join::Never)? {
            change.commit(|| ());
        }
        Ok(())
    }

    /// Prepares to cut an area in two at an address of it, of which `join` says what they are to each other; nothing if
    /// it begins there.
    pub(super) fn prepare_split(
        self,
        entry: &AreaAt<'_, P, D>,
        address: VirtAddr,
        join: Join,
    ) -> Result<Option<Change<'g, P, D>>, CallError> {
        let area = entry.area();
        let old = area.view_pinned();
        let Some(range) = PageRange::between(address, old.end).filter(|_| old.start < address) else { return Ok(None) };
        let new = NewArea { view: old.from(address), behind: area.behind().clone(), join };
        self.prepare_change(range, Some(new)).map(Some)
    }

    /// Prepares to put `new`, or nothing, in place of what `range` holds. The caller has checked the limits.
    pub(super) fn prepare_change(
        self,
        range: PageRange,
        new: Option<NewArea<P>>,
    ) -> Result<Change<'g, P, D>, CallError> {
        self.prepare(range, new, None)
    }

    fn prepare(
        self,
        range: PageRange,
        new: Option<NewArea<P>>,
        reserve: Option<Reserve<'g, P, D>>,
    ) -> Result<Change<'g, P, D>, CallError> {
        let mut change = self.unprepared(range, reserve);
        change.fill(new)?;
        Ok(change)
    }

    /// Returns a change of `range` that is still to be prepared ([`Change::fill`]), where its caller keeps it: it is
    /// too large to be handed on by calls that are made all the time.
    #[inline(always)]
    pub(super) fn unprepared(self, range: PageRange, reserve: Option<Reserve<'g, P, D>>) -> Change<'g, P, D> {
        Change {
            space: self,
            announced: mutant!(RemovedUnannounced, AnnouncedTo::All => AnnouncedTo::Staying),
            reserve,
            edit: None,
            wide: None,
            edit_guard: None,
            pieces: [None; 3],
            range,
            span: (range.start().get(), range.end().get()),
            hole: None,
            fills_a_hole: None,
            may_be_in_use: true,
            moves_bounds_alone: false,
            is_the_calls_last: false,
            is_followed: false,
            may_join: false,
            only: None,
            before: Sizes::default(),
        }
    }
}

impl<'a, P: System, D: Design<P>> Change<'a, P, D> {
    /// A known bug: the change is not announced.
    #[cfg(feature = "mutants")]
    pub(super) fn leave_unannounced(&mut self) {
        self.announced = AnnouncedTo::Nobody;
    }

    /// Says that its call decides nothing more by roots: when the change ends, faults may give its areas roots again.
    pub(super) fn note_last_of_call(&mut self) {
        self.is_the_calls_last = true;
    }

    /// Says that its call makes another change, which relies on the absence of roots.
    pub(super) fn note_followed(&mut self) {
        self.is_followed = true;
    }

    /// Says that each address has a like area before and after the change. No fault gives those areas roots meanwhile:
    /// they have one, or its absence is pinned.
    pub(super) fn note_bounds_alone(&mut self) {
        self.moves_bounds_alone = true;
    }

    /// Returns what is free around the range, and it, as soon as the change is in force; nothing if others, who edit
    /// beside the caller, may have made it larger since the change was prepared.
    pub(super) fn hole(&self) -> Option<Range<u64>> {
        self.hole.clone()
    }

    /// Returns what all areas that take part have, or had.
    fn spanned(&self) -> Range<VirtAddr> {
        VirtAddr::new(self.span.0)..VirtAddr::new(self.span.1)
    }

    /// Returns how many areas more there will be.
    pub(super) fn nr_added(&self) -> i64 {
        self.sizes().areas.cast_signed() - self.before.areas.cast_signed()
    }

    /// Lets others edit again.
    fn end_edit(&mut self) {
        let ended = self.reserve.as_mut().is_some_and(Reserve::end_edit);
        if D::Lock::DIVIDES && (self.edit_guard.take().is_some() || ended) {
            self.hole = None;
        }
    }
}

impl<P: System, D: Design<P>> Drop for Change<'_, P, D> {
    fn drop(&mut self) {
        // What is not needed is freed when others may edit again; but the edit looks at the index.
        self.edit = None;
        self.end_edit();
        for piece in self.pieces.iter().flatten().filter(|piece| piece.is_fresh) {
            self.space.discard(piece.area);
        }
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Frees an area that was never published.
    pub(super) fn discard(&self, area: NonNull<Area<P, D>>) {
        // SAFETY: nobody else knows it.
        unsafe {
            core::ptr::drop_in_place(area.as_ptr());
            self.vm().areas.free(area);
        }
    }
}
