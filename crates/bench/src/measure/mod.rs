//! Measuring a workload: the same loop on a virtual memory of any design, on any platform, and on the host's kernel.
//!
//! # Guarantee
//! * I1 the workers work from an instant at which all are ready, for as long as asked for, up to the end of the step in
//!   which that time is over; a rate is what all of them did in that time, of the last steps the part, so that it is
//!   never more than was done, also where workers wait for a CPU
//! * I2 what a run needs before and after its window is not counted: neither operations nor counters nor time; of a run
//!   that goes on until its rates have settled, the rate is that of the settled part, the counters are of its warm-up
//!   too
//! * I3 a run that fails says why and under which circumstances, and leaves nothing behind
//! * I4 what disturbed a run, waiting for a CPU above all, is told with its result
//!
//! # Rooms
//! `drive` is the loop, `course` says when rates have settled; `vm` and `host` are the two grounds it runs on, `site`
//! the machine's threads; `session` runs many in turn.

mod ceiling;
pub(crate) mod compile;
mod course;
mod drive;
mod host;
mod host_space;
mod job;
mod session;
mod simulated;
mod site;
mod vm;

pub use ceiling::{Ceiling, SetBy, ceiling};
pub use course::{AGREEMENT, Settled};
pub use faultless_results::Mode;
pub use faultless_vm::PlacementPolicy;
pub use host::once as once_on_host;
pub use job::{Job, Length, MeasureError, Pages, Run, SIMULATED_NS};
pub use session::{BenchArm, BenchArmResult, BenchOutcome, BenchSetup, SessionError, check_designs, run};
pub(crate) use simulated::begins;
pub use simulated::{SETTLED_AT_MOST_NS, once_simulated, shrunk};
pub use site::{HostSite, NoSite, Pinning, SimulatedSite, Site};
pub use vm::once;
