//! A sequence's outcomes on both sides, held against each other.
//!
//! # Guarantee
//! The first operation whose outcomes differ, by no rule's leave, is the finding; so is a broken invariant, and a
//! sequence that one side could not run. If the invariants are checked after each operation, each is tried without
//! enough memory first, and they are checked after that, too. Nothing that was not compared counts as compared.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::kernel::Outcome;
use faultless_vm::check::invariants;
use faultless_vm::design::Design;
use faultless_vm::{Event, Vm};

use super::explain;
use super::rules::{self, Rule, Verdict};
use super::subject::{Batch, Checking, Ground};
use super::world;

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
    fn after_a_shortage(self) -> Self {
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

/// Runs a sequence of a batch on the VM and compares.
pub(super) fn judge<P: Ground, D: Design<P>>(
    vm: &Vm<P, D>,
    machine: &P::Machine,
    batch: &Batch,
    place: usize,
) -> Result<Verdicts, Finding> {
    let (sequence, answers) = (&batch.sequences[place], &batch.answers[place]);
    let before = counted(vm);
    let answers = answers.as_ref().map_err(|why| Finding::NotCompared(why.to_string()))?;
    let mut verdicts = match sequence.ops.iter().any(|op| op.thread != 0) {
        true => explain::judge(vm, machine, sequence, answers, &batch.conditions),
        false => in_order(vm, batch, place, answers),
    }?;
    if batch.checking != Checking::EachBatch {
        check(vm, sequence.ops.len())?;
    }
    let after = counted(vm);
    verdicts.events = std::array::from_fn(|place| after[place] - before[place]);
    Ok(verdicts)
}

fn counted<P: Ground, D: Design<P>>(vm: &Vm<P, D>) -> [u64; COUNTED.len()] {
    COUNTED.map(|event| vm.events().total(event))
}

/// Checks the invariants at the end of a batch.
pub(super) fn check_batch<P: Ground, D: Design<P>>(vm: &Vm<P, D>, batch: &Batch) -> Result<(), Finding> {
    let last = batch.sequences.last().map_or(0, |sequence| sequence.ops.len());
    check(vm, last).map_err(|finding| match finding {
        Finding::Invariant { place, what } if batch.checking == Checking::EachBatch => {
            let what = format!("{what} (looked at once in {} sequences: see --invariants)", batch.sequences.len());
            Finding::Invariant { place, what }
        }
        other => other,
    })
}

/// Checks the invariants after the operation at a place.
pub(super) fn check<P: Ground, D: Design<P>>(vm: &Vm<P, D>, after: usize) -> Result<(), Finding> {
    // SAFETY: the sequence's threads have ended, or wait for this one.
    #[allow(unsafe_code, reason = "the checker looks at everything")]
    let checked = unsafe { invariants(vm) };
    checked.map_err(|broken| Finding::Invariant { place: after.saturating_sub(1), what: broken.to_string() })
}

fn in_order<P: Ground, D: Design<P>>(
    vm: &Vm<P, D>,
    batch: &Batch,
    place: usize,
    answers: &[Outcome],
) -> Result<Verdicts, Finding> {
    let (sequence, twin) = (&batch.sequences[place], batch.twins[place].as_ref());
    let (conditions, checking) = (&batch.conditions, batch.checking);
    let (mut verdicts, mut finding) = (Verdicts::default(), None);
    // The place of the operation that is under way, and what was broken after one that found no memory.
    let (place_now, broken) = (AtomicUsize::new(0), Mutex::new(None));
    let tell = || {
        // Relaxed: one thread runs the sequence.
        let found = check(vm, place_now.load(Ordering::Relaxed) + 1).err().map(Finding::after_a_shortage);
        let mut broken = broken.lock().unwrap_or_else(PoisonError::into_inner);
        *broken = broken.take().or(found);
    };
    let checks_each = checking == Checking::EachOperation;
    let shortages: Option<world::Told<'_>> = if checks_each { Some(&tell) } else { None };
    let ran = world::run(vm, sequence, conditions, shortages, &mut |place, outcome| {
        place_now.store(place + 1, Ordering::Relaxed);
        finding = broken.lock().unwrap_or_else(PoisonError::into_inner).take();
        if finding.is_some() {
            return false;
        }
        let twin = twin.and_then(|twin| twin.outcomes.get(..=place));
        match rules::compare_with_twin(&sequence.ops[..=place], &answers[..=place], twin, outcome) {
            Verdict::Same => {}
            Verdict::Exempt(rule) => verdicts.exempted.push(rule),
            Verdict::Different => {
                let (kernel, vm) = (answers[place].to_string(), outcome.to_string());
                finding = Some(Finding::Outcome { place, kernel, vm });
            }
        }
        if finding.is_none() && checks_each {
            finding = check(vm, place + 1).err();
        }
        finding.is_none()
    });
    match (ran, finding) {
        (_, Some(finding)) => Err(finding),
        (Err(unfit), None) => Err(Finding::NotCompared(unfit.0)),
        (Ok(()), None) => Ok(verdicts),
    }
}
