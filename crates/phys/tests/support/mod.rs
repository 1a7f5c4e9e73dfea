//! A small memory on a machine of its own.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod shaky;

use faultless_phys::{Memory, Options, OwnedPage, Pfn};
use faultless_platform::native::HostRegion;
use faultless_platform::{Nodes, PAGE_BYTES, Platform};

pub struct World<P: Platform> {
    pub memory: Memory<P>,
    region: HostRegion,
}

impl<P: Platform> World<P> {
    /// A memory of `nr_frames` frames to allocate, and those of their metadata.
    pub fn new(nr_frames: usize, nr_cpus: usize, options: Options) -> Self {
        Self::with_nodes(nr_frames, nr_cpus, &Nodes::one(), options)
    }

    /// As `new`, the frames divided among nodes.
    pub fn with_nodes(nr_frames: usize, nr_cpus: usize, nodes: &Nodes, options: Options) -> Self {
        let len_bytes = nr_pages(nr_frames) * PAGE_BYTES;
        let region = HostRegion::reserve(len_bytes).expect("the host has a few MiB");
        // SAFETY: the region is new, and is dropped after the memory.
        let memory = unsafe { Memory::with_nodes(region.base(), len_bytes, nr_cpus, nodes, options) }.expect("it fits");
        assert_eq!((memory.nr_frames(), memory.nr_free()), (nr_frames, nr_frames));
        Self { memory, region }
    }

    /// Takes every frame, without sleeping.
    pub fn take_all(&self) -> Vec<Pfn> {
        std::iter::from_fn(|| self.memory.try_alloc().ok()).collect()
    }

    /// The metadata of a frame that the test has.
    pub fn owned(&self, pfn: Pfn) -> OwnedPage<'_, P> {
        // SAFETY: the tests allocate what they ask for.
        unsafe { self.memory.page(pfn).owned() }
    }

    pub fn free_all(&self, frames: impl IntoIterator<Item = Pfn>) {
        for pfn in frames {
            // SAFETY: the tests own what they free and use it no more.
            unsafe { self.memory.free(pfn) };
        }
    }
}

/// As many pages as hold `nr_frames` frames and their metadata.
pub fn nr_pages(nr_frames: usize) -> usize {
    (nr_frames..).find(|all| all - all.div_ceil(64) == nr_frames).expect("numbers go on")
}

/// Poison on, lists and counts so narrow that rare paths are common.
pub fn narrow() -> Options {
    Options { poison: true, refcount_bits: 4, list_high: 4, list_batch: 2 }
}

/// Numbers that look random, the same for the same seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}
