//! Free frames linked through their metadata, and the chains that a zone got back.
//!
//! # Guarantee
//! A chain is put on the stack by one compare-and-swap, without a lock, and taken off by whoever holds the zone's.
//!
//! # Words in a frame's metadata
//! ```text
//! stack: top --> A ----links[1]----> D --> ...       links[0]: the next frame of the chain
//!                | links[0]          |               links[1]: of a chain's first frame on the stack: the next chain, and
//!                B -> C              E -> F                    how many frames they and those behind it have
//! ```
//! How long a chain is stands in the [`Span`] that names it; on the stack it is the difference of two sums.
//!
//! # Invariants
//! * I1 the links of a chain's frames are its owner's; those of a chain on the stack change no more.
//! * I2 one at a time takes chains off. So the top, while it stays the same word, is the same chain: it can't have been
//!   taken and come back meanwhile.
//!
//! # Two CPUs push while a third one pops
//! ```text
//! push: CPU A, CPU B                      pop: the holder of the zone's lock
//! link the chain's frames                 top = the stack's, Acquire
//! links[1] = top                          below = links[1] of top
//! CAS(top, chain), Release                CAS(top, below): its frames are mine
//! ```
//! Forbidden: a popper that reads links older than the push that it saw; a chain lost because `below` was older than
//! the top that the exchange replaced. Models: `model_tests`.

use crate::frames::Frames;
use crate::pfn::Pfn;
use crate::reserve::Span;
use faultless_platform::{Atomic, Ordering, Platform, Processor};

const IN_CHAIN: usize = 0;
const ON_STACK: usize = 1;

/// Where the links of free frames are: in their metadata, but in a model.
pub(crate) trait Links<P: Processor> {
    /// Returns a frame's two links.
    fn links_of(&self, thing: usize) -> &[P::AtomicU64; 2];

    /// Links frames, of which the last is to come out first, in front of `rest`.
    fn chain(&self, things: impl Iterator<Item = usize>, rest: Option<Span>) -> Option<Span> {
        things.fold(rest, |rest, thing| {
            self.links_of(thing)[IN_CHAIN].store(Span::bits(rest) & u64::from(u32::MAX), Ordering::Relaxed);
            Some(Span { first: thing as u32, len: rest.map_or(0, |rest| rest.len) + 1 })
        })
    }

    /// Takes the first frame off a chain; returns the next one too, which means something unless this was the last.
    #[inline]
    fn unchain(&self, first: u32) -> (usize, u32) {
        // Relaxed: whoever handed the chain over released the links (I1).
        (first as usize, self.links_of(first as usize)[IN_CHAIN].load(Ordering::Relaxed) as u32)
    }

    /// Takes the first frame off a chain; returns the rest too.
    fn split_first(&self, chain: Span) -> (usize, Option<Span>) {
        let (first, next) = self.unchain(chain.first);
        (first, Span { first: next, len: chain.len - 1 }.or_none())
    }
}

impl<P: Platform> Links<P> for Frames<P> {
    fn links_of(&self, thing: usize) -> &[P::AtomicU64; 2] {
        self.page(Pfn::new(thing as u32)).links()
    }
}

/// The chains that a zone got back and has not merged.
pub(crate) struct ChainStack<P: Processor> {
    /// The first chain's first frame, and how many frames all chains have.
    top: P::AtomicU64,
}

impl<P: Processor> ChainStack<P> {
    pub(crate) fn new() -> Self {
        Self { top: P::AtomicU64::new(0) }
    }

    /// Returns how many frames all chains have.
    pub(crate) fn nr_frames(&self) -> usize {
        // Relaxed: a snapshot.
        Span::from_bits(self.top.load(Ordering::Relaxed)).map_or(0, |all| all.len as usize)
    }

    /// Puts a chain on top.
    pub(crate) fn push(&self, frames: &impl Links<P>, chain: Span) {
        // Relaxed: the compare-and-swap fails if it is old, and nothing is read through it.
        let mut below = self.top.load(Ordering::Relaxed);
        loop {
            frames.links_of(chain.first as usize)[ON_STACK].store(below, Ordering::Relaxed);
            let len = chain.len + Span::from_bits(below).map_or(0, |all| all.len);
            let all = Span::bits(Some(Span { len, ..chain }));
            // ORDER: Release pairs with the Acquire in `pop`: the links are seen.
            match self.top.compare_exchange_weak(below, all, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => below = now,
            }
        }
    }

    /// Takes the newest chain off. One at a time calls it (I2).
    pub(crate) fn pop(&self, frames: &impl Links<P>) -> Option<Span> {
        // ORDER: Acquire pairs with the Release in `push`.
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let all = Span::from_bits(top)?;
            let below = frames.links_of(all.first as usize)[ON_STACK].load(Ordering::Relaxed);
            // ORDER: Acquire on failure, as above. Relaxed on success: the chain is the one that was seen (I2). Each
            // change of `top` is an exchange, so that what was released before still is.
            match self.top.compare_exchange_weak(top, below, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => {
                    return Some(Span { len: all.len - Span::from_bits(below).map_or(0, |below| below.len), ..all });
                }
                Err(now) => top = now,
            }
        }
    }
}

// Not under Miri, which knows no coroutines: the models run on those of loom.
#[cfg(all(test, not(miri)))]
pub(crate) mod model_tests;
