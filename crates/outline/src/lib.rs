//! A recorded program in outline: what its threads did over time and who waited for whom, and what its address spaces
//! held.
//!
//! # Guarantee
//! * I1 an outline of a trace of any length has a few hundred kilobytes of JSON at most: time is cut into
//!   [`threads::COLUMNS`] columns, threads and spaces beyond the busiest are left out, and what was left out is counted
//! * I2 nothing is invented: without pace data no thread is said to wait
//!
//! # Rooms
//! [`areas`] follows what is mapped; [`threads`] and [`spaces`] draw, [`calls`] counts.

#![forbid(unsafe_code)]

pub mod areas;
pub mod calls;
mod columns;
pub mod spaces;
pub mod threads;

use faultless_trace::Trace;
use serde_json::{Value, json};

/// The key of an outline in a result set.
pub const OUTLINE: &str = "outline";

/// Returns a trace's outline, for a page.
pub fn outline(trace: &Trace) -> Value {
    json!({
        "duration_ns": trace.events.last().map_or(0, |event| event.time_ns),
        "events": trace.events.len(),
        "cpus": trace.header.machine.cpus,
        "threads": threads::outline(trace),
        "spaces": spaces::outline(trace),
    })
}
