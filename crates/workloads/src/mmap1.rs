//! mmap1: maps 128 MiB of anonymous memory and unmaps it, untouched.
//!
//! Source: will-it-scale (A. Blanchard), "Anonymous memory mmap/munmap of 128MB". An operation is a pair of calls.

use crate::program::{Seat, Step, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, MapCall, Refused};
use alloc::boxed::Box;

struct Mmap1<'a> {
    space: &'a dyn AddressSpace,
    call: MapCall,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    _seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    Ok(Box::new(Mmap1 { space, call: MapCall::anonymous(settings.region_bytes) }))
}

impl Worker for Mmap1<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let start = self.space.map(&self.call)?;
        self.space.unmap(start..start + self.call.len_bytes)?;
        Ok(Step::of(1))
    }
}
