//! mseal: areas that nobody may unmap, move, protect or replace until the space ends.

use super::Space;
use super::permit::WritePermit;
use crate::addr::{AddressRange, PageRange, VirtAddr, page_ceil};
use crate::area::AreaFlags;
use crate::design::Design;
use crate::error::CallError;
use crate::system::System;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Seals a range; nothing of one that has a hole.
    pub fn mseal(&self, range: AddressRange) -> Result<(), CallError> {
        let AddressRange { start, len_bytes } = range;
        if !start.is_page_aligned() {
            return Err(CallError::Invalid("the address is not a multiple of the page size"));
        }
        let end = page_ceil(len_bytes).and_then(|len| start.checked_add(len));
        let end = end.ok_or(CallError::Invalid("the range overflows"))?;
        if end == start {
            return Ok(());
        }
        let unmapped = CallError::Unmapped { address: start };
        let range = PageRange::between(start, end.min(PageRange::USER.end()))
            .filter(|range| range.end() == end)
            .ok_or(unmapped)?;
        self.try_with_write(range.addresses(), |permit| {
            if let Some(address) = permit.first_hole(range) {
                return Err(CallError::Unmapped { address: VirtAddr::new(address) });
            }
            permit.reflag(range, &|view, _| Ok(view.flags | AreaFlags::SEALED))
        })
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Returns the first address of a range that is not mapped.
    fn first_hole(self, range: PageRange) -> Option<u64> {
        let mut position = range.start();
        for entry in self.overlapping(range.addresses()) {
            if entry.start > position {
                return Some(position.get());
            }
            position = entry.end;
        }
        (position < range.end()).then_some(position.get())
    }
}
