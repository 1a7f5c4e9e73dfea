//! What callers ask of memory: rights, and options of mmap. What an area keeps is
//! [`AreaFlags`](crate::AreaFlags).
//!
//! # Invariants
//! * I1 a flag has the bit that the area's flag of the same name has, so that a question becomes an area by a copy.
//!   What an area notes for itself can't be asked for, by bits without a name either.

use crate::view::AreaFlags;
use bitflags::bitflags;

bitflags! {
    /// What may be done with memory (`PROT_*`).
    ///
    /// ```
    /// use faultless_vm::{AreaFlags, Protection};
    ///
    /// let data = Protection::READ | Protection::WRITE;
    /// assert_eq!(AreaFlags::from(data), AreaFlags::READ | AreaFlags::WRITE);
    /// assert_eq!((AreaFlags::from(data) | AreaFlags::LOCKED).protection(), data);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Protection: u32 {
        /// Loads.
        const READ = AreaFlags::READ.bits();
        /// Stores.
        const WRITE = AreaFlags::WRITE.bits();
        /// Fetches.
        const EXEC = AreaFlags::EXEC.bits();
        /// Beside `EXEC` alone: the protection key that forbids loads and stores. Dropped without
        /// [`Limits::has_protection_keys`](crate::Limits::has_protection_keys), or beside other rights.
        const EXECUTE_ONLY = AreaFlags::EXECUTE_ONLY.bits();
    }
}

bitflags! {
    /// How memory is mapped (`MAP_*`, and what a file's descriptor forbids).
    ///
    /// ```
    /// use faultless_vm::{AreaFlags, MapOptions};
    ///
    /// // What an area notes for itself can't be asked for.
    /// assert_eq!((AreaFlags::LOCKED | AreaFlags::INHERITED).options(), MapOptions::LOCKED);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MapOptions: u32 {
        /// Stores reach the object (`MAP_SHARED`).
        const SHARED = AreaFlags::SHARED.bits();
        /// Grows downwards when touched below its start (`MAP_GROWSDOWN`).
        const GROWSDOWN = AreaFlags::GROWSDOWN.bits();
        /// Pages are locked in memory, and made at once (`MAP_LOCKED`).
        const LOCKED = AreaFlags::LOCKED.bits();
        /// Beside `LOCKED`: pages are made when they are touched (`MLOCK_ONFAULT`).
        const LOCK_ON_FAULT = AreaFlags::LOCK_ON_FAULT.bits();
        /// A child does not get the area (`MADV_DONTFORK`).
        const DONTFORK = AreaFlags::DONTFORK.bits();
        /// A child gets the area empty (`MADV_WIPEONFORK`).
        const WIPEONFORK = AreaFlags::WIPEONFORK.bits();
        /// Stores may never be allowed: a shared mapping of a descriptor that is open for reading alone.
        const DENY_WRITE = AreaFlags::DENY_WRITE.bits();
        /// Fetches may never be allowed: a mapping of a file that lies where nothing may be executed.
        const DENY_EXEC = AreaFlags::DENY_EXEC.bits();
        /// No memory is promised for it (`MAP_NORESERVE`).
        const NORESERVE = AreaFlags::NORESERVE.bits();
        /// Left out of core dumps (`MADV_DONTDUMP`).
        const NO_DUMP = AreaFlags::NO_DUMP.bits();
        /// Huge pages are not wanted (`MAP_STACK`).
        const NO_HUGE = AreaFlags::NO_HUGE.bits();
        /// Pages may be dropped when memory is short (`MAP_DROPPABLE`).
        const DROPPABLE = AreaFlags::DROPPABLE.bits();
        /// `MAP_SYNC`; where it means nothing, it keeps neighbours apart all the same.
        const SYNC = AreaFlags::SYNC.bits();
    }
}

impl From<Protection> for AreaFlags {
    fn from(protection: Protection) -> Self {
        Self::from_bits_retain(protection.bits() & Protection::all().bits())
    }
}

impl From<MapOptions> for AreaFlags {
    fn from(options: MapOptions) -> Self {
        Self::from_bits_retain(options.bits() & MapOptions::all().bits())
    }
}

impl AreaFlags {
    /// Returns what mprotect is asked for, to get these rights.
    pub const fn protection(self) -> Protection {
        Protection::from_bits_truncate(self.bits())
    }

    /// Returns what mmap is asked for beside [`AreaFlags::protection`], to get an area with these flags.
    pub const fn options(self) -> MapOptions {
        MapOptions::from_bits_truncate(self.bits())
    }
}
