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
//!
//! # An unmapping in two steps
//! ```text
//! t1, in munmap                       t2
//! areas leave the list                .                        a page that was never touched: SIGSEGV
//! translations go                     .                        one that was: still takes the store
//! ```
//! No order in which t2 keeps its own explains that. So, for the kernel's outcomes and where all orders have failed, an
//! access of t2 may overtake those before it which found nothing there, if all of them hit what a call of another
//! thread unmaps that had not returned when they ended ([`Rule::UnmappedInTwoSteps`], counted). Of one page, a load may
//! overtake a store: a page that was only loaded takes no store without a fault, which finds the area gone.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use crate::kernel::{Answer, Call, Op, Outcome, PAGE, Sequence};
use faultless_vm::design::Design;
use faultless_vm::{Guest, Vm};

use super::batch::{Batch, TestPlatform};
use super::finding::{Finding, Verdicts};
use super::rules::{self, Rule, Verdict};
use super::world::{self, Conditions, Process};

/// Judges a sequence with threads, up to its end or that of the run ([`Batch::is_over`]).
pub(super) fn judge<P: TestPlatform, D: Design<P>>(
    vm: &Vm<P, D>,
    machine: &P::Machine,
    sequence: &Sequence,
    answer: &Answer,
    batch: &Batch,
) -> Result<Verdicts, Finding> {
    let verdicts = match explain(vm, sequence, answer, batch, Party::Kernel, Unmapping::OneStep) {
        Err(Finding::Unexplained { .. }) => explain(vm, sequence, answer, batch, Party::Kernel, Unmapping::TwoSteps),
        result => result,
    }?;
    if (batch.is_over)() {
        return Ok(verdicts);
    }
    let own = at_once(vm, machine, sequence, &batch.conditions)?;
    explain(vm, sequence, &own, batch, Party::Vm, Unmapping::OneStep)?;
    Ok(verdicts)
}

/// Whose outcomes are explained.
#[derive(Clone, Copy)]
enum Party {
    Kernel,
    Vm,
}

impl Party {
    const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Vm => "vm",
        }
    }
}

/// How an unmapping may be seen by other threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unmapping {
    OneStep,
    TwoSteps,
}

/// Finds an order of the operations that explains the outcomes.
fn explain<P: TestPlatform, D: Design<P>>(
    vm: &Vm<P, D>,
    sequence: &Sequence,
    answer: &Answer,
    batch: &Batch,
    side: Party,
    unmapping: Unmapping,
) -> Result<Verdicts, Finding> {
    let mut order = Order::first(&sequence.ops, answer, unmapping);
    loop {
        let Some((mut verdicts, reached)) = try_order(vm, sequence, answer, batch, &order)? else {
            return Err(Finding::NotCompared("an operation of a thread has no outcome".into()));
        };
        match reached {
            None => {
                if unmapping == Unmapping::TwoSteps {
                    verdicts.exempted.push(Rule::UnmappedInTwoSteps);
                }
                return Ok(verdicts);
            }
            Some(step) if order.advance(step) => {}
            Some(_) => return Err(Finding::Unexplained { side: side.name(), seen: told(sequence, answer) }),
        }
    }
}

/// Runs one order; returns the step at which an outcome did not match, if one did not.
fn try_order<P: TestPlatform, D: Design<P>>(
    vm: &Vm<P, D>,
    sequence: &Sequence,
    answer: &Answer,
    batch: &Batch,
    order: &Order<'_>,
) -> Result<Option<(Verdicts, Option<usize>)>, Finding> {
    let ops = order.places.iter().map(|&place| sequence.ops[place]).collect();
    let ordered = Sequence { ops, ..sequence.clone() };
    let (mut verdicts, mut reached) = (Verdicts::default(), None);
    let ran = world::run(vm, &ordered, &batch.conditions, None, &mut |step, outcome| {
        match rules::compare(&ordered.ops[..=step], &answer[order.places[step]], outcome) {
            Verdict::Same => {}
            Verdict::Exempt(rule) => verdicts.exempted.push(rule),
            Verdict::Different => reached = Some(step),
        }
        reached.is_none() && !(batch.is_over)()
    });
    ran.map_err(|unfit| Finding::NotCompared(unfit.0))?;
    Ok(Some((verdicts, reached)))
}

fn told(sequence: &Sequence, answers: &[Outcome]) -> String {
    let lines = sequence.ops.iter().zip(answers).map(|(op, outcome)| format!("\n  {op} -> {outcome}"));
    format!("outcomes{}", lines.collect::<String>())
}

/// SEGV_MAPERR.
const NOTHING_MAPPED: i32 = 1;

/// An order of a sequence's operations that keeps each thread's own, but for what an unmapping in two steps allows.
struct Order<'a> {
    ops: &'a [Op],
    answer: &'a Answer,
    unmapping: Unmapping,
    places: Vec<usize>,
}

