//! Growing and shrinking a mapping without copying what was written, nor touching what was not.
//!
//! # Guarantee
//! After a resize the bytes of the common part are as before, and new ones read as the pattern. A
//! resize that fails changes nothing.
//!
//! # How it grows
//! 1. In place, if the address space behind it is free.
//! 2. Else into a new mapping of the new length, onto which the old tiles are moved with their
//!    pages (`mremap`), one by one, since one call moves one area only. A tile that the kernel
//!    does not move is copied.

use crate::raw::{Kind, RawMapping};
use crate::stats::TILED_BYTES;
use crate::tile::{self, Tile};
use crate::{Error, RefPage, areas, sys};

impl RefPage {
    /// Makes a mapping longer or shorter; it may move.
    ///
    /// # Safety
    /// The mapping came from this pattern, and nobody uses it, or the old address after success.
    pub unsafe fn resize_raw(&self, raw: RawMapping, len: usize) -> Result<RawMapping, Error> {
        if len == 0 {
            return Err(Error::EmptyMapping);
        }
        let len = sys::round_to_pages(len).ok_or(Error::TooLarge { len })?;
        // SAFETY: the caller's promise.
        unsafe {
            match len {
                len if len == raw.len => Ok(raw),
                len if len < raw.len => Ok(self.shrink(raw, len)),
                len => match self.grow_in_place(&raw, len) {
                    Some(grown) => Ok(grown),
                    None => Ok(self.move_into(raw, self.map_raw(len, 1)?)),
                },
            }
        }
    }

    /// # Safety
    /// As for `resize_raw`; `len` is shorter and not 0.
    unsafe fn shrink(&self, raw: RawMapping, len: usize) -> RawMapping {
        let shorter = RawMapping { len, ..raw };
        // SAFETY: the tail is the caller's and not used any more.
        unsafe { sys::unmap(raw.address.add(len), raw.len - len) };
        areas::give_back(raw.areas() - shorter.areas());
        shorter
    }

    /// Makes a mapping longer without moving it, if the address space behind it is free; `len` is
    /// whole pages and longer than before.
    ///
    /// # Safety
    /// The mapping came from this pattern.
    pub unsafe fn grow_in_place(&self, raw: &RawMapping, len: usize) -> Option<RawMapping> {
        if raw.kind != Kind::Tiled {
            return None;
        }
        let tile = self.place.tile_for(len, &self.options).ok()?;
        let more = Tile::areas(len, raw.tile_len.min(tile.len)) - raw.areas();
        areas::take(more).ok()?;
        // SAFETY: the caller's promise.
        let grown = unsafe { self.extend(raw, len, &tile) };
        if grown.is_none() {
            areas::give_back(more);
        }
        grown
    }

    /// # Safety
    /// As for `resize_raw`; `len` is longer.
    unsafe fn extend(&self, raw: &RawMapping, len: usize, tile: &Tile) -> Option<RawMapping> {
        let end = raw.address.wrapping_add(raw.len);
        sys::reserve_at(end, len - raw.len).ok()?;
        // SAFETY: the range was reserved just now.
        let is_covered = unsafe { tile::cover(raw.address, raw.len..len, tile) }.is_ok();
        if !is_covered || !tile.is_ours() {
            // SAFETY: as above.
            unsafe { sys::unmap(end, len - raw.len) };
            return None;
        }
        let grown = RawMapping { len, tile_len: raw.tile_len.min(tile.len), ..*raw };
        self.settle_huge_pages(&grown, raw.len..len);
        TILED_BYTES.add(len - raw.len);
        Some(grown)
    }

    /// Moves a mapping's content, page by page, to the start of a longer one that is fresh, and
    /// returns that one; the old one is unmapped. This cannot fail.
    ///
    /// # Safety
    /// Both mappings came from this pattern, and nobody uses them, or the old one afterwards.
    pub unsafe fn move_into(&self, raw: RawMapping, fresh: RawMapping) -> RawMapping {
        let step = match (raw.kind, fresh.kind) {
            (Kind::Tiled, Kind::Tiled) => raw.tile_len,
            _ => raw.len,
        };
        for at in (0..raw.len).step_by(step) {
            let part = step.min(raw.len - at);
            // SAFETY: both mappings are the caller's and ours.
            unsafe { move_or_copy(&raw, &fresh, at, part) };
        }
        areas::give_back(raw.areas());
        self.recount(fresh, raw.tile_len)
    }

    /// Counts a mapping's areas anew, since the moved tiles may be shorter than its own.
    fn recount(&self, raw: RawMapping, tile_len: usize) -> RawMapping {
        let recounted = RawMapping { tile_len: raw.tile_len.min(tile_len), ..raw };
        match areas::take(recounted.areas() - raw.areas()) {
            Ok(()) => recounted,
            Err(_) => raw,
        }
    }
}

/// Moves a part of a mapping; afterwards its old range is no longer mapped. It must not be unmapped
/// later, together with the others: another thread may have been given it meanwhile.
///
/// # Safety
/// Both mappings belong to the caller and are `at + len` bytes long.
unsafe fn move_or_copy(from: &RawMapping, to: &RawMapping, at: usize, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let (source, target) = (from.address.add(at), to.address.add(at));
        if from.kind != to.kind || sys::move_onto(source, target, len).is_err() {
            target.copy_from_nonoverlapping(source, len);
            sys::unmap(source, len);
        }
    }
}
