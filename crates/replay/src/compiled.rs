//! Passes on the platforms that most callers want, compiled here once for every design.
//!
//! # Guarantee
//! Whoever calls [`ReplayPlatform::replay`] compiles no design: [`pass`] is generic, and each crate that calls it would
//! compile all of them again.

use faultless_machine::watch::{Simulated, Watched};
use faultless_plan::Plan;
use faultless_platform::native::Native;
use faultless_platform::{Threads, Usual};

use super::{PassResult, ReplayError, Settings, pass};

/// A platform on which a plan can be replayed without compiling anything.
pub trait ReplayPlatform: Threads<Embedding = Usual> {
    /// Replays a plan once, on a machine of the platform; as [`pass`].
    fn replay(
        machine: &Self::Machine,
        nr_cpus: usize,
        plan: &Plan,
        settings: &Settings,
    ) -> Result<PassResult, ReplayError>;
}

macro_rules! compiled {
    ($($platform:ty),+) => {
        $(impl ReplayPlatform for $platform {
            #[inline(never)]
            fn replay(
                machine: &Self::Machine,
                nr_cpus: usize,
                plan: &Plan,
                settings: &Settings,
            ) -> Result<PassResult, ReplayError> {
                pass::<Self>(machine, nr_cpus, plan, settings)
            }
        })+
    };
}

compiled!(Native, Watched<Native>, Simulated);
