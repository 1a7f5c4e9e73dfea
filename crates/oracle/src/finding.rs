//! What comparing a sequence gives: what it used and did, or why it is a difference.

use super::rules::Rule;
use faultless_vm::Event;
use std::any::Any;
use std::fmt;

/// What comparing a sequence used, and did on the VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Rules, once for each use.
    pub exempted: Vec<Rule>,
    /// How often each of [`COUNTED`] happened.
    pub events: [u64; COUNTED.len()],
}

/// The VM's events that are counted. Of threads, each order that is tried counts.
pub const COUNTED: [Event; 5] = [Event::Faults, Event::Spf, Event::Cow, Event::StackGrowth, Event::TlbShootdown];

/// Why a sequence is a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// An operation's outcomes differ.
    Outcome {
        /// Its place.
        place: usize,
        /// What the kernel made of it.
        kernel: String,
        /// What the VM made of it.
        vm: String,
    },
    /// No order of the threads' operations explains what was seen on this side.
    Unexplained {
        /// The side: `kernel` or `vm`.
        side: &'static str,
        /// What was seen.
        seen: String,
    },
    /// An invariant of the VM is broken after this operation.
    Invariant {
        /// Its place.
        place: usize,
        /// Which, and how.
        what: String,
    },
    /// The VM panicked.
    Panic(String),
    /// The VM did not come to its end in time.
    Hang,
    /// The sequence could not be compared.
    NotCompared(String),
}

impl Finding {
    /// Makes the finding of a panic.
    pub fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Self::Panic(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
    }

    /// Says that the operation had found no memory.
    pub(super) fn after_a_shortage(self) -> Self {
        match self {
            Self::Invariant { place, what } => {
                Self::Invariant { place, what: format!("which found no memory, {what}") }
            }
            other => other,
        }
    }

    /// Returns the place of the operation that shows it.
    pub fn place(&self) -> Option<usize> {
        match self {
            Self::Outcome { place, .. } | Self::Invariant { place, .. } => Some(*place),
            _ => None,
        }
    }

    /// Says whether two findings are of a kind, so that shrinking keeps to the first.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outcome { place, kernel, vm } => {
                write!(out, "operation {place}: the kernel answers {kernel}\nand the VM {vm}")
            }
            Self::Unexplained { side, seen } => write!(out, "no order of the operations explains the {side}'s {seen}"),
            Self::Invariant { place, what } => write!(out, "after operation {place}, {what}"),
            Self::Panic(what) => write!(out, "the VM panicked: {what}"),
            Self::Hang => write!(out, "the VM did not come to its end in time"),
            Self::NotCompared(why) => write!(out, "not compared: {why}"),
        }
    }
}
