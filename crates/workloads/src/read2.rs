//! read2: reads one file that all workers read, each at a position of its own, 4 KiB at a time.
//!
//! Source: will-it-scale (A. Blanchard), "Same file read"; the file is 1 MiB long. An operation is a read, also the one
//! that finds the end. All workers use the same pages of the page cache.

use crate::program::{Seat, Worker};
use crate::reading;
use crate::settings::Settings;
use crate::space::{AddressSpace, FileName, Refused};
use alloc::boxed::Box;

/// Makes a worker.
pub(crate) fn worker<'a>(
    _settings: &Settings,
    _seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    reading::worker(space, FileName::Common)
}
