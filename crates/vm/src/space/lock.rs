//! mlock, munlock, mlockall, munlockall: pages that stay in memory.
//!
//! Nothing is ever paged out here, so locking is what its flags, limits and errors make visible.

use super::permit::WritePermit;
use super::quantity::Quantity;
use super::{EVERYTHING, Space};
use crate::addr::{AddressRange, PAGE, PageRange, USER_END, VirtAddr, page_floor};
use crate::area::{AreaFlags, AreaView};
use crate::design::Design;
use crate::error::CallError;
use crate::limits::Privileges;
use crate::system::System;
use bitflags::bitflags;
use faultless_platform::{Atomic, Ordering};

/// What mlock and munlock do.
/// [`Space::mlock`] takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageLock {
    /// Keeps the pages in memory, and makes them.
    Lock,
    /// Keeps those in memory that are touched (`MLOCK_ONFAULT`).
    LockOnFault,
    /// Ends that.
    Unlock,
}

impl PageLock {
    fn flags(self) -> AreaFlags {
        match self {
            Self::Lock => AreaFlags::LOCKED,
            Self::LockOnFault => AreaFlags::LOCKS,
            Self::Unlock => AreaFlags::empty(),
        }
    }
}

bitflags! {
    /// What mlockall locks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockAll: u32 {
        /// What is mapped (`MCL_CURRENT`).
        const CURRENT = 1 << 0;
        /// What will be mapped (`MCL_FUTURE`).
        const FUTURE = 1 << 1;
        /// Pages when they are touched (`MCL_ONFAULT`).
        const ON_FAULT = 1 << 2;
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Locks or unlocks the pages of a range, in whole pages; locking makes them. Across a hole, what is before it is
    /// changed.
    pub fn mlock(&self, range: AddressRange, lock: PageLock) -> Result<(), CallError> {
        let AddressRange { start, len_bytes } = range;
        if lock != PageLock::Unlock && !self.limits.may_lock() {
            return Err(CallError::MayNotLock);
        }
        let first = start.page().get();
        // As Linux: a length so large that rounding it up overflows is none.
        let len = page_floor(len_bytes.wrapping_add((start - first).get()).wrapping_add(PAGE - 1));
        let range = PageRange::new(VirtAddr::new(first), len);
        self.try_with_write(range.map_or(EVERYTHING, |range| range.addresses()), |permit| {
            if lock != PageLock::Unlock {
                permit.check_lock_of(range, len)?;
            }
            match range {
                _ if len == 0 => Ok(()),
                Some(range) => permit.relock(range, lock.flags()),
                None => permit.relock_outside(VirtAddr::new(first), len, lock.flags()),
            }
        })?;
        match range {
            Some(range) if lock != PageLock::Unlock => self.populate_locked(range),
            _ => Ok(()),
        }
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Checks RLIMIT_MEMLOCK; what is locked already in the range does not count twice.
    fn check_lock_of(self, range: Option<PageRange>, len: u64) -> Result<(), CallError> {
        let limit_bytes = self.limits.lock_bytes;
        if self.has(Privileges::UNLIMITED_LOCKS) {
            return Ok(());
        }
        let is_allowed = self.is_allowed(|| {
            let wanted = (self.charged_locks() / PAGE).saturating_add(len / PAGE);
            let again = range.filter(|_| wanted > limit_bytes / PAGE).map_or(0, |range| self.locked_in(range));
            wanted - again / PAGE <= limit_bytes / PAGE
        });
        if is_allowed { Ok(()) } else { Err(CallError::OverLockLimit { limit_bytes }) }
    }

    fn locked_in(self, range: PageRange) -> u64 {
        let locked =
            self.overlapping(range.addresses()).filter(|entry| entry.area().flags().contains(AreaFlags::LOCKED));
        locked.map(|entry| entry.end.min(range.end()) - entry.start.max(range.start())).sum()
    }

    fn relock(self, range: PageRange, locks: AreaFlags) -> Result<(), CallError> {
        self.reflag(range, &|view, _| Ok(relocked(view, locks)))
    }

    /// A range that leaves user memory: what is inside is changed, and then there is a hole.
    fn relock_outside(self, first: VirtAddr, len: u64, locks: AreaFlags) -> Result<(), CallError> {
        if first.checked_add(len).is_none() {
            return Err(CallError::Invalid("the range overflows"));
        }
        if let Some(inside) = PageRange::between(first, PageRange::USER.end()) {
            self.relock(inside, locks)?;
        }
        Err(CallError::Unmapped { address: VirtAddr::new(USER_END.max(first.get())) })
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Locks all that is mapped, all that will be, or both.
    pub fn mlock_all(&self, what: LockAll) -> Result<(), CallError> {
        if !what.intersects(LockAll::CURRENT | LockAll::FUTURE) {
            return Err(CallError::Invalid("neither what is mapped nor what will be"));
        }
        if !self.limits.may_lock() {
            return Err(CallError::MayNotLock);
        }
        let limit_bytes = self.limits.lock_bytes;
        self.try_with_write(EVERYTHING, |permit| {
            let is_within = self.has(Privileges::UNLIMITED_LOCKS)
                || self.is_allowed(|| self.at_most(Quantity::Bytes) / PAGE <= limit_bytes / PAGE);
            if what.contains(LockAll::CURRENT) && !is_within {
                return Err(CallError::OverLockLimit { limit_bytes });
            }
            permit.set_locks(what);
            Ok(())
        })?;
        if what.contains(LockAll::CURRENT) {
            self.populate_what_can_be(PageRange::USER);
        }
        Ok(())
    }

    /// Unlocks everything, now and for the future.
    pub fn munlock_all(&self) {
        self.with_write(EVERYTHING, |permit| permit.set_locks(LockAll::empty()));
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    fn set_locks(self, what: LockAll) {
        let mut locks = AreaFlags::LOCKED;
        locks.set(AreaFlags::LOCK_ON_FAULT, what.contains(LockAll::ON_FAULT));
        let future = if what.contains(LockAll::FUTURE) { locks } else { AreaFlags::empty() };
        // Relaxed: under the write lock.
        self.default_flags.store(future.bits(), Ordering::Relaxed);
        if what.contains(LockAll::FUTURE) && !what.contains(LockAll::CURRENT) {
            return;
        }
        let current = if what.contains(LockAll::CURRENT) { locks } else { AreaFlags::empty() };
        let mut position = VirtAddr::new(0);
        while let Some(entry) = self.first_ending_after(position) {
            position = entry.end;
            if let Some(all) = PageRange::between(entry.start, entry.end) {
                // As Linux: an area that can't be changed because memory is short stays as it is.
                let _ = self.relock(all, current);
            }
        }
    }
}

/// Returns an area's flags with other locks; memory that may be dropped can't be locked.
fn relocked<P: System>(view: &AreaView<P>, locks: AreaFlags) -> AreaFlags {
    if view.flags.contains(AreaFlags::DROPPABLE) { view.flags } else { (view.flags - AreaFlags::LOCKS) | locks }
}
