//! Threads: what several of them see at once must be what some order of their operations gives.
//!
//! # Guarantee
//! A sequence with threads is accepted only if an order of their operations, run one after the other on the VM, gives
//! every outcome that the kernel gave, up to the last operation of the sequence; and if what the VM itself gives when
//! the threads really run at once is explained by an order too.
//!
//! # Search
//! Orders are tried from the first to the last; a mismatch at a step rules out all orders that begin alike.

use std::mem::ManuallyDrop;
use std::sync::{Barrier, Mutex};
use std::thread;

use faultless_linux::oracle::{Op, Outcome, Sequence};
use faultless_platform::native::{Machine, Native};
use faultless_vm::design::Design;
use faultless_vm::{Guest, Vm};

use super::compare::{Finding, Verdicts, check};
use super::rules::{self, Verdict};
use super::world::{self, Conditions, Process};

/// Judges a sequence with threads.
pub(super) fn judge<D: Design<Native>>(
    vm: &Vm<Native, D>,
    machine: &Machine,
    sequence: &Sequence,
    answers: &[Outcome],
    conditions: &Conditions,
) -> Result<Verdicts, Finding> {
    let verdicts = explain(vm, sequence, answers, conditions, "kernel")?;
    check(vm, sequence.ops.len())?;
    let own = at_once(vm, machine, sequence, conditions)?;
    check(vm, sequence.ops.len())?;
    explain(vm, sequence, &own, conditions, "vm")?;
    Ok(verdicts)
}

/// Finds an order of the operations that explains the outcomes.
fn explain<D: Design<Native>>(
    vm: &Vm<Native, D>,
    sequence: &Sequence,
    answers: &[Outcome],
    conditions: &Conditions,
    side: &'static str,
) -> Result<Verdicts, Finding> {
    let mut order = Order::first(&sequence.ops);
    loop {
        let Some((verdicts, reached)) = try_order(vm, sequence, answers, conditions, &order)? else {
            return Err(Finding::NotCompared("an operation of a thread has no outcome".into()));
        };
        match reached {
            None => return Ok(verdicts),
            Some(step) if order.advance(step) => {}
            Some(_) => return Err(Finding::Unexplained { side, seen: told(sequence, answers) }),
        }
    }
}

/// Runs one order; returns the step at which an outcome did not match, if one did not.
fn try_order<D: Design<Native>>(
    vm: &Vm<Native, D>,
    sequence: &Sequence,
    answers: &[Outcome],
    conditions: &Conditions,
    order: &Order,
) -> Result<Option<(Verdicts, Option<usize>)>, Finding> {
    let ops = order.places.iter().map(|&place| sequence.ops[place]).collect();
    let ordered = Sequence { ops, ..sequence.clone() };
    let (mut verdicts, mut reached) = (Verdicts::default(), None);
    let ran = world::run(vm, &ordered, conditions, &mut |step, outcome| {
        match rules::compare(&ordered.ops[..=step], &answers[order.places[step]], outcome) {
            Verdict::Same => {}
            Verdict::Exempt(rule) => verdicts.exempted.push(rule),
            Verdict::Different => reached = Some(step),
        }
        reached.is_none()
    });
    ran.map_err(|unfit| Finding::NotCompared(unfit.0))?;
    Ok(Some((verdicts, reached)))
}

fn told(sequence: &Sequence, answers: &[Outcome]) -> String {
    let lines = sequence.ops.iter().zip(answers).map(|(op, outcome)| format!("\n  {op} -> {outcome}"));
    format!("outcomes{}", lines.collect::<String>())
}

/// An order of a sequence's operations that keeps each thread's own.
struct Order {
    places: Vec<usize>,
    threads: Vec<u8>,
}

impl Order {
    /// The first order: the sequence's own.
    fn first(ops: &[Op]) -> Self {
        let mut order = Self { places: (0..ops.len()).collect(), threads: ops.iter().map(|op| op.thread).collect() };
        // Within a section, the lexicographically first order of threads.
        for section in order.sections() {
            order.places[section.clone()].sort_by_key(|&place| ops[place].thread);
            order.threads[section].sort_unstable();
        }
        order
    }

    fn sections(&self) -> Vec<std::ops::Range<usize>> {
        let (mut sections, mut start) = (Vec::new(), 0);
        for run in self.threads.chunk_by(|left, right| (*left == 0) == (*right == 0)) {
            if run[0] != 0 {
                sections.push(start..start + run.len());
            }
            start += run.len();
        }
        sections
    }

