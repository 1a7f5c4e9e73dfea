//! A sequence's outcomes on both sides, held against each other.
//!
//! # Guarantee
//! The first operation whose outcomes differ, by no rule's leave, is the finding; so is a broken invariant, and a
//! sequence that one side could not run. If the invariants are checked after each operation, each is tried without
//! enough memory first, and they are checked after that, too. Nothing that was not compared counts as compared.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::kernel::Outcome;
use faultless_vm::Vm;
use faultless_vm::check::invariants;
use faultless_vm::design::Design;

use super::batch::{Batch, Checking, TestPlatform};
use super::explain;
use super::finding::{COUNTED, Finding, Verdicts};
use super::rules::{self, Verdict};
use super::world;

/// Runs a sequence of a batch on the VM and compares, up to its end or that of the run (`Batch::is_over`).
pub(super) fn judge<P: TestPlatform, D: Design<P>>(
    vm: &Vm<P, D>,
    machine: &P::Machine,
    batch: &Batch,
    place: usize,
) -> Result<Verdicts, Finding> {
    let (sequence, answers) = (&batch.sequences[place], &batch.answers[place]);
    let before = counted(vm);
    let answers = answers.as_ref().map_err(|why| Finding::NotCompared(why.to_string()))?;
    let mut verdicts = match sequence.ops.iter().any(|op| op.thread != 0) {
        true => explain::judge(vm, machine, sequence, answers, batch),
        false => in_order(vm, batch, place, answers),
    }?;
    if batch.checking != Checking::EachBatch {
        check(vm, sequence.ops.len())?;
    }
    let after = counted(vm);
    verdicts.events = std::array::from_fn(|place| after[place] - before[place]);
    Ok(verdicts)
}

fn counted<P: TestPlatform, D: Design<P>>(vm: &Vm<P, D>) -> [u64; COUNTED.len()] {
    COUNTED.map(|event| vm.events().total(event))
}

/// Checks the invariants at the end of a batch.
pub(super) fn check_batch<P: TestPlatform, D: Design<P>>(vm: &Vm<P, D>, batch: &Batch) -> Result<(), Finding> {
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
pub(super) fn check<P: TestPlatform, D: Design<P>>(vm: &Vm<P, D>, after: usize) -> Result<(), Finding> {
    // SAFETY: the sequence's threads have ended, or wait for this one.
    #[allow(unsafe_code, reason = "the checker looks at everything")]
    let checked = unsafe { invariants(vm) };
    checked.map_err(|broken| Finding::Invariant { place: after.saturating_sub(1), what: broken.to_string() })
}

fn in_order<P: TestPlatform, D: Design<P>>(
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
        finding.is_none() && !(batch.is_over)()
    });
    match (ran, finding) {
        (_, Some(finding)) => Err(finding),
        (Err(unfit), None) => Err(Finding::NotCompared(unfit.0)),
        (Ok(()), None) => Ok(verdicts),
    }
}
