//! Measuring this machine, so that it can be simulated.
//!
//! # Guarantee
//! Each number is measured by a program that runs on both, this machine and its simulation; what cannot be measured
//! directly is fitted so that the simulated program takes as long as the real one. Only [`FITTED_ON`] is used to fit
//! the cost of instructions; everything else that is ever compared is a prediction.
//!
//! # Rooms
//! `probes` are the programs; `fit` turns what they say into a machine file; `check` compares the simulation with the
//! machine.

pub mod check;
mod fit;
mod probes;

pub use fit::{CalibrateError, FITTED_ON, calibrate};
