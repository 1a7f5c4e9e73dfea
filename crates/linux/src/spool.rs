//! Raw records put aside while the program runs.
//!
//! # Guarantee
//! What was put aside comes back unchanged, CPU by CPU, and leaves nothing behind in the file system, however the
//! recorder ends: the files have no names.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// One nameless file for each CPU.
#[derive(Debug)]
pub(crate) struct Spool {
    files: Vec<File>,
    bytes: u64,
}

impl Spool {
    /// Makes files for `nr_cpus` in `folder`, or where temporary files go if that folder's file system cannot.
    pub(crate) fn create(folder: &Path, nr_cpus: usize) -> io::Result<Self> {
        let files = (0..nr_cpus).map(|_| nameless(folder)).collect::<io::Result<_>>()?;
        Ok(Self { files, bytes: 0 })
    }

    /// Appends what came from one CPU.
    pub(crate) fn append(&mut self, cpu: usize, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.files[cpu].write_all(bytes)
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

fn nameless(folder: &Path) -> io::Result<File> {
    let open = |folder: &Path| {
        fs::OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(folder)
    };
    open(folder).or_else(|_| open(&std::env::temp_dir()))
}
