//! The zones of a memory, one for each NUMA node, and which of them serves an allocation.
//!
//! # Guarantee
//! Nodes are tried in the policy's order; a frame comes from the first that has one in its zone or on this CPU's list,
//! and goes back to its own node's zone, whichever CPU frees it. `take` and `take_block` fail only if at some
//! instant during the call no frame, or block, of any allowed node was free: not in a zone, and not in any CPU's hands.
//! On the hit path, a CPU's list of its own node, `take` takes the frame freed last, by plain loads and stores.
//!
//! # The picture: a frame of node 1 goes home from a CPU of node 0
//! ```text
//! CPU of node 0:  [list of node 0] [list of node 1] --batches--> zone of node 1
//!                        |                                          |
//!                  zone of node 0                            [list of node 1]  CPU of node 1
//! ```
//! Frames are divided evenly, in rows: frame `n` is of node `n * share >> SHARE_BITS`, where `share` is the number of
//! nodes for each frame.
//!
//! # Why a failure is exact
//! The last attempt holds the locks of all allowed zones, so that nothing leaves their buddy allocators and stacks but
//! by its hand, and nothing comes to the allocators; then one `stash::search` goes through all lists of all these
//! nodes, waits for moves that have begun, and finds all places empty at one instant. To search node by node would not
//! do:
//! ```text
//! searcher: node 0 is empty                     | node 1 is empty: fails, though a frame was free all the time
//!           others:  free one of node 0, and then take the last of node 1
//! ```
//! Test: `phys/tests/nodes.rs`.
//!
//! # Lock order
//! Zones ascend by node; only the last attempt holds more than one.

use crate::error::ZoneKind;
use crate::frames::Frames;
use crate::list::List;
use crate::lists::{CpuLists, Lists};
use crate::options::Options;
use crate::pfn::Pfn;
use crate::policy::{Choice, NodeStats, Policy};
use crate::stash;
use crate::zone::{BuddyGuard, Zone};
use alloc::boxed::Box;
use core::ops::Range;
use faultless_platform::{NODES_MAX, NodeSet, Nodes, Platform};

/// Fraction bits of `share`: a frame's number has 32 bits and a node's 6, so that products fit.
const SHARE_BITS: u32 = 48;

/// All free frames of a memory.
pub(crate) struct Zones<P: Platform> {
    lists: Lists<P>,
    share: u64,
    /// One for each node.
    zones: Box<[Zone<P>]>,
    nodes: Nodes,
    /// Of each node, all nodes, nearest first.
    orders: Box<[Box<[u8]>]>,
    nr_frames: usize,
}

impl<P: Platform> Zones<P> {
    /// Tells observers what lies where.
    pub(crate) fn tell_names(&self) {
        self.zones.iter().for_each(Zone::tell_names);
    }

    pub(crate) fn new(frames: Frames<P>, nr_cpus: usize, nodes: &Nodes, options: &Options) -> Self {
        let nr_frames = (frames.end() - frames.first()) as usize;
        // With one node all frames are of node 0, whatever their number.
        let share = if nodes.len() == 1 { 0 } else { ((nodes.len() as u64) << SHARE_BITS) / u64::from(frames.end()) };
        let zone = |node| Zone::new(node, range_of(&frames, share, node, nodes.len()), frames);
        Self {
            zones: (0..nodes.len()).map(zone).collect(),
            orders: (0..nodes.len()).map(|from| nodes.by_distance(from).map(|node| node as u8).collect()).collect(),
            lists: Lists::new(nr_cpus, nr_frames, nodes, options),
            share,
            nodes: nodes.clone(),
            nr_frames,
        }
    }

    pub(crate) fn kind(&self) -> ZoneKind {
        self.zones[0].kind()
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    pub(crate) fn nr_frames(&self) -> usize {
        self.nr_frames
    }

    /// Returns how many frames the nodes that a policy allows have.
    pub(crate) fn nr_frames_of(&self, allowed: NodeSet) -> usize {
        allowed.iter().take_while(|&node| node < self.zones.len()).map(|node| self.zones[node].nr_frames()).sum()
    }

    /// Returns how many frames are free; exact while nobody takes or puts any.
    pub(crate) fn nr_free(&self) -> usize {
        self.zones.iter().map(|zone| zone.nr_free(&self.lists)).sum()
    }

    /// Visits the nodes' frames, ascending.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u32>> {
        self.zones.iter().map(Zone::range)
    }

    /// As [`Zones::ranges`], each with the first frame that was never given out.
    pub(crate) fn used_ranges(&self) -> impl Iterator<Item = (Range<u32>, u32)> {
        self.zones.iter().map(|zone| (zone.range(), zone.fresh()))
    }