    /// Goes to the next order that differs at `step` or before; says whether there is one.
    fn advance(&mut self, step: usize) -> bool {
        let sections = self.sections();
        for section in sections.into_iter().rev() {
            let last = section.end.min(step + 1);
            for at in (section.start..last).rev() {
                let next = (at + 1..section.end).filter(|&other| self.threads[other] > self.threads[at]);
                if let Some(other) = next.min_by_key(|&other| self.threads[other]) {
                    self.put_first(at, other, section.end);
                    return true;
                }
            }
            // This section begins anew, and the one before it goes on.
            self.sort(section.start..section.end);
        }
        false
    }

    /// Puts the operation at `other` to `at`; what follows in the section comes in its first order.
    fn put_first(&mut self, at: usize, other: usize, end: usize) {
        self.places[at..=other].rotate_right(1);
        self.threads[at..=other].rotate_right(1);
        self.sort(at + 1..end);
    }

    fn sort(&mut self, range: std::ops::Range<usize>) {
        let mut pairs: Vec<_> =
            self.threads[range.clone()].iter().copied().zip(self.places[range.clone()].iter().copied()).collect();
        pairs.sort_unstable();
        for (slot, (thread, place)) in range.zip(pairs) {
            (self.threads[slot], self.places[slot]) = (thread, place);
        }
    }
}

/// Runs a sequence with its threads at once, each on a CPU of its own.
fn at_once<D: Design<Native>>(
    vm: &Vm<Native, D>,
    machine: &Machine,
    sequence: &Sequence,
    conditions: &Conditions,
) -> Result<Vec<Outcome>, Finding> {
    let (files, space) = world::prepare(vm, sequence, conditions).map_err(|unfit| Finding::NotCompared(unfit.0))?;
    let process = Process { vm, files: &files, guest: Guest::new(&space) };
    let (process, space) = (ManuallyDrop::new(process), ManuallyDrop::new(space));
    let mut outcomes = vec![Outcome::NotRun; sequence.ops.len()];
    let mut at = 0;
    for run in sequence.ops.chunk_by(|left, right| (left.thread == 0) == (right.thread == 0)) {
        if run[0].thread == 0 {
            process.run(run, at, &mut |place, outcome| {
                outcomes[place] = outcome.clone();
                true
            });
        } else {
            section(machine, &process, run, &mut outcomes[at..at + run.len()]);
        }
        at += run.len();
    }
    drop((ManuallyDrop::into_inner(process), ManuallyDrop::into_inner(space)));
    Ok(outcomes)
}

fn section<D: Design<Native>>(
    machine: &Machine,
    process: &Process<'_, '_, Native, D>,
    ops: &[Op],
    outcomes: &mut [Outcome],
) {
    let mut threads: Vec<u8> = ops.iter().map(|op| op.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let gate = Barrier::new(threads.len());
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for &thread in &threads {
            let (gate, results) = (&gate, &results);
            let own = ops.iter().enumerate().filter(move |(_, op)| op.thread == thread);
            scope.spawn(move || {
                let run = || {
                    let process = Process { guest: Guest::new(process.guest.space()), ..*process };
                    own.map(|(place, op)| (place, process.one(op))).collect::<Vec<_>>()
                };
                gate.wait();
                let done = machine.attach(run);
                results.lock().unwrap_or_else(|poison| poison.into_inner()).extend(done);
            });
        }
    });
    for (place, outcome) in results.into_inner().unwrap_or_else(|poison| poison.into_inner()) {
        outcomes[place] = outcome;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(threads: &[u8]) -> Vec<Op> {
        threads.iter().map(|&thread| Op { thread, ..Op::new(faultless_linux::oracle::Call::Look, &[]) }).collect()
    }

    fn count(threads: &[u8]) -> usize {
        let ops = ops(threads);
        let mut order = Order::first(&ops);
        let mut seen = std::collections::BTreeSet::new();
        loop {
            assert!(seen.insert(order.places.clone()), "an order twice");
            for thread in 1..=3 {
                let own: Vec<_> = order.places.iter().filter(|&&place| ops[place].thread == thread).collect();
                assert!(own.is_sorted(), "a thread's own order is kept");
            }
            if !order.advance(ops.len() - 1) {
                return seen.len();
            }
        }
    }

    #[test]
    fn all_orders_are_tried_once() {
        assert_eq!(count(&[0, 1, 1, 1, 1, 2, 2, 2, 2, 0]), 70);
        assert_eq!(count(&[1, 2, 3, 1, 2, 3]), 90);
        assert_eq!(count(&[0, 1, 2, 0, 1, 2]), 4);
        assert_eq!(count(&[0, 0]), 1);
    }

    #[test]
    fn a_mismatch_rules_out_all_orders_that_begin_alike() {
        let mut order = Order::first(&ops(&[1, 1, 2, 2]));
        assert!(order.advance(0));
        assert_eq!(order.threads, [2, 1, 1, 2]);
        assert!(!order.advance(0));
    }
}
