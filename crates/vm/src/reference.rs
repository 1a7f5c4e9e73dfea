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
//! * I2 whoever drops the last reference has taken all translations to the page away: an area is let go of after its
//!   entries are, and pins and handles have none.
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

use crate::addr::{PAGE, is_page_aligned, page_floor};
use crate::content::Pattern;
use crate::design::Design;
use crate::error::CallError;
use crate::frames;
use crate::guest;
use crate::instance::Vm;
use crate::orphans::Orphan;
use crate::pin::PinKind;
use crate::pool::{Membership, PoolRef, Pooled};
use crate::space::{Space, SpaceRef};
use crate::system::System;
use crate::tags::{self, GRANULE_BYTES, GRANULES, TagSource};
use core::marker::PhantomData;
use faultless_phys::{FrameSource, Kind, OutOfFrames, Pfn};
use faultless_platform::mutant;
use faultless_platform::{Bulk, PAGE_BYTES};

/// A reference page; see the module.
pub struct Reference<P: System> {
    membership: Membership<P, Self>,
    page: Pfn,
    /// What the page repeats, if it repeats 8 bytes.
    word: Option<u64>,
    /// The tag of all its granules, if they have one.
    tag: Option<u8>,
    checksum: u64,
}

// SAFETY: immutable but for its membership, which the pool uses as it says.
unsafe impl<P: System> Sync for Reference<P> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<P: System> Send for Reference<P> {}

/// A counted reference to a reference page, for areas and pins.
pub(crate) type ReferenceRef<P> = PoolRef<P, Reference<P>>;

impl<P: System> Reference<P> {
    /// Returns the frame.
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
pub struct ReferenceHandle<'vm, P: System> {
    pub(crate) reference: ReferenceRef<P>,
    instance: PhantomData<&'vm ()>,
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

/// A frame that is becoming a reference page; freed if it does not.
struct Draft<'a, P: System> {
    memory: &'a P::Frames,
    page: Pfn,
}

impl<P: System> Drop for Draft<'_, P> {
    fn drop(&mut self) {
        // SAFETY: the frame is the draft's alone.
        unsafe { self.memory.free(self.page) };
    }
}

impl<P: System, D: Design<P>> Vm<P, D> {
    /// Makes a reference page that holds `content`.
    pub fn create_reference(&self, content: &[u64; PAGE_BYTES / 8]) -> Result<ReferenceHandle<'_, P>, OutOfFrames> {
        let reference = self.try_again(|| {
            let draft = self.draft()?;
            self.write_words(&draft, 0, content);
            self.tag_draft(&draft, None, GRANULE_BYTES);
            self.finish(draft)
        })?;
        Ok(ReferenceHandle { reference, instance: PhantomData })
    }

    /// Makes a reference page that repeats a pattern.
    pub fn create_repeated(&self, pattern: Pattern) -> Result<ReferenceHandle<'_, P>, OutOfFrames> {
        self.create_reference(&[pattern.word(); PAGE_BYTES / 8])
    }

    /// Takes a frame for a reference page, counted by nobody.
    fn draft(&self) -> Result<Draft<'_, P>, OutOfFrames> {
        let memory = self.memory();
        let page = frames::alloc(memory, Kind::Reference)?;
        // SAFETY: just given to us.
        mutant!(ReferencePageCounted, unsafe { memory.page(page).owned() }.stop_counting() => ());
        Ok(Draft { memory, page })
    }

    /// Writes words of a draft, from word `first` on.
    fn write_words(&self, draft: &Draft<'_, P>, first: usize, words: &[u64]) {
        let page = self.memory().frame(draft.page).cast::<u64>();
        for (place, &word) in (first..PAGE_BYTES / 8).zip(words) {
            // SAFETY: the draft is ours alone, and the word lies inside it.
            unsafe { page.add(place).write(word) };
        }
    }

    /// Gives a draft the tags of what it repeats: `size` bytes from a byte of a frame on, or none.
    fn tag_draft(&self, draft: &Draft<'_, P>, source: Option<(Pfn, usize)>, size: usize) {
        let Some(tags) = self.tags() else { return };
        match source {
            Some((frame, offset)) if size >= GRANULE_BYTES => {
                for granule in 0..GRANULES {
                    let place = (offset + granule * GRANULE_BYTES % size) / GRANULE_BYTES;
                    tags.set_tag(draft.page, granule, tags.tag(frame, place));
                }
            }
            _ => tags.fill(draft.page, 0),
        }
    }

    /// Makes a draft the page of a reference.
    fn finish(&self, draft: Draft<'_, P>) -> Result<ReferenceRef<P>, OutOfFrames> {
        let page = draft.page;
        // The reference has the frame now, also if it finds no room.
        core::mem::forget(draft);
        let words = words_of::<P>(self.memory(), page);
        let word = words[0];
        let reference = Reference {
            membership: Membership::new(),
            page,
            word: words.iter().all(|&other| other == word).then_some(word),
            tag: self.tags().map_or(Some(0), |tags| tags::uniform(tags, page)),
            checksum: checksum(words),
        };
        // SAFETY: references are held by areas, which end before us, and by handles and pins, which borrow us.
        unsafe { self.references().add(reference) }
    }
}

