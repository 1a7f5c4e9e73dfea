//! A zone: a buddy allocator and, on each CPU, a list of single frames in front of it.
//!
//! # Guarantee
//! A frame is in one place (I1). The zone's lock is held for a step or two, however many frames come out. What a
//! frame's way looks like from a CPU's list to the zone and back is here; which zone is asked, and the attempt that
//! fails, is `zones`.
//!
//! # The picture
//! ```text
//! CPU: [list] <--batch-- [chain] [row] [block]  refilled without the lock as long as chain or row last
//!         |                ^ |   ^
//!         +------batch-----+ |   +--block------ buddy allocator      (under the lock; split outside)
//!                            v
//!                     [stack of chains] ------> a chain              (put on without the lock, taken off under it)
//! ```
//!
//! # Invariants
//! * I1 a free frame is in the buddy allocator, on the stack of chains, or in exactly one CPU's list, chain or row, but
//!   for the moment in which its owner frees it, and for the length of a move (`Stash::begin_move`).
//! * I2 frames leave the buddy allocator and the stack of chains under the zone's lock alone.
//!
//! # Lock order
//! Zones' locks are the innermost of all; several are taken in ascending order of their nodes. Under them a
//! searcher waits for moves, whose owners take no lock and wait for nothing; nothing else waits, parks or calls out.

use crate::buddy::Buddy;
use crate::chain::{ChainStack, Links};
use crate::error::ZoneKind;
use crate::frames::Frames;
use crate::list::{List, Supply};
use crate::lists::Lists;
use crate::pfn::Pfn;
use crate::reserve::Span;
use crate::stash::{self, Batch};
use core::ops::Range;
use faultless_platform::{Atomic, CachePadded, Ordering, Platform, Tracepoint};
use faultless_sync::{SpinMutex, SpinMutexGuard, lock_class};

lock_class! {
    /// The locks of zones' buddy allocators.
    pub(crate) ZoneLock = "zone"
}

/// A zone's buddy allocator, as the holder of its lock has it.
pub(crate) type BuddyGuard<'a, P> = SpinMutexGuard<'a, P, Buddy<P>, ZoneLock>;

/// Of a zone's frames, the part that may wait on the stack of chains, unmerged.
const CHAINED_SHARE: usize = 2;
/// How many of them are merged while the lock is held.
const MERGED_AT_ONCE: u32 = 32;

/// The free frames of one zone.
pub(crate) struct Zone<P: Platform> {
    kind: ZoneKind,
    node: usize,
    range: Range<u32>,
    frames: Frames<P>,
    buddy: SpinMutex<P, Buddy<P>, ZoneLock>,
    /// What the buddy allocator holds; written under its lock.
    nr_in_buddy: CachePadded<P::AtomicUsize>,
    chains: CachePadded<ChainStack<P>>,
}

impl<P: Platform> Zone<P> {
    pub(crate) fn new(node: usize, range: Range<u32>, frames: Frames<P>) -> Self {
        Self {
            kind: ZoneKind::Normal,
            node,
            frames,
            buddy: SpinMutex::classed(Buddy::new(frames, range.clone())),
            nr_in_buddy: CachePadded::new(P::AtomicUsize::new(range.len())),
            chains: CachePadded::new(ChainStack::new()),
            range,
        }
    }

    /// Tells observers what lies where, once the zone stays where it is.
    pub(crate) fn tell_names(&self) {
        P::trace(Tracepoint::named("the frame allocator's free blocks and their lock", &self.buddy));
        P::trace(Tracepoint::named("the frame allocator's count of free frames", &self.nr_in_buddy));
        P::trace(Tracepoint::named("the frame allocator's stack of chains", &self.chains));
    }

    pub(crate) fn kind(&self) -> ZoneKind {
        self.kind
    }

    pub(crate) fn range(&self) -> Range<u32> {
        self.range.clone()
    }

    pub(crate) fn nr_frames(&self) -> usize {
        self.range.len()
    }

