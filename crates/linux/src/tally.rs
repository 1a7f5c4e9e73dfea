//! How much of what a recording caught.
//!
//! # Guarantee
//! The counts are those of the events in the written trace.

use std::collections::BTreeMap;

use faultless_trace::stacks::Reach;
use faultless_trace::{Call, Event, EventKind, Fault, Side, Stacks};

/// Counts by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All events.
    pub events: u64,
    /// Faults that the program took itself.
    pub user_faults: u64,
    /// Faults that the kernel took for it.
    pub kernel_faults: u64,
    /// Memory calls entered, by name.
    pub calls: BTreeMap<&'static str, u64>,
    /// Mappings that the kernel told of.
    pub mappings: u64,
    /// Threads and processes made.
    pub clones: u64,
    /// Programs begun.
    pub execs: u64,
    /// Threads ended.
    pub exits: u64,
    /// Times that a thread got or left a CPU.
    pub switches: u64,
    /// Threads woken by another.
    pub wakes: u64,
}

/// What became of call chains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainTally {
    /// Events that have one.
    pub events: u64,
    /// Of these, those whose outermost callers are not known.
    pub cut: u64,
    /// Chains that found no room.
    pub lost: u64,
}

impl ChainTally {
    /// Counts the chains of a trace.
    pub(crate) fn of(stacks: &Stacks) -> Self {
        let cut = stacks.samples.iter().filter(|sample| sample.reach == Reach::Cut).count() as u64;
        Self { events: stacks.samples.len() as u64, cut, lost: stacks.lost }
    }
}

impl Tally {
    /// Counts one event.
    pub fn count(&mut self, event: &Event) {
        self.events += 1;
        match event.kind {
            EventKind::Fault(Fault { side: Side::User, .. }) => self.user_faults += 1,
            EventKind::Fault(Fault { side: Side::Kernel, .. }) => self.kernel_faults += 1,
            EventKind::CallEnter(enter) => *self.calls.entry(enter.call.name()).or_default() += 1,
            EventKind::CallExit(_) => {}
            EventKind::Mapped(_) => self.mappings += 1,
            EventKind::Clone(_) => self.clones += 1,
            EventKind::Exec => self.execs += 1,
            EventKind::Exit => self.exits += 1,
            EventKind::SwitchOut(_) | EventKind::SwitchIn => self.switches += 1,
            EventKind::Wake { .. } => self.wakes += 1,
        }
    }

    /// Returns how many faults there were.
    pub fn faults(&self) -> u64 {
        self.user_faults + self.kernel_faults
    }

    /// Returns how often one call was entered.
    pub fn calls_of(&self, call: Call) -> u64 {
        self.calls.get(call.name()).copied().unwrap_or(0)
    }
}
