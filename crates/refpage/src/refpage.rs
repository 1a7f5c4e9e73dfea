//! A pattern, and the mappings that start out as it.
//!
//! # Guarantee
//! A map call returns memory that reads as the pattern, or an error and no mapping. A call that
//! fails half-way leaves nothing behind.
//!
//! # How a mapping is made
//! 1. Find a tile, or make one (`Place::tile_for`), and count its areas.
//! 2. Map it once over the whole length: this takes the address space, and the first tile.
//! 3. Map it again over each later tile's range.
//! 4. Look once more whether the descriptor was ours all the time; if not, undo and begin again.

use crate::intern::{self, Place};
use crate::raw::{Kind, RawMapping};
use crate::stats::{FILLED_BYTES, TILED_BYTES};
use crate::tile::{self, Tile};
use crate::{Error, Fallback, HugePages, Mapping, Options, areas, fits_in_memory, sys};
use std::ops::Range;

/// How often a mapping is begun again when the program takes our descriptor meanwhile.
const ATTEMPTS: usize = 4;

/// A pattern to start memory with.
///
/// Two of the same content share one memfd; the clone of one costs a counter.
#[derive(Debug)]
pub struct RefPage {
    pub(crate) place: &'static Place,
    pub(crate) options: Options,
}

impl Options {
    /// Returns a pattern with these choices.
    pub fn create(self, content: &[u8]) -> Result<RefPage, Error> {
        let place = intern::find_or_make(content)?;
        Ok(RefPage { place, options: self })
    }
}

impl Clone for RefPage {
    fn clone(&self) -> RefPage {
        self.place.acquire();
        RefPage { place: self.place, options: self.options }
    }
}

impl Drop for RefPage {
    fn drop(&mut self) {
        self.place.release();
    }
}

impl RefPage {
    /// Returns the pattern that repeats `content`, which may have any length but 0.
    pub fn new(content: &[u8]) -> Result<RefPage, Error> {
        Options::new().create(content)
    }

    /// Returns the bytes that repeat.
    pub fn content(&self) -> &[u8] {
        self.place.pattern().content()
    }

    /// Returns whether every byte of the pattern is zero: then its mappings are plain memory.
    pub fn is_zero(&self) -> bool {
        self.place.pattern().is_zero()
    }

    /// Returns after how many bytes pattern and page begin together again, unless that overflows.
    pub fn period(&self) -> Option<usize> {
        self.place.pattern().period()
    }

    /// Returns fresh memory that starts out as the pattern.
    pub fn map(&self, len: usize) -> Result<Mapping, Error> {
        self.map_aligned(len, 1)
    }

    /// Returns fresh memory at a multiple of `align`, a power of two.
    pub fn map_aligned(&self, len: usize, align: usize) -> Result<Mapping, Error> {
        let raw = self.map_raw(len, align)?;
        Ok(Mapping::new(self.clone(), raw, len))
    }

    /// Returns fresh memory at a multiple of `align`, for a caller that keeps its own books.
    pub fn map_raw(&self, len: usize, align: usize) -> Result<RawMapping, Error> {
        if len == 0 {
            return Err(Error::EmptyMapping);
        }
        if !align.is_power_of_two() {
            return Err(Error::BadAlignment { align });
        }
        let len = sys::round_to_pages(len).ok_or(Error::TooLarge { len })?;
        if self.place.pattern().is_zero() {
            return self.map_anonymous(len, align, Kind::Zero);
        }
        match self.map_tiled(len, align) {
            Ok(raw) => Ok(raw),
            Err(error) => self.map_filled(len, align, error),
        }
    }

    fn map_tiled(&self, len: usize, align: usize) -> Result<RawMapping, Error> {
        for _ in 0..ATTEMPTS {
            let tile = self.place.tile_for(len, &self.options)?;
            let raw = self.map_from(&tile, len, align)?;
            if tile.is_ours() {
                TILED_BYTES.add(len);
                return Ok(raw);
            }
            // SAFETY: nobody else knows the mapping.
            unsafe { self.unmap_raw(raw) };
        }
        Err(Error::DescriptorStolen)
    }

    fn map_from(&self, tile: &Tile, len: usize, align: usize) -> Result<RawMapping, Error> {
        let count = Tile::areas(len, tile.len);
        areas::take(count)?;
        let mapped = map_pieces(tile, len, align).inspect_err(|_| areas::give_back(count));
        let raw = RawMapping { address: mapped?, len, kind: Kind::Tiled, tile_len: tile.len };
        self.settle_huge_pages(&raw, 0..len);
        Ok(raw)
    }

    /// Keeps huge pages out of a patterned range, if they were not asked for.
    pub(crate) fn settle_huge_pages(&self, raw: &RawMapping, range: Range<usize>) {
        if self.options.huge_pages == HugePages::System {
            return;
        }
        // SAFETY: the range is the mapping's; the advice leaves its content alone. A kernel without
        // huge pages refuses it, rightly.
        let _ = unsafe { sys::advise(raw.address.add(range.start), range.len(), libc::MADV_NOHUGEPAGE) };
    }

    fn map_anonymous(&self, len: usize, align: usize, kind: Kind) -> Result<RawMapping, Error> {
        let address = with_alignment(len, align, sys::map_anonymous)?;
        Ok(RawMapping { address, len, kind, tile_len: len })
    }

    #[cold]
    fn map_filled(&self, len: usize, align: usize, why: Error) -> Result<RawMapping, Error> {
        if self.options.fallback == Fallback::Fail {
            return Err(why);
        }
        if !fits_in_memory(len, &why) {
            return Err(Error::OutOfMemory { len });
        }
        let raw = self.map_anonymous(len, align, Kind::Filled)?;
        // SAFETY: fresh memory that nobody else knows.
        unsafe { self.fill(raw.address, len, 0) };
        FILLED_BYTES.add(len);
        self.notice(&why);
        Ok(raw)
    }

