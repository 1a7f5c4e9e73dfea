//! A mapping that is unmapped when it goes.

use crate::raw::{Kind, RawMapping};
use crate::{Error, RefPage};
use std::ops::{Deref, DerefMut, Range};

/// Memory that started out as a pattern. It dereferences to its bytes.
#[derive(Debug)]
pub struct Mapping {
    pages: RefPage,
    raw: RawMapping,
    len: usize,
}

impl Mapping {
    pub(crate) fn new(pages: RefPage, raw: RawMapping, len: usize) -> Mapping {
        Mapping { pages, raw, len }
    }

    /// Returns where its pattern comes from.
    pub fn kind(&self) -> Kind {
        self.raw.kind
    }

    /// Returns the pattern that it started out as.
    pub fn pages(&self) -> &RefPage {
        &self.pages
    }

    /// Returns a range to the pattern, and its whole pages to the system.
    pub fn reset(&mut self, range: Range<usize>) -> Result<(), Error> {
        if range.end > self.len {
            return Err(Error::OutOfRange { end: range.end, len: self.len });
        }
        // The bytes behind the end are nobody's: then the last page can go whole.
        let end = if range.end == self.len { self.raw.len } else { range.end };
        // SAFETY: the mapping is ours, and nobody else uses it, by `&mut self`.
        unsafe { self.pages.reset_raw(&self.raw, range.start..end) }
    }

    /// Makes it longer or shorter; what is new starts out as the pattern.
    pub fn resize(&mut self, len: usize) -> Result<(), Error> {
        if len > self.len {
            // The last page's bytes behind the end may have been shown by a longer length before.
            self.reset_slack()?;
        }
        // SAFETY: the mapping is ours, and nobody else uses it, by `&mut self`.
        self.raw = unsafe { self.pages.resize_raw(self.raw, len)? };
        self.len = len;
        Ok(())
    }

    fn reset_slack(&mut self) -> Result<(), Error> {
        // SAFETY: as in `resize`.
        unsafe { self.pages.reset_raw(&self.raw, self.len..self.raw.len) }
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is ours and at least `len` bytes long.
        unsafe { std::slice::from_raw_parts(self.raw.address, self.len) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and nobody else uses it, by `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.raw.address, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is given back once, and nobody uses it any more.
        unsafe { self.pages.unmap_raw(self.raw) };
    }
}
