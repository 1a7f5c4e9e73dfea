//! A run that goes on until its rates have settled.
//!
//! # Guarantee
//! * I1 the run ends at the first of some instants at which the rates of two halves agree within [`AGREEMENT`]; the
//!   first third of the time until then, its warm-up, belongs to neither half. Where workers go by rounds (they wait
//!   for each other, or go through a file), each third has a whole round at least: the first one may be unlike all that
//!   follow
//! * I2 it ends at the limit at the latest; if the halves don't agree there, or no round is over, it says so
//! * I3 all workers work until the last of them has come to the end: the halves are halves of the full load
//!
//! # How
//! ```text
//! start |  warm-up  | first half | second half | agree? no | ... half as long again
//! ```
//! The time is cut into slices. A worker adds what it did in a slice when it comes to the next one; a step that lies in
//! several is shared out. A slice counts once all workers are past it. What a worker puts aside is no time of its own:
//! its clock stands still meanwhile, so that no slice lies in what is put aside.
//!
//! The notes are the host's memory, not the platform's: they take no virtual time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// By how much of the larger rate the halves may differ.
pub const AGREEMENT: f64 = 0.03;
/// What is noted together, unless the limit is less than three of them.
const SLICE_NS: u64 = 250_000;
/// After so many slices the halves are compared for the first time: 6 ms.
const FIRST_LOOK: usize = 24;

/// The run's time, and what was done in it.
#[derive(Debug)]
pub(super) struct Course {
    start_ns: u64,
    slice_ns: u64,
    most_slices: usize,
    nr_workers: usize,
    /// What all workers do in a round, at most.
    ops_per_round: f64,
    is_over: AtomicBool,
    notes: Mutex<Notes>,
}

#[derive(Debug)]
struct Notes {
    slices: Vec<Slice>,
    nr_complete: usize,
    next_look: usize,
    settled: Option<Settled>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    ops: f64,
    nr_past: usize,
}

/// What came of a run that was to settle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// How long it warmed up.
    pub warm_up_ns: u64,
    /// How long the two halves are together.
    pub window_ns: u64,
    /// Their rates, in operations a second.
    pub halves: [f64; 2],
    /// The rate of both.
    pub ops_per_s: f64,
    /// Whether the halves agree.
    pub has_converged: bool,
}

impl Settled {
    /// Returns what there is of a run that somebody ended.
    pub(super) fn cut_short(elapsed_ns: u64, ops_per_s: f64) -> Self {
        Self { warm_up_ns: 0, window_ns: elapsed_ns, halves: [0.0; 2], ops_per_s, has_converged: false }
    }
}

/// Where one worker is.
#[derive(Debug, Default)]
pub(super) struct Place {
    slice: usize,
    ops: f64,
    /// What it has put aside until now.
    aside_ns: u64,
}

/// What a worker did from one look at the clock to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) ops: u64,
    pub(super) aside_ns: u64,
}

impl Course {
    /// Returns the course of a run that starts then, and lasts at most so long; each worker does `ops_per_round` at
    /// most in a round, or 0 if it has none.
    pub(super) fn new(start_ns: u64, at_most_ns: u64, nr_workers: usize, ops_per_round: u64) -> Self {
        let slice_ns = SLICE_NS.min(at_most_ns / 3).max(1);
        let most_slices = (at_most_ns / slice_ns) as usize / 3 * 3;
        let notes = Notes {
            slices: vec![Slice::default(); most_slices],
            nr_complete: 0,
            next_look: FIRST_LOOK.min(most_slices),
            settled: None,
        };
        let ops_per_round = nr_workers as f64 * ops_per_round as f64;
        let (is_over, notes) = (AtomicBool::new(false), Mutex::new(notes));
        Self { start_ns, slice_ns, most_slices, nr_workers, ops_per_round, is_over, notes }
    }

