//! What an address space may use, and as whom: the limits, rights and version that Linux's answers depend on.
//!
//! # Guarantee
//! These are values of the space, not of the code: two spaces of one instance may differ in all of them.

use crate::addr::PAGE;
use bitflags::bitflags;
use core::fmt;

/// Pages that must stay free below a stack (Linux's stack_guard_gap; CVE-2017-1000364).
pub const STACK_GUARD_PAGES: u64 = 256;

bitflags! {
    /// What a space's owner may do beyond an ordinary user (capabilities).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Privileges: u32 {
        /// Maps below [`Limits::mmap_min_addr`] (`CAP_SYS_RAWIO`).
        const LOW_ADDRESSES = 1 << 0;
        /// Locks pages past [`Limits::lock_bytes`] (`CAP_IPC_LOCK`).
        const UNLIMITED_LOCKS = 1 << 1;
    }
}

/// The version of Linux whose answers are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinuxVersion {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl LinuxVersion {
    /// The version that the answers were measured on.
    pub const MEASURED: Self = Self { major: 6, minor: 18 };

    /// Says whether mremap moves a range of several areas if its size stays (since 6.17; EFAULT before).
    pub const fn moves_several_areas(self) -> bool {
        self.major > 6 || self.major == 6 && self.minor >= 17
    }
}

/// Where a search puts what may lie anywhere; what has an address of its own (fixed, a hint, the heap, a stack) knows
/// nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementPolicy {
    /// Where Linux puts it: the highest room below [`Limits::mmap_base`]. So mappings of all threads lie side by side,
    /// and often are one area.
    Linux,
    /// In the range of addresses of the CPU that asks, so that what threads map lies apart. The range is a hint and no
    /// reservation: what finds no room there goes where Linux puts it.
    Spread,
    /// As `Linux` until a second CPU maps in the space and it has had two users at once ([`Guest`](crate::Guest)), and as
    /// `Spread` from then on: a program of one thread stays as it is, whatever CPUs it runs on.
    Auto,
}

impl PlacementPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Linux, Self::Spread, Self::Auto];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Spread => "spread",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for PlacementPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Limits of an address space.
///
/// ```
/// use faultless_vm::{Limits, LinuxVersion, PAGE, PlacementPolicy, Privileges, STACK_GUARD_PAGES};
///
/// // An ordinary user's, on a kernel of 2023, with mappings of threads apart.
/// let limits = Limits {
///     lock_bytes: 0,
///     version: LinuxVersion { major: 6, minor: 1 },
///     placement: PlacementPolicy::Auto,
///     ..Limits::default()
/// };
/// assert!(!limits.may_lock() && !limits.version.moves_several_areas());
/// assert!(Limits { privileges: Privileges::UNLIMITED_LOCKS, ..limits }.may_lock());
/// assert!(LinuxVersion::MEASURED.moves_several_areas());
/// assert_eq!(Limits::stack_gap_bytes(), STACK_GUARD_PAGES * PAGE);
/// assert_eq!(PlacementPolicy::ALL.map(PlacementPolicy::name), ["linux", "spread", "auto"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most areas (vm.max_map_count).
    pub max_map_count: u64,
    /// Lowest address that may be mapped (vm.mmap_min_addr).
    pub mmap_min_addr: u64,
    /// Lowest address that is chosen, for a hint, by a search, or for a stack that grows. On Linux a security module's
    /// minimum counts here too, so that it may be higher than `mmap_min_addr`.
    pub lowest_chosen: u64,
    /// Largest total size in bytes (RLIMIT_AS).
    pub address_space_bytes: u64,
    /// Largest size of private writable memory in bytes (RLIMIT_DATA). 0 forbids any growth of the heap by brk, and
    /// lets everything else have `most_data_bytes`: Linux's exception for Valgrind (mm/vma.c, `may_expand_vm`).
    pub data_bytes: u64,
    /// Up to where the owner may raise `data_bytes` by itself (RLIMIT_DATA's hard limit); counts where that is 0.
    pub most_data_bytes: u64,
    /// Most bytes that may be locked (RLIMIT_MEMLOCK).
    pub lock_bytes: u64,
    /// Largest stack in bytes (RLIMIT_STACK).
    pub stack_bytes: u64,
    /// Largest single demand for memory that must be there when it is used: all of memory and swap, as heuristic
    /// overcommit asks (vm.overcommit_memory 0).
    pub commit_bytes: u64,
    /// Where the search for free ranges begins, downwards.
    pub mmap_base: u64,
    /// Where a search puts mappings.
    pub placement: PlacementPolicy,
    /// Under a design whose forks share leaf tables (`faultless`), from how many bytes of areas on in a table's 2 MiB
    /// the child gets the parent's table; of smaller ones it gets a copy. 0: always; `u64::MAX`: never. A program
    /// sees no difference but in its counts of faults: where a child has gone at once, the parent's stores fault once
    /// for each table, not for each page.
    pub shared_table_bytes: u64,
    /// What the owner may do.
    pub privileges: Privileges,
    /// Whether the processor has protection keys (x86's PKU): then what may only be fetched from can't be loaded from
    /// ([`AreaFlags::EXECUTE_ONLY`](crate::AreaFlags::EXECUTE_ONLY)).
    pub has_protection_keys: bool,
    /// Whether areas of reference pages may be emptied on fork (`MADV_WIPEONFORK`), so that the child reads the
    /// pattern: our extension.
    pub reference_extensions: bool,
    /// Whose answers are given.
    pub version: LinuxVersion,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_map_count: 65_530,
            mmap_min_addr: 0x1_0000,
            lowest_chosen: 0x1_0000,
            address_space_bytes: u64::MAX,
            data_bytes: u64::MAX,
            most_data_bytes: u64::MAX,
            lock_bytes: u64::MAX,
            stack_bytes: 8 << 20,
            commit_bytes: u64::MAX,
            mmap_base: 0x7fff_f7ff_f000,
            placement: PlacementPolicy::Linux,
            shared_table_bytes: 1 << 20,
            privileges: Privileges::empty(),
            has_protection_keys: false,
            reference_extensions: false,
            version: LinuxVersion::MEASURED,
        }
    }
}

impl Limits {
    /// Returns how many bytes of private writable memory there may be but for brk.
    #[inline]
    pub(crate) const fn mapped_data_bytes(&self) -> u64 {
        if self.data_bytes == 0 { self.most_data_bytes } else { self.data_bytes }
    }

    /// Returns the bytes of the gap below a stack.
    pub const fn stack_gap_bytes() -> u64 {
        STACK_GUARD_PAGES * PAGE
    }

    /// Says whether the owner may lock pages at all.
    pub const fn may_lock(&self) -> bool {
        self.lock_bytes != 0 || self.privileges.contains(Privileges::UNLIMITED_LOCKS)
    }
}
