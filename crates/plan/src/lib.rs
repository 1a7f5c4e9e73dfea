//! From a trace to a plan: what each thread does, what it waits for, and what must come out of it.
//!
//! # Guarantee
//! * I1 every event of the trace is a step, part of one, held by the state from which the replay begins
//!   ([`Totals::applied`]), or counted by kind in [`Totals::skipped`]; scheduling events are left out unless the pace
//!   is replayed
//! * I2 each thread's steps stand in recorded order; across threads the waits keep the recorded order of every conflict
//! * I3 what may differ from the recording, and why, is decided here, from the recording alone
//! * I4 planning takes time in proportion to the events, the pages that calls drop, and the pages that forks copy
//!
//! # Rooms
//! [`space_users`] says which thread uses which address space; [`windows`] when a call takes effect, and `likened`
//! which calls are mmap or munmap in all but name; `races`, `under_way` and `beside_forks` where the order of events is
//! not certain; [`regions`], [`pages`] and [`around`] what is mapped, what faulted and what a fault beside it mapped;
//! [`contents`] what objects hold; [`processes`] says who is who in a trace, and picks out some; [`inherited`] what
//! stood before the first event; [`decode`] what a call does, and `advice` where one stops that is refused; [`classes`]
//! what may differ; [`edges`] who waits for whom; [`files`] adds calls that a recording lacks.

#![deny(unsafe_code)]

mod advice;
pub mod around;
mod beside_forks;
mod build;
mod calls;
pub mod classes;
pub mod contents;
mod contests;
pub mod decode;
pub mod edges;
mod faults;
pub mod files;
pub mod ids;
pub mod inherited;
mod lifecycle;
mod likened;
mod locks;
pub mod memory_calls;
mod pace;
pub mod pages;
mod pending;
pub mod processes;
mod races;
pub mod regions;
mod repeat;
pub mod space;
pub mod space_users;
mod steps;
mod under_way;
mod unseen;
pub mod windows;

use faultless_trace::Trace;

use self::regions::PAGE;
pub use self::steps::{
    Action, Before, CallPlan, Demand, Losses, ObjectPlan, Options, Outcome, Pace, Plan, PlanError, Program, Step,
    Totals, Touch,
};

/// Plans the replay of a trace.
pub fn plan(trace: &Trace, options: Options) -> Result<Plan, PlanError> {
    check(trace, options)?;
    Ok(build::Builder::new(trace, options).build())
}

fn check(trace: &Trace, options: Options) -> Result<(), PlanError> {
    let (events, page_bytes, records) = (trace.events.len(), trace.header.machine.page_size_bytes, trace.header.lost);
    if events >= u32::MAX as usize - 1 {
        return Err(PlanError::TooLong { events });
    }
    if page_bytes != PAGE {
        return Err(PlanError::PageSize { bytes: page_bytes });
    }
    if records > 0 && options.losses == Losses::Refused {
        return Err(PlanError::Lost { records });
    }
    if options.pace == Pace::Recorded && trace.header.pace == faultless_trace::Pace::Absent {
        return Err(PlanError::NoPace);
    }
    Ok(())
}
