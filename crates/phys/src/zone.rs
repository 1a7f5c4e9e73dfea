//! A zone: a buddy allocator and, on each CPU, a list of single frames in front of it.
//!
//! # Guarantee
//! `take` fails only if at some instant during the call no frame of the zone was free: not in the buddy allocator, and
//! not in any CPU's hands. On the hit path, a CPU's own list, it takes the frame freed last, by plain loads and stores.
//! The zone's lock is held for a step or two, however many frames come out.
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
//! * I1 a free frame is in the buddy allocator, on the stack of chains, or in exactly one CPU's list, chain or row, but for the
//!   moment in which its owner frees it, and for the length of a move (`Stash::begin_move`).
//! * I2 frames leave the buddy allocator and the stack of chains under the zone's lock alone.
//!
//! # Why a failure is exact
//! The searcher holds the lock, so that nothing leaves the allocator or the stack but by its hand; `stash::search` waits for moves that
//! have begun, and finds all places empty at one instant.
//!
//! # Lock order
//! The zone's lock is the innermost of all. Under it a searcher waits for moves, whose owners wait for nothing; nothing else waits,
//! parks or calls out.

use crate::buddy::Buddy;
use crate::chain::ChainStack;
use crate::error::ZoneKind;
use crate::frames::Frames;
use crate::list::{List, Shape, Supply};
use crate::options::Options;
use crate::pfn::Pfn;
use crate::reserve::Span;
use crate::stash::{self, Batch};
use faultless_platform::{Atomic, CachePadded, Ordering, Platform};
use faultless_sync::{PerCpu, SpinMutex, lock_class};

lock_class! {
    /// The locks of zones' buddy allocators.
    ZoneLock = "zone"
}

/// Of a zone's frames, the part that may wait on the stack of chains, unmerged.
const CHAINED_SHARE: usize = 2;
/// How many of them are merged while the lock is held.
const MERGED_AT_ONCE: u32 = 32;

/// The free frames of one zone.
pub(crate) struct Zone<P: Platform> {
    kind: ZoneKind,
    frames: Frames<P>,
    shape: Shape,
    lists: PerCpu<P, List<P>>,
    buddy: SpinMutex<P, Buddy<P>, ZoneLock>,
    /// What the buddy allocator holds; written under its lock.
    nr_in_buddy: CachePadded<P::AtomicUsize>,
    chains: CachePadded<ChainStack<P>>,
}

impl<P: Platform> Zone<P> {
    pub(crate) fn new(kind: ZoneKind, frames: Frames<P>, nr_cpus: usize, options: &Options) -> Self {
        let nr_frames = (frames.end() - frames.first()) as usize;
        let shape = Shape::new(nr_frames, options);
        Self {
            kind,
            frames,
            shape,
            lists: PerCpu::new(nr_cpus, |_| List::new(shape)),
            buddy: SpinMutex::classed(Buddy::new(frames)),
            nr_in_buddy: CachePadded::new(P::AtomicUsize::new(nr_frames)),
            chains: CachePadded::new(ChainStack::new()),
        }
    }

    pub(crate) fn kind(&self) -> ZoneKind {
        self.kind
    }

    pub(crate) fn nr_frames(&self) -> usize {
        (self.frames.end() - self.frames.first()) as usize
    }

    /// Returns how many frames are free; exact while nobody takes or puts any.
    pub(crate) fn nr_free(&self) -> usize {
        // Relaxed: a snapshot.
        let nr_in_buddy = self.nr_in_buddy.load(Ordering::Relaxed);
        nr_in_buddy + self.chains.nr_frames() + self.lists.iter().map(List::len).sum::<usize>()
    }

    /// Returns the first frame that was never given out.
    pub(crate) fn fresh(&self) -> u32 {
        self.buddy.lock().fresh()
    }

