//! The files behind mappings, each once.
//!
//! # Guarantee
//! Two mappings get the same index exactly if device, inode and generation are the same.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use faultless_trace::{File, FileIndex};

/// What makes a file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) inode: u64,
    pub(crate) generation: u64,
}

/// The files met so far.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    places: HashMap<Identity, FileIndex>,
    files: Vec<File>,
}

impl FileTable {
    /// Returns the file's index, a new one if it was not met before; `None` for memory without a file.
    pub(crate) fn index(&mut self, identity: Identity, path: &str) -> Option<FileIndex> {
        if identity.inode == 0 {
            return None;
        }
        let next = self.files.len() as FileIndex;
        let place = *self.places.entry(identity).or_insert(next);
        if place == next {
            self.files.push(described(identity, path));
        }
        Some(place)
    }

    /// Returns the table, with the sizes that the files have now.
    pub(crate) fn into_files(mut self) -> Vec<File> {
        self.files.iter_mut().for_each(|file| file.size_bytes = size_of_file(file));
        self.files
    }
}

fn described(identity: Identity, path: &str) -> File {
    let Identity { major, minor, inode, generation } = identity;
    File { major, minor, inode, generation, size_bytes: None, path: path.to_owned() }
}

/// Returns the file's size, if its path still leads to it.
fn size_of_file(file: &File) -> Option<u64> {
    let found = fs::metadata(&file.path).ok()?;
    // The device is not compared: some file systems show another one to stat than the kernel's records hold.
    (found.ino() == file.inode).then_some(found.len())
}