    /// Returns whether the run is over.
    pub(super) fn is_over(&self) -> bool {
        // Relaxed: a worker that sees it late works a step more, which counts for nothing.
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns what came of the run; nothing if it was cut short.
    pub(super) fn settled(&self) -> Option<Settled> {
        self.notes().settled
    }

    /// Notes what the worker at `place` did.
    pub(super) fn note(&self, place: &mut Place, stretch: Stretch) {
        let mut from_ns = stretch.from_ns.saturating_sub(place.aside_ns);
        place.aside_ns += stretch.aside_ns;
        let to_ns = from_ns.max(stretch.to_ns.saturating_sub(place.aside_ns));
        let took_ns = (to_ns - from_ns).max(1) as f64;
        while place.slice < self.most_slices {
            let ends_ns = self.start_ns + (place.slice as u64 + 1) * self.slice_ns;
            place.ops += stretch.ops as f64 * to_ns.min(ends_ns).saturating_sub(from_ns) as f64 / took_ns;
            if to_ns < ends_ns {
                return;
            }
            from_ns = from_ns.max(ends_ns);
            self.pass(std::mem::take(&mut place.ops), place.slice);
            place.slice += 1;
        }
    }

    /// Notes that a worker is past a slice, and did so much in it.
    fn pass(&self, ops: f64, slice: usize) {
        let mut notes = self.notes();
        let slice = &mut notes.slices[slice];
        slice.ops += ops;
        slice.nr_past += 1;
        if slice.nr_past == self.nr_workers {
            notes.nr_complete += 1;
            self.look(&mut notes);
        }
    }

    /// Ends the run if the halves agree, or the limit has come.
    fn look(&self, notes: &mut Notes) {
        let nr_slices = notes.nr_complete;
        if nr_slices != notes.next_look || notes.settled.is_some() {
            return;
        }
        notes.next_look = (nr_slices * 3 / 2).next_multiple_of(3).min(self.most_slices);
        let settled = self.compare(&notes.slices[..nr_slices]);
        if settled.has_converged || nr_slices == self.most_slices {
            notes.settled = Some(settled);
            // Relaxed: see `is_over`.
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    fn compare(&self, slices: &[Slice]) -> Settled {
        let third = slices.len() / 3;
        let thirds = [&slices[..third], &slices[third..2 * third], &slices[2 * third..]];
        let have_rounds = thirds.iter().all(|third| ops(third) >= self.ops_per_round);
        let halves = [thirds[1], thirds[2]].map(|half| self.rate(half));
        let (least, most) = (halves[0].min(halves[1]), halves[0].max(halves[1]));
        Settled {
            warm_up_ns: third as u64 * self.slice_ns,
            window_ns: 2 * third as u64 * self.slice_ns,
            halves,
            ops_per_s: self.rate(&slices[third..]),
            has_converged: have_rounds && most > 0.0 && most - least <= AGREEMENT * most,
        }
    }

    /// Returns the rate of some slices.
    fn rate(&self, slices: &[Slice]) -> f64 {
        ops(slices) * 1e9 / (slices.len().max(1) as f64 * self.slice_ns as f64)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what was done in some slices.
fn ops(slices: &[Slice]) -> f64 {
    slices.iter().map(|slice| slice.ops).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Lets a worker make steps of so many ns, one operation each, whose length `step_ns` tells from the time.
    fn work(course: &Course, place: &mut Place, step_ns: impl Fn(u64) -> u64) {
        let mut now_ns = 0;
        while !course.is_over() && now_ns < 1000 * MS {
            let to_ns = now_ns + step_ns(now_ns);
            course.note(place, Stretch { from_ns: now_ns, to_ns, ops: 1, aside_ns: 0 });
            now_ns = to_ns;
        }
    }

    fn settled(at_most_ns: u64, step_ns: impl Fn(u64) -> u64) -> Settled {
        let course = Course::new(0, at_most_ns, 1, 0);
        work(&course, &mut Place::default(), step_ns);
        course.settled().expect("it came to its end")
    }

    #[test]
    fn an_even_rate_is_settled_at_the_first_look() {
        let run = settled(60 * MS, |_| 1000);
        assert!(run.has_converged && (run.ops_per_s - 1e6).abs() < 1.0, "{run:?}");
        assert_eq!((run.warm_up_ns, run.window_ns), (2 * MS, 4 * MS));
    }

    #[test]
    fn a_slow_start_makes_the_run_longer_and_is_not_counted() {
        let run = settled(60 * MS, |now_ns| if now_ns < 3 * MS { 5000 } else { 1000 });
        assert!(run.has_converged && run.warm_up_ns >= 3 * MS, "{run:?}");
        assert!((run.ops_per_s - 1e6).abs() < 1.0, "{run:?}");
    }

    #[test]
    fn a_rate_that_goes_on_falling_has_not_converged_at_the_limit() {
        let run = settled(9 * MS, |now_ns| 1000 + now_ns / 1000);
        assert!(!run.has_converged && run.halves[0] > run.halves[1] * 1.1, "{run:?}");
        assert_eq!(run.warm_up_ns + run.window_ns, 9 * MS);
    }

    #[test]
    fn nothing_done_is_no_rate_to_agree_on() {
        let course = Course::new(0, 6 * MS, 1, 0);
        course.note(&mut Place::default(), Stretch { from_ns: 0, to_ns: 7 * MS, ops: 0, aside_ns: 0 });
        assert_eq!(course.settled().map(|run| (run.has_converged, run.ops_per_s)), Some((false, 0.0)));
    }

    #[test]
    fn the_last_worker_decides_when_the_run_is_over() {
        let course = Course::new(0, 6 * MS, 2, 0);
        let all = |place: &mut Place| {
            course.note(place, Stretch { from_ns: 0, to_ns: 12 * MS, ops: 1200, aside_ns: 6 * MS });
        };
        all(&mut Place::default());
        assert!(!course.is_over() && course.settled().is_none());
        all(&mut Place::default());
        let run = course.settled().expect("all are past the limit");
        // Two workers, 100 operations each in a ms, of which half is put aside.
        assert!(course.is_over() && (run.ops_per_s - 400_000.0).abs() < 1.0, "{run:?}");
    }

    #[test]
    fn what_is_put_aside_for_longer_than_a_look_takes_no_time() {
        // Rounds of 500 operations in half a ms; before each 7 ms are put aside, in a step that makes no other.
        let course = Course::new(0, 60 * MS, 1, 0);
        let (mut place, mut now_ns) = (Place::default(), 0);
        while !course.is_over() {
            for step in 0..500 {
                let aside_ns = if step == 0 { 7 * MS } else { 0 };
                let to_ns = now_ns + 1000 + aside_ns;
                course.note(&mut place, Stretch { from_ns: now_ns, to_ns, ops: 1, aside_ns });
                now_ns = to_ns;
            }
        }
        let run = course.settled().expect("it came to its end");
        assert!(run.has_converged && (run.ops_per_s - 1e6).abs() < 1.0, "{run:?}");
    }

    #[test]
    fn a_run_that_has_not_come_round_has_not_converged() {
        // A round takes 5 ms, the first one twice as long.
        let rounds = |at_most_ns| {
            let course = Course::new(0, at_most_ns, 1, 500);
            work(&course, &mut Place::default(), |now_ns| if now_ns < 10 * MS { 20_000 } else { 10_000 });
            course.settled().expect("it came to its end")
        };
        let run = rounds(60 * MS);
        assert!(run.has_converged && run.warm_up_ns >= 10 * MS, "{run:?}");
        assert!((run.ops_per_s - 1e5).abs() < 1.0, "{run:?}");
        let run = rounds(9 * MS);
        assert!(!run.has_converged && run.halves == [5e4; 2], "even, but all of the first round: {run:?}");
    }

    #[test]
    fn the_shortest_limit_still_has_three_parts() {
        let run = settled(30_000, |_| 100);
        assert_eq!((run.warm_up_ns, run.window_ns), (10_000, 20_000));
    }
}
