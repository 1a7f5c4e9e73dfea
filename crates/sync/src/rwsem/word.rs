//! The lock word.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | `WRITER` | a writer holds the lock |
//! | 1 | `WAITERS` | somebody stands in line; changed under the queue's lock alone |
//! | 2..8 | `OVERTAKEN` | how often in a row a writer took the lock before those in line; 0 without `WAITERS` |
//! | 8.. | readers | those that hold the lock, or knock: have counted themselves before they looked |
//!
//! `WRITER` and readers that hold exclude each other; a reader that knocked at a closed door takes its count back under the
//! queue's lock. *Free* means neither a writer nor a reader is counted, whoever stands in line.

use faultless_platform::mutants::{self, Mutant};

pub(super) const WRITER: u32 = 1;
pub(super) const WAITERS: u32 = 2;
pub(super) const READER: u32 = 1 << 8;
const OVERTAKEN: u32 = 0xfc;
const OVERTAKEN_ONCE: u32 = 4;

/// How often `OVERTAKEN` can count.
pub(super) const MAX_PATIENCE: u8 = (OVERTAKEN / OVERTAKEN_ONCE) as u8;

/// The lock word, as it was at some moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u32);

impl Word {
    /// Keeps all but what tells of the line.
    pub(super) const WITHOUT_LINE: u32 = !(WAITERS | OVERTAKEN);

    pub(super) fn has_writer(self) -> bool {
        self.0 & WRITER != 0
    }

    pub(super) fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    fn has_readers(self) -> bool {
        self.0 >= READER
    }

    /// Says whether readers have the lock, or knock at one that nobody has.
    pub(super) fn is_held_by_readers(self) -> bool {
        self.has_readers() && !self.has_writer()
    }

    pub(super) fn is_free(self) -> bool {
        !self.has_writer() && !self.has_readers()
    }

    /// Says whether a reader that comes now must queue.
    pub(super) fn is_closed_to_readers(self) -> bool {
        self.0 & (WRITER | WAITERS) != 0
    }

    /// Says whether a writer that is not the first in line may take the lock.
    pub(super) fn may_be_stolen(self, patience: u32) -> bool {
        self.is_free() && (!self.has_waiters() || self.times_overtaken() < patience)
    }

    /// Returns the word after a writer has taken the lock before those in line.
    pub(super) fn stolen(self) -> Self {
        if self.has_waiters() && !mutants::is_on(Mutant::StealForgetsLine) {
            Self((self.0 + OVERTAKEN_ONCE) | WRITER)
        } else {
            Self(WRITER)
        }
    }

    /// Returns what must be added, modulo 2^32, when the first in line has been served.
    pub(super) fn fresh_patience(self) -> u32 {
        (self.0 & OVERTAKEN).wrapping_neg()
    }

    fn times_overtaken(self) -> u32 {
        (self.0 & OVERTAKEN) / OVERTAKEN_ONCE
    }
}
