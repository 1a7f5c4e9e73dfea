//! A CPU's frames: a list that its owner pushes to and pops from, behind it a chain and a row of frames, and a small
//! block.
//!
//! # Guarantee
//! Each frame is in one of these places, or on its way between them inside a move of the list's, which searchers wait
//! for. What goes between them, a batch at a time, touches nothing of any other CPU. A CPU keeps at most a 1024th of
//! memory's frames, or 1 MiB if that is more, of all nodes together.
//!
//! # How much goes to the zone, and comes from it, at once
//! `target` frames, between a batch and what the bound leaves. It doubles with each visit to the zone, and is halved
//! where the CPU has freed many times as much since the last visit: then it is more than is needed. When a zone has run
//! out, everybody's falls to the least.

use crate::chain::Links;
use crate::frames::Frames;
use crate::options::Options;
use crate::pfn::Pfn;
use crate::reserve::{Reserve, Span};
use crate::stash::Stash;
use faultless_platform::{Atomic, Ordering, PAGE_BYTES, Platform};
use faultless_sync::CounterCell;

/// What one CPU has of a zone's free frames.
pub(crate) struct List<P: Platform> {
    pub(crate) stash: Stash<P>,
    /// Linked frames that were freed here, or by another CPU.
    chain: Reserve<P>,
    /// Frames next to each other: the rest of a block of the buddy allocator.
    row: Reserve<P>,
    /// A small block that was freed here.
    block: Reserve<P>,
    /// The longest that the chain may be before it goes to the zone, and the most that comes from there. The owner
    /// writes it, and whoever has found the zone empty.
    target: P::AtomicUsize,
    /// How many frames had been freed here at the last visit to the zone.
    nr_freed_then: P::AtomicU64,
    pub(crate) counts: Counts<P>,
    pub(crate) shape: Shape,
}

/// How long lists may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The list gives frames back once it has more.
    pub(crate) high: usize,
    /// How many go between the list and what is behind it at once.
    pub(crate) batch: usize,
    /// How many may be behind it, a batch and a block besides.
    behind_max: usize,
    /// Whether there is room for a block.
    keeps_blocks: bool,
}

/// What a CPU may always keep.
const KEPT_ALWAYS: usize = (1 << 20) / PAGE_BYTES;
/// Of a zone's frames, the part that a CPU may keep if that is more.
const KEPT_SHARE: usize = 1024;
/// Lists shorter than this, as in tests, have little behind them: so many times their own length.
pub(crate) const SHORT_LISTS: usize = 16;
const KEPT_LISTS: usize = 8;
/// A target is more than is needed if this many times as many frames were freed since the last visit to the zone.
const RARE: u64 = 16;
/// The largest block that a CPU keeps: an address space has one of this order on a machine of 384 CPUs, for its
/// resident sizes.
const BLOCK_ORDER_MAX: u8 = 4;

impl Shape {
    /// Returns the shape of a CPU's list for its own node, given the memory's frames and nodes.
    pub(crate) fn of_own(nr_frames: usize, nr_nodes: usize, options: &Options) -> Self {
        let (high, batch) = (options.list_high, options.list_batch);
        let may_keep = KEPT_ALWAYS.max(nr_frames / KEPT_SHARE);
        let kept_max = if high < SHORT_LISTS { may_keep.min(high * KEPT_LISTS) } else { may_keep };
        let keeps_blocks = kept_max >= KEPT_ALWAYS;
        let of_others = (nr_nodes - 1) * Self::of_other(nr_nodes, options).kept_max();
        // A list is one longer than it may be before it sheds, and a batch is added to a chain before that is too long.
        let besides = high + 1 + batch + of_others + if keeps_blocks { 1 << BLOCK_ORDER_MAX } else { 0 };
        Self { high, batch, behind_max: kept_max.saturating_sub(besides).max(batch), keeps_blocks }
    }

    /// Returns the shape of a CPU's list of another node: all of them together hold half of what a CPU may always keep,
    /// or four frames each.
    pub(crate) fn of_other(nr_nodes: usize, options: &Options) -> Self {
        let room = KEPT_ALWAYS / 2 / nr_nodes.saturating_sub(1).max(1);
        let batch = (room / 4).clamp(1, options.list_batch);
        Self { high: batch, batch, behind_max: batch, keeps_blocks: false }
    }

    /// Returns the most frames that a list of this shape holds, and what is behind it, without its block.
    fn kept_max(self) -> usize {
        self.high + 1 + self.batch + self.behind_max
    }
}

/// What a CPU has counted of a node, the owner's numbers.
pub(crate) struct Counts<P: Platform> {
    /// Allocations served here with a frame that did not come off the list.
    pub(crate) nr_given_past_list: CounterCell<P>,
    /// Allocations served here that wanted another node.
    pub(crate) nr_misses: CounterCell<P>,
    /// Allocations that wanted this node and were served by another.
    pub(crate) nr_foreign: CounterCell<P>,
}

