//! The recorded-trace format: what a real program did to its memory, and how that is kept in a file.
//!
//! # Guarantee
//! a trace that was read without an error is whole, unchanged, and obeys the invariants of [`event`]
//!
//! [`event`] and [`call`] say what an event is, [`header`] what a trace says about itself, [`snapshot`] what stood when
//! the recording joined a running process, [`stacks`] which functions its threads were inside of.

#![forbid(unsafe_code)]

pub mod blocks;
pub mod call;
mod check;
mod columns;
mod error;
pub mod event;
mod frame;
pub mod header;
mod meta;
mod pair;
mod read;
pub mod snapshot;
pub mod stacks;
mod standing;
pub mod text;
mod varint;
mod write;

pub use call::Call;
pub use check::Checker;
pub use error::{Inconsistent, ReadError, WriteError};
pub use event::{
    Access, CallEnter, CallExit, CloneTask, Event, EventKind, Fault, FileIndex, Mapped, Side, SwitchReason, ThreadIndex,
};
pub use frame::VERSION;
pub use header::{Costs, Ending, File, Header, HugePages, Limits, Machine, Missing, Mode, Pace, Thread};
pub use pair::pair_calls;
pub use read::{Prefix, Reader};
pub use snapshot::{Area, PageRun, PageState, Snapshot, SpaceState, Window};
pub use stacks::{Chain, ChainIndex, Frame, FrameIndex, Stacks};
pub use write::{Tables, Writer};

/// A whole trace in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// How, where and of what it was recorded.
    pub header: Header,
    /// The thread table, by [`ThreadIndex`].
    pub threads: Vec<Thread>,
    /// The file table, by [`FileIndex`].
    pub files: Vec<File>,
    /// What stood when the recording began, if it joined running processes.
    pub snapshot: Snapshot,
    /// Which functions threads were inside of, if that was recorded.
    pub stacks: Stacks,
    /// Everything that happened, in one total order.
    pub events: Vec<Event>,
}