    /// Returns a frame's node.
    #[inline(always)]
    pub(crate) fn node_of(&self, pfn: Pfn) -> usize {
        node_of(self.share, pfn.get())
    }

    /// Returns what is known of a node.
    pub(crate) fn stats(&self, node: usize) -> NodeStats {
        let zone = &self.zones[node];
        let sum = |of: fn(&List<P>) -> u64| zone.lists(&self.lists).map(of).fold(0, u64::wrapping_add);
        let nr_misses = sum(|list| list.counts.nr_misses.get());
        NodeStats {
            nr_frames: zone.nr_frames(),
            nr_free: zone.nr_free(&self.lists),
            nr_hits: sum(List::nr_given).saturating_sub(nr_misses),
            nr_misses,
            nr_foreign: sum(|list| list.counts.nr_foreign.get()),
        }
    }

    /// Takes a frame of the CPU's own node, or else of another.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Pfn> {
        let here = self.lists.here();
        match here.own.stash.pop_hot() {
            Some(thing) => Some(Pfn::of_index(thing)),
            None => self.take_slow(here, Choice { preferred: here.node, allowed: NodeSet::ALL }),
        }
    }

    /// Takes a frame as a policy says.
    pub(crate) fn take_by(&self, policy: Policy) -> Option<Pfn> {
        let here = self.lists.here();
        let choice = policy.choose(here.node, &self.nodes);
        if !choice.allowed.contains(choice.preferred) {
            return None;
        }
        match here.of(choice.preferred).stash.pop_hot() {
            Some(thing) => Some(Pfn::of_index(thing)),
            None => self.take_slow(here, choice),
        }
    }

    /// 1. what the zones have, and this CPU; 2. whatever there is.
    #[cold]
    fn take_slow(&self, here: &CpuLists<P>, choice: Choice) -> Option<Pfn> {
        let mut nodes = self.order(choice);
        let near = nodes.find_map(|node| self.zones[node].take_near(here.of(node)));
        let found = near.map(Pfn::of_index);
        found.inspect(|&pfn| self.note_node(here, pfn, choice.preferred)).or_else(|| self.take_last(here, 0, choice))
    }

    /// Visits the nodes that an allocation may use, as it should.
    fn order(&self, choice: Choice) -> impl Iterator<Item = usize> + '_ {
        let nodes = self.orders[choice.preferred].iter().map(|&node| usize::from(node));
        nodes.filter(move |&node| choice.allowed.contains(node))
    }

    /// Counts an allocation that another node served than the one that should.
    fn note_node(&self, here: &CpuLists<P>, pfn: Pfn, preferred: usize) {
        let node = self.node_of(pfn);
        if node != preferred {
            here.of(node).counts.nr_misses.add(1);
            here.of(preferred).counts.nr_foreign.add(1);
        }
    }

    /// Puts a frame back. The caller was its sole owner.
    #[inline(always)]
    pub(crate) fn put(&self, pfn: Pfn) {
        let (here, node) = (self.lists.here(), self.node_of(pfn));
        let list = if node == here.node { &here.own } else { here.of(node) };
        if list.stash.push(pfn.index()) > list.shape.high {
            self.zones[node].spill(list);
        }
    }

    /// Takes a block: this CPU's, a zone's, or one that is made of what all CPUs have.
    pub(crate) fn take_block(&self, order: u8, policy: Policy) -> Option<Pfn> {
        let here = self.lists.here();
        let choice = policy.choose(here.node, &self.nodes);
        if !choice.allowed.contains(choice.preferred) {
            return None;
        }
        let kept = if choice.preferred == here.node { here.own.take_block(order) } else { None };
        let near = kept.or_else(|| self.order(choice).find_map(|node| self.zones[node].take_block(order)));
        near.inspect(|&pfn| self.note_given(here, pfn, choice.preferred))
            .or_else(|| self.take_last(here, order, choice))
    }

    fn note_given(&self, here: &CpuLists<P>, pfn: Pfn, preferred: usize) {
        here.of(self.node_of(pfn)).counts.nr_given_past_list.add(1);
        self.note_node(here, pfn, preferred);
    }

    /// Puts a block back. The caller was its sole owner.
    pub(crate) fn put_block(&self, pfn: Pfn, order: u8) {
        let (here, node) = (self.lists.here(), self.node_of(pfn));
        if node != here.node || !here.own.keep_block(pfn, order) {
            self.zones[node].put_block(pfn, order);
        }
    }

    /// As [`Zones::put_block`], for callers that own no slot.
    pub(crate) fn put_past_list(&self, pfn: Pfn, order: u8) {
        self.zones[self.node_of(pfn)].put_block(pfn, order);
    }

    /// Takes a block from wherever there is one. Memory is short: all CPUs keep less from now on.
    #[cold]
    fn take_last(&self, here: &CpuLists<P>, order: u8, choice: Choice) -> Option<Pfn> {
        self.order(choice).for_each(|node| self.zones[node].lists(&self.lists).for_each(List::shrink));
        let mut held = Held::new(self, choice);
        let block = held.take(order);
        drop(held);
        block.inspect(|&pfn| self.note_given(here, pfn, choice.preferred))
    }

    /// Gives all frames that CPUs keep back to the buddy allocators.
    pub(crate) fn drain(&self) {
        self.zones.iter().for_each(|zone| zone.drain(&self.lists));
    }
}

