//! Pins: pages that are held without a mapping, as a device driver holds them (get_user_pages).
//!
//! # Guarantee
//! The frame of a pin is not freed and not given another use before the pin is dropped, whatever happens to the
//! mapping.
//!
//! | page | pinned for reading | for writing | for reading, for long |
//! |---|---|---|---|
//! | of zeros, or a reference page | itself, not counted; a reference page is held | a copy | a copy (our extension for reference pages) |
//! | any other | itself | itself, once stores may reach it | as for reading |
//!
//! As with get_user_pages, a later fork or a store through a mapping that shares the page may part the mapping from the
//! pin.
//!
//! # Invariants
//! * I1 a pin of a counted frame owns one of its references; one of a reference page owns a reference to that.
//! * I2 both are taken while the entry that maps the page is locked, or its area held.

use crate::access::Access;
use crate::orphans::Orphan;
use crate::pool::{Membership, PoolRef, Pooled};
use crate::reference::ReferenceRef;
use crate::system::System;
use crate::translations::frames::{self, FrameMap};
use crate::words;
use core::marker::PhantomData;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::PAGE_BYTES;

/// What a page is pinned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinKind {
    /// To be read, soon.
    Read,
    /// To be written.
    Write,
    /// To be read, as long as somebody likes: nobody shares a page of zeros or a reference page so long
    /// (`FOLL_LONGTERM`).
    LongTermRead,
}

impl PinKind {
    pub(crate) fn access(self) -> Access {
        if self == Self::Write { Access::Write } else { Access::Read }
    }
}

/// What holds the frame of a pin.
pub(crate) enum Hold<P: System> {
    /// One of its references.
    Counted,
    /// It is a reference page.
    Reference(#[expect(dead_code, reason = "held, not used")] ReferenceRef<P>),
    /// Nothing: the page of zeros, which ends with the instance.
    Nothing,
}

/// A frame that is held; see the module.
pub struct Pinned<P: System> {
    pub(crate) membership: Membership<P, Self>,
    pub(crate) frame: Pfn,
    pub(crate) hold: Hold<P>,
    pub(crate) kind: PinKind,
}

// SAFETY: immutable but for its membership, which the pool uses as it says.
unsafe impl<P: System> Sync for Pinned<P> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<P: System> Send for Pinned<P> {}

impl<P: System> Pinned<P> {
    /// Returns the frame.
    pub fn frame(&self) -> Pfn {
        self.frame
    }

    /// Returns what the page was pinned for.
    pub fn kind(&self) -> PinKind {
        self.kind
    }

    /// Says whether the frame counts the pin among its references.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self.hold, Hold::Counted)
    }
}

impl<P: System> Orphan<P> for Pinned<P> {
    fn link(&self) -> &P::AtomicPtr<Self> {
        self.membership.orphan_link()
    }
}

impl<P: System> Pooled<P> for Pinned<P> {
    fn membership(&self) -> &Membership<P, Self> {
        &self.membership
    }

    fn end(&self, memory: &P::Frames) {
        if self.is_counted() {
            frames::put(memory, self.frame);
        }
    }
}

/// A page that is held until this is dropped, on any thread: what a driver does around DMA.
///
/// ```
/// use faultless_vm::{PAGE, Pin, PinKind, Pinned};
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(2).attach(|| {
/// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
/// #     let vm = faultless_vm::Vm::<Native>::new(memory)?;
/// #     let space = vm.create_space(faultless_vm::Limits::default())?;
/// #     let guest = faultless_vm::Guest::new(&space);
/// #     let map = |len_bytes, protection| {
/// #         space.mmap(&faultless_vm::MapRequest {
/// #             placement: faultless_vm::Placement::Anywhere,
/// #             len_bytes,
/// #             protection,
/// #             options: faultless_vm::MapOptions::empty(),
/// #             backing: faultless_vm::Backing::Anonymous,
/// #             populate: faultless_vm::Populate::OnFault,
/// #         })
/// #     };
/// #     let both = faultless_vm::Protection::READ | faultless_vm::Protection::WRITE;
/// let start = map(PAGE, both)?;
/// let pin: Pin<'_, Native> = space.pin(start, PinKind::Write)?;
/// assert!(pin.write(8, &[7]), "it was pinned for writing");
/// assert_eq!((guest.load(start + 8)?.0, pin.kind()), (7, PinKind::Write));
/// // The frame stays, whatever becomes of the mapping.
/// space.munmap(faultless_vm::AddressRange::new(start, PAGE))?;
/// let mut words = [0; 1];
/// pin.read(8, &mut words);
/// assert_eq!(words, [7]);
/// let held: &Pinned<Native> = &pin;
/// assert!(vm.memory().contains(held.frame()));
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pin<'vm, P: System> {
    pub(crate) pinned: PoolRef<P, Pinned<P>>,
    pub(crate) instance: PhantomData<&'vm ()>,
}

impl<P: System> core::ops::Deref for Pin<'_, P> {
    type Target = Pinned<P>;
    fn deref(&self) -> &Pinned<P> {
        &self.pinned
    }
}

impl<P: System> Pin<'_, P> {
    /// Reads words of the page, from byte `offset` on, a multiple of 8; those behind the page's end are left as they
    /// are.
    pub fn read(&self, offset: usize, words: &mut [u64]) {
        let offset = offset.min(PAGE_BYTES) & !7;
        let nr_words = words.len().min((PAGE_BYTES - offset) / 8);
        let (_map, page) = self.mapped();
        // SAFETY: the pin holds the frame, the words lie in it, and mapped frames are accessed atomically.
        unsafe { words::load_words::<P>(page.add(offset), &mut words[..nr_words]) };
    }

    /// Writes words of a page that is pinned for writing; those behind its end go nowhere. Says whether it was.
    pub fn write(&self, offset: usize, words: &[u64]) -> bool {
        if self.kind != PinKind::Write {
            return false;
        }
        let offset = offset.min(PAGE_BYTES) & !7;
        let nr_words = words.len().min((PAGE_BYTES - offset) / 8);
        let (_map, page) = self.mapped();
        // SAFETY: as above; the page was one that stores reach when it was pinned, so it is no shared one.
        unsafe { words::store_words::<P>(page.add(offset), &words[..nr_words]) };
        true
    }

    /// Maps the frame, if it has no address of its own; returns its first byte.
    #[inline(always)]
    fn mapped(&self) -> (FrameMap<'_, P, P::Frames>, *mut u8) {
        let memory = self.pinned.memory();
        (FrameMap::by_kind(memory, self.frame), memory.frame(self.frame))
    }
}
