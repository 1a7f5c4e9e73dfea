//! Memory objects: what stands behind file and shared mappings.
//!
//! # Guarantee
//! An object gives one frame for each page of its content, always the same while anybody holds the object. The
//! content comes from a [`PageSource`], which is asked with no lock held and may sleep, fail or ask to be asked again.
//!
//! # Invariants
//! * I1 a cached frame carries one reference of the object; the object's pages live as long as the object.
//! * I2 an object is freed when its last reference goes; the source must outlive it.
//!
//! # Shape
//! The page cache is a tree of page tables (see [`Tables`]) from byte offset to frame, grown by compare-and-swap, so that
//! lookups take no lock.

mod pool;
mod read;

pub(crate) use pool::Pool;
pub use pool::{ObjectHandle, ObjectRef};

use crate::addr::PAGE;
use crate::entry::{Entry, EntryFlags};
use crate::frames;
use crate::table::Tables;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use faultless_phys::{Kind, Memory, OutOfFrames, Pfn};
use faultless_platform::{Atomic, Ordering, PAGE_BYTES, Platform};

/// Largest byte offset of an object, exclusive: what four table levels span.
pub const MAX_OBJECT_BYTES: u64 = 1 << 48;

/// A page could not be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// Not now: ask again. The fault starts over, without any lock held in between.
    Retry,
    /// Never: the access gets SIGBUS.
    Failed,
}

/// Where an object's content comes from.
pub trait PageSource: Send + Sync {
    /// Writes the content of page `page_index` of the object named `identity` into `page`, which is zero on entry.
    ///
    /// Called with no lock held; may sleep.
    fn fetch(&self, identity: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError>;
}

/// The source of shared anonymous memory: zeros.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZeroSource;

impl PageSource for ZeroSource {
    fn fetch(&self, _identity: u64, _page_index: u64, _page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        Ok(())
    }
}

/// What an object is made from.
#[derive(Clone, Copy)]
pub struct ObjectSpec {
    /// Names the content to the source.
    pub identity: u64,
    /// Length; pages that begin behind it have no content.
    pub size_bytes: u64,
    /// Gives the content.
    pub source: &'static dyn PageSource,
    /// Whether the first store to each page of a shared mapping is noticed by a fault, as file systems ask for.
    pub write_notice: WriteNotice,
}

/// Whether the first store to a page of a shared mapping faults even if a load mapped the page before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteNotice {
    /// It does: a file system must learn of dirty pages.
    Fault,
    /// It does not: memory that lives nowhere else (tmpfs, shared anonymous memory).
    None,
}

/// A memory object; see the module.
pub struct Object<P: Platform> {
    pub(super) references: P::AtomicU32,
    pub(super) next_in_pool: UnsafeCell<Option<NonNull<Self>>>,
    size_bytes: P::AtomicU64,
    identity: u64,
    source: &'static dyn PageSource,
    write_notice: WriteNotice,
    pages: Tables<P>,
}

// SAFETY: shared by design; `next_in_pool` is used under the pool's lock.
unsafe impl<P: Platform> Sync for Object<P> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<P: Platform> Send for Object<P> {}

/// Why an object gave no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The page begins behind the object's end.
    BehindEnd,
    /// The source did not give it.
    Fetch(FetchError),
    /// As many mappings as the frame's count can hold exist already.
    Saturated,
    /// No frame is free.
    OutOfFrames(OutOfFrames),
}

impl From<OutOfFrames> for PageError {
    fn from(cause: OutOfFrames) -> Self {
        Self::OutOfFrames(cause)
    }
}

impl<P: Platform> Object<P> {
    fn new(spec: &ObjectSpec, pages: Tables<P>) -> Self {
        Self {
            references: P::AtomicU32::new(1),
            next_in_pool: UnsafeCell::new(None),
            size_bytes: P::AtomicU64::new(spec.size_bytes.min(MAX_OBJECT_BYTES)),
            identity: spec.identity,
            source: spec.source,
            write_notice: spec.write_notice,
            pages,
        }
    }

    /// Changes the length. Pages that are mapped stay mapped until they are unmapped.
    pub fn set_size_bytes(&self, size_bytes: u64) {
        // Relaxed: see `size_bytes`.
        self.size_bytes.store(size_bytes.min(MAX_OBJECT_BYTES), Ordering::Relaxed);
    }

    /// Returns the length in bytes.
    pub fn size_bytes(&self) -> u64 {
        // Relaxed: a fault that races with a change of the size may use either.
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether the first store to a page must fault.
    pub(crate) fn write_notice(&self) -> WriteNotice {
        self.write_notice
    }

    /// Returns the frame of a cached page, with one reference for the caller; `None` if [`Object::fill`] must fetch it.
    pub(crate) fn cached(&self, memory: &Memory<P>, page_index: u64) -> Result<Option<Pfn>, PageError> {
        let offset = self.offset_of(page_index)?;
        let Some(leaf) = self.pages.walk(memory, offset) else { return Ok(None) };
        // ORDER: Acquire pairs with the Release in `fill`: the frame's content is seen.
        let entry = Entry::from_bits(leaf.slot.load(Ordering::Acquire));
        if entry.is_empty() {
            return Ok(None);
        }
        frames::get(memory, entry.pfn()).map_err(|_| PageError::Saturated)?;
        Ok(Some(entry.pfn()))
    }

    /// Fetches a page into the cache; called with no lock held.
    pub(crate) fn fill(&self, memory: &Memory<P>, page_index: u64) -> Result<(), PageError> {
        let slot = self.pages.walk_or_grow(memory, self.offset_of(page_index)?)?.slot;
        let pfn = frames::alloc_zeroed(memory, Kind::Object)?;
        // SAFETY: the frame is ours alone until it is published.
        let page = unsafe { &mut *memory.frame(pfn).cast::<[u8; PAGE_BYTES]>() };
        if let Err(error) = self.source.fetch(self.identity, page_index, page) {
            frames::put(memory, pfn);
            return Err(PageError::Fetch(error));
        }
        let entry = Entry::new(pfn, EntryFlags::PRESENT).bits();
        // ORDER: Release pairs with the Acquire in `cached`.
        if slot.compare_exchange(0, entry, Ordering::Release, Ordering::Relaxed).is_err() {
            frames::put(memory, pfn);
        }
        Ok(())
    }

    fn offset_of(&self, page_index: u64) -> Result<u64, PageError> {
        page_index.checked_mul(PAGE).filter(|&offset| offset < self.size_bytes()).ok_or(PageError::BehindEnd)
    }

    /// Visits the cached frames.
    pub(crate) fn for_each_frame(&self, memory: &Memory<P>, visit: &mut dyn FnMut(Pfn)) {
        self.pages.for_each_mapped(memory, 0..MAX_OBJECT_BYTES, &mut |_, entry| visit(entry.pfn()));
    }

    /// Returns the tree of cached pages.
    pub(crate) fn tables(&self) -> &Tables<P> {
        &self.pages
    }
}
