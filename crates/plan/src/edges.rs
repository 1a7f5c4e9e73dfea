//! Which step must wait for which: the conflicts of one address space, and few waits that keep them all.
//!
//! # Guarantee
//! Every conflicting pair of steps (recording.md, item 5: the same page and one of them a map call, two faults on one
//! page, fork, exec or exit against anything in the space) is kept in order by waits, directly or through others.
//! A wait always names a step that comes earlier in the plan's one order, so waits never form a circle.

use std::collections::BTreeMap;
use std::ops::Range;

use faultless_trace::ThreadIndex;
use rustc_hash::FxHashMap;

use super::ids::StepIndex;

/// A step of another thread that must be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wait {
    /// Whose step.
    pub thread: ThreadIndex,
    /// Which of its steps.
    pub step: StepIndex,
}

/// What each thread knows to be over, because it waited for it before.
#[derive(Debug, Default)]
pub struct Knowledge {
    known: Vec<FxHashMap<ThreadIndex, StepIndex>>,
}

impl Knowledge {
    /// Returns the knowledge of threads that know nothing yet.
    pub fn new(nr_threads: usize) -> Self {
        Self { known: vec![FxHashMap::default(); nr_threads] }
    }

    /// Adds to `waits` what `thread` still has to wait for, and notes that it knows then.
    pub fn need(&mut self, thread: ThreadIndex, wait: Wait, waits: &mut Vec<Wait>) {
        if wait.thread == thread {
            return;
        }
        let known = &mut self.known[thread as usize];
        match known.get(&wait.thread) {
            Some(&step) if step >= wait.step => {}
            _ => {
                known.insert(wait.thread, wait.step);
                waits.push(wait);
            }
        }
    }

    /// Lets a new thread know what its maker knows, and that the making is over.
    pub fn inherit(&mut self, child: ThreadIndex, maker: Wait) {
        let mut known = self.known[maker.thread as usize].clone();
        known.insert(maker.thread, maker.step);
        self.known[child as usize] = known;
    }
}

/// Keeps for each thread its latest wait only: it implies the earlier ones.
pub fn keep_latest(waits: &mut Vec<Wait>) {
    waits.sort_unstable();
    waits.dedup_by(|later, kept| {
        let is_same = later.thread == kept.thread;
        if is_same {
            kept.step = kept.step.max(later.step);
        }
        is_same
    });
}

/// The last map call over each address.
#[derive(Clone, Debug, Default)]
pub struct LastCalls {
    by_start: BTreeMap<u64, (u64, Wait)>,
}

impl LastCalls {
    /// Returns the last call over an address.
    pub fn at(&self, address: u64) -> Option<Wait> {
        let (_, &(end, wait)) = self.by_start.range(..=address).next_back()?;
        (address < end).then_some(wait)
    }

    /// Visits the last calls over a range.
    pub fn visit(&self, range: &Range<u64>, mut visit: impl FnMut(Wait)) {
        self.at(range.start).into_iter().for_each(&mut visit);
        let rest = self.by_start.range(range.start.saturating_add(1)..range.end.max(range.start.saturating_add(1)));
        rest.for_each(|(_, &(_, wait))| visit(wait));
    }

    /// Notes a call over a range.
    pub fn note(&mut self, range: Range<u64>, wait: Wait) {
        if range.is_empty() {
            return;
        }
        self.cut(range.start);
        self.cut(range.end);
        let covered: Vec<u64> = self.by_start.range(range.clone()).map(|(&start, _)| start).collect();
        for start in covered {
            self.by_start.remove(&start);
        }
        self.by_start.insert(range.start, (range.end, wait));
    }

    fn cut(&mut self, at: u64) {
        let Some((_, (end, wait))) = self.by_start.range_mut(..at).next_back() else { return };
        if *end > at {
            let tail = (*end, *wait);
            *end = at;
            self.by_start.insert(at, tail);
        }
    }
}

/// The order kept inside one space that several threads use.
#[derive(Clone, Debug, Default)]
pub struct SpaceOrder {
    /// The last map call over each address.
    pub calls: LastCalls,
    /// The last call that told or moved the break: each depends on the one before.
    pub last_break: Option<Wait>,
    /// The last step that conflicts with everything.
    pub barrier: Option<Wait>,
    latest: FxHashMap<ThreadIndex, StepIndex>,
}

impl SpaceOrder {
    /// Notes that a thread has made a step in the space.
    pub fn note(&mut self, step: Wait) {
        self.latest.insert(step.thread, step.step);
    }

    /// Returns every thread's last step in the space.
    pub fn everything(&self) -> impl Iterator<Item = Wait> + '_ {
        self.latest.iter().map(|(&thread, &step)| Wait { thread, step })
    }

    /// Lets a step conflict with all that comes.
    pub fn set_barrier(&mut self, step: Wait) {
        self.barrier = Some(step);
        self.latest.clear();
        self.note(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(thread: ThreadIndex, step: StepIndex) -> Wait {
        Wait { thread, step }
    }

    #[test]
    fn the_last_call_over_an_address_is_found_after_overlaps() {
        let mut calls = LastCalls::default();
        calls.note(0..100, wait(0, 1));
        calls.note(40..60, wait(1, 2));
        calls.note(90..120, wait(2, 3));
        assert_eq!([10, 50, 60, 95, 119].map(|at| calls.at(at).map(|wait| wait.thread)), [0, 1, 0, 2, 2].map(Some));
        assert_eq!(calls.at(120), None);
        let mut seen = Vec::new();
        calls.visit(&(30..95), |wait| seen.push(wait.thread));
        assert_eq!(seen, [0, 1, 0, 2]);
        calls.visit(&(200..200), |_| panic!("nothing is there"));
    }

    #[test]
    fn a_wait_is_needed_once_and_never_for_oneself() {
        let (mut knowledge, mut waits) = (Knowledge::new(3), Vec::new());
        for wait in [wait(1, 5), wait(1, 4), wait(0, 9), wait(1, 6)] {
            knowledge.need(0, wait, &mut waits);
        }
        assert_eq!(waits, [wait(1, 5), wait(1, 6)]);
        knowledge.inherit(2, wait(0, 7));
        waits.clear();
        for wait in [wait(1, 6), wait(0, 7), wait(0, 8)] {
            knowledge.need(2, wait, &mut waits);
        }
        assert_eq!(waits, [wait(0, 8)]);
    }

    #[test]
    fn of_several_waits_for_a_thread_the_latest_stays() {
        let mut waits = vec![wait(1, 5), wait(0, 3), wait(1, 9), wait(0, 1)];
        keep_latest(&mut waits);
        assert_eq!(waits, [wait(0, 3), wait(1, 9)]);
    }
}
