//! What experiments found out: result sets, statistics, comparisons, and the formats they are kept in.
//!
//! # Guarantee
//! Every figure has its spread and its number of samples; machine formats hold every sample, in base units.
//!
//! # Rooms
//! [`ResultSet`] is what every command that measures found out: [`set`] has its types, [`read()`] takes it from a file,
//! [`saved`] keeps it under a name. One exporter a file: [`json`], [`csv`], [`markdown`]; [`columns`] for people,
//! as wide as their [`screen`]. [`stats`] says how sure a figure is; [`compare`] sets what was kept against each other,
//! [`summary`] says it in a pull request, [`trend`] follows one figure over commits. [`verdict`] says which design
//! wins, by how much, and why.

#![deny(unsafe_code)]

pub mod columns;
pub mod compare;
pub mod csv;
pub mod designs;
pub mod json;
pub mod markdown;
pub mod metric;
mod middle;
mod read;
pub mod saved;
pub mod screen;
pub mod set;
pub mod stats;
pub mod summary;
pub mod trend;
mod unit;
pub mod verdict;

pub use read::{ReadError, bytes, parse, read, text};
pub use set::{MachineInfo, Measured, Mode, ResultSet, SCHEMA, commit};
pub use unit::{Unit, exact_bytes, grouped};

/// What stands beside a figure of a run whose rates had not converged when its time was over.
pub const NOT_CONVERGED: &str = "not converged";
