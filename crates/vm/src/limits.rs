//! What an address space may use: the limits that Linux keeps for each process.

use crate::addr::PAGE;

/// Pages that must stay free below a stack (Linux's stack_guard_gap; CVE-2017-1000364).
pub const STACK_GUARD_PAGES: u64 = 256;

/// Limits of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most areas (vm.max_map_count).
    pub max_map_count: u64,
    /// Lowest address that may be mapped (vm.mmap_min_addr).
    pub mmap_min_addr: u64,
    /// Largest total size in bytes (RLIMIT_AS).
    pub address_space_bytes: u64,
    /// Largest stack in bytes (RLIMIT_STACK).
    pub stack_bytes: u64,
    /// Where the search for free ranges begins, downwards.
    pub mmap_base: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_map_count: 65_530,
            mmap_min_addr: 0x1_0000,
            address_space_bytes: u64::MAX,
            stack_bytes: 8 << 20,
            mmap_base: 0x7fff_f7ff_f000,
        }
    }
}

impl Limits {
    /// Returns the bytes of the gap below a stack.
    pub const fn stack_gap_bytes() -> u64 {
        STACK_GUARD_PAGES * PAGE
    }
}