    /// Returns how many frames are free; exact while nobody takes or puts any.
    pub(crate) fn nr_free(&self, lists: &Lists<P>) -> usize {
        self.nr_unlisted() + self.lists(lists).map(List::len).sum::<usize>()
    }

    /// Returns how many frames are in no CPU's hands.
    fn nr_unlisted(&self) -> usize {
        // Relaxed: a snapshot.
        self.nr_in_buddy.load(Ordering::Relaxed) + self.chains.nr_frames()
    }

    /// Returns the first frame that was never given out.
    pub(crate) fn fresh(&self) -> u32 {
        self.buddy.lock().fresh()
    }

    /// Visits this zone's lists of all CPUs.
    pub(crate) fn lists<'a>(&self, lists: &'a Lists<P>) -> impl Iterator<Item = &'a List<P>> + use<'a, P> {
        lists.of_node(self.node)
    }

    /// Takes the lock.
    pub(crate) fn lock(&self) -> BuddyGuard<'_, P> {
        self.buddy.lock()
    }

    /// Takes a frame: 1. off this CPU's list; 2. of what is behind it; 3. of what the zone has; 4. the last one on the
    /// list.
    ///
    /// Fails although other CPUs have frames, and without the lock if the zone looks empty.
    pub(crate) fn take_near(&self, list: &List<P>) -> Option<usize> {
        list.stash.pop_hot().or_else(|| self.take_behind(list)).or_else(|| list.stash.pop())
    }

    /// Fills a list up that has one frame at most, and takes one.
    fn take_behind(&self, list: &List<P>) -> Option<usize> {
        let found = list.refill(&self.frames).or_else(|| self.fetch(list));
        found.inspect(|_| list.counts.nr_given_past_list.add(1))
    }

    /// Gets frames from the zone. When the lock is dropped they are on their way: the move has begun.
    fn fetch(&self, list: &List<P>) -> Option<usize> {
        if self.nr_unlisted() == 0 {
            return None;
        }
        let most = list.visit_zone();
        let mut buddy = self.buddy.lock();
        let supply = match self.chains.pop(&self.frames) {
            Some(chain) => Supply::Chain(chain),
            None => self.cut(&mut buddy, most, list.shape.batch)?,
        };
        let _moving = list.stash.begin_move();
        drop(buddy);
        let first = list.stow(supply, &self.frames);
        list.take_surplus().into_iter().for_each(|chain| self.chains.push(&self.frames, chain));
        Some(first)
    }

    /// Takes at most `most` frames in a row off the buddy allocator, or as many small blocks as make a batch, in a
    /// chain.
    fn cut(&self, buddy: &mut Buddy<P>, most: usize, batch: usize) -> Option<Supply> {
        let row = buddy.take_row(most)?;
        let is_long = row.len as usize * 2 > batch;
        let supply = if is_long { Supply::Row(row) } else { Supply::Chain(self.gather(buddy, row, batch)?) };
        self.publish(buddy);
        Some(supply)
    }

    /// Adds small blocks to a row until there is a batch.
    fn gather(&self, buddy: &mut Buddy<P>, row: Span, nr_most: usize) -> Option<Span> {
        let (mut row, mut batch) = (row.first..row.first + row.len, Batch::new());
        batch.fill(nr_most, || row.next().or_else(|| buddy.take(0).map(Pfn::get)).map(|number| number as usize));
        // So that they come out of the chain in the order in which the buddy allocator gives them.
        batch.reverse();
        self.frames.chain(batch.as_slice().iter().copied(), None)
    }

    /// Takes a frame off the stack of chains, or out of what a CPU keeps behind its list; the others go to the zone.
    pub(crate) fn take_reserved(&self, lists: &Lists<P>, buddy: &mut Buddy<P>) -> Option<usize> {
        let chain = self.chains.pop(&self.frames).or_else(|| self.lists(lists).find_map(List::take_chain));
        if let Some(chain) = chain {
            let (first, rest) = self.frames.split_first(chain);
            rest.into_iter().for_each(|rest| self.chains.push(&self.frames, rest));
            return Some(first);
        }
        let row = self.lists(lists).find_map(List::take_row)?;
        buddy.give_row(Pfn::new(row.first + 1), row.len - 1);
        Some(row.first as usize)
    }

    /// Moves a list's coldest frames to its chain, and the chain to the zone once it is long enough.
    #[cold]
    pub(crate) fn spill(&self, list: &List<P>) {
        let moving = list.stash.begin_move();
        let full = list.shed(&self.frames);
        full.into_iter().for_each(|chain| self.chains.push(&self.frames, chain));
        drop(moving);
        let Some(chain) = full else { return };
        list.visit_zone();
        if self.has_many_chains() {
            self.merge(chain.len);
        }
    }

    fn has_many_chains(&self) -> bool {
        self.chains.nr_frames() > self.nr_frames() / CHAINED_SHARE
    }

    /// Merges as many frames as were put on the stack, a few under each lock.
    #[cold]
    fn merge(&self, nr_put: u32) {
        for _ in 0..nr_put.div_ceil(MERGED_AT_ONCE) {
            let mut buddy = self.buddy.lock();
            if !self.has_many_chains() {
                return;
            }
            self.merge_chain(&mut buddy, MERGED_AT_ONCE);
            self.publish(&buddy);
        }
    }

    /// Gives up to `most` frames of the newest chain to the buddy allocator; says whether there was a chain.
    pub(crate) fn merge_chain(&self, buddy: &mut Buddy<P>, most: u32) -> bool {
        let mut chain = self.chains.pop(&self.frames);
        let has_chain = chain.is_some();
        for _ in 0..most {
            let Some((first, rest)) = chain.map(|chain| self.frames.split_first(chain)) else { return has_chain };
            buddy.give(Pfn::of_index(first), 0);
            chain = rest;
        }
        chain.into_iter().for_each(|rest| self.chains.push(&self.frames, rest));
        has_chain
    }

    /// Takes a block off the buddy allocator, letting frames merge that the zone got back. What CPUs keep is not
    /// looked at.
    pub(crate) fn take_block(&self, order: u8) -> Option<Pfn> {
        if self.nr_unlisted() < 1 << order {
            return None;
        }
        let mut buddy = self.buddy.lock();
        let block = loop {
            let block = buddy.take(order);
            if block.is_some() || !self.merge_chain(&mut buddy, u32::MAX) {
                break block;
            }
        };
        self.publish(&buddy);
        block
    }

    /// Puts a block back past all lists. The caller was its sole owner; it needs no slot.
    pub(crate) fn put_block(&self, pfn: Pfn, order: u8) {
        let mut buddy = self.buddy.lock();
        buddy.give(pfn, order);
        self.publish(&buddy);
    }

    /// Gives all frames that CPUs keep back to the buddy allocator.
    pub(crate) fn drain(&self, lists: &Lists<P>) {
        let mut buddy = self.buddy.lock();
        while self.merge_more(lists, &mut buddy) {}
        self.publish(&buddy);
    }

    /// Gives some frames to the buddy allocator; says whether it did not have all free ones yet.
    fn merge_more(&self, lists: &Lists<P>, buddy: &mut Buddy<P>) -> bool {
        let stashes = || self.lists(lists).map(|list| &list.stash);
        let has_merged = self.merge_chain(buddy, u32::MAX);
        let found = if has_merged { None } else { stash::search(stashes, || self.take_reserved(lists, buddy)) };
        has_merged || found.inspect(|&thing| buddy.give(Pfn::of_index(thing), 0)).is_some()
    }

    /// Says how many frames the buddy allocator has now; called after each change, before the lock is dropped.
    pub(crate) fn publish(&self, buddy: &Buddy<P>) {
        // Relaxed: read as a snapshot.
        self.nr_in_buddy.store(buddy.nr_free(), Ordering::Relaxed);
    }
}
