//! A row or a chain of frames in one word: what a CPU keeps behind its list, and what a zone got back.
//!
//! # Guarantee
//! Whoever takes a span out of a [`Reserve`] has its frames alone. The owner puts spans in; anybody takes.
//!
//! # Word first
//! Bits 0-31: the first frame. Bits 32-63: how many there are; 0 means that there is none.

use faultless_platform::{Atomic, Ordering, Processor};

/// Some free frames, of which the first says where the others are: next to it, or linked to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u32,
    pub(crate) len: u32,
}

impl Span {
    /// Returns the word that stands for a span, or for none.
    pub(crate) fn bits(span: Option<Self>) -> u64 {
        span.map_or(0, |span| u64::from(span.len) << 32 | u64::from(span.first))
    }

    /// Returns the span, or none if it has no frames.
    pub(crate) fn or_none(self) -> Option<Self> {
        (self.len != 0).then_some(self)
    }

    /// Returns the span that a word stands for.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        Self { first: bits as u32, len: (bits >> 32) as u32 }.or_none()
    }
}

/// A place for a span, with one owner and any number of takers.
pub(crate) struct Reserve<P: Processor>(P::AtomicU64);

impl<P: Processor> Reserve<P> {
    pub(crate) fn new() -> Self {
        Self(P::AtomicU64::new(0))
    }

    /// Returns how many frames are in.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: a snapshot.
        Span::from_bits(self.0.load(Ordering::Relaxed)).map_or(0, |span| span.len as usize)
    }

    /// Takes the span out. Anybody's; the owner's inside a move.
    pub(crate) fn take(&self) -> Option<Span> {
        // ORDER: Acquire pairs with the Release in `put`: the links are seen. Release: a searcher that finds nothing
        // here sees that the owner's move has begun (`Stash::begin_move`).
        match self.0.load(Ordering::Acquire) {
            0 => None,
            _ => Span::from_bits(self.0.swap(0, Ordering::AcqRel)),
        }
    }

    /// Puts a span into the empty place. The owner's, inside a move.
    pub(crate) fn put(&self, span: Option<Span>) {
        debug_assert_eq!(self.len(), 0, "the frames in a reserve would be lost");
        // ORDER: Release pairs with the Acquire in `take`.
        self.0.store(Span::bits(span), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_platform::native::Native;

    #[test]
    fn a_span_comes_out_once() {
        let reserve = Reserve::<Native>::new();
        assert_eq!((reserve.len(), reserve.take()), (0, None));
        let span = Some(Span { first: u32::MAX, len: 7 });
        reserve.put(span);
        assert_eq!((reserve.len(), reserve.take(), reserve.take()), (7, span, None));
        reserve.put(None);
        assert_eq!(reserve.take(), None);
    }
}
