//! A virtual memory for one pass: host memory, frames, and the limits that the recorded program had.
//!
//! # Guarantee
//! Limits never refuse what Linux allowed: whether a limit was reached is the recording's to say.

use faultless_phys::{Memory, Options};
use faultless_platform::Platform;
use faultless_platform::native::HostRegion;
use faultless_vm::Limits;

use super::ReplayError;
use crate::plan::Plan;

/// Frames are touched before they are used, so that the host's own faults are not measured: at most so many.
const WARMED_FRAMES_MOST: u64 = 128 << 10;

/// Host memory that a pass's frames live in.
pub(super) struct Ground {
    region: HostRegion,
}

impl Ground {
    /// Reserves host memory.
    pub(super) fn reserve(bytes: usize) -> Result<Self, ReplayError> {
        Ok(Self { region: HostRegion::reserve(bytes)? })
    }

    /// Divides the memory into frames.
    ///
    /// Called once for a ground, which outlives the memory and all that is made from it.
    #[allow(unsafe_code, reason = "the one place where frames begin")]
    pub(super) fn memory<P: Platform>(&self, nr_cpus: usize) -> Result<Memory<P>, ReplayError> {
        // SAFETY: the region is fresh, so zero, and used by this memory alone; `pass` keeps it until the memory has gone.
        Ok(unsafe { Memory::new(self.region.base(), self.region.len_bytes(), nr_cpus, Options::default()) }?)
    }
}

/// Touches as many frames as the plan may need, and gives them back.
#[allow(unsafe_code, reason = "frames are given back by their owner")]
pub(super) fn warm<P: Platform>(memory: &Memory<P>, plan: &Plan) {
    let wanted = plan.demand.frames().min(WARMED_FRAMES_MOST) as usize;
    let frames: Vec<_> = (0..wanted).map_while(|_| memory.try_alloc_zeroed().ok()).collect();
    for pfn in frames.into_iter().rev() {
        // SAFETY: allocated above, and never used since.
        unsafe { memory.free(pfn) };
    }
}

/// Returns the limits of every space.
pub(super) fn limits(recorded: &faultless_trace::Limits, plan: &Plan) -> Limits {
    let defaults = Limits::default();
    let lowest = recorded.mmap_min_addr.unwrap_or(defaults.mmap_min_addr);
    Limits {
        max_map_count: u64::MAX,
        mmap_min_addr: lowest.min(plan.lowest_mapped),
        address_space_bytes: u64::MAX,
        stack_bytes: recorded.stack_bytes.unwrap_or(u64::MAX),
        ..defaults
    }
}
