//! Traces made by hand, and what a pass over them needs.

#![allow(dead_code, unused_imports, reason = "each test file uses its own part")]

#[path = "../../../plan/tests/support/mod.rs"]
mod story;

use faultless_plan::Plan;
use faultless_replay::{Checking, Settings};
use faultless_trace::Trace;

pub use story::{PAGE, READ, STEP_NS, Story, WRITE, WRITE_PRESENT, planned};

/// Returns what a pass over a plan needs, checked after each step.
pub fn settings(trace: &Trace, plan: &Plan, design: &str, semaphore: &str) -> Settings {
    Settings {
        filling: None,
        design: design.into(),
        semaphore: semaphore.into(),
        memory_bytes: plan.demand.bytes() as usize,
        limits: trace.header.limits,
        checking: Checking::EachStep,
    }
}
