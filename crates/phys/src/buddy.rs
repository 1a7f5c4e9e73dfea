//! The buddy allocator: blocks of 2^order frames, split and merged.
//!
//! # Guarantee
//! `take` fails only if no block of that order can be made from what is free here. A block given back is merged
//! with its neighbour of the same size as long as that one is free too, so that large blocks come back.
//!
//! # Invariants
//! * I1 a frame's state says listed at order k if and only if it heads a block on list k, whose frames are all free.
//! * I2 a block of order k begins at a multiple of 2^k. The lists hold no two blocks that could be merged.
//! * I3 frames from `fresh` on were never given out, and their metadata never written.
//!
//! # The picture
//! ```text
//! start                        fresh                        end
//! | listed or in use           | never touched              |
//! heads[0] -> 7 <-> 21    heads[1] -> 12    heads[2]    ...    links in the blocks' first metadata
//! ```
//! A list's newest block is taken first, because its lines are warm. When no list has a large enough block, one of the
//! wanted size is cut from `fresh` on, which touches no metadata: set-up writes nothing, whatever the region's size.
//!
//! Source: Knuth, The Art of Computer Programming, volume 1, section 2.5; the mark is ours.

use crate::MAX_ORDER;
use crate::frames::Frames;
use crate::pfn::Pfn;
use crate::reserve::Span;
use crate::state::State;
use core::ops::Range;
use faultless_platform::{Atomic, Ordering, Platform};

const NR_ORDERS: usize = MAX_ORDER as usize + 1;
/// Frames of the largest block.
const BLOCK_MAX: u32 = 1 << MAX_ORDER;

/// No block: frame 0 holds metadata and is never listed.
const NONE: u32 = 0;

/// The free blocks of one zone. Its lock is the zone's.
pub(crate) struct Buddy<P: Platform> {
    frames: Frames<P>,
    range: Range<u32>,
    heads: [u32; NR_ORDERS],
    fresh: u32,
    nr_free: usize,
}

impl<P: Platform> Buddy<P> {
    /// Returns the allocator of some of a region's frames, every one free.
    pub(crate) fn new(frames: Frames<P>, range: Range<u32>) -> Self {
        debug_assert!(frames.first() <= range.start && range.end <= frames.end());
        Self { frames, heads: [NONE; NR_ORDERS], fresh: range.start, nr_free: range.len(), range }
    }

    /// Returns the number of free frames.
    pub(crate) fn nr_free(&self) -> usize {
        self.nr_free
    }

    /// Returns the first frame that was never given out.
    pub(crate) fn fresh(&self) -> u32 {
        self.fresh
    }

    /// Takes a block.
    pub(crate) fn take(&mut self, order: u8) -> Option<Pfn> {
        let block = loop {
            if let Some(at) = (order..=MAX_ORDER).find(|&at| self.heads[at as usize] != NONE) {
                break self.pop_part(at, order);
            }
            let (block, at) = self.cut(order)?;
            if at == order {
                break block;
            }
            // At either end of the untouched frames. It may complete a block of the wanted order.
            self.list(block, at);
        };
        self.nr_free -= 1 << order;
        Some(Pfn::new(block))
    }

    /// Takes a block of at most `order`, the largest that there is; returns its order too.
    pub(crate) fn take_at_most(&mut self, order: u8) -> Option<(Pfn, u8)> {
        (0..=order.min(MAX_ORDER)).rev().find_map(|order| Some((self.take(order)?, order)))
    }

    /// Takes frames in a row, at most `most` of them: the largest block that there is, and untouched blocks behind it.
    /// Takes as long for many as for few.
    pub(crate) fn take_row(&mut self, most: usize) -> Option<Span> {
        let (first, order) = self.take_at_most(most.ilog2() as u8)?;
        let row = Span { first: first.get(), len: 1 << order };
        let more = if row.first + row.len == self.fresh { self.cut_more(most as u32 - row.len) } else { 0 };
        Some(Span { len: row.len + more, ..row })
    }

    /// Cuts whole blocks of the largest order from the beginning of the untouched frames; returns how many frames.
    fn cut_more(&mut self, most: u32) -> u32 {
        if !self.fresh.is_multiple_of(BLOCK_MAX) {
            return 0;
        }
        let cut = most.min(self.range.end - self.fresh) / BLOCK_MAX * BLOCK_MAX;
        self.fresh += cut;
        self.nr_free -= cut as usize;
        cut
    }

