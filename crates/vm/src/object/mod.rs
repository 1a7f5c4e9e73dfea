//! Memory objects: what stands behind file and shared mappings.
//!
//! # Guarantee
//! An object gives one frame for each page of its content, always the same while anybody holds the object. The
//! content comes from a [`PageSource`], which is asked with no lock held and may sleep, fail or ask to be asked again.
//!
//! # Invariants
//! * I1 a cached frame carries one reference of the object, until the object ends or the page is removed (see
//!   `removal`). Entries that map it hold none: areas keep the object, and lose it after their entries are empty and
//!   shot down; and who removes a page waits for whoever may map it (I2 of `removal`).
//! * I2 an object is freed when its last reference goes; the source must outlive it.
//! * I3 behind `content_bytes`, and where there is a hole, the content is zeros, whatever the source says: that part
//!   was cut off once, or removed.
//!
//! # Shape
//! The page cache (`cache`) is a tree of page tables from byte offset to frame, grown by compare-and-swap.

mod cache;
mod handle;
mod read;
mod removal;

use crate::system::System;
use cache::Cache;
pub use handle::{ObjectHandle, ObjectRef};

use crate::addr::PAGE;
use crate::entry::{Entry, EntryFlags};
use crate::error::Shortage;
use crate::pool::Membership;
use crate::translations::frames::{self, FrameMap};
use faultless_phys::{FrameSource, Kind, OutOfFrames, Pfn};
use faultless_platform::mutant;
use faultless_platform::{Atomic, AtomicInteger, Bulk, CachePadded, Holds, Ordering, PAGE_BYTES, Tracepoint};
use faultless_sync::{RwSemaphore, Rwsem, SpinMutex};

/// Length of the longest object, in bytes: the largest that a file of Linux has (tmpfs; `loff_t`).
/// [`Vm::truncate`](crate::Vm::truncate) refuses more; read by `faultless_abi`, before it takes an offset.
pub const MAX_OBJECT_BYTES: u64 = i64::MAX as u64;

/// A page could not be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// Not now: ask again. The fault starts over, without any lock held in between.
    Retry,
    /// Never: the access gets SIGBUS.
    Failed,
}