/// The zones that an allocation may use, their locks held.
struct Held<'a, P: Platform> {
    zones: &'a Zones<P>,
    choice: Choice,
    buddies: [Option<BuddyGuard<'a, P>>; NODES_MAX],
}

impl<'a, P: Platform> Held<'a, P> {
    fn new(zones: &'a Zones<P>, choice: Choice) -> Self {
        // Ascending.
        let lock = |node: usize| choice.allowed.contains(node).then(|| zones.zones.get(node).map(Zone::lock)).flatten();
        Self { zones, choice, buddies: core::array::from_fn(lock) }
    }

    /// Takes a block of the buddy allocators, into which all free frames merge until there is one.
    fn take(&mut self, order: u8) -> Option<Pfn> {
        loop {
            let block = self.try_each(|_, buddy| buddy.take(order));
            if block.is_some() {
                return block;
            }
            let merge = |zone: &Zone<P>, buddy: &mut BuddyGuard<'a, P>| zone.merge_chain(buddy, u32::MAX).then_some(());
            if order > 0 && self.try_each(merge).is_some() {
                continue;
            }
            let found = self.search()?;
            if order == 0 {
                return Some(found);
            }
            self.give(found);
        }
    }

    /// Takes a frame that is in no buddy allocator.
    fn search(&mut self) -> Option<Pfn> {
        let (zones, choice) = (self.zones, self.choice);
        let stashes =
            || zones.order(choice).flat_map(|node| zones.zones[node].lists(&zones.lists)).map(|list| &list.stash);
        stash::search(stashes, || self.try_each(|zone, buddy| zone.take_reserved(&zones.lists, buddy)))
            .map(Pfn::of_index)
    }

    fn give(&mut self, pfn: Pfn) {
        let node = self.zones.node_of(pfn);
        if let Some(buddy) = &mut self.buddies[node] {
            buddy.give(pfn, 0);
        }
    }

    fn try_each<R>(&mut self, mut act: impl FnMut(&Zone<P>, &mut BuddyGuard<'a, P>) -> Option<R>) -> Option<R> {
        let zones = self.zones;
        zones.order(self.choice).find_map(|node| act(&zones.zones[node], self.buddies[node].as_mut()?))
    }
}

impl<P: Platform> Drop for Held<'_, P> {
    fn drop(&mut self) {
        for (zone, buddy) in self.zones.zones.iter().zip(&self.buddies) {
            buddy.iter().for_each(|buddy| zone.publish(buddy));
        }
    }
}

#[inline(always)]
fn node_of(share: u64, number: u32) -> usize {
    ((u64::from(number) * share) >> SHARE_BITS) as usize
}

