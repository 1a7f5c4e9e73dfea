//! mremap.
//!
//! # A move
//! ```text
//! 1 check limits, set memory aside     4 take the source's area out; move its entries; shoot the source down
//! 2 make the target's tables           5 let faults into the target
//! 3 put the target's area in force in place of what was there, faults kept out; zap what was there
//! ```
//! Nothing changes before step 2 is done, and nothing fails after it. The old translations are gone before the lock is
//! released (CVE-2018-18281).
//!
//! # Errors that change something
//! As on Linux, a move to a fixed place has unmapped what was there, and a shrinking one its tail, when it then finds
//! that the address is too low or a limit is reached. Of a range of several areas, those before the one that fails have
//! moved, and stay there. Without memory ([`CallError::OutOfFrames`]) too: each area moved whole or not at all, so that
//! a caller who finds the first that is left can go on from there. (Setting aside memory for all areas would need as
//! much at once as the call needs one after the other, and moving back needs some again.)

use super::change::{Join, NewArea};
use super::permit::WritePermit;
use super::quantity::Quantity;
use super::quota::RemovedBytes;
use super::request::Alignment;
use super::{AreaAt, EVERYTHING, Space};
use crate::addr::{AddressRange, PAGE, PageRange, USER_END, VirtAddr, page_ceil};
use crate::area::{AreaFlags, AreaView};
use crate::design::Design;
use crate::error::CallError;
use crate::system::System;
use crate::translations::Emptied;
use core::cell::Cell;
use faultless_platform::mutant;

/// Where a remapped range goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapPlacement {
    /// It stays where it is (no `MREMAP_MAYMOVE`).
    InPlace,
    /// It stays if it can, or moves where there is room.
    MayMove,
    /// A kept source moves where there is room, here if that is free; 0 is no wish. Without a kept source this is
    /// `MayMove`: Linux ignores the address.
    Hint(VirtAddr),
    /// It moves to this address although it might stay: a choice that was made before, as a replay knows it from its
    /// recording.
    /// Nothing may be mapped there, not even the source itself.
    MoveTo(VirtAddr),
    /// It moves to this address, in place of what is there (`MREMAP_FIXED`).
    Fixed(VirtAddr),
}

/// The arguments of mremap.
///
/// ```
/// use faultless_vm::{AddressRange, RemapPlacement, RemapRequest, VirtAddr};
///
/// // mremap(0x10000, 0x1000, 0x3000, MREMAP_MAYMOVE)
/// let grow = RemapRequest {
///     old: AddressRange::new(VirtAddr::new(0x10000), 0x1000),
///     new_len_bytes: 0x3000,
///     placement: RemapPlacement::MayMove,
///     keeps_source: false,
/// };
/// # let _ = grow;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RemapRequest {
    /// The old range; length 0 makes a second mapping of a shared one.
    pub old: AddressRange,
    /// Length of the new range.
    pub new_len_bytes: u64,
    /// Where it goes.
    pub placement: RemapPlacement,
    /// Whether the old range stays, empty (`MREMAP_DONTUNMAP`).
    pub keeps_source: bool,
}

/// A request whose lengths are whole pages.
#[derive(Clone, Copy)]
struct Remap {
    old_start: VirtAddr,
    old_len_bytes: u64,
    new_len_bytes: u64,
    placement: RemapPlacement,
    keeps_source: bool,
}

impl Remap {
    /// Returns the address that the caller wants, if any.
    fn wish(&self) -> Option<VirtAddr> {
        match self.placement {
            RemapPlacement::Fixed(start) | RemapPlacement::Hint(start) | RemapPlacement::MoveTo(start) => Some(start),
            RemapPlacement::InPlace | RemapPlacement::MayMove => None,
        }
    }

    /// Says whether the call names its target, so that it moves in any case.
    fn names_target(&self) -> bool {
        self.keeps_source || matches!(self.placement, RemapPlacement::Fixed(_))
    }
}

/// How far a move of several areas has come.
#[derive(Clone, Copy, Default)]
struct MoveProgress {
    /// The last area that moved.
    moved: Option<MovedArea>,
    /// Where the first one is now.
    first: Option<VirtAddr>,
}

/// An area that moved.
#[derive(Clone, Copy)]
struct MovedArea {
    /// Where it ended.
    source_end: VirtAddr,
    /// Where what was asked of it ends now.
    target_end: VirtAddr,
}