impl<P: Platform> Counts<P> {
    fn new() -> Self {
        Self { nr_given_past_list: CounterCell::new(), nr_misses: CounterCell::new(), nr_foreign: CounterCell::new() }
    }
}

/// What a zone gives at once.
pub(crate) enum Supply {
    Chain(Span),
    Row(Span),
}

impl<P: Platform> List<P> {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            // It holds `high` frames and one more before it sheds, or a batch on top of its last one.
            stash: Stash::new(shape.high + 2),
            chain: Reserve::new(),
            row: Reserve::new(),
            block: Reserve::new(),
            target: P::AtomicUsize::new(shape.batch),
            nr_freed_then: P::AtomicU64::new(0),
            counts: Counts::new(),
            shape,
        }
    }

    /// Returns how many allocations got frames of this zone on this CPU.
    pub(crate) fn nr_given(&self) -> u64 {
        self.stash.nr_popped().wrapping_add(self.counts.nr_given_past_list.get())
    }

    /// Notes a visit to the zone; returns how many frames come from there at most. The owner's.
    pub(crate) fn visit_zone(&self) -> usize {
        // Relaxed: the owner's numbers. That others lower the target may be lost; then the next empty zone lowers it.
        let (target, nr_freed) = (self.target.load(Ordering::Relaxed), self.stash.nr_pushed());
        let nr_since = nr_freed - self.nr_freed_then.load(Ordering::Relaxed);
        self.nr_freed_then.store(nr_freed, Ordering::Relaxed);
        let next = if nr_since > RARE * target as u64 { target / 2 } else { target * 2 };
        self.target.store(next.clamp(self.shape.batch, self.shape.behind_max), Ordering::Relaxed);
        target
    }

    /// Lets the CPU keep as little as it may, from its next visit on. Anybody's.
    pub(crate) fn shrink(&self) {
        // Relaxed: as in `visit_zone`.
        self.target.store(self.shape.batch, Ordering::Relaxed);
    }

    /// Returns how many frames are in; exact while nobody takes or puts any.
    pub(crate) fn len(&self) -> usize {
        self.stash.len() + self.chain.len() + self.row.len() + self.block.len()
    }

    /// Takes the chain. Anybody's; the owner's inside a move.
    pub(crate) fn take_chain(&self) -> Option<Span> {
        self.chain.take()
    }

    /// Takes the row, or the block. Anybody's.
    pub(crate) fn take_row(&self) -> Option<Span> {
        self.row.take().or_else(|| self.block.take())
    }

    /// Takes the block if it is of that order. The owner's.
    pub(crate) fn take_block(&self, order: u8) -> Option<Pfn> {
        if self.block.len() != 1 << order {
            return None;
        }
        self.block.take().map(|block| Pfn::new(block.first))
    }

    /// Keeps a block if it is small and there is none; says whether it does. The owner's.
    pub(crate) fn keep_block(&self, pfn: Pfn, order: u8) -> bool {
        let keeps = self.shape.keeps_blocks && (1..=BLOCK_ORDER_MAX).contains(&order) && self.block.len() == 0;
        if keeps {
            let _moving = self.stash.begin_move();
            self.block.put(Some(Span { first: pfn.get(), len: 1 << order }));
        }
        keeps
    }

    /// Moves frames from behind the list onto it, and takes one. The owner's.
    pub(crate) fn refill(&self, frames: &Frames<P>) -> Option<usize> {
        if self.chain.len() + self.row.len() == 0 {
            return None;
        }
        let _moving = self.stash.begin_move();
        let supply = self.chain.take().map(Supply::Chain).or_else(|| self.row.take().map(Supply::Row));
        supply.map(|supply| self.stow(supply, frames))
    }

    /// Puts a batch of a supply's frames onto the list and the others behind it, where there are none of its kind;
    /// takes one.
    /// The owner's, inside a move.
    pub(crate) fn stow(&self, supply: Supply, frames: &Frames<P>) -> usize {
        match supply {
            Supply::Chain(chain) => self.stow_chain(chain, frames),
            Supply::Row(row) => self.stow_row(row),
        }
    }

    fn stow_chain(&self, chain: Span, frames: &Frames<P>) -> usize {
        let nr_stowed = self.shape.batch.min(chain.len as usize) - 1;
        let (first, mut next) = frames.unchain(chain.first);
        self.stash.push_all(nr_stowed, || {
            let (thing, behind) = frames.unchain(next);
            next = behind;
            thing
        });
        self.chain.put(Span { first: next, len: chain.len - nr_stowed as u32 - 1 }.or_none());
        first
    }

    fn stow_row(&self, row: Span) -> usize {
        let nr_stowed = self.shape.batch.min(row.len as usize) - 1;
        let mut numbers = row.first + 1..;
        self.stash.push_all(nr_stowed, || numbers.next().unwrap_or_default() as usize);
        self.row.put(Span { first: numbers.start, len: row.len - nr_stowed as u32 - 1 }.or_none());
        row.first as usize
    }

    /// Takes the chain if it is longer than it may be: it came from a CPU that may keep more. The owner's, inside a
    /// move.
    pub(crate) fn take_surplus(&self) -> Option<Span> {
        if self.chain.len() > self.shape.behind_max + self.shape.batch { self.chain.take() } else { None }
    }

    /// Moves the list's coldest frames to the chain; returns it, now empty here, if more is behind the list than may
    /// be. The owner's, inside a move.
    pub(crate) fn shed(&self, frames: &Frames<P>) -> Option<Span> {
        let chain = frames.chain(self.stash.shed(self.shape.batch), self.chain.take());
        // Relaxed: as in `visit_zone`.
        let target = self.target.load(Ordering::Relaxed);
        let is_full = |chain: &Span| {
            let len = chain.len as usize;
            len > target || len + self.row.len() > self.shape.behind_max + self.shape.batch
        };
        let full = chain.filter(is_full);
        if full.is_none() {
            self.chain.put(chain);
        }
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::native::{HostRegion, Native};

    const SMALL: Shape = Shape { high: 8, batch: 2, behind_max: 16, keeps_blocks: false };

    #[test]
    fn a_cpu_keeps_a_part_of_memory_or_a_mebibyte() {
        let all_of = |shape: Shape| shape.kept_max() + if shape.keeps_blocks { 1 << BLOCK_ORDER_MAX } else { 0 };
        let default = Options::default();
        for (nr_frames, most) in [(1 << 10, 256), (256 << 10, 256), (260 << 10, 260), (1 << 20, 1024)] {
            let shape = Shape::of_own(nr_frames, 1, &default);
            assert_eq!((all_of(shape), shape.keeps_blocks), (most, true), "of {nr_frames}");
            assert_eq!((shape.high, shape.batch), (default.list_high, default.list_batch));
        }
        // Lists of other nodes count, and each has its part of half a mebibyte.
        let other = Shape::of_other(2, &default);
        assert_eq!((other.high, other.batch, other.behind_max, other.keeps_blocks), (32, 32, 32, false));
        assert_eq!(other.kept_max(), 32 + 1 + 32 + 32);
        assert_eq!(all_of(Shape::of_own(1 << 20, 2, &default)), 1024 - other.kept_max());
        let of_three = Shape::of_other(3, &default);
        assert_eq!(of_three.batch, 16);
        assert_eq!(all_of(Shape::of_own(1 << 20, 3, &default)), 1024 - 2 * of_three.kept_max());
        assert_eq!([5, 9, 33, 1024].map(|nr_nodes| Shape::of_other(nr_nodes, &default).batch), [8, 4, 1, 1]);
    }

    #[test]
    fn short_lists_have_little_behind_them() {
        let of = |list_high, list_batch| {
            let shape = Shape::of_own(1 << 20, 1, &Options { list_high, list_batch, ..Options::default() });
            (shape.behind_max, shape.keeps_blocks)
        };
        assert_eq!(of(4, 2), (4 * KEPT_LISTS - 4 - 1 - 2, false));
        assert_eq!(of(SHORT_LISTS - 1, 2), ((SHORT_LISTS - 1) * (KEPT_LISTS - 1) - 1 - 2, false));
        assert_eq!(of(SHORT_LISTS, 2), (1024 - SHORT_LISTS - 1 - 2 - 16, true));
        // A batch at least.
        let tight = Shape::of_own(1, 1, &Options { list_high: 192, list_batch: 64, ..Options::default() });
        assert_eq!(tight.behind_max, 64);
    }

    #[test]
    fn what_comes_at_once_doubles_unless_many_were_freed_since() {
        let list = List::<Native>::new(SMALL);
        let free = |nr_frames| {
            for frame in 0..nr_frames {
                list.stash.push(frame);
                assert_eq!(list.stash.pop(), Some(frame));
            }
        };
        let visits = |nr_visits| (0..nr_visits).map(|_| list.visit_zone()).collect::<std::vec::Vec<_>>();
        assert_eq!(visits(5), [2, 4, 8, 16, 16], "up to what may be behind the list");
        free(16 * RARE as usize);
        assert_eq!(visits(2), [16, 16], "just so many are not too many");
        free(16 * RARE as usize + 1);
        assert_eq!(visits(3), [16, 8, 16]);
        // Those count that were freed since the last visit.
        free(10 * RARE as usize);
        assert_eq!(visits(1), [16]);
        free(10 * RARE as usize);
        assert_eq!(visits(2), [16, 16]);
        list.shrink();
        assert_eq!(visits(2), [2, 4]);
        free(8 * RARE as usize + 1);
        assert_eq!(visits(1), [8]);
        free(4 * RARE as usize + 1);
        assert_eq!(visits(1), [4]);
        free(3 * RARE as usize);
        assert_eq!(visits(1), [2], "never below a batch");
        list.shrink();
        free(3 * RARE as usize);
        assert_eq!(visits(2), [2, 2]);
    }

    #[test]
    fn a_row_comes_onto_the_list_a_batch_at_a_time() {
        let region = HostRegion::reserve(1 << 20).expect("the host has room");
        // SAFETY: the region is zeroed, ours alone, and outlives the frames.
        let frames = unsafe { Frames::<Native>::new(region.base(), region.len_bytes()) }.expect("large enough");
        let list = List::<Native>::new(SMALL);
        assert_eq!(list.refill(&frames), None);
        let first = frames.first();
        let took = {
            let _moving = list.stash.begin_move();
            list.stow(Supply::Row(Span { first, len: 5 }), &frames)
        };
        let number = |place: u32| (first + place) as usize;
        assert_eq!((took, list.stash.len(), list.row.len(), list.len()), (number(0), 1, 3, 4));
        assert_eq!(list.stash.pop(), Some(number(1)));
        assert_eq!((list.refill(&frames), list.stash.pop()), (Some(number(2)), Some(number(3))));
        assert_eq!((list.refill(&frames), list.len()), (Some(number(4)), 0));
        assert_eq!(list.refill(&frames), None);
    }

    #[test]
    fn a_chain_is_shed_once_it_is_longer_than_it_may_be() {
        let region = HostRegion::reserve(1 << 20).expect("the host has room");
        // SAFETY: the region is zeroed, ours alone, and outlives the frames.
        let frames = unsafe { Frames::<Native>::new(region.base(), region.len_bytes()) }.expect("large enough");
        let list = List::<Native>::new(SMALL);
        let first = frames.first() as usize;
        let shed = || {
            let _moving = list.stash.begin_move();
            list.shed(&frames).map(|chain| chain.len)
        };
        let free = |nr_frames| (first..first + nr_frames).map(|frame| list.stash.push(frame)).last();
        assert_eq!(free(8), Some(8));
        // At most 2 at first: the third one takes along what is there.
        assert_eq!((shed(), list.chain.len()), (None, 2));
        assert_eq!((shed(), list.chain.len(), list.stash.len()), (Some(4), 0, 4));
        // Its newest come out of it first, a batch at a time.
        assert_eq!((shed(), list.chain.len()), (None, 2));
        assert_eq!((list.refill(&frames), list.stash.len(), list.len()), (Some(first + 5), 3, 3));
        assert_eq!([list.stash.pop(), list.stash.pop(), list.stash.pop()], [4, 7, 6].map(|place| Some(first + place)));
        // A row beside it counts.
        assert_eq!([list.visit_zone(), list.visit_zone(), list.visit_zone()], [2, 4, 8]);
        list.row.put(Some(Span { first: first as u32 + 20, len: 16 }));
        assert_eq!(free(6), Some(6));
        assert_eq!((shed(), list.chain.len()), (None, 2), "16 behind it, and a batch besides");
        assert_eq!((shed(), list.chain.len()), (Some(4), 0));
        // What came from a CPU that may keep more is a surplus.
        for (len, is_surplus) in [(18, false), (19, true)] {
            list.chain.put(Some(Span { first: first as u32, len }));
            assert_eq!(list.take_surplus().is_some(), is_surplus, "{len}");
            list.take_chain();
        }
    }

    #[test]
    fn a_kept_block_comes_out_for_its_own_order_alone() {
        let list = List::<Native>::new(Shape::of_own(1 << 20, 1, &Options::default()));
        let block = Pfn::new(64);
        assert!(!list.keep_block(block, 0), "a frame is none");
        assert!(!list.keep_block(block, BLOCK_ORDER_MAX + 1), "too large");
        assert!(list.keep_block(block, 3));
        assert!(!list.keep_block(Pfn::new(128), 2), "there is one");
        assert_eq!((list.len(), list.take_block(2), list.take_block(4)), (8, None, None));
        assert_eq!((list.take_block(3), list.take_block(3), list.len()), (Some(block), None, 0));
        assert!(list.keep_block(block, BLOCK_ORDER_MAX));
        assert_eq!(list.take_row(), Some(Span { first: 64, len: 1 << BLOCK_ORDER_MAX }), "whoever runs short");
    }
}
