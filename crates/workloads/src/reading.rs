//! A file read through, 4 KiB at a time, and again from its begin: what the read workloads do.

use crate::PAGE;
use crate::program::{Step, Worker};
use crate::space::{AddressSpace, Content, FileId, FileName, MapCall, Refused};
use alloc::boxed::Box;

/// Bytes of the file.
const FILE_BYTES: u64 = 1 << 20;

struct Reading<'a> {
    space: &'a dyn AddressSpace,
    file: FileId,
    buffer: u64,
}

/// Makes a worker that reads such a file.
pub(crate) fn worker<'a>(space: &'a dyn AddressSpace, name: FileName) -> Result<Box<dyn Worker + 'a>, Refused> {
    let file = space.open(name, FILE_BYTES, Content::Written)?;
    let buffer = space.map(&MapCall::anonymous(PAGE))?;
    Ok(Box::new(Reading { space, file, buffer }))
}

impl Worker for Reading<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        if self.space.read(self.file, self.buffer, PAGE)? == 0 {
            self.space.rewind(self.file)?;
        }
        Ok(Step::of(1))
    }
}
