//! Replaying a plan under one design after the other, checked as it goes.
//!
//! # Guarantee
//! * I1 each thread of the plan runs as a thread, on one of as many CPU slots as asked for; one that waits for another
//!   gives its slot up
//! * I2 every step is executed, in the order that its waits demand; each access is made once, and nothing is touched to
//!   make a fault happen
//! * I3 what came out is compared with the plan event by event; what differs is classified by the plan's rules or is a
//!   mismatch, and never dropped
//! * I4 a pass that runs out of memory ends all threads, leaves nothing behind in the instance, and says so
//!
//! # Rooms
//! `instance` sets a virtual memory up; `deeds` makes its calls, and is the one place that knows them; `actor` is a
//! thread's life; `pass` brings them together; `tally` is what came out. `host` does all that with the host's kernel.
//! `patterned` lets mappings start as something else than zeros. [`experiment`] runs passes under several designs, in
//! turn; [`report`] says what came out.

#![deny(unsafe_code)]

mod actor;
mod atlas;
mod content;
mod deeds;
pub mod experiment;
mod host;
mod host_calls;
mod instance;
mod objects;
mod pass;
pub mod patterned;
pub mod report;
mod tally;

use std::fmt;

use faultless_phys::SetupError;
use faultless_platform::native::{self, Native, ReserveError};
use faultless_platform::{StartError, Threads, Usual};
use faultless_sim::{Failure, Machine, Spec, TooManyCpus, isolate};
use faultless_vm::check::Broken;
use faultless_vm::registry::{Unknown, with_design};

use faultless_machine::simulated::with_rerun;
use faultless_machine::watch::{self, Simulated};
use faultless_plan::Plan;

pub use host::pass as pass_on_host;
pub use pass::PassResult;
use patterned::Filling;
pub use tally::{Mismatch, Tally};

/// How to replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The design's name.
    pub design: String,
    /// The semaphore's name.
    pub semaphore: String,
    /// Physical memory, in bytes.
    pub memory_bytes: usize,
    /// The limits that the recorded program had.
    pub limits: faultless_trace::Limits,
    /// How often the instance's invariants are checked.
    pub checking: Checking,
    /// What mappings start as, if not as zeros.
    pub filling: Option<Filling>,
}

/// How often the invariants of the whole instance are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checking {
    /// At the end of a pass.
    #[default]
    AtEnd,
    /// After every step; one thread at a time makes a step then.
    EachStep,
}

/// Why a pass came to no result.
#[derive(Debug)]
pub enum ReplayError {
    /// The design or the semaphore has a name that nobody knows.
    Unknown(Unknown),
    /// The host gave no room for the physical memory.
    Reserve(ReserveError),
    /// The physical memory can't be set up.
    Setup(SetupError),
    /// The physical memory is too small.
    OutOfMemory {
        /// The event that found no frame; nothing during set-up.
        event: Option<u32>,
        /// What was asked for.
        cause: String,
        /// Its size.
        memory_bytes: usize,
        /// What is surely enough.
        enough_bytes: u64,
    },
    /// A thread could not be started.
    Start(StartError),
    /// The host's kernel could not replay it.
    Host(String),
    /// An invariant of the instance does not hold.
    Broken {
        /// After which event; nothing at the end of the pass.
        event: Option<u32>,
        /// Which.
        broken: Broken,
    },
    /// The simulated machine has not so many CPUs.
    TooManyCpus(TooManyCpus),
    /// A panic or a deadlock on the simulated machine.
    Simulation(Failure),
    /// Frames were left over when all spaces and objects had gone.
    Leak {
        /// How many.
        frames: u64,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(Unknown::Design) => write!(f, "there is no such design"),
            Self::Unknown(Unknown::Semaphore) => write!(f, "there is no such semaphore"),
            Self::Reserve(error) => write!(f, "{error}"),
            Self::Setup(error) => write!(f, "{error}"),
            Self::OutOfMemory { event, cause, memory_bytes, enough_bytes } => {
                let place = event.map_or("during set-up".to_owned(), |event| format!("at event {event}"));
                let (have, enough) = (memory_bytes >> 20, enough_bytes.div_ceil(1 << 20));
                write!(f, "{cause} ({place}, of {have} MiB); replay it with --memory {enough}M, which is surely enough")
            }
            Self::Start(error) => write!(f, "{error}"),
            Self::Host(why) => write!(f, "on the host's kernel: {why}"),
            Self::Broken { event: Some(event), broken } => write!(f, "after event {event} {broken}"),
            Self::Broken { event: None, broken } => write!(f, "at the end {broken}"),
            Self::TooManyCpus(error) => write!(f, "{error}"),
            Self::Simulation(failure) => write!(f, "{failure}"),
            Self::Leak { frames } => write!(f, "{frames} frames were not given back at the end"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<SetupError> for ReplayError {
    fn from(error: SetupError) -> Self {
        Self::Setup(error)
    }
}

impl From<ReserveError> for ReplayError {
    fn from(error: ReserveError) -> Self {
        Self::Reserve(error)
    }
}

/// Replays a plan once, on a simulated machine; all chance is decided by `seed`.
pub fn simulated_pass(
    machine: &Spec,
    seed: u64,
    nr_cpus: usize,
    plan: &Plan,
    settings: &Settings,
) -> Result<PassResult, ReplayError> {
    let result = isolate(|| {
        let machine = Machine::new(machine, nr_cpus, seed).map_err(ReplayError::TooManyCpus)?;
        pass::<Simulated>(&watch::Machine::unwatched(machine), nr_cpus, plan, settings)
    });
    result.unwrap_or_else(|failure| Err(ReplayError::Simulation(with_rerun(failure, seed))))
}

/// Replays a plan once, on so many CPU slots of this machine.
///
/// Compiled here once for every design, where a caller of [`pass`] compiles them all again.
pub fn pass_natively(nr_cpus: usize, plan: &Plan, settings: &Settings) -> Result<PassResult, ReplayError> {
    pass::<Native>(&native::Machine::new(nr_cpus), nr_cpus, plan, settings)
}

/// Replays a plan once, on a machine of the platform `P`.
pub fn pass<P: Threads<Embedding = Usual>>(
    machine: &P::Machine,
    nr_cpus: usize,
    plan: &Plan,
    settings: &Settings,
) -> Result<PassResult, ReplayError> {
    let visitor = pass::Visitor::<P> { machine, nr_cpus, plan, settings };
    with_design(&settings.design, &settings.semaphore, visitor).unwrap_or_else(|error| Err(ReplayError::Unknown(error)))
}
