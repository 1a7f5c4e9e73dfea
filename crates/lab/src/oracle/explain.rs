//! Threads: what several of them see at once must be what some order of their operations gives.
//!
//! # Guarantee
//! A sequence with threads is accepted only if an order of their operations, run one after the other on the VM, gives
//! every outcome that the kernel gave, up to the last operation of the sequence; and if what the VM itself gives when
//! the threads really run at once is explained by an order too.
//!
//! # Search
//! The first order is that in which the operations ended, which is nearly always the right one. After it all others are
//! tried; a mismatch at a step rules out all orders that begin alike.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use faultless_linux::oracle::{Answer, Op, Outcome, Sequence};
use faultless_platform::native::{Machine, Native};
use faultless_vm::design::Design;
use faultless_vm::{Guest, Vm};

use super::compare::{Finding, Verdicts};
use super::rules::{self, Verdict};
use super::world::{self, Conditions, Process};

/// Judges a sequence with threads.
pub(super) fn judge<D: Design<Native>>(
    vm: &Vm<Native, D>,
    machine: &Machine,
    sequence: &Sequence,
    answer: &Answer,
    conditions: &Conditions,
) -> Result<Verdicts, Finding> {
    let verdicts = explain(vm, sequence, answer, conditions, "kernel")?;
    let own = at_once(vm, machine, sequence, conditions)?;
    explain(vm, sequence, &own, conditions, "vm")?;
    Ok(verdicts)
}

/// Finds an order of the operations that explains the outcomes.
fn explain<D: Design<Native>>(
    vm: &Vm<Native, D>,
    sequence: &Sequence,
    answer: &Answer,
    conditions: &Conditions,
    side: &'static str,
) -> Result<Verdicts, Finding> {
    let mut order = Order::first(&sequence.ops, &answer.ended);
    loop {
        let Some((verdicts, reached)) = try_order(vm, sequence, answer, conditions, &order)? else {
            return Err(Finding::NotCompared("an operation of a thread has no outcome".into()));
        };
        match reached {
            None => return Ok(verdicts),
            Some(step) if order.advance(step) => {}
            Some(_) => return Err(Finding::Unexplained { side, seen: told(sequence, answer) }),
        }
    }
}

