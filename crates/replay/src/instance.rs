//! A virtual memory for one pass: how much of it is touched beforehand, and the limits that the recorded program had.
//!
//! # Guarantee
//! Limits never refuse what Linux allowed: whether a limit was reached is the recording's to say.

use faultless_vm::{Limits, PlacementPolicy};

use faultless_plan::Plan;

/// Frames are touched before they are used, so that the host's own faults are not measured: at most so many.
const WARMED_FRAMES_MOST: u64 = 128 << 10;

/// Returns how many frames to touch before they are used, so that the host's own faults are not measured.
pub(super) fn warmed_frames(plan: &Plan) -> usize {
    plan.demand.frames().min(WARMED_FRAMES_MOST) as usize
}

/// Returns the limits of every space.
pub(super) fn limits(recorded: &faultless_trace::Limits, plan: &Plan) -> Limits {
    let defaults = Limits::default();
    let lowest = recorded.mmap_min_addr.unwrap_or(defaults.mmap_min_addr);
    Limits {
        max_map_count: u64::MAX,
        mmap_min_addr: lowest.min(plan.lowest_mapped),
        address_space_bytes: u64::MAX,
        // A program may raise it.
        stack_bytes: recorded.stack_bytes.unwrap_or(u64::MAX).max(plan.stack_bytes),
        placement: PlacementPolicy::Linux,
        // As the kernel's: after a fork each page's next store faults.
        shared_table_bytes: u64::MAX,
        ..defaults
    }
}