/// Returns the frames of a node.
fn range_of<P: Platform>(frames: &Frames<P>, share: u64, node: usize, nr_nodes: usize) -> Range<u32> {
    let start_of = |node: usize| match node {
        0 => frames.first(),
        _ if node == nr_nodes => frames.end(),
        _ => (((node as u64) << SHARE_BITS).div_ceil(share) as u32).max(frames.first()),
    };
    start_of(node)..start_of(node + 1).max(start_of(node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::PAGE_BYTES;
    use faultless_platform::native::{HostRegion, Machine, Native};
    use std::vec::Vec;

    #[test]
    fn every_frame_is_of_one_node_and_nodes_have_as_many() {
        let sizes = [2, 3, 65, 66, 1000, 4097];
        for &nr_pages in &sizes[..if cfg!(miri) { 4 } else { 6 }] {
            let region = HostRegion::reserve(nr_pages * PAGE_BYTES).expect("the host has a few MiB");
            // SAFETY: the region is new and outlives the test.
            let frames = unsafe { Frames::<Native>::new(region.base(), nr_pages * PAGE_BYTES) }.expect("large enough");
            for nr_nodes in [1, 2, 3, 7, 64].into_iter().take(if cfg!(miri) { 3 } else { 5 }) {
                let nodes = Nodes::new(nr_nodes, |_| 0, |_, _| 20);
                let zones = Zones::new(frames, 1, &nodes, &Options::default());
                let mut next = frames.first();
                for (node, zone) in zones.zones.iter().enumerate() {
                    assert_eq!(zone.range().start, next, "{nr_pages} pages, node {node} of {nr_nodes}");
                    assert!(zone.range().all(|number| zones.node_of(Pfn::new(number)) == node));
                    assert!(zone.nr_frames() <= nr_pages / nr_nodes + 1);
                    next = zone.range().end;
                }
                assert_eq!(next, frames.end());
            }
        }
    }

    /// Long chains come to a zone from its own CPUs; one of another node that fetches such a chain keeps a few frames
    /// of it.
    /// After each frame that it takes or frees, of one node or of two.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no 2 GiB")]
    fn a_cpu_never_keeps_more_than_a_1024th_of_memory_or_a_mebibyte() {
        for (nr_pages, nr_nodes) in [(30_000, 1), (30_000, 2), (500_000, 1), (500_000, 2)] {
            let region = HostRegion::reserve(nr_pages * PAGE_BYTES).expect("address space");
            // SAFETY: the region is new and outlives the zones.
            let frames = unsafe { Frames::<Native>::new(region.base(), nr_pages * PAGE_BYTES) }.expect("large enough");
            let zones = Zones::new(frames, 1, &Nodes::new(nr_nodes, |_| 0, |_, _| 20), &Options::default());
            Machine::new(1).attach(|| {
                let nr_kept = || (0..nr_nodes).map(|node| zones.lists.here().of(node).len()).sum::<usize>();
                let mut most = 0;
                for nr_taken in [20_000, 5_000, 25_000, 1_000, 25_000] {
                    let mut taken = Vec::new();
                    for turn in 0..nr_taken {
                        let policy = Policy::Interleave { nodes: NodeSet::ALL, turn };
                        taken.push(zones.take_by(policy).expect("plenty"));
                        most = nr_kept().max(most);
                    }
                    for pfn in taken {
                        zones.put(pfn);
                        most = nr_kept().max(most);
                    }
                }
                let bound = (zones.nr_frames() / 1024).max((1 << 20) / PAGE_BYTES);
                assert!(most <= bound, "{most} of {} frames were kept", zones.nr_frames());
                assert!(most * 4 > bound * 3, "{most} frames: the lists did not grow to their bound of {bound}");
                assert_eq!(zones.nr_free(), zones.nr_frames());
            });
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no 4 GiB")]
    fn a_cpu_keeps_little_of_another_node_and_loses_nothing() {
        const NR_PAGES: usize = 1 << 20;
        let region = HostRegion::reserve(NR_PAGES * PAGE_BYTES).expect("address space");
        // SAFETY: the region is new and outlives the test.
        let frames = unsafe { Frames::<Native>::new(region.base(), NR_PAGES * PAGE_BYTES) }.expect("large enough");
        let (nodes, machine) = (Nodes::new(2, |cpu| cpu % 2, |_, _| 20), Machine::new(2));
        let zones = Zones::new(frames, 2, &nodes, &Options::default());
        let up_and_down = || {
            let taken: Vec<Pfn> = (0..20_000).map(|_| zones.take().expect("plenty")).collect();
            taken.into_iter().for_each(|pfn| zones.put(pfn));
        };
        machine.attach(|| {
            std::thread::scope(|scope| scope.spawn(|| machine.attach(|| (0..4).for_each(|_| up_and_down()))).join())
                .expect("CPU 1 failed");
            let (zone, list) = (&zones.zones[1], zones.lists.here().of(1));
            assert_eq!(zones.lists.here().node, 0);
            let nr_longest = zone.lists(&zones.lists).map(List::len).max().expect("two");
            let far = zones.take_by(Policy::Bind { nodes: NodeSet::of([1]) }).expect("plenty");
            let nr_kept_max = 4 * list.shape.batch + 1;
            assert!(list.len() <= nr_kept_max && nr_longest > nr_kept_max, "{} of {nr_longest}", list.len());
            zones.put(far);
            assert_eq!((zones.nr_free(), zone.nr_free(&zones.lists)), (zones.nr_frames(), zone.nr_frames()));
        });
    }
}
