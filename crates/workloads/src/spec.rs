//! A workload as users write it: a name, and flags of its own.
//!
//! # Guarantee
//! What is understood means what the original program's flags mean; everything else is an error that says what there is.

use crate::registry::{self, Workload};
use alloc::string::{String, ToString};
use core::fmt;

/// What a program is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of the memory that a worker maps at once; the published size unless told otherwise.
    pub region_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { region_bytes: 128 << 20 }
    }
}

/// A workload with its flags.
#[derive(Clone, Debug)]
pub struct Spec {
    /// As the user wrote it, with single spaces: its name in results.
    pub name: String,
    /// The workload.
    pub workload: &'static Workload,
    /// What it is told.
    pub settings: Settings,
}

/// Why a text names no workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// There is no such workload.
    Unknown(String),
    /// The workload has no such flag.
    Flag {
        /// The workload.
        workload: &'static str,
        /// The flag.
        flag: String,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no workload '{name}'"),
            Self::Flag { workload, flag } => write!(f, "{workload} has no flag '{flag}'"),
        }
    }
}

impl core::error::Error for SpecError {}

impl Spec {
    /// Reads `NAME [FLAG...]`.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        let workload = registry::find(name).ok_or_else(|| SpecError::Unknown(name.to_string()))?;
        if let Some(flag) = words.next() {
            return Err(SpecError::Flag { workload: workload.name, flag: flag.to_string() });
        }
        Ok(Self { name: workload.name.to_string(), workload, settings: Settings::default() })
    }
}
