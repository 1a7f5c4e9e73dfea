//! Where a mapping goes.
//!
//! # Guarantee
//! A place is Linux's for the same areas (`mm/mmap.c`), but where a CPU searches its own range first (`place`). Nothing
//! is mapped there at the time of the search: whoever maps there keeps others from doing so until then.

use super::own_lane::OwnLane;
use super::permit::ReadPermit;
use super::request::{Alignment, HUGE_BYTES, MapRequest, Placement};
use super::{AreaAt, EVERYTHING, Space};
use crate::addr::{PAGE, PageRange, USER_END, VirtAddr, page_ceil};
use crate::area::{Area, AreaFlags};
use crate::design::Design;
use crate::error::CallError;
use crate::limits::Limits;
use crate::system::System;
use crate::types::Map;
use core::ops::Range;

/// Where `MAP_32BIT` puts mappings (`find_start_end` of Linux's x86-64).
pub(super) const LOW_2G: Range<u64> = 0x4000_0000..0x8000_0000;

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    /// Chooses the range.
    #[inline(always)]
    pub(super) fn place(self, request: &MapRequest<'_, P>, len: u64) -> Result<PageRange, CallError> {
        let no_room = CallError::NoRoom { len_bytes: len };
        match request.placement {
            Placement::Anywhere => self.search_aligned(request.backing.alignment(len), len).ok_or(no_room),
            Placement::Hint(hint) => self.near_hint(hint, len, request.backing.alignment(len)).ok_or(no_room),
            Placement::Low2G { hint } => self.search_low(hint, len, request.backing.alignment(len)).ok_or(no_room),
            Placement::Fixed(start) => self.fixed(start, len),
            Placement::FixedNoReplace(start) => self.fixed_and_free(start, len),
        }
    }

    /// As [`Space::fixed`], for a range that must hold nothing.
    pub(super) fn fixed_and_free(self, start: VirtAddr, len: u64) -> Result<PageRange, CallError> {
        let range = self.fixed(start, len)?;
        match self.overlapping(range.addresses()).next() {
            Some(entry) => Err(CallError::Exists { address: entry.start.max(start) }),
            None => Ok(range),
        }
    }

    /// As Linux: a hint in page 0 is none, others are rounded down, and up to the lowest address.
    pub(super) fn near_hint(self, hint: VirtAddr, len: u64, alignment: Alignment) -> Option<PageRange> {
        if hint < VirtAddr::new(PAGE) {
            return self.search_aligned(alignment, len);
        }
        self.at_hint(self.rounded_hint(hint)?, len).or_else(|| self.search_locked(len))
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns where a mapping with this hint begins (`round_hint_to_min`).
    fn rounded_hint(&self, hint: VirtAddr) -> Option<VirtAddr> {
        Some(VirtAddr::new(hint.page().get().max(page_ceil(self.limits.lowest_chosen)?)))
    }
}

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    pub(super) fn at_hint(self, start: VirtAddr, len: u64) -> Option<PageRange> {
        let range = PageRange::new(start, len)?;
        let limit = range.end().get().saturating_add(Limits::stack_gap_bytes());
        match self.first_ending_within(start, limit) {
            Some(next) => (range.end() <= next.start_with_gap()).then_some(range),
            None => Some(range),
        }
    }
}

impl<P: System, D: Design<P>> AreaAt<'_, P, D> {
    /// Returns where the area begins, with the gap below a stack.
    pub(super) fn start_with_gap(&self) -> VirtAddr {
        let grows = self.area().flags().contains(AreaFlags::GROWSDOWN);
        VirtAddr::new(self.start.get().saturating_sub(if grows { Limits::stack_gap_bytes() } else { 0 }))
    }
}

/// Returns the place of `len` bytes that a search finds; of memory that could be of huge pages, one where such a page
/// could begin.
fn aligned(alignment: Alignment, len: u64, search: impl FnOnce(u64) -> Option<PageRange>) -> Option<PageRange> {
    match alignment {
        Alignment::Page => search(len),
        Alignment::Huge => {
            let padded = search(len.checked_add(HUGE_BYTES)?)?;
            // As Linux: the upper end of the padding, also where the lower one is aligned already.
            PageRange::new(padded.start() + (HUGE_BYTES - padded.start().get() % HUGE_BYTES), len)
        }
    }
}

