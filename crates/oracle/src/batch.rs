//! Sequences on their way to the VM, and the platforms on which it runs them.

use super::world::Conditions;
use crate::kernel::{Answer, NoAnswer, Sequence};
use faultless_platform::native::{Machine, Native};
use faultless_platform::watched::{self, Watched};
use faultless_platform::{Threads, Usual};

/// Sequences with what the kernel made of them.
pub struct Batch {
    /// The sequences.
    pub sequences: Vec<Sequence>,
    /// The kernel's answers.
    pub answers: Vec<Result<Answer, NoAnswer>>,
    /// Its answers where anonymous memory stands in place of reference areas, for sequences that have some.
    pub twins: Vec<Option<Answer>>,
    /// Under which conditions.
    pub conditions: Conditions,
    /// When the invariants are checked.
    pub checking: Checking,
    /// Asked after each operation: whether whoever waits for the report has had enough.
    pub is_over: fn() -> bool,
}

/// When the invariants are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checking {
    /// After each operation.
    EachOperation,
    /// When a sequence ends.
    EachSequence,
    /// When a batch ends.
    EachBatch,
}

/// A platform whose machines any thread may attach to.
pub(super) trait TestPlatform: Threads<Embedding = Usual> {
    /// Runs `act` on the calling thread, on a CPU of the machine.
    fn attach<R>(machine: &Self::Machine, act: impl FnOnce() -> R) -> R;
}

impl TestPlatform for Native {
    fn attach<R>(machine: &Machine, act: impl FnOnce() -> R) -> R {
        machine.attach(act)
    }
}

/// Where memory has no addresses.
pub(super) type Mapped = Watched<Native>;

impl TestPlatform for Mapped {
    fn attach<R>(machine: &watched::Machine<Native>, act: impl FnOnce() -> R) -> R {
        machine.attach(act)
    }
}
