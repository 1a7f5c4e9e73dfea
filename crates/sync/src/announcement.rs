//! An announced change of a range: readers elsewhere go on, and the writer waits for those who came before.
//!
//! # Guarantee
//! If a reader finds no change of its place announced ([`Announcement::is_made`], [`Announcement::concerns`]), none
//! happens until its RCU section ends, and the reader sees all earlier changes of that place. The writer announces
//! first, then waits for the sections under way ([`Rcu::await_sections_of`](crate::Rcu::await_sections_of)), and changes
//! only what lies in the range.
//!
//! # Words first
//! `count`: odd while a change is announced. `start`, `end`: the places that it is about, while the count is odd.
//!
//! # Invariants
//! * I1 writers are serialised by their caller.
//! * I2 a change that begins inside another one sets a range that covers both, and waits again.
//!
//! # Race
//! ```text
//! writer                                     reader, in a section that began with a fence
//! start, end = range          (Release)      count odd?                       (Acquire)
//! count = odd                                  do start, end contain the place? (Acquire) give up
//! fence; waits for the sections under way    uses what is at the place
//! changes what is in the range
//! count = even                (Release)
//! ```
//! One of the two fences comes first. If it is the writer's, the reader sees all three words, or later ones. If it is
//! the reader's, the writer waits for the reader, whatever that read: perhaps the odd count of the previous change, and
//! one or both bounds of this one. Then the reader sees all that the previous change did, because this one's bounds
//! were stored after it. Forbidden: a reader beside a change of its place, or one that misses an earlier change. Model:
//! `tests/models/announcement.rs`.

use crate::SeqCount;
use core::ops::Range;
use faultless_platform::{Atomic, Ordering, Processor};

/// See the module.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::Announcement;
///
/// let change = Announcement::<Native>::new();
/// assert!(change.is_made() && change.concerns(7), "all of what is not published yet");
/// change.end();
/// change.set_range(0..4);
/// change.begin();
/// assert!(change.is_made() && change.concerns(3) && !change.concerns(4));
/// change.end();
/// assert!(!change.is_made());
/// ```
pub struct Announcement<P: Processor> {
    count: SeqCount<P>,
    start: P::AtomicU64,
    end: P::AtomicU64,
}

impl<P: Processor> Announcement<P> {
    /// Returns the announcement of something not yet published: a change of all of it is announced.
    pub fn new() -> Self {
        Self { count: SeqCount::new_in_write(), start: P::AtomicU64::new(0), end: P::AtomicU64::new(u64::MAX) }
    }

    /// Sets the range of the next change, or of the one that is announced.
    #[inline]
    pub fn set_range(&self, range: Range<u64>) {
        // ORDER: Release pairs with the Acquire in `concerns`: a reader of a bound sees what the previous change did.
        self.start.store(range.start, Ordering::Release);
        self.end.store(range.end, Ordering::Release);
    }

    /// Announces a change of the range that was set. The caller waits for readers before it changes anything in it.
    #[inline]
    pub fn begin(&self) {
        self.count.begin_write();
    }

    /// Ends the change.
    #[inline]
    pub fn end(&self) {
        self.count.end_write();
    }

    /// Says whether a change is announced.
    #[inline]
    pub fn is_made(&self) -> bool {
        self.count.read().is_write_in_progress()
    }

    /// Says whether the announced change covers a place.
    pub fn concerns(&self, place: u64) -> bool {
        // ORDER: Acquire pairs with the Release in `set_range`.
        let start = self.start.load(Ordering::Acquire);
        // ORDER: as above.
        let end = self.end.load(Ordering::Acquire);
        (start..end).contains(&place)
    }
}

impl<P: Processor> Default for Announcement<P> {
    fn default() -> Self {
        Self::new()
    }
}