impl<'a> Order<'a> {
    /// The first order: that in which the operations ended.
    fn first(ops: &'a [Op], answer: &'a Answer, unmapping: Unmapping) -> Self {
        let mut order = Self { ops, answer, unmapping, places: vec![0; ops.len()] };
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
        let waiting: Vec<usize> = (start..end).filter(|place| !self.places[start..at].contains(place)).collect();
        for &place in &waiting {
            let mut before = waiting.iter().copied().filter(|&other| other < place && thread(other) == thread(place));
            if before.all(|other| self.overtakes(place, other, &waiting)) {
                next.push(place);
            }
        }
        next.sort_unstable_by_key(|&place| (self.ended(place), thread(place)));
        next
    }

    fn ended(&self, place: usize) -> u64 {
        self.answer.ended.get(place).copied().unwrap_or(0)
    }

    /// Says whether an access may come before one that its thread made earlier: both while another thread's call was
    /// unmapping them in two steps.
    fn overtakes(&self, place: usize, earlier: usize, waiting: &[usize]) -> bool {
        let page = |place: usize| self.ops[place].args[0] / PAGE;
        let is_store = |place: usize| self.ops[place].call == Call::Store;
        self.unmapping == Unmapping::TwoSteps
            && self.is_access(place)
            && self.is_access(earlier)
            && (page(place) != page(earlier) || is_store(earlier) && !is_store(place))
            && self.found_nothing(earlier)
            && matches!(self.answer[place], Outcome::Value(_))
            && waiting.iter().any(|&call| self.unmaps_meanwhile(call, place) && self.unmaps_meanwhile(call, earlier))
    }

    fn found_nothing(&self, place: usize) -> bool {
        let Outcome::Signal(seen) = &self.answer[place] else { return false };
        (seen.signo, seen.code) == (libc::SIGSEGV, NOTHING_MAPPED)
    }

    fn is_access(&self, place: usize) -> bool {
        matches!(self.ops[place].call, Call::Load | Call::Store | Call::Fetch)
    }

