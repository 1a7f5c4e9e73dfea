//! mremap.
//!
//! # A move
//! ```text
//! 1 check limits, set memory aside     4 take the source's area out; move its entries; shoot the source down
//! 2 make the target's tables           5 let faults into the target
//! 3 put the target's area in force in place of what was there, faults kept out; zap what was there
//! ```
//! After 2 nothing can fail, and until then nothing has changed. The old translations are gone before the lock is (CVE-2018-18281).

use super::Space;
use super::change::{Join, NewArea};
use crate::addr::{PAGE, PageRange, is_page_aligned, page_ceil};
use crate::area::{Area, AreaFlags, AreaView};
use crate::design::Design;
use crate::entry::Entry;
use crate::error::CallError;
use crate::table::Tables;
use faultless_platform::{Atomic, Ordering, Platform};

/// Where a remapped range goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapPlacement {
    /// It stays where it is (no `MREMAP_MAYMOVE`).
    InPlace,
    /// It stays if it can, or moves where there is room.
    MayMove,
    /// It moves to this address although it might stay: a recorded choice, made after the search that Linux made too.
    MoveTo(u64),
    /// It moves to this address, in place of what is there (`MREMAP_FIXED`).
    Fixed(u64),
}

/// What mremap is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RemapRequest {
    /// First byte of the old range.
    pub old_start: u64,
    /// Length of the old range; 0 makes a second mapping of a shared one.
    pub old_len_bytes: u64,
    /// Length of the new range.
    pub new_len_bytes: u64,
    /// Where it goes.
    pub placement: RemapPlacement,
    /// Whether the old range stays, empty (`MREMAP_DONTUNMAP`).
    pub keeps_source: bool,
}

impl<P: Platform, D: Design<P>> Space<P, D> {
    /// Changes the size of a mapping, or moves it; returns its first address.
    pub fn mremap(&self, request: &RemapRequest) -> Result<u64, CallError> {
        let (old_len, new_len) = check(request)?;
        self.with_write(|| self.remap_locked(request, old_len, new_len))
    }

    fn remap_locked(&self, request: &RemapRequest, old_len: u64, new_len: u64) -> Result<u64, CallError> {
        let must_move =
            request.keeps_source || matches!(request.placement, RemapPlacement::Fixed(_) | RemapPlacement::MoveTo(_));
        if old_len == 0 && request.placement == RemapPlacement::InPlace {
            return Err(CallError::NoRoom { len_bytes: new_len });
        }
        if !must_move && old_len != 0 {
            if let Some(start) = self.resize_in_place(request.old_start, old_len, new_len)? {
                return Ok(start);
            }
            if request.placement == RemapPlacement::InPlace {
                return Err(CallError::NoRoom { len_bytes: new_len });
            }
        }
        self.move_range(request, old_len, new_len)
    }

    /// Shrinks, keeps or grows a range where it is; `None` if there is no room.
    fn resize_in_place(&self, start: u64, old_len: u64, new_len: u64) -> Result<Option<u64>, CallError> {
        let bad = CallError::BadSource { address: start };
        let old = PageRange::new(start, old_len).ok_or(bad)?;
        let area = self.index.containing(start).ok_or(bad)?;
        if new_len < old_len {
            self.unmap_locked(PageRange::between(start + new_len, old.end()).ok_or(bad)?)?;
        }
        if new_len <= old_len {
            return Ok(Some(start));
        }
        if area.end < old.end() {
            return Err(bad);
        }
        let added = PageRange::new(old.end(), new_len - old_len);
        match added.filter(|added| area.end == old.end() && self.is_free(*added)) {
            Some(added) => self.extend(&area, added).map(|()| Some(start)),
            None => Ok(None),
        }
    }

    fn is_free(&self, range: PageRange) -> bool {
        self.index.overlapping(range.addresses()).next().is_none()
    }

