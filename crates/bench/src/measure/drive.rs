//! The loop: a worker makes steps until the time is over, which is the same instant for all.
//!
//! # Guarantee
//! The clock is read twice for each timed step, of which there is one in [`Workload::steps_per_timing`]; nothing else
//! happens between steps, except that a worker which others wait for gives its CPU away after each slice.
//!
//! [`Workload::steps_per_timing`]: faultless_workloads::Workload::steps_per_timing

use faultless_platform::{Processor, Tracepoint};
use faultless_workloads::{Refused, Step, Worker};

use super::course::{Course, Place, Stretch};
use faultless_results::stats::Histogram;

/// How long a worker keeps its CPU while others wait for one: what Linux's scheduler gives by default.
const SLICE_NS: u64 = 3_000_000;

/// When to begin, when to end, and how often to look at the clock.
pub(super) struct Window<'a> {
    pub(super) start_ns: u64,
    pub(super) end: End<'a>,
    pub(super) steps_per_timing: u32,
    /// Says whether to end early.
    pub(super) has_stopped: &'a dyn Fn() -> bool,
}

/// When a window ends.
#[derive(Clone, Copy)]
pub(super) enum End<'a> {
    /// Then.
    At(u64),
    /// When the rates of all workers have settled.
    Settled(&'a Course),
}

impl End<'_> {
    /// Notes what was done, and returns whether the window is over.
    fn is_over(self, place: &mut Place, stretch: Stretch) -> bool {
        match self {
            Self::At(deadline_ns) => stretch.to_ns >= deadline_ns,
            Self::Settled(course) => {
                course.note(place, stretch);
                course.is_over()
            }
        }
    }
}

/// What one worker did.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Operations.
    pub(super) ops: u64,
    /// Those of them that were done when the window ended; of those that were at work then, the part.
    pub(super) ops_in_window: f64,
    /// What did not count of the window.
    pub(super) aside_in_window_ns: f64,
    /// Whether somebody ended it before the window did.
    pub(super) was_cut: bool,
    /// When the first step began.
    pub(super) began_ns: u64,
    /// When the last one ended.
    pub(super) ended_ns: u64,
    /// What belongs to no operation in between.
    pub(super) aside_ns: u64,
    /// How long the timed steps took.
    pub(super) latency: Histogram,
    /// What it waited for a CPU.
    pub(super) run_delay_ns: Option<u64>,
    /// Why it stopped early.
    pub(super) refused: Option<Refused>,
}

impl Tally {
    /// The tally of a worker that could not begin.
    pub(super) fn failed(cause: Refused) -> Self {
        Self { refused: Some(cause), ..Self::default() }
    }
}

/// Makes steps from the window's start to its end; one at least, however late the worker comes to a CPU.
pub(super) fn drive<P: Processor>(worker: &mut dyn Worker, window: &Window<'_>) -> Tally {
    P::spin_until_deadline(window.start_ns, || false);
    let mut tally = Tally::default();
    P::trace(Tracepoint::WorkBegins);
    tally.began_ns = P::now();
    tally.ended_ns = tally.work::<P>(worker, window).unwrap_or_else(|cause| {
        tally.refused = Some(cause);
        P::now()
    });
    P::trace(Tracepoint::WorkEnds);
    tally
}

impl Tally {
    /// Works until the window ends; returns when that was.
    fn work<P: Processor>(&mut self, worker: &mut dyn Worker, window: &Window<'_>) -> Result<u64, Refused> {
        let mut slice_ends_ns = self.began_ns + SLICE_NS;
        let mut last = (self.began_ns, self.ops, self.aside_ns);
        let mut place = Place::default();
        loop {
            let mut left = window.steps_per_timing - 1;
            while left > 0 {
                let (nr_steps, step) = worker.steps(left)?;
                self.note(step);
                left = left.saturating_sub(nr_steps);
            }
            let before_ns = P::now();
            let step = worker.step()?;
            self.note(step);
            let aside_ns = step.aside_ns;
            let now_ns = P::now();
            self.latency.note((now_ns - before_ns).saturating_sub(aside_ns));
            if window.end.is_over(&mut place, self.since(last, now_ns)) || (window.has_stopped)() {
                self.close(last, now_ns, window.end);
                return Ok(now_ns);
            }
            last = (now_ns, self.ops, self.aside_ns);
            if now_ns >= slice_ends_ns {
                slice_ends_ns = give_way::<P>(now_ns) + SLICE_NS;
            }
        }
    }

    /// Returns what was done since the `last` look at the clock.
    fn since(&self, (from_ns, ops, aside_ns): (u64, u64, u64), to_ns: u64) -> Stretch {
        Stretch { from_ns, to_ns, ops: self.ops - ops, aside_ns: self.aside_ns - aside_ns }
    }

    /// Notes what lay in the window, of which `last` is the last look at the clock. Of a window that ends when rates
    /// have settled, the course knows it.
    fn close(&mut self, last: (u64, u64, u64), now_ns: u64, end: End<'_>) {
        let deadline_ns = match end {
            End::At(deadline_ns) => deadline_ns,
            End::Settled(course) => {
                self.was_cut = !course.is_over();
                return;
            }
        };
        let (last_ns, ops, aside_ns) = last;
        let behind_last_ns = (now_ns - last_ns).max(1) as f64;
        let share = (deadline_ns.saturating_sub(last_ns) as f64 / behind_last_ns).min(1.0);
        self.ops_in_window = ops as f64 + (self.ops - ops) as f64 * share;
        self.aside_in_window_ns = aside_ns as f64 + (self.aside_ns - aside_ns) as f64 * share;
        self.was_cut = now_ns < deadline_ns;
    }

    #[inline]
    fn note(&mut self, step: Step) {
        self.ops += step.ops;
        self.aside_ns += step.aside_ns;
    }
}

/// Lets another thread have the CPU if one waits for it; returns when it is ours again.
fn give_way<P: Processor>(now_ns: u64) -> u64 {
    if !P::should_yield() {
        return now_ns;
    }
    P::leave();
    P::enter();
    P::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_steps_at_work_when_the_window_ends_the_part_counts_that_lay_in_it() {
        let in_window = |last: (u64, u64, u64), now_ns: u64| {
            let mut tally = Tally { ops: 100, aside_ns: 40, ..Tally::default() };
            tally.close(last, now_ns, End::At(1000));
            (tally.ops_in_window, tally.aside_in_window_ns, tally.was_cut)
        };
        assert_eq!(in_window((900, 80, 40), 1000), (100.0, 40.0, false));
        assert_eq!(in_window((900, 80, 20), 1100), (90.0, 30.0, false));
        assert_eq!(in_window((0, 0, 0), 4000), (25.0, 10.0, false), "one long step");
        assert_eq!(in_window((1200, 0, 0), 1300), (0.0, 0.0, false), "who came when all was over");
        assert_eq!(in_window((500, 80, 40), 700), (100.0, 40.0, true), "somebody ended it");
    }
}
