//! Raw records put aside while the program runs.
//!
//! # Guarantee
//! What was put aside comes back unchanged, ring by ring. All that happened before the last [`Spool::mark`] is in the files,
//! even if this process is killed at the next instruction.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;

/// One file for each ring.
#[derive(Debug)]
pub(crate) struct Spool {
    files: Vec<File>,
    /// Where marks go; `None` if the recording has ended.
    mark: Option<File>,
    bytes: u64,
}

impl Spool {
    /// Returns a spool that writes into these empty files.
    pub(crate) fn new(files: Vec<File>, mark: File) -> Self {
        Self { files, mark: Some(mark), bytes: 0 }
    }

    /// Returns the spool that a killed recorder left in these files.
    pub(crate) fn reopened(files: Vec<File>) -> io::Result<Self> {
        let sizes = files.iter().map(|file| file.metadata().map(|found| found.len()));
        let bytes = sizes.sum::<io::Result<u64>>()?;
        Ok(Self { files, mark: None, bytes })
    }

    /// Appends what came from one CPU.
    pub(crate) fn append(&mut self, cpu: usize, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.files[cpu].write_all(bytes)
    }

    /// Notes that all records up to `until_ns` were appended, and how many were lost by then.
    pub(crate) fn mark(&self, until_ns: u64, lost: u64) -> io::Result<()> {
        let words = [until_ns.to_ne_bytes(), lost.to_ne_bytes()];
        self.mark.as_ref().map_or(Ok(()), |mark| mark.write_all_at(words.as_flattened(), 0))
    }

    /// Returns how much was put aside.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the files, each at its beginning.
    pub(crate) fn rewind(&mut self) -> io::Result<Vec<File>> {
        self.files.iter_mut().map(|file| file.rewind().and_then(|()| file.try_clone())).collect()
    }
}