    fn extend(&self, entry: &crate::index::Entry<Area<P, D>>, added: PageRange) -> Result<(), CallError> {
        // SAFETY: the write lock keeps the area.
        let area = unsafe { entry.area.as_ref() };
        let old = area.view();
        let page_offset = old.page_offset_of(added.start());
        let view = AreaView { start: added.start(), end: added.end(), page_offset, ..old };
        let new = NewArea { view, object: area.object().cloned(), join: Join::Allowed };
        self.check_total(added, None)?;
        self.prepare_change(added, Some(new))?.commit(|| ());
        Ok(())
    }

    fn move_range(&self, request: &RemapRequest, old_len: u64, new_len: u64) -> Result<u64, CallError> {
        let bad = CallError::BadSource { address: request.old_start };
        let entry = self.index.containing(request.old_start).ok_or(bad)?;
        let source = match old_len {
            0 => None,
            len => Some(PageRange::new(request.old_start, len).filter(|old| old.end() <= entry.end).ok_or(bad)?),
        };
        // SAFETY: the write lock keeps the area.
        let shared = unsafe { entry.area.as_ref() }.view().flags.contains(AreaFlags::SHARED);
        if source.is_none() && !shared {
            return Err(CallError::Invalid("old length 0 is for shared mappings"));
        }
        let target = self.target(request, new_len)?;
        if source.is_some_and(|source| source.intersection(target.addresses()).is_some()) {
            return Err(CallError::Invalid("old and new range overlap"));
        }
        // As Linux: room for what cutting source and target may add.
        let limit = self.limits.max_map_count;
        if self.nr_areas() + 2 > limit {
            return Err(CallError::TooManyAreas { limit });
        }
        self.carry_over(request, source, target)?;
        Ok(target.start())
    }

    fn target(&self, request: &RemapRequest, new_len: u64) -> Result<PageRange, CallError> {
        let no_room = CallError::NoRoom { len_bytes: new_len };
        match request.placement {
            RemapPlacement::Fixed(start) | RemapPlacement::MoveTo(start) => {
                if matches!(request.placement, RemapPlacement::MoveTo(_)) {
                    // For its cost: the place is chosen already.
                    self.search_locked(new_len);
                }
                if !is_page_aligned(start) {
                    return Err(CallError::Invalid("the new address is not a multiple of the page size"));
                }
                if start < self.limits.mmap_min_addr {
                    return Err(CallError::TooLow { lowest: self.limits.mmap_min_addr });
                }
                PageRange::new(start, new_len).ok_or(CallError::Invalid("the new range leaves user memory"))
            }
            RemapPlacement::MayMove | RemapPlacement::InPlace => self.search_locked(new_len).ok_or(no_room),
        }
    }

    /// The steps of the module.
    fn carry_over(
        &self,
        request: &RemapRequest,
        source: Option<PageRange>,
        target: PageRange,
    ) -> Result<(), CallError> {
        let bad = CallError::BadSource { address: request.old_start };
        let entry = self.index.containing(request.old_start).ok_or(bad)?;
        // SAFETY: the write lock keeps the area.
        let area = unsafe { entry.area.as_ref() };
        let new =
            NewArea { view: moved(area.view(), request, target), object: area.object().cloned(), join: Join::Allowed };
        self.check_total(target, source.filter(|_| !request.keeps_source))?;
        let reserve = self.reserve_removal()?;
        let change = self.prepare_change(target, Some(new))?;
        if let Some(source) = source {
            self.make_tables(source, target)?;
        }
        let held = change.commit_and_hold();
        self.zap(target);
        match source {
            None => {}
            Some(source) if request.keeps_source => self.empty_source(source, target)?,
            Some(source) => {
                let removed = self.prepare_removal(source, reserve)?.commit_and_hold();
                self.move_entries(source, target);
                self.zap_and_prune(source);
                // Before the source is let go: the target's change may hold it, as its neighbour.
                held.end();
                removed.end();
                return Ok(());
            }
        }
        held.end();
        Ok(())
    }

