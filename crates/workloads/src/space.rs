//! What a program may ask of its memory.
//!
//! # Guarantee
//! Calls mean what Linux's calls of the same names mean. A value of this trait is one thread's view of one address
//! space; views of other threads may name the same space.

use crate::PAGE;
use core::fmt;
use core::ops::Range;

/// What may be done with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Nothing.
    None,
    /// Loads.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// What stands behind a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Zeros of its own.
    Anonymous,
    /// A file, copied when it is stored to.
    Private(FileId),
    /// A file, shared.
    Shared(FileId),
}

/// A call of mmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapCall {
    /// The address, in place of what is there; anywhere if there is none.
    pub fixed: Option<u64>,
    /// The length in bytes.
    pub len_bytes: u64,
    /// The rights.
    pub rights: Rights,
    /// What stands behind it.
    pub backing: Backing,
}

impl MapCall {
    /// Anonymous private memory that may be loaded and stored, anywhere.
    pub const fn anonymous(len_bytes: u64) -> Self {
        Self { fixed: None, len_bytes, rights: Rights::ReadWrite, backing: Backing::Anonymous }
    }
}

/// What untouched memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Zeros.
    Zeros,
    /// A byte, by a reference page that all mappings of the view share.
    Reference(u8),
    /// A byte, without a page before the first access.
    Pattern(u8),
}

/// An open file of one view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(pub u32);

/// Which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileName {
    /// The one that all threads and processes open.
    Common,
    /// A file of one worker's own, by the worker's number among all.
    Own(usize),
}

/// What a new file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A hole: pages come into the page cache when they are first needed.
    Hole,
    /// Zeros that were written, and so are in the page cache.
    Written,
}

/// Why a program can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No frame is free.
    OutOfFrames,
    /// A call failed.
    Call {
        /// Which.
        call: &'static str,
        /// With which error number.
        errno: i32,
    },
    /// An access got a signal.
    Access {
        /// Where.
        address: u64,
    },
    /// A load found something else than the program had stored.
    Wrong {
        /// Where.
        address: u64,
        /// What it found.
        found: u64,
        /// What must be there.
        expected: u64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfFrames => write!(f, "no frame is free"),
            Self::Call { call, errno } => write!(f, "{call} failed with error number {errno}"),
            Self::Access { address } => write!(f, "the access to {address:#x} got a signal"),
            Self::Wrong { address, found, expected } => {
                write!(f, "the word at {address:#x} holds {found:#x} instead of {expected:#x}")
            }
        }
    }
}

impl core::error::Error for Refused {}

/// A thread's view of an address space.
pub trait AddressSpace {
    /// Makes a mapping; returns its first address (mmap).
    fn map(&self, call: &MapCall) -> Result<u64, Refused>;
    /// Makes a mapping of anonymous private memory, anywhere, which starts as said (`refpage_create`, mmap). An address
    /// space that has no such call answers ENOSYS.
    fn map_starting_as(&self, start: Start, len_bytes: u64) -> Result<u64, Refused> {
        match start {
            Start::Zeros => self.map(&MapCall::anonymous(len_bytes)),
            Start::Reference(_) | Start::Pattern(_) => Err(Refused::Call { call: "refpage_create", errno: 38 }),
        }
    }
    /// Fills whole pages with a byte (memset).
    fn fill(&self, range: Range<u64>, byte: u8) -> Result<(), Refused> {
        let word = u64::from_ne_bytes([byte; 8]);
        range.step_by(8).try_for_each(|address| self.store(address, word))
    }
    /// Removes what is mapped in a range (munmap).
    fn unmap(&self, range: Range<u64>) -> Result<(), Refused>;
    /// Changes the rights of a range (mprotect).
    fn protect(&self, range: Range<u64>, rights: Rights) -> Result<(), Refused>;
    /// Drops the pages of a range (madvise, `MADV_DONTNEED`).
    fn discard(&self, range: Range<u64>) -> Result<(), Refused>;
    /// Moves the heap's end; returns the end in force. 0 moves nothing (brk, as the raw system call).
    fn set_break(&self, end: u64) -> u64;

    /// Loads the word at `address`, a multiple of 8.
    fn load(&self, address: u64) -> Result<u64, Refused>;
    /// Stores a word at `address`, a multiple of 8.
    fn store(&self, address: u64, value: u64) -> Result<(), Refused>;
    /// Stores a word to the first bytes of each of `nr_pages` pages from `first` on, in one loop, as a program does
    /// that has its stores inline.
    fn store_to_pages(&self, first: u64, nr_pages: u64, value: u64) -> Result<(), Refused> {
        (0..nr_pages).try_for_each(|page| self.store(first + page * PAGE, value))
    }
    /// Does what belongs to no operation: what it makes happen is not counted.
    fn aside(&self, act: &mut dyn FnMut() -> Result<(), Refused>) -> Result<(), Refused>;
    /// Copies `len_bytes` from one place to another; all are multiples of 8 (memcpy).
    fn copy(&self, from: u64, to: u64, len_bytes: u64) -> Result<(), Refused>;

    /// Opens a file, and makes it first if there is none (open, ftruncate).
    fn open(&self, name: FileName, len_bytes: u64, content: Content) -> Result<FileId, Refused>;
    /// Reads at the file's position into memory, and moves the position; returns the length, 0 at the end (read).
    fn read(&self, file: FileId, into: u64, len_bytes: u64) -> Result<u64, Refused>;
    /// Sets a file's position to its begin (lseek).
    fn rewind(&self, file: FileId) -> Result<(), Refused>;

    /// Makes a copy of the space, runs `life` in the copy, and ends it (fork, exit, wait).
    fn fork(&self, life: &mut dyn FnMut(&dyn AddressSpace) -> Result<(), Refused>) -> Result<(), Refused>;

    /// Says how the program's malloc is to get its memory (mallopt).
    fn set_heap_policy(&self, policy: crate::HeapPolicy);
    /// Returns room for `len_bytes` (malloc). Room is given back in the reverse order.
    fn allocate(&self, len_bytes: u64) -> Result<u64, Refused>;
    /// Gives room back (free).
    fn release(&self, address: u64) -> Result<(), Refused>;
}