    /// Says whether a call of another thread, which had not returned when an access ended, unmapped what that accessed.
    fn unmaps_meanwhile(&self, call: usize, access: usize) -> bool {
        let has_succeeded = matches!(self.answer[call], Outcome::Value(_));
        let unmapped = rules::unmapped_in_two_steps(&self.ops[call]).filter(|_| has_succeeded);
        self.ops[call].thread != self.ops[access].thread
            && self.ended(call) > self.ended(access)
            && unmapped.is_some_and(|unmapped| unmapped.contains(&self.ops[access].args[0]))
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
fn at_once<P: TestPlatform, D: Design<P>>(
    vm: &Vm<P, D>,
    machine: &P::Machine,
    sequence: &Sequence,
    conditions: &Conditions,
) -> Result<Answer, Finding> {
    let (files, space) = world::prepare(vm, sequence, conditions).map_err(|unfit| Finding::NotCompared(unfit.0))?;
    let process = Process { vm, files: &files, guest: Guest::new(&space), shortages: None };
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

fn section<P: TestPlatform, D: Design<P>>(
    machine: &P::Machine,
    process: &Process<'_, '_, P, D>,
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
                let done = P::attach(machine, run);
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
    use crate::batch::Checking;
    use crate::kernel::{Bounds, Seen, WINDOW};
    use faultless_phys::{Memory, Options};
    use faultless_platform::native::{HostRegion, Machine, Native};
    use faultless_sync::{Generation, Rwsem};
    use faultless_vm::design::MmapSem;

    fn ops(threads: &[u8]) -> Vec<Op> {
        threads.iter().map(|&thread| Op { thread, ..Op::new(crate::kernel::Call::Look, &[]) }).collect()
    }

    fn answer(ended: &[u64]) -> Answer {
        Answer { outcomes: vec![], ended: ended.to_vec() }
    }

    fn count(threads: &[u8]) -> usize {
        let (ops, answer) = (ops(threads), answer(&[]));
        let mut order = Order::first(&ops, &answer, Unmapping::OneStep);
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
        let first = |ended: &[u64]| Order::first(&ops, &answer(ended), Unmapping::OneStep).places;
        assert_eq!(first(&[0, 10, 40, 20, 30, 0]), [0, 1, 3, 4, 2, 5]);
        assert_eq!(first(&[0, 50, 40, 20, 30, 0]), [0, 3, 4, 1, 2, 5]);
    }

    #[test]
    fn a_mismatch_rules_out_all_orders_that_begin_alike() {
        let (ops, answer) = (ops(&[1, 1, 2, 2]), answer(&[]));
        let mut order = Order::first(&ops, &answer, Unmapping::OneStep);
        assert!(order.advance(0));
        assert_eq!(order.places, [2, 0, 1, 3]);
        assert!(!order.advance(0));
    }

    /// Judges outcomes that a kernel could have given; the second thread's operations end at the given times.
    fn judged(line: &str, seen: &[Outcome], ended: [u64; 3]) -> Result<Vec<Rule>, Finding> {
        let sequence: Sequence = line.parse().expect("a sequence");
        let nr_before = sequence.ops.iter().filter(|op| op.thread == 0).count() - 1;
        let mut answer = Answer { outcomes: vec![Outcome::Value(0); nr_before], ended: vec![0; nr_before] };
        answer.outcomes[0] = Outcome::Value(WINDOW);
        answer.outcomes.extend_from_slice(seen);
        answer.outcomes.push(Outcome::List(vec![]));
        answer.ended.extend(ended);
        answer.ended.push(0);
        let region = HostRegion::reserve(8 << 20).expect("room");
        let machine = Machine::new(4);
        machine.attach(|| {
            // SAFETY: the region is fresh, ours alone, and outlives the instance.
            #[allow(unsafe_code, reason = "frames for a test")]
            let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 4, Options::default()) };
            let vm = Vm::<Native, MmapSem<Rwsem<Native>>>::with_semaphore(memory.expect("room"), Generation::RWSEM_V8);
            let conditions = Conditions {
                mmap_min_addr: 65536,
                max_map_count: 65530,
                usual: Bounds::default(),
                data_bytes: 0,
                commit_bytes: u64::MAX,
                has_protection_keys: false,
            };
            let (sequences, answers, twins) = (vec![], vec![], vec![]);
            let checking = Checking::EachBatch;
            let batch = Batch { sequences, answers, twins, conditions, checking, is_over: || false };
            judge(&vm.expect("room"), &machine, &sequence, &answer, &batch).map(|verdicts| verdicts.exempted)
        })
    }

    const UNMAPPING: &str = "root; mmap w+0x0 0x4000 rw private|anon|fixed - 0x0; store w+0x2000 0x5; \
                             t1 munmap w+0x0 0x4000; t2 load w+0x1000; t2 store w+0x2000 0x7; look";

    fn nothing_at(address: u64) -> Outcome {
        Outcome::Signal(Seen { signo: libc::SIGSEGV, code: NOTHING_MAPPED, address })
    }

    #[test]
    fn a_munmap_in_two_steps_is_explained_and_counted() {
        let done = Outcome::Value(0);
        let torn = [done.clone(), nothing_at(WINDOW + 0x1000), done.clone()];
        assert_eq!(judged(UNMAPPING, &torn, [30, 10, 20]), Ok(vec![Rule::UnmappedInTwoSteps]));
        let whole = [done.clone(), done.clone(), nothing_at(WINDOW + 0x2000)];
        assert_eq!(judged(UNMAPPING, &whole, [30, 10, 40]), Ok(vec![]), "any order explains this one");
    }

    #[test]
    fn a_page_that_was_only_loaded_refuses_a_store_first() {
        let line = "root; mmap w+0x0 0x4000 rw private|anon|fixed - 0x0; load w+0x2000; \
                    t1 munmap w+0x0 0x4000; t2 store w+0x2000 0x7; t2 load w+0x2000; look";
        let done = Outcome::Value(0);
        let torn = [done.clone(), nothing_at(WINDOW + 0x2000), done];
        assert_eq!(judged(line, &torn, [30, 10, 20]), Ok(vec![Rule::UnmappedInTwoSteps]));
    }

    #[test]
    fn what_two_steps_of_a_munmap_do_not_show_stays_a_difference() {
        let is_unexplained = |line: &str, seen: [Outcome; 3], ended| {
            matches!(judged(line, &seen, ended), Err(Finding::Unexplained { side: "kernel", .. }))
        };
        let done = Outcome::Value(0);
        let torn = [done.clone(), nothing_at(WINDOW + 0x1000), done.clone()];
        assert!(is_unexplained(UNMAPPING, torn.clone(), [15, 10, 20]), "the call had returned before the store");
        let same_page = UNMAPPING.replace("t2 load w+0x1000", "t2 load w+0x2000");
        let seen = [done.clone(), nothing_at(WINDOW + 0x2000), done.clone()];
        assert!(is_unexplained(&same_page, seen, [30, 10, 20]), "one page is gone and there");
        let beside = UNMAPPING.replace("munmap w+0x0 0x4000", "munmap w+0x0 0x2000");
        let seen = [done.clone(), done.clone(), nothing_at(WINDOW + 0x2000)];
        assert!(is_unexplained(&beside, seen, [30, 10, 20]), "the store is outside what is unmapped");
        let protect = UNMAPPING.replace("munmap w+0x0 0x4000", "mprotect w+0x0 0x4000 none");
        assert!(is_unexplained(&protect, torn, [30, 10, 20]), "no unmapping");
    }
}
