//! The workload `compile`: a recorded compilation, many at once.
//!
//! # Guarantee
//! An operation is one whole compilation. Each worker's compilations are processes of their own, also with threads
//! asked for: that is how compilers run. Passes of all workers at once follow each other until the time is over; what
//! lies between them, making and ending a virtual memory, is not counted. A pass that does not come out as recorded is
//! an error.

use faultless_machine::designs::HOST_DESIGN;
use std::sync::OnceLock;

use faultless_platform::PAGE_BYTES;
use faultless_trace::Trace;

use super::job::{Job, MeasureError, Run};
use faultless_pass::{Checking, Mismatch, PassResult, ReplayError, ReplayPlatform, Replayer, Settings};
use faultless_plan as plan;
use faultless_plan::files::FileCall;
use faultless_plan::{Losses, Options, Pace, Plan};
use faultless_results::stats::Histogram;

/// The workload's name.
pub(crate) const NAME: &str = "compile";

/// What is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// One large file: `gcc -O2 -c many.c`.
    Large,
    /// Eight small ones, one after the other, as a build does: their compilers come and go.
    Small,
}

impl Sources {
    /// The recording, as `examples/README.md` tells.
    const fn trace(self) -> &'static [u8] {
        match self {
            Self::Large => include_bytes!("../../data/gcc.trace"),
            Self::Small => include_bytes!("../../data/build.trace"),
        }
    }

    /// What the same program reads from files and writes into them, as `strace` saw it: the recording has map calls and
    /// faults alone.
    const fn file_calls(self) -> &'static str {
        match self {
            Self::Large => include_str!("../../data/gcc-files.txt"),
            Self::Small => include_str!("../../data/build-files.txt"),
        }
    }
}

/// Whether compilers read their files by calls, and write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// They do.
    Moved,
    /// That is left out.
    LeftOut,
}

/// When the compilers of a job begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All at once, and so they do the same at the same time.
    Together,
    /// One after the other, evenly over half the computing of one, as those of a build do: if nobody waits for anything
    /// else, a third of the CPUs' time is idle.
    Spread,
}

/// How compilers are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Whether they compute between their calls and faults as recorded.
    pub(crate) pace: Pace,
    /// Whether they read and write files by calls.
    pub(crate) files: Files,
    /// When they begin.
    pub(crate) start: Start,
    /// What they compile.
    pub(crate) sources: Sources,
}

impl Manner {
    /// As fast as it goes.
    const PLAIN: Self =
        Self { pace: Pace::None, files: Files::LeftOut, start: Start::Together, sources: Sources::Large };
}

/// Returns the calls by which the program reads and writes files.
fn file_calls(sources: Sources) -> Result<Vec<FileCall<'static>>, String> {
    let call = |(place, line): (usize, &'static str)| {
        let wrong = || format!("line {} of the file calls: {line}", place + 1);
        let [thread, permille, call, file, offset, len_bytes] =
            line.split(' ').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
        Ok(FileCall {
            thread: thread.parse().map_err(|_| wrong())?,
            permille: permille.parse().map_err(|_| wrong())?,
            is_write: call == "write",
            file,
            offset: offset.parse().map_err(|_| wrong())?,
            len_bytes: len_bytes.parse().map_err(|_| wrong())?,
        })
    };
    sources.file_calls().lines().enumerate().filter(|(_, line)| !line.starts_with('#')).map(call).collect()
}

/// The recording, planned once.
struct Recorded {
    plan: Plan,
    limits: faultless_trace::Limits,
}

fn recorded(pace: Pace, files: Files, sources: Sources) -> Result<&'static Recorded, MeasureError> {
    static RECORDED: [OnceLock<Result<Recorded, String>>; 8] = [const { OnceLock::new() }; 8];
    let read = || {
        let trace = Trace::read(sources.trace()).map_err(|error| error.to_string())?;
        let options = Options { pace, losses: Losses::Refused };
        let mut plan = plan::plan(&trace, options).map_err(|error| error.to_string())?;
        if files == Files::Moved {
            plan = plan.with_file_calls(&file_calls(sources)?);
        }
        Ok(Recorded { plan, limits: trace.header.limits })
    };
    let place = usize::from(pace == Pace::Recorded)
        + 2 * usize::from(files == Files::Moved)
        + 4 * usize::from(sources == Sources::Small);
    RECORDED[place].get_or_init(read).as_ref().map_err(|why| MeasureError::Message(why.clone()))
}