    /// Gives a block back.
    pub(crate) fn give(&mut self, pfn: Pfn, order: u8) {
        self.nr_free += 1 << order;
        self.list(pfn.get(), order);
    }

    /// Gives `len` frames in a row back, in as few blocks as they make.
    pub(crate) fn give_row(&mut self, first: Pfn, len: u32) {
        let (mut next, end) = (first.get(), first.get() + len);
        while next < end {
            let order = largest_order(next, end - next, MAX_ORDER);
            self.give(Pfn::new(next), order);
            next += 1 << order;
        }
    }

    /// Lists a free block, merged with its neighbours.
    fn list(&mut self, mut block: u32, mut order: u8) {
        while order < MAX_ORDER && self.is_listed(block ^ 1 << order, order) {
            self.unlink(block ^ 1 << order, order);
            block &= !(1 << order);
            order += 1;
        }
        self.push(block, order);
    }

    /// Takes a block of order `want` from a listed one of order `have`; the halves that are left over are listed.
    fn pop_part(&mut self, have: u8, want: u8) -> u32 {
        let block = self.pop(have);
        for order in (want..have).rev() {
            self.push(block + (1 << order), order);
        }
        block
    }

    /// Cuts the largest block of at most `order` from the beginning of the untouched frames; returns its order too.
    fn cut(&mut self, order: u8) -> Option<(u32, u8)> {
        let (block, left) = (self.fresh, self.range.end - self.fresh);
        if left == 0 {
            return None;
        }
        let at = largest_order(block, left, order);
        self.fresh += 1 << at;
        Some((block, at))
    }

    fn is_listed(&self, block: u32, order: u8) -> bool {
        self.range.contains(&block) && self.state(block).is_listed_at(order)
    }

    fn state(&self, block: u32) -> State {
        self.frames.page(Pfn::new(block)).state()
    }

    /// Changes a free frame's state, keeping what it says of the frame's content.
    fn mark(&self, block: u32, state: State) {
        let page = self.frames.page(Pfn::new(block));
        page.set_state(state.keep_poison(page.state()));
    }

    fn push(&mut self, block: u32, order: u8) {
        debug_assert!(!self.state(block).is_listed(), "I1: a block is listed twice");
        let next = core::mem::replace(&mut self.heads[order as usize], block);
        self.set_links(block, NONE, next);
        if next != NONE {
            self.set_link(next, PREVIOUS, block);
        }
        self.mark(block, State::listed(order));
    }

    fn pop(&mut self, order: u8) -> u32 {
        let block = self.heads[order as usize];
        self.unlink(block, order);
        block
    }

    fn unlink(&mut self, block: u32, order: u8) {
        let (previous, next) = (self.link(block, PREVIOUS), self.link(block, NEXT));
        if previous == NONE {
            self.heads[order as usize] = next;
        } else {
            self.set_link(previous, NEXT, next);
        }
        if next != NONE {
            self.set_link(next, PREVIOUS, previous);
        }
        self.mark(block, State::FREE);
    }

    fn set_links(&self, block: u32, previous: u32, next: u32) {
        self.set_link(block, PREVIOUS, previous);
        self.set_link(block, NEXT, next);
    }

    fn link(&self, block: u32, which: usize) -> u32 {
        // Relaxed: the links of free frames are the zone lock's; the value fits, as `set_link` wrote it.
        self.frames.page(Pfn::new(block)).links()[which].load(Ordering::Relaxed) as u32
    }

    fn set_link(&self, block: u32, which: usize, to: u32) {
        // Relaxed: as in `link`.
        self.frames.page(Pfn::new(block)).links()[which].store(u64::from(to), Ordering::Relaxed);
    }
}

const PREVIOUS: usize = 0;
const NEXT: usize = 1;

/// Returns the order of the largest block that begins at `block`, has `left` frames or fewer, and is of at most `most`.
fn largest_order(block: u32, left: u32, most: u8) -> u8 {
    block.trailing_zeros().min(left.ilog2()).min(u32::from(most)) as u8
}

#[cfg(test)]
mod tests;
