//! page_fault3: stores to each page of a shared mapping of a file of its own, 128 MiB at a time.
//!
//! Source: will-it-scale (A. Blanchard), "Separate file shared mapping page fault". An operation is a page: the
//! page cache's own.

use crate::program::{Seat, Step, Worker};
use crate::space::{AddressSpace, Backing, Content, FileName, MapCall, Refused};
use crate::spec::Settings;
use crate::sweep::Sweep;
use alloc::boxed::Box;

struct PageFault3<'a> {
    space: &'a dyn AddressSpace,
    sweep: Sweep<'a>,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    let file = space.open(FileName::Own(seat.global), settings.region_bytes, Content::Hole)?;
    let call = MapCall { backing: Backing::Shared(file), ..MapCall::anonymous(settings.region_bytes) };
    Ok(Box::new(PageFault3 { space, sweep: Sweep::new(space, call) }))
}

impl Worker for PageFault3<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let page = self.sweep.next_page()?;
        self.space.store(page, 0)?;
        Ok(Step::of(1))
    }
}
