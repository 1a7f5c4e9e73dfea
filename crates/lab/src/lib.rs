//! Experiments: the replay of recorded programs under each locking design, statistics, reports.
//!
//! # Guarantee
//! a result is measured, carries its spread, and says what could not be checked
//!
//! [`plan`] turns a trace into what each thread does and must see; [`replay`] does it under one design; [`experiment`]
//! does it under several, run by run in turn; [`stats`] says how sure the numbers are, [`report`] prints and keeps them, and
//! [`compare`] sets what was kept against each other; [`processes`] says who is who in a trace, and picks out some.

#![deny(unsafe_code)]

pub mod calibrate;
pub mod compare;
pub mod experiment;
mod ground;
pub mod host;
pub mod measure;
pub mod oracle;
pub mod plan;
pub mod processes;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod schedules;
pub mod simulated;
pub mod stat;
pub mod stats;
pub mod trials;
pub mod watch;

pub use faultless_workloads as workloads;
