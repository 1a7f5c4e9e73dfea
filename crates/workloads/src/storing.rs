//! Stores to each page of a mapping, which is made anew at its end: what page_fault1 to page_fault3 do, each to a mapping of its own
//! kind. An operation is a page.

use crate::program::{Step, Worker};
use crate::space::{AddressSpace, MapCall, Refused};
use crate::sweep::Sweep;
use alloc::boxed::Box;

struct Storing<'a> {
    space: &'a dyn AddressSpace,
    sweep: Sweep<'a>,
}

/// Makes a worker on mappings as `call` makes them.
pub(crate) fn worker<'a>(space: &'a dyn AddressSpace, call: MapCall) -> Box<dyn Worker + 'a> {
    Box::new(Storing { space, sweep: Sweep::new(space, call) })
}

impl Worker for Storing<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let page = self.sweep.next_page()?;
        self.space.store(page, 0)?;
        Ok(Step::of(1))
    }
}
