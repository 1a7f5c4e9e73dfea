//! How to replay, and why a pass came to no result.

use std::fmt;

use faultless_phys::SetupError;
use faultless_platform::StartError;
use faultless_platform::native::ReserveError;
use faultless_results::exact_bytes;
use faultless_sim::{Failure, TooManyCpus};
use faultless_vm::check::Broken;
use faultless_vm::registry::Unknown;

use super::patterned::Filling;

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
            Self::Unknown(name) => write!(f, "{name}"),
            Self::Reserve(error) => write!(f, "{error}"),
            Self::Setup(error) => write!(f, "{error}"),
            Self::OutOfMemory { event, cause, memory_bytes, enough_bytes } => {
                let place = event.map_or("during set-up".to_owned(), |event| format!("at event {event}"));
                let (have, enough) = (exact_bytes(*memory_bytes as u64), enough_bytes.div_ceil(1 << 20));
                write!(f, "{cause} ({place}, of {have}); replay it with --memory {enough}M, which is surely enough")
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
