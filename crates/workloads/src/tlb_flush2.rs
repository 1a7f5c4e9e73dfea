//! tlb_flush2: stores to a page of anonymous memory, discards it, and loads zero again.
//!
//! Source: will-it-scale (A. Blanchard), "TLB flush of anonymous memory private mapping"; the mapping is 1 MiB long. An
//! operation is a page: two faults and a discard, which takes the translation away from the threads' CPUs.

use crate::flush;
use crate::program::{Seat, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, MapCall, Refused};
use alloc::boxed::Box;

const LEN_BYTES: u64 = 1 << 20;

/// Makes a worker.
pub(crate) fn worker<'a>(
    _settings: &Settings,
    _seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    Ok(flush::worker(space, MapCall::anonymous(LEN_BYTES), 0))
}
