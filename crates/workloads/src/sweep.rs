//! A mapping that is walked page by page, unmapped at its end, and made anew.

use crate::PAGE;
use crate::space::{AddressSpace, MapCall, Refused};

/// The walk.
pub(crate) struct Sweep<'a> {
    space: &'a dyn AddressSpace,
    call: MapCall,
    next: u64,
    end: u64,
    /// Bytes of the first mapping that are passed over.
    passed_over: u64,
}

impl<'a> Sweep<'a> {
    /// Returns a walk that has nothing mapped yet.
    pub(crate) fn new(space: &'a dyn AddressSpace, call: MapCall) -> Self {
        Self { space, call, next: 0, end: 0, passed_over: 0 }
    }

    /// Lets the walk begin behind so many pages of its first mapping, which has more.
    pub(crate) fn behind(self, nr_pages: u64) -> Self {
        Self { passed_over: nr_pages * PAGE, ..self }
    }

    /// Returns the next page; maps before the first, and again after the last.
    pub(crate) fn next_page(&mut self) -> Result<u64, Refused> {
        self.next_pages(1).map(|(page, _)| page)
    }

    /// Returns the next pages, one at least and `most` at most: the first, and how many; as [`Sweep::next_page`].
    pub(crate) fn next_pages(&mut self, most: u32) -> Result<(u64, u32), Refused> {
        if self.next == self.end {
            self.renew()?;
        }
        let first = self.next;
        let left = (self.end - first).div_ceil(PAGE);
        let nr_pages = left.min(u64::from(most.max(1))) as u32;
        self.next += u64::from(nr_pages) * PAGE;
        Ok((first, nr_pages))
    }

    fn renew(&mut self) -> Result<(), Refused> {
        let len_bytes = self.call.len_bytes;
        if self.end != 0 {
            self.space.unmap(self.end - len_bytes..self.end)?;
        }
        let start = self.space.map(&self.call)?;
        self.end = start + len_bytes;
        self.next = start + core::mem::take(&mut self.passed_over);
        Ok(())
    }
}