/// Where an object's content comes from.
///
/// ```
/// use faultless_vm::{FetchError, ObjectHandle, ObjectSpec, PageSource, WriteNotice};
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(2).attach(|| {
/// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
/// #     let vm = faultless_vm::Vm::<Native>::new(memory)?;
/// #     let space = vm.create_space(faultless_vm::Limits::default())?;
/// #     let guest = faultless_vm::Guest::new(&space);
/// /// A file whose bytes are their page's number.
/// struct Numbers;
/// impl PageSource for Numbers {
///     fn fetch(&self, _identity: u64, page_index: u64, page: &mut [u8; 4096]) -> Result<(), FetchError> {
///         page.fill(page_index as u8);
///         Ok(())
///     }
/// }
/// let spec = ObjectSpec { identity: 3, size_bytes: 1 << 20, source: &Numbers, write_notice: WriteNotice::Fault };
/// let file: ObjectHandle<'_, Native> = vm.create_object(&spec)?;
/// let mut word = [0];
/// vm.read_object(&file, 5 * 4096, &mut word)?;
/// assert_eq!((word, file.identity(), file.size_bytes()), ([0x0505_0505_0505_0505], 3, 1 << 20));
/// // Another opening: its mappings are not joined with the first one's.
/// assert_eq!(file.reopen().identity(), 3);
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PageSource: Send + Sync {
    /// Writes the content of page `page_index` of the object named `identity` into `page`, which is zero on entry.
    ///
    /// Called with no lock held; may sleep. Threads that miss a page at the same time each ask for it, and one answer
    /// is kept: a source for which that is dear keeps the others waiting itself.
    fn fetch(&self, identity: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError>;

    /// Says whether all content is zeros, so that it needs no note where pages were removed; asked by truncation and
    /// hole punching.
    fn is_zeros(&self) -> bool {
        false
    }
}

/// The source of shared anonymous memory: zeros.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZeroSource;

impl PageSource for ZeroSource {
    fn fetch(&self, _identity: u64, _page_index: u64, _page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        Ok(())
    }

    fn is_zeros(&self) -> bool {
        true
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

/// A frame on its way into the cache; dropped if it does not get there, also when the source panics.
struct Fetched<'a, P: System> {
    memory: &'a P::Frames,
    pfn: Pfn,
}

impl<P: System> Drop for Fetched<'_, P> {
    fn drop(&mut self) {
        frames::put(self.memory, self.pfn);
    }
}

/// A memory object; see the module. Reports read it by [`Vm::for_each_object`](crate::Vm::for_each_object), and a handle
/// derefs to it.
pub struct Object<P: System> {
    /// Apart from what faults read: mappings that come and go write it.
    membership: CachePadded<Membership<P, Self>>,
    size_bytes: P::AtomicU64,
    /// See I3; at most what the size was when the object was made.
    content_bytes: P::AtomicU64,
    /// Numbers removals: a page that was fetched before one is not cached after it.
    nr_removals: P::AtomicU64,
    written: CachePadded<Written<P>>,
    identity: u64,
    source: &'static dyn PageSource,
    write_notice: WriteNotice,
    pages: Cache<P>,
}

/// What faults don't look at, or only when they fetch a page.
struct Written<P: System> {
    /// Held by who truncates or punches, from the first change to the last; see `removal`.
    changes: Rwsem<P>,
    /// Held by who counts a removal, and by who caches a page.
    removals: SpinMutex<P, ()>,
    openings: P::AtomicU64,
}

// SAFETY: shared by design; the pool uses its membership as it says.
unsafe impl<P: System> Sync for Object<P> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<P: System> Send for Object<P> {}

/// A page begins behind its object's end.
pub(crate) struct BehindEnd;

impl From<BehindEnd> for PageError {
    fn from(_: BehindEnd) -> Self {
        Self::BehindEnd
    }
}

/// Why an object gave no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The page begins behind the object's end.
    BehindEnd,
    /// The source did not give it.
    Fetch(FetchError),
    /// No frame is free.
    OutOfFrames(OutOfFrames),
}

impl Shortage for PageError {
    fn shortage(&self) -> Option<&OutOfFrames> {
        if let Self::OutOfFrames(cause) = self { Some(cause) } else { None }
    }
}

impl From<OutOfFrames> for PageError {
    fn from(cause: OutOfFrames) -> Self {
        Self::OutOfFrames(cause)
    }
}

impl<P: System> Object<P> {
    fn new(spec: &ObjectSpec, pages: Cache<P>) -> Self {
        Self {
            membership: CachePadded::new(Membership::new()),
            size_bytes: P::AtomicU64::new(spec.size_bytes.min(MAX_OBJECT_BYTES)),
            content_bytes: P::AtomicU64::new(spec.size_bytes.min(MAX_OBJECT_BYTES)),
            nr_removals: P::AtomicU64::new(0),
            written: CachePadded::new(Written {
                changes: Rwsem::new(),
                removals: SpinMutex::new(()),
                openings: P::AtomicU64::new(0),
            }),
            identity: spec.identity,
            source: spec.source,
            write_notice: spec.write_notice,
            pages,
        }
    }

    /// Tells observers what lies where.
    #[cold]
    pub(super) fn tell_names(&self) {
        P::trace(Tracepoint::named("a memory object's own words", self));
        P::trace(Tracepoint::named("the count of a memory object's mappings and handles", &self.membership));
        P::trace(Tracepoint::named("the locks of who changes a memory object", &self.written));
    }

    /// Returns the name that the source knows the content by.
    /// For reports, which show it as an inode's number.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Returns a number for a new opening of the object.
    pub(crate) fn next_opening(&self) -> u64 {
        // Relaxed: only uniqueness matters.
        self.written.openings.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the length in bytes.
    /// For a caller that lets others ask for the length, as `fstat` does.
    pub fn size_bytes(&self) -> u64 {
        // Relaxed: a fault that races with a change of the size may use either.
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether the first store to a page must fault.
    pub(crate) fn write_notice(&self) -> WriteNotice {
        self.write_notice
    }

    /// Returns the frame of a cached page; `None` if [`Object::fill`] must fetch it.
    ///
    /// The caller keeps an area as it is that maps the object, or is in an RCU section, in which it may take a
    /// reference, but not map the page: meanwhile the object's own reference can't go (I2 of `removal`).
    pub(crate) fn cached(&self, memory: &P::Frames, page_index: u64) -> Result<Option<Pfn>, BehindEnd> {
        let offset = self.offset_of(page_index)?;
        let Some(leaf) = self.pages.walk(memory, offset) else { return Ok(None) };
        // ORDER: Acquire pairs with the Release in `fill`: the frame's content is seen.
        let entry = leaf.slot.load(Ordering::Acquire);
        Ok(entry.holds_frame().then(|| entry.pfn()))
    }

    /// Fetches a page into the cache; called with no lock held.
    pub(crate) fn fill(&self, memory: &P::Frames, page_index: u64) -> Result<(), PageError> {
        // Before the length is looked at: what a truncation cuts off after that is counted, and not cached.
        // ORDER: Acquire pairs with the Release in `count_removal`: the length and the content that it left are seen.
        let removals = self.nr_removals.load(Ordering::Acquire);
        let offset = self.offset_of(page_index)?;
        let slot = self.pages.walk_or_grow(memory, offset)?.slot;
        // Relaxed: if it becomes a hole meanwhile, the compare-and-swap below fails.
        let seen = slot.load(Ordering::Relaxed);
        if seen.holds_frame() {
            return Ok(());
        }
        let fetched = Fetched::<P> { memory, pfn: frames::alloc_zeroed(memory, Kind::Object)? };
        self.fetch(memory, &fetched, page_index, seen)?;
        let entry = Entry::new(fetched.pfn, EntryFlags::PRESENT);
        // Relaxed: a look, so that of many who fetch one page only who is first takes the lock.
        if slot.load(Ordering::Relaxed) != seen {
            return Ok(());
        }
        let counted = self.written.removals.lock();
        // Relaxed: it is changed under the lock.
        let is_in_force = mutant!(FetchedBesideRemoval, self.nr_removals.load(Ordering::Relaxed) == removals => true);
        // ORDER: Release pairs with the Acquire in `cached`.
        let is_ours = is_in_force && slot.exchange(seen, entry, Ordering::Release, Ordering::Relaxed).is_ok();
        drop(counted);
        if is_ours {
            // The entry has the reference now. Otherwise another thread was faster, or the content changed: the fault
            // looks again.
            core::mem::forget(fetched);
        }
        Ok(())
    }

    /// Fills a page that is all zeros with the source's content, as far as that is in force (I3).
    fn fetch(&self, memory: &P::Frames, page: &Fetched<P>, page_index: u64, seen: Entry) -> Result<(), PageError> {
        // Relaxed: changed under the lock, and counted there.
        let content = self.content_bytes.load(Ordering::Relaxed).saturating_sub(page_index * PAGE);
        if seen.is_hole() || content == 0 {
            return Ok(());
        }
        if P::lacks_address(memory.frame(page.pfn), Holds::FilePage) {
            return self.fetch_and_copy(memory, page, page_index, content);
        }
        // SAFETY: the frame is ours alone until it is published.
        let bytes = unsafe { &mut *memory.frame(page.pfn).cast::<[u8; PAGE_BYTES]>() };
        self.fetch_bytes(page_index, content, bytes).map_err(PageError::Fetch)
    }

    /// Lets the source, which may sleep, fill a frame that has an address, and copies it to `page`, which has none but
    /// while it is mapped: not every map may be kept over a sleep.
    #[cold]
    fn fetch_and_copy(
        &self,
        memory: &P::Frames,
        page: &Fetched<P>,
        page_index: u64,
        content: u64,
    ) -> Result<(), PageError> {
        if self.source.is_zeros() {
            return Ok(());
        }
        let filled = Fetched::<P> { memory, pfn: frames::alloc_zeroed(memory, Kind::Reserved)? };
        // SAFETY: the frame is ours alone.
        let bytes = unsafe { &mut *memory.frame(filled.pfn).cast::<[u8; PAGE_BYTES]>() };
        self.fetch_bytes(page_index, content, bytes).map_err(PageError::Fetch)?;
        let _map = FrameMap::brief(memory, page.pfn, Some(Holds::FilePage));
        // SAFETY: both frames are ours alone.
        unsafe { P::bulk(memory.frame(page.pfn), Bulk::CopyFrom(memory.frame(filled.pfn))) };
        Ok(())
    }

    /// Lets the source fill a page of zeros; of its bytes `content` are in force (I3).
    fn fetch_bytes(&self, page_index: u64, content: u64, bytes: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        self.source.fetch(self.identity, page_index, bytes)?;
        if content < PAGE {
            bytes[content as usize..].fill(0);
        }
        Ok(())
    }

    /// Says whether a page is in memory.
    pub(crate) fn has_page(&self, memory: &P::Frames, page_index: u64) -> bool {
        let Ok(offset) = self.offset_of(page_index) else { return false };
        self.pages.walk(memory, offset).is_some_and(|leaf| leaf.entry().holds_frame())
    }

    fn offset_of(&self, page_index: u64) -> Result<u64, BehindEnd> {
        page_index.checked_mul(PAGE).filter(|&offset| offset < self.size_bytes()).ok_or(BehindEnd)
    }

    /// Visits the cached frames.
    pub(crate) fn for_each_frame(&self, memory: &P::Frames, visit: &mut dyn FnMut(Pfn)) {
        self.pages.for_each_entry(memory, &mut |_, entry| {
            if entry.holds_frame() {
                visit(entry.pfn());
            }
        });
    }

    /// Says whether a page begins before the end.
    pub(crate) fn reaches(&self, page_index: u64) -> bool {
        self.offset_of(page_index).is_ok()
    }

    /// Returns where a page is cached that begins behind the end, if one is, while nobody changes the cache.
    pub(crate) fn page_behind_end(&self, memory: &P::Frames) -> Option<u64> {
        let mut behind = None;
        self.pages.for_each_entry(memory, &mut |offset, entry| {
            let is_behind = entry.holds_frame() && offset >= self.size_bytes();
            behind = behind.or(is_behind.then_some(offset));
        });
        behind
    }

    /// Visits the frames of the cache's tables.
    pub(crate) fn for_each_table(&self, memory: &P::Frames, visit: &mut dyn FnMut(Pfn)) {
        self.pages.for_each_table(memory, visit);
    }

    /// Returns the frame that is cached for a page, if it is, while nobody changes the cache.
    pub(crate) fn frame_of(&self, memory: &P::Frames, page_index: u64) -> Option<Pfn> {
        let offset = page_index.checked_mul(PAGE).filter(|&offset| offset < cache::END)?;
        let entry = self.pages.walk(memory, offset)?.entry();
        entry.holds_frame().then(|| entry.pfn())
    }
}
