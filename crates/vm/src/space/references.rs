//! Making reference pages, and looking at them: see `reference`.

use crate::addr::{PAGE, VirtAddr, is_page_aligned, page_floor};
use crate::design::Design;
use crate::error::CallError;
use crate::instance::Vm;
use crate::pattern::Pattern;
use crate::pin::PinKind;
use crate::pool::Membership;
use crate::space::{Space, SpaceRef};
use crate::system::System;
use crate::tags::{self, GRANULE_BYTES, GRANULES};
use crate::translations::frames::{self, FrameMap};
use crate::words;
use core::marker::PhantomData;
use faultless_phys::{FrameSource, Kind, OutOfFrames, Pfn};
use faultless_platform::PAGE_BYTES;
use faultless_platform::mutant;

use crate::reference::{Reference, ReferenceHandle, ReferenceRef, checksum, repeated, words_of};

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
            return Err(CallError::BadBuffer { address: VirtAddr::new(content) });
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
        drop(self.pinned(VirtAddr::new(page_floor(content)), PinKind::Read)?);
        let draft = self.vm().draft()?;
        self.copy_in(&draft, content, size as usize)?;
        Ok(self.vm().finish(draft)?)
    }

    /// Fills a draft with `size` bytes of a page again and again, and gives it their tags.
    fn copy_in(&self, draft: &Draft<'_, P>, content: u64, size: usize) -> Result<(), CallError> {
        let source = self.pinned(VirtAddr::new(page_floor(content)), PinKind::Read)?;
        let offset = (content - page_floor(content)) as usize;
        let mut words = [0; 64];
        let per_turn = (size / 8).clamp(1, words.len());
        for first in (0..PAGE_BYTES / 8).step_by(per_turn) {
            let place = (offset + first * 8 % size.max(8)) & !7;
            let part = &mut words[..per_turn];
            let map = FrameMap::by_kind(self.memory(), source.frame());
            // SAFETY: the pin holds the frame, the words lie in it, and mapped frames are accessed atomically.
            unsafe { words::load_words::<P>(self.memory().frame(source.frame()).add(place), part) };
            drop(map);
            if size < 8 {
                part[0] = repeated(part[0], offset % 8, size);
            }
            self.vm().write_words(draft, first, part);
        }
        self.vm().tag_draft(draft, Some((source.frame(), offset)), size);
        Ok(())
    }
}
