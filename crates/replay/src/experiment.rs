//! A trace under several designs: passes in turn, and what they say together.
//!
//! # Guarantee
//! Every pass counts, none is repeated or dropped. The arms of one run stand next to each other in time, in an order
//! that the seed draws anew for each run, so that what drifts on the machine hits all of them.

use std::fmt;

use faultless_linux::space::has_interrupt;
use faultless_platform::MAX_CPUS;
use faultless_platform::native::HostRegion;
use faultless_trace::Trace;

use crate::patterned::{self, Filling, Patterned};
use crate::{Checking, Mismatch, PassResult, ReplayError, Settings, pass_natively, pass_on_host, simulated_pass};
use faultless_machine::designs::{HOST_DESIGN, semaphore_of};
use faultless_machine::session::{in_turns, under_seeds};
use faultless_machine::simulated::{MachineChoice, MachineError, in_parallel};
use faultless_plan as plan;
use faultless_plan::classes::Class;
use faultless_plan::{Losses, Options, Pace, Plan, PlanError, Totals};

/// What to compare, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplaySetup {
    /// Designs by name.
    pub designs: Vec<String>,
    /// Semaphores by name; none: each design has its own.
    pub semaphores: Vec<String>,
    /// How many threads run at once at most; one arm for each number.
    pub cpus: Vec<usize>,
    /// Passes of each arm.
    pub runs: usize,
    /// Draws the order of the arms; on a simulated machine the first pass's seed.
    pub seed: u64,
    /// The machine to replay on.
    pub machine: MachineChoice,
    /// How many simulations run at once.
    pub jobs: usize,
    /// The pace.
    pub pace: Pace,
    /// Whether a trace with losses is replayed.
    pub losses: Losses,
    /// Physical memory; as much as the trace needs if nothing is said.
    pub memory_bytes: Option<usize>,
    /// How often invariants are checked.
    pub checking: Checking,
    /// What the program's allocator asks for beside zeros; then each design has four arms.
    pub pattern: Option<Patterned>,
}

/// One way to replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayArm {
    /// The design.
    pub design: String,
    /// The semaphore; empty for the host's kernel, which has its own.
    pub semaphore: String,
    /// How many threads run at once at most.
    pub cpus: usize,
}

impl fmt::Display for ReplayArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { design, semaphore, cpus } = self;
        let over = if semaphore.is_empty() { String::new() } else { format!(" over {semaphore}") };
        write!(f, "{design}{over} on {cpus} CPUs")
    }
}

/// An arm's passes, in the order of the runs.
#[derive(Clone, Debug)]
pub struct ReplayArmResult {
    /// Which arm.
    pub arm: ReplayArm,
    /// What came out, run by run.
    pub passes: Vec<PassResult>,
}

/// What came out of an experiment.
#[derive(Clone, Debug)]
pub struct ReplayOutcome {
    /// Arm by arm, in the order in which they were asked for.
    pub arms: Vec<ReplayArmResult>,
    /// What was checked.
    pub checks: Checks,
    /// What one pass holds.
    pub totals: Totals,
    /// Whether threads share a space at some time.
    pub has_shared_spaces: bool,
    /// The physical memory that each pass had.
    pub memory_bytes: usize,
    /// Whether an interrupt came before the last pass had ended.
    pub was_interrupted: bool,
}

/// What was checked, with the names of the machine-readable report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Events in one pass.
    pub events: u64,
    /// Recorded faults that one pass compares.
    pub faults_recorded: u64,
    /// Accesses that really faulted in one pass: the first.
    pub faults_replayed: u64,
    /// Faults on strict pages in one pass.
    pub strict: u64,
    /// Differences that nothing explains, of all passes.
    pub mismatches: u64,
    /// Differences by class, of all passes.
    pub classified: [u64; Class::ALL.len()],
    /// Results taken from the recording, of all passes.
    pub imposed: Vec<(&'static str, u64)>,
    /// Events of one pass that its beginning holds already, where running processes were joined.
    pub applied: u64,
    /// Of these, faults: they are compared with nothing.
    pub faults_applied: u64,
    /// Events that were not executed, of all passes.
    pub skipped: Vec<(&'static str, u64)>,
    /// Records that the recording lost.
    pub lost: u64,
    /// Passes.
    pub passes: u64,
    /// The first mismatches, with the arm that they happened under.
    pub first_mismatches: Vec<(ReplayArm, Mismatch)>,
}

impl Checks {
    /// Returns whether there was something to replay, and all of it came out as recorded.
    pub fn are_clean(&self) -> bool {
        self.faults_recorded > 0 && self.mismatches == 0 && self.skipped.is_empty()
    }

    /// Returns the share of the trace's faults that a pass compares.
    pub fn compared_share(&self) -> f64 {
        self.faults_recorded as f64 / (self.faults_recorded + self.faults_applied).max(1) as f64
    }

    /// Returns a class's share of all recorded faults of all passes.
    pub fn share(&self, class: Class) -> f64 {
        let faults = (self.faults_recorded * self.passes).max(1);
        self.classified[class as usize] as f64 / faults as f64
    }
}

/// Why an experiment came to no result.
#[derive(Debug)]
pub enum ExperimentError {
    /// The trace can't be planned.
    Plan(PlanError),
    /// There is nothing to compare, or too much.
    Setup(String),
    /// The machine does not fit.
    Machine(MachineError),
    /// A pass failed.
    Replay {
        /// Under which arm.
        arm: ReplayArm,
        /// Why.
        error: ReplayError,
    },
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => write!(f, "{error}"),
            Self::Setup(what) => f.write_str(what),
            Self::Machine(error) => write!(f, "{error}"),
            Self::Replay { arm, error } => write!(f, "{error} (under {arm})"),
        }
    }
}

