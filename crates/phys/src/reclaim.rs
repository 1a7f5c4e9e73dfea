//! Asking users of memory to give some back.

use crate::error::ZoneKind;
use faultless_platform::NodeSet;

/// What an allocation could not get: [`Reclaim::reclaim`] is called with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The zone.
    pub zone: ZoneKind,
    /// A block of `1 << order` frames.
    pub order: u8,
    /// The NUMA nodes that it may come from; frames of others are of no use.
    pub nodes: NodeSet,
}

/// Somebody who can free frames when there are none left.
///
/// ```
/// use faultless_phys::{Memory, NoReclaim, Options, Pfn, Reclaim, Shortage};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let (machine, region) = (Machine::new(2), HostRegion::reserve(8 << 20)?);
/// # // SAFETY: the region is ours and outlives the memory.
/// # let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default())? };
/// use std::sync::Mutex;
///
/// /// Frames that can be had again: a cache.
/// struct Cache<'a>(&'a Memory<Native>, Mutex<Vec<Pfn>>);
/// impl Reclaim for Cache<'_> {
///     fn reclaim(&self, shortage: Shortage) -> usize {
///         let Some(pfn) = self.1.lock().unwrap().pop().filter(|_| shortage.order == 0) else { return 0 };
///         // SAFETY: the frame is the cache's, and nobody reads it any more.
///         unsafe { self.0.free(pfn) };
///         1
///     }
/// }
/// machine.attach(|| {
///     let cache = Cache(&memory, Mutex::new(vec![memory.alloc()?]));
///     while memory.try_alloc().is_ok() {}
///     assert!(memory.alloc_or_reclaim(&NoReclaim).is_err());
///     assert!(memory.alloc_or_reclaim(&cache).is_ok());
///     Ok::<(), faultless_phys::OutOfFrames>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Reclaim {
    /// Frees frames, at once or deferred, and returns about how many; 0 means that there is nothing more to free.
    ///
    /// Called by an allocation that may sleep, with no lock held. It doesn't allocate by way of itself.
    fn reclaim(&self, shortage: Shortage) -> usize;
}

/// Nothing can be reclaimed.
#[derive(Clone, Copy, Debug)]
pub struct NoReclaim;

impl Reclaim for NoReclaim {
    fn reclaim(&self, _shortage: Shortage) -> usize {
        0
    }
}
