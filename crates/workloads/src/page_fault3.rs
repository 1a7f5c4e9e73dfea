//! page_fault3: stores to each page of a shared mapping of a file, 128 MiB at a time. The file is the worker's own,
//! or one of all workers (`--shared`).
//!
//! Source: will-it-scale (A. Blanchard), "Separate file shared mapping page fault". An operation is a page: the
//! page cache's own.

use crate::program::{Seat, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, Backing, Content, MapCall, Refused};
use crate::storing;
use alloc::boxed::Box;

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    let file = space.open(settings.file_of(seat), settings.region_bytes, Content::Hole)?;
    let call = MapCall { backing: Backing::Shared(file), ..MapCall::anonymous(settings.region_bytes) };
    Ok(storing::worker(settings, seat, space, call))
}
