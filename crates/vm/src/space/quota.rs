//! Checks of a space's limits.
//!
//! # Guarantee
//! No function here changes anything. Each counts as Linux does: in pages, over the whole space, before the counters
//! show what the call itself unmaps. Callers hold the write lock. Where CPUs hold credits, who is in a part has claimed
//! what it adds, and who has everything recalls them before a no (`credits`, C2 and C3).

use super::Space;
use super::credits::Row;
use super::editing::Editing;
use super::permit::WritePermit;
use super::quantity::Quantity;
use crate::addr::{PAGE, PageRange, VirtAddr};
use crate::area::AreaFlags;
use crate::design::Design;
use crate::error::CallError;
use crate::limits::Privileges;
use crate::system::System;
use faultless_platform::{Atomic, Ordering};

/// What a range holds.
#[derive(Clone, Copy, Default)]
pub(super) struct MappedBytes {
    /// Bytes that are mapped.
    pub(super) bytes: u64,
    /// Those of them that are accounted for.
    pub(super) accounted_bytes: u64,
}

/// What a call takes away before it adds.
#[derive(Clone, Copy, Default)]
pub(super) struct RemovedBytes {
    /// Bytes that are mapped.
    pub(super) bytes: u64,
    /// Those of them that are data.
    pub(super) data_bytes: u64,
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Checks that `added` bytes more of an area with `flags` may be mapped, after `removed` ones have gone
    /// (RLIMIT_AS, RLIMIT_DATA).
    #[inline]
    pub(super) fn check_expansion(&self, flags: AreaFlags, added: u64, removed: u64) -> Result<(), CallError> {
        self.check_expansion_after(flags, added, RemovedBytes { bytes: removed, data_bytes: removed })
    }

    /// As [`Space::check_expansion`], where it is known how much of what goes is data.
    #[inline]
    pub(super) fn check_expansion_after(
        &self,
        flags: AreaFlags,
        added: u64,
        removed: RemovedBytes,
    ) -> Result<(), CallError> {
        let is_unlimited = self.limits.address_space_bytes & self.limits.data_bytes == u64::MAX;
        if is_unlimited { Ok(()) } else { self.check_limited_expansion(flags, added, removed) }
    }

    fn check_limited_expansion(&self, flags: AreaFlags, added: u64, removed: RemovedBytes) -> Result<(), CallError> {
        let exceeds = |quantity, gone: u64, limit: u64| {
            let is_small = || (self.at_most(quantity) + added).saturating_sub(gone) / PAGE <= limit / PAGE;
            limit != u64::MAX && !self.is_allowed(is_small)
        };
        let limits = &self.limits;
        if exceeds(Quantity::Bytes, removed.bytes, limits.address_space_bytes) {
            return Err(CallError::OverLimit { limit_bytes: limits.address_space_bytes });
        }
        if flags.is_data() && exceeds(Quantity::DataBytes, removed.data_bytes, limits.mapped_data_bytes()) {
            return Err(CallError::OverLimit { limit_bytes: limits.mapped_data_bytes() });
        }
        Ok(())
    }

    /// Checks that `added` bytes of an area with `flags` may be locked at once (RLIMIT_MEMLOCK).
    #[inline]
    pub(super) fn check_lock(&self, flags: AreaFlags, added: u64) -> Result<(), CallError> {
        if flags.contains(AreaFlags::LOCKED) { self.check_more_locked(added) } else { Ok(()) }
    }

    fn check_more_locked(&self, added: u64) -> Result<(), CallError> {
        let limit_bytes = self.limits.lock_bytes;
        if self.has(Privileges::UNLIMITED_LOCKS)
            || self.is_allowed(|| (self.charged_locks() + added) / PAGE <= limit_bytes / PAGE)
        {
            return Ok(());
        }
        Err(CallError::OverLockLimitNow { limit_bytes })
    }

