//! brk2: moves the heap's end up by a page and back, above a heap that each worker has made larger first.
//!
//! Source: will-it-scale (A. Blanchard), "brk unshared increase/decrease of one page". An operation is a call. Each
//! thread moves the end between two places of its own, so that the heap of a space with many threads jumps.

use crate::PAGE;
use crate::program::{Seat, Step, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, Refused};
use alloc::boxed::Box;

/// ENOMEM.
const NO_MEMORY: i32 = 12;

struct Brk2<'a> {
    space: &'a dyn AddressSpace,
    end: u64,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    _settings: &Settings,
    _seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    let mut worker = Brk2 { space, end: space.set_break(0) + PAGE };
    worker.move_to(worker.end)?;
    Ok(Box::new(worker))
}

impl Brk2<'_> {
    fn move_to(&mut self, end: u64) -> Result<(), Refused> {
        let is_there = self.space.set_break(end) == end;
        is_there.then_some(()).ok_or(Refused::Call { call: "brk", errno: NO_MEMORY })
    }
}

impl Worker for Brk2<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        self.move_to(self.end + PAGE)?;
        self.move_to(self.end)?;
        Ok(Step::of(2))
    }
}
