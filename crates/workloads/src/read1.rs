//! read1: reads a file of its own through the page cache, 4 KiB at a time.
//!
//! Source: will-it-scale (A. Blanchard), "Separate file read"; the file is 1 MiB long. An operation is a read, also the
//! one that finds the end.

use crate::program::{Seat, Worker};
use crate::reading;
use crate::settings::Settings;
use crate::space::{AddressSpace, FileName, Refused};
use alloc::boxed::Box;

/// Makes a worker.
pub(crate) fn worker<'a>(
    _settings: &Settings,
    seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    reading::worker(space, FileName::Own(seat.global))
}
