//! A page stored to, discarded, and loaded again, throughout a mapping: what the tlb_flush workloads do.

use crate::PAGE;
use crate::program::{Step, Worker};
use crate::space::{AddressSpace, MapCall, Refused};
use crate::sweep::Sweep;
use alloc::boxed::Box;

/// What the programs store.
pub(crate) const STORED: u64 = 1;

struct Flush<'a> {
    space: &'a dyn AddressSpace,
    sweep: Sweep<'a>,
    /// What a load finds once the page was discarded.
    left: u64,
}

/// Makes a worker that walks such a mapping.
pub(crate) fn worker<'a>(space: &'a dyn AddressSpace, call: MapCall, left: u64) -> Box<dyn Worker + 'a> {
    Box::new(Flush { space, sweep: Sweep::new(space, call), left })
}

impl Worker for Flush<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let address = self.sweep.next_page()?;
        self.space.store(address, STORED)?;
        self.space.discard(address..address + PAGE)?;
        match self.space.load(address)? {
            found if found == self.left => Ok(Step::of(1)),
            found => Err(Refused::Wrong { address, found, expected: self.left }),
        }
    }
}
