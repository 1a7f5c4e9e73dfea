//! A zone: a buddy allocator and, on each CPU, a list of single frames in front of it.
//!
//! # Guarantee
//! `take` fails only if at some instant during the call no frame of the zone was free: not in the buddy allocator, and
//! not on any CPU's list. On the hit path, a CPU's own list, it takes the frame freed last, by plain loads and stores.
//!
//! # Invariants
//! * I1 a free frame is in the buddy allocator or on exactly one list, but for the moment in which its owner frees it.
//! * I2 frames go from the buddy allocator to a list, or back, under the zone's lock alone.
//!
//! # Why a failure is exact
//! The searcher holds the lock and finds the buddy allocator empty throughout; `stash::search` finds all lists empty at one
//! instant.
//!
//! # Lock order
//! The zone's lock is the innermost of all: nothing waits, parks or calls out under it.

use crate::buddy::Buddy;
use crate::error::ZoneKind;
use crate::frames::Frames;
use crate::options::Options;
use crate::pfn::Pfn;
use crate::stash::{self, Batch, Stash};
use faultless_platform::{Atomic, CachePadded, Ordering, Platform};
use faultless_sync::{PerCpu, SpinMutex, lock_class};

lock_class! {
    /// The locks of zones' buddy allocators.
    ZoneLock = "zone"
}

/// The free frames of one zone.
pub(crate) struct Zone<P: Platform> {
    kind: ZoneKind,
    nr_frames: usize,
    list_high: usize,
    list_batch: usize,
    lists: PerCpu<P, Stash<P>>,
    buddy: SpinMutex<P, Buddy<P>, ZoneLock>,
    /// What the buddy allocator holds; written under its lock.
    nr_in_buddy: CachePadded<P::AtomicUsize>,
}

impl<P: Platform> Zone<P> {
    pub(crate) fn new(kind: ZoneKind, frames: Frames<P>, nr_cpus: usize, options: &Options) -> Self {
        let (list_high, list_batch) = (options.list_high, options.list_batch);
        let nr_frames = (frames.end() - frames.first()) as usize;
        Self {
            kind,
            nr_frames,
            list_high,
            list_batch,
            // A list holds `list_high` frames and one more before it sheds, or a batch on top of its last one.
            lists: PerCpu::new(nr_cpus, |_| Stash::new(list_high + 2)),
            buddy: SpinMutex::classed(Buddy::new(frames)),
            nr_in_buddy: CachePadded::new(P::AtomicUsize::new(nr_frames)),
        }
    }

    pub(crate) fn kind(&self) -> ZoneKind {
        self.kind
    }

    pub(crate) fn nr_frames(&self) -> usize {
        self.nr_frames
    }

    /// Returns how many frames are free; exact while nobody takes or puts any.
    pub(crate) fn nr_free(&self) -> usize {
        // Relaxed: a snapshot.
        self.nr_in_buddy.load(Ordering::Relaxed) + self.lists.iter().map(Stash::len).sum::<usize>()
    }

    /// Returns the first frame that was never given out.
    pub(crate) fn fresh(&self) -> u32 {
        self.buddy.lock().fresh()
    }

    /// Takes a frame.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Pfn> {
        let list = self.lists.here();
        match list.pop_hot() {
            Some(thing) => Some(Pfn::new(thing as u32)),
            None => self.take_slow(list),
        }
    }

    /// Puts a frame back. The caller was its sole owner.
    #[inline(always)]
    pub(crate) fn put(&self, pfn: Pfn) {
        let list = self.lists.here();
        if list.push(pfn.index()) > self.list_high {
            self.spill(list);
        }
    }

    /// 1. a batch from the buddy allocator; 2. what is left on this list; 3. one frame of another list.
    #[cold]
    fn take_slow(&self, list: &Stash<P>) -> Option<Pfn> {
        let mut buddy = self.buddy.lock();
        let mut batch = Batch::new();
        batch.fill(self.list_batch, || buddy.take(0).map(Pfn::index));
        let first = batch.take_first();
        // Under the lock, so that a searcher finds the frames in one place or the other (I2).
        list.push_batch(&batch);
        self.publish(&buddy);
        let thing = first.or_else(|| list.pop()).or_else(|| self.steal());
        thing.map(|thing| Pfn::new(thing as u32))
    }

    /// Takes a frame from any list; the caller holds the lock and has found the buddy allocator empty.
    fn steal(&self) -> Option<usize> {
        stash::search(|| self.lists.iter())
    }

    /// Gives a list's coldest frames back.
    #[cold]
    fn spill(&self, list: &Stash<P>) {
        let mut buddy = self.buddy.lock();
        let batch = list.shed(self.list_batch);
        batch.as_slice().iter().for_each(|&thing| buddy.give(Pfn::new(thing as u32), 0));
        self.publish(&buddy);
    }

    /// Takes a block; when there is none, empties all lists so that their frames can merge, and tries again.
    pub(crate) fn take_block(&self, order: u8) -> Option<Pfn> {
        let mut buddy = self.buddy.lock();
        let block = buddy.take(order).or_else(|| {
            self.drain_into(&mut buddy);
            buddy.take(order)
        });
        self.publish(&buddy);
        block
    }

    /// Puts a block back. The caller was its sole owner.
    pub(crate) fn put_block(&self, pfn: Pfn, order: u8) {
        let mut buddy = self.buddy.lock();
        buddy.give(pfn, order);
        self.publish(&buddy);
    }

    /// Gives all frames on all lists back.
    pub(crate) fn drain(&self) {
        let mut buddy = self.buddy.lock();
        self.drain_into(&mut buddy);
        self.publish(&buddy);
    }

    fn drain_into(&self, buddy: &mut Buddy<P>) {
        while let Some(thing) = self.steal() {
            buddy.give(Pfn::new(thing as u32), 0);
        }
    }

    fn publish(&self, buddy: &Buddy<P>) {
        // Relaxed: read as a snapshot.
        self.nr_in_buddy.store(buddy.nr_free(), Ordering::Relaxed);
    }
}
