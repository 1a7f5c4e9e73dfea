//! What can be wrong with a trace, and what to do about it.
//!
//! # Guarantee
//! Every message says what is wrong, where, and what the reader of the message can do.

use std::fmt;
use std::io;

/// Why a trace could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The file holds no byte.
    Empty,
    /// The file is something else.
    Foreign,
    /// The file was written by a later version of the format.
    Newer {
        /// The file's version.
        version: u16,
    },
    /// The file ends before its end marker.
    Cut {
        /// Where it ends.
        offset: u64,
    },
    /// Bytes were changed since it was written.
    Damaged {
        /// Where the damaged part begins.
        offset: u64,
        /// What the part is.
        part: &'static str,
    },
    /// The bytes are as they were written, but what they say breaks an invariant.
    Inconsistent(Inconsistent),
    /// The system could not read.
    Io(io::Error),
}

/// An event that breaks an invariant of [`crate::event`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconsistent {
    /// Its place in the list, from 0.
    pub event: u64,
    /// What is wrong with it.
    pub what: &'static str,
}

/// Why a trace could not be written.
#[derive(Debug)]
pub enum WriteError {
    /// The event breaks an invariant; nothing of it was written.
    Inconsistent(Inconsistent),
    /// A table or the header is larger than a block can hold.
    TooLarge {
        /// Which part.
        part: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// The system could not write.
    Io(io::Error),
}

impl fmt::Display for Inconsistent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.event, self.what)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the file is empty; record the program again"),
            Self::Foreign => write!(f, "this is not a trace of faultless; `faultless record` makes one"),
            Self::Newer { version } => write!(
                f,
                "the trace has format version {version}, and this faultless reads up to {}; use a newer faultless",
                crate::frame::VERSION
            ),
            Self::Cut { offset } => {
                write!(f, "the trace is cut: it ends at byte {offset} without its end marker; copy or record it again")
            }
            Self::Damaged { offset, part } => {
                write!(f, "the trace is damaged in {part} at byte {offset}; copy or record it again")
            }
            Self::Inconsistent(what) => write!(f, "the trace contradicts itself: {what}; record the program again"),
            Self::Io(error) => write!(f, "cannot read the trace: {error}"),
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inconsistent(what) => write!(f, "the trace would contradict itself: {what}"),
            Self::TooLarge { part, bytes } => {
                write!(f, "{part} takes {bytes} bytes, and a block holds {}", crate::frame::MAX_RAW_BYTES)
            }
            Self::Io(error) => write!(f, "cannot write the trace: {error}"),
        }
    }
}

impl std::error::Error for ReadError {}
impl std::error::Error for WriteError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Inconsistent> for ReadError {
    fn from(what: Inconsistent) -> Self {
        Self::Inconsistent(what)
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Inconsistent> for WriteError {
    fn from(what: Inconsistent) -> Self {
        Self::Inconsistent(what)
    }
}
