//! All of Faultless that talks to the host's kernel: the recorder, and the host's address space.
//!
//! # Guarantee
//! What [`record()`] hands back was seen by the kernel in the program that it started, and what [`attach()`] hands
//! back, in the processes that it joined; where the kernel could not show everything, the trace names what is missing
//! and how much was lost.

#![deny(clippy::unwrap_used)]

mod attach;
mod bounds;
mod bpf;
mod cgroup;
mod child;
mod company;
mod convert;
mod costs;
pub mod counters;
mod cut;
mod drain;
mod error;
mod files;
mod freeze;
mod host;
mod joining;
mod late;
mod merge;
mod numbers;
pub mod output;
mod pagemap;
mod perf;
mod raw;
mod record;
mod recover;
mod rights;
mod ring;
mod session;
#[cfg(test)]
mod shell;
mod signals;
mod smaps;
mod snapshot;
mod sources;
pub mod space;
mod spool;
mod stacks;
mod tally;
mod target;
mod trace_builder;
mod tracefs;
mod wire;

pub use attach::{Beginning, Joining, Means, SnapshotMode, Who, attach};
pub use bounds::Bounds;
pub use error::RecordError;
pub use record::{Arguments, Descendants, ModeChoice, Options, Recording, record};
pub use recover::recover;
pub use stacks::StackOptions;
pub use tally::{ChainTally, Tally};
pub use target::{Kin, Lack, Unjoinable};
