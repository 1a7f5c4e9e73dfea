//! `PROT_*`, `MAP_*` and `MREMAP_*` of Linux on x86-64 (`asm-generic/mman-common.h`, `linux/mman.h`, `asm/mman.h`).
//!
//! Unknown bits are kept: most calls ignore them, some refuse them.

use bitflags::bitflags;
use faultless_vm::{PageLock, Protection};

bitflags! {
    /// What mmap and mprotect allow.
    ///
    /// ```
    /// use faultless_abi::Prot;
    /// use faultless_vm::Protection;
    ///
    /// let prot = Prot::from_bits_retain(3 | 0x0100_0000);
    /// assert!(prot.contains(Prot::GROWSDOWN));
    /// assert_eq!(prot & Prot::RIGHTS, Prot::READ | Prot::WRITE);
    /// assert_eq!(prot.protection(), Protection::READ | Protection::WRITE);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Prot: u64 {
        /// `PROT_READ`
        const READ = 1;
        /// `PROT_WRITE`
        const WRITE = 2;
        /// `PROT_EXEC`
        const EXEC = 4;
        /// `PROT_SEM`: known, without a meaning on x86-64.
        const SEM = 8;
        /// `PROT_GROWSDOWN`: from the start of the stack that holds the address.
        const GROWSDOWN = 0x0100_0000;
        /// `PROT_GROWSUP`: to the end of an area that grows up; there is none on x86-64.
        const GROWSUP = 0x0200_0000;
        const _ = !0;
    }
}

bitflags! {
    /// How mmap maps.
    ///
    /// ```
    /// use faultless_abi::MapFlags;
    ///
    /// let flags = MapFlags::SHARED_VALIDATE | MapFlags::FIXED_NOREPLACE | MapFlags::POPULATE;
    /// assert!(flags.is_shared() && flags.is_fixed() && flags.populates());
    /// assert!(!(flags | MapFlags::NONBLOCK).populates());
    /// // A file is asked about what this leaves over.
    /// assert_eq!(flags.difference(MapFlags::VALIDATED), MapFlags::FIXED_NOREPLACE);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MapFlags: u64 {
        /// `MAP_SHARED`
        const SHARED = 1;
        /// `MAP_PRIVATE`
        const PRIVATE = 2;
        /// `MAP_SHARED_VALIDATE`: shared, and unknown flags are refused.
        const SHARED_VALIDATE = 3;
        /// `MAP_DROPPABLE`: private, wiped on fork, may be dropped when memory is short.
        const DROPPABLE = 8;
        /// `MAP_TYPE`: the bits that say which of these it is.
        const TYPE = 0xf;
        /// `MAP_FIXED`
        const FIXED = 0x10;
        /// `MAP_ANONYMOUS`
        const ANONYMOUS = 0x20;
        /// `MAP_32BIT`: below 2 GiB.
        const LOW_2G = 0x40;
        /// `MAP_ABOVE4G`
        const ABOVE_4G = 0x80;
        /// `MAP_GROWSDOWN`
        const GROWSDOWN = 0x100;
        /// `MAP_DENYWRITE`: ignored.
        const DENYWRITE = 0x800;
        /// `MAP_EXECUTABLE`: ignored.
        const EXECUTABLE = 0x1000;
        /// `MAP_LOCKED`
        const LOCKED = 0x2000;
        /// `MAP_NORESERVE`
        const NORESERVE = 0x4000;
        /// `MAP_POPULATE`
        const POPULATE = 0x8000;
        /// `MAP_NONBLOCK`: takes `POPULATE` back.
        const NONBLOCK = 0x1_0000;
        /// `MAP_STACK`: no huge pages.
        const STACK = 0x2_0000;
        /// `MAP_HUGETLB`
        const HUGETLB = 0x4_0000;
        /// `MAP_SYNC`
        const SYNC = 0x8_0000;
        /// `MAP_FIXED_NOREPLACE`
        const FIXED_NOREPLACE = 0x10_0000;
        /// `MAP_HUGE_2MB`, `MAP_HUGE_1GB`: both sizes' bits.
        const HUGE_SIZES = 21 << 26 | 30 << 26;
        const _ = !0;
    }
}

