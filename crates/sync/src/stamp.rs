//! A number by which a reader finds out whether what it recalls may have changed.
//!
//! # Guarantee
//! A reader that reads the same stamp again, in an RCU section, may use what it found behind the first look, until that
//! section ends: no change of it has happened since, and none happens meanwhile.
//!
//! # Race
//! ```text
//! writer                                   reader, in a section that began with a fence
//! announces the change                     stamp as it was recalled?   (Acquire)  then use what is recalled
//! stamp += 1                  (Release)    else: is a change announced?           then recall nothing
//! fence; waits for sections under way      find it; recall it with the stamp
//! changes something
//! ends the announcement
//! ```
//! Of the two fences one comes first. The writer's: the reader reads the new stamp. The reader's: the writer waits for
//! it. And who reads the new stamp before it looks for itself sees the announcement, or that it has ended, and all that
//! the change did. Forbidden: something is used that was recalled before a change, beside that or after it. Model:
//! `tests/models/stamp.rs`.

use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};

/// See the module. The word is its owner's, zero or anything else at first.
///
/// `vm` has one in each lane of a space: by it a CPU knows whether the area that it faulted in last is as it was.
///
/// ```
/// use faultless_platform::{Processor, native::Native};
/// use faultless_sync::Stamp;
///
/// let word = <Native as Processor>::AtomicU64::from(0);
/// let stamp = Stamp::<Native>::of(&word);
/// let recalled = stamp.read();
/// assert_eq!(stamp.read(), recalled, "nothing has changed");
/// stamp.note_change();
/// assert_ne!(stamp.read(), recalled);
/// stamp.note_change_alone();
/// assert_eq!(stamp.read(), recalled + 2);
/// ```
pub struct Stamp<'a, P: Processor> {
    word: &'a P::AtomicU64,
}

impl<'a, P: Processor> Stamp<'a, P> {
    /// Returns the stamp that a word is.
    #[inline]
    pub const fn of(word: &'a P::AtomicU64) -> Self {
        Self { word }
    }

    /// Returns what to recall something with; called in an RCU section, before it is looked for.
    #[inline]
    pub fn read(&self) -> u64 {
        // ORDER: Acquire pairs with the Release in `note_change`: the announcement is seen.
        self.word.load(Ordering::Acquire)
    }

    /// Notes that a change was announced; called before the fence behind which it waits for sections.
    #[inline]
    pub fn note_change(&self) {
        // ORDER: Release pairs with the Acquire in `read`.
        self.word.fetch_add(1, Ordering::Release);
    }

    /// As [`Stamp::note_change`], called by who keeps out all others that would note something.
    #[inline]
    pub fn note_change_alone(&self) {
        // Relaxed: what keeps the others out orders it.
        let now = self.word.load(Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire in `read`.
        self.word.store(now.wrapping_add(1), Ordering::Release);
    }
}
