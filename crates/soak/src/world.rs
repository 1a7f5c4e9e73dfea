//! The instance of a run.

use faultless_phys::{Kind, Memory, Options};
use faultless_platform::native::{HostRegion, Native};
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::{Vm, check};
use std::pin::Pin;

/// An instance with poisoned frames.
pub(crate) struct World<D: Design<Native>> {
    pub vm: Pin<Box<Vm<Native, D>>>,
}

impl<D: Design<Native>> World<D> {
    pub fn new(region: &HostRegion, nr_cpus: usize, semaphore: GenerationOf<Native, D>) -> Self {
        let options = Options { poison: true, ..Options::default() };
        // SAFETY: the region is zeroed, ours alone, and outlives the world.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), nr_cpus, options) }.expect("large enough");
        Self { vm: Vm::with_semaphore(memory, semaphore).expect("a frame for the zero page") }
    }

    /// Checks every invariant while no thread uses the instance.
    pub fn check(&self, when: &str) {
        // SAFETY: the threads wait at a barrier, or have ended.
        unsafe { check::invariants(&self.vm) }.unwrap_or_else(|broken| panic!("{when}: {broken}"));
    }

    /// Checks that nothing but what belongs to the instance itself is left.
    pub fn check_frames(&self) {
        self.vm.flush();
        self.check("invariants at the end");
        let audit = self.vm.memory().audit();
        let nr_left = [Kind::Anonymous, Kind::Table, Kind::Reference].map(|kind| audit.nr_of(kind));
        assert_eq!(nr_left, [0; 3], "frames were lost: {audit}");
    }
}
