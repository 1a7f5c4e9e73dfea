//! How many pages of its own a process holds.
//!
//! # Guarantee
//! Pages are counted by the tables, exactly (`PAGEMAP_SCAN`): those present that are no file's and not the page of
//! zeros. The kernel's own counters lag behind, a batch on each CPU.

use super::child::{Child, SCRATCH_BYTES};
use super::sys::{SyscallResult, raw};
use super::zone::{PAGE, Zone};

/// What is asked for (`struct pm_scan_arg`).
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vector: u64,
    vector_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of: u64,
    return_mask: u64,
}

/// A run of pages that were found (`struct page_region`).
#[repr(C)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_ZERO_PAGE: u64 = 1 << 5;

// A zone has 1024 pages: more regions than pages fit.
const _: () = assert!(SCRATCH_BYTES as usize / size_of::<Region>() > 1024);

/// Returns how many pages of their own the zones hold.
pub(super) fn private_pages(child: &Child) -> SyscallResult {
    Zone::ALL.iter().try_fold(0, |sum, zone| Ok(sum + private_pages_of(child, zone)?))
}

fn private_pages_of(child: &Child, zone: &Zone) -> SyscallResult {
    const REQUEST: u64 = 0xc060_6610;
    let scan = Scan {
        size: size_of::<Scan>() as u64,
        start: zone.start,
        end: zone.end,
        vector: child.scratch,
        vector_len: SCRATCH_BYTES / size_of::<Region>() as u64,
        category_inverted: IS_FILE | IS_ZERO_PAGE,
        category_mask: IS_FILE | IS_PRESENT | IS_ZERO_PAGE,
        return_mask: IS_PRESENT,
        ..Scan::default()
    };
    // SAFETY: the kernel writes the structure, and so many regions of the scratch memory as it says.
    unsafe {
        let number = raw!(libc::SYS_ioctl, child.fds.pagemap, REQUEST, &raw const scan)?;
        let regions = core::slice::from_raw_parts(child.scratch as *const Region, number as usize);
        Ok(regions.iter().map(|region| (region.end - region.start) / PAGE).sum())
    }
}