impl<'vm, P: System, D: Design<P>> SpaceRef<'vm, P, D> {
    /// Makes a reference page of the page at `content`, which is read as a load does (version 3 of the series).
    ///
    /// `flags` are 0, else EINVAL. EFAULT if `content` is not the first byte of a page that may be read, and ENOMEM.
    pub fn refpage_create(&self, content: u64, flags: u64) -> Result<ReferenceHandle<'vm, P>, CallError> {
        let reference = self.try_again(|| self.reference_of_page(content, flags))?;
        Ok(ReferenceHandle { reference, instance: PhantomData })
    }

    /// Makes a reference page that repeats `size` bytes from `content` on (version 5).
    ///
    /// EINVAL if `flags` are not 0, `size` is no power of two or more than a page, or `content` is no multiple of it;
    /// EFAULT if the bytes can't be read, and ENOMEM. Memory tags come along if `size` is at least that of a granule.
    pub fn refpage_create_sized(
        &self,
        content: u64,
        size: u32,
        flags: u64,
    ) -> Result<ReferenceHandle<'vm, P>, CallError> {
        let reference = self.try_again(|| self.reference_of_bytes(content, size, flags))?;
        Ok(ReferenceHandle { reference, instance: PhantomData })
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// In the posted order: flags, memory, address.
    fn reference_of_page(&self, content: u64, flags: u64) -> Result<ReferenceRef<P>, CallError> {
        if flags != 0 {
            return Err(CallError::Invalid("flags are 0"));
        }
        let draft = self.vm().draft()?;
        if !is_page_aligned(content) {
            return Err(CallError::BadBuffer { address: content });
        }
        self.copy_in(&draft, content, PAGE_BYTES)?;
        Ok(self.vm().finish(draft)?)
    }

    /// In version 5's order: flags, size and address, the bytes, memory.
    fn reference_of_bytes(&self, content: u64, size: u32, flags: u64) -> Result<ReferenceRef<P>, CallError> {
        if flags != 0 {
            return Err(CallError::Invalid("flags are 0"));
        }
        if !size.is_power_of_two() || u64::from(size) > PAGE || !content.is_multiple_of(u64::from(size)) {
            return Err(CallError::Invalid(
                "the size is a power of two up to a page's, and the address a multiple of it",
            ));
        }
        drop(self.pinned(page_floor(content), PinKind::Read)?);
        let draft = self.vm().draft()?;
        self.copy_in(&draft, content, size as usize)?;
        Ok(self.vm().finish(draft)?)
    }

    /// Fills a draft with `size` bytes of a page again and again, and gives it their tags.
    fn copy_in(&self, draft: &Draft<'_, P>, content: u64, size: usize) -> Result<(), CallError> {
        let source = self.pinned(page_floor(content), PinKind::Read)?;
        let offset = (content - page_floor(content)) as usize;
        let mut words = [0; 64];
        let per_turn = (size / 8).clamp(1, words.len());
        for first in (0..PAGE_BYTES / 8).step_by(per_turn) {
            let place = (offset + first * 8 % size.max(8)) & !7;
            let part = &mut words[..per_turn];
            // SAFETY: the pin holds the frame, the words lie in it, and mapped frames are accessed atomically.
            unsafe { guest::load_words::<P>(self.memory().frame(source.frame()).add(place), part) };
            if size < 8 {
                part[0] = repeated(part[0], offset % 8, size);
            }
            self.vm().write_words(draft, first, part);
        }
        self.vm().tag_draft(draft, Some((source.frame(), offset)), size);
        Ok(())
    }
}

/// Returns 8 bytes that repeat `size` bytes of a word, from byte `offset` on.
fn repeated(word: u64, offset: usize, size: usize) -> u64 {
    let bytes = word.to_ne_bytes();
    u64::from_ne_bytes(core::array::from_fn(|place| bytes[offset + place % size]))
}

/// Returns the words of a reference page.
fn words_of<P: System>(memory: &P::Frames, page: Pfn) -> &[u64] {
    // SAFETY: a frame is aligned and large enough; once it is a reference page nobody writes it.
    unsafe { core::slice::from_raw_parts(memory.frame(page).cast(), PAGE_BYTES / 8) }
}

fn checksum(words: &[u64]) -> u64 {
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
