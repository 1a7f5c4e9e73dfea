//! Physical memory as the firmware describes it: ranges with holes between them.
//!
//! # Guarantee
//! Frames come from the ranges alone. Metadata stands in the first range that has room for it, and is no frame. Frames
//! and tables are reached through a [`Window`], so that a physical address is never a pointer.

use crate::cpu::{Cpu, Hardware};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_phys::{Cause, FrameSource, Page, Pfn, PhysAddr};
use faultless_platform::PAGE_BYTES;
use faultless_sync::{Rcu, SpinMutex};

/// Where all physical memory is mapped in the kernel's half of each address space, by pages of 1 GiB.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;

/// The root's entry that maps it.
const DIRECT_MAP_SLOT: usize = 256;
/// Frames whose metadata stands in one page, behind a line that leads back to the core.
const LINES: usize = 63;
/// Present, writable, accessed, dirty, large, global, not executable; no user bit.
const LARGE_KERNEL_PAGE: u64 = 1 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 63;
/// Present, writable, accessed.
const KERNEL_TABLE: u64 = 1 | 1 << 1 | 1 << 5;

/// Where the kernel itself sees physical memory: byte `physical` at `pointer + (physical - first)`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The pointer.
    pub pointer: *mut u8,
    /// The first physical address in the window.
    pub first: u64,
}

/// Why physical memory can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootError {
    /// The ranges are not ascending, not in pages, below the window, or at 0.
    BadRange {
        /// The first such range's start.
        start: u64,
    },
    /// No range has room for the metadata and the first tables.
    NoRoom {
        /// What is needed.
        len_bytes: usize,
    },
}

