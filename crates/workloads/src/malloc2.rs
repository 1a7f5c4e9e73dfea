//! malloc2: allocates 1 KiB and frees it.
//!
//! Source: will-it-scale (A. Blanchard), "malloc/free of 1kB". An operation is a pair of calls. The allocator serves
//! both from its lists: the kernel has no part in it, so no design differs from another.

use crate::program::{Seat, Step, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, Refused};
use alloc::boxed::Box;

const LEN_BYTES: u64 = 1024;

struct Malloc2<'a> {
    space: &'a dyn AddressSpace,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    _settings: &Settings,
    _seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    Ok(Box::new(Malloc2 { space }))
}

impl Worker for Malloc2<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let address = self.space.allocate(LEN_BYTES)?;
        self.space.release(address)?;
        Ok(Step::of(1))
    }
}
