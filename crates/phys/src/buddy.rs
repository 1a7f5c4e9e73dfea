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
//! first                        fresh                        end
//! | listed or in use           | never touched              |
//! heads[0] -> 7 <-> 21    heads[1] -> 12    heads[2]    ...    links in the blocks' first metadata
//! ```
//! A list's newest block is taken first, because its lines are warm. When no list has a large enough block, the largest
//! aligned one is cut from `fresh` on: so set-up writes nothing, whatever the region's size.
//!
//! Source: Knuth, The Art of Computer Programming, volume 1, section 2.5; the mark is ours.

use crate::MAX_ORDER;
use crate::frames::Frames;
use crate::pfn::Pfn;
use crate::state::State;
use faultless_platform::{Atomic, Ordering, Platform};

const NR_ORDERS: usize = MAX_ORDER as usize + 1;

/// No block: frame 0 holds metadata and is never listed.
const NONE: u32 = 0;

/// The free blocks of one zone. Its lock is the zone's.
pub(crate) struct Buddy<P: Platform> {
    frames: Frames<P>,
    heads: [u32; NR_ORDERS],
    fresh: u32,
    nr_free: usize,
}

impl<P: Platform> Buddy<P> {
    /// Returns the allocator of all of a region's frames, every one free.
    pub(crate) fn new(frames: Frames<P>) -> Self {
        let nr_free = (frames.end() - frames.first()) as usize;
        Self { frames, heads: [NONE; NR_ORDERS], fresh: frames.first(), nr_free }
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
        let listed = (order..=MAX_ORDER).find(|&order| self.heads[order as usize] != NONE);
        let (block, at) = match listed {
            Some(at) => (self.pop(at), at),
            None => self.cut(order)?,
        };
        self.split(block, at, order);
        self.nr_free -= 1 << order;
        Some(Pfn::new(block))
    }

    /// Gives a block back.
    pub(crate) fn give(&mut self, pfn: Pfn, order: u8) {
        self.nr_free += 1 << order;
        let (mut block, mut order) = (pfn.get(), order);
        while order < MAX_ORDER && self.is_listed(block ^ 1 << order, order) {
            self.unlink(block ^ 1 << order, order);
            block &= !(1 << order);
            order += 1;
        }
        self.push(block, order);
    }

    /// Lists the halves that are left over when a block of order `have` serves `want`.
    fn split(&mut self, block: u32, have: u8, want: u8) {
        for order in (want..have).rev() {
            self.push(block + (1 << order), order);
        }
    }

    /// Cuts blocks from the untouched frames until one is large enough; lists the smaller ones.
    fn cut(&mut self, order: u8) -> Option<(u32, u8)> {
        loop {
            let (block, at) = self.cut_largest()?;
            if at >= order {
                return Some((block, at));
            }
            // No neighbour of a block that is cut smaller than the largest can be free: it is metadata, or the end.
            self.push(block, at);
        }
    }

    fn cut_largest(&mut self) -> Option<(u32, u8)> {
        let left = self.frames.end() - self.fresh;
        let fits = left.checked_ilog2()?;
        let order = self.fresh.trailing_zeros().min(fits).min(u32::from(MAX_ORDER));
        let block = self.fresh;
        self.fresh += 1 << order;
        Some((block, order as u8))
    }

    fn is_listed(&self, block: u32, order: u8) -> bool {
        self.frames.contains(Pfn::new(block)) && self.state(block).is_listed_at(order)
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

#[cfg(test)]
mod tests;
