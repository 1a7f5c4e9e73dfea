//! fork: what a shell does all the time: it forks, the child stores to some of its memory and exits, the shell waits.
//!
//! A shell's memory is small: 64 pages of data, of which a child stores to 16 before it would call exec. An operation
//! is a child. The published relatives are lmbench's "fork+exit" (L. McVoy) and UnixBench's "Process Creation".

use crate::PAGE;
use crate::program::{Seat, Step, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, MapCall, Refused};
use alloc::boxed::Box;

/// Pages of the parent's data.
pub(crate) const DATA_PAGES: u64 = 64;
/// Of which a child stores to each fourth.
const TOUCHED_EACH: u64 = 4;

struct Fork<'a> {
    space: &'a dyn AddressSpace,
    data: u64,
    nr_children: u64,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    _settings: &Settings,
    _seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    let data = space.map(&MapCall::anonymous(DATA_PAGES * PAGE))?;
    pages(data).try_for_each(|page| space.store(page, page))?;
    Ok(Box::new(Fork { space, data, nr_children: 0 }))
}

fn pages(data: u64) -> impl Iterator<Item = u64> {
    (0..DATA_PAGES).map(move |page| data + page * PAGE)
}

/// A child finds what the parent stored, and stores something else.
fn live(space: &dyn AddressSpace, data: u64, mark: u64) -> Result<(), Refused> {
    for page in pages(data).step_by(TOUCHED_EACH as usize) {
        check(space, page, page)?;
        space.store(page, mark)?;
    }
    Ok(())
}

fn check(space: &dyn AddressSpace, address: u64, expected: u64) -> Result<(), Refused> {
    match space.load(address)? {
        found if found == expected => Ok(()),
        found => Err(Refused::Wrong { address, found, expected }),
    }
}

impl Worker for Fork<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        self.nr_children += 1;
        let (data, mark) = (self.data, self.nr_children);
        self.space.fork(&mut |child| live(child, data, mark))?;
        // The parent works on with its own memory, as a shell does: pages that were shared with the child.
        check(self.space, data, data)?;
        self.space.store(data, data)?;
        Ok(Step::of(1))
    }
}
