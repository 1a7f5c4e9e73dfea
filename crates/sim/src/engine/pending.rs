//! An access on its way.

use super::lines::LineId;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Writes, and is ordered before all that follows.
    FencedStore,
    /// Reads and writes in one step.
    ReadModifyWrite,
}

impl Kind {
    pub(super) fn is_write(self) -> bool {
        self != Self::Load
    }
}

/// An access that waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) line: LineId,
    /// An address in it.
    pub(super) address: usize,
    pub(super) kind: Kind,
    pub(super) stage: Stage,
}

/// What comes next of an access.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// The line is asked for.
    Serve,
    /// What was asked for arrives.
    Take(Asked),
}

/// What a miss asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// The line, which nobody else has then.
    Whole,
    /// A copy of what this owner has, or of what many share.
    CopyOf(u16),
}
