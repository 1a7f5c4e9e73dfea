//! A long unmapping that gives the space's lock away before it empties its page tables.
//!
//! # Guarantee
//! To everybody else the unmapping is one step. An area without rights, which *leaves*, keeps the addresses taken until
//! the translations are gone; a fault or a call that is about them waits for that, and looks again. Calls about other
//! addresses go on meanwhile, and count what leaves as though it were mapped: they come before the unmapping.
//!
//! # Race
//! ```text
//! remover                                        who is about those addresses (fault, call)
//! semaphore alone: shares `departing`, or gives  has the semaphore: finds the area that leaves
//!   the departure up if somebody waits for it    gives the semaphore back
//! the areas go, one that leaves comes; lets go   waits for `departing` alone, which every remover shares
//! waits for faults that found the areas before   looks again
//! empties tables, shoots down, frees what lay in
//! semaphore alone: the area goes, and the tables that were shared with what lies beside it
//! lets go; shoots those tables down; lets go of `departing`
//! ```
//! Forbidden: an access or a call finds something unmapped whose translations are used later; a new mapping lies where
//! entries are still to be emptied. The mutant `departure-unawaited` is this without the wait.
//!
//! No deadlock: a remover waits for the semaphore while it shares `departing`; but nobody waits for `departing` who has
//! the semaphore, since a remover that would have to does without a departure. Nobody starves: while somebody waits,
//! no other departure begins.
//!
//! # Why not for every unmapping
//! It takes the semaphore twice. One of a single table's pages is over sooner than the second wait; and who has the
//! space for himself keeps nobody waiting.

use super::change::{Departing, Join, NewArea, Reserve};
use super::permit::{ReadPermit, WritePermit};
use super::{EVERYTHING, Space};
use crate::addr::{PageRange, VirtAddr};
use crate::area::{AreaFlags, AreaView};
use crate::content::{Behind, Content};
use crate::design::Design;
use crate::error::CallError;
use crate::system::System;
use crate::translations::gather::Gather;
use crate::translations::table::Tables;
use crate::types::SemaphoreOf;
use core::ops::Range;
use faultless_platform::mutant;
use faultless_sync::{ReadGuard, RwSemaphore};

/// An unmapping without the space's lock; see the module.
#[must_use = "what a range held stays until the departure is finished"]
struct Departure<'a, P: System, D: Design<P>> {
    space: &'a Space<P, D>,
    range: PageRange,
    departing: Departing<P, D>,
    reserve: Reserve<'a, P, D>,
    _share: ReadGuard<'a, P, SemaphoreOf<P, D>>,
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Unmaps a range apart from the space's lock; says whether it did, or the usual way is the better one, as it is
    /// where nobody else can be waiting.
    #[inline]
    pub(super) fn unmap_apart(&self, range: PageRange) -> Result<bool, CallError> {
        if D::REMOVES_APART && self.is_shared() { self.unmap_apart_if_long(range) } else { Ok(false) }
    }

    #[inline(never)]
    fn unmap_apart_if_long(&self, range: PageRange) -> Result<bool, CallError> {
        if !self.is_long(range) {
            return Ok(false);
        }
        let Ok(reserve) = self.reserve_departure() else { return Ok(false) };
        let departure = {
            let write = self.write_settled(range.addresses());
            write.permit().begin_departure(self, range, reserve)?
        };
        let is_done = departure.is_some();
        if let Some(departure) = departure {
            departure.finish();
            self.poll_deferred();
        }
        Ok(is_done)
    }

    /// Says whether a range has pages in so many tables that others would wait for long.
    fn is_long(&self, range: PageRange) -> bool {
        range.end() > VirtAddr::new(Tables::<P>::leaf_end(range.start().get()))
            && self.translations.has_entries_in_two_tables(range)
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Puts an area that leaves in place of what a range holds; nothing if it holds nothing, or if somebody waits for
    /// other departures.
    fn begin_departure<'a>(
        self,
        space: &'a Space<P, D>,
        range: PageRange,
        reserve: Reserve<'a, P, D>,
    ) -> Result<Option<Departure<'a, P, D>>, CallError> {
        if self.begin_unmapping(range)?.bytes == 0 {
            return Ok(None);
        }
        let Some(share) = space.departures.departing.try_read() else { return Ok(None) };
        let view = AreaView {
            start: range.start(),
            end: range.end(),
            flags: AreaFlags::LEAVING,
            page_offset: 0,
            object: None,
            content: Content::Zeros,
            opening: 0,
            root: 0,
        };
        let change = self.prepare_change(range, Some(NewArea { view, behind: Behind::Zeros, join: Join::Never }))?;
        let departing = change.commit_departure();
        space.departures.begin();
        Ok(Some(Departure { space, range, departing, reserve, _share: share }))
    }
}

impl<P: System, D: Design<P>> Departure<'_, P, D> {
    /// Empties the range's tables, and then lets others have its addresses.
    fn finish(self) {
        let space = self.space;
        D::await_faults(space, self.departing.addresses());
        space.translations.zap_departing(self.range);
        let counted = self.departing.release_areas(space);
        // Flushed when the space is not locked any more.
        let mut gather = Gather::new(&space.translations, self.range);
        let mut reserve = Some(self.reserve);
        loop {
            let write = space.write(self.range.addresses());
            let permit = write.permit();
            if let Ok(arrival) = permit.prepare_arrival(self.range, reserve.take()) {
                arrival.commit_arrival();
                permit.count(&counted);
                space.prune_into(self.range, &mut gather);
                space.departures.end();
                return;
            }
            // More areas came meanwhile than the reserve is for, and there is no frame: until there is one.
            drop(write);
            space.vm().flush();
        }
    }
}

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    /// Says whether an area that leaves has a part of a range.
    #[inline]
    pub(crate) fn meets_departure(self, range: &Range<VirtAddr>) -> bool {
        D::REMOVES_APART
            && mutant!(DepartureUnawaited, self.departures.are_under_way() => false)
            && (*range == EVERYTHING || self.overlapping(range.clone()).any(|entry| entry.area().leaves()))
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Waits until the departures have ended that are under way; called without the space's lock.
    #[cold]
    pub(super) fn await_departures(&self) {
        drop(self.departures.departing.write());
    }
}
