//! What the oracle's sequences held, counted.

use std::collections::BTreeMap;

use crate::kernel::{Call, Op, Outcome, Sequence, advice_name, errno_name};

use super::finding::{COUNTED, Verdicts};
use super::rules::Rule;

/// Counts of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations that the kernel ran.
    pub operations: u64,
    /// By call, outcomes by name: `ok` or the error's.
    pub calls: BTreeMap<String, BTreeMap<String, u64>>,
    /// Signals by name.
    pub signals: BTreeMap<String, u64>,
    /// Uses of each rule, all designs together.
    pub exempted: BTreeMap<Rule, u64>,
    /// madvise calls, by advice, outcomes by name.
    pub advice: BTreeMap<String, BTreeMap<String, u64>>,
    /// What happened on the VM, by design: faults, speculative ones, copies, stack growths and shootdowns, by name.
    pub events: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
}

impl Tally {
    /// Counts what the kernel made of a sequence.
    pub fn note(&mut self, sequence: &Sequence, outcomes: &[Outcome]) {
        for (op, outcome) in sequence.ops.iter().zip(outcomes) {
            if *outcome != Outcome::NotRun {
                self.note_one(op, outcome);
            }
        }
    }

    fn note_one(&mut self, op: &Op, outcome: &Outcome) {
        self.operations += 1;
        let name = match outcome {
            Outcome::Errno(errno) => errno_name(*errno),
            Outcome::Signal(seen) => {
                *self.signals.entry(seen.name()).or_default() += 1;
                seen.name()
            }
            _ => "ok".to_owned(),
        };
        if op.call == Call::Madvise {
            let advice = advice_name(op.args[2]).unwrap_or("other").to_owned();
            *self.advice.entry(advice).or_default().entry(name.clone()).or_default() += 1;
        }
        if op.call.makes_process() && name == "ok" {
            // Each child ends with exit.
            *self.calls.entry("exit".into()).or_default().entry("ok".into()).or_default() += 1;
        }
        *self.calls.entry(op.call.name().into()).or_default().entry(name).or_default() += 1;
    }

    /// Counts what comparing a sequence used, and did under a design.
    pub fn note_verdicts(&mut self, design: &'static str, verdicts: &Verdicts) {
        verdicts.exempted.iter().for_each(|rule| *self.exempted.entry(*rule).or_default() += 1);
        let events = self.events.entry(design).or_default();
        for (event, count) in COUNTED.iter().zip(verdicts.events) {
            *events.entry(event.name()).or_default() += count;
        }
    }

    /// Returns how many operations failed or were ended by a signal, of those that can.
    pub fn errors(&self) -> u64 {
        let outcomes = self.calls.values().flatten();
        outcomes.filter(|(name, _)| *name != "ok").map(|(_, count)| count).sum()
    }
}
