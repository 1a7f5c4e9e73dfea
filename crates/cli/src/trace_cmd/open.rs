//! Trace files, opened or refused.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use faultless_trace::{ReadError, Reader};

use crate::message::Failure;

/// A trace that is read event by event.
pub(super) type FileReader = Reader<BufReader<File>>;

/// Opens a trace.
pub(super) fn open(path: &Path) -> Result<FileReader, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error.into()))?;
    Reader::new(BufReader::new(file)).map_err(|error| unreadable(path, &error))
}

/// Returns the failure that names the file and what is wrong with it.
pub(super) fn unreadable(path: &Path, error: &ReadError) -> Failure {
    Failure::new(format_args!("{}: {error}", path.display()))
}
