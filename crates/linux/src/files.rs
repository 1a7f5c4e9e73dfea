//! The files behind mappings, each once.
//!
//! # Guarantee
//! Two mappings get the same index exactly if device, inode and generation are the same, as far as the kernel tells
//! them.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use faultless_trace::{Area, File, FileIndex};

use crate::smaps::Listed;

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
    /// Files met in a list that does not tell generations, until a mapping tells.
    listed: HashMap<(u32, u32, u64), FileIndex>,
    files: Vec<File>,
}

impl FileTable {
    /// Returns the file's index, a new one if it was not met before; `None` for memory without a file.
    pub(crate) fn index(&mut self, identity: Identity, path: &str) -> Option<FileIndex> {
        if identity.inode == 0 {
            return None;
        }
        let next = self.files.len() as FileIndex;
        let device_and_inode = (identity.major, identity.minor, identity.inode);
        let listed = &mut self.listed;
        let place = *self.places.entry(identity).or_insert_with(|| listed.remove(&device_and_inode).unwrap_or(next));
        if place == next {
            self.files.push(described(identity, path));
        }
        Some(place)
    }

    /// Returns the index of a file that a list of areas names, which tells no generation: the one of the first mapping
    /// of that inode which comes later is taken for its own.
    pub(crate) fn index_of_listed(&mut self, area: &Listed, size_bytes: Option<u64>) -> Option<FileIndex> {
        // What is mapped privately from /dev/zero is memory like any other.
        let is_zeros = area.path == "/dev/zero" && area.flags & Area::SHARED == 0;
        if area.inode == 0 || is_zeros {
            return None;
        }
        let Listed { major, minor, inode, ref path, .. } = *area;
        let next = self.files.len() as FileIndex;
        let place = *self.listed.entry((major, minor, inode)).or_insert(next);
        if place == next {
            let identity = Identity { major, minor, inode, generation: 0 };
            self.files.push(File { size_bytes, ..described(identity, path) });
        }
        Some(place)
    }

    /// Returns the files met so far, by their indices.
    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns the table, with the sizes that the files have now.
    pub(crate) fn into_files(mut self) -> Vec<File> {
        self.files.iter_mut().for_each(|file| file.size_bytes = size_of_file(file).or(file.size_bytes));
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