impl std::error::Error for ExperimentError {}

impl ReplaySetup {
    /// Returns the arms, in the order in which they are reported.
    pub fn arms(&self) -> Vec<ReplayArm> {
        let arm =
            |cpus: usize, semaphore: &str, design: String| ReplayArm { design, semaphore: semaphore.into(), cpus };
        let asked: Vec<Option<&str>> = match self.semaphores.as_slice() {
            [] => vec![None],
            named => named.iter().map(|name| Some(name.as_str())).collect(),
        };
        let mut arms = Vec::new();
        for &cpus in &self.cpus {
            for semaphore in &asked {
                for design in self.designs.iter().filter(|design| *design != HOST_DESIGN) {
                    let semaphore = semaphore.unwrap_or_else(|| semaphore_of(design));
                    arms.extend(self.ways(design).into_iter().map(|way| arm(cpus, semaphore, way)));
                }
            }
            // The host has one arm, whatever the semaphores.
            let hosts = self.designs.iter().filter(|design| *design == HOST_DESIGN);
            arms.extend(hosts.map(|design| arm(cpus, "", design.clone())));
        }
        arms
    }

    /// Returns the names of a design's arms.
    fn ways(&self, design: &str) -> Vec<String> {
        if self.pattern.is_some() { patterned::arms_of(design) } else { vec![design.to_owned()] }
    }

    fn check(&self) -> Result<(), ExperimentError> {
        self.machine.check_cpus(&self.cpus).map_err(ExperimentError::Machine)?;
        if let Some(spec) = self.machine.simulated()
            && self.designs.iter().any(|design| design == HOST_DESIGN)
        {
            let name = spec.name();
            let what = format!(
                "the design {HOST_DESIGN} is this machine's kernel: it can't run on {name}, which is simulated"
            );
            return Err(ExperimentError::Setup(what));
        }
        let wrong = self.cpus.iter().find(|cpus| !(1..=MAX_CPUS).contains(cpus));
        match wrong {
            Some(cpus) => Err(ExperimentError::Setup(format!("{cpus} CPUs: a machine has 1 to {MAX_CPUS}"))),
            None if self.runs == 0 || self.arms().is_empty() => {
                Err(ExperimentError::Setup("there is nothing to run".into()))
            }
            None => Ok(()),
        }
    }
}

/// Replays a trace as often as the setup says; `progress` is told after each pass how many are done. An interrupt ends
/// it with the passes that are complete.
pub fn run(trace: &Trace, setup: &ReplaySetup, progress: &dyn Fn(usize)) -> Result<ReplayOutcome, ExperimentError> {
    setup.check()?;
    let plan = plan::plan(trace, Options { pace: setup.pace, losses: setup.losses }).map_err(ExperimentError::Plan)?;
    let asked_bytes = setup.memory_bytes.unwrap_or(usize::try_from(plan.demand.bytes()).unwrap_or(usize::MAX));
    // What can't be rounded can't be reserved, which the first pass says.
    let memory_bytes = HostRegion::rounded(asked_bytes).unwrap_or(asked_bytes);
    let arms = setup.arms();
    let mut results: Vec<ReplayArmResult> =
        arms.into_iter().map(|arm| ReplayArmResult { arm, passes: Vec::with_capacity(setup.runs) }).collect();
    if setup.machine.simulated().is_some() {
        simulate(trace, &plan, setup, memory_bytes, &mut results, progress)?;
        return Ok(conclude(results, plan, setup, memory_bytes));
    }
    for (done, (_, place)) in in_turns(setup.runs, results.len(), setup.seed).enumerate() {
        if has_interrupt() {
            break;
        }
        let pass = whole(run_pass(trace, &plan, setup, &results[place].arm, memory_bytes, setup.seed));
        let Some(pass) = pass.transpose()? else { break };
        results[place].passes.push(pass);
        progress(done + 1);
    }
    Ok(conclude(results, plan, setup, memory_bytes))
}

