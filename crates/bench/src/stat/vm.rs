//! A counted run on the virtual memory.

use std::sync::Arc;

use faultless_linux::space::has_interrupt;
use faultless_platform::native::{Machine, Native};
use faultless_platform::watched::Sink;
use faultless_platform::{Threads, Usual};
use faultless_sim::{Sim, isolate};
use faultless_vm::Event;
use faultless_workloads::{Begins, Spec, Spec as Workload};

use super::arm::{Locks, RunCounts, StatArm, StatSetup, Subject, Tap};
use crate::measure::{self, HostSite, Job, Length, Mode, Pinning, SimulatedSite, Site};
use crate::{high, kmap};
use faultless_machine::events;
use faultless_machine::watch::{self, All, LockWatch, Stream, Watched};
use faultless_pass::{Checking, ReplayPlatform, Settings};

/// What a run says, whatever ran.
struct Ran {
    elapsed_ns: u64,
    ops: Option<u64>,
    ops_per_s: Option<f64>,
    counters: Vec<(&'static str, u64)>,
    peak_rss_bytes: Option<u64>,
}

/// Runs an arm once; on a simulated machine, the seed decides all chance.
pub(super) fn once(setup: &StatSetup, arm: &StatArm, seed: u64, tap: Option<Tap>) -> Result<RunCounts, String> {
    if let Some(spec) = setup.machine.simulated() {
        match &setup.subject {
            Subject::KernelMaps { scheme, load, .. } => return maps(setup, spec, (arm, scheme), load, seed, tap),
            Subject::Workload { spec: workload, duration_ns, mode } if setup.high.is_some() => {
                let arm = high::HighArm {
                    workload: Workload::clone(workload),
                    duration_ns: *duration_ns,
                    mode: *mode,
                    high: setup.high.clone(),
                    cpus: arm.cpus,
                    pace: setup.pace,
                    start: high::Start::Together,
                    sources: high::Sources::Large,
                    design: arm.design.clone(),
                    semaphore: arm.semaphore.clone().unwrap_or_default(),
                    replayer: setup.replayer,
                };
                return in_high_memory(setup, spec, &arm, seed, tap);
            }
            _ => {}
        }
    }
    let Some(spec) = setup.machine.simulated() else {
        let site = HostSite::new(Pinning::IfEnough, arm.cpus);
        let machine = Machine::new(arm.cpus);
        return match (setup.locks, &tap) {
            (Locks::Unwatched, None) => {
                Ok(counted(setup, arm, run::<Native>(&machine, &site, setup, arm, Begins::AtTheStart)?))
            }
            _ => observed::<Native>(machine, &site, setup, (arm, Begins::AtTheStart), tap),
        };
    };
    let result = isolate(|| {
        let machine = faultless_sim::Machine::new(spec, arm.cpus, seed).map_err(|error| error.to_string())?;
        let begins = measure::begins(setup.subject.mode(), seed);
        observed::<Sim>(machine, &SimulatedSite::new(spec.nr_cpus()), setup, (arm, begins), tap)
    });
    result.unwrap_or_else(|failure| Err(faultless_machine::simulated::with_rerun(failure, seed).message))
}

/// Opens the stream of a run's events, if one is wanted.
fn stream(setup: &StatSetup, tap: Option<Tap>) -> Option<Arc<Stream<Tap>>> {
    tap.map(|tap| Arc::new(Stream::new(streamed(setup), tap)))
}

/// Maps and unmaps frames once.
fn maps(
    setup: &StatSetup,
    spec: &faultless_sim::Spec,
    (arm, scheme): (&StatArm, &str),
    load: &kmap::KmapLoad,
    seed: u64,
    tap: Option<Tap>,
) -> Result<RunCounts, String> {
    let (locks, stream) = (Arc::new(LockWatch::default()), stream(setup, tap));
    let mut sinks = vec![locks.clone() as Arc<dyn Sink>];
    sinks.extend(stream.clone().map(|sink| sink as Arc<dyn Sink>));
    let of = kmap::KmapArm { scheme: scheme.to_owned(), cpus: arm.cpus };
    let mapping = kmap::once(spec, &of, load, seed, sinks).map_err(|error| error.to_string())?;
    // Why a stream broke off is its reader's business.
    let _ = stream.and_then(|stream| stream.flush());
    let table = locks.table(arm.cpus);
    Ok(RunCounts {
        elapsed_ns: table.elapsed_ns,
        ops: Some((mapping.ops_per_s * load.duration_ns as f64 / 1e9).round() as u64),
        ops_per_s: Some(mapping.ops_per_s),
        counts: vec![None; setup.events.len()],
        locks: (setup.locks == Locks::Watched).then_some(table),
        ..RunCounts::default()
    })
}

/// Runs a workload once whose tables, or pages, lie in high memory.
fn in_high_memory(
    setup: &StatSetup,
    spec: &faultless_sim::Spec,
    of: &high::HighArm,
    seed: u64,
    tap: Option<Tap>,
) -> Result<RunCounts, String> {
    let stream = stream(setup, tap);
    let sinks = stream.iter().map(|sink| sink.clone() as Arc<dyn Sink>).collect();
    let made = high::once(spec, of, seed, sinks).map_err(|error| error.to_string())?;
    // Why a stream broke off is its reader's business.
    let _ = stream.and_then(|stream| stream.flush());
    let arm = StatArm { design: of.design.clone(), semaphore: Some(of.semaphore.clone()), cpus: of.cpus };
    let mut counts = counted(setup, &arm, ran(made.run));
    counts.locks = (setup.locks == Locks::Watched).then_some(made.locks);
    Ok(counts)
}

/// Runs an arm once on a machine of the platform `P`, watched by those that were asked for.
fn observed<P: Threads<Machine: Send, Embedding = Usual>>(
    machine: P::Machine,
    site: &dyn Site,
    setup: &StatSetup,
    (arm, begins): (&StatArm, Begins),
    tap: Option<Tap>,
) -> Result<RunCounts, String>
where
    Watched<P>: ReplayPlatform<Machine = watch::Machine<P>>,
{
    let locks = (setup.locks == Locks::Watched).then(|| Arc::new(LockWatch::default()));
    let stream = stream(setup, tap);
    let mut sinks: Vec<Arc<dyn Sink>> = Vec::new();
    sinks.extend(locks.clone().map(|sink| sink as Arc<dyn Sink>));
    sinks.extend(stream.clone().map(|sink| sink as Arc<dyn Sink>));
    let machine = watch::Machine::<P>::new(machine, Arc::new(All(sinks)));
    let ran = run::<Watched<P>>(&machine, site, setup, arm, begins);
    // Why a stream broke off is its reader's business: who wants no more lines still gets the counts.
    let _ = stream.and_then(|stream| stream.flush());
    let mut counts = counted(setup, arm, ran?);
    counts.locks = locks.map(|locks| locks.table(arm.cpus));
    Ok(counts)
}

fn streamed(setup: &StatSetup) -> Vec<String> {
    setup.events.iter().map(|&name| name.to_owned()).collect()
}

fn run<P: ReplayPlatform>(
    machine: &P::Machine,
    site: &dyn Site,
    setup: &StatSetup,
    arm: &StatArm,
    begins: Begins,
) -> Result<Ran, String> {
    match &setup.subject {
        Subject::KernelMaps { .. } => Err("kernel maps need a simulated machine".into()),
        Subject::Workload { spec, duration_ns, mode } => {
            let mut job = job(setup, arm, spec, *duration_ns, *mode);
            job.spec.settings.begins = begins;
            work::<P>(machine, site, &job)
        }
        Subject::Trace { trace, plan, .. } => {
            let settings = Settings {
                design: arm.design.clone(),
                semaphore: arm.semaphore.clone().unwrap_or_default(),
                memory_bytes: setup.memory_bytes.unwrap_or(usize::try_from(plan.demand.bytes()).unwrap_or(usize::MAX)),
                limits: trace.header.limits,
                checking: Checking::AtEnd,
                filling: None,
            };
            let pass = setup.replayer.replay(P::replay_machine(machine), arm.cpus, plan, &settings);
            let pass = pass.map_err(|error| error.to_string())?;
            let peak_rss_bytes = Some(pass.peak_rss_bytes);
            Ok(Ran { elapsed_ns: pass.elapsed_ns, ops: None, ops_per_s: None, counters: pass.counters, peak_rss_bytes })
        }
    }
}

fn work<P: ReplayPlatform>(machine: &P::Machine, site: &dyn Site, job: &Job) -> Result<Ran, String> {
    measure::once::<P>(machine, job, site, &has_interrupt).map(ran).map_err(|error| error.to_string())
}

fn ran(run: measure::Run) -> Ran {
    Ran {
        elapsed_ns: run.elapsed_ns,
        ops: Some(run.ops),
        ops_per_s: Some(run.ops_per_s),
        counters: run.counters,
        peak_rss_bytes: run.peak_rss_bytes,
    }
}

/// Returns the job of an arm that runs a workload.
pub(super) fn job(setup: &StatSetup, arm: &StatArm, spec: &Spec, duration_ns: u64, mode: Mode) -> Job {
    Job {
        spec: spec.clone(),
        design: arm.design.clone(),
        semaphore: arm.semaphore.clone().unwrap_or_default(),
        cpus: arm.cpus,
        mode,
        length: Length::Fixed(duration_ns),
        memory_bytes: setup.memory_bytes,
        placement: setup.placement_under(&arm.design),
        replayer: Some(setup.replayer),
    }
}

fn counted(setup: &StatSetup, arm: &StatArm, ran: Ran) -> RunCounts {
    let count = |name: &str| ran.counters.iter().find(|(known, _)| *known == name).map(|(_, count)| *count);
    let counts = setup.events.iter().map(|name| match *name {
        name if !events::is_counted(&arm.design, name) => None,
        "rss" => ran.peak_rss_bytes.map(|bytes| bytes / faultless_plan::regions::PAGE),
        _ => count(name),
    });
    let counts = counts.collect();
    let has_it = |event: &&Event| events::is_counted(&arm.design, event.name());
    let in_order = Event::ALL.iter().filter(has_it);
    let in_order = in_order.filter_map(|event| Some((events::vmstat_name(event.name()), count(event.name())?)));
    let faults = count("faults");
    RunCounts {
        elapsed_ns: ran.elapsed_ns,
        ops: ran.ops,
        ops_per_s: ran.ops_per_s,
        faults,
        counts,
        vmstat: in_order.collect(),
        locks: None,
    }
}
