//! NUMA nodes: which CPU belongs to which part of memory, and how far the parts are from each other.
//!
//! # Guarantee
//! Nodes are numbered 0 to [`Nodes::len`] - 1; every CPU belongs to one. A description never changes: memory is set up
//! with it, and a platform that charges for remote memory is told by [`Threads::place`](crate::Threads::place) which
//! addresses are whose.
//!
//! Distances are relative, as in the ACPI specification's table of them (SLIT, section 5.2.17): 10 to a node itself,
//! 20 for twice the time.

use crate::MAX_CPUS;

/// The largest number of nodes that a machine may have.
pub const NODES_MAX: usize = 64;

/// The distance of a node to itself.
pub const DISTANCE_LOCAL: u8 = 10;

/// A set of nodes by number, 0 to [`NODES_MAX`] - 1.
///
/// ```
/// use faultless_platform::NodeSet;
/// let some = NodeSet::of([0, 3]);
/// assert!(some.contains(3) && !some.contains(1) && some.iter().eq([0, 3]));
/// assert_eq!((some.len(), some.and(NodeSet::of([3, 5]))), (2, NodeSet::of([3])));
/// assert!(NodeSet::ALL.contains(63) && NodeSet::default().is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(u64);

impl NodeSet {
    /// Every node that a machine can have.
    pub const ALL: Self = Self(u64::MAX);

    /// Returns the set of some nodes.
    ///
    /// # Panics
    /// If a number is [`NODES_MAX`] or more.
    pub fn of(nodes: impl IntoIterator<Item = usize>) -> Self {
        nodes.into_iter().fold(Self(0), |set, node| {
            assert!(node < NODES_MAX, "node {node}: a machine has at most {NODES_MAX}");
            Self(set.0 | 1 << node)
        })
    }

    /// Says whether a node is in the set.
    #[inline]
    pub const fn contains(self, node: usize) -> bool {
        node < NODES_MAX && self.0 >> node & 1 != 0
    }

    /// Says whether no node is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns how many nodes are in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the nodes that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Visits the nodes, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        (0..NODES_MAX).filter(move |&node| self.contains(node))
    }
}

/// The nodes of a machine.
///
/// ```
/// use faultless_platform::{DISTANCE_LOCAL, NODES_MAX, Nodes};
/// let nodes = Nodes::new(2, |cpu| cpu % 2, |_, _| 21);
/// assert_eq!((nodes.len(), nodes.of_cpu(3), nodes.distance(0, 0), nodes.distance(0, 1)), (2, 1, 10, 21));
/// assert!(nodes.by_distance(1).eq([1, 0]));
/// assert!(nodes.len() <= NODES_MAX && nodes.distance(1, 1) == DISTANCE_LOCAL);
/// assert_eq!(Nodes::one().len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    nr_nodes: usize,
    of_cpu: [u8; MAX_CPUS],
    distances: [[u8; NODES_MAX]; NODES_MAX],
}

impl Nodes {
    /// Returns the description of a machine whose memory is equally far from all CPUs.
    pub fn one() -> Self {
        Self::new(1, |_| 0, |_, _| DISTANCE_LOCAL)
    }

    /// Returns `nr_nodes` nodes; `node_of` says which one a CPU is of, `distance` how far one is from another, at
    /// least [`DISTANCE_LOCAL`].
    ///
    /// # Panics
    /// If there are no nodes or more than [`NODES_MAX`], or a CPU is of none of them.
    pub fn new(nr_nodes: usize, node_of: impl Fn(usize) -> usize, distance: impl Fn(usize, usize) -> u8) -> Self {
        assert!((1..=NODES_MAX).contains(&nr_nodes), "{nr_nodes} nodes: a machine has 1 to {NODES_MAX}");
        let mut nodes = Self { nr_nodes, of_cpu: [0; MAX_CPUS], distances: [[DISTANCE_LOCAL; NODES_MAX]; NODES_MAX] };
        for (cpu, place) in nodes.of_cpu.iter_mut().enumerate() {
            let node = node_of(cpu);
            assert!(node < nr_nodes, "CPU {cpu} is of node {node}, and there are {nr_nodes}");
            *place = node as u8;
        }
        for from in 0..nr_nodes {
            for to in (0..nr_nodes).filter(|&to| to != from) {
                nodes.distances[from][to] = distance(from, to).max(DISTANCE_LOCAL);
            }
        }
        nodes
    }

    /// Returns how many nodes there are; at least one.
    #[allow(clippy::len_without_is_empty, reason = "a machine has a node")]
    pub fn len(&self) -> usize {
        self.nr_nodes
    }

    /// Returns the node of a CPU.
    ///
    /// # Panics
    /// If `cpu` is [`MAX_CPUS`] or more: no machine hands out such a number.
    pub fn of_cpu(&self, cpu: usize) -> usize {
        usize::from(self.of_cpu[cpu])
    }

    /// Returns how far a node's CPUs are from another's memory.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn distance(&self, from: usize, to: usize) -> u8 {
        assert!(from.max(to) < self.nr_nodes, "node {}: there are {}", from.max(to), self.nr_nodes);
        self.distances[from][to]
    }

    /// Visits the nodes, nearest first; of two that are equally far the one that comes next by number, so that not all
    /// fall back to the same one.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn by_distance(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        assert!(from < self.nr_nodes, "node {from}: there are {}", self.nr_nodes);
        let rank = move |node: usize| {
            let is_other = node != from;
            let steps = (node + self.nr_nodes - from) % self.nr_nodes;
            (is_other, self.distance(from, node), steps)
        };
        let next = move |last: Option<usize>| {
            (0..self.nr_nodes)
                .filter(|&node| last.is_none_or(|last| rank(node) > rank(last)))
                .min_by_key(|&node| rank(node))
        };
        core::iter::successors(next(None), move |&last| next(Some(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_nearest_comes_first_and_equals_go_round() {
        // Two pairs of nodes: the other of a pair is nearer than the other pair.
        let nodes = Nodes::new(4, |cpu| cpu / 8 % 4, |from, to| if from / 2 == to / 2 { 16 } else { 32 });
        let order = |from| nodes.by_distance(from).collect::<Vec<_>>();
        assert_eq!((order(0), order(1)), (Vec::from([0, 1, 2, 3]), Vec::from([1, 0, 2, 3])));
        assert_eq!((order(2), order(3)), (Vec::from([2, 3, 0, 1]), Vec::from([3, 2, 0, 1])));
        let even = Nodes::new(3, |_| 2, |_, _| 20);
        assert!(even.by_distance(1).eq([1, 2, 0]), "not all fall back to node 0");
    }

    #[test]
    fn nodes_of_both_sets_are_those_that_neither_lacks() {
        let both = NodeSet::of([0, 3, 63]).and(NodeSet::of([3, 5, 63]));
        assert_eq!((both, both.len()), (NodeSet::of([3, 63]), 2));
        assert!(NodeSet::of([0]).and(NodeSet::of([1])).is_empty());
    }

    #[test]
    fn a_distance_below_the_local_one_is_raised() {
        assert_eq!(Nodes::new(2, |_| 0, |_, _| 0).distance(1, 0), DISTANCE_LOCAL);
    }

    #[test]
    #[should_panic(expected = "CPU 5 is of node 2, and there are 2")]
    fn a_cpu_of_no_node_is_refused() {
        Nodes::new(2, |cpu| if cpu == 5 { 2 } else { 0 }, |_, _| 20);
    }
}
