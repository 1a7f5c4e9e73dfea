//! A CPU's frames: a list that its owner pushes to and pops from, and behind it a chain and a row of frames.
//!
//! # Guarantee
//! Each frame is in one of the three, or on its way between them inside a move of the list's, which searchers wait for. What goes
//! between them, a batch at a time, touches nothing of any other CPU.

use crate::frames::Frames;
use crate::reserve::{Reserve, Span};
use crate::stash::{Batch, Stash};
use faultless_platform::Platform;

/// What one CPU has of a zone's free frames.
pub(crate) struct List<P: Platform> {
    pub(crate) stash: Stash<P>,
    /// Linked frames that were freed here, or by another CPU.
    chain: Reserve<P>,
    /// Frames next to each other: the rest of a block of the buddy allocator.
    row: Reserve<P>,
    /// The longest that the chain may be before it goes to the zone.
    chain_high: u32,
}

/// What a zone gives at once.
pub(crate) enum Supply {
    Chain(Span),
    Row(Span),
    Loose(Batch),
}

impl<P: Platform> List<P> {
    /// Returns an empty list that gives frames back once it has more than `high`.
    pub(crate) fn new(high: usize, batch: usize) -> Self {
        Self {
            // It holds `high` frames and one more before it sheds, or a batch on top of its last one.
            stash: Stash::new(high + 2),
            chain: Reserve::new(),
            row: Reserve::new(),
            chain_high: batch as u32,
        }
    }

    /// Returns how many frames are in; exact while nobody takes or puts any.
    pub(crate) fn len(&self) -> usize {
        self.stash.len() + self.chain.len() + self.row.len()
    }

    /// Takes the chain. Anybody's; the owner's inside a move.
    pub(crate) fn take_chain(&self) -> Option<Span> {
        self.chain.take()
    }

    /// Takes the row. Anybody's; the owner's inside a move.
    pub(crate) fn take_row(&self) -> Option<Span> {
        self.row.take()
    }

    /// Moves frames from behind the list onto it, and takes one. The owner's.
    pub(crate) fn refill(&self, frames: &Frames<P>, most: usize) -> Option<usize> {
        if self.chain.len() + self.row.len() == 0 {
            return None;
        }
        let _moving = self.stash.begin_move();
        match self.chain.take() {
            Some(chain) => self.stow(Supply::Chain(chain), frames, most),
            None => self.stow(Supply::Row(self.row.take()?), frames, most),
        }
    }

    /// Puts up to `most` frames of a supply onto the list and the others behind it, where there are none of its kind; takes one.
    /// The owner's, inside a move.
    pub(crate) fn stow(&self, supply: Supply, frames: &Frames<P>, most: usize) -> Option<usize> {
        let mut batch = Batch::new();
        match supply {
            Supply::Chain(chain) => self.chain.put(unchain(frames, chain, most, &mut batch)),
            Supply::Row(row) => self.row.put(cut(row, most, &mut batch)),
            Supply::Loose(loose) => batch = loose,
        }
        let first = batch.take_first();
        self.stash.push_batch(&batch);
        first
    }

    /// Moves the list's coldest frames to the chain; returns it, now empty here, if it is longer than it may be. The owner's,
    /// inside a move.
    pub(crate) fn shed(&self, frames: &Frames<P>, most: usize) -> Option<Span> {
        let batch = self.stash.shed(most);
        let chain = frames.chain(&batch, self.chain.take());
        let full = chain.filter(|chain| chain.len > self.chain_high);
        if full.is_none() {
            self.chain.put(chain);
        }
        full
    }
}

fn unchain<P: Platform>(frames: &Frames<P>, chain: Span, most: usize, batch: &mut Batch) -> Option<Span> {
    let mut rest = Some(chain);
    batch.fill(most, || {
        let (first, behind) = frames.unchain(rest?);
        rest = behind;
        Some(first)
    });
    rest
}

fn cut(row: Span, most: usize, batch: &mut Batch) -> Option<Span> {
    let mut numbers = row.first..row.first + row.len;
    batch.fill(most, || numbers.next().map(|number| number as usize));
    (!numbers.is_empty()).then_some(Span { first: numbers.start, len: numbers.len() as u32 })
}