/// All physical memory; a handle. It lives as long as the kernel.
pub struct Ram<H: Hardware>(&'static Core<H>);

struct Core<H: Hardware> {
    window: Window,
    usable: Vec<Range<u32>>,
    base: u32,
    /// Pages of metadata: in each, a line with the address of this, and lines of frames from `base` on.
    metadata: *mut u8,
    free: SpinMutex<Cpu<H>, Bitmap>,
    rcu: Rcu<Cpu<H>>,
    direct_map: u64,
}

/// Which frames are free, from `base` on; holes never are.
struct Bitmap {
    is_free: Vec<bool>,
    nr_free: usize,
    next: usize,
}

impl<H: Hardware> Clone for Ram<H> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

// SAFETY: the window's pointers are used by whoever has the frame; everything else is shared by design.
unsafe impl<H: Hardware> Sync for Core<H> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<H: Hardware> Send for Core<H> {}

impl<H: Hardware> Ram<H> {
    /// Takes the machine's memory over: the ranges of physical addresses in `map`.
    ///
    /// # Safety
    /// The window reaches all ranges, which hold zeros, are nobody else's, and stay for good.
    pub unsafe fn boot(window: Window, map: &[Range<u64>]) -> Result<Self, BootError> {
        let page = PAGE_BYTES as u64;
        let mut last = page.max(window.first);
        for range in map {
            let is_good =
                last <= range.start && range.start < range.end && (range.start | range.end).is_multiple_of(page);
            if !is_good || range.end / page >= Pfn::LIMIT as u64 {
                return Err(BootError::BadRange { start: range.start });
            }
            last = range.end;
        }
        let mut usable: Vec<Range<u32>> = map.iter().map(|r| (r.start / page) as u32..(r.end / page) as u32).collect();
        let (base, end) = (usable.first().map_or(0, |r| r.start), usable.last().map_or(0, |r| r.end));
        let nr_metadata = (end - base).div_ceil(LINES as u32);
        // One more frame: the table of the direct map.
        let room = usable.iter_mut().find(|range| range.len() as u32 > nr_metadata + 1);
        let room = room.ok_or(BootError::NoRoom { len_bytes: (nr_metadata as usize + 1) * PAGE_BYTES })?;
        let (metadata, table) = (at(window, Pfn::new(room.start)), Pfn::new(room.start + nr_metadata));
        room.start += nr_metadata + 1;
        for gib in 0..512_u64 {
            // SAFETY: the table is ours alone.
            unsafe { at(window, table).cast::<u64>().add(gib as usize).write(gib << 30 | LARGE_KERNEL_PAGE) };
        }
        let core = Box::leak(Box::new(Core {
            window,
            base,
            metadata,
            free: SpinMutex::new(Bitmap::new(&usable, base, end)),
            usable,
            rcu: Rcu::new(1),
            direct_map: table.address().get() | KERNEL_TABLE,
        }));
        for page in 0..nr_metadata as usize {
            // SAFETY: the metadata's room was just taken out of the usable ranges.
            unsafe { metadata.add(page * PAGE_BYTES).cast::<&'static Core<H>>().write(core) };
        }
        Ok(Self(core))
    }

    /// Fills the kernel's half into a new root.
    pub(crate) fn share_kernel_half(&self, root: Pfn) {
        // SAFETY: nobody walks the root yet.
        unsafe { self.frame(root).cast::<u64>().add(DIRECT_MAP_SLOT).write(self.0.direct_map) };
    }
}

fn at(window: Window, pfn: Pfn) -> *mut u8 {
    window.pointer.wrapping_add((pfn.address().get() - window.first) as usize)
}

impl Bitmap {
    fn new(usable: &[Range<u32>], base: u32, end: u32) -> Self {
        let is_free: Vec<bool> = (base..end).map(|pfn| usable.iter().any(|range| range.contains(&pfn))).collect();
        Self { nr_free: is_free.iter().filter(|&&is_free| is_free).count(), is_free, next: 0 }
    }

    /// Takes a free block whose number, counted from `base`, is a multiple of its length.
    fn take(&mut self, len: usize, base: u32) -> Option<usize> {
        let first = (base as usize).next_multiple_of(len) - base as usize;
        let places = || (first..self.is_free.len().saturating_sub(len - 1)).step_by(len);
        let is_block = |&start: &usize| self.is_free[start..start + len].iter().all(|&is_free| is_free);
        let behind = places().skip_while(|&start| start < self.next).find(is_block);
        let start = behind.or_else(|| places().find(is_block))?;
        self.is_free[start..start + len].fill(false);
        (self.next, self.nr_free) = (start + len, self.nr_free - len);
        Some(start)
    }

    fn give(&mut self, start: usize, len: usize) {
        self.is_free[start..start + len].fill(true);
        (self.next, self.nr_free) = (start, self.nr_free + len);
    }
}

// SAFETY: F1: the bitmap hands each block out once, inside one range or across two that touch. F2, F4, F5: window and
// metadata stay, zeroed, and numbers and addresses differ by a constant. F3: no range begins at 0. F6, F8: the core is
// never freed. F7: the line at the head of each page of metadata.
unsafe impl<H: Hardware> FrameSource<Cpu<H>> for Ram<H> {
    fn take(&self, order: u8) -> Result<Pfn, Cause> {
        if u32::from(order) >= u32::BITS {
            return Err(Cause::OrderTooHigh);
        }
        let start = self.0.free.lock().take(1 << order, self.0.base).ok_or(Cause::Exhausted)?;
        Ok(Pfn::new(self.0.base + start as u32))
    }

    unsafe fn give(&self, first: Pfn, order: u8) {
        self.0.free.lock().give((first.get() - self.0.base) as usize, 1 << order);
    }

    unsafe fn release(page: NonNull<Page<Cpu<H>>>, pfn: Pfn) {
        let first_line = page.as_ptr().cast::<u8>().map_addr(|address| address & !(PAGE_BYTES - 1));
        // SAFETY: `boot` wrote it at the head of each page of metadata.
        let core = unsafe { first_line.cast::<&'static Core<H>>().read() };
        // SAFETY: as promised.
        unsafe { Self(core).finish_deferral(pfn) };
    }

    fn page_pointer(&self, pfn: Pfn) -> NonNull<Page<Cpu<H>>> {
        assert!(self.contains(pfn), "{pfn} is not memory");
        let index = (pfn.get() - self.0.base) as usize;
        let line = index / LINES * PAGE_BYTES + (1 + index % LINES) * size_of::<Page<Cpu<H>>>();
        // SAFETY: in range, so that the metadata stands at this place.
        unsafe { NonNull::new_unchecked(self.0.metadata.add(line).cast()) }
    }

    fn frame(&self, pfn: Pfn) -> *mut u8 {
        at(self.0.window, pfn)
    }

    fn pfn_of(&self, address: *const u8) -> Option<Pfn> {
        let offset = address.addr().checked_sub(self.0.window.pointer.addr())?;
        Pfn::containing(PhysAddr::new(self.0.window.first + offset as u64)).filter(|&pfn| self.contains(pfn))
    }

    fn contains(&self, pfn: Pfn) -> bool {
        self.0.usable.iter().any(|range| range.contains(&pfn.get()))
    }

    fn for_each_range(&self, visit: &mut dyn FnMut(Range<u32>, u32)) {
        self.0.usable.iter().for_each(|range| visit(range.clone(), range.end));
    }

    fn nr_free(&self) -> usize {
        self.0.free.lock().nr_free
    }

    fn nr_cpus(&self) -> usize {
        1
    }

    fn rcu(&self) -> &Rcu<Cpu<H>> {
        &self.0.rcu
    }
}
