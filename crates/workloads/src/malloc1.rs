//! malloc1: allocates 128 MiB and frees it, untouched.
//!
//! Source: will-it-scale (A. Blanchard), "malloc/free of 128MB". An operation is a pair of calls. So large a block is a
//! mapping of its own; the allocator notes its length in front of it, which touches one page.

use crate::program::{Seat, Step, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, Refused};
use alloc::boxed::Box;

struct Malloc1<'a> {
    space: &'a dyn AddressSpace,
    len_bytes: u64,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    _seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    Ok(Box::new(Malloc1 { space, len_bytes: settings.region_bytes }))
}

impl Worker for Malloc1<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let address = self.space.allocate(self.len_bytes)?;
        self.space.release(address)?;
        Ok(Step::of(1))
    }
}
