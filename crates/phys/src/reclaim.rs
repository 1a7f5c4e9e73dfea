//! Asking those who use memory for some of it back.

use crate::error::ZoneKind;
use faultless_platform::NodeSet;

/// What an allocation could not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The zone.
    pub zone: ZoneKind,
    /// A block of `1 << order` frames.
    pub order: u8,
    /// The NUMA nodes that it may come from; frames of others are of no use.
    pub nodes: NodeSet,
}

/// Somebody who can free frames when there are none left.
pub trait Reclaim {
    /// Frees frames, at once or deferred, and returns about how many; 0 means that there is nothing more to free.
    ///
    /// Called by an allocation that may sleep, with no lock held. It doesn't allocate by way of itself.
    fn reclaim(&self, wanted: Wanted) -> usize;
}

/// Nothing can be reclaimed.
#[derive(Clone, Copy, Debug)]
pub struct NoReclaim;

impl Reclaim for NoReclaim {
    fn reclaim(&self, _wanted: Wanted) -> usize {
        0
    }
}
