//! The region: metadata in front, frames behind.
//!
//! ```text
//! base                                    base + first * 4096                          base + end * 4096
//! | anchor | Page 1 | Page 2 | ... Page n |  frame `first`  |  frame `first + 1`  | ... |
//! ```
//! # Guarantee
//! A number in `first..end` has metadata and a frame, both at fixed places for as long as the region lives. Set-up
//! writes the anchor alone: a region's metadata costs memory only as its frames are used.
//!
//! # Invariants
//! * I1 the region is page-aligned, was zeroed, and belongs to this memory until the last use.
//! * I2 all-zero bytes are a valid `Page`: atomics of their values' layout, an unlocked lock, an unused RCU head.

use crate::error::SetupError;
use crate::page::Page;
use crate::pfn::Pfn;
use core::mem::{align_of, size_of};
use core::ptr::NonNull;
use faultless_platform::{PAGE_BYTES, Platform, Tracepoint};

/// What stands where frame 0's metadata would: frame 0 holds metadata itself and has no use for its own.
#[repr(C, align(64))]
pub(crate) struct Anchor {
    /// The memory that owns the region, for callbacks that know a frame's metadata alone.
    pub(crate) memory: *const (),
}

const PAGE_METADATA_BYTES: usize = 64;

/// Where the metadata and the frames are.
pub(crate) struct Frames<P: Platform> {
    base: NonNull<Page<P>>,
    first: u32,
    end: u32,
}

impl<P: Platform> Clone for Frames<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Platform> Copy for Frames<P> {}

// SAFETY: the metadata is `Sync`, and frames are handed out as raw pointers.
unsafe impl<P: Platform> Send for Frames<P> {}
// SAFETY: as above.
unsafe impl<P: Platform> Sync for Frames<P> {}

impl<P: Platform> Frames<P> {
    const LAYOUT: () = assert!(
        size_of::<Page<P>>() == PAGE_METADATA_BYTES
            && align_of::<Page<P>>() == PAGE_METADATA_BYTES
            && size_of::<Anchor>() == PAGE_METADATA_BYTES,
        "metadata is one line a frame"
    );

    /// Divides a region.
    ///
    /// # Safety
    /// I1 holds.
    pub(crate) unsafe fn new(region: NonNull<u8>, len_bytes: usize) -> Result<Self, SetupError> {
        let () = Self::LAYOUT;
        let address = region.as_ptr().addr();
        if !address.is_multiple_of(PAGE_BYTES) {
            return Err(SetupError::Misaligned { address });
        }
        let nr_frames = len_bytes / PAGE_BYTES;
        if nr_frames > Pfn::LIMIT {
            return Err(SetupError::TooLarge { nr_frames });
        }
        let first = nr_frames.div_ceil(PAGE_BYTES / PAGE_METADATA_BYTES);
        if first >= nr_frames {
            return Err(SetupError::TooSmall { len_bytes, least_bytes: 2 * PAGE_BYTES });
        }
        Ok(Self { base: region.cast(), first: first as u32, end: nr_frames as u32 })
    }

    /// Writes the anchor, before the first frame is given out.
    pub(crate) fn set_anchor(&self, memory: *const ()) {
        // SAFETY: frame 0 holds metadata, so that its own is nobody's; set-up is alone.
        unsafe { self.base.cast::<Anchor>().write(Anchor { memory }) };
    }

    /// Returns the anchor's memory.
    ///
    /// # Safety
    /// `page` is the metadata of frame `number` of a region whose anchor was set, and the pointer may reach all of it.
    pub(crate) unsafe fn memory_of(page: NonNull<Page<P>>, number: u32) -> *const () {
        // SAFETY: the metadata of frame `number` stands `number` places behind the anchor.
        unsafe { page.sub(number as usize).cast::<Anchor>().as_ref().memory }
    }

    /// Returns the event that gives the metadata of all frames a name.
    pub(crate) fn named(&self, name: &'static str) -> Tracepoint {
        let len_bytes = self.end as usize * PAGE_METADATA_BYTES;
        Tracepoint::Named { name, address: self.base.as_ptr().addr(), len_bytes }
    }

    #[inline(always)]
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    #[inline(always)]
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    #[inline(always)]
    pub(crate) fn contains(&self, pfn: Pfn) -> bool {
        (self.first..self.end).contains(&pfn.get())
    }

    /// Returns a frame's metadata, as a pointer that may reach the whole region.
    ///
    /// # Panics
    /// If the region has no such frame: page tables, lists and objects hold only numbers that were given out.
    #[inline(always)]
    pub(crate) fn page_pointer(&self, pfn: Pfn) -> NonNull<Page<P>> {
        assert!(self.contains(pfn), "{pfn} is outside the memory");
        // SAFETY: in range, so that the metadata stands at this place.
        unsafe { self.base.add(pfn.index()) }
    }

    /// Returns a frame's metadata.
    ///
    /// # Panics
    /// If the region has no such frame.
    #[inline(always)]
    pub(crate) fn page(&self, pfn: Pfn) -> &Page<P> {
        // SAFETY: I1 and I2; `Page` changes through atomics alone.
        unsafe { self.page_pointer(pfn).as_ref() }
    }

    /// Returns a frame's first byte.
    #[inline(always)]
    pub(crate) fn frame(&self, pfn: Pfn) -> *mut u8 {
        debug_assert!(self.contains(pfn), "{pfn} is outside the memory");
        self.base.as_ptr().cast::<u8>().wrapping_add(pfn.index() * PAGE_BYTES)
    }

    /// Returns a pointer to an address inside a frame, that may reach the whole region.
    ///
    /// # Safety
    /// It is inside a frame.
    #[inline(always)]
    pub(crate) unsafe fn pointer(&self, address: usize) -> NonNull<u8> {
        debug_assert!(self.pfn_of(core::ptr::without_provenance(address)).is_some(), "{address:#x} is in no frame");
        // SAFETY: frames lie inside the region (the caller's promise).
        unsafe { self.base.cast::<u8>().add(address - self.base.as_ptr().addr()) }
    }

    /// Returns the frame that holds an address of the host.
    #[inline]
    pub(crate) fn pfn_of(&self, address: *const u8) -> Option<Pfn> {
        let offset = address.addr().checked_sub(self.base.as_ptr().addr())?;
        let number = u32::try_from(offset / PAGE_BYTES).ok()?;
        Some(Pfn::new(number)).filter(|&pfn| self.contains(pfn))
    }
}
