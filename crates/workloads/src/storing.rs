//! Stores to each page of a mapping, which is made anew at its end: what page_fault1 to page_fault3 do, each to a
//! mapping of its own kind. An operation is a page.

use crate::program::{Seat, Step, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, MapCall, Refused};
use crate::sweep::Sweep;
use alloc::boxed::Box;

struct Storing<'a> {
    space: &'a dyn AddressSpace,
    sweep: Sweep<'a>,
}

/// Makes a worker on mappings as `call` makes them.
pub(crate) fn worker<'a>(
    settings: &Settings,
    seat: Seat,
    space: &'a dyn AddressSpace,
    call: MapCall,
) -> Box<dyn Worker + 'a> {
    Box::new(Storing { space, sweep: Sweep::new(space, call).behind(settings.pages_passed_over(seat)) })
}

impl Worker for Storing<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        self.steps(1).map(|(_, step)| step)
    }

    fn steps(&mut self, most: u32) -> Result<(u32, Step), Refused> {
        let (first, nr_pages) = self.sweep.next_pages(most)?;
        self.space.store_to_pages(first, u64::from(nr_pages), 0)?;
        Ok((nr_pages, Step::of(u64::from(nr_pages))))
    }
}