/// Returns the highest place for `len` bytes in a room that also leaves the gap below a stack: `gap` finds the highest
/// gap in a room, `above` the first area that ends behind an address, if it starts below a limit.
fn highest_with_gap<'g, P: System, D: Design<P>>(
    len: u64,
    mut room: Range<u64>,
    gap: impl Fn(Range<u64>) -> Option<u64>,
    above: impl Fn(VirtAddr, u64) -> Option<AreaAt<'g, P, D>>,
) -> Option<PageRange> {
    loop {
        let found = PageRange::new(VirtAddr::new(gap(room.clone())?), len)?;
        // Whoever keeps a gap free below begins within that gap.
        let limit = found.end().get().saturating_add(Limits::stack_gap_bytes() + 1);
        let Some(next) = above(found.end(), limit) else { return Some(found) };
        let end = next.start_with_gap();
        if found.end() <= end {
            return Some(found);
        }
        room.end = end.get();
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns where the places of mappings that may lie anywhere are chosen.
    #[inline]
    pub(super) fn chosen_room(&self) -> Range<u64> {
        self.limits.lowest_chosen.max(PAGE)..self.limits.mmap_base
    }

    /// Searches room for a mapping that may lie anywhere in the CPU's own range, whose lane's lock of edits is had:
    /// nothing if it goes elsewhere.
    pub(super) fn search_own(
        &self,
        request: &MapRequest<'_, P>,
        len: u64,
        lane: &OwnLane<'_, P, Area<P, D>>,
    ) -> Option<PageRange> {
        let Placement::Anywhere = request.placement else { return None };
        let room = self.own_room(self.chosen_room())?;
        if lane.has(&room) { self.search_lane(request, (len, room), lane) } else { None }
    }

    /// As [`Space::search_own`], in a room of the lane.
    #[inline]
    pub(super) fn search_lane(
        &self,
        request: &MapRequest<'_, P>,
        (len, room): (u64, Range<u64>),
        lane: &OwnLane<'_, P, Area<P, D>>,
    ) -> Option<PageRange> {
        aligned(request.backing.alignment(len), len, |len| {
            let above = |start: VirtAddr, _| lane.first_ending_after(start.get()).map(AreaAt::new);
            highest_with_gap(len, room.clone(), |room| lane.index.highest_gap(len, room), above)
        })
    }

    /// Returns the range of a fixed mapping, if there can be one.
    pub(super) fn fixed(&self, start: VirtAddr, len: u64) -> Result<PageRange, CallError> {
        if start > VirtAddr::new(USER_END.saturating_sub(len)) {
            return Err(CallError::NoRoom { len_bytes: len });
        }
        if !start.is_page_aligned() {
            return Err(CallError::Invalid("the fixed address is not a multiple of the page size"));
        }
        self.check_lowest(start)?;
        PageRange::new(start, len).ok_or(CallError::NoRoom { len_bytes: len })
    }

    /// Returns the range that mmap would choose for `len_bytes`, without making a mapping.
    pub fn search(&self, len_bytes: u64) -> Option<PageRange> {
        D::Map::search(self, page_ceil(len_bytes)?)
    }

    /// Searches room between the areas.
    pub(super) fn search_areas(&self, len: u64) -> Option<PageRange> {
        let read = self.read_settled(EVERYTHING);
        read.permit().search_locked(len)
    }

    /// Returns where a range of `len_bytes` has room below `Limits::mmap_base`, stacks' gaps aside; without the
    /// semaphore, so that it may be taken by now.
    pub fn search_unlocked(&self, len_bytes: u64) -> Option<VirtAddr> {
        let (room, len) = (self.chosen_room(), page_ceil(len_bytes)?);
        let _reading = self.look();
        let own = self.own_room(room.clone()).and_then(|own| self.highest_gap_unlocked(len, own));
        own.or_else(|| self.highest_gap_unlocked(len, room)).map(VirtAddr::new)
    }
}

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    /// Searches room; for memory that could be of huge pages, it begins where one could, if there is room for that.
    pub(super) fn search_aligned(self, alignment: Alignment, len: u64) -> Option<PageRange> {
        let found = aligned(alignment, len, |len| self.search_locked(len));
        match alignment {
            Alignment::Page => found,
            Alignment::Huge => found.or_else(|| self.search_locked(len)),
        }
    }

    pub(super) fn search_locked(self, len: u64) -> Option<PageRange> {
        let (low, base) = (self.limits.lowest_chosen.max(PAGE), self.limits.mmap_base);
        let own = self.own_room(low..base).and_then(|room| self.search_between(len, room));
        own.or_else(|| self.search_between(len, low..base)).or_else(|| self.search_lowest(len, base..USER_END))
    }

    /// Searches the highest room that also leaves the gap below a stack.
    fn search_between(self, len: u64, room: Range<u64>) -> Option<PageRange> {
        let above = |start, limit| self.first_ending_within(start, limit);
        highest_with_gap(len, room, |room| self.highest_gap(len, room), above)
    }

    /// Searches the lowest room between 1 and 2 GiB, after the hint's own place; without a hint, memory that could be
    /// of huge pages begins where one could.
    fn search_low(self, hint: VirtAddr, len: u64, alignment: Alignment) -> Option<PageRange> {
        let has_hint = hint >= VirtAddr::new(PAGE);
        let hinted = if has_hint { self.at_hint(self.rounded_hint(hint)?, len) } else { None };
        if let Some(range) = hinted.filter(|range| range.end() <= VirtAddr::new(LOW_2G.end)) {
            return Some(range);
        }
        let alignment = if has_hint { Alignment::Page } else { alignment };
        aligned(alignment, len, |len| self.search_lowest(len, LOW_2G)).or_else(|| self.search_lowest(len, LOW_2G))
    }

    /// Searches the lowest room that also leaves the gap below a stack; as Linux where nothing fits below the base
    /// (`arch_get_unmapped_area_topdown`).
    fn search_lowest(self, len: u64, room: Range<u64>) -> Option<PageRange> {
        let mut start = room.start;
        // A stack above keeps its gap free, so areas count that begin within a gap of the end.
        let end = VirtAddr::new(room.end + Limits::stack_gap_bytes());
        for entry in self.overlapping(VirtAddr::new(start)..end) {
            if start.checked_add(len)? <= entry.start_with_gap().get() {
                break;
            }
            start = start.max(entry.end.get());
        }
        PageRange::new(VirtAddr::new(start), len).filter(|range| range.end().get() <= room.end)
    }
}
