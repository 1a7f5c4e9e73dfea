//! A mapping that is walked page by page, unmapped at its end, and made anew.

use crate::PAGE;
use crate::space::{AddressSpace, MapCall, Refused};

/// The walk.
pub(crate) struct Sweep<'a> {
    space: &'a dyn AddressSpace,
    call: MapCall,
    next: u64,
    end: u64,
}

impl<'a> Sweep<'a> {
    /// Returns a walk that has nothing mapped yet.
    pub(crate) fn new(space: &'a dyn AddressSpace, call: MapCall) -> Self {
        Self { space, call, next: 0, end: 0 }
    }

    /// Returns the next page; maps before the first, and again after the last.
    pub(crate) fn next_page(&mut self) -> Result<u64, Refused> {
        if self.next == self.end {
            self.renew()?;
        }
        let page = self.next;
        self.next += PAGE;
        Ok(page)
    }

    fn renew(&mut self) -> Result<(), Refused> {
        let len_bytes = self.call.len_bytes;
        if self.end != 0 {
            self.space.unmap(self.end - len_bytes..self.end)?;
        }
        self.next = self.space.map(&self.call)?;
        self.end = self.next + len_bytes;
        Ok(())
    }
}
