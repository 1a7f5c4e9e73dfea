//! The lists of all CPUs: of each, one of its own node, and a short one of each other node.
//!
//! # Guarantee
//! A CPU puts what it frees onto its own list of the frame's node, so that frames go home in batches, and nobody writes
//! another CPU's line for one frame. The list of the own node stands where no table leads to it: on one node, and
//! nearly always, it is the only one used.

use crate::list::{List, Shape};
use crate::options::Options;
use alloc::boxed::Box;
use faultless_platform::{Nodes, Platform};
use faultless_sync::PerCpu;

/// What a CPU has of all nodes' free frames.
pub(crate) struct CpuLists<P: Platform> {
    /// The CPU's node.
    pub(crate) node: usize,
    /// Frames of that node.
    pub(crate) own: List<P>,
    /// Frames of the other nodes, ascending; the CPU's own is left out.
    others: Box<[List<P>]>,
}

impl<P: Platform> CpuLists<P> {
    /// Returns the list of a node's frames.
    #[inline]
    pub(crate) fn of(&self, node: usize) -> &List<P> {
        match node.cmp(&self.node) {
            core::cmp::Ordering::Less => &self.others[node],
            core::cmp::Ordering::Equal => &self.own,
            core::cmp::Ordering::Greater => &self.others[node - 1],
        }
    }
}

/// The lists of all CPUs.
pub(crate) struct Lists<P: Platform> {
    cpus: PerCpu<P, CpuLists<P>>,
}

impl<P: Platform> Lists<P> {
    pub(crate) fn new(nr_cpus: usize, nr_frames: usize, nodes: &Nodes, options: &Options) -> Self {
        let (own, other) = (Shape::of_own(nr_frames, nodes.len(), options), Shape::of_other(nodes.len(), options));
        let lists_of = |cpu| CpuLists {
            node: nodes.of_cpu(cpu),
            own: List::new(own),
            others: (1..nodes.len()).map(|_| List::new(other)).collect(),
        };
        Self { cpus: PerCpu::new(nr_cpus, lists_of) }
    }

    /// Returns the calling CPU's.
    #[inline(always)]
    pub(crate) fn here(&self) -> &CpuLists<P> {
        self.cpus.here()
    }

    /// Visits the lists of one node's frames, CPU by CPU.
    pub(crate) fn of_node(&self, node: usize) -> impl Iterator<Item = &List<P>> {
        self.cpus.iter().map(move |cpu| cpu.of(node))
    }
}