/// Replays on a simulated machine: each arm under each seed, several at once.
fn simulate(
    trace: &Trace,
    plan: &Plan,
    setup: &ReplaySetup,
    memory_bytes: usize,
    results: &mut [ReplayArmResult],
    progress: &dyn Fn(usize),
) -> Result<(), ExperimentError> {
    let seeds = (0..setup.runs as u64).map(|run| setup.seed.wrapping_add(run));
    let tasks = under_seeds(results.len(), seeds);
    let arms: Vec<ReplayArm> = results.iter().map(|result| result.arm.clone()).collect();
    let run = |&(arm, seed): &(usize, u64)| whole(run_pass(trace, plan, setup, &arms[arm], memory_bytes, seed));
    let passes = in_parallel(setup.jobs, &tasks, has_interrupt, run, |done, _| progress(done));
    // Behind the first that an interrupt kept from running, arms would stand beside each other under different seeds.
    for ((arm, _), pass) in tasks.into_iter().zip(passes.into_iter().map_while(Option::flatten)) {
        results[arm].passes.push(pass?);
    }
    Ok(())
}

/// Returns what came of a pass; nothing if an interrupt ended it.
fn whole<T, E>(pass: Result<T, E>) -> Option<Result<T, E>> {
    (pass.is_ok() || !has_interrupt()).then_some(pass)
}

fn run_pass(
    trace: &Trace,
    plan: &Plan,
    setup: &ReplaySetup,
    arm: &ReplayArm,
    memory_bytes: usize,
    seed: u64,
) -> Result<PassResult, ExperimentError> {
    let failed = |error| ExperimentError::Replay { arm: arm.clone(), error };
    if arm.design == HOST_DESIGN {
        return pass_on_host(plan, arm.cpus).map_err(failed);
    }
    let (design, way) = patterned::split(&arm.design);
    let settings = Settings {
        design: design.to_owned(),
        semaphore: arm.semaphore.clone(),
        memory_bytes,
        limits: trace.header.limits,
        checking: setup.checking,
        filling: way.zip(setup.pattern).map(|(way, what)| Filling { way, what }),
    };
    let pass = match setup.machine.simulated() {
        Some(machine) => simulated_pass(machine, seed, arm.cpus, plan, &settings),
        None => pass_natively(arm.cpus, plan, &settings),
    };
    pass.map_err(failed)
}

fn conclude(arms: Vec<ReplayArmResult>, plan: Plan, setup: &ReplaySetup, memory_bytes: usize) -> ReplayOutcome {
    let was_interrupted = arms.iter().any(|arm| arm.passes.len() < setup.runs);
    let passes = arms.iter().map(|arm| arm.passes.len() as u64).sum();
    let totals = plan.totals;
    let mut checks = Checks {
        events: totals.events,
        faults_recorded: totals.faults,
        faults_replayed: arms.first().and_then(|arm| arm.passes.first()).map_or(0, |pass| pass.tally.faulted),
        strict: totals.strict,
        imposed: totals.imposed.iter().map(|(reason, count)| (reason.name(), count * passes)).collect(),
        applied: totals.applied,
        faults_applied: totals.faults_applied,
        skipped: totals.skipped.iter().map(|(&kind, count)| (kind, count * passes)).collect(),
        lost: totals.lost,
        passes,
        ..Checks::default()
    };
    arms.iter().for_each(|arm| arm.passes.iter().for_each(|pass| checks.add(&arm.arm, pass)));
    ReplayOutcome { arms, checks, has_shared_spaces: plan.has_shared_spaces, totals, memory_bytes, was_interrupted }
}

impl Checks {
    fn add(&mut self, arm: &ReplayArm, pass: &PassResult) {
        self.mismatches += pass.tally.mismatches;
        self.classified.iter_mut().zip(pass.tally.classified).for_each(|(count, more)| *count += more);
        let first = pass.tally.first_mismatches.iter().map(|mismatch| (arm.clone(), mismatch.clone()));
        self.first_mismatches.extend(first);
    }
}