    /// Takes a frame.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Pfn> {
        let list = self.lists.here();
        match list.stash.pop_hot() {
            Some(thing) => Some(pfn_of(thing)),
            None => self.take_slow(list).map(pfn_of),
        }
    }

    /// Puts a frame back. The caller was its sole owner.
    #[inline(always)]
    pub(crate) fn put(&self, pfn: Pfn) {
        let list = self.lists.here();
        if list.stash.push(pfn.index()) > self.shape.high {
            self.spill(list);
        }
    }

    /// 1. what this CPU keeps behind its list; 2. what the zone has; 3. what is left on the list; 4. one frame of another CPU.
    #[cold]
    fn take_slow(&self, list: &List<P>) -> Option<usize> {
        list.refill(&self.frames).or_else(|| self.fetch(list)).or_else(|| list.stash.pop()).or_else(|| self.take_last())
    }

    /// Gets frames from the zone. When the lock is dropped they are on their way: the move has begun.
    fn fetch(&self, list: &List<P>) -> Option<usize> {
        let most = list.visit_zone();
        let mut buddy = self.buddy.lock();
        let supply = match self.chains.pop(&self.frames) {
            Some(chain) => Supply::Chain(chain),
            None => self.cut(&mut buddy, most)?,
        };
        let _moving = list.stash.begin_move();
        drop(buddy);
        list.stow(supply, &self.frames)
    }

    /// Takes a block of at most `most` frames off the buddy allocator, or as many small ones as make a batch, in a chain.
    fn cut(&self, buddy: &mut Buddy<P>, most: usize) -> Option<Supply> {
        let (first, order) = buddy.take_at_most(most.ilog2() as u8)?;
        let row = Span { first: first.get(), len: 1 << order };
        let is_long = row.len as usize * 2 > self.shape.batch;
        let supply = if is_long { Supply::Row(row) } else { Supply::Chain(self.gather(buddy, row)?) };
        self.publish(buddy);
        Some(supply)
    }

    /// Adds small blocks to a row until there is a batch.
    fn gather(&self, buddy: &mut Buddy<P>, row: Span) -> Option<Span> {
        let (mut row, mut batch) = (row.first..row.first + row.len, Batch::new());
        batch.fill(self.shape.batch, || {
            row.next().or_else(|| buddy.take(0).map(Pfn::get)).map(|number| number as usize)
        });
        // So that they come out of the chain in the order in which the buddy allocator gives them.
        batch.reverse();
        self.frames.chain(&batch, None)
    }

    /// Takes a frame from wherever there is one. Memory is short: all CPUs keep less from now on.
    fn take_last(&self) -> Option<usize> {
        self.lists.iter().for_each(List::shrink);
        let mut buddy = self.buddy.lock();
        let thing = buddy.take(0).map(Pfn::index).or_else(|| self.search(&mut buddy));
        self.publish(&buddy);
        thing
    }

    /// Takes a frame that is not in the buddy allocator; the caller holds its lock.
    fn search(&self, buddy: &mut Buddy<P>) -> Option<usize> {
        stash::search(|| self.lists.iter().map(|list| &list.stash), || self.take_reserved(buddy))
    }

    /// Takes a frame off the stack of chains, or out of what a CPU keeps behind its list; the others go to the zone.
    fn take_reserved(&self, buddy: &mut Buddy<P>) -> Option<usize> {
        let chain = self.chains.pop(&self.frames).or_else(|| self.lists.iter().find_map(List::take_chain));
        if let Some(chain) = chain {
            let (first, rest) = self.frames.unchain(chain);
            rest.into_iter().for_each(|rest| self.chains.push(&self.frames, rest));
            return Some(first);
        }
        let row = self.lists.iter().find_map(List::take_row)?;
        buddy.give_row(Pfn::new(row.first + 1), row.len - 1);
        Some(row.first as usize)
    }

    /// Moves a list's coldest frames to its chain, and the chain to the zone once it is long enough.
    #[cold]
    fn spill(&self, list: &List<P>) {
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
    fn merge_chain(&self, buddy: &mut Buddy<P>, most: u32) -> bool {
        let mut chain = self.chains.pop(&self.frames);
        let has_chain = chain.is_some();
        for _ in 0..most {
            let Some((first, rest)) = chain.map(|chain| self.frames.unchain(chain)) else { return has_chain };
            buddy.give(pfn_of(first), 0);
            chain = rest;
        }
        chain.into_iter().for_each(|rest| self.chains.push(&self.frames, rest));
        has_chain
    }

    /// Takes a block: this CPU's, or the zone's; when there is none, lets frames merge that the zone got back, and then those of all CPUs.
    pub(crate) fn take_block(&self, order: u8) -> Option<Pfn> {
        self.lists.here().take_block(order).or_else(|| self.take_block_of_zone(order))
    }

    fn take_block_of_zone(&self, order: u8) -> Option<Pfn> {
        let mut buddy = self.buddy.lock();
        let block = loop {
            let block = buddy.take(order);
            if block.is_some() || !self.merge_more(&mut buddy) {
                break block;
            }
        };
        self.publish(&buddy);
        block
    }

    /// Puts a block back. The caller was its sole owner.
    pub(crate) fn put_block(&self, pfn: Pfn, order: u8) {
        if !self.lists.here().keep_block(pfn, order) {
            self.put_past_list(pfn, order);
        }
    }

    /// As [`Zone::put_block`], for callers that own no slot.
    pub(crate) fn put_past_list(&self, pfn: Pfn, order: u8) {
        let mut buddy = self.buddy.lock();
        buddy.give(pfn, order);
        self.publish(&buddy);
    }

    /// Gives all frames that CPUs keep back to the buddy allocator.
    pub(crate) fn drain(&self) {
        let mut buddy = self.buddy.lock();
        while self.merge_more(&mut buddy) {}
        self.publish(&buddy);
    }

    /// Gives some frames to the buddy allocator; says whether it did not have all free ones yet.
    fn merge_more(&self, buddy: &mut Buddy<P>) -> bool {
        self.merge_chain(buddy, u32::MAX) || self.search(buddy).inspect(|&thing| buddy.give(pfn_of(thing), 0)).is_some()
    }

    fn publish(&self, buddy: &Buddy<P>) {
        // Relaxed: read as a snapshot.
        self.nr_in_buddy.store(buddy.nr_free(), Ordering::Relaxed);
    }
}

fn pfn_of(thing: usize) -> Pfn {
    Pfn::new(thing as u32)
}