impl MoveProgress {
    /// Returns where the next area begins, or what lies before it.
    fn position(&self, request: &Remap) -> VirtAddr {
        self.moved.map_or(request.old_start, |moved| moved.source_end)
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Changes the size of a mapping, or moves it; returns its first address.
    pub fn mremap(&self, request: &RemapRequest) -> Result<VirtAddr, CallError> {
        let request = check(request)?;
        let progress = Cell::new(MoveProgress::default());
        let (start, grown) = self.try_with_write(EVERYTHING, |permit| permit.remap_locked(&request, &progress))?;
        mutant!(MoveFlushedLate => self.flush_late(&request));
        if let Some(grown) = grown {
            self.populate_what_can_be(grown);
        }
        Ok(start)
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Returns where the range is now, and what of it is new and shall be made at once.
    fn remap_locked(
        self,
        request: &Remap,
        progress: &Cell<MoveProgress>,
    ) -> Result<(VirtAddr, Option<PageRange>), CallError> {
        if request.names_target() {
            self.check_room_for_cuts(2)?;
            let is_fixed = matches!(request.placement, RemapPlacement::Fixed(_));
            let keeps_size = request.old_len_bytes == request.new_len_bytes;
            if is_fixed && keeps_size && self.limits.version.moves_several_areas() {
                return Ok((self.move_areas(request, progress)?, None));
            }
        }
        let entry = self.containing(request.old_start);
        let view = self.check_source(entry.as_ref(), request)?;
        if let RemapPlacement::MoveTo(start) = request.placement {
            self.fixed_and_free(start, request.new_len_bytes)?;
        }
        let start = match request.placement {
            RemapPlacement::InPlace | RemapPlacement::MayMove if !request.keeps_source => self.resize(request)?,
            _ => self.move_one(request)?,
        };
        let (old_len, new_len) = (request.old_len_bytes, request.new_len_bytes);
        let is_locked = view.flags.contains(AreaFlags::LOCKED) && new_len > old_len;
        let grown = PageRange::between(start + old_len.min(new_len), start + new_len);
        Ok((start, grown.filter(|_| is_locked)))
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// As Linux: a move stays some areas below the limit, for the cuts it may need.
    fn check_room_for_cuts(&self, nr_more: u64) -> Result<(), CallError> {
        let limit = self.limits.max_map_count;
        if !self.is_allowed(|| self.at_most(Quantity::Areas) + nr_more < limit.saturating_sub(3)) {
            return Err(CallError::TooManyAreas { limit });
        }
        Ok(())
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Moves every area of a range, each as far from the one before as it was. `progress` outlives a shortage: a second
    /// attempt continues with the first area that has not moved.
    fn move_areas(self, request: &Remap, progress: &Cell<MoveProgress>) -> Result<VirtAddr, CallError> {
        let bad = CallError::BadSource { address: request.old_start };
        let end = request.old_start.checked_add(request.old_len_bytes).ok_or(bad)?;
        let wish = request.wish().unwrap_or(VirtAddr::new(0));
        while let Some(entry) = self.first_ending_after(progress.get().position(request)) {
            let MoveProgress { moved, first } = progress.get();
            let position = progress.get().position(request);
            // A kept source may have been joined with its target.
            if entry.start >= end || position >= end {
                break;
            }
            if first.is_none() && entry.start > request.old_start {
                return Err(bad);
            }
            let part = PageRange::between(entry.start.max(position), entry.end.min(end)).ok_or(bad)?;
            let target = moved.map_or(wish, |moved| moved.target_end + (part.start() - moved.source_end));
            let part_request = Remap {
                old_start: part.start(),
                old_len_bytes: part.len_bytes(),
                new_len_bytes: part.len_bytes(),
                placement: RemapPlacement::Fixed(target),
                ..*request
            };
            self.check_source(Some(&entry), &part_request)?;
            let start = self.move_one(&part_request)?;
            let moved = MovedArea { source_end: entry.end, target_end: start + part.len_bytes() };
            progress.set(MoveProgress { moved: Some(moved), first: first.or(Some(start)) });
        }
        progress.get().first.ok_or(bad)
    }

    /// Checks what Linux checks of the source before it does anything; returns the area.
    fn check_source(self, entry: Option<&AreaAt<'_, P, D>>, request: &Remap) -> Result<AreaView<P>, CallError> {
        let bad = CallError::BadSource { address: request.old_start };
        let view = entry.ok_or(bad)?.area().view();
        let (old_len, new_len) = (request.old_len_bytes, request.new_len_bytes);
        if view.flags.contains(AreaFlags::SEALED) {
            return Err(CallError::Sealed { address: view.start });
        }
        let moves = request.names_target() || matches!(request.placement, RemapPlacement::MoveTo(_));
        if new_len <= old_len && !moves {
            return Ok(view);
        }
        if old_len == 0 && !view.flags.contains(AreaFlags::SHARED) {
            return Err(CallError::Invalid("old length 0 is for shared mappings"));
        }
        // What a shrinking range sticks out may leave the area, what is left of it may not.
        if old_len.min(new_len) > view.end - request.old_start {
            return Err(bad);
        }
        if new_len < old_len {
            return Ok(view);
        }
        let added = new_len - old_len;
        if added != 0 {
            if view.page_offset_of(request.old_start).checked_add(new_len / PAGE).is_none() {
                return Err(CallError::Invalid("the offset would overflow"));
            }
            self.check_lock(view.flags, added)?;
            self.check_expansion(view.flags, added, 0)?;
        }
        Ok(view)
    }

    /// Shrinks, keeps or grows a range where it is, or moves it where there is room.
    fn resize(self, request: &Remap) -> Result<VirtAddr, CallError> {
        let (start, old_len, new_len) = (request.old_start, request.old_len_bytes, request.new_len_bytes);
        let bad = CallError::BadSource { address: start };
        if new_len < old_len {
            // A length that leaves user memory is munmap's to refuse, as on Linux.
            let outside = CallError::Invalid("the range leaves user memory");
            let end = start.checked_add(old_len).ok_or(outside)?;
            self.unmap_locked(PageRange::between(start + new_len, end).ok_or(outside)?)?;
        }
        if new_len <= old_len {
            return Ok(start);
        }
        let entry = self.containing(start).ok_or(bad)?;
        if let Some(added) = self.room_behind(&entry, (start + old_len).get(), new_len - old_len) {
            return self.extend(&entry, added).map(|()| start);
        }
        if request.placement == RemapPlacement::InPlace {
            return Err(CallError::NoRoom { len_bytes: new_len });
        }
        self.move_one(request)
    }

    /// Returns the free range behind an area that ends at `end`, if it can grow there.
    fn room_behind(self, entry: &AreaAt<'_, P, D>, end: u64, added: u64) -> Option<PageRange> {
        let added = PageRange::new(VirtAddr::new(end), added).filter(|_| entry.end == VirtAddr::new(end))?;
        let is_free = self.overlapping(added.addresses()).next().is_none();
        (is_free && self.check_lowest(entry.start).is_ok()).then_some(added)
    }

    fn extend(self, entry: &AreaAt<'_, P, D>, added: PageRange) -> Result<(), CallError> {
        let area = entry.area();
        let old = area.view_pinned();
        if old.flags.contains(AreaFlags::ACCOUNT) {
            self.check_commit(added.len_bytes())?;
        }
        let page_offset = old.page_offset_of(added.start());
        let view = AreaView { start: added.start(), end: added.end(), page_offset, ..old };
        let new = NewArea { view, behind: area.behind().clone(), join: Join::Allowed };
        self.prepare_change(added, Some(new))?.commit(|| ());
        Ok(())
    }

    /// Moves a range of one area; what sticks out of a shrinking one is unmapped.
    fn move_one(self, request: &Remap) -> Result<VirtAddr, CallError> {
        let bad = CallError::BadSource { address: request.old_start };
        let fixed = match request.placement {
            RemapPlacement::Fixed(start) => Some(PageRange::new(start, request.new_len_bytes).ok_or(bad)?),
            _ => None,
        };
        if let Some(target) = fixed {
            self.begin_unmapping(target)?;
        }
        let tail = PageRange::between(
            request.old_start.saturating_add(request.new_len_bytes),
            request.old_start.saturating_add(request.old_len_bytes),
        );
        // A second mapping in place of the first, or a length that wraps: the target goes first, and the source with
        // it.
        let loses_source = fixed.is_some_and(|target| target.contains(request.old_start));
        let judged = match tail {
            _ if loses_source => Err(bad),
            Some(tail) => self.begin_unmapping(tail).map(drop),
            None if request.old_len_bytes > request.new_len_bytes => {
                Err(CallError::Invalid("the range leaves user memory"))
            }
            None => Ok(()),
        };
        let judged = judged
            .map_err(|error| (error, None))
            .and_then(|()| self.choose_target(request, fixed).map_err(|error| (error, tail)));
        match judged {
            Ok(target) => {
                self.carry_over(request, target, tail)?;
                Ok(target.start())
            }
            Err((error, tail)) => {
                // As Linux, which finds out after these; they can't fail any more but for memory.
                for part in [fixed, tail].into_iter().flatten() {
                    self.unmap_locked(part)?;
                }
                Err(error)
            }
        }
    }

    /// Returns the target of a move, checked as Linux does when what was there is gone.
    fn choose_target(self, request: &Remap, fixed: Option<PageRange>) -> Result<PageRange, CallError> {
        let bad = CallError::BadSource { address: request.old_start };
        let entry = self.containing(request.old_start).ok_or(bad)?;
        let view = entry.area().view();
        let new_len = request.new_len_bytes;
        if request.keeps_source {
            let removed = fixed.map_or(RemovedBytes::default(), |target| self.removed_by(target));
            self.check_expansion_after(view.flags, new_len, removed)?;
        }
        let target = self.find_target(request, &view)?;
        self.check_room_for_cuts(0)?;
        if view.flags.contains(AreaFlags::ACCOUNT) {
            let added = new_len - if request.keeps_source { 0 } else { request.old_len_bytes.min(new_len) };
            self.check_commit(added)?;
        }
        Ok(target)
    }

    fn removed_by(self, range: PageRange) -> RemovedBytes {
        let mut removed = RemovedBytes::default();
        for entry in self.overlapping(range.addresses()) {
            let bytes = entry.end.min(range.end()) - entry.start.max(range.start());
            removed.bytes += bytes;
            removed.data_bytes += if entry.area().flags().is_data() { bytes } else { 0 };
        }
        removed
    }

    fn find_target(self, request: &Remap, view: &AreaView<P>) -> Result<PageRange, CallError> {
        let len = request.new_len_bytes;
        let alignment = if !view.has_file() { Alignment::of_private(len) } else { Alignment::Page };
        match request.placement {
            RemapPlacement::Fixed(start) | RemapPlacement::MoveTo(start) => self.fixed(start, len),
            RemapPlacement::Hint(wish) if wish.get() >= PAGE => self.at_wish(wish, len),
            RemapPlacement::Hint(_) => self.search_aligned(alignment, len).ok_or(CallError::NoRoom { len_bytes: len }),
            RemapPlacement::MayMove | RemapPlacement::InPlace => {
                self.search_aligned(alignment, len).ok_or(CallError::NoRoom { len_bytes: len })
            }
        }
    }

    /// As Linux, which takes a hint of mremap as it is: one that is too low is refused, not rounded up.
    fn at_wish(self, wish: VirtAddr, len: u64) -> Result<PageRange, CallError> {
        match self.at_hint(wish, len) {
            Some(range) => self.check_lowest(wish).map(|()| range),
            None => self.search_locked(len).ok_or(CallError::NoRoom { len_bytes: len }),
        }
    }

    /// The steps of the module, and the tail's removal.
    fn carry_over(self, request: &Remap, target: PageRange, tail: Option<PageRange>) -> Result<(), CallError> {
        let bad = CallError::BadSource { address: request.old_start };
        let source = PageRange::new(request.old_start, request.old_len_bytes.min(request.new_len_bytes));
        let entry = self.containing(request.old_start).ok_or(bad)?;
        let area = entry.area();
        let view = moved(area.view_pinned(), request, target);
        let new = NewArea { view, behind: area.behind().clone(), join: Join::Allowed };
        let reserve = self.reserve_removal()?;
        let tail = match tail {
            Some(tail) => Some((tail, self.reserve_removal()?)),
            None => None,
        };
        let mut change = self.prepare_change(target, Some(new))?;
        let mut removal = None;
        // From here on no fault adds tables to the source: the target shall have one for each.
        let is_told = mutant!(KeptSourceUnannounced, true => !request.keeps_source);
        let announced = is_told.then(|| area.announce_change(&self));
        if let Some(source) = source {
            self.make_tables(source, target)?;
        }
        let held = change.commit_and_hold();
        self.translations.zap(target, Emptied::All);
        let removed = match source {
            Some(source) if !request.keeps_source => {
                let removed = removal.insert(self.prepare_removal(source, reserve)?).commit_and_hold();
                self.translations.move_entries(source, target);
                self.zap_and_prune(source, None, &mut || ());
                Some(removed)
            }
            Some(source) => self.empty_source(source, target).map(|()| None)?,
            None => None,
        };
        // The source's area is still there. The target before its removal: its change may hold it, as its neighbour.
        drop(announced);
        held.end();
        if let Some(removed) = removed {
            removed.end();
        }
        if let Some((tail, reserve)) = tail {
            self.prepare_removal(tail, reserve)?.commit_removal(tail).finish(&self, &mut || ());
        }
        Ok(())
    }

    /// Moves the pages of a source that stays. As on Linux its area, all of it, is not locked any more, but goes on
    /// counting as locked; and if all of it was moved, it has no reverse-map root either.
    fn empty_source(self, source: PageRange, target: PageRange) -> Result<(), CallError> {
        // Looked up anew: putting the target in force may have cut the area.
        let entry = self.containing(source.start());
        let entry = entry.ok_or(CallError::BadSource { address: source.start() })?;
        let area = entry.area();
        let announced = mutant!(KeptSourceUnannounced, Some(area.announce_change(&self)) => None);
        self.translations.move_entries(source, target);
        let mut view = area.view();
        if view.flags.contains(AreaFlags::LOCKED) {
            view.flags -= AreaFlags::LOCKS;
            self.count_lost_locks(entry.end - entry.start);
        }
        if (entry.start, entry.end) == (source.start(), source.end()) {
            view.root = 0;
            view.flags -= AreaFlags::INHERITED;
        }
        area.set(&view);
        drop(announced);
        Ok(())
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Makes the target's tables for every table that the source has.
    fn make_tables(&self, source: PageRange, target: PageRange) -> Result<(), CallError> {
        self.translations.grow_for_move(source, target).map_err(|error| {
            // No table without an area (I4 of `table`).
            self.prune_holes(target);
            CallError::from(error)
        })
    }

    /// A known bug: takes the old translations away when the lock is given up.
    #[cfg(feature = "mutants")]
    fn flush_late(&self, request: &Remap) {
        if let Some(source) = PageRange::new(request.old_start, request.old_len_bytes) {
            self.flush(source);
        }
    }
}

/// Returns what the target's area shall be.
fn moved<P: System>(old: AreaView<P>, request: &Remap, target: PageRange) -> AreaView<P> {
    // As Linux: anonymous memory that was never written takes the offset of its new place, and may join there.
    let is_untouched = !old.has_file() && old.root == 0;
    let page_offset = if is_untouched { target.start().page_number() } else { old.page_offset_of(request.old_start) };
    AreaView { start: target.start(), end: target.end(), page_offset, ..old }
}

/// Checks the arguments that depend on nothing; returns them with both lengths in whole pages.
fn check(request: &RemapRequest) -> Result<Remap, CallError> {
    if !request.old.start.is_page_aligned() {
        return Err(CallError::Invalid("the old address is not a multiple of the page size"));
    }
    // As Linux: a length so large that rounding it up overflows is none.
    let old_len_bytes = page_ceil(request.old.len_bytes).unwrap_or(0);
    let new_len_bytes = page_ceil(request.new_len_bytes).unwrap_or(0);
    let placement = match request.placement {
        RemapPlacement::Hint(_) if !request.keeps_source => RemapPlacement::MayMove,
        other => other,
    };
    let (old_start, keeps_source) = (request.old.start, request.keeps_source);
    let rounded = Remap { old_start, old_len_bytes, new_len_bytes, placement, keeps_source };
    if new_len_bytes == 0 || new_len_bytes > USER_END {
        return Err(CallError::Invalid("the new length is 0, or more than there is"));
    }
    if rounded.names_target() {
        check_target(&rounded)?;
    }
    Ok(rounded)
}

/// Checks a target that the call names.
fn check_target(request: &Remap) -> Result<(), CallError> {
    let (new_len, start) = (request.new_len_bytes, request.wish().unwrap_or(VirtAddr::new(0)));
    if start > VirtAddr::new(USER_END - new_len) {
        return Err(CallError::Invalid("the new range leaves user memory"));
    }
    if !start.is_page_aligned() {
        return Err(CallError::Invalid("the new address is not a multiple of the page size"));
    }
    let stays = matches!(request.placement, RemapPlacement::InPlace);
    if request.keeps_source && (request.old_len_bytes != new_len || stays) {
        return Err(CallError::Invalid("keeping the source needs equal lengths and a move"));
    }
    let old_end = VirtAddr::new(request.old_start.get().wrapping_add(request.old_len_bytes));
    if old_end > start && start + new_len > request.old_start {
        return Err(CallError::Invalid("old and new range overlap"));
    }
    Ok(())
}
