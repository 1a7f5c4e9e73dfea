//! page_fault1: stores to each page of fresh anonymous memory, 128 MiB at a time.
//!
//! Source: will-it-scale (A. Blanchard), "Anonymous memory page fault". An operation is a page.

use crate::program::{Seat, Step, Worker};
use crate::space::{AddressSpace, MapCall, Refused};
use crate::spec::Settings;
use crate::sweep::Sweep;
use alloc::boxed::Box;

struct PageFault1<'a> {
    space: &'a dyn AddressSpace,
    sweep: Sweep<'a>,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    _seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    let sweep = Sweep::new(space, MapCall::anonymous(settings.region_bytes));
    Ok(Box::new(PageFault1 { space, sweep }))
}

impl Worker for PageFault1<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let page = self.sweep.next_page()?;
        self.space.store(page, 0)?;
        Ok(Step::of(1))
    }
}
