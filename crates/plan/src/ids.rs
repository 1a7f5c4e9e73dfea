//! Numbers that name things of a plan.

/// The place of an event in the trace's list.
pub type EventIndex = u32;

/// The place of an address space in the plan's list.
pub type SpaceIndex = u32;

/// The place of an object (a file, or shared memory) in the plan's list.
pub type ObjectIndex = u32;

/// The place of a step in its thread's program.
pub type StepIndex = u32;

/// The place of a gate: a step that opens it, and the threads that wait for that.
pub type GateIndex = u32;

/// No event, no step.
pub const NONE: u32 = u32::MAX;