    fn empty_source(&self, source: PageRange, target: PageRange) -> Result<(), CallError> {
        // Looked up anew: putting the target in force may have cut the area.
        let entry = self.index.containing(source.start());
        let entry = entry.ok_or(CallError::BadSource { address: source.start() })?;
        // SAFETY: the write lock keeps the area.
        let area = unsafe { entry.area.as_ref() };
        area.begin_change();
        self.move_entries(source, target);
        area.end_change();
        Ok(())
    }

    /// Makes the target's tables for every table that the source has.
    fn make_tables(&self, source: PageRange, target: PageRange) -> Result<(), CallError> {
        let mut result = Ok(());
        let memory = self.memory();
        self.tables.for_each_leaf(memory, source.addresses(), &mut |_, part| {
            let first = part.start - source.start() + target.start();
            let last = part.end - PAGE - source.start() + target.start();
            for address in [first, last].into_iter().filter(|address| target.contains(*address)) {
                result = result.and(self.tables.walk_or_grow(memory, address).map(drop));
            }
            result.is_ok()
        });
        result.map_err(CallError::from)
    }

    /// Moves the entries of a range, and takes the translations to their old places away.
    fn move_entries(&self, source: PageRange, target: PageRange) {
        let memory = self.memory();
        self.tables.for_each_leaf(memory, source.addresses(), &mut |table, part| {
            for address in part.step_by(PAGE as usize) {
                let new_address = address - source.start() + target.start();
                if target.contains(new_address) {
                    self.move_entry(Tables::leaf_slot(memory, table, address), table, new_address);
                }
            }
            true
        });
        self.flush(source);
    }

    fn move_entry(&self, slot: &P::AtomicU64, table: faultless_phys::Pfn, new_address: u64) {
        let memory = self.memory();
        let entry = {
            let _lock = memory.page(table).lock().guard();
            // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets accessed and dirty bits.
            Entry::from_bits(slot.swap(0, Ordering::AcqRel))
        };
        if entry.is_empty() {
            return;
        }
        // `make_tables` made it; without it the page would be lost, so a missing one is a broken invariant.
        let leaf = self.tables.walk(memory, new_address);
        debug_assert!(leaf.is_some(), "the target of a move has no table");
        if let Some(leaf) = leaf {
            let _lock = memory.page(leaf.table).lock().guard();
            // ORDER: Release pairs with the Acquire in `table::load`.
            leaf.slot.store(entry.bits(), Ordering::Release);
        }
    }
}

/// Returns what the target's area shall be.
fn moved<P: Platform>(old: AreaView<P>, request: &RemapRequest, target: PageRange) -> AreaView<P> {
    // As Linux: anonymous memory that was never written takes the offset of its new place, and may join there.
    let is_untouched = old.object.is_none() && old.root == 0;
    let page_offset = if is_untouched { target.start() / PAGE } else { old.page_offset_of(request.old_start) };
    AreaView { start: target.start(), end: target.end(), page_offset, ..old }
}

/// Checks the arguments that depend on nothing; returns both lengths in whole pages.
fn check(request: &RemapRequest) -> Result<(u64, u64), CallError> {
    if !is_page_aligned(request.old_start) {
        return Err(CallError::Invalid("the old address is not a multiple of the page size"));
    }
    let lengths = page_ceil(request.old_len_bytes).zip(page_ceil(request.new_len_bytes));
    let (old_len, new_len) = lengths.ok_or(CallError::Invalid("a length overflows"))?;
    if new_len == 0 {
        return Err(CallError::Invalid("new length 0"));
    }
    if request.keeps_source && (old_len != new_len || request.placement == RemapPlacement::InPlace) {
        return Err(CallError::Invalid("keeping the source needs equal lengths and a move"));
    }
    Ok((old_len, new_len))
}