/// Runs one order; returns the step at which an outcome did not match, if one did not.
fn try_order<D: Design<Native>>(
    vm: &Vm<Native, D>,
    sequence: &Sequence,
    answer: &Answer,
    conditions: &Conditions,
    order: &Order<'_>,
) -> Result<Option<(Verdicts, Option<usize>)>, Finding> {
    let ops = order.places.iter().map(|&place| sequence.ops[place]).collect();
    let ordered = Sequence { ops, ..sequence.clone() };
    let (mut verdicts, mut reached) = (Verdicts::default(), None);
    let ran = world::run(vm, &ordered, conditions, &mut |step, outcome| {
        match rules::compare(&ordered.ops[..=step], &answer[order.places[step]], outcome) {
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
struct Order<'a> {
    ops: &'a [Op],
    ended: &'a [u64],
    places: Vec<usize>,
}

impl<'a> Order<'a> {
    /// The first order: that in which the operations ended.
    fn first(ops: &'a [Op], ended: &'a [u64]) -> Self {
        let mut order = Self { ops, ended, places: vec![0; ops.len()] };
        order.complete(0);
        order
    }

    /// Returns the places that may come next, behind the first `at` of this order, the likeliest first.
    fn candidates(&self, at: usize) -> Vec<usize> {
        let thread = |place: usize| self.ops[place].thread;
        if thread(at) == 0 {
            return vec![at];
        }
        let start = (0..at).rev().find(|&place| thread(place) == 0).map_or(0, |place| place + 1);
        let end = (at..self.ops.len()).find(|&place| thread(place) == 0).unwrap_or(self.ops.len());
        let mut next: Vec<usize> = Vec::with_capacity(3);
        for place in start..end {
            let is_first = next.iter().all(|&other| thread(other) != thread(place));
            if is_first && !self.places[start..at].contains(&place) {
                next.push(place);
            }
        }
        next.sort_unstable_by_key(|&place| (self.ended.get(place).copied(), thread(place)));
        next
    }

    /// Lets what is likeliest follow the first `at`.
    fn complete(&mut self, at: usize) {
        for place in at..self.ops.len() {
            self.places[place] = self.candidates(place)[0];
        }
    }

    /// Goes to the next order that differs at `step` or before; says whether there is one.
    fn advance(&mut self, step: usize) -> bool {
        for at in (0..=step).rev() {
            let candidates = self.candidates(at);
            let rank = candidates.iter().position(|&place| place == self.places[at]);
            if let Some(&next) = rank.and_then(|rank| candidates.get(rank + 1)) {
                self.places[at] = next;
                self.complete(at + 1);
                return true;
            }
        }
        false
    }
}

/// Runs a sequence with its threads at once, each on a CPU of its own.
fn at_once<D: Design<Native>>(
    vm: &Vm<Native, D>,
    machine: &Machine,
    sequence: &Sequence,
    conditions: &Conditions,
) -> Result<Answer, Finding> {
    let (files, space) = world::prepare(vm, sequence, conditions).map_err(|unfit| Finding::NotCompared(unfit.0))?;
    let process = Process { vm, files: &files, guest: Guest::new(&space) };
    let (process, space) = (ManuallyDrop::new(process), ManuallyDrop::new(space));
    let nr_ops = sequence.ops.len();
    let mut answer = Answer { outcomes: vec![Outcome::NotRun; nr_ops], ended: vec![0; nr_ops] };
    let mut at = 0;
    for run in sequence.ops.chunk_by(|left, right| (left.thread == 0) == (right.thread == 0)) {
        if run[0].thread == 0 {
            process.run(run, at, &mut |place, outcome| {
                answer.outcomes[place] = outcome.clone();
                true
            });
        } else {
            section(machine, &process, run, at, &mut answer);
        }
        at += run.len();
    }
    drop((ManuallyDrop::into_inner(process), ManuallyDrop::into_inner(space)));
    Ok(answer)
}

fn section<D: Design<Native>>(
    machine: &Machine,
    process: &Process<'_, '_, Native, D>,
    ops: &[Op],
    first: usize,
    answer: &mut Answer,
) {
    let mut threads: Vec<u8> = ops.iter().map(|op| op.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let gate = Barrier::new(threads.len());
    let clock = AtomicU64::new(1);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for &thread in &threads {
            let (gate, clock, results) = (&gate, &clock, &results);
            let own = ops.iter().enumerate().filter(move |(_, op)| op.thread == thread);
            scope.spawn(move || {
                let run = || {
                    let process = Process { guest: Guest::new(process.guest.space()), ..*process };
                    // Relaxed: it only says which ended first, as a hint.
                    let run = |(place, op)| (place, process.one(op), clock.fetch_add(1, Ordering::Relaxed));
                    own.map(run).collect::<Vec<_>>()
                };
                gate.wait();
                let done = machine.attach(run);
                results.lock().unwrap_or_else(|poison| poison.into_inner()).extend(done);
            });
        }
    });
    for (place, outcome, ended) in results.into_inner().unwrap_or_else(|poison| poison.into_inner()) {
        (answer.outcomes[first + place], answer.ended[first + place]) = (outcome, ended);
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
        let mut order = Order::first(&ops, &[]);
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
    fn the_order_in_which_they_ended_comes_first() {
        let ops = ops(&[0, 1, 1, 2, 2, 0]);
        assert_eq!(Order::first(&ops, &[0, 10, 40, 20, 30, 0]).places, [0, 1, 3, 4, 2, 5]);
        assert_eq!(Order::first(&ops, &[0, 50, 40, 20, 30, 0]).places, [0, 3, 4, 1, 2, 5]);
    }

    #[test]
    fn a_mismatch_rules_out_all_orders_that_begin_alike() {
        let ops = ops(&[1, 1, 2, 2]);
        let mut order = Order::first(&ops, &[]);
        assert!(order.advance(0));
        assert_eq!(order.places, [2, 0, 1, 3]);
        assert!(!order.advance(0));
    }
}