impl MapFlags {
    /// What `MAP_SHARED_VALIDATE` accepts for every file (`LEGACY_MAP_MASK`).
    pub const VALIDATED: Self = Self::SHARED
        .union(Self::PRIVATE)
        .union(Self::FIXED)
        .union(Self::ANONYMOUS)
        .union(Self::DENYWRITE)
        .union(Self::EXECUTABLE)
        .union(Self::GROWSDOWN)
        .union(Self::LOCKED)
        .union(Self::NORESERVE)
        .union(Self::POPULATE)
        .union(Self::NONBLOCK)
        .union(Self::STACK)
        .union(Self::HUGETLB)
        .union(Self::LOW_2G)
        .union(Self::ABOVE_4G)
        .union(Self::HUGE_SIZES);

    /// Says whether the address is an order, not a hint.
    pub const fn is_fixed(self) -> bool {
        self.intersects(Self::FIXED.union(Self::FIXED_NOREPLACE))
    }

    /// Says whether stores reach what is mapped, by the mapping's type.
    pub fn is_shared(self) -> bool {
        matches!(self & Self::TYPE, Self::SHARED | Self::SHARED_VALIDATE)
    }

    /// Says whether pages are made at once.
    pub const fn populates(self) -> bool {
        self.contains(Self::POPULATE) && !self.contains(Self::NONBLOCK)
    }
}

bitflags! {
    /// How mremap moves. [`remap_request`](crate::remap_request) reads it; whoever records calls keeps it as it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RemapFlags: u64 {
        /// `MREMAP_MAYMOVE`
        const MAYMOVE = 1;
        /// `MREMAP_FIXED`
        const FIXED = 2;
        /// `MREMAP_DONTUNMAP`
        const DONTUNMAP = 4;
    }
}

impl Prot {
    /// What a mapping can allow.
    pub const RIGHTS: Self = Self::READ.union(Self::WRITE).union(Self::EXEC);

    /// Returns what the library calls it.
    pub fn protection(self) -> Protection {
        let mut rights = Protection::empty();
        rights.set(Protection::READ, self.contains(Self::READ));
        rights.set(Protection::WRITE, self.contains(Self::WRITE));
        rights.set(Protection::EXEC, self.contains(Self::EXEC));
        // Linux compares the whole word: with any other bit beside PROT_EXEC, the area gets no key of its own.
        rights.set(Protection::EXECUTE_ONLY, self == Self::EXEC);
        rights
    }
}

/// Returns what mlock2's flags ask for; nothing if Linux answers EINVAL to them. [`Calls::mlock2`](crate::Calls::mlock2)
/// calls it, and whoever reads recorded calls.
pub const fn page_lock_of(flags: u32) -> Option<PageLock> {
    match flags {
        0 => Some(PageLock::Lock),
        // MLOCK_ONFAULT
        1 => Some(PageLock::LockOnFault),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{MapFlags, Prot};
    use faultless_vm::Protection;

    #[test]
    fn numbers_are_those_of_the_host() {
        let table = [
            (MapFlags::DROPPABLE, 8),
            (MapFlags::TYPE, libc::MAP_TYPE),
            (MapFlags::LOW_2G, libc::MAP_32BIT),
            (MapFlags::GROWSDOWN, libc::MAP_GROWSDOWN),
            (MapFlags::DENYWRITE, libc::MAP_DENYWRITE),
            (MapFlags::EXECUTABLE, libc::MAP_EXECUTABLE),
            (MapFlags::LOCKED, libc::MAP_LOCKED),
            (MapFlags::NORESERVE, libc::MAP_NORESERVE),
            (MapFlags::POPULATE, libc::MAP_POPULATE),
            (MapFlags::NONBLOCK, libc::MAP_NONBLOCK),
            (MapFlags::STACK, libc::MAP_STACK),
            (MapFlags::HUGETLB, libc::MAP_HUGETLB),
            (MapFlags::SYNC, libc::MAP_SYNC),
            (MapFlags::FIXED_NOREPLACE, libc::MAP_FIXED_NOREPLACE),
            (MapFlags::HUGE_SIZES, libc::MAP_HUGE_2MB | libc::MAP_HUGE_1GB),
        ];
        for (ours, host) in table {
            assert_eq!(ours.bits(), u64::from(host as u32), "{ours:?}");
        }
    }

    #[test]
    fn only_exec_alone_is_execute_only() {
        assert!(Prot::EXEC.protection().contains(Protection::EXECUTE_ONLY));
        assert!(!(Prot::EXEC | Prot::SEM).protection().contains(Protection::EXECUTE_ONLY));
    }
}
