//! Workloads under several designs: runs in turn, and what they say together.
//!
//! # Guarantee
//! Every run counts that ended in order; none is dropped or repeated. The arms of one run stand next to each other in
//! time, in an order that the seed draws anew for each run. An arm that fails stops, and the others go on. If somebody
//! ends the session, the run at work counts for what it has done, and an arm that came no further than to warm up has
//! that as its run.

use std::fmt;

use faultless_linux::space::has_interrupt;
use faultless_platform::MAX_CPUS;
use faultless_platform::native::{Machine, Native};
use faultless_vm::PlacementPolicy;
use faultless_workloads::Spec;

use super::host::once as once_on_host;
use super::job::{Job, Length, MeasureError, Run, spaces_of};
use super::simulated::once_simulated;
use super::site::{HostSite, Pinning};
use super::vm::{most_areas, once};
use crate::spread::Draws;
use faultless_machine::designs::{HOST_DESIGN, placement_beneath, semaphores_beneath};
use faultless_machine::session::{in_turns, under_seeds};
use faultless_machine::simulated::{MachineChoice, MachineError, Spec as MachineSpec, in_parallel};
use faultless_pass::Replayer;
use faultless_results::Mode;

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct BenchSetup {
    /// The machine.
    pub machine: MachineChoice,
    /// How many simulations run at once.
    pub jobs: usize,
    /// Workloads with their flags.
    pub specs: Vec<Spec>,
    /// Designs by name; [`HOST_DESIGN`] is the host's kernel.
    pub designs: Vec<String>,
    /// Semaphores by name; none: each design has its own.
    pub semaphores: Vec<String>,
    /// CPUs; one arm for each number.
    pub cpus: Vec<usize>,
    /// Whether workers share an address space.
    pub mode: Mode,
    /// Runs of each arm that count.
    pub runs: usize,
    /// Runs of each arm before that.
    pub warm_ups: usize,
    /// How long a run is.
    pub length: Length,
    /// Draws the order of the arms; on a simulated machine the first run's seed.
    pub seed: u64,
    /// Whether workers stay on one CPU each.
    pub pinning: Pinning,
    /// Physical memory of a run; as much as each workload needs unless said.
    pub memory_bytes: Option<usize>,
    /// Where address spaces put mappings; where the design does unless said.
    pub placement: Option<PlacementPolicy>,
    /// Whether to say what the machine could do at most: then one of the numbers of CPUs is 1.
    pub has_ceiling: bool,
    /// Machines as the simulated one may be: one for each run. None: each run has the machine as its file says.
    pub draws: Option<Draws>,
    /// Whether to say which drawn number goes with each result.
    pub has_sensitivity: bool,
    /// Who replays recordings.
    pub replayer: &'static dyn Replayer,
}

/// One way to run one workload.
#[derive(Clone, Debug)]
pub struct BenchArm {
    /// The workload.
    pub spec: Spec,
    /// The design.
    pub design: String,
    /// The semaphore; the host has its own.
    pub semaphore: Option<String>,
    /// CPUs.
    pub cpus: usize,
}

impl BenchArm {
    /// Returns whether both differ in their CPUs alone.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.spec.name, &self.design, &self.semaphore) == (&other.spec.name, &other.design, &other.semaphore)
    }

    /// Returns how its workers share memory: a recording's programs have a space each, whatever was asked for.
    pub fn mode(&self, asked: Mode) -> Mode {
        if self.spec.workload.is_recorded() { Mode::Processes } else { asked }
    }
}

impl fmt::Display for BenchArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spec, design, cpus, .. } = self;
        write!(f, "{} under {design}", spec.name)?;
        self.semaphore.iter().try_for_each(|semaphore| write!(f, " over {semaphore}"))?;
        write!(f, " on {cpus} CPUs")
    }
}

/// An arm's runs, in order.
#[derive(Debug)]
pub struct BenchArmResult {
    /// Which arm.
    pub arm: BenchArm,
    /// What came out, run by run.
    pub runs: Vec<Run>,
    /// The last run that was to warm up.
    warm_up: Option<Run>,
    /// Why the arm has fewer runs than asked for.
    pub error: Option<MeasureError>,
}

