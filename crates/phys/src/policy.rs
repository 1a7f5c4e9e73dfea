//! Which node a frame should come from, and what is known of how often it does.
//!
//! The words are Linux's: the policies of `set_mempolicy(2)`, the counters of `numastat(8)`.

use faultless_platform::{NodeSet, Nodes};

/// Which nodes serve an allocation, and in which order.
///
/// ```
/// use faultless_phys::{Memory, Options, Policy};
/// use faultless_platform::native::{HostRegion, Machine, Native};
/// use faultless_platform::{NodeSet, Nodes};
///
/// let nodes = Nodes::new(2, |cpu| cpu % 2, |_, _| 20);
/// let (machine, region) = (Machine::with_nodes(2, nodes.clone()), HostRegion::reserve(4 << 20)?);
/// // SAFETY: the region is ours and outlives the memory.
/// let memory = unsafe {
///     Memory::<Native>::with_nodes(region.base(), region.len_bytes(), 2, &nodes, Options::default())?
/// };
/// machine.attach(|| {
///     let far = memory.alloc_by(Policy::Bind { nodes: NodeSet::of([1]) })?;
///     assert_eq!((memory.node_of(memory.alloc()?), memory.node_of(far)), (0, 1));
///     let round = [0, 1, 2].map(|turn| memory.alloc_by(Policy::Interleave { nodes: NodeSet::ALL, turn }));
///     assert!(round.map(|pfn| memory.node_of(pfn.expect("plenty"))) == [0, 1, 0]);
///     Ok::<(), faultless_phys::OutOfFrames>(())
/// })?;
/// assert_eq!((memory.node_stats(0).nr_hits, memory.node_stats(1).nr_hits), (3, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The CPU's own node first, then the others, nearest first.
    #[default]
    Local,
    /// The node whose turn it is, then the others, of the set or not, nearest to that one first. Of a set of `n` nodes,
    /// turn `t` is that of the `t % n`-th: a caller that counts turns, by allocation or by page of an area, spreads
    /// over all. With an empty set, as `Local`.
    Interleave {
        /// The nodes that take turns.
        nodes: NodeSet,
        /// Whose turn it is.
        turn: u64,
    },
    /// The nodes of the set alone, nearest to the CPU first. With no node that the memory has, nothing is ever found.
    Bind {
        /// The nodes that may serve it.
        nodes: NodeSet,
    },
}

/// Nodes that may serve an allocation, and the one that should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) preferred: usize,
    pub(crate) allowed: NodeSet,
}

impl Policy {
    /// Returns the nodes that may serve.
    #[inline]
    pub(crate) fn allowed(self) -> NodeSet {
        match self {
            Self::Local | Self::Interleave { .. } => NodeSet::ALL,
            Self::Bind { nodes } => nodes,
        }
    }

    /// Returns what the policy means on a CPU of node `here`, among the nodes that there are.
    pub(crate) fn choose(self, here: usize, nodes: &Nodes) -> Choice {
        match self {
            Self::Local => Choice { preferred: here, allowed: NodeSet::ALL },
            Self::Interleave { nodes: set, turn } => {
                let mut taking_turns = (0..nodes.len()).filter(|&node| set.contains(node));
                let nr_turns = taking_turns.clone().count().max(1) as u64;
                let preferred = taking_turns.nth((turn % nr_turns) as usize).unwrap_or(here);
                Choice { preferred, allowed: NodeSet::ALL }
            }
            Self::Bind { nodes: allowed } => {
                let nearest = nodes.by_distance(here).find(|&node| allowed.contains(node));
                Choice { preferred: nearest.unwrap_or(here), allowed }
            }
        }
    }
}

/// What is known of a node, for reports: [`Memory::node_stats`](crate::Memory::node_stats) returns it. Counts of allocations, of single frames and of blocks alike.
///
/// Exact while nobody allocates or frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Frames that the node has.
    pub nr_frames: usize,
    /// Those that are free.
    pub nr_free: usize,
    /// Allocations that wanted this node and got a frame of it.
    #[doc(alias = "numa_hit")]
    pub nr_hits: u64,
    /// Allocations that got a frame of this node and wanted another one.
    #[doc(alias = "numa_miss")]
    pub nr_misses: u64,
    /// Allocations that wanted this node and got a frame of another one.
    #[doc(alias = "numa_foreign")]
    pub nr_foreign: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_prefers_what_it_says() {
        let nodes = Nodes::new(3, |cpu| cpu % 3, |from, to| 10 * from.abs_diff(to) as u8 + 10);
        let preferred = |policy: Policy, here| policy.choose(here, &nodes).preferred;
        assert_eq!(Policy::Local.choose(2, &nodes), Choice { preferred: 2, allowed: NodeSet::ALL });
        let outer = NodeSet::of([0, 2, 40]);
        let turns: [usize; 4] =
            core::array::from_fn(|turn| preferred(Policy::Interleave { nodes: outer, turn: turn as u64 }, 1));
        assert_eq!(turns, [0, 2, 0, 2], "a node that is not there has no turn");
        assert_eq!(preferred(Policy::Interleave { nodes: NodeSet::default(), turn: 5 }, 1), 1);
        let bound = Policy::Bind { nodes: NodeSet::of([0, 1]) };
        assert_eq!(bound.choose(2, &nodes), Choice { preferred: 1, allowed: NodeSet::of([0, 1]) });
        let nowhere = Policy::Bind { nodes: NodeSet::of([63]) };
        assert!(!nowhere.choose(1, &nodes).allowed.contains(1));
    }
}
