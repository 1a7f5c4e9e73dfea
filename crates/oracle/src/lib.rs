//! The oracle: random sequences of memory operations, on the real kernel and on the VM, outcome by outcome.
//!
//! # Guarantee
//! Zero differences means: every operation of every sequence gave the same result, error, signal and byte on both
//! sides, and every list of areas and every readable page was the same, but for what [`rules`] exempts by name.
//!
//! # Rooms
//! * [`kernel`]: the kernel as judge, in a process of its own; what sequences and answers are
//! * `generate`: sequences from a seed
//! * `abi`, `world`: a sequence on the VM
//! * `batch`: what is compared at a time; `subject`: a design on a thread of its own; `unmapped`: what it says that
//!   reaches for high memory without a map; `judge`: the run over all of
//!   them, beside the kernel
//! * `compare`, `explain`, [`rules`], `finding`: what counts as the same, and what does not
//! * `shrink`: differences made small
//! * `tally`, `report`: what was seen

#![deny(unsafe_code)]

mod abi;
mod batch;
mod compare;
mod explain;
mod finding;
pub mod generate;
mod judge;
#[allow(unsafe_code)]
pub mod kernel;
pub mod report;
pub mod rules;
mod shrink;
mod subject;
mod tally;
#[allow(unsafe_code)]
mod unmapped;
mod world;

pub use batch::Checking;
pub use finding::Finding;
pub use generate::Profile;
pub use judge::{Bench, DesignVerdict, Difference, Jury, Outcomes, Settings, replay, run};
pub use shrink::{pasteable, shrink};
pub use subject::Side;
pub use tally::Tally;