/// What came out of a session.
#[derive(Debug)]
pub struct BenchOutcome {
    /// Arm by arm, in the order in which they were asked for.
    pub arms: Vec<BenchArmResult>,
    /// Whether somebody ended it early.
    pub was_interrupted: bool,
}

/// Why a session did not begin.
#[derive(Debug)]
pub enum SessionError {
    /// No arm, or no run.
    Nothing,
    /// So many CPUs can't be.
    Cpus(usize),
    /// The machine does not fit.
    Machine(MachineError),
    /// The host's kernel runs on this machine alone.
    HostOnSimulated {
        /// The simulated machine.
        machine: String,
    },
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(
                f,
                "there is nothing to run: no runs were asked for, or the host's kernel alone has no such call"
            ),
            Self::Machine(error) => write!(f, "{error}"),
            Self::HostOnSimulated { machine } => {
                write!(
                    f,
                    "the design {HOST_DESIGN} is the kernel of this machine: it can't run on {machine}, which is simulated"
                )
            }
            Self::Cpus(cpus) => write!(f, "{cpus} CPUs: a machine has 1 to {MAX_CPUS}"),
        }
    }
}

impl std::error::Error for SessionError {}

/// Makes sure that the host's kernel is not asked to run on a simulated machine.
pub fn check_designs(machine: &MachineChoice, designs: &[String]) -> Result<(), SessionError> {
    match machine.simulated() {
        Some(spec) if designs.iter().any(|design| design == HOST_DESIGN) => {
            Err(SessionError::HostOnSimulated { machine: spec.name().to_owned() })
        }
        _ => Ok(()),
    }
}

impl BenchSetup {
    /// Returns the arms, in the order in which they are reported; none of what the host's kernel doesn't have.
    pub fn arms(&self) -> Vec<BenchArm> {
        let mut arms = Vec::new();
        for (spec, &cpus) in self.specs.iter().flat_map(|spec| self.cpus.iter().map(move |cpus| (spec, cpus))) {
            let can_run = |design: &&String| *design != HOST_DESIGN || spec.settings.refpage.variant.is_known_to_host();
            for design in self.designs.iter().filter(can_run) {
                let arm = |semaphore| BenchArm { spec: spec.clone(), design: design.clone(), semaphore, cpus };
                arms.extend(semaphores_beneath(design, &self.semaphores).into_iter().map(arm));
            }
        }
        arms
    }

    /// Returns where a design's address spaces put mappings.
    pub fn placement_under(&self, design: &str) -> PlacementPolicy {
        placement_beneath(design, self.placement)
    }

    /// Returns how many areas a space may have under this setup, where a workload needs more than is usual.
    pub fn max_map_count(&self, spec: &Spec, cpus: usize) -> Option<u64> {
        let (_, team) = spaces_of(self.mode, spec.nr_workers(cpus));
        most_areas(spec, team)
    }

    fn check(&self) -> Result<(), SessionError> {
        self.machine.check_cpus(&self.cpus).map_err(SessionError::Machine)?;
        check_designs(&self.machine, &self.designs)?;
        match self.cpus.iter().find(|cpus| !(1..=MAX_CPUS).contains(cpus)) {
            Some(&cpus) => Err(SessionError::Cpus(cpus)),
            None if self.runs == 0 || self.arms().is_empty() => Err(SessionError::Nothing),
            None => Ok(()),
        }
    }

    fn job(&self, arm: &BenchArm) -> Job {
        Job {
            spec: arm.spec.clone(),
            design: arm.design.clone(),
            semaphore: arm.semaphore.clone().unwrap_or_default(),
            cpus: arm.cpus,
            mode: self.mode,
            length: self.length,
            memory_bytes: self.memory_bytes,
            placement: self.placement_under(&arm.design),
            replayer: Some(self.replayer),
        }
    }