    /// Tells the caller's notice, the first time for this pattern, why memory had to be filled.
    pub fn notice(&self, why: &Error) {
        if self.place.is_first_notice() {
            self.options.notice.tell(why);
        }
    }

    /// Writes the pattern to memory whose first byte is byte `offset` of an allocation.
    ///
    /// # Safety
    /// The `len` bytes from `into` on are writable, and nobody else uses them.
    pub unsafe fn fill(&self, into: *mut u8, len: usize, offset: usize) {
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts_mut(into, len) };
        self.place.pattern().fill(bytes, offset);
    }

    /// Gives a mapping back.
    ///
    /// # Safety
    /// It came from this pattern, is given back once, and nobody uses it any more.
    pub unsafe fn unmap_raw(&self, raw: RawMapping) {
        // SAFETY: the caller's promise.
        unsafe { sys::unmap(raw.address, raw.len) };
        areas::give_back(raw.areas());
    }

    /// Copies the pages of a range now that stores would copy later, one by one, where the kernel can
    /// (Linux 5.14). It changes no byte.
    ///
    /// # Safety
    /// The mapping came from this pattern, and the range lies inside it, in whole pages.
    pub unsafe fn copy_ahead_raw(&self, raw: &RawMapping, range: Range<usize>) -> Result<(), Error> {
        // SAFETY: the caller's promise; the advice leaves the content alone.
        let done = unsafe { sys::advise(raw.address.add(range.start), range.len(), libc::MADV_POPULATE_WRITE) };
        done.map_err(|errno| tile::refused("madvise(MADV_POPULATE_WRITE)", errno, range.len()))
    }

    /// Returns whether a range of a mapping reads as the pattern now.
    ///
    /// # Safety
    /// The mapping came from this pattern, the range lies inside it, and nobody writes to it meanwhile.
    pub unsafe fn is_pattern_raw(&self, raw: &RawMapping, range: Range<usize>) -> bool {
        // SAFETY: the caller's promise.
        let bytes = unsafe { raw.bytes(range.clone()) };
        self.place.pattern().matches(bytes, range.start)
    }

    /// Returns a range of a mapping to the pattern, and its pages to the system.
    ///
    /// # Safety
    /// The mapping came from this pattern, and nobody else uses the range meanwhile.
    pub unsafe fn reset_raw(&self, raw: &RawMapping, range: Range<usize>) -> Result<(), Error> {
        if range.start > range.end || range.end > raw.len {
            return Err(Error::OutOfRange { end: range.end, len: raw.len });
        }
        let page = sys::page_len();
        let pages = range.start.next_multiple_of(page)..range.end / page * page;
        let is_dropped = raw.kind != Kind::Filled
            && pages.start < pages.end
            // SAFETY: whole pages of the mapping, whose content the caller gives up. Refused on
            // pages that are locked into memory, which are filled then.
            && unsafe {
                sys::advise(raw.address.add(pages.start), pages.len(), libc::MADV_DONTNEED)
            }
            .is_ok();
        let (head, tail) = match is_dropped {
            true => (range.start..pages.start, pages.end..range.end),
            false => (range, 0..0),
        };
        for part in [head, tail] {
            // SAFETY: the part lies inside the range.
            let bytes = unsafe { raw.bytes(part.clone()) };
            self.place.pattern().fill(bytes, part.start);
        }
        Ok(())
    }
}

impl RawMapping {
    /// Returns a part of the mapping's bytes.
    ///
    /// # Safety
    /// The mapping is alive, the range inside it, and nobody else uses it meanwhile.
    pub(crate) unsafe fn bytes<'a>(&self, range: Range<usize>) -> &'a mut [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.address.add(range.start), range.len()) }
    }
}

/// Maps a tile over fresh address space, again and again.
fn map_pieces(tile: &Tile, len: usize, align: usize) -> Result<*mut u8, Error> {
    let address = with_alignment(len, align, |len| sys::map_file(len, tile.fd))?;
    let is_shifted = align > sys::page_len();
    let done = if is_shifted { 0 } else { tile.len.min(len) };
    // SAFETY: the range was reserved just now, and nobody else knows it.
    if let Err(errno) = unsafe { tile::cover(address, done..len, tile) } {
        // Before the range goes, since that gives areas back.
        let why = refused(errno, len);
        // SAFETY: as above.
        unsafe { sys::unmap(address, len) };
        return Err(why);
    }
    Ok(address)
}

/// Says what it means that a mapping was refused.
#[cold]
fn refused(errno: sys::Errno, len: usize) -> Error {
    match tile::refused("mmap", errno, len) {
        Error::OutOfMemory { .. } if !sys::has_area_left() => Error::Areas { limit: areas::limit() },
        error => error,
    }
}

/// Maps `len` bytes at a multiple of `align`, by mapping more and cutting off the ends.
fn with_alignment(
    len: usize,
    align: usize,
    map: impl Fn(usize) -> Result<*mut u8, sys::Errno>,
) -> Result<*mut u8, Error> {
    let page = sys::page_len();
    let slack = align.saturating_sub(page);
    let longer = len.checked_add(slack).ok_or(Error::TooLarge { len })?;
    let mapped = map(longer).map_err(|errno| refused(errno, len))?;
    let head = mapped.addr().next_multiple_of(align.max(page)) - mapped.addr();
    // SAFETY: the ends are parts of the fresh mapping, which nobody else knows.
    unsafe {
        if head > 0 {
            sys::unmap(mapped, head);
        }
        if slack > head {
            sys::unmap(mapped.add(head + len), slack - head);
        }
        Ok(mapped.add(head))
    }
}
