//! read-byte: reads one byte of a cached file and seeks back, again and again.
//!
//! Source: A. Arcangeli in *Scalability problem (kmap_lock) with -aa kernels* (linux-kernel, March 2002): open a file,
//! and for ever read one byte of it and seek back to its start, 16 copies at once, "no matter if it's the same file or
//! not". An operation is a read and the way back. The virtual memory's calls move words, so there it is one word.

use crate::PAGE;
use crate::program::{Seat, Step, Worker};
use crate::settings::Settings;
use crate::space::{AddressSpace, Content, FileId, MapCall, Refused};
use alloc::boxed::Box;

struct ByteReading<'a> {
    space: &'a dyn AddressSpace,
    file: FileId,
    buffer: u64,
}

/// Makes a worker.
pub(crate) fn worker<'a>(
    settings: &Settings,
    seat: Seat,
    space: &'a dyn AddressSpace,
) -> Result<Box<dyn Worker + 'a>, Refused> {
    let file = space.open(settings.file_of(seat), PAGE, Content::Written)?;
    let buffer = space.map(&MapCall::anonymous(PAGE))?;
    Ok(Box::new(ByteReading { space, file, buffer }))
}

impl Worker for ByteReading<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        self.space.read(self.file, self.buffer, 1)?;
        self.space.rewind(self.file)?;
        Ok(Step::of(1))
    }
}
