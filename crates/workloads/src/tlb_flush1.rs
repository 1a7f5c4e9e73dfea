//! tlb_flush1: stores to a page of a private mapping of a file, discards it, and loads the file's zero again.
//!
//! Source: will-it-scale (A. Blanchard), "TLB flush of separated file private mapping"; the file is 128 MiB long. An
//! operation is a page: two faults and a discard, which each takes the translation away from the threads' CPUs.

use crate::flush;
use crate::program::{Seat, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, Backing, Content, FileName, MapCall, Refused};
use alloc::boxed::Box;

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    let file = space.open(FileName::Own(seat.global), settings.region_bytes, Content::Hole)?;
    let call = MapCall { backing: Backing::Private(file), ..MapCall::anonymous(settings.region_bytes) };
    Ok(flush::worker(space, call, 0))
}
