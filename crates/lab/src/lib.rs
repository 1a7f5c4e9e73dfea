//! Experiments: the replay of recorded programs under each locking design, statistics, reports.
//!
//! # Guarantee
//! a result is measured, carries its spread, and says what could not be checked
//!
//! [`plan`] turns a trace into what each thread does and must see.

#![deny(unsafe_code)]

pub mod plan;
pub mod replay;
pub mod stats;
