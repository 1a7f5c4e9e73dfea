//! The loop: a worker makes steps until its time is over.
//!
//! # Guarantee
//! The clock is read twice for each timed step, of which there is one in [`Workload::steps_per_timing`]; nothing else
//! happens between steps, except that a worker which others wait for gives its CPU away after each slice.
//!
//! [`Workload::steps_per_timing`]: faultless_workloads::Workload::steps_per_timing

use faultless_platform::Processor;
use faultless_workloads::{Refused, Step, Worker};

use crate::stats::Histogram;

/// How long a worker keeps its CPU while others wait for one: what Linux's scheduler gives by default.
const SLICE_NS: u64 = 3_000_000;

/// When to begin, when to end, and how often to look at the clock.
pub(super) struct Window<'a> {
    pub(super) start_ns: u64,
    pub(super) duration_ns: u64,
    pub(super) steps_per_timing: u32,
    /// Says whether to end early.
    pub(super) has_stopped: &'a dyn Fn() -> bool,
}

/// What one worker did.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Operations that count.
    pub(super) ops: u64,
    /// From the first step's begin to the last one's end.
    pub(super) elapsed_ns: u64,
    /// Of that, what did not count.
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

    /// Returns operations in a second of what counts.
    pub(super) fn ops_per_s(&self) -> f64 {
        let counted_ns = self.elapsed_ns.saturating_sub(self.aside_ns);
        if counted_ns == 0 { 0.0 } else { self.ops as f64 * 1e9 / counted_ns as f64 }
    }
}

/// Makes steps from the window's start to its end.
pub(super) fn drive<P: Processor>(worker: &mut dyn Worker, window: &Window<'_>) -> Tally {
    P::spin_until_deadline(window.start_ns, || false);
    let mut tally = Tally::default();
    let began_ns = P::now();
    let ended_ns = tally.work::<P>(worker, window, began_ns).unwrap_or_else(|cause| {
        tally.refused = Some(cause);
        P::now()
    });
    tally.elapsed_ns = ended_ns - began_ns;
    tally
}

impl Tally {
    /// Works until the window ends; returns when that was.
    fn work<P: Processor>(
        &mut self,
        worker: &mut dyn Worker,
        window: &Window<'_>,
        began_ns: u64,
    ) -> Result<u64, Refused> {
        let deadline_ns = began_ns + window.duration_ns;
        let mut slice_ends_ns = began_ns + SLICE_NS;
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
            if now_ns >= deadline_ns || (window.has_stopped)() {
                return Ok(now_ns);
            }
            if now_ns >= slice_ends_ns {
                slice_ends_ns = give_way::<P>(now_ns) + SLICE_NS;
            }
        }
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
