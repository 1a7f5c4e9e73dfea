//! What the pages of a process are, as the page-map scan tells.
//!
//! # Guarantee
//! The runs handed out are sorted, disjoint and inside the range that was asked for.
//!
//! # Source
//! Linux's `Documentation/admin-guide/mm/pagemap.rst`, "IOCTL to get info about the page table entries" (since 6.7;
//! guards since 6.15). Page frame numbers, which need privilege, are not asked for.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use faultless_trace::{PageRun, PageState};

const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;
const IS_GUARD: u64 = 1 << 8;

const PAGE: u64 = 4096;
/// Regions that one call may hand out.
const REGIONS: usize = 4096;
/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong =
    3 << 30 | (size_of::<ScanArg>() as libc::c_ulong) << 16 | (b'f' as libc::c_ulong) << 8 | 16;

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// The kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Looks at the pages of one process.
pub(crate) struct PageMap {
    file: File,
    /// Whether this kernel knows of guards.
    guards: Guards,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guards {
    Known,
    Unknown,
}

impl PageMap {
    /// Opens the page map of a process.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        Ok(Self { file: File::open(format!("/proc/{pid}/pagemap"))?, guards: Guards::Known })
    }

    /// Returns the pages of the range that are not absent.
    pub(crate) fn scan(&mut self, range: Range<u64>) -> io::Result<Vec<PageRun>> {
        match self.scan_all(range.clone()) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && self.guards == Guards::Known => {
                self.guards = Guards::Unknown;
                self.scan_all(range)
            }
            result => result,
        }
    }

    fn scan_all(&self, range: Range<u64>) -> io::Result<Vec<PageRun>> {
        let mut regions = vec![Region::default(); REGIONS];
        let (mut runs, mut reached) = (Vec::new(), range.start);
        while reached < range.end {
            let (found, walked) = self.scan_some(reached..range.end, &mut regions)?;
            runs.extend(regions[..found].iter().filter_map(run_of));
            // Linux 6.18 may say that the walk ended before what it has just handed out.
            let next = regions[..found].last().map_or(walked, |last| last.end.max(walked));
            if next <= reached {
                break;
            }
            reached = next;
        }
        Ok(runs)
    }

    /// Scans as much as fits; returns how many regions were found, and where the scan ended.
    fn scan_some(&self, range: Range<u64>, regions: &mut [Region]) -> io::Result<(usize, u64)> {
        let guard = if self.guards == Guards::Known { IS_GUARD } else { 0 };
        let wanted = IS_PRESENT | IS_SWAPPED | guard;
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start: range.start,
            end: range.end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            category_anyof_mask: wanted,
            return_mask: wanted | IS_FILE | IS_ZERO | IS_HUGE,
            ..ScanArg::default()
        };
        // SAFETY: the structure tells its size, and the kernel writes at most `vec_len` regions into the slice.
        let found = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
        crate::perf::check(found)?;
        Ok((found as usize, arg.walk_end))
    }
}

fn run_of(region: &Region) -> Option<PageRun> {
    let categories = region.categories;
    let is = |category| categories & category != 0;
    let state = match () {
        () if is(IS_GUARD) => PageState::Guard,
        () if is(IS_ZERO) => PageState::Zero,
        () if is(IS_PRESENT) && is(IS_FILE) => PageState::File,
        () if is(IS_PRESENT) => PageState::Own,
        () if is(IS_SWAPPED) => PageState::Swapped,
        () => return None,
    };
    Some(PageRun { start: region.start, nr_pages: (region.end - region.start) / PAGE, state, is_huge: is(IS_HUGE) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps pages of our own, away from everything.
    fn fresh(nr_pages: u64, prot: i32) -> u64 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), (nr_pages * PAGE) as usize, prot, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        base as u64
    }

    #[test]
    fn stores_loads_and_nothing_are_told_apart() {
        let base = fresh(8, libc::PROT_READ | libc::PROT_WRITE);
        let page = |number: u64| (base + number * PAGE) as *mut u8;
        // SAFETY: pages of the mapping made above.
        unsafe {
            libc::madvise(page(0).cast(), 8 * PAGE as usize, libc::MADV_NOHUGEPAGE);
            page(1).write_volatile(1);
            page(2).write_volatile(1);
            page(4).read_volatile();
        }
        let mut map = PageMap::open(std::process::id() as i32).expect("our own");
        let runs = map.scan(base..base + 8 * PAGE).expect("this kernel scans");
        let found: Vec<_> =
            runs.iter().map(|run| ((run.start - base) / PAGE, run.nr_pages, run.state, run.is_huge)).collect();
        assert_eq!(found, [(1, 2, PageState::Own, false), (4, 1, PageState::Zero, false)]);
        // SAFETY: the mapping is ours.
        unsafe { libc::munmap(page(0).cast(), 8 * PAGE as usize) };
    }

    #[test]
    fn more_regions_than_one_call_hands_out_are_all_found() {
        let nr_pages = 3 * REGIONS as u64;
        let base = fresh(nr_pages, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: pages of the mapping made above.
        unsafe {
            libc::madvise(base as *mut _, (nr_pages * PAGE) as usize, libc::MADV_NOHUGEPAGE);
            (0..nr_pages).step_by(2).for_each(|page| ((base + page * PAGE) as *mut u8).write_volatile(1));
        }
        let mut map = PageMap::open(std::process::id() as i32).expect("our own");
        let runs = map.scan(base..base + nr_pages * PAGE).expect("this kernel scans");
        assert_eq!(runs.iter().map(|run| run.nr_pages).sum::<u64>(), nr_pages / 2);
        // SAFETY: the mapping is ours.
        unsafe { libc::munmap(base as *mut _, (nr_pages * PAGE) as usize) };
    }
}
