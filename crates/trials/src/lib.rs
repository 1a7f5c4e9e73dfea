//! Trials: long random checks, each in a process of its own, so that whatever it dies of is a finding.
//!
//! # Guarantee
//! A crash, a hang, and more memory than is allowed end the trial's process, never the caller's; each finding carries
//! the line that runs the same trial again.
//!
//! # Rooms
//! * [`child`]: a process that does one trial, and what became of it
//! * [`soak`]: threads that use one instance at random (`faultless-soak`), a process for each design
//! * [`fuzz`]: drawn and damaged inputs, each one's number known when it fails
//! * [`all`]: every judge in turn, for as long as asked

#![deny(unsafe_code)]

pub mod all;
pub mod child;
pub mod fuzz;
pub mod soak;

use serde::{Deserialize, Serialize};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The judge: `oracle`, `schedules`, `soak` or `fuzz`.
    pub judge: String,
    /// The design or the target.
    pub subject: String,
    /// What was seen.
    pub what: String,
    /// The command that shows it again, or that makes the same choices again.
    pub line: String,
}
