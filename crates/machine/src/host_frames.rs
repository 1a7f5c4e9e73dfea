//! A virtual memory for one run: host memory, frames, and a machine's threads to set it up with.
//!
//! # Guarantee
//! Host memory outlives the frames made from it, as long as the caller keeps the [`HostFrames`] longer than the memory.

use faultless_phys::{Memory, Options, SetupError};
use faultless_platform::native::{HostRegion, ReserveError};
use faultless_platform::{Platform, Threads};
use faultless_sync::SpinMutex;

/// Host memory that a run's frames live in.
pub struct HostFrames {
    region: HostRegion,
}

impl HostFrames {
    /// Reserves host memory.
    pub fn reserve(bytes: usize) -> Result<Self, ReserveError> {
        Ok(Self { region: HostRegion::reserve(bytes)? })
    }

    /// Divides the memory into frames, and those among the machine's NUMA nodes, where it puts them.
    ///
    /// Called once for such memory, which outlives the memory and all that is made from it.
    #[allow(unsafe_code, reason = "the one place where frames begin")]
    pub fn memory<P: Threads>(&self, machine: &P::Machine, nr_cpus: usize) -> Result<Memory<P>, SetupError> {
        let (base, len_bytes, nodes) = (self.region.base(), self.region.len_bytes(), P::nodes(machine));
        // SAFETY: the region is fresh, so zero, and used by this memory alone; callers keep it until the memory has
        // gone.
        let memory = unsafe { Memory::with_nodes(base, len_bytes, nr_cpus, &nodes, Options::default())? };
        if let Some(zone) = P::high_zone(machine, base.as_ptr(), len_bytes) {
            memory.divide(zone);
        }
        memory.for_each_place(|node, start, len_bytes| P::place(machine, node, start, len_bytes));
        Ok(memory)
    }
}

/// Touches so many frames and gives them back, so that the host's own faults are not measured.
#[allow(unsafe_code, reason = "frames are given back by their owner")]
pub fn warm<P: Platform>(memory: &Memory<P>, nr_frames: usize) {
    let frames: Vec<_> = (0..nr_frames).map_while(|_| memory.try_alloc_zeroed().ok()).collect();
    for pfn in frames.into_iter().rev() {
        // SAFETY: allocated above, and never used since.
        unsafe { memory.free(pfn) };
    }
}

/// Runs `act` on a slot of the machine, by itself.
pub fn alone<P: Threads, R: Send>(machine: &P::Machine, act: impl FnOnce() -> R + Send) -> R {
    let (act, result) = (SpinMutex::<P, _>::new(Some(act)), SpinMutex::<P, _>::new(None));
    P::run(machine, 1, &|_| {
        P::enter();
        let taken = act.lock().take();
        let value = taken.map(|act| act());
        *result.lock() = value;
        P::leave();
    });
    result.into_inner().expect("the thread ran, or its panic was passed on")
}
