//! The lock word.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | `WRITER` | a writer holds the lock |
//! | 1 | `WAITERS` | somebody stands in line; changed under the queue's lock alone |
//! | 2..8 | `OVERTAKEN` | how often in a row a writer took the lock before those in line; 0 without `WAITERS`. All ones: the door is shut, nobody overtakes any more |
//! | 8.. | readers | those that hold the lock, or knock: have counted themselves before they looked |
//! | 31 | `FULL` | the highest of those bits: more guards were forgotten than there can be threads; no reader comes in |
//!
//! `WRITER` and readers that hold exclude each other; a reader that knocked at a closed door takes its count back under
//! the queue's lock. *Free* means neither a writer nor a reader is counted, whoever stands in line.

use faultless_platform::mutant;

pub(super) const WRITER: u32 = 1;
pub(super) const WAITERS: u32 = 2;
pub(super) const READER: u32 = 1 << 8;
/// Half of what can be counted: as many more may knock before the count wraps.
const FULL: u32 = 1 << 31;
/// Set in the word, it shuts the door to all but the first in line; changed so under the queue's lock alone.
pub(super) const SHUT: u32 = OVERTAKEN;
const OVERTAKEN: u32 = 0xfc;
const OVERTAKEN_ONCE: u32 = 4;

/// How often `OVERTAKEN` can count.
pub(super) const MAX_PATIENCE: u8 = (OVERTAKEN / OVERTAKEN_ONCE) as u8;

/// Whether the word counts those who overtake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Theft {
    /// It does.
    Counted,
    /// It does not: time bounds them.
    Uncounted,
}

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

    /// Says whether readers have the lock, or knock.
    pub(super) fn has_readers(self) -> bool {
        self.0 >= READER
    }

    /// Returns how many readers have the lock, or knock.
    pub(super) fn nr_readers(self) -> u32 {
        self.0 / READER
    }

    /// Says whether readers have the lock, or knock at one that nobody has.
    pub(super) fn is_held_by_readers(self) -> bool {
        self.has_readers() && !self.has_writer()
    }

    pub(super) fn is_free(self) -> bool {
        !self.has_writer() && !self.has_readers()
    }

    /// Says whether nobody may overtake the first in line any more.
    pub(super) fn is_shut(self) -> bool {
        self.0 & SHUT == SHUT
    }

    /// Says whether a reader that comes now must queue, or can't come in at all.
    pub(super) fn is_closed_to_readers(self) -> bool {
        self.0 & (WRITER | WAITERS | FULL) != 0
    }

    /// Says whether no reader more can be counted.
    pub(super) fn is_full(self) -> bool {
        self.0 & FULL != 0
    }

    /// Says whether a writer that is not the first in line may take the lock.
    pub(super) fn may_be_stolen(self, patience: u32) -> bool {
        self.is_free() && (!self.has_waiters() || self.times_overtaken() < patience)
    }

    /// Returns the word after a writer has taken the lock before those in line, who count it or not.
    pub(super) fn stolen(self, theft: Theft) -> Self {
        match theft {
            _ if mutant!(StealForgetsLine, !self.has_waiters() => true) => Self(WRITER),
            Theft::Counted => Self((self.0 + OVERTAKEN_ONCE) | WRITER),
            Theft::Uncounted => Self(self.0 | WRITER),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_lock_is_stolen_as_often_as_those_in_line_have_patience() {
        const PATIENCE: u32 = 3;
        assert!(Word(0).may_be_stolen(0), "nobody is in line");
        assert!(!Word(WRITER).may_be_stolen(PATIENCE) && !Word(READER).may_be_stolen(PATIENCE));
        let mut word = Word(WAITERS);
        for turn in 0..PATIENCE {
            assert_eq!((word.times_overtaken(), word.may_be_stolen(PATIENCE)), (turn, true));
            let held = word.stolen(Theft::Counted);
            assert!(held.has_writer() && held.has_waiters() && !held.may_be_stolen(PATIENCE));
            assert!(word.stolen(Theft::Uncounted).0 == word.0 | WRITER);
            word = Word(held.0 - WRITER);
        }
        assert!(!word.may_be_stolen(PATIENCE) && word.may_be_stolen(PATIENCE + 1));
        assert_eq!(word.0.wrapping_add(word.fresh_patience()), WAITERS, "whoever was served has patience again");
        assert!(!word.is_shut() && Word(WAITERS | SHUT).is_shut());
        assert_eq!(Word(WAITERS | SHUT).times_overtaken(), MAX_PATIENCE.into());
    }

    #[test]
    fn a_word_says_who_has_the_lock() {
        let readers = Word(3 * READER + WAITERS);
        assert!(readers.has_readers() && readers.is_held_by_readers() && readers.is_closed_to_readers());
        assert_eq!((readers.nr_readers(), Word(WAITERS).nr_readers()), (3, 0));
        assert!(!Word(WRITER + READER).is_held_by_readers(), "one that knocks");
        assert!(Word(WAITERS).is_free() && !readers.is_free() && !Word(WRITER).is_free());
        assert!(!Word(READER).is_closed_to_readers() && Word(WRITER).is_closed_to_readers());
        assert_eq!(readers.0 & Word::WITHOUT_LINE, 3 * READER);
    }
}
