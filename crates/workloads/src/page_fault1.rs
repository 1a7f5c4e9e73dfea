//! page_fault1: stores to each page of fresh anonymous memory, 128 MiB at a time.
//!
//! Source: will-it-scale (A. Blanchard), "Anonymous memory page fault". An operation is a page.

use crate::program::{Seat, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, MapCall, Refused};
use crate::storing;
use alloc::boxed::Box;

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    Ok(storing::worker(settings, seat, space, MapCall::anonymous(settings.region_bytes)))
}