/// Runs the job on a virtual memory.
pub(super) fn once<P: ReplayPlatform>(
    machine: &P::Machine,
    job: &Job,
    has_stopped: &dyn Fn() -> bool,
) -> Result<Run, MeasureError> {
    once_at::<P>(machine, job, Manner::PLAIN, has_stopped)
}

/// Runs the job on a virtual memory, in a manner.
pub(crate) fn once_at<P: ReplayPlatform>(
    machine: &P::Machine,
    job: &Job,
    Manner { pace, files, start, sources }: Manner,
    has_stopped: &dyn Fn() -> bool,
) -> Result<Run, MeasureError> {
    let recorded = recorded(pace, files, sources)?;
    let mut plan = recorded.plan.repeated(job.nr_workers());
    if start == Start::Spread {
        plan.spread_starts(job.nr_workers(), recorded.plan.computing_ns() / 2);
    }
    let settings = Settings {
        design: job.design.clone(),
        semaphore: job.semaphore.clone(),
        memory_bytes: job.memory_bytes.unwrap_or_else(|| demand_bytes(&plan)),
        limits: recorded.limits,
        checking: Checking::AtEnd,
        filling: None,
    };
    let replayer = replayer(job)?;
    repeat(job, has_stopped, &|| replayer.replay(P::replay_machine(machine), job.cpus, &plan, &settings))
}

/// How much there is of what a job needs on a virtual memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Frames of its memory.
    pub(crate) frames: usize,
    /// Threads, each a process of its own.
    pub(crate) processes: usize,
}

/// Returns what the job needs, with the files that compilers read and write.
pub(crate) fn needs(job: &Job, sources: Sources) -> Result<Needs, MeasureError> {
    let plan = &recorded(Pace::None, Files::Moved, sources)?.plan.repeated(job.nr_workers());
    Ok(Needs {
        frames: job.memory_bytes.unwrap_or_else(|| demand_bytes(plan)).div_ceil(PAGE_BYTES),
        processes: plan.programs.len(),
    })
}

fn demand_bytes(plan: &Plan) -> usize {
    usize::try_from(plan.demand.bytes()).unwrap_or(usize::MAX)
}

/// Runs the job on the host's kernel.
pub(super) fn once_on_host(job: &Job, has_stopped: &dyn Fn() -> bool) -> Result<Run, MeasureError> {
    let plan = recorded(Pace::None, Files::LeftOut, Sources::Large)?.plan.repeated(job.nr_workers());
    let replayer = replayer(job)?;
    repeat(job, has_stopped, &|| replayer.replay_on_host(&plan, job.cpus))
}

fn replayer(job: &Job) -> Result<&'static dyn Replayer, MeasureError> {
    job.replayer.ok_or_else(|| MeasureError::Message(format!("{NAME} is a recording, and nobody replays it")))
}

/// Makes passes until the time is over.
fn repeat(
    job: &Job,
    has_stopped: &dyn Fn() -> bool,
    pass: &dyn Fn() -> Result<PassResult, ReplayError>,
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
        if let Some(Mismatch { event, what }) = pass.tally.first_mismatches.first() {
            let count = pass.tally.mismatches;
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
            profile: None,
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
            placement: crate::measure::PlacementPolicy::Linux,
            replayer: Some(&faultless_replay::AllDesigns),
        }
    }

    #[test]
    fn the_recorded_threads_are_those_whose_files_are_known() {
        let recorded = |files| &recorded(Pace::None, files, Sources::Large).expect("planned").plan;
        let (plain, with) = (recorded(Files::LeftOut), recorded(Files::Moved));
        let calls = file_calls(Sources::Large).expect("well formed");
        assert_eq!((plain.programs.len(), plain.has_shared_spaces), (3, false), "each thread is a process");
        assert!((0..3).all(|thread| calls.iter().any(|call| call.thread == thread)));
        let nr_steps = |plan: &Plan| plan.programs.iter().map(|program| program.steps.len()).sum::<usize>();
        assert_eq!(nr_steps(with), nr_steps(plain) + calls.len());
        let pages = |call: &FileCall<'_>| (call.offset + u64::from(call.len_bytes)).div_ceil(4096) - call.offset / 4096;
        assert_eq!((calls.len(), calls.iter().map(pages).sum::<u64>()), (196, 345));
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
