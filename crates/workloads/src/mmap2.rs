//! mmap2: maps 128 MiB of a file of its own, privately, and unmaps it, untouched.
//!
//! Source: will-it-scale (A. Blanchard), "Separate file mmap/munmap of 128MB". An operation is a pair of calls.

use crate::program::{Seat, Step, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, Backing, Content, FileName, MapCall, Refused};
use alloc::boxed::Box;

struct Mmap2<'a> {
    space: &'a dyn AddressSpace,
    call: MapCall,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    let file = space.open(FileName::Own(seat.global), settings.region_bytes, Content::Hole)?;
    let call = MapCall { backing: Backing::Private(file), ..MapCall::anonymous(settings.region_bytes) };
    Ok(Box::new(Mmap2 { space, call }))
}

impl Worker for Mmap2<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let start = self.space.map(&self.call)?;
        self.space.unmap(start..start + self.call.len_bytes)?;
        Ok(Step::of(1))
    }
}
