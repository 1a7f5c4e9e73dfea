//! The workload `compile`: a recorded compilation, many at once.
//!
//! # Guarantee
//! An operation is one whole compilation. Each worker's compilations are processes of their own, also with threads
//! asked for: that is how compilers run. Passes of all workers at once follow each other until the time is over; what
//! lies between them, making and ending a virtual memory, is not counted. A pass that does not come out as recorded is
//! an error.

use faultless_machine::designs::HOST_DESIGN;
use std::sync::OnceLock;

use faultless_platform::{PAGE_BYTES, Threads, Usual};
use faultless_trace::Trace;

use super::{Job, MeasureError, Run};
use faultless_plan as plan;
use faultless_plan::{Losses, Options, Pace, Plan};
use faultless_replay as replay;
use faultless_replay::{Checking, PassResult, Settings};
use faultless_results::stats::Histogram;

/// The workload's name.
pub(crate) const NAME: &str = "compile";

/// `gcc -O2 -c many.c`, as `examples/README.md` tells.
const TRACE: &[u8] = include_bytes!("../../data/gcc.trace");

/// The recording, planned once.
struct Recorded {
    plan: Plan,
    limits: faultless_trace::Limits,
}

fn recorded(pace: Pace) -> Result<&'static Recorded, MeasureError> {
    static RECORDED: [OnceLock<Result<Recorded, String>>; 2] = [const { OnceLock::new() }; 2];
    let read = || {
        let trace = Trace::read(TRACE).map_err(|error| error.to_string())?;
        let options = Options { pace, losses: Losses::Refused };
        let plan = plan::plan(&trace, options).map_err(|error| error.to_string())?;
        Ok(Recorded { plan, limits: trace.header.limits })
    };
    let place = usize::from(pace == Pace::Recorded);
    RECORDED[place].get_or_init(read).as_ref().map_err(|why| MeasureError::Message(why.clone()))
}

/// Runs the job on a virtual memory.
pub(super) fn once<P: Threads<Embedding = Usual>>(
    machine: &P::Machine,
    job: &Job,
    has_stopped: &dyn Fn() -> bool,
) -> Result<Run, MeasureError> {
    once_at::<P>(machine, job, Pace::None, has_stopped)
}

/// Runs the job on a virtual memory, with or without what the compilers computed between their calls and faults.
pub(crate) fn once_at<P: Threads<Embedding = Usual>>(
    machine: &P::Machine,
    job: &Job,
    pace: Pace,
    has_stopped: &dyn Fn() -> bool,
) -> Result<Run, MeasureError> {
    let recorded = recorded(pace)?;
    let plan = recorded.plan.repeated(job.nr_workers());
    let settings = Settings {
        filling: None,
        design: job.design.clone(),
        semaphore: job.semaphore.clone(),
        memory_bytes: job.memory_bytes.unwrap_or_else(|| demand_bytes(&plan)),
        limits: recorded.limits,
        checking: Checking::AtEnd,
    };
    repeat(job, has_stopped, &|| replay::pass::<P>(machine, job.cpus, &plan, &settings))
}

/// Returns how many frames the job has on a virtual memory.
pub(crate) fn nr_frames(job: &Job) -> Result<usize, MeasureError> {
    let plan = &recorded(Pace::None)?.plan.repeated(job.nr_workers());
    Ok(job.memory_bytes.unwrap_or_else(|| demand_bytes(plan)).div_ceil(PAGE_BYTES))
}

fn demand_bytes(plan: &Plan) -> usize {
    usize::try_from(plan.demand.bytes()).unwrap_or(usize::MAX)
}

/// Runs the job on the host's kernel.
pub(super) fn once_on_host(job: &Job, has_stopped: &dyn Fn() -> bool) -> Result<Run, MeasureError> {
    let plan = recorded(Pace::None)?.plan.repeated(job.nr_workers());
    repeat(job, has_stopped, &|| replay::pass_on_host(&plan, job.cpus))
}

/// Makes passes until the time is over.
fn repeat(
    job: &Job,
    has_stopped: &dyn Fn() -> bool,
    pass: &dyn Fn() -> Result<PassResult, replay::ReplayError>,
) -> Result<Run, MeasureError> {
    let mut sum = Sum::default();
    while sum.elapsed_ns < job.length.least_ns() {
        sum.add(pass().map_err(|error| MeasureError::Message(error.to_string()))?)?;
        if has_stopped() {
            break;
        }
    }
    Ok(sum.run(job))
}

/// Passes, added up.
#[derive(Default)]
struct Sum {
    elapsed_ns: u64,
    nr_passes: u64,
    latency: Histogram,
    counters: Vec<(&'static str, u64)>,
    lock_wait_ns: u64,
    peak_rss_bytes: u64,
}

impl Sum {
    fn add(&mut self, pass: PassResult) -> Result<(), MeasureError> {
        if let Some(first) = pass.tally.first_mismatches.first() {
            let (count, event, what) = (pass.tally.mismatches, first.event, &first.what);
            return Err(MeasureError::Message(format!("{count} mismatches, the first at event {event}: {what}")));
        }
        self.elapsed_ns += pass.elapsed_ns.max(1);
        self.nr_passes += 1;
        self.latency.note(pass.elapsed_ns);
        self.lock_wait_ns += pass.lock_wait_ns;
        self.peak_rss_bytes = self.peak_rss_bytes.max(pass.peak_rss_bytes);
        for (name, count) in pass.counters {
            match self.counters.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sum)) => *sum += count,
                None => self.counters.push((name, count)),
            }
        }
        Ok(())
    }

    fn run(self, job: &Job) -> Run {
        let is_host = job.design == HOST_DESIGN;
        let ops = self.nr_passes * job.nr_workers() as u64;
        Run {
            elapsed_ns: self.elapsed_ns,
            ops,
            workers: job.nr_workers(),
            cpus: job.cpus,
            ops_per_s: ops as f64 * 1e9 / self.elapsed_ns as f64,
            latency: self.latency,
            counters: self.counters,
            lock_wait_ns: (!is_host).then_some(self.lock_wait_ns),
            peak_rss_bytes: (!is_host).then_some(self.peak_rss_bytes),
            run_delay_ns: None,
            settled: None,
            pages: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Length, Mode};
    use faultless_platform::native::{Machine, Native};
    use faultless_workloads::Spec;

    fn job(design: &str, cpus: usize) -> Job {
        Job {
            spec: Spec::parse(NAME).expect("a workload"),
            design: design.into(),
            semaphore: "rwsem-v8".into(),
            cpus,
            mode: Mode::Threads,
            length: Length::Fixed(1),
            memory_bytes: None,
        }
    }

    #[test]
    fn three_compilations_at_once_come_out_as_recorded() {
        let single = once::<Native>(&Machine::new(1), &job("vma-lock", 1), &|| false).expect("as recorded");
        let run = once::<Native>(&Machine::new(3), &job("vma-lock", 3), &|| false).expect("as recorded");
        assert_eq!((single.ops, run.ops), (1, 3));
        let faults = |run: &Run| run.counters.iter().find(|(name, _)| *name == "faults").expect("counted").1;
        let (one, three) = (faults(&single), faults(&run));
        assert!(three >= 3 * one * 9 / 10 && three <= 3 * one * 11 / 10, "{one} {three}");
        let host = once_on_host(&job("linux", 2), &|| false).expect("as recorded");
        assert_eq!(host.ops, 2);
    }
}
