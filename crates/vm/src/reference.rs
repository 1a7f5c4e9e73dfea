//! Reference pages: pages that untouched memory reads as, in place of the page of zeros (`refpage_create`).
//!
//! # Guarantee
//! A reference page is never written after it was made, never counted, and lives as long as an area, a handle or a pin
//! refers to it. Loads of an area map it read-only; the first store to a page copies it, or fills the new page without
//! looking at it where it is 8 bytes again and again, which one repeated byte is. Faults of such areas:
//! `fault::reference`.
//!
//! # Invariants
//! * I1 the frame is of kind [`Kind::Reference`] from before the first reference to its end; entries that map it are
//!   special and not writable.
//! * I2 when the last reference is dropped, no translation to the page is left: an area drops its reference after its
//!   entries are gone, and pins and handles have none.
//! * I3 `checksum` is that of the content.
//!
//! # Source, and where it is departed from
//! `[PATCH v3] mm: introduce reference pages` (2020-08-14), and for sizes the manual page of version 5 (2021-07-16).
//! * The author answered a reviewer that a shared writable mapping would get SIGBUS. As posted it can't be had: the
//!   descriptor is read-only, so mmap answers EACCES, and a shared read-only mapping, which Linux then keeps as a
//!   private one, reads the pattern. So it is here. SIGBUS is what a load or store gets where such an area is forced by
//!   other means.
//! * In the posted code a move of an area that was never stored to takes its new address for its file offset, as it
//!   would for anonymous memory. Here the offset stays the file's.
//! * `MADV_WIPEONFORK` is refused as for any file; with
//!   [`Limits::reference_extensions`](crate::Limits::reference_extensions) it is allowed, and the child reads the
//!   pattern. A long-term pin for reading copies first; a later series did so for all pages that are shared read-only.

use crate::orphans::Orphan;
use crate::pool::{Membership, PoolRef, Pooled};
use crate::system::System;
use crate::tags::TagSource;
use core::marker::PhantomData;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::mutant;
use faultless_platform::{Bulk, PAGE_BYTES};

/// A reference page; see the module.
/// [`Vm::for_each_reference`](crate::Vm::for_each_reference) shows it to audits; areas and pins keep it.
pub struct Reference<P: System> {
    pub(crate) membership: Membership<P, Self>,
    pub(crate) page: Pfn,
    /// What the page repeats, if it repeats 8 bytes.
    pub(crate) word: Option<u64>,
    /// The tag of all its granules, if they have one.
    pub(crate) tag: Option<u8>,
    pub(crate) checksum: u64,
}

// SAFETY: immutable but for its membership, which the pool uses as it says.
unsafe impl<P: System> Sync for Reference<P> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<P: System> Send for Reference<P> {}

/// A counted reference to a reference page, for areas and pins.
pub(crate) type ReferenceRef<P> = PoolRef<P, Reference<P>>;

impl<P: System> Reference<P> {
    /// Returns the frame.
    /// Audits read it, to tell a reference page's frame from others.
    pub fn page(&self) -> Pfn {
        self.page
    }

    /// Returns what a new page is filled with.
    pub(crate) fn filling(&self, memory: &P::Frames) -> Bulk {
        self.word.map_or(Bulk::CopyFrom(memory.frame(self.page)), Bulk::Fill)
    }

    /// Returns where a new page has its tags from.
    pub(crate) fn tag_source(&self) -> TagSource {
        self.tag.map_or(TagSource::Page(self.page), TagSource::Uniform)
    }

    /// Says whether the page holds what it was made with (I3); a caller that finds false has found a bug.
    pub fn is_intact(&self, memory: &P::Frames) -> bool {
        checksum(words_of::<P>(memory, self.page)) == self.checksum
    }
}

impl<P: System> Orphan<P> for Reference<P> {
    fn link(&self) -> &P::AtomicPtr<Self> {
        self.membership.orphan_link()
    }
}

impl<P: System> Pooled<P> for Reference<P> {
    fn membership(&self) -> &Membership<P, Self> {
        &self.membership
    }

    fn end(&self, memory: &P::Frames) {
        // SAFETY: no translation is left (I2), and nobody refers to the page.
        unsafe { memory.free(self.page) };
    }
}

/// A user's reference to a reference page, which mmap takes; the page lives on while areas show it or pins hold it.
///
/// Clones are one handle, as descriptors are that dup made.
/// [`Vm`](crate::Vm) has an example; [`Backing::Reference`](crate::Backing::Reference) takes it.
pub struct ReferenceHandle<'vm, P: System> {
    pub(crate) reference: ReferenceRef<P>,
    pub(crate) instance: PhantomData<&'vm ()>,
}

impl<P: System> Clone for ReferenceHandle<'_, P> {
    fn clone(&self) -> Self {
        Self { reference: self.reference.clone(), instance: PhantomData }
    }
}

impl<P: System> core::ops::Deref for ReferenceHandle<'_, P> {
    type Target = Reference<P>;
    fn deref(&self) -> &Reference<P> {
        &self.reference
    }
}

#[cfg(feature = "mutants")]
impl<P: System> ReferenceHandle<'_, P> {
    /// A known bug.
    fn free_while_mapped(&self) {
        let memory = self.reference.memory();
        core::mem::forget(self.reference.clone());
        // SAFETY: none: the known bug.
        unsafe { memory.free(self.reference.page) };
    }
}

impl<P: System> Drop for ReferenceHandle<'_, P> {
    fn drop(&mut self) {
        mutant!(ReferenceFreedWhileMapped => self.free_while_mapped());
    }
}

/// Returns 8 bytes that repeat `size` bytes of a word, from byte `offset` on.
pub(crate) fn repeated(word: u64, offset: usize, size: usize) -> u64 {
    let bytes = word.to_ne_bytes();
    u64::from_ne_bytes(core::array::from_fn(|place| bytes[offset + place % size]))
}

/// Returns the words of a reference page.
pub(crate) fn words_of<P: System>(memory: &P::Frames, page: Pfn) -> &[u64] {
    // SAFETY: a frame is aligned and large enough; once it is a reference page nobody writes it.
    unsafe { core::slice::from_raw_parts(memory.frame(page).cast(), PAGE_BYTES / 8) }
}

pub(crate) fn checksum(words: &[u64]) -> u64 {
    // FNV-1a's steps, a word each: every change of one word changes the sum.
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &word| (sum ^ word).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::repeated;

    #[test]
    fn bytes_repeat_from_where_they_stand() {
        let word = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(repeated(word, 5, 1).to_ne_bytes(), [5; 8]);
        assert_eq!(repeated(word, 2, 2).to_ne_bytes(), [2, 3, 2, 3, 2, 3, 2, 3]);
        assert_eq!(repeated(word, 4, 4).to_ne_bytes(), [4, 5, 6, 7, 4, 5, 6, 7]);
    }
}
