//! Memory tags: a hook for machines that keep some, and a stand-in in software.
//!
//! # Guarantee
//! A page that the library makes has tags before a program reaches it: those of what it is a copy of, granule by
//! granule; one tag by a fast fill where they are all the same; tag 0 where nothing gives it any.
//!
//! # Source
//! Arm's Memory Tagging Extension: 4 bits for 16 bytes. Reference pages were to give memory tags as they give it
//! content (versions 3 to 5 of the series of 2020 and 2021).

use crate::system::System;
use alloc::boxed::Box;
use core::marker::PhantomData;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::{Atomic, AtomicInteger, Ordering, PAGE_BYTES};

/// Bytes that have one tag.
pub const GRANULE_BYTES: usize = 16;
/// Tags of a page.
pub const GRANULES: usize = PAGE_BYTES / GRANULE_BYTES;

/// Reads and writes the tags of frames. Called with no lock held but an address space's; must not call into the
/// library.
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | a page that is made: zeros, a pattern, a reference page of one tag | `fill` |
/// | a page that is copied | `copy` |
/// | the making of a reference page, which keeps the tags of what it is made from | `tag`, `set_tag` |
pub trait MemoryTags: Send + Sync {
    /// Returns the tag of a granule; `granule` is below [`GRANULES`].
    fn tag(&self, frame: Pfn, granule: usize) -> u8;
    /// Sets the tag of a granule.
    fn set_tag(&self, frame: Pfn, granule: usize, tag: u8);
    /// Sets the tags of all granules of a frame at once.
    fn fill(&self, frame: Pfn, tag: u8);
    /// Gives each granule of `to` the tag of the same granule of `from`.
    fn copy(&self, from: Pfn, to: Pfn) {
        for granule in 0..GRANULES {
            self.set_tag(to, granule, self.tag(from, granule));
        }
    }
}

/// Where a page that is made has its tags from.
#[derive(Clone, Copy)]
pub(crate) enum TagSource {
    /// All granules have this one.
    Uniform(u8),
    /// Those of another page.
    Page(Pfn),
}

/// Returns the tag that all granules of a frame have, if they do.
pub(crate) fn uniform(tags: &dyn MemoryTags, frame: Pfn) -> Option<u8> {
    let first = tags.tag(frame, 0);
    (1..GRANULES).all(|granule| tags.tag(frame, granule) == first).then_some(first)
}

/// Tags in software, a byte each: what a machine with tags would keep beside its memory.
///
/// ```
/// use faultless_vm::{GRANULE_BYTES, GRANULES, MemoryTags, SoftwareTags};
/// use std::sync::Arc;
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(2).attach(|| {
/// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
/// #     let mut vm = faultless_vm::Vm::<Native>::new(memory)?;
/// let tags = Arc::new(SoftwareTags::<Native>::new(vm.memory()));
/// vm.as_mut().set_memory_tags(Arc::clone(&tags) as Arc<dyn MemoryTags>);
/// let page = vm.zero_page();
/// tags.fill(page, 3);
/// tags.set_tag(page, GRANULES - 1, 4);
/// assert_eq!((tags.tag(page, 0), tags.tag(page, GRANULES - 1), GRANULE_BYTES), (3, 4, 16));
/// assert_eq!((tags.nr_fills(), tags.nr_copies()), (1, 0));
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SoftwareTags<P: System> {
    tags: Box<[P::AtomicU8]>,
    nr_fills: P::AtomicU64,
    nr_copies: P::AtomicU64,
    platform: PhantomData<fn() -> P>,
}

impl<P: System> SoftwareTags<P> {
    /// Returns tags for the frames of `memory`, all 0; takes a sixteenth of its size from the global allocator.
    pub fn new(memory: &P::Frames) -> Self {
        let tags = (0..memory.end() as usize * GRANULES).map(|_| P::AtomicU8::new(0)).collect();
        Self { tags, nr_fills: P::AtomicU64::new(0), nr_copies: P::AtomicU64::new(0), platform: PhantomData }
    }

    /// Returns how many pages got one tag by a fill.
    pub fn nr_fills(&self) -> u64 {
        // Relaxed: a statistic.
        self.nr_fills.load(Ordering::Relaxed)
    }

    /// Returns how many pages got the tags of another one.
    pub fn nr_copies(&self) -> u64 {
        // Relaxed: a statistic.
        self.nr_copies.load(Ordering::Relaxed)
    }

    fn of(&self, frame: Pfn) -> &[P::AtomicU8] {
        let first = frame.index() * GRANULES;
        &self.tags[first..first + GRANULES]
    }
}

impl<P: System> MemoryTags for SoftwareTags<P> {
    fn tag(&self, frame: Pfn, granule: usize) -> u8 {
        // Relaxed: like the content, tags are published with the entry that maps the frame.
        self.of(frame)[granule].load(Ordering::Relaxed)
    }

    fn set_tag(&self, frame: Pfn, granule: usize, tag: u8) {
        // Relaxed: as above.
        self.of(frame)[granule].store(tag, Ordering::Relaxed);
    }

    fn fill(&self, frame: Pfn, tag: u8) {
        // Relaxed: a statistic.
        self.nr_fills.fetch_add(1, Ordering::Relaxed);
        // Relaxed: as above.
        self.of(frame).iter().for_each(|granule| granule.store(tag, Ordering::Relaxed));
    }

    fn copy(&self, from: Pfn, to: Pfn) {
        // Relaxed: a statistic.
        self.nr_copies.fetch_add(1, Ordering::Relaxed);
        for (source, target) in self.of(from).iter().zip(self.of(to)) {
            // Relaxed: as above.
            target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