    /// Runs an arm once on its machine.
    fn run_arm(&self, arm: &BenchArm) -> Result<Run, MeasureError> {
        let job = self.job(arm);
        if arm.design == HOST_DESIGN {
            return once_on_host(&job, self.pinning);
        }
        let site = HostSite::new(self.pinning, arm.cpus);
        once::<Native>(&Machine::new(arm.cpus), &job, &site, &has_interrupt)
    }
}

/// Runs a session; `progress` is told before each run how many were made, and which comes.
pub fn run(setup: &BenchSetup, progress: &dyn Fn(usize, &BenchArm)) -> Result<BenchOutcome, SessionError> {
    setup.check()?;
    if let Some(machine) = setup.machine.simulated() {
        return Ok(run_simulated(setup, machine, progress));
    }
    let arms = setup.arms().into_iter();
    let mut results: Vec<BenchArmResult> = arms.map(|arm| BenchArmResult::of(arm, Vec::new())).collect();
    let turns = in_turns(setup.warm_ups + setup.runs, results.len(), setup.seed);
    for (made, (turn, arm)) in turns.enumerate() {
        let result = &mut results[arm];
        if result.error.is_none() && !has_interrupt() {
            progress(made, &result.arm);
            result.add(setup, turn);
        }
    }
    if has_interrupt() {
        results.iter_mut().filter(|result| result.runs.is_empty()).for_each(BenchArmResult::fall_back);
    }
    Ok(BenchOutcome { arms: results, was_interrupted: has_interrupt() })
}

/// Runs a session on a simulated machine: each arm under each seed, several at once.
fn run_simulated(setup: &BenchSetup, machine: &MachineSpec, progress: &dyn Fn(usize, &BenchArm)) -> BenchOutcome {
    let arms = setup.arms();
    let seeds = (0..setup.runs as u64).map(|run| setup.seed.wrapping_add(run));
    let tasks = under_seeds(arms.len(), seeds);
    let run = |&(arm, seed): &(usize, u64)| {
        let drawn = setup.draws.as_ref().map(|draws| draws.machine(seed.wrapping_sub(setup.seed) as usize));
        let machine = drawn.as_ref().unwrap_or(machine);
        let simulated = once_simulated(machine, &setup.job(&arms[arm]), seed, &has_interrupt);
        simulated.map(|(run, _)| run)
    };
    // Setting up takes most of a short run, and would go on behind an interrupt for all that are left.
    let runs = in_parallel(setup.jobs, &tasks, has_interrupt, run, |done, &(arm, _)| progress(done, &arms[arm]));
    let mut results: Vec<BenchArmResult> = arms.into_iter().map(|arm| BenchArmResult::of(arm, Vec::new())).collect();
    for ((arm, _), run) in tasks.into_iter().zip(runs) {
        results[arm].note(run.unwrap_or(Err(MeasureError::Interrupted)));
    }
    BenchOutcome { arms: results, was_interrupted: has_interrupt() }
}

impl BenchArmResult {
    /// Returns an arm with its runs.
    pub(super) fn of(arm: BenchArm, runs: Vec<Run>) -> Self {
        Self { arm, runs, warm_up: None, error: None }
    }

    /// Keeps a run, or why there is none: the first reason.
    fn note(&mut self, run: Result<Run, MeasureError>) {
        match run {
            Ok(run) => self.runs.push(run),
            Err(MeasureError::Interrupted) => {}
            Err(error) => drop(self.error.get_or_insert(error)),
        }
    }

    fn add(&mut self, setup: &BenchSetup, turn: usize) {
        match setup.run_arm(&self.arm) {
            Ok(run) if turn >= setup.warm_ups => self.runs.push(run),
            Ok(run) => self.warm_up = Some(run),
            Err(MeasureError::Interrupted) => {}
            Err(error) => self.error = Some(error),
        }
    }

    /// Takes what it has for a run.
    fn fall_back(&mut self) {
        self.runs.extend(self.warm_up.take());
    }
}
