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
//! `instance` sets a virtual memory up; `vm_calls` makes its calls, and is the one place that knows them; `worker`
//! takes a thread's steps; `pass` brings them together, `compiled` for the platforms that most callers want. `host`
//! does all that with the host's kernel, `relocation` finds places for the recorded addresses there. [`experiment`]
//! runs passes under several designs, in turn; [`report`] says what came out. What a pass is asked for and what it
//! returns is in a crate of its own, `pass`.

#![deny(unsafe_code)]

mod compiled;
mod content;
pub mod experiment;
mod host;
mod host_calls;
mod instance;
mod objects;
mod pass;
mod relocation;
pub mod report;
mod vm_calls;
mod worker;

use faultless_platform::native;
use faultless_platform::{Threads, Usual};
use faultless_sim::{Machine, Spec, isolate};
use faultless_vm::registry::with_design;

use faultless_machine::simulated::with_rerun;
use faultless_machine::watch;
use faultless_pass::ReplayMachine;
use faultless_plan::Plan;

pub use compiled::AllDesigns;
pub use faultless_pass::{Checking, Mismatch, PassResult, ReplayError, Settings, Tally, patterned};
pub use host::pass as pass_on_host;

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
        let machine = watch::Machine::unwatched(machine);
        compiled::pass_on(ReplayMachine::Simulated(&machine), nr_cpus, plan, settings)
    });
    result.unwrap_or_else(|failure| Err(ReplayError::Simulation(with_rerun(failure, seed))))
}

/// Replays a plan once, on so many CPU slots of this machine.
pub fn pass_natively(nr_cpus: usize, plan: &Plan, settings: &Settings) -> Result<PassResult, ReplayError> {
    compiled::pass_on(ReplayMachine::Native(&native::Machine::new(nr_cpus)), nr_cpus, plan, settings)
}

/// Replays a plan once, on a machine of the platform `P`. The caller compiles it for every design; for the platforms of
/// [`ReplayMachine`] that is done here.
pub fn pass<P: Threads<Embedding = Usual>>(
    machine: &P::Machine,
    nr_cpus: usize,
    plan: &Plan,
    settings: &Settings,
) -> Result<PassResult, ReplayError> {
    let visitor = pass::Visitor::<P> { machine, nr_cpus, plan, settings };
    with_design(&settings.design, &settings.semaphore, visitor).unwrap_or_else(|error| Err(ReplayError::Unknown(error)))
}