    /// Returns the bytes that count as locked, at most: those that are, and those that [`Space::count_lost_locks`]
    /// knows of.
    pub(super) fn charged_locks(&self) -> u64 {
        // Relaxed: written under the write lock.
        self.at_most(Quantity::LockedBytes) + self.lost_lock_bytes.load(Ordering::Relaxed)
    }

    /// Notes that an area of `len` bytes was unlocked, but goes on counting, as one that MREMAP_DONTUNMAP empties does
    /// (Linux 6.18 never takes it off VmLck again).
    pub(super) fn count_lost_locks(&self, len: u64) {
        // Relaxed: under the write lock.
        self.lost_lock_bytes.store(self.lost_lock_bytes.load(Ordering::Relaxed) + len, Ordering::Relaxed);
        self.uncount_locked(len);
    }

    /// Checks a promise of memory: none may exceed all there is.
    pub(super) fn check_commit(&self, added: u64) -> Result<(), CallError> {
        let limit_bytes = self.limits.commit_bytes;
        if added / PAGE > limit_bytes / PAGE { Err(CallError::OverCommit { limit_bytes }) } else { Ok(()) }
    }

    /// Says whether so many areas more may be made that there are as many as a limit at most.
    #[inline]
    pub(super) fn may_add_areas(&self, added: u64, limit: u64) -> bool {
        match self.row() {
            None => self.counted(Quantity::Areas) + added <= limit,
            Some(row) => self.may_add_areas_beside_purses(&row, added, limit),
        }
    }

    /// As [`Space::may_add_areas`], where CPUs hold credits.
    #[inline(never)]
    fn may_add_areas_beside_purses(&self, row: &Row<'_, P>, added: u64, limit: u64) -> bool {
        let areas = Quantity::Areas;
        self.is_allowed(|| row.has_credit(areas, added) || self.at_most(areas) + added <= limit)
    }

    /// Checks that an area more may be made as mmap and brk do it: Linux lets them exceed the limit by one.
    pub(super) fn check_new_area(&self) -> Result<(), CallError> {
        let limit = self.limits.max_map_count;
        if self.may_add_areas(0, limit) { Ok(()) } else { Err(CallError::TooManyAreas { limit }) }
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Checks that a range may be unmapped: cutting one area in two needs one more, and sealed ones stay. Returns what
    /// it holds.
    #[inline(always)]
    pub(super) fn check_unmapping(
        self,
        range: PageRange,
        edit: Option<&Editing<'_, P, D>>,
    ) -> Result<MappedBytes, CallError> {
        let limit = self.limits.max_map_count;
        let mut held = MappedBytes::default();
        for entry in self.overlapping_with(range.numbers(), edit) {
            let flags = entry.area().flags();
            let is_cut_in_two = entry.start < range.start() && range.end() < entry.end;
            if is_cut_in_two && !self.may_add_areas(1, limit) {
                return Err(CallError::TooManyAreas { limit });
            }
            if flags.contains(AreaFlags::SEALED) {
                return Err(CallError::Sealed { address: entry.start });
            }
            let bytes = entry.end.min(range.end()) - entry.start.max(range.start());
            held.bytes += bytes;
            held.accounted_bytes += if flags.contains(AreaFlags::ACCOUNT) { bytes } else { 0 };
        }
        Ok(held)
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Checks the address of a fixed mapping.
    pub(super) fn check_lowest(&self, start: VirtAddr) -> Result<(), CallError> {
        let lowest = self.limits.mmap_min_addr;
        if start < VirtAddr::new(lowest) && !self.has(Privileges::LOW_ADDRESSES) {
            Err(CallError::TooLow { lowest })
        } else {
            Ok(())
        }
    }

    /// Says whether the owner has a privilege.
    pub(super) fn has(&self, privilege: Privileges) -> bool {
        self.limits.privileges.contains(privilege)
    }

    /// Returns the flags that every new area gets.
    pub(super) fn default_flags(&self) -> AreaFlags {
        // Relaxed: written under the write lock.
        AreaFlags::from_bits_truncate(self.default_flags.load(Ordering::Relaxed))
    }
}
