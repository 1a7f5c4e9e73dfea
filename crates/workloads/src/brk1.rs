//! brk1: moves the heap's end up by a page and back.
//!
//! Source: will-it-scale (A. Blanchard), "brk increase/decrease of one page". An operation is a call. The threads of
//! one space move the same end between the same two places.

use crate::PAGE;
use crate::program::{Seat, Step, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, Refused};
use alloc::boxed::Box;

struct Brk1<'a> {
    space: &'a dyn AddressSpace,
    end: u64,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    _settings: &Settings,
    _seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    Ok(Box::new(Brk1 { space, end: space.set_break(0) }))
}

impl Worker for Brk1<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        // Whether the end moved is not looked at: another thread may have moved it.
        self.space.set_break(self.end + PAGE);
        self.space.set_break(self.end);
        Ok(Step::of(2))
    }
}
