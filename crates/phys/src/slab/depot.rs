//! The frames of a slab, and which of their objects are free.
//!
//! # Words in a frame's metadata
//! `index`: the map; bit `n` is set if object `n` is free here. `links`: the previous and next partly used frame.
//! `owner`: which of the slab's depots the frame is of; it stays as long as an object is out. The slab's address stands
//! at the frame's end, for callbacks that know an object alone.
//!
//! # Invariant
//! I1 whenever the lock is dropped, a frame is on the list if and only if its map is neither empty nor full; one with a
//! full map is no longer the slab's.

use super::geometry::{Geometry, SLAB_OFFSET};
use crate::page::Page;
use crate::pfn::Pfn;
use crate::source::FrameSource;
use crate::state::Kind;
use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_platform::{Atomic, Ordering, PAGE_BYTES, Platform};

/// No frame: number 0 is never handed out.
const NONE: u64 = 0;
const PREVIOUS: usize = 0;
const NEXT: usize = 1;

/// The partly used frames of some CPUs. All words of the metadata but `owner` are read and written relaxed under its
/// lock.
pub(super) struct Depot<P: Platform, F: FrameSource<P>> {
    frames: F,
    geometry: Geometry,
    place: usize,
    first: u64,
    nr_frames: usize,
    platform: PhantomData<fn() -> P>,
}

impl<P: Platform, F: FrameSource<P>> Depot<P, F> {
    pub(super) fn new(frames: F, geometry: Geometry, place: usize) -> Self {
        Self { frames, geometry, place, first: NONE, nr_frames: 0, platform: PhantomData }
    }

    pub(super) fn nr_frames(&self) -> usize {
        self.nr_frames
    }

    /// Adds a frame that was just given out to the slab, all objects free. The caller takes one at once (I1).
    pub(super) fn adopt(&mut self, pfn: Pfn, slab: *const ()) {
        let page = self.frames.page(pfn);
        page.set_kind(Kind::Slab);
        // Relaxed: whoever reads it has an object of the frame, which was handed over.
        page.owner().store(self.place as u64, Ordering::Relaxed);
        // SAFETY: the frame is the slab's alone, and the place is aligned as the frame is.
        unsafe { self.frames.frame(pfn).add(SLAB_OFFSET).cast::<*const ()>().write(slab) };
        self.nr_frames += 1;
        set_map(page, self.geometry.full_map());
        self.link(pfn);
    }

    /// Takes a free object of the first partly used frame.
    pub(super) fn take(&mut self) -> Option<usize> {
        if self.first == NONE {
            return None;
        }
        let pfn = Pfn::new(self.first as u32);
        let page = self.frames.page(pfn);
        let map = map(page);
        let slot = map.trailing_zeros();
        set_map(page, map & (map - 1));
        if map & (map - 1) == 0 {
            self.unlink(pfn);
        }
        Some(self.frames.frame(pfn).addr() + self.geometry.offset_of(slot))
    }

    /// Takes an object back; returns its frame, no longer the slab's, if no other object of it was out.
    ///
    /// # Panics
    /// If the object is free already, or is none of this slab's: memory would be given out twice.
    pub(super) fn give(&mut self, object: usize) -> Option<Pfn> {
        let (pfn, bit) = self.place(object);
        let page = self.frames.page(pfn);
        let before = map(page);
        assert!(before & bit == 0 && page.kind() == Kind::Slab, "I1: the object at {object:#x} is freed twice");
        set_map(page, before | bit);
        if before == 0 {
            self.link(pfn);
        }
        if before | bit != self.geometry.full_map() {
            return None;
        }
        self.unlink(pfn);
        self.nr_frames -= 1;
        Some(pfn)
    }

    fn place(&self, object: usize) -> (Pfn, u64) {
        let slot = self.geometry.slot_at(object % PAGE_BYTES);
        let pfn = self.frames.pfn_of(core::ptr::without_provenance(object));
        (pfn.unwrap_or(Pfn::new(NONE as u32)), 1 << slot)
    }

    fn link(&mut self, pfn: Pfn) {
        let (this, next) = (u64::from(pfn.get()), self.first);
        self.first = this;
        self.set_link(this, PREVIOUS, NONE);
        self.set_link(this, NEXT, next);
        if next != NONE {
            self.set_link(next, PREVIOUS, this);
        }
    }

    fn unlink(&mut self, pfn: Pfn) {
        let links = self.frames.page(pfn).links();
        let (previous, next) = (links[PREVIOUS].load(Ordering::Relaxed), links[NEXT].load(Ordering::Relaxed));
        if previous == NONE {
            self.first = next;
        } else {
            self.set_link(previous, NEXT, next);
        }
        if next != NONE {
            self.set_link(next, PREVIOUS, previous);
        }
    }

    fn set_link(&self, of: u64, which: usize, to: u64) {
        self.frames.page(Pfn::new(of as u32)).links()[which].store(to, Ordering::Relaxed);
    }
}

/// Returns which depot an object's frame is of; the caller has the object.
pub(super) fn place_of<P: Platform>(frames: &impl FrameSource<P>, object: usize) -> usize {
    let pfn = frames.pfn_of(core::ptr::without_provenance(object));
    // Relaxed: see `adopt`.
    pfn.map_or(0, |pfn| frames.page(pfn).owner().load(Ordering::Relaxed) as usize)
}

fn map<P: Platform>(page: &Page<P>) -> u64 {
    // Relaxed: the depot's lock orders it.
    page.index().load(Ordering::Relaxed)
}

fn set_map<P: Platform>(page: &Page<P>, map: u64) {
    // Relaxed: as in `map`.
    page.index().store(map, Ordering::Relaxed);
}

/// Returns the slab of the frame that `inside` points into.
///
/// # Safety
/// The frame is a slab's, and the pointer may reach all of it.
pub(super) unsafe fn slab_of(inside: NonNull<u8>) -> *const () {
    let frame = inside.as_ptr().map_addr(|address| address & !(PAGE_BYTES - 1));
    // SAFETY: `adopt` wrote the place, and it stays until the frame is given back.
    unsafe { frame.add(SLAB_OFFSET).cast::<*const ()>().read() }
}
